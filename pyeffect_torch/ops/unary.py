"""Elementwise ops of one operand that are algebraic: signs, roots, powers, rounding, tests, bits.

One table row is one op: name, dtypes, derivative, reference. Exponentials, logarithms and the
trigonometric functions are in `transcendental.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, DTypeError
from pyeffect_torch.core.op import Domain, Linear, Nondiff, Op, Sample, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, elementwise_batch, operand
from pyeffect_torch.ops.elementwise import declare_unary, smooth

_f: Any = late.functions

_N = domains.NUMERIC
_F = domains.FLOATING
_POSITIVE = (0.25, 4.0)


def _x(node: Array) -> Array:
    return node.inputs[0]


# --- signs and roots

NEGATIVE: Final = declare_unary("negative", _N, Linear(lambda node, ct: negative(ct)), np.negative)
ABS: Final = declare_unary(
    "abs", _N, smooth(lambda node: sign(_x(node))), np.abs, between=(-3.0, 2.5)
)
SIGN: Final = declare_unary(
    "sign",
    _N,
    Nondiff(),
    lambda x: np.where(x == 0, x, np.sign(x)),  # a zero keeps its own
)
SQRT: Final = declare_unary(
    "sqrt", _F, smooth(lambda node: _f.divide(0.5, node)), np.sqrt, between=_POSITIVE
)
RSQRT: Final = declare_unary(
    "rsqrt",
    _F,
    smooth(lambda node: _f.multiply(integer_power(node, 3), -0.5)),
    lambda x: 1 / np.sqrt(x),
    between=_POSITIVE,
    roundings=2.0,
)
CBRT: Final = declare_unary(
    "cbrt",
    _F,
    smooth(lambda node: _f.divide(1 / 3, square(node))),
    np.cbrt,
    between=_POSITIVE,
    roundings=4.0,  # float64 is the C library's, whose own bound that is
)
SQUARE: Final = declare_unary(
    "square", _N, smooth(lambda node: _f.multiply(_x(node), 2)), np.square
)
RECIPROCAL: Final = declare_unary(
    "reciprocal",
    _F,
    smooth(lambda node: negative(square(node))),
    lambda x: 1 / x,
    between=_POSITIVE,
)


# --- powers with a static integer exponent


def _integer_power_slope(node: Array) -> Array:
    n, x = node.params, _x(node)
    if n == 0:
        return _f.zeros_like(x)
    if n == 1:
        return _f.ones_like(x)
    return _f.multiply(integer_power(x, n - 1), float(n))


def _integer_power_reference(attributes: Any, x: Any) -> Any:
    n = attributes["exponent"]
    if dtypes.is_float(x.dtype):
        return np.power(x.astype(np.float64), float(n))
    out, base = np.ones_like(x), x
    with np.errstate(over="ignore"):  # integers wrap
        while n:  # by squaring, as the exponent itself need not fit the dtype
            out = out * base if n & 1 else out
            n >>= 1
            base = base * base if n else base
    return out


def _infer_integer_power(inputs: tuple[Array, ...], exponent: int) -> Any:
    (x,) = inputs
    if x.dtype is dtypes.bool_:
        raise DTypeError(f"integer_power: has no meaning for {describe(x)}", "use x & y on bools")
    if exponent < 0 and not dtypes.is_float(x.dtype):
        raise DTypeError(
            f"integer_power: {describe(x)} to the power {exponent} is no integer",
            "cast it to a floating dtype first, for example x.astype('float32')",
        )
    return x.shape, x.dtype


def _integer_power_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    exponents = (0, 1, 2, 3, 5, -1, -3) if dtypes.is_float(dtype) else (0, 1, 2, 3, 5, 40)
    low, high = (0.5, 2.0) if dtypes.is_float(dtype) else (-9.0, 9.0)
    return [
        Sample((domains.draw(rng, shape, dtype, low, high),), exponent)
        for shape in domains.SHAPES
        for exponent in exponents
    ]


INTEGER_POWER: Final = declare(
    "integer_power",
    infer=_infer_integer_power,
    derivative=smooth(_integer_power_slope),
    batch=elementwise_batch,
    reference=_integer_power_reference,
    # Two multiplications and one division of n = -3; powers of ints are exact.
    domain=Domain(_N, _integer_power_samples, lambda sample: 4.0),
    opcode="integer_power",
    attributes=lambda node: {"exponent": node.params},
    traits=("elementwise",),
)


# --- rounding, tests, bits

FLOOR: Final = declare_unary("floor", _F, Nondiff(), np.floor)
CEIL: Final = declare_unary("ceil", _F, Nondiff(), np.ceil)
TRUNC: Final = declare_unary("trunc", _F, Nondiff(), np.trunc)
ROUND: Final = declare_unary("round", _F, Nondiff(), np.round, between=(-9.0, 9.0))
ISNAN: Final = declare_unary("isnan", _F, Nondiff(), np.isnan, result=dtypes.bool_)
ISINF: Final = declare_unary("isinf", _F, Nondiff(), np.isinf, result=dtypes.bool_)
ISFINITE: Final = declare_unary("isfinite", _F, Nondiff(), np.isfinite, result=dtypes.bool_)
LOGICAL_NOT: Final = declare_unary("logical_not", (dtypes.bool_,), Nondiff(), np.logical_not)
BITWISE_NOT: Final = declare_unary(
    "bitwise_not", domains.BITS, Nondiff(), np.invert, between=(-99.0, 99.0)
)


# --- the functions that users call


def negative(x: Any) -> Array:
    """Return `-x` elementwise, of a numeric dtype; unsigned integers wrap."""
    return bind(NEGATIVE, (operand("negative", x),))


def abs_(x: Any) -> Array:
    """Return `|x|` elementwise, of a numeric dtype; the gradient at 0 is 0."""
    return bind(ABS, (operand("abs", x),))


def sign(x: Any) -> Array:
    """Return -1, 0 or 1 by the sign of `x`, in its dtype; NaN stays NaN."""
    return bind(SIGN, (operand("sign", x),))


def sqrt(x: Any) -> Array:
    """Return the square root of a floating `x`; NaN below 0."""
    return bind(SQRT, (operand("sqrt", x),))


def rsqrt(x: Any) -> Array:
    """Return `1 / sqrt(x)` of a floating `x`."""
    return bind(RSQRT, (operand("rsqrt", x),))


def cbrt(x: Any) -> Array:
    """Return the real cube root of a floating `x`, negative below 0."""
    return bind(CBRT, (operand("cbrt", x),))


def square(x: Any) -> Array:
    """Return `x * x` elementwise, of a numeric dtype; integers wrap."""
    return bind(SQUARE, (operand("square", x),))


def reciprocal(x: Any) -> Array:
    """Return `1 / x` of a floating `x`."""
    return bind(RECIPROCAL, (operand("reciprocal", x),))


def integer_power(x: Any, exponent: int) -> Array:
    """Return `x ** exponent` for a static int: `x ** 0` is 1, also for NaN.

    Raises:
        ArgumentError: the exponent is not an int, or not a 64-bit one.
        DTypeError: `x` is bool, or an integer and the exponent is negative.
    """
    if not isinstance(exponent, (int, np.integer)) or isinstance(exponent, bool):
        raise ArgumentError(
            f"integer_power: the exponent must be an int, got {type(exponent).__name__}",
            "use et.power for array exponents",
        )
    if not -(2**63) <= exponent < 2**63:
        raise ArgumentError(
            f"integer_power: the exponent {exponent} does not fit 64 bits", "use et.power"
        )
    return bind(INTEGER_POWER, (operand("integer_power", x),), int(exponent))


def _rounded(op: Op, x: Any) -> Array:
    array = operand(op.name, x)
    return array if array.dtype.kind in "iu" else bind(op, (array,))


def floor(x: Any) -> Array:
    """Return the largest integer not above `x`, in the dtype of `x`; no gradient."""
    return _rounded(FLOOR, x)


def ceil(x: Any) -> Array:
    """Return the smallest integer not below `x`, in the dtype of `x`; no gradient."""
    return _rounded(CEIL, x)


def trunc(x: Any) -> Array:
    """Return `x` without its fraction, in the dtype of `x`; no gradient."""
    return _rounded(TRUNC, x)


def round_(x: Any) -> Array:
    """Return `x` rounded to the nearest integer, halves to the even one; no gradient."""
    return _rounded(ROUND, x)


def _tested(op: Op, x: Any, exact: bool) -> Array:
    array = operand(op.name, x)
    if dtypes.is_float(array.dtype):
        return bind(op, (array,))
    return _f.full(array.shape, exact)


def isnan(x: Any) -> Array:
    """Return where `x` is NaN, as bool; nowhere for integers."""
    return _tested(ISNAN, x, False)


def isinf(x: Any) -> Array:
    """Return where `x` is infinite, as bool; nowhere for integers."""
    return _tested(ISINF, x, False)


def isfinite(x: Any) -> Array:
    """Return where `x` is neither infinite nor NaN, as bool; everywhere for integers."""
    return _tested(ISFINITE, x, True)


def logical_not(x: Any) -> Array:
    """Return `not x` of a bool array."""
    return bind(LOGICAL_NOT, (operand("logical_not", x),))


def bitwise_not(x: Any) -> Array:
    """Return `~x` of an integer array, or `not x` of a bool array."""
    return bind(BITWISE_NOT, (operand("bitwise_not", x),))
