"""Images and sequences made larger (or smaller): nearest neighbours and linear interpolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.core.op import MaybeArray
from pyeffect_torch.ops.base import describe, operand, require_float
from pyeffect_torch.ops.pieces import concatenate, pad_general
from pyeffect_torch.ops.shape import broadcast_to, reshape
from pyeffect_torch.ops.shape_extra import slice_axis
from pyeffect_torch.ops.sliding import PerAxis, per_axis

__all__ = ["upsample"]

_f: Any = late.functions
_MODES = ("nearest", "linear", "bilinear")


def upsample(
    x: Any,
    scale: float | Sequence[float] | None = None,
    *,
    size: PerAxis | None = None,
    mode: Literal["nearest", "linear", "bilinear"] = "nearest",
    align_corners: bool = False,
) -> Array:
    """Return `x` with other extents of its spatial axes, its values repeated or interpolated.

    As PyTorch's `interpolate`: a pixel is a square, and its value lies in its middle.

    Args:
        x: [batch, channels, ..] with one or two spatial axes for "linear" and "bilinear" (floating;
            half types compute in float32), any number and dtype for "nearest".
        scale: a factor, or one for each spatial axis; extents are rounded down.
        size: the new extents instead.
        mode: "linear" is the name with one axis, "bilinear" with two.
        align_corners: the first and the last value keep their places at the border, instead of the
            border of the pixels; not for "nearest".

    Raises:
        ShapeError: another rank, or an axis without elements that is to have some.
        ArgumentError: not exactly one of `scale` and `size`, or a bad option.
    """
    x = operand("upsample", x)
    count = len(x.shape) - 2
    if count < 1:
        raise ShapeError(
            f"upsample: needs [batch, channels, ..], got {describe(x)}", "use rank 3 or more"
        )
    _check_mode(x, mode, align_corners)
    if (scale is None) == (size is None):
        raise ArgumentError("upsample: give scale or size", "pass exactly one of them")
    if size is not None:
        extents = per_axis("upsample", "size", size, count, 0)
        factors: Sequence[float | None] = (None,) * count
    else:
        factors = _factors(scale, count)
        extents = tuple(
            math.floor(n * factor) for n, factor in zip(x.shape[2:], factors, strict=True)
        )
    dtype = x.dtype
    if mode != "nearest":
        x = _f.cast(x, dtypes.accumulator(dtype))
    for axis, (extent, factor) in enumerate(zip(extents, factors, strict=True), 2):
        n = x.shape[axis]
        if n == 0 and extent:
            raise ShapeError(
                f"upsample: axis {axis} of {describe(x)} has no value for {extent} elements",
                "use an array with elements",
            )
        ratio = 1.0 / factor if factor else n / max(extent, 1)
        if mode == "nearest":
            x = _nearest(x, axis, extent, ratio, exact=factor is None)
        elif n and extent % n == 0 and ratio * extent == n and not align_corners:
            x = _linear_by_phases(x, axis, extent // n)
        elif extent != n:
            x = _linear(x, axis, extent, ratio, align_corners)
    return _f.cast(x, dtype)


def _check_mode(x: Array, mode: str, align_corners: bool) -> None:
    if mode not in _MODES:
        raise ArgumentError(f"upsample: unknown mode {mode!r}", f"use one of {', '.join(_MODES)}")
    if mode == "nearest":
        if align_corners:
            raise ArgumentError("upsample: 'nearest' has no corners to align", "leave it out")
        return
    require_float("upsample", x)
    axes = 1 if mode == "linear" else 2
    if len(x.shape) != axes + 2:
        raise ShapeError(
            f"upsample: {mode!r} needs rank {axes + 2}, got {describe(x)}",
            "'linear' takes one spatial axis, 'bilinear' two",
        )


def _factors(scale: Any, count: int) -> tuple[float, ...]:
    given = tuple(scale) if isinstance(scale, (tuple, list)) else (scale,) * count
    if len(given) != count or not all(isinstance(f, (int, float)) and f > 0 for f in given):
        raise ArgumentError(
            f"upsample: scale must be a factor above 0 or {count} of them, got {scale!r}",
            "pass one number, or one for each spatial axis",
        )
    return given


def _nearest(x: Array, axis: int, extent: int, ratio: float, *, exact: bool) -> Array:
    n = x.shape[axis]
    if n and extent % n == 0 and (exact or ratio * extent == n):
        lead, rest = x.shape[:axis], x.shape[axis + 1 :]
        column = reshape(x, (*lead, n, 1, *rest))
        return reshape(broadcast_to(column, (*lead, n, extent // n, *rest)), (*lead, extent, *rest))
    places = np.arange(extent)
    found = places * n // max(extent, 1) if exact else np.floor(places * ratio).astype(np.int64)
    return _f.take(x, np.minimum(found, n - 1), axis)


def _linear_by_phases(x: Array, axis: int, factor: int) -> Array:
    """By a whole factor: the new elements at i * factor + r are one mean of two neighbours each.

    Shifted copies and zeros between elements instead of indices: so is the gradient.
    """
    if factor == 1:
        return x
    n = x.shape[axis]
    edges = slice_axis(x, axis, 0, 1), slice_axis(x, axis, n - 1, 1)
    around = concatenate([edges[0], x, edges[1]], axis)
    total: MaybeArray = None
    for phase in range(factor):
        place = (phase + 0.5) / factor + 0.5  # among the elements of `around`, at i = 0
        first = math.floor(place)
        near = _f.multiply(slice_axis(around, axis, first, n), 1.0 - (place - first))
        far = _f.multiply(slice_axis(around, axis, first + 1, n), place - first)
        zeros = [
            tuple(amount if k == axis else 0 for k in range(len(x.shape)))
            for amount in (phase, factor - 1 - phase, factor - 1)
        ]
        part = pad_general(_f.add(near, far), 0, *zeros)
        total = part if total is None else _f.add(total, part)
    assert total is not None
    return total


def _linear(x: Array, axis: int, extent: int, ratio: float, align_corners: bool) -> Array:
    n = x.shape[axis]
    places = np.arange(extent, dtype=np.float64)
    if align_corners:
        places = places * ((n - 1) / max(extent - 1, 1))
    else:
        places = np.maximum((places + 0.5) * ratio - 0.5, 0.0)
    first = np.minimum(np.floor(places).astype(np.int64), n - 1)
    share = np.minimum(places - first, 1.0).astype(x.dtype)
    share = share.reshape((extent, *(1,) * (len(x.shape) - axis - 1)))
    near = _f.multiply(_f.take(x, first, axis), 1 - share)
    return _f.add(near, _f.multiply(_f.take(x, np.minimum(first + 1, n - 1), axis), share))
