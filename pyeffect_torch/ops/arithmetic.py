"""Arithmetic of two operands. One declaration is one op: dtypes, derivative, reference.

The functions that users call check dtypes (mixed dtypes are an error, a Python number takes the
array's dtype) and bind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.op import Affine, Multilinear, Nondiff, Smooth
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import negative_if, spread, unbroadcast_to
from pyeffect_torch.ops.binary import apply, binary_op

_f: Any = late.functions


def _apart(x: Any, y: Any) -> tuple[Any, Any]:
    """Move y at least 1/8 away from x where they broadcast against each other."""
    if not dtypes.is_float(x.dtype) or x.size == 0 or y.size == 0:
        return x, y
    q = np.asarray(np.round(x.astype(np.float64) * 2) / 2, dtype=np.float64)
    r = np.asarray(np.round(y.astype(np.float64) * 2) / 2 + 0.25, dtype=np.float64)
    return q.astype(x.dtype), r.astype(y.dtype)


def _safe_floor_divide(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return np.floor_divide(x, y)
    return np.where(y == 0, np.zeros_like(x), np.floor_divide(x, np.where(y == 0, 1, y)))


def _safe_remainder(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return np.remainder(x, y)
    return np.where(y == 0, np.zeros_like(x), np.remainder(x, np.where(y == 0, 1, y)))


def _integer_safe_power(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return np.power(x, y)
    negative = y < 0
    base = np.power(x, np.where(negative, 0, y).astype(y.dtype))
    odd = np.where(y % 2 != 0, x, np.ones_like(x))
    inverse = np.where(x == 1, 1, np.where(x == -1, odd, 0)).astype(x.dtype)
    return np.where(negative, inverse, base)


def _mul_transpose(node: Array, j: int, ct: Array) -> Array:
    return _f.unbroadcast(multiply(ct, node.inputs[1 - j]), node.inputs[j].shape)


def _prefer(first: int) -> Callable[[Array], Array]:
    """The partial of maximum/minimum: 1 where the operand wins, 1/2 on a tie."""

    def partial(node: Array) -> Array:
        mine, other = node.inputs[first], node.inputs[1 - first]
        wins = _f.greater(mine, other) if node.op is MAXIMUM else _f.less(mine, other)
        half = _f.constant_like(node, 0.5)
        one, zero = _f.constant_like(node, 1), _f.constant_like(node, 0)
        return _f.where(wins, one, _f.where(_f.equal(mine, other), half, zero))

    return partial


def _power_base(node: Array) -> Array:
    x, y = node.inputs
    slope = multiply(y, power(x, subtract(y, 1)))
    return _f.where(_f.equal(y, 0), _f.constant_like(node, 0), slope)


def _power_exponent(node: Array) -> Array:
    x, y = node.inputs
    one = _f.constant_like(x, 1)
    slope = multiply(node, _f.log(_f.where(_f.equal(x, 0), one, x)))
    return _f.where(
        _f.logical_and(_f.equal(x, 0), _f.greater_equal(y, 0)), _f.constant_like(node, 0), slope
    )


_N = domains.NUMERIC
_F = domains.FLOATING
_E = domains.EVERY
_POSITIVE = (0.25, 3.0)
_sum_rule = Affine(
    lambda node, j, t: spread(node, t), lambda node, j, ct: unbroadcast_to(j, node, ct)
)
_difference_rule = Affine(
    lambda node, j, t: spread(node, negative_if(j == 1, t)),
    lambda node, j, ct: unbroadcast_to(j, node, negative_if(j == 1, ct)),
)


ADD: Final = binary_op("add", _N, _sum_rule, np.add, domains.binary(dtypes_=_N), commutative=True)
SUBTRACT: Final = binary_op(
    "subtract", _N, _difference_rule, np.subtract, domains.binary(dtypes_=_N)
)
MULTIPLY: Final = binary_op(
    "multiply",
    _N,
    Multilinear(_mul_transpose),
    np.multiply,
    domains.binary(dtypes_=_N),
    commutative=True,
)
DIVIDE: Final = binary_op(
    "divide",
    _F,
    Smooth(
        (
            lambda node: _f.reciprocal(node.inputs[1]),
            lambda node: _f.negative(divide(node, node.inputs[1])),
        )
    ),
    np.divide,
    domains.binary(dtypes_=_F, second=_POSITIVE),
)
FLOOR_DIVIDE: Final = binary_op(
    "floor_divide",
    _N,
    Nondiff(),
    _safe_floor_divide,
    domains.binary(dtypes_=_N, first=(-9, 9), second=(1, 4)),
)
REMAINDER: Final = binary_op(
    "remainder",
    _N,
    Smooth((lambda node: _f.ones_like(node), lambda node: _f.negative(floor_divide(*node.inputs)))),
    _safe_remainder,
    domains.binary(dtypes_=_N, first=(-9, 9), second=(1.3, 4), roundings=4.0),
)
POWER: Final = binary_op(
    "power",
    _N,
    Smooth((_power_base, _power_exponent)),
    _integer_safe_power,
    domains.binary(dtypes_=_N, first=_POSITIVE, second=(-2, 3), roundings=16.0),
)
MAXIMUM: Final = binary_op(
    "maximum",
    _E,
    Smooth((_prefer(0), _prefer(1))),
    np.maximum,
    domains.binary(dtypes_=_E, adjust=_apart),
    commutative=True,
)
MINIMUM: Final = binary_op(
    "minimum",
    _E,
    Smooth((_prefer(0), _prefer(1))),
    np.minimum,
    domains.binary(dtypes_=_E, adjust=_apart),
    commutative=True,
)


def _arctan2_norm(node: Array) -> Array:
    y, x = node.inputs
    return add(multiply(y, y), multiply(x, x))


ARCTAN2: Final = binary_op(
    "arctan2",
    _F,
    Smooth(
        (
            lambda node: divide(node.inputs[1], _arctan2_norm(node)),
            lambda node: _f.negative(divide(node.inputs[0], _arctan2_norm(node))),
        )
    ),
    np.arctan2,
    domains.binary(dtypes_=_F, first=_POSITIVE, roundings=4.0),
)


def add(x: Any, y: Any) -> Array:
    """Return `x + y` elementwise; both of one numeric dtype. Integers wrap."""
    return apply(ADD, x, y)


def subtract(x: Any, y: Any) -> Array:
    """Return `x - y` elementwise; both of one numeric dtype. Integers wrap."""
    return apply(SUBTRACT, x, y)


def multiply(x: Any, y: Any) -> Array:
    """Return `x * y` elementwise; both of one numeric dtype. Integers wrap."""
    return apply(MULTIPLY, x, y)


def divide(x: Any, y: Any) -> Array:
    """Return `x / y` elementwise; both of one floating dtype."""
    return apply(DIVIDE, x, y)


def floor_divide(x: Any, y: Any) -> Array:
    """Return the floor of `x / y`; an integer divided by zero gives 0."""
    return apply(FLOOR_DIVIDE, x, y)


def remainder(x: Any, y: Any) -> Array:
    """Return `x - floor(x / y) * y`, with the sign of `y`; 0 for an integer `y` of 0."""
    return apply(REMAINDER, x, y)


def power(x: Any, y: Any) -> Array:
    """Return `x ** y`. A Python int exponent is static: exact powers and derivatives."""
    if isinstance(y, int) and not isinstance(y, bool) and isinstance(x, Array):
        return _f.integer_power(x, y)
    return apply(POWER, x, y)


def maximum(x: Any, y: Any) -> Array:
    """Return the larger of `x` and `y`; NaN propagates; ties share the gradient evenly."""
    return apply(MAXIMUM, x, y)


def minimum(x: Any, y: Any) -> Array:
    """Return the smaller of `x` and `y`; NaN propagates; ties share the gradient evenly."""
    return apply(MINIMUM, x, y)


def arctan2(y: Any, x: Any) -> Array:
    """Return the angle of the point (x, y) in radians, in [-pi, pi]; floating."""
    return apply(ARCTAN2, y, x)
