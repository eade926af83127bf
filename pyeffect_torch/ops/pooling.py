"""Pooling: windows of an image reduced to their maximum or mean, and means under a mask.

All are padding, `window` and a reduction, whose derivatives they inherit: ties of a maximum share
the gradient evenly. Options are PyTorch's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.base import describe, operand, require_float
from pyeffect_torch.ops.pieces import pad_general
from pyeffect_torch.ops.shape import reshape, transpose
from pyeffect_torch.ops.sliding import PerAxis, check_fit, per_axis, with_batch
from pyeffect_torch.ops.windows import window, window_count

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "global_avg_pool",
    "global_max_pool",
    "max_pool1d",
    "max_pool2d",
    "mean_pool",
]

_f: Any = late.functions
_Options: TypeAlias = "tuple[PerAxis | None, PerAxis, PerAxis]"
"""Stride (None: the kernel), padding and dilation."""


@dataclass(frozen=True, slots=True)
class _Windows:
    """Where the windows of a pooling lie: one entry for each spatial axis."""

    kernel: Shape
    strides: Shape
    before: Shape
    behind: Shape
    dilations: Shape

    @property
    def offsets(self) -> Shape:
        """The axes of the windows' offsets."""
        return tuple(range(len(self.kernel)))

    def of(self, x: Array) -> Array:
        """The windows of a padded array [n, c, ..], with their offsets in front.

        Gradients compute with arrays of this shape: it is the long axes that should be innermost.
        """
        count = len(self.kernel)
        windows = window(x, tuple(range(2, 2 + count)), self.kernel, self.strides, self.dilations)
        rank = len(windows.shape)
        return transpose(windows, (*range(rank - count, rank), *range(rank - count)))


def _place(
    name: str, x: Array, count: int, kernel: PerAxis, options: _Options, ceil_mode: bool
) -> _Windows:
    """Check the options of a pooling of `x` [n, c, ..]."""
    stride, padding, dilation = options
    sizes = per_axis(name, "kernel", kernel, count, 1)
    strides = per_axis(name, "stride", kernel if stride is None else stride, count, 1)
    before = per_axis(name, "padding", padding, count, 0)
    dilations = per_axis(name, "dilation", dilation, count, 1)
    reach = [(size - 1) * d + 1 for size, d in zip(sizes, dilations, strict=True)]
    if any(2 * amount > far for amount, far in zip(before, reach, strict=True)):
        raise ArgumentError(
            f"{name}: padding {padding!r} is more than half of the kernel {kernel!r}",
            "windows would lie in the padding alone; use less",
        )
    check_fit(name, x, sizes, strides, tuple((n, n) for n in before), dilations)
    if not ceil_mode:
        return _Windows(sizes, strides, before, before, dilations)
    behind: list[int] = []
    for n, amount, stride_, far in zip(x.shape[2:], before, strides, reach, strict=True):
        room = n + 2 * amount
        next_start = window_count(room, far, stride_, 1) * stride_
        # One window more, if it begins before the padding behind the array.
        more = n > 0 and (room - far) % stride_ > 0 and next_start < n + amount
        behind.append(amount + (next_start + far - room if more else 0))
    return _Windows(sizes, strides, before, tuple(behind), dilations)


def _around(x: Array, fill: Any, before: Shape, behind: Shape) -> Array:
    return pad_general(x, fill, (0, 0, *before), (0, 0, *behind), (0,) * len(x.shape))


def max_pool1d(
    x: Any,
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Array:
    """Return the maximum of each window of `x` [batch, channels, length]; as `max_pool2d`."""
    return _max_pool("max_pool1d", 1, x, kernel, (stride, padding, dilation), ceil_mode)


def max_pool2d(
    x: Any,
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Array:
    """Return the maximum of each window of an image; NaN wins, ties share the gradient evenly.

    Args:
        x: any dtype but bool, [batch, channels, height, width], or without the batch axis.
        kernel: the window, an int or one for each axis (as all options).
        stride: how far windows are apart; None: they lie side by side.
        padding: what is added around the image never wins; at most half the kernel.
        dilation: how far elements of a window are apart.
        ceil_mode: count windows that begin in the image and end behind it.

    Returns:
        [batch, channels, ..] with `(n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1`
        windows along each axis (rounded up with `ceil_mode`).

    Raises:
        ShapeError: another rank, or a kernel larger than the padded image.
        DTypeError: bool. ArgumentError: a bad option.
    """
    return _max_pool("max_pool2d", 2, x, kernel, (stride, padding, dilation), ceil_mode)


def _max_pool(
    name: str, count: int, x: Any, kernel: PerAxis, options: _Options, ceil_mode: bool
) -> Array:
    x = operand(name, x)
    if x.dtype is dtypes.bool_:
        raise DTypeError(f"{name}: has no meaning for {describe(x)}", "cast it to a numeric dtype")
    images, is_single = with_batch(name, x, count)
    place = _place(name, images, count, kernel, options, ceil_mode)
    lowest = -math.inf if dtypes.is_float(x.dtype) else int(np.iinfo(x.dtype).min)
    windows = place.of(_around(images, lowest, place.before, place.behind))
    result = _f.max(windows, place.offsets)
    return reshape(result, result.shape[1:]) if is_single else result


def avg_pool1d(
    x: Any,
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Return the mean of each window of `x` [batch, channels, length]; as `avg_pool2d`."""
    options = (stride, padding, 1)
    return _avg_pool("avg_pool1d", 1, x, kernel, options, ceil_mode, count_include_pad)


def avg_pool2d(
    x: Any,
    kernel: PerAxis,
    *,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """Return the mean of each window of an image.

    float16 and bfloat16 are averaged in float32.

    Args:
        x: floating [batch, channels, height, width], or without the batch axis.
        kernel: the window, an int or one for each axis (as all options).
        stride: how far windows are apart; None: they lie side by side.
        padding: zeros around the image, at most half the kernel.
        ceil_mode: count windows that begin in the image and end behind it; what lies behind the
            padding counts nowhere.
        count_include_pad: whether the zeros of the padding count as elements.

    Returns:
        [batch, channels, ..] with `(n + 2 * padding - kernel) // stride + 1` windows along each
        axis (rounded up with `ceil_mode`).

    Raises:
        ShapeError: another rank, or a kernel larger than the padded image.
        DTypeError: not floating. ArgumentError: a bad option.
    """
    options = (stride, padding, 1)
    return _avg_pool("avg_pool2d", 2, x, kernel, options, ceil_mode, count_include_pad)


def _avg_pool(
    name: str,
    count: int,
    x: Any,
    kernel: PerAxis,
    options: _Options,
    ceil_mode: bool,
    count_include_pad: bool,
) -> Array:
    x = operand(name, x)
    require_float(name, x)
    images, is_single = with_batch(name, x, count)
    place = _place(name, images, count, kernel, options, ceil_mode)
    wide = _f.cast(images, dtypes.accumulator(x.dtype))
    windows = place.of(_around(wide, 0, place.before, place.behind))
    divisor: Any = float(math.prod(place.kernel))
    if place.behind != place.before or (any(place.before) and not count_include_pad):
        divisor = _counts(place, wide, count_include_pad)
    result = _f.cast(_f.divide(_f.sum(windows, place.offsets), divisor), x.dtype)
    return reshape(result, result.shape[1:]) if is_single else result


def _counts(place: _Windows, x: Array, count_include_pad: bool) -> Array:
    """How many elements each window has, [1, 1, ..]: ones are summed as the image is."""
    edge = 1 if count_include_pad else 0
    ones = _around(_f.ones((1, 1, *x.shape[2:]), x.dtype), edge, place.before, place.before)
    extra = tuple(more - n for more, n in zip(place.behind, place.before, strict=True))
    windows = place.of(_around(ones, 0, (0,) * len(extra), extra))
    return _f.sum(windows, place.offsets)


def _spatial(name: str, x: Any) -> tuple[Array, Shape]:
    array = operand(name, x)
    if len(array.shape) < 3:
        raise ShapeError(
            f"{name}: needs [batch, channels, ..], got {describe(array)}",
            "use rank 3 or more; for other axes there are et.max and et.mean",
        )
    return array, tuple(range(2, len(array.shape)))


def global_max_pool(x: Any, *, keepdims: bool = False) -> Array:
    """Return the maximum over all but the first two axes of `x` [batch, channels, ..].

    Raises:
        ShapeError: fewer than three axes, or nothing to choose from.
    """
    array, axes = _spatial("global_max_pool", x)
    return _f.max(array, axes, keepdims=keepdims)


def global_avg_pool(x: Any, *, keepdims: bool = False) -> Array:
    """Return the mean over all but the first two axes of `x` [batch, channels, ..].

    Raises:
        ShapeError: fewer than three axes.
    """
    array, axes = _spatial("global_avg_pool", x)
    return _f.mean(array, axes, keepdims=keepdims)


def mean_pool(x: Any, mask: Any) -> Array:
    """Return the mean of the rows of each sequence that a mask keeps; 0 where it keeps none.

    What lies in other rows does not matter, not even NaN.

    Args:
        x: floating [batch, length, ..]; half types are averaged in float32.
        mask: bool [batch, length].

    Raises:
        ShapeError: the mask has another shape than the first two axes of `x`.
        DTypeError: `x` is not floating, or the mask not bool.
    """
    array, kept = operand("mean_pool", x), operand("mean_pool", mask)
    require_float("mean_pool", array)
    if kept.dtype is not dtypes.bool_:
        raise DTypeError(
            f"mean_pool: the mask must be bool, got {describe(kept)}", "compare it, as mask != 0"
        )
    if len(array.shape) < 2 or kept.shape != array.shape[:2]:
        raise ShapeError(
            f"mean_pool: the mask {describe(kept)} does not fit {describe(array)}",
            "the mask has the shape of the first two axes of x",
        )
    wide = _f.cast(array, dtypes.accumulator(array.dtype))
    rest = (1,) * (len(array.shape) - 2)
    total = _f.sum(_f.where(reshape(kept, (*kept.shape, *rest)), wide, 0), 1)
    count = _f.maximum(_f.sum(_f.cast(kept, wide.dtype), 1), 1)
    mean = _f.divide(total, reshape(count, (kept.shape[0], *rest)))
    return _f.cast(mean, array.dtype)
