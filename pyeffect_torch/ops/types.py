"""What dtypes are and how they meet: finfo, iinfo, result_type, can_cast, isdtype.

The rules are those of the array functions: nothing is promoted but Python numbers and 0-d floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import ArgumentError, DTypeError
from pyeffect_torch.ops.base import is_number, operand, operands, resolve_dtype

__all__ = ["can_cast", "finfo", "iinfo", "isdtype", "result_type"]


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """The limits of a floating dtype, as Python numbers.

    Attributes:
        bits: the size of a number.
        eps: the distance from 1 to the next number.
        max, min: the largest and the lowest finite number.
        smallest_normal: the smallest positive number of full precision.
        smallest_subnormal: the smallest positive number.
        dtype: which one it is.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    smallest_subnormal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """NumPy's name of `smallest_normal`."""
        return self.smallest_normal


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """The limits of an integer dtype: its size in bits, the highest and the lowest number."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(name: str, value: Any) -> DType:
    return value.dtype if isinstance(value, Array) else resolve_dtype(name, value)


def finfo(dtype: DTypeLike | Array) -> FloatInfo:
    """Return the limits of a floating dtype, or of that of an array.

    Raises:
        DTypeError: it is no floating dtype.
    """
    found = _dtype_of("finfo", dtype)
    if found not in dtypes.FLOATS:
        raise DTypeError(f"finfo: {found.name} is not floating", "use et.iinfo for integers")
    limits = ml_dtypes.finfo(found)
    return FloatInfo(
        found.itemsize * 8,
        float(limits.eps),
        float(limits.max),
        float(limits.min),
        float(limits.smallest_normal),
        float(limits.smallest_subnormal),
        found,
    )


def iinfo(dtype: DTypeLike | Array) -> IntegerInfo:
    """Return the limits of an integer dtype, or of that of an array.

    Raises:
        DTypeError: it is no integer dtype.
    """
    found = _dtype_of("iinfo", dtype)
    if found not in dtypes.INTEGERS:
        raise DTypeError(f"iinfo: {found.name} is not an integer dtype", "use et.finfo for floats")
    limits = np.iinfo(found)
    return IntegerInfo(found.itemsize * 8, int(limits.max), int(limits.min), found)


def result_type(*values: Any) -> DType:
    """Return the dtype of a sum of `values`, by the rules of the array functions.

    Args:
        values: at least one array, NumPy array, Python number or dtype. A dtype counts as an
            array with axes.

    Raises:
        DTypeError: they do not mix.
        ArgumentError: there is none.
    """
    if not values:
        raise ArgumentError("result_type: of nothing", "pass at least one array or dtype")
    numbers = [value for value in values if is_number(value)]
    arrays = [_array_like(value) for value in values if not is_number(value)]
    if not arrays:
        whole = all(isinstance(number, int) for number in numbers)
        logical = all(isinstance(number, bool) for number in numbers)
        return dtypes.bool_ if logical else dtypes.int64 if whole else dtypes.float32
    # Arrays with axes decide for 0-d ones, and all of them for numbers.
    arrays.sort(key=lambda array: not array.shape)
    result = arrays[0]
    for value in (*arrays[1:], *numbers):
        result, _ = operands("result_type", result, value)
    return result.dtype


def _array_like(value: Any) -> Array:
    if isinstance(value, (Array, np.ndarray, np.generic)):
        return operand("result_type", value)
    return operand("result_type", np.zeros((0,), resolve_dtype("result_type", value)))


def can_cast(source: DTypeLike | Array, target: DTypeLike) -> bool:
    """Return whether every value of dtype `source` is one of dtype `target`."""
    a, b = _dtype_of("can_cast", source), resolve_dtype("can_cast", target)
    if a is b or a is dtypes.bool_:
        return True
    if b is dtypes.bool_:
        return False
    if a in dtypes.FLOATS:
        if b not in dtypes.FLOATS:
            return False
        x, y = ml_dtypes.finfo(a), ml_dtypes.finfo(b)
        return float(x.eps) >= float(y.eps) and float(x.smallest_subnormal) >= float(
            y.smallest_subnormal
        ) and float(x.max) <= float(y.max)  # fmt: skip
    limits = np.iinfo(a)
    if b in dtypes.INTEGERS:
        wider = np.iinfo(b)
        return int(wider.min) <= int(limits.min) and int(limits.max) <= int(wider.max)
    return int(limits.max).bit_length() <= _mantissa_bits(b)


def _mantissa_bits(dtype: DType) -> int:
    return int(ml_dtypes.finfo(dtype).nmant) + 1


_KINDS: Final[dict[str, frozenset[DType]]] = {
    "bool": frozenset({dtypes.bool_}),
    "signed integer": dtypes.SIGNED,
    "unsigned integer": dtypes.UNSIGNED,
    "integral": dtypes.INTEGERS,
    "real floating": dtypes.FLOATS,
    "complex floating": frozenset(),
    "numeric": dtypes.INTEGERS | dtypes.FLOATS,
}


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Return whether `dtype` is of `kind`: a dtype, the name of a kind, or a tuple of either.

    The kinds are `bool`, `signed integer`, `unsigned integer`, `integral`, `real floating`,
    `complex floating` (none yet) and `numeric`. The name `bool` is both.

    Raises:
        DTypeError: `dtype` or `kind` is neither a dtype nor a kind.
    """
    found = resolve_dtype("isdtype", dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, part) for part in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return found in _KINDS[kind]
    return found is resolve_dtype("isdtype", kind)
