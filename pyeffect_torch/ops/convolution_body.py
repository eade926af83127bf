"""What a convolution is made of, and its two gradients: the rules of the op `convolution`.

Three forms of the same sum. *Windows*: the padded input as windows, times the weights, one matrix
product. *Spread*: where the input would be spread by zeros (a transposed convolution, and the
gradient of a strided one), the product first and `window_sum` after it, which multiplies no zeros.
*Taps*: of a depthwise convolution, one multiplication for each element of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.op import MaybeArray, Shape
from pyeffect_torch.ops.contraction import dot_general
from pyeffect_torch.ops.normalization import widen
from pyeffect_torch.ops.parameters import ConvolutionParams, DotParams, WindowParams
from pyeffect_torch.ops.pieces import pad_general, slice_
from pyeffect_torch.ops.shape import broadcast_to, reshape, transpose
from pyeffect_torch.ops.windows import window, window_count, window_sum

_f: Any = late.functions

PLANE_MIN: Final = 512
"""Outputs of one image from which each image is a product of its own, which comes out in the order
of the result; smaller ones are one product, put in order afterwards (measured: 28x28 is even)."""
TAPS_MAX: Final = 32
"""Elements of a depthwise kernel up to which each is a multiplication."""
PER_CHANNEL_MAX: Final = 2
"""Outputs of a depthwise channel up to which a matrix product would be mostly idle."""


def spread_extent(extent: int, interior: int) -> int:
    """Return the extent of an axis with `interior` zeros between its elements."""
    return extent + max(extent - 1, 0) * interior


def output_shape(x: Shape, w: Shape, params: ConvolutionParams) -> Shape:
    """Return the spatial extents of the result."""
    return tuple(
        window_count(spread_extent(n, gap) + low + high, size, stride, dilation)
        for n, size, stride, low, high, gap, dilation in zip(x[2:], w[2:], *params[:5], strict=True)
    )


def padded(x: Array, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Array:
    """Return `x` [n, c, ..] with zeros between and around its elements; negative amounts crop."""
    x = pad_general(
        x,
        0,
        (0, 0, *(max(amount, 0) for amount in low)),
        (0, 0, *(max(amount, 0) for amount in high)),
        (0, 0, *interior),
    )
    starts, sizes = [0, 0], list(x.shape[:2])
    for extent, before, after in zip(x.shape[2:], low, high, strict=True):
        start = min(max(-before, 0), extent)
        starts.append(start)
        sizes.append(max(extent - start - max(-after, 0), 0))
    return slice_(x, starts, sizes, (1,) * len(sizes))


def is_depthwise(x: Shape, w: Shape, groups: int) -> bool:
    """Whether taps are the better form."""
    if w[1] != 1 or x[1] != groups or groups < 2:
        return False
    return w[0] <= PER_CHANNEL_MAX * groups and 0 < math.prod(w[2:]) <= TAPS_MAX


def is_spread(x: Shape, params: ConvolutionParams) -> bool:
    """Whether the input would be mostly zeros."""
    return any(params.interior) and max(params.strides) == 1 and 0 not in x[2:]


def convolution_body(params: ConvolutionParams, x: Array, w: Array) -> Array:
    """Return the convolution of `x` [n, c, ..] with `w` [out, c / groups, ..]."""
    if is_depthwise(x.shape, w.shape, params.groups):
        return _by_taps(params, x, w)
    if is_spread(x.shape, params):
        return _by_spread(params, x, w)
    spatial = len(params.strides)
    windows = _windows(padded(x, params.low, params.high, params.interior), w.shape[2:], params)
    plane = windows.shape[2 : 2 + spatial]
    alone = math.prod(plane) >= PLANE_MIN
    if params.groups == 1 and x.shape[0] == 1:
        return reshape(_dot(w, windows, (), (1, *_last(windows, spatial))), (1, w.shape[0], *plane))
    if params.groups == 1 and not alone:
        product = _dot(w, windows, (), (1, *_last(windows, spatial)))  # [out, n, ..]
        return transpose(product, (1, 0, *range(2, 2 + spatial)))
    grouped_w, grouped = _grouped(w, 0, params.groups), _grouped(windows, 1, params.groups)
    contract = (2, *_last(grouped, spatial))
    if alone:
        every = broadcast_to(grouped_w, (x.shape[0], *grouped_w.shape))
        product = _dot(every, grouped, (0, 1), contract)  # [n, groups, out / groups, ..]
    else:
        product = _dot(grouped_w, grouped, (1,), contract)  # [groups, out / groups, n, ..]
        product = transpose(product, (2, 0, 1, *range(3, 3 + spatial)))
    return reshape(product, (x.shape[0], w.shape[0], *plane))


def _windows(x: Array, kernel: Shape, params: ConvolutionParams) -> Array:
    """[n, c, windows.., kernel..]."""
    axes = range(2, 2 + len(kernel))
    return window(x, tuple(axes), kernel, params.strides, params.dilations)


def _last(x: Array, count: int) -> tuple[int, ...]:
    rank = len(x.shape)
    return tuple(range(rank - count, rank))


def _grouped(x: Array, axis: int, groups: int) -> Array:
    """Split an axis of channels into groups and channels of a group."""
    shape = x.shape
    channels = (groups, shape[axis] // groups)
    return reshape(x, (*shape[:axis], *channels, *shape[axis + 1 :]))


def _dot(w: Array, x: Array, batch: tuple[int, ...], contract: tuple[int, ...]) -> Array:
    """Contract all of `w` but its output axis, the first behind as many batch axes, with `x`."""
    first = len(batch)
    mine = tuple(range(first + 1, len(w.shape)))
    return dot_general(w, x, DotParams(mine, contract, tuple(range(first)), batch))


def _by_taps(params: ConvolutionParams, x: Array, w: Array) -> Array:
    n, channels = x.shape[:2]
    outputs = output_shape(x.shape, w.shape, params)
    per_channel = w.shape[0] // channels
    x = padded(x, params.low, params.high, params.interior)
    x = reshape(x, (n, channels, 1, *x.shape[2:]))
    total: MaybeArray = None
    for place in _places(w.shape[2:]):
        scale = reshape(_tap(w, place), (channels, per_channel, *(1,) * len(place)))
        term = _f.multiply(widen(scale), widen(_shifted(x, place, outputs, params)))
        total = term if total is None else _f.add(total, term)
    assert total is not None
    return reshape(_f.cast(total, w.dtype), (n, w.shape[0], *outputs))


def _places(kernel: Shape) -> list[Shape]:
    places: list[Shape] = [()]
    for size in kernel:
        places = [(*place, k) for place in places for k in range(size)]
    return places


def _tap(w: Array, place: Shape) -> Array:
    """The element at `place` of each kernel of a depthwise convolution."""
    return slice_(w, (0, 0, *place), (w.shape[0], 1, *(1,) * len(place)), (1,) * len(w.shape))


def _shifted(x: Array, place: Shape, outputs: Shape, params: ConvolutionParams) -> Array:
    """What this element of the kernel meets, of `x` [n, channels, 1, ..], padded."""
    starts = tuple(k * dilation for k, dilation in zip(place, params.dilations, strict=True))
    steps = tuple(s if n > 1 else 1 for s, n in zip(params.strides, outputs, strict=True))
    starts = starts if 0 not in outputs else (0,) * len(starts)
    return slice_(x, (0, 0, 0, *starts), (*x.shape[:3], *outputs), (1, 1, 1, *steps))


def _by_spread(params: ConvolutionParams, x: Array, w: Array) -> Array:
    spatial = len(params.strides)
    kernel = tuple(range(2, 2 + spatial))
    grouped_w = _grouped(_f.flip(w, kernel), 0, params.groups)
    grouped = _grouped(x, 1, params.groups)
    rank = 3 + spatial
    # [groups, out / groups, kernel.., n, ..]; half types are summed before they are rounded
    product = dot_general(widen(grouped_w), widen(grouped), DotParams((2,), (2,), (0,), (1,)))
    order = (rank - 1, 0, 1, *range(rank, rank + spatial), *range(2, 2 + spatial))
    windows = reshape(
        transpose(product, order), (x.shape[0], w.shape[0], *x.shape[2:], *w.shape[2:])
    )
    steps = tuple(gap + 1 for gap in params.interior)
    reach = [(size - 1) * d for size, d in zip(w.shape[2:], params.dilations, strict=True)]
    extents = tuple(
        (n - 1) * step + far + 1 for n, step, far in zip(x.shape[2:], steps, reach, strict=True)
    )
    lists = WindowParams(kernel, w.shape[2:], steps, params.dilations)
    total = window_sum(windows, lists, (*windows.shape[:2], *extents))
    low = [amount - far for amount, far in zip(params.low, reach, strict=True)]
    high = [amount - far for amount, far in zip(params.high, reach, strict=True)]
    return _f.cast(padded(total, low, high, (0,) * spatial), x.dtype)


# --- gradients


def input_gradient(
    params: ConvolutionParams, x: Shape, w: Array, ct: Array
) -> tuple[ConvolutionParams, Array]:
    """Return the convolution of `ct` that is the gradient in x: its params and its weights."""
    spatial = range(len(params.strides))
    groups = params.groups
    low: list[int] = []
    high: list[int] = []
    for k in spatial:
        reach = (w.shape[2 + k] - 1) * params.dilations[k]
        whole = max(x[2 + k] - 1, 0) * (params.interior[k] + 1) + reach + 1
        low.append(reach - params.low[k])
        high.append(whole - low[k] - spread_extent(ct.shape[2 + k], params.strides[k] - 1))
    flipped = _grouped(_f.flip(w, tuple(2 + k for k in spatial)), 0, groups)
    turned = _f.swapaxes(flipped, 1, 2)
    return (
        ConvolutionParams(
            tuple(gap + 1 for gap in params.interior),
            tuple(low),
            tuple(high),
            tuple(stride - 1 for stride in params.strides),
            params.dilations,
            groups,
        ),
        reshape(turned, (groups * w.shape[1], w.shape[0] // groups, *w.shape[2:])),
    )


def weight_gradient(params: ConvolutionParams, x: Array, w: Shape, ct: Array) -> Array:
    """Return the gradient in the weights, of shape `w`."""
    if is_depthwise(x.shape, w, params.groups):
        return _gradient_by_taps(params, x, w, ct)
    spatial = len(params.strides)
    kernel = w[2:]
    if is_spread(x.shape, params):
        reach = [(size - 1) * d for size, d in zip(kernel, params.dilations, strict=True)]
        low = [far - amount for amount, far in zip(params.low, reach, strict=True)]
        high = [far - amount for amount, far in zip(params.high, reach, strict=True)]
        steps = tuple(gap + 1 for gap in params.interior)
        around = padded(ct, low, high, (0,) * spatial)
        windows = _windows(around, kernel, params._replace(strides=steps))
        # [groups, out / groups, kernel.., c / groups]
        product = _over_images(windows, x, params.groups, spatial)
        order = (0, 1, 2 + spatial, *range(2, 2 + spatial))
        flipped = reshape(transpose(product, order), w)
        return _f.flip(flipped, tuple(range(2, 2 + spatial)))
    windows = _windows(padded(x, params.low, params.high, params.interior), kernel, params)
    return reshape(_over_images(ct, windows, params.groups, spatial), w)


def _over_images(a: Array, b: Array, groups: int, spatial: int) -> Array:
    """Contract images and positions of two [n, channels, positions.., rest..], group by group."""
    shared = (0, *range(3, 3 + spatial))
    params = DotParams(shared, shared, (1,), (1,))
    return dot_general(_grouped(a, 1, groups), _grouped(b, 1, groups), params)


def _gradient_by_taps(params: ConvolutionParams, x: Array, w: Shape, ct: Array) -> Array:
    n, channels = x.shape[:2]
    x = padded(x, params.low, params.high, params.interior)
    x = reshape(x, (n, channels, 1, *x.shape[2:]))
    outputs = ct.shape[2:]
    cts = widen(reshape(ct, (n, channels, w[0] // channels, *outputs)))
    over = tuple(range(3, 3 + len(outputs)))
    terms: list[Array] = []
    for place in _places(w[2:]):
        product = _f.multiply(cts, widen(_shifted(x, place, outputs, params)))
        terms.append(_f.sum(_f.sum(product, over), 0))
    assert dtypes.is_float(ct.dtype)
    return _f.cast(reshape(_f.stack(terms, -1), w), ct.dtype)
