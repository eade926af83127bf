"""What every op family uses: operands from Python values, broadcasting, common rules.

Array functions take arrays, NumPy arrays and Python numbers (`operand`, `operands`); rules take
nodes only.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, Final, TypeGuard

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import ArgumentName, Array, bind, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, DTypeError, EffectTorchError, ShapeError
from pyeffect_torch.core.op import Shape

RANK_MAX: Final = 16
ELEMENTS_MAX: Final = 1 << 48
"""The limits of a program (`LIMITS` of the wire format)."""


def describe(array: Array) -> str:
    """`float32[2, 3]`, as messages and the printer write a type."""
    return f"{array.dtype.name}{list(array.shape)}"


def resolve_dtype(name: str, dtype: Any) -> DType:
    """Return the canonical dtype, or raise `DTypeError` naming `name`."""
    found = dtypes.canonical(dtype)
    if found is None:
        known = ", ".join(d.name for d in dtypes.ALL)
        mend = f"use one of {known}"
        if is_number(dtype):
            mend = f"pass a shape as one tuple, as in et.zeros((2, 3)); or {mend}"
        raise DTypeError(f"{name}: {dtype!r} is not a dtype", mend)
    return found


def is_number(value: Any) -> TypeGuard[bool | int | float]:
    """Whether `value` is a Python number; NumPy scalars (float64 is a `float`) keep their dtype."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def operand(name: str, value: Any) -> Array:
    """Return `value` as an array: a Python number is float32, int64 or bool; NumPy keeps its dtype.

    Raises:
        ArgumentError: lists and other objects (`et.array` takes them).
    """
    if isinstance(value, Array):
        return value
    if isinstance(value, np.generic):
        dtype = dtypes.canonical(value.dtype)
        return late.functions.array(value) if dtype is None else literal(value, dtype)
    if isinstance(value, (bool, int, float)):
        return number(name, value, _dtype_of_number(value))
    if isinstance(value, np.ndarray):
        return late.functions.array(value)
    raise ArgumentError(
        f"{name}: expected an array or a number, got {type(value).__name__}",
        "wrap it with et.array(...)" if isinstance(value, (list, tuple)) else "pass one of these",
    )


def _dtype_of_number(value: bool | int | float) -> DType:
    if isinstance(value, bool):
        return dtypes.bool_
    return dtypes.int64 if isinstance(value, int) else dtypes.float32


def shown(value: int) -> str:
    """An int as messages write it: Python refuses to print one of thousands of digits."""
    bits = value.bit_length()
    return str(value) if bits <= 128 else f"of {bits} bits"


def number(name: str, value: bool | int | float, dtype: DType) -> Array:
    """Return a Python number as a 0-d literal of `dtype`, which belongs to the other operand.

    Raises:
        DTypeError: a float beside an integer array, a number beside a bool array, or an int that
            does not fit.
    """
    kind = dtype.kind
    if isinstance(value, bool):
        return literal(value, dtype)
    if dtype is dtypes.bool_:
        raise DTypeError(
            f"{name}: the number {value!r} does not fit a bool array",
            "cast the array with x.astype(...) first",
        )
    if kind in "iu":
        if isinstance(value, float):
            raise DTypeError(
                f"{name}: the float {value!r} does not fit an array of dtype {dtype.name}",
                "cast the array to a floating dtype, or write an int",
            )
        info = np.iinfo(dtype)
        if not info.min <= value <= info.max:
            raise DTypeError(
                f"{name}: the number {shown(value)} does not fit {dtype.name}",
                "use a wider dtype",
            )
    return literal(value, dtype)


_shared: dict[DType, dict[float, Array]] = {dtype: {} for dtype in dtypes.ALL}
_SHARED_MAX = 1024  # a program has tens of distinct numbers; a loop over floats must not grow this


def float_literal(name: str, value: float, dtype: DType) -> Array:
    """`number`, made once: building the literal would cost more than the rest of the operation.

    Literals may be shared because users never hold them, they are never captured, and walks do not
    mind how old they are. Zeros have a sign and NaN is not equal to itself: they are made anew.
    """
    shared = _shared[dtype]
    made = shared.get(value)
    if made is None:
        made = number(name, value, dtype)
        if value and value == value:  # not zero, not NaN
            if len(shared) >= _SHARED_MAX:
                shared.clear()
            shared[value] = made
    return made


def operands(name: str, a: Any, b: Any, *, convert_scalars: bool = True) -> tuple[Array, Array]:
    """Return two operands of one dtype, by the rules for numbers and 0-d floating arrays.

    A Python number takes the array's dtype. With `convert_scalars`, a 0-d floating array that
    meets a non-scalar floating array is cast to its dtype.

    Raises:
        DTypeError: any other mix; names the op, both dtypes and the cast to write.
    """
    if isinstance(a, Array):
        if type(b) is float:
            return a, float_literal(name, b, a.dtype)
        if isinstance(b, Array):
            if a.dtype is b.dtype:
                return a, b
        else:
            b = number(name, b, a.dtype) if is_number(b) else operand(name, b)
    elif not is_number(a):
        a = operand(name, a)
        if not isinstance(b, Array):
            b = number(name, b, a.dtype) if is_number(b) else operand(name, b)
    elif is_number(b):
        return _two_numbers(name, a, b)
    else:
        b = operand(name, b)
        if type(a) is float:
            return float_literal(name, a, b.dtype), b
        return number(name, a, b.dtype), b
    if a.dtype is b.dtype:
        return a, b
    if convert_scalars and dtypes.is_float(a.dtype) and dtypes.is_float(b.dtype):
        if not a.shape and b.shape:
            return late.functions.cast(a, b.dtype), b
        if not b.shape and a.shape:
            return a, late.functions.cast(b, a.dtype)
    raise mixed_dtypes(name, a, b)


def _two_numbers(name: str, a: float, b: float) -> tuple[Array, Array]:
    if isinstance(a, float) or isinstance(b, float):
        return literal(a, dtypes.float32), literal(b, dtypes.float32)
    if isinstance(a, bool) and isinstance(b, bool):
        return literal(a, dtypes.bool_), literal(b, dtypes.bool_)
    return number(name, a, dtypes.int64), number(name, b, dtypes.int64)


def mixed_dtypes(name: str, a: Array, b: Array) -> DTypeError:
    """The error for operands of two dtypes."""
    for number, other in ((a, b), (b, a)):
        if isinstance(number.params, ArgumentName) and number.params.is_number:
            dtype = other.dtype.name
            return DTypeError(
                f"{name}: mixed dtypes, {describe(a)} and {describe(b)}: {number.params} was "
                "passed as a number",
                f"pass x.dtype.type(n) beside x of dtype {dtype}, or list it in static_argnames",
            )
    # The one that holds more of the other's values: floats before ints before bools, then by width.
    wider = max(a.dtype, b.dtype, key=lambda d: (dtypes.is_float(d), d.kind in "iu", d.itemsize))
    return DTypeError(
        f"{name}: mixed dtypes, {describe(a)} and {describe(b)}",
        f"cast one of them, for example {'y' if wider is a.dtype else 'x'}.astype({wider.name!r})",
    )


@functools.lru_cache(maxsize=4096)
def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """Return the NumPy broadcast of `shapes`.

    Raises:
        ShapeError: they do not broadcast; names the op and all shapes.
    """
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    rank = max(len(shape) for shape in shapes)
    out: list[int] = []
    for axis in range(-rank, 0):
        extent = 1
        for shape in shapes:
            if len(shape) < -axis or shape[axis] == 1:
                continue
            if extent not in (1, shape[axis]):
                raise ShapeError(
                    f"{name}: shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast "
                    f"(axis {axis}: {extent} against {shape[axis]})",
                    "reshape or slice an operand so that extents are equal or 1",
                )
            extent = shape[axis]
        out.append(extent)
    return tuple(out)


def normalize_axis(name: str, axis: Any, rank: int) -> int:
    """Return `axis` as a non-negative int.

    Raises:
        ShapeError: out of range. ArgumentError: not an integer.
    """
    try:
        index = axis.__index__()
    except EffectTorchError:
        raise  # an array that is no int, or has no value: it says so
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"{name}: axis must be an int, got {type(axis).__name__}", "pass an int"
        ) from None
    if not -rank <= index < rank:
        raise ShapeError(
            f"{name}: axis {index} is out of range for rank {rank}",
            f"use an axis from {-rank} to {rank - 1}" if rank else "the array has no axes",
        )
    return index % rank


def normalize_axes(name: str, axes: Any, rank: int) -> tuple[int, ...]:
    """Return `axes` (None: all, an int, or a sequence) as ascending unique non-negative ints.

    Raises:
        ShapeError: out of range, or an axis twice.
    """
    if axes is None:
        return tuple(range(rank))
    if not isinstance(axes, (tuple, list)):
        return (normalize_axis(name, axes, rank),)
    found = sorted(normalize_axis(name, axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise ShapeError(f"{name}: axes {list(axes)} name an axis twice", "name each axis once")
    return tuple(found)


def shape_of(name: str, shape: Any) -> Shape:
    """Return a shape argument (an int or a sequence of ints) as a tuple.

    Raises:
        ShapeError: a negative extent. ArgumentError: not ints.
    """
    extents = shape if isinstance(shape, (tuple, list)) else (shape,)
    try:
        out = tuple(map(operator.index, extents))
    except EffectTorchError:
        raise  # an array that is no int, or has no value: it says so
    except TypeError:
        raise ArgumentError(
            f"{name}: a shape is a sequence of ints, got {shape!r}", "pass ints"
        ) from None
    if out and min(out) < 0:
        raise ShapeError(f"{name}: negative extent in shape {list(out)}", "use extents >= 0")
    check_size(name, out)
    return out


def check_size(name: str, shape: Shape) -> None:
    """Raise `ShapeError` for a shape that no program can hold, whatever the memory."""
    if len(shape) > RANK_MAX:
        raise ShapeError(
            f"{name}: shape {list(shape)} has {len(shape)} axes",
            f"use at most {RANK_MAX} axes",
        )
    size = math.prod(shape) or math.prod(extent or 1 for extent in shape)
    if size > ELEMENTS_MAX:
        raise ShapeError(
            f"{name}: shape {list(shape)} has too many elements",
            "use at most 2**48 elements, zero extents counted as one",
        )


def require_float(name: str, array: Array) -> None:
    """Raise `DTypeError` unless `array` is floating."""
    if not dtypes.is_float(array.dtype):
        raise DTypeError(
            f"{name}: needs a floating array, got {describe(array)}",
            "cast it first, for example x.astype('float32')",
        )


def require_integer(name: str, array: Array, role: str = "the index") -> None:
    """Raise `DTypeError` unless `array` has an integer dtype."""
    if array.dtype.kind not in "iu":
        raise DTypeError(
            f"{name}: {role} must be an integer array, got {describe(array)}",
            "cast it first, for example i.astype('int64')",
        )


def elementwise_batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> Array:
    """The batching rule of every elementwise op: pad ranks behind the batch axis."""
    del size
    rank = len(node.shape)
    padded: list[Array] = []
    for array, is_batched in zip(inputs, batched, strict=True):
        missing = rank + 1 - len(array.shape)
        if is_batched and missing:
            shape = (array.shape[0], *(1,) * missing, *array.shape[1:])
            array = late.functions.reshape(array, shape)
        padded.append(array)
    return bind(node.op, tuple(padded), node.params)


def unbroadcast_to(j: int, node: Array, ct: Array) -> Array:
    """Sum a cotangent of `node` down to the shape of its operand j."""
    return late.functions.unbroadcast(ct, node.inputs[j].shape)


def spread(node: Array, tangent: Array) -> Array:
    """Broadcast the tangent of an operand to the shape of `node`."""
    if tangent.shape == node.shape:
        return tangent
    return late.functions.broadcast_to(tangent, node.shape)


def negative_if(condition: bool, x: Array) -> Array:
    """`-x` if the static condition holds, else `x`."""
    return late.functions.negative(x) if condition else x


def saturating_cast(x: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Cast as the runtimes do: floats to ints truncate and saturate, NaN gives 0."""
    if dtype is dtypes.bool_:
        return x != 0
    if dtypes.is_float(x.dtype) and dtype.kind in "iu":
        value = x.astype(np.float64)
        info = np.iinfo(dtype)
        value = np.trunc(np.where(np.isnan(value), 0.0, value))
        low, high = value <= float(info.min), value >= float(info.max)
        inside = np.where(low | high, 0.0, value).astype(dtype)
        return np.where(low, info.min, np.where(high, info.max, inside)).astype(dtype)
    return x.astype(dtype)
