"""Norms over a batch and over groups of channels, of arrays [batch, channels, ..].

Half types compute in float32 and round once. The norms over trailing axes are in
`normalization.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, overload

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand, require_float
from pyeffect_torch.ops.shape import reshape

__all__ = ["batch_norm", "group_norm"]

_f: Any = late.functions


def _channels(name: str, x: Any) -> Array:
    array = operand(name, x)
    require_float(name, array)
    if len(array.shape) < 2:
        raise ShapeError(f"{name}: needs [batch, channels, ..], got {describe(array)}", "add axes")
    return array


def _columns(name: str, x: Array, given: Sequence[tuple[str, Any]]) -> list[Array | None]:
    """Arrays [channels] as [channels, 1, ..], in the dtype that is computed in."""
    found: list[Array | None] = []
    for role, value in given:
        if value is None:
            found.append(None)
            continue
        array = operand(name, value)
        if array.shape != (x.shape[1],):
            raise ShapeError(
                f"{name}: {role} {describe(array)} does not have one value for each of the "
                f"{x.shape[1]} channels of {describe(x)}",
                f"use shape [{x.shape[1]}]",
            )
        if array.dtype not in (x.dtype, dtypes.accumulator(x.dtype)):
            raise mixed_dtypes(name, x, array)
        wide = _f.cast(array, dtypes.accumulator(x.dtype))
        found.append(reshape(wide, (*wide.shape, *(1,) * (len(x.shape) - 2))))
    return found


def _scaled(x: Array, weight: Array | None, bias: Array | None, dtype: Any) -> Array:
    x = x if weight is None else _f.multiply(x, weight)
    return _f.cast(x if bias is None else _f.add(x, bias), dtype)


@overload
def batch_norm(
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    training: Literal[False] = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array: ...


@overload
def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    training: Literal[True],
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Array, Array, Array]: ...


def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array | tuple[Array, Array, Array]:
    """Return `x` normalised for each channel: `(x - mean) / sqrt(variance + eps) * weight + bias`.

    Args:
        x: floating [batch, channels, ..].
        running_mean, running_var: [channels], of the dtype of `x` or, for half types, float32: what
            is normalised by, unless training; then what the new statistics continue (None: those of
            this batch alone are returned).
        weight, bias: [channels], each optional.
        training: normalise by the mean and the (biased) variance of this batch.
        momentum: the share of this batch in the new running statistics; its variance enters them
            unbiased. No gradient goes through them.

    Returns:
        The result; in training `(result, running_mean, running_var)`.

    Raises:
        ShapeError: other than [channels], or one value for each channel in training.
        ArgumentError: no statistics outside of training. DTypeError: not floating, or mixed.
    """
    array = _channels("batch_norm", x)
    roles = ("running_mean", "running_var", "weight", "bias")
    given = (running_mean, running_var, weight, bias)
    columns = _columns("batch_norm", array, tuple(zip(roles, given, strict=True)))
    mean, variance, scale, shift = columns
    wide = _f.cast(array, dtypes.accumulator(array.dtype))
    if not training:
        if mean is None or variance is None:
            raise ArgumentError(
                "batch_norm: needs running_mean and running_var", "pass both, or training=True"
            )
        normal = _f.multiply(_f.subtract(wide, mean), _f.rsqrt(_f.add(variance, eps)))
        return _scaled(normal, scale, shift, array.dtype)
    count = math.prod(array.shape) // max(array.shape[1], 1)
    if count < 2:
        raise ShapeError(
            f"batch_norm: {describe(array)} has {count} values for each channel",
            "training needs two or more: use a larger batch",
        )
    over = (0, *range(2, len(array.shape)))
    own_mean = _f.mean(wide, over, keepdims=True)
    centred = _f.subtract(wide, own_mean)
    own_variance = _f.mean(_f.square(centred), over, keepdims=True)
    normal = _f.multiply(centred, _f.rsqrt(_f.add(own_variance, eps)))
    unbiased = _f.multiply(own_variance, count / (count - 1))
    fresh = (reshape(own_mean, (-1,)), reshape(unbiased, (-1,)))
    mean_now, variance_now = (
        _continued(new, old, momentum) for new, old in zip(fresh, given[:2], strict=True)
    )
    return _scaled(normal, scale, shift, array.dtype), mean_now, variance_now


def _continued(new: Array, old: Any, momentum: float) -> Array:
    new = _f.stop_gradient(new)
    if old is None:
        return new
    before = _f.stop_gradient(operand("batch_norm", old))
    kept = _f.multiply(_f.cast(before, new.dtype), 1.0 - momentum)
    return _f.cast(_f.add(kept, _f.multiply(new, momentum)), before.dtype)


def group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, *, eps: float = 1e-5
) -> Array:
    """Return `x` normalised for each image and group of channels, with the biased variance.

    Args:
        x: floating [batch, channels, ..].
        groups: divides the channels; 1 normalises over the whole image, `channels` each channel.
        weight, bias: [channels], each optional; of the dtype of `x` or, for half types, float32.

    Raises:
        ShapeError: other shapes. ArgumentError: groups that do not divide the channels.
        DTypeError: not floating, or mixed.
    """
    array = _channels("group_norm", x)
    channels = array.shape[1]
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise ArgumentError(
            f"group_norm: {groups!r} groups do not divide the {channels} channels of "
            f"{describe(array)}",
            "use a divisor of the channels",
        )
    scale, shift = _columns("group_norm", array, (("weight", weight), ("bias", bias)))
    wide = _f.cast(array, dtypes.accumulator(array.dtype))
    width = channels // groups * math.prod(array.shape[2:])
    rows = reshape(wide, (array.shape[0], groups, width))
    normal = reshape(_f.layer_norm(rows, eps=eps), array.shape) if width else wide
    return _scaled(normal, scale, shift, array.dtype)
