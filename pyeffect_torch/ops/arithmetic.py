"""Elementwise ops of two and three operands: arithmetic, comparisons, logic, bits, `where`, cast.

One table row is one op: name, dtypes, derivative, reference. The functions that users call check
dtypes (`semantics`: mixed dtypes are an error, a Python number takes the array's dtype) and bind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import DTypeError
from pyeffect_torch.core.op import (
    Affine,
    Derivative,
    Domain,
    Linear,
    Multilinear,
    Nondiff,
    Op,
    Sample,
    Smooth,
    declare,
)
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import (
    broadcast_shapes,
    describe,
    elementwise_batch,
    mixed_dtypes,
    negative_if,
    operand,
    operands,
    resolve_dtype,
    saturating_cast,
    spread,
    unbroadcast_to,
)

_f: Any = late.functions


def _infer_arithmetic(name: str, allowed: frozenset[DType], result: DType | None) -> Any:
    def infer(inputs: tuple[Array, ...], params: Any) -> Any:
        del params
        a, b = inputs
        dtype = a.dtype
        if dtype is not b.dtype:
            raise mixed_dtypes(name, a, b)
        if dtype not in allowed:
            raise DTypeError(
                f"{name}: has no meaning for {describe(a)} and {describe(b)}",
                _cure(dtype, allowed),
            )
        shape = a.shape if a.shape == b.shape else broadcast_shapes(name, a.shape, b.shape)
        return shape, result or dtype

    return infer


def _cure(dtype: DType, allowed: frozenset[DType]) -> str:
    if dtype is dtypes.bool_:
        return "use & | ^ on bool arrays, or cast them first"
    if allowed <= dtypes.FLOATS:
        return "cast the operands to a floating dtype, or use // for integers"
    return "cast the operands to " + ("an integer dtype" if dtypes.int64 in allowed else "bool")


def _binary(
    name: str,
    allowed: Sequence[DType],
    derivative: Derivative,
    reference: Callable[..., Any],
    domain: Domain,
    *,
    result: DType | None = None,
    commutative: bool = False,
) -> Op:
    return declare(
        name,
        infer=_infer_arithmetic(name, frozenset(allowed), result),
        derivative=derivative,
        batch=elementwise_batch,
        reference=domains.widened(reference),
        domain=domain,
        opcode=name,
        traits=("elementwise", "commutative") if commutative else ("elementwise",),
    )


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


def _mul_transpose(node: Array, j: int, ct: Array) -> Array:
    return _f.unbroadcast(multiply(ct, node.inputs[1 - j]), node.inputs[j].shape)


def _prefer(first: int) -> Callable[[Array], Array]:
    """The partial of maximum/minimum: 1 where the operand wins, 1/2 on a tie."""

    def partial(node: Array) -> Array:
        mine, other = node.inputs[first], node.inputs[1 - first]
        wins = greater(mine, other) if node.op is MAXIMUM else less(mine, other)
        half = _f.constant_like(node, 0.5)
        one, zero = _f.constant_like(node, 1), _f.constant_like(node, 0)
        return where(wins, one, where(equal(mine, other), half, zero))

    return partial


def _power_base(node: Array) -> Array:
    x, y = node.inputs
    slope = multiply(y, power(x, subtract(y, 1)))
    return where(equal(y, 0), _f.constant_like(node, 0), slope)


def _power_exponent(node: Array) -> Array:
    x, y = node.inputs
    one = _f.constant_like(x, 1)
    slope = multiply(node, _f.log(where(equal(x, 0), one, x)))
    return where(logical_and(equal(x, 0), greater_equal(y, 0)), _f.constant_like(node, 0), slope)


_N = domains.NUMERIC
_F = domains.FLOATING
_E = domains.EVERY
_B = domains.BITS
_I = domains.INTEGERS
_BOOL = (dtypes.bool_,)
_POSITIVE = (0.25, 3.0)
_sum_rule = Affine(
    lambda node, j, t: spread(node, t), lambda node, j, ct: unbroadcast_to(j, node, ct)
)
_difference_rule = Affine(
    lambda node, j, t: spread(node, negative_if(j == 1, t)),
    lambda node, j, ct: unbroadcast_to(j, node, negative_if(j == 1, ct)),
)


ADD: Final = _binary(
    "add", _N, _sum_rule, np.add, domains.binary(dtypes_=_N), commutative=True
)
SUBTRACT: Final = _binary(
    "subtract", _N, _difference_rule, np.subtract, domains.binary(dtypes_=_N)
)
MULTIPLY: Final = _binary(
    "multiply", _N, Multilinear(_mul_transpose), np.multiply, domains.binary(dtypes_=_N),
    commutative=True,
)
DIVIDE: Final = _binary(
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
FLOOR_DIVIDE: Final = _binary(
    "floor_divide", _N, Nondiff(), _safe_floor_divide,
    domains.binary(dtypes_=_N, first=(-9, 9), second=(1, 4)),
)
REMAINDER: Final = _binary(
    "remainder",
    _N,
    Smooth((lambda node: _f.ones_like(node), lambda node: _f.negative(floor_divide(*node.inputs)))),
    _safe_remainder,
    domains.binary(dtypes_=_N, first=(-9, 9), second=(1.3, 4), roundings=4.0),
)
POWER: Final = _binary(
    "power", _N, Smooth((_power_base, _power_exponent)), _integer_safe_power,
    domains.binary(dtypes_=_N, first=_POSITIVE, second=(-2, 3), roundings=16.0),
)
MAXIMUM: Final = _binary(
    "maximum", _E, Smooth((_prefer(0), _prefer(1))), np.maximum,
    domains.binary(dtypes_=_E, adjust=_apart), commutative=True,
)
MINIMUM: Final = _binary(
    "minimum", _E, Smooth((_prefer(0), _prefer(1))), np.minimum,
    domains.binary(dtypes_=_E, adjust=_apart), commutative=True,
)


def _arctan2_norm(node: Array) -> Array:
    y, x = node.inputs
    return add(multiply(y, y), multiply(x, x))


ARCTAN2: Final = _binary(
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


def _comparison(name: str, reference: Any, dtypes_: Sequence[DType] = _E, **options: Any) -> Op:
    domain = domains.binary(dtypes_=dtypes_)
    return _binary(name, dtypes_, Nondiff(), reference, domain, result=dtypes.bool_, **options)


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
    return _binary(name, dtypes_, Nondiff(), reference, domain, **options)


BITWISE_AND: Final = _bitwise("bitwise_and", np.bitwise_and, commutative=True)
BITWISE_OR: Final = _bitwise("bitwise_or", np.bitwise_or, commutative=True)
BITWISE_XOR: Final = _bitwise("bitwise_xor", np.bitwise_xor, commutative=True)
LEFT_SHIFT: Final = _bitwise("left_shift", _shift(True), _I)
RIGHT_SHIFT: Final = _bitwise("right_shift", _shift(False), _I)


# --- where and cast


def _infer_where(inputs: tuple[Array, ...], params: Any) -> Any:
    del params
    condition, a, b = inputs
    if condition.dtype is not dtypes.bool_:
        raise DTypeError(
            f"where: the condition must be bool, got {describe(condition)}",
            "compare first, for example x != 0",
        )
    if a.dtype is not b.dtype:
        raise mixed_dtypes("where", a, b)
    return broadcast_shapes("where", condition.shape, a.shape, b.shape), a.dtype


def _select(node: Array, j: int, value: Array) -> Array:
    condition = node.inputs[0]
    zero = _f.constant_like(value, 0)
    return where(condition, value, zero) if j == 1 else where(condition, zero, value)


def _where_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    out: list[Sample] = []
    for a, b in domains.PAIRS:
        shape = np.broadcast_shapes(a, b)
        for conditions in (shape, ()):
            condition = domains.draw(rng, conditions, dtypes.bool_)
            out.append(
                Sample((condition, domains.draw(rng, a, dtype), domains.draw(rng, b, dtype)))
            )
    return out


WHERE: Final = declare(
    "where",
    infer=_infer_where,
    derivative=Affine(
        lambda node, j, t: spread(node, _select(node, j, t)),
        lambda node, j, ct: unbroadcast_to(j, node, _select(node, j, ct)),
    ),
    batch=elementwise_batch,
    reference=lambda attributes, condition, a, b: np.where(condition, a, b),
    domain=Domain(_E, _where_samples, lambda sample: 0.0),
    opcode="where",
    traits=("elementwise",),
)


def _cast_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample((domains.draw(rng, shape, dtype, -5.5, 120.0),), target)
        for shape in domains.SHAPES[:6]
        for target in dtypes.ALL
    ]


CAST: Final = declare(
    "cast",
    infer=lambda inputs, params: (inputs[0].shape, params),
    derivative=Linear(lambda node, ct: cast(ct, node.inputs[0].dtype)),
    batch=elementwise_batch,
    reference=lambda attributes, x: saturating_cast(x, attributes["dtype"]),
    domain=Domain(_E, _cast_samples, lambda sample: 1.0),
    opcode="cast",
    attributes=lambda node: {"dtype": node.params},
    traits=("elementwise",),
)


def cast(x: Any, dtype: DTypeLike) -> Array:
    """Return `x` with its elements converted to `dtype`.

    Floats to integers truncate and saturate, NaN gives 0; float64 to float16 rounds once; to bool
    is `x != 0`. The gradient is cast back.
    """
    x = operand("cast", x)
    target = resolve_dtype("cast", dtype)
    return x if x.dtype is target else bind(CAST, (x,), target)


def where(condition: Any, x: Any, y: Any) -> Array:
    """Return `x` where `condition` holds, else `y`: a true select, forward and backward.

    Args:
        condition: bool, broadcast with the others.
        x, y: of one dtype; a Python number takes the other's.
    """
    a, b = operands("where", x, y, convert_scalars=False)
    return bind(WHERE, (operand("where", condition), a, b))


def add(x: Any, y: Any) -> Array:
    """Return `x + y` elementwise; both of one numeric dtype. Integers wrap."""
    return bind(ADD, operands("add", x, y))


def subtract(x: Any, y: Any) -> Array:
    """Return `x - y` elementwise; both of one numeric dtype. Integers wrap."""
    return bind(SUBTRACT, operands("subtract", x, y))


def multiply(x: Any, y: Any) -> Array:
    """Return `x * y` elementwise; both of one numeric dtype. Integers wrap."""
    return bind(MULTIPLY, operands("multiply", x, y))


def divide(x: Any, y: Any) -> Array:
    """Return `x / y` elementwise; both of one floating dtype."""
    return bind(DIVIDE, operands("divide", x, y))


def floor_divide(x: Any, y: Any) -> Array:
    """Return the floor of `x / y`; an integer divided by zero gives 0."""
    return bind(FLOOR_DIVIDE, operands("floor_divide", x, y))


def remainder(x: Any, y: Any) -> Array:
    """Return `x - floor(x / y) * y`, with the sign of `y`; 0 for an integer `y` of 0."""
    return bind(REMAINDER, operands("remainder", x, y))


def power(x: Any, y: Any) -> Array:
    """Return `x ** y`. A Python int exponent is static: exact powers and derivatives."""
    if isinstance(y, int) and not isinstance(y, bool) and isinstance(x, Array):
        return _f.integer_power(x, y)
    return bind(POWER, operands("power", x, y))


def maximum(x: Any, y: Any) -> Array:
    """Return the larger of `x` and `y`; NaN propagates; ties share the gradient evenly."""
    return bind(MAXIMUM, operands("maximum", x, y))


def minimum(x: Any, y: Any) -> Array:
    """Return the smaller of `x` and `y`; NaN propagates; ties share the gradient evenly."""
    return bind(MINIMUM, operands("minimum", x, y))


def arctan2(y: Any, x: Any) -> Array:
    """Return the angle of the point (x, y) in radians, in [-pi, pi]; floating."""
    return bind(ARCTAN2, operands("arctan2", y, x))


def equal(x: Any, y: Any) -> Array:
    """Return `x == y` elementwise, as bool."""
    return bind(EQUAL, operands("equal", x, y))


def not_equal(x: Any, y: Any) -> Array:
    """Return `x != y` elementwise, as bool; true for NaN, as in IEEE 754."""
    return bind(NOT_EQUAL, operands("not_equal", x, y))


def less(x: Any, y: Any) -> Array:
    """Return `x < y` elementwise, as bool."""
    return bind(LESS, operands("less", x, y))


def less_equal(x: Any, y: Any) -> Array:
    """Return `x <= y` elementwise, as bool."""
    return bind(LESS_EQUAL, operands("less_equal", x, y))


def greater(x: Any, y: Any) -> Array:
    """Return `x > y` elementwise, as bool."""
    return bind(GREATER, operands("greater", x, y))


def greater_equal(x: Any, y: Any) -> Array:
    """Return `x >= y` elementwise, as bool."""
    return bind(GREATER_EQUAL, operands("greater_equal", x, y))


def logical_and(x: Any, y: Any) -> Array:
    """Return `x and y` of bool arrays."""
    return bind(LOGICAL_AND, operands("logical_and", x, y))


def logical_or(x: Any, y: Any) -> Array:
    """Return `x or y` of bool arrays."""
    return bind(LOGICAL_OR, operands("logical_or", x, y))


def logical_xor(x: Any, y: Any) -> Array:
    """Return whether exactly one of two bool arrays holds."""
    return bind(LOGICAL_XOR, operands("logical_xor", x, y))


def bitwise_and(x: Any, y: Any) -> Array:
    """Return `x & y` of integers or bools."""
    return bind(BITWISE_AND, operands("bitwise_and", x, y))


def bitwise_or(x: Any, y: Any) -> Array:
    """Return `x | y` of integers or bools."""
    return bind(BITWISE_OR, operands("bitwise_or", x, y))


def bitwise_xor(x: Any, y: Any) -> Array:
    """Return `x ^ y` of integers or bools."""
    return bind(BITWISE_XOR, operands("bitwise_xor", x, y))


def left_shift(x: Any, y: Any) -> Array:
    """Return `x << y` of integers; a shift of at least the width gives 0."""
    return bind(LEFT_SHIFT, operands("left_shift", x, y))


def right_shift(x: Any, y: Any) -> Array:
    """Return `x >> y` of integers; a shift of at least the width gives 0 or the sign."""
    return bind(RIGHT_SHIFT, operands("right_shift", x, y))
