"""How arrays begin: from host data, filled, counted, and the masks made of counting.

Filled arrays are broadcast 0-d literals and belong to no runtime; counted ones are one `iota` and
elementwise arithmetic, so that neither is ever uploaded. Host data is.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.core.trace import frames
from pyeffect_torch.ops.base import (
    broadcast_shapes,
    describe,
    number,
    operand,
    resolve_dtype,
    saturating_cast,
    shape_of,
)
from pyeffect_torch.ops.host import holds, host_array, host_dtype, ragged
from pyeffect_torch.ops.iota import iota
from pyeffect_torch.ops.options import require_int

_f: Any = late.functions


# --- from host data


def array(obj: Any, dtype: DTypeLike | None = None) -> Array:
    """Return an array with a copy of `obj`, made at the call.

    Args:
        obj: a Python number; a NumPy array or scalar, or anything that `__array__` or `__dlpack__`
            converts to one; nested lists or tuples of all these and of arrays. Arrays are
            immutable, so an array is returned as it is.
        dtype: of the result. By default NumPy data keeps its dtype, and Python floats become
            float32, ints int64, bools bool.

    Raises:
        DTypeError: a dtype that has no counterpart (complex, str, object), or a Python int that
            does not fit.
        ShapeError: rows of unequal length.

    Example:
        >>> et.array([1.0, 2.0]).dtype.name
        'float32'
    """
    target = None if dtype is None else resolve_dtype("array", dtype)
    if isinstance(obj, Array):
        return obj if target is None else _f.cast(obj, target)
    if isinstance(obj, (bool, int, float)) and not isinstance(obj, np.generic):
        return _from_number(obj, target)
    if isinstance(obj, (list, tuple)) and holds(obj, Array):
        rows = [array(row, target) for row in obj]
        if any(row.shape != rows[0].shape for row in rows):
            raise ragged()
        return _f.stack(rows)
    return _f.upload(host_array(obj, target))


def asarray(obj: Any, dtype: DTypeLike | None = None) -> Array:
    """Return `obj` as an array; the same as `array`, as arrays are immutable."""
    return array(obj, dtype)


def _from_number(value: bool | int | float, target: DType | None) -> Array:
    scalar = _scalar("array", value, target)
    # Inside a trace a number is part of the program; outside it is a value like any other.
    return scalar if frames() else _f.upload(np.array(scalar.params, scalar.dtype))


def _scalar(name: str, value: bool | int | float, target: DType | None) -> Array:
    """A Python number as a literal of the dtype that was asked for, cast to it if need be."""
    dtype = target or dtypes.canonical(type(value)) or dtypes.float32
    if dtype is dtypes.bool_:
        value = bool(value)
    elif dtype.kind in "iu" and isinstance(value, float):
        value = int(saturating_cast(np.asarray(value), dtype))
    return number(name, value, dtype)


# --- filled arrays


def constant(value: Any, dtype: DTypeLike | None = None) -> Array:
    """Return a 0-d literal, which is embedded wherever it is used and belongs to no runtime.

    Args:
        value: a Python or NumPy number.
        dtype: by default float32, int64 or bool by the type of a Python number.
    """
    if isinstance(value, (np.generic, np.ndarray)):
        if value.ndim:
            raise ArgumentError(
                f"constant: takes a number, got an array of shape {list(value.shape)}",
                "use et.array or et.full",
            )
        target = (
            host_dtype("constant", value) if dtype is None else resolve_dtype("constant", dtype)
        )
        return _scalar("constant", value.item(), target)
    if not isinstance(value, (bool, int, float)):
        raise ArgumentError(f"constant: takes a number, got {type(value).__name__}", "use et.array")
    return _scalar("constant", value, None if dtype is None else resolve_dtype("constant", dtype))


def constant_like(x: Array, value: bool | int | float) -> Array:
    """Return a 0-d literal of the dtype of `x`."""
    return literal(value, (x if isinstance(x, Array) else operand("constant_like", x)).dtype)


def full(shape: Any, value: Any, dtype: DTypeLike | None = None) -> Array:
    """Return an array of `shape` filled with `value`.

    Args:
        shape: an int or a sequence of ints.
        value: a number, or an array that broadcasts to `shape`.
        dtype: by default that of `value`: float32, int64 or bool for a Python number.
    """
    extents = shape_of("full", shape)
    if isinstance(value, Array):
        filled = value if dtype is None else _f.cast(value, dtype)
    elif isinstance(value, np.ndarray) and value.ndim:
        filled = _f.array(value, dtype)
    else:
        filled = constant(value, dtype)
    return _f.broadcast_to(filled, extents) if filled.shape != extents else filled


def zeros(shape: Any, dtype: DTypeLike = "float32") -> Array:
    """Return zeros of `shape`; False for bool."""
    return _filled("zeros", shape, 0, dtype)


def ones(shape: Any, dtype: DTypeLike = "float32") -> Array:
    """Return ones of `shape`; True for bool."""
    return _filled("ones", shape, 1, dtype)


def empty(shape: Any, dtype: DTypeLike = "float32") -> Array:
    """Return zeros of `shape`: there is no uninitialised memory here."""
    return _filled("empty", shape, 0, dtype)


def _filled(name: str, shape: Any, value: int, dtype: DTypeLike) -> Array:
    scalar = literal(value, resolve_dtype(name, dtype))
    extents = shape_of(name, shape)
    return _f.broadcast_to(scalar, extents) if extents else scalar


def _like(name: str, x: Any, value: int, dtype: DTypeLike | None) -> Array:
    pattern = operand(name, x)
    found = pattern.dtype if dtype is None else resolve_dtype(name, dtype)
    scalar = literal(value, found)
    return _f.broadcast_to(scalar, pattern.shape) if pattern.shape else scalar


def zeros_like(x: Any, dtype: DTypeLike | None = None) -> Array:
    """Return zeros of the shape and, by default, the dtype of `x`."""
    return _like("zeros_like", x, 0, dtype)


def ones_like(x: Any, dtype: DTypeLike | None = None) -> Array:
    """Return ones of the shape and, by default, the dtype of `x`."""
    return _like("ones_like", x, 1, dtype)


def empty_like(x: Any, dtype: DTypeLike | None = None) -> Array:
    """Return zeros of the shape and, by default, the dtype of `x`."""
    return _like("empty_like", x, 0, dtype)


def full_like(x: Any, value: Any, dtype: DTypeLike | None = None) -> Array:
    """Return an array of the shape of `x`, and by default its dtype, filled with `value`."""
    pattern = operand("full_like", x)
    return full(pattern.shape, value, pattern.dtype if dtype is None else dtype)


# --- counted arrays


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: DTypeLike | None = None
) -> Array:
    """Return `start, start + step, ...` below `stop` (above it for a negative step).

    `arange(n)` counts from 0. The values are those of NumPy, to the last bit.

    Args:
        start, stop, step: Python numbers; the step is not 0.
        dtype: by default int64 if all three are ints, else float32.

    Returns:
        An array [ceil((stop - start) / step)], or [0].
    """
    if stop is None:
        start, stop = 0, start
    bounds = [_static("arange", value) for value in (start, stop, step)]
    low, high, stride = bounds
    if stride == 0:
        raise ArgumentError("arange: the step is 0", "pass a step above or below 0")
    whole = all(isinstance(value, int) for value in bounds)
    if dtype is None:
        target = dtypes.int64 if whole else dtypes.float32
    else:
        target = resolve_dtype("arange", dtype)
    if target is dtypes.bool_:
        raise DTypeError("arange: has no meaning for bool", "count in int64 and compare")
    if whole:
        count = max(0, -((int(low) - int(high)) // int(stride)))
    else:
        count = max(0, math.ceil((high - low) / stride))
    return _progression(low, stride, count, target)


def _progression(low: float, stride: float, count: int, target: DType) -> Array:
    """`low + i * stride` for i below `count`, by the arithmetic that NumPy does in `target`."""
    if target.kind in "iu":
        # The first two values are truncated, and the rest goes on from them.
        first, second = int(low), int(low + stride)
        wide = dtypes.uint64 if target is dtypes.uint64 else dtypes.int64
        steps = iota((count,), wide)
        if second - first != 1:
            steps = _f.multiply(steps, _wrapped(second - first, wide))
        if first:
            steps = _f.add(steps, _wrapped(first, wide))
        return _f.cast(steps, target)
    computed = dtypes.accumulator(target)
    first, second = (target.type(value).astype(computed) for value in (low, low + stride))
    positions = _f.cast(iota((count,)), computed)
    steps = _f.multiply(positions, literal(second - first, computed))
    return _f.cast(_f.add(steps, literal(first, computed)), target)


def _wrapped(value: int, dtype: DType) -> Array:
    bits = dtype.itemsize * 8
    residue = value % (1 << bits)
    if dtype.kind == "i" and residue >= 1 << (bits - 1):
        residue -= 1 << bits
    return literal(residue, dtype)


def _static(name: str, value: Any) -> int | float:
    if isinstance(value, Array):
        value = value.item()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise ArgumentError(f"{name}: takes finite numbers, got {value}", "pass finite numbers")
    if isinstance(value, (int, float)):  # a bool counts as 0 or 1
        return int(value) if isinstance(value, bool) else value
    raise ArgumentError(f"{name}: takes numbers, got {type(value).__name__}", "pass numbers")


def linspace(
    start: float,
    stop: float,
    num: int = 50,
    *,
    endpoint: bool = True,
    dtype: DTypeLike = "float32",
) -> Array:
    """Return `num` numbers at equal distances from `start` to `stop`, both met exactly.

    Args:
        start, stop: Python numbers.
        num: how many, at least 0.
        endpoint: whether `stop` is the last one.
        dtype: of the result; for an integer dtype the numbers are rounded down.
    """
    low, high = _static("linspace", start), _static("linspace", stop)
    (count,) = shape_of("linspace", require_int("linspace", num, "num"))
    target = resolve_dtype("linspace", dtype)
    computed = dtypes.accumulator(target) if dtypes.is_float(target) else dtypes.float64
    parts = count - 1 if endpoint else count
    if parts <= 0:
        return full((count,), float(low), computed).astype(target)
    positions = iota((count,))
    # A convex combination: no rounding error grows with the position.
    share = _f.divide(_f.cast(positions, computed), float(parts))
    low_part = _f.multiply(_f.subtract(1, share), float(low))
    values = _f.add(low_part, _f.multiply(share, float(high)))
    if endpoint:
        values = _f.where(_f.equal(positions, parts), literal(float(high), computed), values)
    if not dtypes.is_float(target):
        values = _f.floor(values)
    return _f.cast(values, target)


# --- masks and grids


def _rows_and_columns(rows: int, columns: int) -> tuple[Array, Array]:
    return iota((rows, 1), axis=0), iota((1, columns), axis=1)


def eye(rows: int, columns: int | None = None, k: int = 0, dtype: DTypeLike = "float32") -> Array:
    """Return a matrix [rows, columns or rows] with ones on diagonal `k` (above 0: to the right)."""
    shape = shape_of("eye", (rows, rows if columns is None else columns))
    row, column = _rows_and_columns(*shape)
    return _f.cast(_f.equal(_f.add(row, k), column), resolve_dtype("eye", dtype))


def tri(rows: int, columns: int | None = None, k: int = 0, dtype: DTypeLike = "float32") -> Array:
    """Return a matrix [rows, columns or rows] with ones on and below diagonal `k`."""
    shape = shape_of("tri", (rows, rows if columns is None else columns))
    row, column = _rows_and_columns(*shape)
    return _f.cast(_f.greater_equal(_f.add(row, k), column), resolve_dtype("tri", dtype))


def meshgrid(*axes: Any, indexing: Literal["xy", "ij"] = "xy") -> list[Array]:
    """Return one array per coordinate vector, all broadcast to the grid that they span.

    Args:
        axes: vectors [n_i] or numbers.
        indexing: `"ij"`: the grid is [n_0, n_1, ...]; `"xy"`: its first two axes are swapped.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing is {indexing!r}", "pass 'xy' or 'ij'")
    vectors = [operand("meshgrid", value) for value in axes]
    for vector in vectors:
        if vector.ndim > 1:
            raise ShapeError(
                f"meshgrid: takes vectors, got {describe(vector)}", "pass x.ravel() instead"
            )
    places = list(range(len(vectors)))
    if indexing == "xy" and len(vectors) > 1:
        places[:2] = 1, 0
    spread: list[Array] = []
    for vector, place in zip(vectors, places, strict=True):
        shape = [1] * len(vectors)
        shape[place] = vector.size
        spread.append(_f.reshape(vector, tuple(shape)))
    grid = broadcast_shapes("meshgrid", *(array.shape for array in spread)) if spread else ()
    return [_f.broadcast_to(array, grid) for array in spread]


def diag(x: Any, k: int = 0) -> Array:
    """Return the matrix with the vector `x` on diagonal `k`, or diagonal `k` of the matrix `x`.

    Args:
        x: [n], which gives [n + |k|, n + |k|], or a matrix.
        k: 0 is the main diagonal, above 0 lies to its right.
    """
    vector = operand("diag", x)
    if vector.ndim == 2:
        return _f.diagonal(vector, k)
    if vector.ndim != 1:
        raise ShapeError(
            f"diag: takes a vector or a matrix, got {describe(vector)}", "reshape it first"
        )
    k = require_int("diag", k, "k")
    extent = vector.shape[0] + abs(k)
    if k:
        vector = _f.concatenate([vector, zeros((abs(k),), vector.dtype)], 0)
    row, column = _rows_and_columns(extent, extent)
    # Element i stands at (i, i + k), or at (i - k, i): the vector lies along the smaller index.
    spread = _f.reshape(vector, (extent, 1) if k >= 0 else (1, extent))
    return _f.where(_f.equal(_f.add(row, k), column), spread, constant_like(vector, 0))
