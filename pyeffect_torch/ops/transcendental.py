"""Exponentials, logarithms, trigonometric and hyperbolic functions, the error function, sigmoid.

All need floating operands. Each partial is written so that the second derivative, which follows
from it, keeps its relative accuracy too: `1 - tanh(x)**2` has the derivative `-2 tanh(x) tanh'(x)`
near 0, where the factored form would subtract two numbers near 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.op import Op
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import operand, operands, require_float
from pyeffect_torch.ops.elementwise import declare_unary, smooth

_f: Any = late.functions

_OPEN = (-0.875, 0.875)
_POSITIVE = (0.125, 4.0)
_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _declare(
    name: str,
    partial: Callable[[Array], Array],
    reference: Callable[[Any], Any],
    between: tuple[float, float] = (-2.0, 2.0),
) -> Op:
    # Two units in the last place is what every one of them promises.
    return declare_unary(
        name, domains.FLOATING, smooth(partial), reference, between=between, roundings=2.0
    )


def _x(node: Array) -> Array:
    return node.inputs[0]


def _one_minus_square(x: Array) -> Array:
    """`1 - x**2`, accurate near 1 (factored) with a derivative accurate near 0 (not factored)."""
    factored = _f.multiply(_f.subtract(1, x), _f.add(x, 1))
    return _f.where(_f.less(_f.abs(x), 0.5), _f.subtract(1, _f.square(x)), factored)


def _bell(node: Array) -> Array:
    """`2 / sqrt(pi) * exp(-x**2)`."""
    return _f.multiply(exp(_f.negative(_f.square(_x(node)))), _TWO_OVER_ROOT_PI)


def _sigmoid_reference(x: Any) -> Any:
    return np.exp(-np.logaddexp(0, -x))


EXP: Final = _declare("exp", lambda node: node, np.exp)
EXP2: Final = _declare("exp2", lambda node: _f.multiply(node, math.log(2)), np.exp2)
EXPM1: Final = _declare("expm1", lambda node: exp(_x(node)), np.expm1)
LOG: Final = _declare("log", lambda node: _f.reciprocal(_x(node)), np.log, _POSITIVE)
LOG1P: Final = _declare(
    "log1p", lambda node: _f.reciprocal(_f.add(_x(node), 1)), np.log1p, (-0.75, 4.0)
)
LOG2: Final = _declare(
    "log2", lambda node: _f.divide(1 / math.log(2), _x(node)), np.log2, _POSITIVE
)
LOG10: Final = _declare(
    "log10", lambda node: _f.divide(1 / math.log(10), _x(node)), np.log10, _POSITIVE
)
SIN: Final = _declare("sin", lambda node: cos(_x(node)), np.sin)
COS: Final = _declare("cos", lambda node: _f.negative(sin(_x(node))), np.cos)
TAN: Final = _declare("tan", lambda node: _f.add(_f.square(node), 1), np.tan, (-1.25, 1.25))
ARCSIN: Final = _declare(
    "arcsin", lambda node: _f.rsqrt(_one_minus_square(_x(node))), np.arcsin, _OPEN
)
ARCCOS: Final = _declare(
    "arccos",
    lambda node: _f.negative(_f.rsqrt(_one_minus_square(_x(node)))),
    np.arccos,
    _OPEN,
)
ARCTAN: Final = _declare(
    "arctan", lambda node: _f.reciprocal(_f.add(_f.square(_x(node)), 1)), np.arctan
)
SINH: Final = _declare("sinh", lambda node: cosh(_x(node)), np.sinh)
COSH: Final = _declare("cosh", lambda node: sinh(_x(node)), np.cosh)
TANH: Final = _declare("tanh", lambda node: _f.subtract(1, _f.square(node)), np.tanh)
ARCSINH: Final = _declare(
    "arcsinh", lambda node: _f.rsqrt(_f.add(_f.square(_x(node)), 1)), np.arcsinh
)
ARCCOSH: Final = _declare(
    "arccosh",
    lambda node: _f.rsqrt(_f.multiply(_f.subtract(_x(node), 1), _f.add(_x(node), 1))),
    np.arccosh,
    (1.25, 4.0),
)
ARCTANH: Final = _declare(
    "arctanh", lambda node: _f.reciprocal(_one_minus_square(_x(node))), np.arctanh, _OPEN
)
ERF: Final = _declare("erf", _bell, np.vectorize(math.erf, otypes=[np.float64]))
ERFC: Final = _declare(
    "erfc",
    lambda node: _f.negative(_bell(node)),
    np.vectorize(math.erfc, otypes=[np.float64]),
)
SIGMOID: Final = _declare(
    "sigmoid",
    # Not node * (1 - node): the second factor would lose its digits for large x.
    lambda node: _f.multiply(node, sigmoid(_f.negative(_x(node)))),
    _sigmoid_reference,
)


def exp(x: Any) -> Array:
    """Return e to the power `x`."""
    return bind(EXP, (operand("exp", x),))


def exp2(x: Any) -> Array:
    """Return 2 to the power `x`."""
    return bind(EXP2, (operand("exp2", x),))


def expm1(x: Any) -> Array:
    """Return `exp(x) - 1`, accurate near 0."""
    return bind(EXPM1, (operand("expm1", x),))


def log(x: Any) -> Array:
    """Return the natural logarithm of `x`; -inf at 0, NaN below."""
    return bind(LOG, (operand("log", x),))


def log1p(x: Any) -> Array:
    """Return `log(1 + x)`, accurate near 0; -inf at -1, NaN below."""
    return bind(LOG1P, (operand("log1p", x),))


def log2(x: Any) -> Array:
    """Return the logarithm of `x` to base 2."""
    return bind(LOG2, (operand("log2", x),))


def log10(x: Any) -> Array:
    """Return the logarithm of `x` to base 10."""
    return bind(LOG10, (operand("log10", x),))


def sin(x: Any) -> Array:
    """Return the sine of `x` radians."""
    return bind(SIN, (operand("sin", x),))


def cos(x: Any) -> Array:
    """Return the cosine of `x` radians."""
    return bind(COS, (operand("cos", x),))


def tan(x: Any) -> Array:
    """Return the tangent of `x` radians."""
    return bind(TAN, (operand("tan", x),))


def arcsin(x: Any) -> Array:
    """Return the angle in [-pi/2, pi/2] radians whose sine is `x`; NaN outside [-1, 1]."""
    return bind(ARCSIN, (operand("arcsin", x),))


def arccos(x: Any) -> Array:
    """Return the angle in [0, pi] radians whose cosine is `x`; NaN outside [-1, 1]."""
    return bind(ARCCOS, (operand("arccos", x),))


def arctan(x: Any) -> Array:
    """Return the angle in [-pi/2, pi/2] radians whose tangent is `x`."""
    return bind(ARCTAN, (operand("arctan", x),))


def sinh(x: Any) -> Array:
    """Return the hyperbolic sine of `x`."""
    return bind(SINH, (operand("sinh", x),))


def cosh(x: Any) -> Array:
    """Return the hyperbolic cosine of `x`."""
    return bind(COSH, (operand("cosh", x),))


def tanh(x: Any) -> Array:
    """Return the hyperbolic tangent of `x`."""
    return bind(TANH, (operand("tanh", x),))


def arcsinh(x: Any) -> Array:
    """Return the number whose hyperbolic sine is `x`."""
    return bind(ARCSINH, (operand("arcsinh", x),))


def arccosh(x: Any) -> Array:
    """Return the non-negative number whose hyperbolic cosine is `x`; NaN below 1."""
    return bind(ARCCOSH, (operand("arccosh", x),))


def arctanh(x: Any) -> Array:
    """Return the number whose hyperbolic tangent is `x`; NaN outside [-1, 1]."""
    return bind(ARCTANH, (operand("arctanh", x),))


def erf(x: Any) -> Array:
    """Return the error function of `x`, in [-1, 1]."""
    return bind(ERF, (operand("erf", x),))


def erfc(x: Any) -> Array:
    """Return `1 - erf(x)`, accurate for large `x`."""
    return bind(ERFC, (operand("erfc", x),))


def sigmoid(x: Any) -> Array:
    """Return `1 / (1 + exp(-x))`; no `x` overflows."""
    return bind(SIGMOID, (operand("sigmoid", x),))


def logaddexp(x: Any, y: Any) -> Array:
    """Return `log(exp(x) + exp(y))` without overflow; both of one floating dtype.

    Two infinities of one sign give that infinity with gradient 0. Otherwise the derivatives of
    every order are exact, also where `x == y`: a chosen branch is the whole function.
    """
    a, b = operands("logaddexp", x, y)
    require_float("logaddexp", a)
    infinite = _f.logical_and(_f.equal(a, b), _f.isinf(a))
    zero = _f.constant_like(a, 0)
    first = _f.greater_equal(a, b)
    high = _f.where(infinite, zero, _f.where(first, a, b))
    low = _f.where(infinite, zero, _f.where(first, b, a))
    apart = _f.subtract(low, high)
    # What the subtraction rounded off (Knuth, TAOCP volume 2, 4.2.2, theorem B): the exponential
    # would multiply it by |low|.
    back = _f.subtract(apart, low)
    lost = _f.subtract(_f.subtract(low, _f.subtract(apart, back)), _f.add(high, back))
    lost = _f.stop_gradient(_f.where(_f.isfinite(lost), lost, zero))
    value = _f.add(high, log1p(_f.multiply(exp(apart), _f.add(lost, 1))))
    limit = _f.where(_f.less(a, 0), _f.constant_like(a, -math.inf), _f.constant_like(a, math.inf))
    return _f.where(infinite, limit, value)


def hypot(x: Any, y: Any) -> Array:
    """Return `sqrt(x**2 + y**2)` without overflow; both of one floating dtype.

    Infinite if either is, even beside NaN; the gradient at (0, 0) is 0.
    """
    a, b = operands("hypot", x, y)
    require_float("hypot", a)
    infinite = _f.logical_or(_f.isinf(a), _f.isinf(b))
    zero, one = _f.constant_like(a, 0), _f.constant_like(a, 1)
    first = _f.greater_equal(_f.abs(a), _f.abs(b))
    high = _f.abs(_f.where(infinite, zero, _f.where(first, a, b)))
    low = _f.where(infinite, zero, _f.where(first, b, a))
    # The smaller one keeps its sign, as the derivative of |y| at 0 would hide y's curvature.
    ratio = _f.divide(low, _f.where(_f.equal(high, 0), one, high))
    value = _f.multiply(high, _f.sqrt(_f.add(_f.square(ratio), 1)))
    return _f.where(infinite, _f.constant_like(a, math.inf), value)
