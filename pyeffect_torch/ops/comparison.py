"""Comparisons, logic and bits of two operands: none has a derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Nondiff, Op
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.binary import apply, binary_op


def _shift(left: bool) -> Callable[[Any, Any], Any]:
    def shift(x: Any, y: Any) -> Any:
        bits = x.dtype.itemsize * 8
        inside = (y >= 0) & (y < bits)
        amount = np.where(inside, y, 0).astype(x.dtype)
        if left:
            return np.where(inside, np.left_shift(x, amount), 0).astype(x.dtype)
        signs = np.where(x < 0, -1, 0).astype(x.dtype)
        return np.where(inside, np.right_shift(x, amount), signs).astype(x.dtype)

    return shift


_E = domains.EVERY
_B = domains.BITS
_I = domains.INTEGERS
_BOOL = (dtypes.bool_,)


def _comparison(name: str, reference: Any, dtypes_: Sequence[DType] = _E, **options: Any) -> Op:
    domain = domains.binary(dtypes_=dtypes_)
    return binary_op(name, dtypes_, Nondiff(), reference, domain, result=dtypes.bool_, **options)


EQUAL: Final = _comparison("equal", np.equal, commutative=True)
NOT_EQUAL: Final = _comparison("not_equal", np.not_equal, commutative=True)
LESS: Final = _comparison("less", np.less)
LESS_EQUAL: Final = _comparison("less_equal", np.less_equal)
GREATER: Final = _comparison("greater", np.greater)
GREATER_EQUAL: Final = _comparison("greater_equal", np.greater_equal)
LOGICAL_AND: Final = _comparison("logical_and", np.logical_and, _BOOL, commutative=True)
LOGICAL_OR: Final = _comparison("logical_or", np.logical_or, _BOOL, commutative=True)
LOGICAL_XOR: Final = _comparison("logical_xor", np.logical_xor, _BOOL, commutative=True)


def _bitwise(name: str, reference: Any, dtypes_: Sequence[DType] = _B, **options: Any) -> Op:
    second = (0.0, 9.0) if "shift" in name else (-9.0, 9.0)
    domain = domains.binary(dtypes_=dtypes_, first=(-99, 99), second=second)
    return binary_op(name, dtypes_, Nondiff(), reference, domain, **options)


BITWISE_AND: Final = _bitwise("bitwise_and", np.bitwise_and, commutative=True)
BITWISE_OR: Final = _bitwise("bitwise_or", np.bitwise_or, commutative=True)
BITWISE_XOR: Final = _bitwise("bitwise_xor", np.bitwise_xor, commutative=True)
LEFT_SHIFT: Final = _bitwise("left_shift", _shift(True), _I)
RIGHT_SHIFT: Final = _bitwise("right_shift", _shift(False), _I)


def equal(x: Any, y: Any) -> Array:
    """Return `x == y` elementwise, as bool."""
    return apply(EQUAL, x, y)


def not_equal(x: Any, y: Any) -> Array:
    """Return `x != y` elementwise, as bool; true for NaN, as in IEEE 754."""
    return apply(NOT_EQUAL, x, y)


def less(x: Any, y: Any) -> Array:
    """Return `x < y` elementwise, as bool."""
    return apply(LESS, x, y)


def less_equal(x: Any, y: Any) -> Array:
    """Return `x <= y` elementwise, as bool."""
    return apply(LESS_EQUAL, x, y)


def greater(x: Any, y: Any) -> Array:
    """Return `x > y` elementwise, as bool."""
    return apply(GREATER, x, y)


def greater_equal(x: Any, y: Any) -> Array:
    """Return `x >= y` elementwise, as bool."""
    return apply(GREATER_EQUAL, x, y)


def logical_and(x: Any, y: Any) -> Array:
    """Return `x and y` of bool arrays."""
    return apply(LOGICAL_AND, x, y)


def logical_or(x: Any, y: Any) -> Array:
    """Return `x or y` of bool arrays."""
    return apply(LOGICAL_OR, x, y)


def logical_xor(x: Any, y: Any) -> Array:
    """Return whether exactly one of two bool arrays holds."""
    return apply(LOGICAL_XOR, x, y)


def bitwise_and(x: Any, y: Any) -> Array:
    """Return `x & y` of integers or bools."""
    return apply(BITWISE_AND, x, y)


def bitwise_or(x: Any, y: Any) -> Array:
    """Return `x | y` of integers or bools."""
    return apply(BITWISE_OR, x, y)


def bitwise_xor(x: Any, y: Any) -> Array:
    """Return `x ^ y` of integers or bools."""
    return apply(BITWISE_XOR, x, y)


def left_shift(x: Any, y: Any) -> Array:
    """Return `x << y` of integers; a shift of at least the width gives 0."""
    return apply(LEFT_SHIFT, x, y)


def right_shift(x: Any, y: Any) -> Array:
    """Return `x >> y` of integers; a shift of at least the width gives 0 or the sign."""
    return apply(RIGHT_SHIFT, x, y)
