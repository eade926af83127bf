"""The Poisson distribution: counting exponential waits for small means, rejection for others."""

from __future__ import annotations

from typing import Any, Final

from pyeffect_torch.control.while_loop import while_loop
from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DTypeLike
from pyeffect_torch.core.errors import DTypeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops import random
from pyeffect_torch.ops.base import resolve_dtype
from pyeffect_torch.random.parameters import draw_shape, floating_parameters

_f: Any = late.functions

_SMALL: Final = 10.0
"""Means below it are counted; Hörmann's constants hold from it on."""


def _counted(key: Array, mean: Array, shape: Shape) -> Array:
    """How many uniform numbers can be multiplied before the product is below `exp(-mean)`."""

    def running(carry: Any) -> Array:
        return _f.any(_f.greater(carry[2], -mean))

    def step(carry: Any) -> Any:
        count, keys, total = carry
        pair = random.split(keys)
        u = random.uniform(pair[..., 1, :], shape, dtypes.float32)
        count = _f.where(_f.greater(total, -mean), count + 1, count)
        return count, pair[..., 0, :], total + _f.log(u)

    start = _f.zeros(mean.shape), key, _f.zeros(mean.shape)
    return while_loop(running, step, start)[0] - 1


def _transformed(key: Array, mean: Array, shape: Shape) -> Array:
    """Hörmann's algorithm PTRS; the draw of a key ends when all its elements are accepted.

    Until then an accepted element may be drawn again, as in `jax.random`.

    Reference: Hörmann, "The Transformed Rejection Method for Generating Poisson Random Variables",
    1993, section 4.
    """
    axes = tuple(range(len(mean.shape) - len(shape), len(mean.shape)))
    b = 0.931 + 2.53 * _f.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    accepted_below = 0.9277 - 3.6224 / (b - 2)

    def step(carry: Any) -> Any:
        found, done, keys = carry
        three = random.split(keys, 3)
        u = random.uniform(three[..., 1, :], shape, mean.dtype) - 0.5
        v = random.uniform(three[..., 2, :], shape, mean.dtype)
        edge = 0.5 - _f.abs(u)
        k = _f.floor((2 * a / edge + b) * u + mean + 0.43)
        s = _f.log(v * inverse_alpha / (a / (edge * edge) + b))
        t = -mean + k * _f.log(mean) - _f.lgamma(k + 1)
        inside = (edge >= 0.07) & (v <= accepted_below)
        outside = (k < 0) | ((edge < 0.013) & (v > edge))
        ended = _f.all(done, axes, keepdims=True)  # other keys may still be drawing
        accept = (inside | (~outside & (s <= t))) & ~ended
        return _f.where(accept, k, found), done | accept, three[..., 0, :]

    start = _f.full(mean.shape, -1.0), _f.zeros(mean.shape, dtypes.bool_), key
    return while_loop(lambda carry: ~_f.all(carry[1]), step, start)[0]


def poisson(key: Any, lam: Any, shape: Any = None, dtype: DTypeLike = "int64") -> Array:
    """Return integers [..., *shape] with the Poisson distribution of mean `lam`.

    Args:
        key: uint32 [..., 2].
        lam: at least 0; a number, or a floating array. Draws are made in float32.
        shape: of the draw of one key, that `lam` broadcasts to; by default that of `lam`.
        dtype: an integer dtype.
    """
    found = resolve_dtype("poisson", dtype)
    if found not in dtypes.INTEGERS:
        raise DTypeError(f"poisson: draws integers, not {found.name}", "cast the result")
    (mean,) = floating_parameters("poisson", None, lam)
    extents = draw_shape("poisson", shape, mean.shape)
    keys = random.key_operand(key)
    mean = _f.stop_gradient(_f.cast(mean, dtypes.float32))
    mean = _f.broadcast_to(mean, (*keys.shape[:-1], *extents))
    # One that is NaN is counted: no comparison holds, so that its loop ends at once.
    small = ~(mean >= _SMALL)
    counted = _counted(keys, _f.where(small, mean, 0.0), extents)
    drawn = _transformed(keys, _f.where(small, 1e5, mean), extents)
    value = _f.where(small, counted, drawn)
    return _f.cast(_f.where(mean == 0, 0.0, value), found)
