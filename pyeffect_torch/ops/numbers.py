"""Functions of the sign, the bits and the divisors of numbers.

All but `gcd` are made of other ops. The bits of a float are read by `bitcast`, so nothing flows
back through what only looks at them.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import DTypeError
from pyeffect_torch.core.op import Nondiff
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, operand, operands, require_float
from pyeffect_torch.ops.binary import binary_op

__all__ = ["copysign", "fmod", "gcd", "heaviside", "lcm", "nextafter", "signbit"]

_f: Any = late.functions

_BITS: Final[dict[int, DType]] = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
"""By size of a float: the integers with its bits, negative where the sign bit is set."""

GCD: Final = binary_op(
    "gcd",
    domains.INTEGERS,
    Nondiff(),
    lambda x, y: np.gcd(x, y),
    domains.binary(dtypes_=domains.INTEGERS, first=(-99, 99), second=(-99, 99)),
    commutative=True,
)


def _numeric(name: str, x: Array) -> None:
    if x.dtype is dtypes.bool_:
        raise DTypeError(
            f"{name}: has no meaning for {describe(x)}",
            "cast it to a numeric dtype first, for example x.astype('int64')",
        )


def _bits(x: Array) -> Array:
    return _f.bitcast_convert_type(x, _BITS[x.dtype.itemsize])


def signbit(x: Any) -> Array:
    """Return where the sign of a numeric `x` is negative, as bool; also of -0.0 and of NaN."""
    array = operand("signbit", x)
    _numeric("signbit", array)
    if dtypes.is_float(array.dtype):
        array = _bits(array)
    return _f.less(array, 0)


def copysign(x: Any, y: Any) -> Array:
    """Return `x` with the sign of `y`, both of one floating dtype; no gradient flows to `y`."""
    a, b = operands("copysign", x, y)
    require_float("copysign", a)
    return _f.where(_f.equal(signbit(a), signbit(b)), a, _f.negative(a))


def nextafter(x: Any, y: Any) -> Array:
    """Return the next number after `x` towards `y`, both of one floating dtype; no gradient.

    It is `y` where they are equal, and NaN where either is.
    """
    a, b = (_f.stop_gradient(array) for array in operands("nextafter", x, y))
    require_float("nextafter", a)
    away = _f.equal(_f.less(a, b), _f.greater(a, 0))
    bits = _bits(a)
    # Numbers of one sign are in the order of their bits.
    stepped = _f.where(away, _f.add(bits, 1), _f.subtract(bits, 1))
    smallest = _f.where(signbit(b), np.iinfo(bits.dtype).min + 1, _f.ones_like(bits))
    stepped = _f.where(_f.equal(a, 0), smallest, stepped)
    moved = _f.bitcast_convert_type(stepped, a.dtype)
    either_nan = _f.logical_or(_f.isnan(a), _f.isnan(b))
    return _f.where(either_nan, _f.add(a, b), _f.where(_f.equal(a, b), b, moved))


def heaviside(x: Any, y: Any) -> Array:
    """Return 0 below 0, 1 above and `y` where `x` is 0, both of one numeric dtype; NaN stays.

    The gradient flows to `y` where `x` is 0, and nowhere else.
    """
    a, b = operands("heaviside", x, y)
    _numeric("heaviside", a)
    step = _f.cast(_f.greater(a, 0), a.dtype)
    if dtypes.is_float(a.dtype):
        step = _f.where(_f.isnan(a), _f.constant_like(a, math.nan), step)
    return _f.where(_f.equal(a, 0), b, step)


def fmod(x: Any, y: Any) -> Array:
    """Return `x - trunc(x / y) * y`, exact and with the sign of `x`; 0 for an integer `y` of 0.

    `remainder` has the sign of `y`.
    """
    a, b = operands("fmod", x, y)
    _numeric("fmod", a)
    if dtypes.is_float(a.dtype):
        below = signbit(a)
        rest = _f.remainder(_f.where(below, _f.negative(a), a), _f.abs(b))
        return _f.where(below, _f.negative(rest), rest)
    rest = _f.remainder(a, b)
    if a.dtype in dtypes.UNSIGNED:
        return rest
    apart = _f.not_equal(_f.less(a, 0), _f.less(b, 0))
    return _f.where(_f.logical_and(apart, _f.not_equal(rest, 0)), _f.subtract(rest, b), rest)


def gcd(x: Any, y: Any) -> Array:
    """Return the greatest common divisor of two arrays of one integer dtype; gcd(0, 0) is 0.

    It is not negative, unless it is that of the lowest number, which has no counterpart.
    """
    return bind(GCD, operands("gcd", x, y))


def lcm(x: Any, y: Any) -> Array:
    """Return the least common multiple of two arrays of one integer dtype; 0 if either is 0.

    It wraps where the dtype cannot hold it.
    """
    a, b = operands("lcm", x, y)
    return _f.abs(_f.multiply(_f.floor_divide(a, gcd(a, b)), b))
