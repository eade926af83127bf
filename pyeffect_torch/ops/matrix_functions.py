"""Functions of matrices made of the factorisations: norms, rank, powers, least squares."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.ops.base import (
    describe,
    mixed_dtypes,
    normalize_axis,
    operand,
    require_float,
)
from pyeffect_torch.ops.contraction import check_dtypes
from pyeffect_torch.ops.lu import inv
from pyeffect_torch.ops.matrices import column, identity_like, matrix, times
from pyeffect_torch.ops.options import require_int
from pyeffect_torch.ops.shape import expand_dims, moveaxis, reshape
from pyeffect_torch.ops.statistics import norm as vector_norm
from pyeffect_torch.ops.svd import above, pinv, svdvals, tolerance

_f: Any = late.functions


class LstsqResult(NamedTuple):
    """A least squares solution, its sums of squares, the rank and the singular values."""

    x: Array
    residuals: Array
    rank: Array
    s: Array


# --- norms


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """Return a norm of vectors or of matrices, as NumPy's `linalg.norm`.

    Args:
        x: floating; of matrices with `ord` 2, -2 or "nuc", float32 or float64.
        ord: of vectors: p (any number, also negative; 0 counts the elements that are not 0), inf
            and -inf; by default 2. Of matrices: "fro" (default) and "nuc"; 1 and inf (-1, -inf)
            are the largest (smallest) sum of magnitudes of a column and a row, 2 (-2) is the
            largest (smallest) singular value.
        axis: an int: vectors along that axis; two ints: matrices in those axes; None: all of `x`,
            which must have rank 1 or 2 unless `ord` is None too.
        keepdims: leave the axes with extent 1.

    The gradient of each norm is 0 at 0, and shared evenly where several elements attain it.

    Raises:
        ArgumentError: an order that there is not. ShapeError: the rank does not fit, an axis twice,
            or nothing to choose from. DTypeError: not floating.
    """
    array = operand("norm", x)
    require_float("norm", array)
    rank = len(array.shape)
    if axis is None:
        if ord is None:
            return vector_norm(array, None, None, keepdims=keepdims)
        if rank not in (1, 2):
            raise ShapeError(
                f"norm: ord={ord!r} of {describe(array)}, which is neither a vector nor a matrix",
                "name the axes: an int for vectors, two for matrices",
            )
        axis = tuple(range(rank))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [normalize_axis("norm", one, rank) for one in given]
    if len(axes) == 1:
        return _vector_norm(array, 2 if ord is None else ord, axes[0], keepdims)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ShapeError(
            f"norm: axes {list(given)} are not two different ones",
            "pass an int for vectors, two axes for matrices",
        )
    found = _matrix_norm(moveaxis(array, axes, (-2, -1)), "fro" if ord is None else ord)
    if keepdims:
        for one in sorted(axes):
            found = expand_dims(found, one)
    return found


def _vector_norm(x: Array, p: Any, axis: int, keepdims: bool) -> Array:
    if isinstance(p, bool) or not isinstance(p, (int, float)) or math.isnan(p):
        raise ArgumentError(f"norm: vectors have no norm of order {p!r}", "pass a number")
    if p >= 0 or math.isinf(p):
        return vector_norm(x, p, axis, keepdims=keepdims)
    # An element that is 0 has an infinite power, and makes the norm 0.
    absent = _f.equal(x, 0)
    magnitudes = _f.where(absent, _f.constant_like(x, 1), _f.abs(x))
    found = _f.power(_f.sum(_f.power(magnitudes, float(p)), axis, keepdims=keepdims), 1 / p)
    none = _f.any(absent, axis, keepdims=keepdims)
    return _f.where(none, _f.constant_like(x, 0), found)


def _matrix_norm(x: Array, order: Any) -> Array:
    if order == "fro":
        return vector_norm(x, 2, (-2, -1))
    if order in ("nuc", 2, -2) and not isinstance(order, bool):
        values = svdvals(x)
        # Where a value is 0 it has no derivative: that of a norm is 0.
        none = _f.constant_like(values, 0)
        values = _f.where(_f.equal(values, 0), none, values)
        if order == "nuc":
            return _f.sum(values, -1)
        return (_f.max if order > 0 else _f.min)(values, -1)
    if order in (1, -1, math.inf, -math.inf) and not isinstance(order, bool):
        sums = _f.sum(_f.abs(x), -2 if abs(order) == 1 else -1)
        return (_f.max if order > 0 else _f.min)(sums, -1)
    raise ArgumentError(
        f"norm: matrices have no norm of order {order!r}",
        'use "fro", "nuc", 1, -1, 2, -2, inf or -inf',
    )


# --- rank and powers


def matrix_rank(a: Any, rtol: float | None = None) -> Array:
    """Return how many singular values are more than `rtol` times the largest: int64 `[..]`.

    Args:
        a: `[.., m, n]`, float32 or float64.
        rtol: by default the larger extent times the spacing of the dtype at 1.

    Raises:
        ShapeError: rank below 2. DTypeError: neither float32 nor float64. ArgumentError: `rtol`.
    """
    matrices = matrix("matrix_rank", a)
    return _rank(svdvals(matrices), tolerance("matrix_rank", matrices, rtol))


def _rank(values: Array, rtol: float) -> Array:
    return _f.count_nonzero(above(values, rtol), -1)


def matrix_power(a: Any, n: int) -> Array:
    """Return the n-th power of square matrices, by repeated squaring.

    Args:
        a: `[.., m, m]`; numeric, and float32 or float64 for a negative n.
        n: an int; of 0 the power is the unit matrix, of a negative one that of the inverse.

    Raises:
        ShapeError: not square. ArgumentError: n is no int. DTypeError: bool.
    """
    x = operand("matrix_power", a)
    if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"matrix_power: needs square matrices, got {describe(x)}",
            "use a matrix with as many rows as columns",
        )
    check_dtypes("matrix_power", x, x)
    exponent = require_int("matrix_power", n, "n")
    if exponent < 0:
        x, exponent = inv(x), -exponent
    found: Array | None = None
    while exponent:
        if exponent % 2:
            found = x if found is None else times(found, x)
        exponent //= 2
        if exponent:
            x = times(x, x)
    return identity_like(x, x.shape[-1]) if found is None else found


# --- least squares


def lstsq(a: Any, b: Any, rcond: float | None = None) -> LstsqResult:
    """Return the x that makes `a @ x - b` smallest; the shortest one, where there are several.

    Args:
        a: `[.., m, n]`, float32 or float64. Derivatives are those at constant rank.
        b: of the same dtype, `[m]` or `[.., m, k]`, with the same leading axes.
        rcond: singular values up to `rcond` times the largest count as 0; by default the larger
            extent times the spacing of the dtype at 1.

    Returns:
        `LstsqResult(x, residuals, rank, s)`: x `[.., n, k]` (or `[n]`), the sums of squares of
        `a @ x - b` `[.., k]` (or `[]`), int64 rank and singular values. Unlike NumPy's, residuals
        are there whatever the rank is.

    Raises:
        ShapeError: extents do not fit. DTypeError: dtypes differ, or are others.
        ArgumentError: `rcond`.
    """
    matrices, sides = matrix("lstsq", a), operand("lstsq", b)
    if sides.dtype is not matrices.dtype:
        raise mixed_dtypes("lstsq", matrices, sides)
    vector = len(sides.shape) == 1 and len(matrices.shape) == 2
    columns = column(sides) if vector else sides
    if columns.shape[:-1] != matrices.shape[:-1]:
        raise ShapeError(
            f"lstsq: the right-hand sides {describe(sides)} do not fit {describe(matrices)}",
            "give them as many rows as the matrices, and the same leading axes",
        )
    rtol = tolerance("lstsq", matrices, rcond)
    x = times(pinv(matrices, rtol), columns)
    residuals = _f.sum(_f.square(_f.subtract(times(matrices, x), columns)), -2)
    if vector:
        x, residuals = reshape(x, x.shape[:-1]), reshape(residuals, ())
    values = svdvals(matrices)
    return LstsqResult(x, residuals, _rank(values, rtol), values)
