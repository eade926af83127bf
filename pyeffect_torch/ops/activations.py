"""Activation functions: compositions of elementwise ops, which the core fuses into one kernel.

Each is written so that its derivatives follow exactly, at every order: where a function has two
branches, a chosen branch is a whole smooth function, and the branch that is not chosen never sees
an argument that it cannot take.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.ops.base import describe, is_number, normalize_axis, operand, require_float
from pyeffect_torch.ops.options import require_number

_f: Any = late.functions

_SELU_ALPHA: Final = 1.6732632423543772848170429916717
_SELU_SCALE: Final = 1.0507009873554804934193349852946
_GELU_CUBIC: Final = 0.044715


def _floating(name: str, x: Any) -> Array:
    array = operand(name, x)
    require_float(name, array)
    return array


def _numeric(name: str, x: Any) -> Array:
    array = operand(name, x)
    if array.dtype is dtypes.bool_:
        raise DTypeError(f"{name}: has no meaning for {describe(array)}", "cast it first")
    return array


def relu(x: Any) -> Array:
    """Return `x` where it is positive, else 0; NaN propagates and the gradient at 0 is 0."""
    array = _numeric("relu", x)
    return _f.where(_f.less_equal(array, 0), _f.constant_like(array, 0), array)


def relu6(x: Any) -> Array:
    """Return `x` bounded to [0, 6]; the gradient at both bounds is 0."""
    return hardtanh(x, 0, 6)


def hardtanh(x: Any, minimum: float = -1.0, maximum: float = 1.0) -> Array:
    """Return `x` bounded to [minimum, maximum]; the gradient at both bounds is 0."""
    array = _numeric("hardtanh", x)
    lowest = require_number("hardtanh", minimum, "minimum")
    if lowest > require_number("hardtanh", maximum, "maximum"):
        raise ArgumentError(
            f"hardtanh: minimum {minimum} is above maximum {maximum}", "swap the bounds"
        )
    low, high = _f.constant_like(array, minimum), _f.constant_like(array, maximum)
    bounded = _f.where(_f.greater_equal(array, high), high, array)
    return _f.where(_f.less_equal(array, low), low, bounded)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Array:
    """Return `x` where it is not negative, else `negative_slope * x`."""
    array = _floating("leaky_relu", x)
    return _f.where(_f.greater_equal(array, 0), array, _f.multiply(array, negative_slope))


def elu(x: Any, alpha: float = 1.0) -> Array:
    """Return `x` where it is positive, else `alpha * (exp(x) - 1)`.

    Reference: Clevert, Unterthiner, Hochreiter, "Fast and Accurate Deep Network Learning by
    Exponential Linear Units", 2016, equation 15.
    """
    return _exponential_unit("elu", x, alpha, 1.0)


def celu(x: Any, alpha: float = 1.0) -> Array:
    """Return `x` where it is positive, else `alpha * (exp(x / alpha) - 1)`.

    Reference: Barron, "Continuously Differentiable Exponential Linear Units", 2017, equation 2.
    """
    return _exponential_unit("celu", x, alpha, alpha)


def selu(x: Any) -> Array:
    """Return `scale * elu(x, alpha)` with the constants that keep mean 0 and variance 1.

    Reference: Klambauer et al., "Self-Normalizing Neural Networks", 2017, equation 2.
    """
    unit = _exponential_unit("selu", x, _SELU_ALPHA, 1.0)
    return _f.multiply(unit, _SELU_SCALE)


def _exponential_unit(name: str, x: Any, alpha: float, width: float) -> Array:
    """`x` above 0, else `alpha * expm1(x / width)`; the gradient at 0 is `alpha / width`."""
    array = _floating(name, x)
    positive = _f.greater(array, 0)
    safe = _f.where(positive, _f.constant_like(array, 0), array)
    if not is_number(width) or width != 1.0:
        safe = _f.divide(safe, width)
    return _f.where(positive, array, _f.multiply(_f.expm1(safe), alpha))


def softplus(x: Any) -> Array:
    """Return `log(1 + exp(x))` without overflow."""
    array = _floating("softplus", x)
    positive = _f.greater(array, 0)
    high = _f.where(positive, array, _f.constant_like(array, 0))
    below = _f.where(positive, _f.negative(array), array)
    return _f.add(high, _f.log1p(_f.exp(below)))


def log_sigmoid(x: Any) -> Array:
    """Return `log(sigmoid(x))`, accurate for every `x`."""
    return _f.negative(softplus(_f.negative(_floating("log_sigmoid", x))))


def silu(x: Any) -> Array:
    """Return `x * sigmoid(x)`, also called swish."""
    array = _floating("silu", x)
    return _f.multiply(array, _f.sigmoid(array))


def mish(x: Any) -> Array:
    """Return `x * tanh(softplus(x))`.

    Reference: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019.
    """
    array = _floating("mish", x)
    return _f.multiply(array, _f.tanh(softplus(array)))


def gelu(x: Any, approximate: Literal["none", "tanh"] | bool = "none") -> Array:
    """Return `x * P(Z <= x)` for a standard normal Z.

    Args:
        x: floating, any shape.
        approximate: `"none"` (or False) is exact (by erfc, so that no digits cancel below 0);
            `"tanh"` (or True) is the approximation of the reference.

    Reference: Hendrycks, Gimpel, "Gaussian Error Linear Units", 2016, section 2.
    """
    array = _floating("gelu", x)
    if approximate in ("none", False):
        tail = _f.erfc(_f.multiply(array, -math.sqrt(0.5)))
        return _f.multiply(_f.multiply(array, 0.5), tail)
    if approximate not in ("tanh", True):
        raise ArgumentError(
            f"gelu: approximate is {approximate!r}", "pass approximate='none' or 'tanh'"
        )
    cubic = _f.add(_f.multiply(_f.square(array), _GELU_CUBIC), 1)
    inner = _f.multiply(_f.multiply(array, cubic), math.sqrt(2 / math.pi))
    return _f.multiply(_f.multiply(array, 0.5), _f.add(_f.tanh(inner), 1))


def softsign(x: Any) -> Array:
    """Return `x / (1 + |x|)`."""
    array = _floating("softsign", x)
    return _f.divide(array, _f.add(_f.abs(array), 1))


def hard_sigmoid(x: Any) -> Array:
    """Return `relu6(x + 3) / 6`."""
    return _f.divide(relu6(_f.add(_floating("hard_sigmoid", x), 3)), 6)


def hard_swish(x: Any) -> Array:
    """Return `x * hard_sigmoid(x)`.

    Reference: Howard et al., "Searching for MobileNetV3", 2019, section 5.2.
    """
    array = _floating("hard_swish", x)
    return _f.multiply(array, hard_sigmoid(array))


def _halves(name: str, x: Any, axis: int) -> tuple[Array, Array]:
    array = _floating(name, x)
    index = normalize_axis(name, axis, array.ndim)
    if array.shape[index] % 2:
        raise ShapeError(
            f"{name}: axis {index} of {describe(array)} has an odd extent",
            "pass an array whose axis holds two equal halves",
        )
    first, second = _f.split(array, 2, index)
    return first, second


def glu(x: Any, axis: int = -1) -> Array:
    """Return `a * sigmoid(b)` for the halves a, b of `x` along `axis`, whose extent is even.

    Reference: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017.
    """
    value, gate = _halves("glu", x, axis)
    return _f.multiply(value, _f.sigmoid(gate))


def swiglu(x: Any, axis: int = -1) -> Array:
    """Return `silu(a) * b` for the halves a, b of `x` along `axis`, whose extent is even.

    Reference: Shazeer, "GLU Variants Improve Transformer", 2020, equation 5.
    """
    first, second = _halves("swiglu", x, axis)
    return _f.multiply(silu(first), second)


def geglu(x: Any, axis: int = -1) -> Array:
    """Return `gelu(a) * b` for the halves a, b of `x` along `axis`, whose extent is even.

    Reference: Shazeer, "GLU Variants Improve Transformer", 2020, equation 5.
    """
    first, second = _halves("geglu", x, axis)
    return _f.multiply(gelu(first), second)
