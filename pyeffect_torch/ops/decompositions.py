"""What a kernel computes in terms of simpler ones, for a runtime that lacks it.

The encoder expands a node by this table where the runtime has no such opcode. What is left to be
native is small: `greater_equal`, bits, `where`, `maximum`, `add subtract multiply divide`, `exp log
expm1 erfc`, `reduce_max reduce_sum`, `iota` and the structure ops.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import UnsupportedError
from pyeffect_torch.core.op import DECOMPOSITIONS

_f: Any = late.functions
_SERIES_TERMS: Final = 20
"""The 21st term of the series of erf is below 1e-19 for |x| < 1."""

_Rule = Callable[..., Array]


def _decomposes(*names: str) -> Callable[[_Rule], _Rule]:
    def register(function: _Rule) -> _Rule:
        for name in names:
            DECOMPOSITIONS[name] = function
        return function

    return register


# --- comparisons and logic: greater_equal is false for NaN, so is everything but not_equal


@_decomposes("equal")
def _equal(params: Any, x: Array, y: Array) -> Array:
    return _f.bitwise_and(_f.greater_equal(x, y), _f.greater_equal(y, x))


@_decomposes("not_equal")
def _not_equal(params: Any, x: Array, y: Array) -> Array:
    return _f.bitwise_not(_equal(params, x, y))


@_decomposes("less_equal")
def _less_equal(params: Any, x: Array, y: Array) -> Array:
    return _f.greater_equal(y, x)


@_decomposes("greater")
def _greater(params: Any, x: Array, y: Array) -> Array:
    return _f.bitwise_and(_f.greater_equal(x, y), _f.bitwise_not(_f.greater_equal(y, x)))


@_decomposes("less")
def _less(params: Any, x: Array, y: Array) -> Array:
    return _greater(params, y, x)


@_decomposes("logical_not")
def _logical_not(params: Any, x: Array) -> Array:
    return _f.bitwise_not(x)


@_decomposes("logical_and")
def _logical_and(params: Any, x: Array, y: Array) -> Array:
    return _f.bitwise_and(x, y)


@_decomposes("logical_or")
def _logical_or(params: Any, x: Array, y: Array) -> Array:
    return _f.bitwise_or(x, y)


@_decomposes("logical_xor")
def _logical_xor(params: Any, x: Array, y: Array) -> Array:
    return _f.bitwise_xor(x, y)


# --- signs and powers


@_decomposes("negative")
def _negative(params: Any, x: Array) -> Array:
    if dtypes.is_float(x.dtype):
        return _f.multiply(x, -1)  # 0 - x would lose the sign of a zero
    return _f.subtract(_f.zeros_like(x), x)


@_decomposes("abs")
def _abs(params: Any, x: Array) -> Array:
    return _f.maximum(x, _negative(params, x)) if x.dtype.kind != "u" else x


@_decomposes("square")
def _square(params: Any, x: Array) -> Array:
    return _f.multiply(x, x)


@_decomposes("reciprocal")
def _reciprocal(params: Any, x: Array) -> Array:
    return _f.divide(_f.ones_like(x), x)


@_decomposes("integer_power")
def _integer_power(exponent: int, x: Array) -> Array:
    out = _f.ones_like(x)
    base, count = x, abs(exponent)
    while count:
        if count & 1:
            out = _f.multiply(out, base)
        count >>= 1
        if count:
            base = _f.multiply(base, base)
    return _reciprocal(None, out) if exponent < 0 else out


@_decomposes("sqrt")
def _sqrt(params: Any, x: Array) -> Array:
    return _f.exp(_f.multiply(_f.log(x), 0.5))


@_decomposes("rsqrt")
def _rsqrt(params: Any, x: Array) -> Array:
    return _f.exp(_f.multiply(_f.log(x), -0.5))


@_decomposes("power")
def _power(params: Any, x: Array, y: Array) -> Array:
    """By the logarithm of |x|; a negative base changes the sign for an odd exponent."""
    if not dtypes.is_float(x.dtype):
        raise UnsupportedError(
            "power: this runtime has no kernel for integers",
            "cast them to floats",
            operation="power",
        )
    zero, one = _f.constant_like(x, 0), _f.constant_like(x, 1)
    size = _f.exp(_f.multiply(y, _f.log(_abs(params, x))))
    half = _f.multiply(y, 0.5)
    whole = _equal(params, _f.floor(y), y)
    even = _equal(params, _f.floor(half), half)
    signed = _f.where(even, size, _f.multiply(size, -1))
    nan = _f.constant_like(x, math.nan)
    out = _f.where(_f.greater_equal(x, zero), size, _f.where(whole, signed, nan))
    sure = _f.bitwise_or(_equal(params, y, zero), _equal(params, x, one))
    return _f.where(sure, one, out)  # also for NaN


# --- saturating functions


@_decomposes("sigmoid")
def _sigmoid(params: Any, x: Array) -> Array:
    return _reciprocal(None, _f.add(_f.exp(_negative(None, x)), 1))


@_decomposes("tanh")
def _tanh(params: Any, x: Array) -> Array:
    fall = _f.expm1(_f.multiply(_abs(None, x), -2))
    size = _f.divide(_negative(None, fall), _f.add(fall, 2))
    return _f.where(_f.greater_equal(x, _f.constant_like(x, 0)), size, _negative(None, size))


@_decomposes("erf")
def _erf(params: Any, x: Array) -> Array:
    """The Maclaurin series inside [-1, 1] (Abramowitz and Stegun 7.1.5), 1 - erfc(x) outside."""
    square = _f.multiply(x, x)
    one = _f.constant_like(x, 1)
    near = _f.where(_f.greater_equal(one, square), square, one)  # or the series overflows
    coefficients = [(-1) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(_SERIES_TERMS)]
    series = functools.reduce(
        lambda total, c: _f.add(_f.multiply(total, near), c),
        reversed(coefficients[:-1]),
        _f.full_like(x, coefficients[-1]),
    )
    inside = _f.multiply(_f.multiply(series, x), 2 / math.sqrt(math.pi))
    return _f.where(_f.greater_equal(one, square), inside, _f.subtract(one, _f.erfc(x)))


# --- reductions


@_decomposes("reduce_min")
def _reduce_min(axes: tuple[int, ...], x: Array) -> Array:
    if dtypes.is_float(x.dtype):
        return _negative(None, _f.max(_negative(None, x), axes))
    return _f.bitwise_not(_f.max(_f.bitwise_not(x), axes))  # turns the order round, and fits


def _first(axis: int, attained: Array) -> Array:
    """The first position along `axis` at which a bool array holds."""
    extent = attained.shape[axis]
    shape = [1] * len(attained.shape)
    shape[axis] = extent
    position = _f.reshape(_f.arange(extent), tuple(shape))
    back = _f.where(attained, _f.subtract(_f.zeros_like(position), position), -extent)
    return _f.subtract(_f.zeros_like(out := _f.max(back, axis)), out)


@_decomposes("argmax")
def _argmax(axis: int, x: Array) -> Array:
    best = _f.max(x, axis, keepdims=True)
    attained = _equal(None, x, best)
    if dtypes.is_float(x.dtype):  # the first NaN wins
        attained = _f.bitwise_or(attained, _not_equal(None, x, x))
    return _first(axis, attained)


@_decomposes("argmin")
def _argmin(axis: int, x: Array) -> Array:
    return _argmax(axis, _negative(None, x) if dtypes.is_float(x.dtype) else _f.bitwise_not(x))
