"""Variance, norms and log-sum-exp: compositions whose gradients are right at the edges.

All need floating operands; half types are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.ops.base import normalize_axes, operand, require_float
from pyeffect_torch.ops.options import require_number
from pyeffect_torch.ops.reducing import Axes, count_of, kept_shape, remaining_shape

__all__ = ["logsumexp", "norm", "std", "var"]

_f: Any = late.functions


def _computed(name: str, x: Any) -> tuple[Array, Any]:
    """The operand in the dtype that is computed in, and the dtype of the result."""
    array = operand(name, x)
    require_float(name, array)
    return _f.cast(array, dtypes.accumulator(array.dtype)), array.dtype


def var(x: Any, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> Array:
    """Return the variance of `x` over `axis` (None: all axes), from deviations to the mean.

    Args:
        x: floating.
        axis: None, an int or several.
        correction: subtracted from the count that the sum of squares is divided by (1: unbiased).
        keepdims: leave the axes with extent 1.
    """
    array, result = _computed("var", x)
    return _f.cast(_variance("var", array, axis, correction, keepdims), result)


def _variance(name: str, x: Array, axis: Axes, correction: float, keepdims: bool) -> Array:
    axes = normalize_axes(name, axis, len(x.shape))
    centred = _f.subtract(x, _f.mean(x, axes, keepdims=True))
    total = _f.sum(_f.square(centred), axes, keepdims=keepdims)
    free = count_of(x.shape, axes) - require_number(name, correction, "correction")
    return _f.divide(total, max(free, 0.0))


def std(x: Any, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> Array:
    """Return the standard deviation of `x` over `axis` (None: all axes).

    The gradient at a constant `x` is 0. Arguments as for `var`.
    """
    array, result = _computed("std", x)
    return _f.cast(safe_root(_variance("std", array, axis, correction, keepdims)), result)


def safe_root(x: Array) -> Array:
    """The square root, with gradient 0 at 0."""
    zero = _f.equal(x, 0)
    safe = _f.where(zero, _f.constant_like(x, 1), x)
    return _f.where(zero, _f.constant_like(x, 0), _f.sqrt(safe))


def norm(x: Any, ord: float | None = None, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the p-norm of the elements of `x` over `axis` (None: all axes).

    Args:
        x: floating; over several axes they count as one vector (the Frobenius norm for 2).
        ord: p, by default 2; `inf` and `-inf` give the largest and the smallest magnitude, 0 the
            number of elements that are not 0. A negative p gives 0 if one element is 0.
        axis: None, an int or several.
        keepdims: leave the axes with extent 1.

    The gradient of every norm at a zero vector is 0.
    """
    array, result = _computed("norm", x)
    return _f.cast(_norm(array, 2 if ord is None else ord, axis, keepdims), result)


def _norm(x: Array, p: Any, axis: Axes, keepdims: bool) -> Array:
    if isinstance(p, bool) or not isinstance(p, (int, float)) or p != p:
        raise ArgumentError(f"norm: ord is {p!r}", "pass a number, inf or -inf")
    if p == 2:
        return safe_root(_f.sum(_f.square(x), axis, keepdims=keepdims))
    if p == 0:
        count = _f.count_nonzero(x, axis, keepdims=keepdims)
        return _f.cast(count, x.dtype)
    magnitude = _f.abs(x)
    if p == 1:
        return _f.sum(magnitude, axis, keepdims=keepdims)
    if p in (math.inf, -math.inf):
        choose = _f.max if p > 0 else _f.min
        return choose(magnitude, axis, keepdims=keepdims)
    zero, one = _f.constant_like(x, 0), _f.constant_like(x, 1)
    absent = _f.equal(x, 0)
    powers = _f.power(_f.where(absent, one, magnitude), float(p))
    total = _f.sum(_f.where(absent, zero, powers), axis, keepdims=keepdims)
    nothing = _f.equal(total, 0) if p > 0 else _f.any(absent, axis, keepdims=keepdims)
    root = _f.power(_f.where(nothing, one, total), 1 / p)
    return _f.where(nothing, zero, root)


def logsumexp(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return `log(sum(exp(x)))` over `axis` (None: all axes) without overflow.

    It is -inf with gradient 0 where all elements are -inf, and -inf of nothing.

    Args:
        x: floating.
        axis: None, an int or several.
        keepdims: leave the axes with extent 1.
    """
    array, result = _computed("logsumexp", x)
    axes = normalize_axes("logsumexp", axis, len(array.shape))
    kept = kept_shape(array.shape, axes)
    if count_of(array.shape, axes) == 0:
        shape = kept if keepdims else remaining_shape(array.shape, axes)
        return _f.full(shape, -math.inf, result)
    # The shift cancels, so no derivative passes through it.
    largest = _f.stop_gradient(_f.max(array, axes, keepdims=True))
    zero, one = _f.constant_like(array, 0), _f.constant_like(array, 1)
    shift = _f.where(_f.isfinite(largest), largest, zero)
    total = _f.sum(_f.exp(_f.subtract(array, shift)), axes, keepdims=True)
    nothing = _f.equal(total, 0)
    value = _f.add(_f.log(_f.where(nothing, one, total)), shift)
    value = _f.where(nothing, _f.constant_like(array, -math.inf), value)
    if not keepdims:
        value = _f.reshape(value, remaining_shape(array.shape, axes))
    return _f.cast(value, result)
