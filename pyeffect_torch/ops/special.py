"""Special functions: erfinv, lgamma and its derivatives, Bessel functions, sinc.

All but `sinc`, which is made of other ops, are computed in float64 whatever the dtype, and rounded
once; what they promise is in `zig/cpu/math_special.zig`. Every derivative is again one of them, so
that all orders exist: that of `polygamma(n)` is `polygamma(n + 1)`, that of a Bessel function the
mean of its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.core.op import Op, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, elementwise_batch, operand, require_float
from pyeffect_torch.ops.elementwise import declare_unary, smooth

__all__ = ["digamma", "erfinv", "i0", "i1", "lgamma", "polygamma", "sinc"]

_f: Any = late.functions
_F = domains.FLOATING

ORDER_MAX: Final = 170
"""The highest order of polygamma and of Bessel functions: 170! is a float64, 171! is not."""


def _x(node: Array) -> Array:
    return node.inputs[0]


def _number_by_number(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return np.vectorize(function, otypes=[np.float64])


# --- references


def _erfinv_number(x: float) -> float:
    """Newton's method on the library's erf, from Winitzki's approximation to 2e-3."""
    size = abs(x)
    if not 0 < size < 1:
        return math.copysign(math.inf, x) if size == 1 else x if size == 0 else math.nan
    logarithm = math.log1p(-size * size)
    half = 2 / (math.pi * 0.147) + logarithm / 2
    y = math.sqrt(max(math.sqrt(half * half - logarithm / 0.147) - half, 0.0))
    for _ in range(4):
        miss = math.erf(y) - size if size < 0.5 else (1 - size) - math.erfc(y)
        y -= miss * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return math.copysign(y, x)


def _lgamma_number(x: float) -> float:
    if math.isnan(x):
        return x
    if x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.inf
    if 1e-3 < abs(x) < 100:
        return math.log(abs(math.gamma(x)))
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


# Bernoulli numbers B_2, B_4, ...
_BERNOULLI: Final = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_SHIFT: Final = 24  # so far from the poles the series below has its digits, up to order 9


def _digamma_number(x: float) -> float:
    if x == 0 or math.isnan(x):
        return math.copysign(math.inf, -x) if x == 0 else x
    if x < 0:
        if not math.isfinite(x) or x == round(x):
            return math.nan
        angle = math.pi * math.remainder(x, 1)
        return _digamma_number(1 - x) - math.pi * math.cos(angle) / math.sin(angle)
    sums = [-1 / (x + k) for k in range(_SHIFT)]
    far = x + _SHIFT
    sums += [-b / (2 * k) * far ** (-2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    return math.fsum([math.log(far) - 0.5 / far, *sums]) if far < math.inf else math.inf


def _polygamma_number(order: int, x: float) -> float:
    if order == 0 or math.isnan(x):
        return _digamma_number(x)
    if x == -math.inf or (x < 0 and x == round(x)):
        return math.inf if order % 2 and x != -math.inf else math.nan
    return (-1) ** (order + 1) * math.factorial(order) * _zeta_number(order + 1, x)


def _zeta_number(s: int, x: float) -> float:
    """The sum of (x + k)**-s over k = 0, 1, ...: Hurwitz' zeta function."""
    if x < -64:
        # All poles, seen from the nearest one, but those that x has passed.
        near, sign = math.remainder(x, 1), (-1) ** s
        both = near**-s + _zeta_number(s, 1 + near) + sign * _zeta_number(s, 1 - near)
        return both - sign * _zeta_number(s, 1 - x)
    count = _SHIFT - math.ceil(min(x, 0.0))
    far = x + count
    terms = [_inverse_power(x + k if k else x, s) for k in range(count)]  # -0.0 + 0 is 0.0
    terms += [_inverse_power(far, s - 1) / (s - 1), _inverse_power(far, s) / 2]
    rising = float(s)
    for k, b in enumerate(_BERNOULLI, 1):
        terms.append(b / math.factorial(2 * k) * rising * _inverse_power(far, s + 2 * k - 1))
        rising *= (s + 2 * k - 1) * (s + 2 * k)
    finite = all(math.isfinite(term) for term in terms)
    return math.fsum(terms) if finite else sum(terms)


def _inverse_power(x: float, exponent: int) -> float:
    try:
        return x**-exponent
    except OverflowError:
        return math.inf if x > 0 or exponent % 2 == 0 else -math.inf
    except ZeroDivisionError:
        return math.copysign(math.inf, x) if exponent % 2 else math.inf


def _polygamma_reference(attributes: Any, x: Any) -> Any:
    order = attributes["order"]
    return _number_by_number(lambda value: _polygamma_number(order, value))(domains.wide(x))


_NODES: Final = 128  # of the trapezoidal rule, enough up to the overflow at 713


def _bessel_reference(attributes: Any, x: Any) -> Any:
    """The integral of `exp(x cos t) cos(n t) / pi` over [0, pi], and the power series near 0."""
    order, wide = attributes["order"], domains.wide(x)
    size = np.abs(wide)
    half = np.minimum(size, 8.0) / 2
    near = sum(
        half ** (2 * k + order) / (math.factorial(k) * float(math.factorial(k + order)))
        for k in range(40)
    )
    far = np.zeros_like(size)
    for k in range(_NODES):
        angle = (k + 0.5) * math.pi / _NODES
        far += np.exp(size * math.cos(angle)) * (math.cos(order * angle) / _NODES)
    value = np.where(size < 8, near, np.where(size > 720, np.inf, far))
    value = np.where(np.isnan(size), np.nan, value)
    return np.copysign(value, wide) if order % 2 else value


# --- declarations

ERFINV: Final = declare_unary(
    "erfinv",
    _F,
    smooth(lambda node: _f.multiply(_f.exp(_f.square(node)), math.sqrt(math.pi) / 2)),
    _number_by_number(_erfinv_number),
    between=(-0.875, 0.875),
    roundings=4.0,
)
LGAMMA: Final = declare_unary(
    "lgamma",
    _F,
    smooth(lambda node: digamma(_x(node))),
    _number_by_number(_lgamma_number),
    between=(2.25, 6.0),
    roundings=32.0,  # the reference is the logarithm of numbers not far from 1
)


def _declare_orders(
    name: str, partial: Callable[[Array], Array], reference: Callable[..., Any],
    between: tuple[float, float], roundings: float,
) -> Op:  # fmt: skip
    """An op of one operand with a static `order`; test inputs have the orders 0, 1, 2 and 5."""

    def infer(inputs: tuple[Array, ...], order: int) -> Any:
        (x,) = inputs
        require_float(name, x)
        if not 0 <= order <= ORDER_MAX:
            raise ArgumentError(
                f"{name}: order {order} of {describe(x)} is not from 0 to {ORDER_MAX}",
                "differentiate less often, or pass another order",
            )
        return x.shape, x.dtype

    low, high = between
    return declare(
        name,
        infer=infer,
        derivative=smooth(partial),
        batch=elementwise_batch,
        reference=reference,
        domain=domains.unary(
            dtypes_=_F, low=low, high=high, roundings=roundings, params=(0, 1, 2, 5)
        ),
        opcode=name,
        attributes=lambda node: {"order": node.params},
        traits=("elementwise",),
    )


def _bessel_partial(node: Array) -> Array:
    order, x = node.params, _x(node)
    if order == 0:
        return bind(BESSEL_I, (x,), 1)
    neighbours = (bind(BESSEL_I, (x,), order + step) for step in (-1, 1))
    return _f.multiply(_f.add(*neighbours), 0.5)


POLYGAMMA: Final = _declare_orders(
    "polygamma",
    lambda node: bind(POLYGAMMA, node.inputs, node.params + 1),
    _polygamma_reference,
    (2.0, 6.0),
    64.0,  # the edges include 1.5, near digamma's root
)
BESSEL_I: Final = _declare_orders("bessel_i", _bessel_partial, _bessel_reference, (-3.0, 3.0), 32.0)


# --- the functions that users call


def erfinv(x: Any) -> Array:
    """Return the number whose error function is `x`; infinite at -1 and 1, NaN beyond."""
    return bind(ERFINV, (operand("erfinv", x),))


def lgamma(x: Any) -> Array:
    """Return `log |Gamma(x)|` of a floating `x`; infinite at 0 and at the negative integers."""
    return bind(LGAMMA, (operand("lgamma", x),))


def digamma(x: Any) -> Array:
    """Return the derivative of `lgamma`; NaN at the negative integers."""
    return _of_order(POLYGAMMA, "digamma", x, 0)


def polygamma(order: int, x: Any) -> Array:
    """Return derivative number `order` of `digamma` at a floating `x`.

    Raises:
        ArgumentError: `order` is not an int from 0 to 170.
    """
    if not isinstance(order, (int, np.integer)) or isinstance(order, bool):
        raise ArgumentError(
            f"polygamma: the order must be an int, got {type(order).__name__}", "pass an int"
        )
    return _of_order(POLYGAMMA, "polygamma", x, int(order))


def _of_order(op: Op, name: str, x: Any, order: int) -> Array:
    array = operand(name, x)
    require_float(name, array)
    return bind(op, (array,), order)


def i0(x: Any) -> Array:
    """Return the modified Bessel function of the first kind of order 0."""
    return _of_order(BESSEL_I, "i0", x, 0)


def i1(x: Any) -> Array:
    """Return the modified Bessel function of the first kind of order 1."""
    return _of_order(BESSEL_I, "i1", x, 1)


_SERIES_BELOW: Final = 1.5
_SERIES_TERMS: Final = 16


def sinc(x: Any) -> Array:
    """Return `sin(pi x) / (pi x)` of a floating `x`, and 1 at 0, where all derivatives exist.

    Reference: below pi |x| = 1.5 the Taylor series of `sin(t) / t`, whose derivatives are those of
    the function; above, the quotient, which is smooth there.
    """
    given = operand("sinc", x)
    require_float("sinc", given)
    computed = dtypes.accumulator(given.dtype)
    wide = _f.cast(given, computed)
    t = _f.multiply(wide, math.pi)
    square = _f.square(t)
    near = _f.less(square, _SERIES_BELOW**2)
    series: Any = _f.zeros_like(t)
    inside = _f.where(near, square, _f.zeros_like(t))
    for k in reversed(range(_SERIES_TERMS)):
        series = _f.add(_f.multiply(series, inside), (-1) ** k / math.factorial(2 * k + 1))
    # The sine of the distance to the nearest integer, with the sign of that integer's parity.
    nearest = _f.round(wide)
    sine = _f.sin(_f.multiply(_f.subtract(wide, nearest), math.pi))
    odd = _f.not_equal(_f.remainder(nearest, 2), 0)
    sine = _f.where(odd, _f.negative(sine), sine)
    quotient = _f.divide(sine, _f.where(near, _f.ones_like(t), t))
    return _f.cast(_f.where(near, series, quotient), given.dtype)
