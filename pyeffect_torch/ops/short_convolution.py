"""`short_conv1d`: the causal depthwise convolution in front of linear attention."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.core.op import MaybeArray
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand, require_float
from pyeffect_torch.ops.pieces import pad_general, slice_
from pyeffect_torch.ops.shape import broadcast_to, reshape

__all__ = ["short_conv1d"]

_f: Any = late.functions


def short_conv1d(x: Any, w: Any, history: Any = None) -> Array:
    """Return a causal convolution of each channel: `y[t] = sum over j of w[j] * x[t - K + 1 + j]`.

    Channels are the last axis, so nothing is turned. Each element of the kernel is one
    multiplication of the whole array. float16 and bfloat16 accumulate in float32 and round once.

    Args:
        x: floating [.., length, channels].
        w: [channels, K].
        history: the K - 1 elements before the first, [.., K - 1, channels], to go on with a
            sequence: the last K - 1 rows of what came before; None: zeros.

    Returns:
        [.., length, channels].

    Raises:
        ShapeError: channels that differ, or a history of another shape.
        DTypeError: other than one floating dtype.
    """
    x, w = operand("short_conv1d", x), operand("short_conv1d", w)
    require_float("short_conv1d", x)
    if w.dtype is not x.dtype:
        raise mixed_dtypes("short_conv1d", x, w)
    if len(x.shape) < 2 or len(w.shape) != 2 or w.shape[0] != x.shape[-1] or not w.shape[1]:
        raise ShapeError(
            f"short_conv1d: weights {describe(w)} do not fit {describe(x)}",
            "x is [.., length, channels], the weights are [channels, K]",
        )
    size, rank = w.shape[1], len(x.shape)
    none = (0,) * rank
    whole = pad_general(x, 0, (*none[:-2], size - 1, 0), none, none)
    if history is not None:
        whole = _f.concatenate([_checked(x, history, size), x], rank - 2)
    total: MaybeArray = None
    for j in range(size):
        starts = (*none[:-2], j, 0)
        part = _wide(slice_(whole, starts, x.shape, (1,) * rank))
        scale = _wide(reshape(slice_(w, (0, j), (w.shape[0], 1), (1, 1)), (w.shape[0],)))
        term = _f.multiply(part, scale)
        total = term if total is None else _f.add(total, term)
    assert total is not None
    return _f.cast(total, x.dtype)


def _wide(x: Array) -> Array:
    return _f.cast(x, dtypes.accumulator(x.dtype))


def _checked(x: Array, history: Any, size: int) -> Array:
    before = operand("short_conv1d", history)
    if before.dtype is not x.dtype:
        raise mixed_dtypes("short_conv1d", x, before)
    wanted = (*x.shape[:-2], size - 1, x.shape[-1])
    if before.shape != wanted:
        raise ShapeError(
            f"short_conv1d: the history {describe(before)} of {describe(x)} must have shape "
            f"{list(wanted)}",
            "keep the last K - 1 rows of what came before",
        )
    return broadcast_to(before, wanted)
