"""How weights begin: functions of `(key, shape, dtype)`, with options by keyword.

Shapes are as layers keep them, [out, in, ...]: the fan in is the product of all axes but the first,
the fan out that of all but the second. Where both are needed and there is one axis, or none, a
missing one counts as 1.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DTypeLike
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.ops import constructors, random
from pyeffect_torch.ops.base import shape_of
from pyeffect_torch.ops.matrices import diagonals, row, turned
from pyeffect_torch.ops.qr import qr
from pyeffect_torch.ops.selection import cast, where

__all__ = [
    "constant",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]

Mode = Literal["fan_in", "fan_out"]


def constant(key: Any, shape: Any, dtype: DTypeLike = "float32", *, value: float) -> Array:
    """Return an array of `value`; the key is not used."""
    del key
    return constructors.full(shape, value, dtype)


def zeros(key: Any, shape: Any, dtype: DTypeLike = "float32") -> Array:
    """Return zeros; the key is not used."""
    return constant(key, shape, dtype, value=0)


def ones(key: Any, shape: Any, dtype: DTypeLike = "float32") -> Array:
    """Return ones; the key is not used."""
    return constant(key, shape, dtype, value=1)


def normal(
    key: Any, shape: Any, dtype: DTypeLike = "float32", *, mean: float = 0.0, stddev: float = 1.0
) -> Array:
    """Return normal numbers of the given mean and standard deviation."""
    return random.normal(key, shape, dtype) * stddev + mean


def truncated_normal(
    key: Any,
    shape: Any,
    dtype: DTypeLike = "float32",
    *,
    mean: float = 0.0,
    stddev: float = 1.0,
    lower: float = -2.0,
    upper: float = 2.0,
) -> Array:
    """Return `mean + stddev * z` of normal numbers z that lie in (lower, upper).

    `stddev` is that of the numbers before those outside were left out.
    """
    return random.truncated_normal(key, lower, upper, shape, dtype) * stddev + mean


def uniform(
    key: Any, shape: Any, dtype: DTypeLike = "float32", *, low: float = 0.0, high: float = 1.0
) -> Array:
    """Return numbers evenly distributed in [low, high)."""
    return random.uniform(key, shape, dtype, low, high)


def _fans(name: str, shape: Any) -> tuple[int, int]:
    extents = shape_of(name, shape)
    rows = extents[0] if extents else 1
    columns = extents[1] if len(extents) > 1 else 1
    rest = math.prod(extents[2:])
    return columns * rest, rows * rest


def _deviation(name: str, fan: float, gain: float) -> float:
    """`gain / sqrt(fan)`; of an array without elements it does not matter."""
    if not gain >= 0:
        raise ArgumentError(f"{name}: the gain is {gain}", "pass a gain of at least 0")
    return gain / math.sqrt(fan) if fan > 0 else 0.0


def _symmetric(key: Any, shape: Any, dtype: DTypeLike, deviation: float) -> Array:
    """Evenly distributed numbers around 0 of that standard deviation."""
    bound = math.sqrt(3.0) * deviation
    return random.uniform(key, shape, dtype, -bound, bound)


def xavier_uniform(
    key: Any, shape: Any, dtype: DTypeLike = "float32", *, gain: float = 1.0
) -> Array:
    """Return numbers evenly distributed around 0, of variance `2 gain^2 / (fan in + fan out)`.

    Reference: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010, equation 16.
    """
    fan = sum(_fans("xavier_uniform", shape)) / 2
    return _symmetric(key, shape, dtype, _deviation("xavier_uniform", fan, gain))


def xavier_normal(
    key: Any, shape: Any, dtype: DTypeLike = "float32", *, gain: float = 1.0
) -> Array:
    """Return normal numbers of variance `2 gain^2 / (fan in + fan out)`."""
    fan = sum(_fans("xavier_normal", shape)) / 2
    return normal(key, shape, dtype, stddev=_deviation("xavier_normal", fan, gain))


def _kaiming(name: str, shape: Any, mode: str, slope: float) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"{name}: mode is {mode!r}", "pass 'fan_in' or 'fan_out'")
    fan = _fans(name, shape)[mode == "fan_out"]
    return _deviation(name, fan, math.sqrt(2 / (1 + slope * slope)))


def kaiming_uniform(
    key: Any,
    shape: Any,
    dtype: DTypeLike = "float32",
    *,
    mode: Mode = "fan_in",
    slope: float = 0.0,
) -> Array:
    """Return numbers evenly distributed around 0, of variance `2 / ((1 + slope^2) fan)`.

    Args:
        mode: which fan.
        slope: of the leaky relu that follows, below 0; 0 is relu.

    Reference: He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015, equations 10 and 15.
    """
    return _symmetric(key, shape, dtype, _kaiming("kaiming_uniform", shape, mode, slope))


def kaiming_normal(
    key: Any,
    shape: Any,
    dtype: DTypeLike = "float32",
    *,
    mode: Mode = "fan_in",
    slope: float = 0.0,
) -> Array:
    """Return normal numbers of variance `2 / ((1 + slope^2) fan)`; see `kaiming_uniform`."""
    deviation = _kaiming("kaiming_normal", shape, mode, slope)
    return normal(key, shape, dtype, stddev=deviation)


def lecun_uniform(key: Any, shape: Any, dtype: DTypeLike = "float32") -> Array:
    """Return numbers evenly distributed around 0, of variance `1 / fan in`.

    Reference: LeCun, Bottou, Orr, Mueller, "Efficient BackProp", 1998, equation 16.
    """
    fan, _ = _fans("lecun_uniform", shape)
    return _symmetric(key, shape, dtype, _deviation("lecun_uniform", fan, 1.0))


_TRUNCATED_DEVIATION = 0.8796256610342398
"""The standard deviation of normal numbers that lie in (-2, 2)."""


def lecun_normal(key: Any, shape: Any, dtype: DTypeLike = "float32") -> Array:
    """Return normal numbers within two deviations, of variance `1 / fan in`."""
    fan, _ = _fans("lecun_normal", shape)
    deviation = _deviation("lecun_normal", fan, 1.0) / _TRUNCATED_DEVIATION
    return truncated_normal(key, shape, dtype, stddev=deviation)


def orthogonal(key: Any, shape: Any, dtype: DTypeLike = "float32", *, gain: float = 1.0) -> Array:
    """Return `gain` times a random matrix with orthonormal rows, or columns if those are fewer.

    The rows are the first axis, the columns all others. It is evenly distributed among all such
    matrices.

    Raises:
        ShapeError: fewer than two axes.

    Reference: Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in
    deep linear neural networks", 2014; for the signs: Mezzadri, "How to generate random matrices
    from the classical compact groups", 2007, section 5.
    """
    found = random.floating("orthogonal", dtype)
    extents = shape_of("orthogonal", shape)
    if len(extents) < 2:
        raise ShapeError(
            f"orthogonal: shape {list(extents)} is that of no matrix", "pass two or more axes"
        )
    rows, columns = extents[0], math.prod(extents[1:])
    longer, shorter = max(rows, columns), min(rows, columns)
    drawn = cast(random.normal(key, (longer, shorter), found), dtypes.accumulator(found))
    q, r = qr(drawn)
    q = where(row(diagonals(r)) < 0, -q, q) * gain
    return cast(q if rows >= columns else turned(q), found).reshape(extents)
