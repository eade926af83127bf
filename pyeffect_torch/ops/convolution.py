"""Convolutions: the op `convolution`, and the functions over it that users call.

The op is a composite of any number of spatial axes (`convolution_body.py`): padding, windows, one
matrix product. Its gradients are convolutions again, so that every order is as fast as the first.
Options and layouts are PyTorch's: x [batch, channels, ..], w [out, channels / groups, ..].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.core.op import Composite, Domain, MaybeArray, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand, require_float
from pyeffect_torch.ops.convolution_body import (
    convolution_body,
    input_gradient,
    output_shape,
    weight_gradient,
)
from pyeffect_torch.ops.convolution_reference import convolution_reference, roundings, samples
from pyeffect_torch.ops.parameters import ConvolutionParams
from pyeffect_torch.ops.shape import broadcast_to, moveaxis, reshape
from pyeffect_torch.ops.sliding import (
    Padding,
    PerAxis,
    check_fit,
    padding_pairs,
    per_axis,
    with_batch,
)

__all__ = ["conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"]

_f: Any = late.functions

# --- the op


def _infer(inputs: tuple[Array, ...], params: ConvolutionParams) -> Any:
    x, w = inputs
    _check_types("convolution", x, w)
    rank = 2 + len(params.strides)
    if len(x.shape) != rank or len(w.shape) != rank or x.shape[1] != w.shape[1] * params.groups:
        raise ShapeError(
            f"convolution: weights {describe(w)} in {params.groups} groups do not fit "
            f"{describe(x)}",
            "x is [batch, channels, ..], the weights are [out, channels / groups, ..]",
        )
    return (x.shape[0], w.shape[0], *output_shape(x.shape, w.shape, params)), x.dtype


def _check_types(name: str, x: Array, w: Array) -> None:
    require_float(name, x)
    if w.dtype is not x.dtype:
        raise mixed_dtypes(name, x, w)


def _vjp(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    x, w = node.inputs
    ct = cts[0]
    assert ct is not None
    found: list[MaybeArray] = [None, None]
    if need[0]:
        params, turned = input_gradient(node.params, x.shape, w, ct)
        found[0] = bind(CONVOLUTION, (ct, turned), params)
    if need[1]:
        found[1] = weight_gradient(node.params, x, w.shape, ct)
    return found


def _batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    """Rows of x alone are more images; rows of weights are groups, with rows of x as channels."""
    x, w = inputs
    params: ConvolutionParams = node.params
    rest = node.shape[1:]
    if not batched[1]:
        merged = reshape(x, (size * x.shape[1], *x.shape[2:]))
        return reshape(bind(CONVOLUTION, (merged, w), params), (size, x.shape[1], *rest))
    if size == 0:  # no groups
        return _f.zeros((size, *node.shape), node.dtype)
    stacked = reshape(w, (size * w.shape[1], *w.shape[2:]))
    if batched[0] or params.groups > 1:
        x = x if batched[0] else broadcast_to(x, (size, *x.shape))
        channels = size * x.shape[2]
        x = reshape(moveaxis(x, 0, 1), (x.shape[1], channels, *x.shape[3:]))
        params = params._replace(groups=size * params.groups)
    result = bind(CONVOLUTION, (x, stacked), params)
    return moveaxis(reshape(result, (x.shape[0], size, *rest)), 1, 0)


CONVOLUTION: Final = declare(
    "convolution",
    infer=_infer,
    derivative=Composite(convolution_body, _vjp),
    batch=_batch,
    reference=convolution_reference,
    domain=Domain(domains.FLOATING, samples, roundings),
    attributes=lambda node: node.params._asdict(),
)


# --- the functions that users call


def conv1d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Array:
    """Return the cross-correlation of sequences with a kernel; as `conv2d`, with one axis.

    Args:
        x: floating [batch, channels, length], or [channels, length].
        w: [out, channels / groups, kernel]. b: [out], or None.
    """
    return _convolve("conv1d", 1, (x, w, b), stride, padding, dilation, groups)


def conv2d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Array:
    """Return the cross-correlation of images with a kernel, plus a bias for each output channel.

    float16 and bfloat16 accumulate in float32 and round once.

    Args:
        x: floating [batch, channels, height, width], or one image without the batch axis.
        w: [out, channels / groups, kernel height, kernel width], of the dtype of `x`.
        b: [out], or None.
        stride: how far windows are apart: an int, or one for each axis (as all options).
        padding: zeros around the image: an int, one for each axis, a pair (before, after) for each
            axis, "valid" (none) or "same" (as many outputs as inputs; stride 1 only, and with an
            even kernel one more zero after than before).
        dilation: how far elements of the kernel are apart.
        groups: input and output channels are divided into so many independent groups.

    Returns:
        [batch, out, ..] with `(n + before + after - dilation * (kernel - 1) - 1) // stride + 1`
        outputs along each axis.

    Raises:
        ShapeError: channels, groups or ranks do not fit, or the kernel is larger than the padded
            image. DTypeError: other than one floating dtype. ArgumentError: a bad option.
    """
    return _convolve("conv2d", 2, (x, w, b), stride, padding, dilation, groups)


def _convolve(
    name: str,
    count: int,
    arrays: tuple[Any, Any, Any],
    stride: PerAxis,
    padding: Padding,
    dilation: PerAxis,
    groups: int,
) -> Array:
    strides = per_axis(name, "stride", stride, count, 1)
    dilations = per_axis(name, "dilation", dilation, count, 1)
    (groups,) = per_axis(name, "groups", groups, 1, 1)
    x, w = _operands(name, count, arrays[0], arrays[1])
    images, is_single = with_batch(name, x, count)
    channels, outputs = images.shape[1], w.shape[0]
    if channels != w.shape[1] * groups or outputs % groups:
        raise ShapeError(
            f"{name}: weights {describe(w)} in {groups} groups do not fit the {channels} channels "
            f"of {describe(x)}",
            "weights are [out, channels / groups, ..], and groups divide both",
        )
    kernel = w.shape[2:]
    reach = [(size - 1) * d for size, d in zip(kernel, dilations, strict=True)]
    if isinstance(padding, str) and padding not in ("same", "valid"):
        raise ArgumentError(
            f"{name}: padding must be numbers or a word, got {padding!r}",
            'use "same" or "valid", or an int, or one for each spatial axis',
        )
    if padding == "same":
        if max(strides) > 1:
            raise ArgumentError(
                f"{name}: padding 'same' with stride {stride!r}", "use stride 1, or give numbers"
            )
        pairs = tuple((far // 2, far - far // 2) for far in reach)
    else:
        pairs = padding_pairs(name, 0 if padding == "valid" else padding, count)
    check_fit(name, images, kernel, strides, pairs, dilations)
    low, high = (tuple(pair[k] for pair in pairs) for k in (0, 1))
    params = ConvolutionParams(strides, low, high, (0,) * count, dilations, groups)
    result = bind(CONVOLUTION, (images, w), params)
    return _finish(name, result, arrays[2], is_single)


def _operands(name: str, count: int, x: Any, w: Any) -> tuple[Array, Array]:
    x, w = operand(name, x), operand(name, w)
    _check_types(name, x, w)
    if len(w.shape) != 2 + count or 0 in w.shape[2:]:
        raise ShapeError(
            f"{name}: weights {describe(w)} have no kernel of {count} axes",
            f"weights have {2 + count} axes, the last {count} of extent 1 or more",
        )
    return x, w


def _finish(name: str, result: Array, b: Any, is_single: bool) -> Array:
    if b is not None:
        bias = operand(name, b)
        if bias.shape != (result.shape[1],):
            raise ShapeError(
                f"{name}: the bias {describe(bias)} must have shape [{result.shape[1]}]",
                "give one value for each output channel",
            )
        result = _f.add(result, reshape(bias, (*bias.shape, *(1,) * (len(result.shape) - 2))))
    return reshape(result, result.shape[1:]) if is_single else result


def conv_transpose1d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Array:
    """Return the transpose of `conv1d`; as `conv_transpose2d`, with one axis.

    Args:
        x: floating [batch, channels, length], or [channels, length].
        w: [channels, out / groups, kernel]. b: [out], or None.
    """
    options = (stride, padding, output_padding, dilation)
    return _convolve_transposed("conv_transpose1d", 1, (x, w, b), options, groups)


def conv_transpose2d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Array:
    """Return the transpose of `conv2d`: each input adds a multiple of the kernel to the result.

    Args:
        x: floating [batch, channels, height, width], or one image without the batch axis.
        w: [channels, out / groups, kernel height, kernel width], of the dtype of `x`.
        b: [out], or None.
        stride, dilation, groups: those of the convolution that it is the transpose of.
        padding: that of the convolution: so many rows are taken away on each side.
        output_padding: rows added behind, to tell apart the inputs that a stride makes equal; less
            than the stride or the dilation. They are real outputs: what the kernel reaches.

    Returns:
        [batch, out, ..] with `(n - 1) * stride - 2 * padding + dilation * (kernel - 1)
        + output_padding + 1` outputs along each axis.

    Raises:
        ShapeError: channels, groups or ranks do not fit, or nothing is left of the result.
        DTypeError: other than one floating dtype. ArgumentError: a bad option.
    """
    options = (stride, padding, output_padding, dilation)
    return _convolve_transposed("conv_transpose2d", 2, (x, w, b), options, groups)


def _convolve_transposed(
    name: str,
    count: int,
    arrays: tuple[Any, Any, Any],
    options: tuple[PerAxis, PerAxis, PerAxis, PerAxis],
    groups: int,
) -> Array:
    strides = per_axis(name, "stride", options[0], count, 1)
    amounts = per_axis(name, "padding", options[1], count, 0)
    behind = per_axis(name, "output_padding", options[2], count, 0)
    dilations = per_axis(name, "dilation", options[3], count, 1)
    (groups,) = per_axis(name, "groups", groups, 1, 1)
    for more, stride, dilation in zip(behind, strides, dilations, strict=True):
        if more >= max(stride, dilation):
            raise ArgumentError(
                f"{name}: output_padding {options[2]!r} with stride {stride} and dilation "
                f"{dilation}",
                "use less than the stride or the dilation",
            )
    x, w = _operands(name, count, arrays[0], arrays[1])
    images, is_single = with_batch(name, x, count)
    if images.shape[1] != w.shape[0] or w.shape[0] % groups:
        raise ShapeError(
            f"{name}: weights {describe(w)} in {groups} groups do not fit the {images.shape[1]} "
            f"channels of {describe(x)}",
            "weights are [channels, out / groups, ..], and groups divide the channels",
        )
    low: list[int] = []
    high: list[int] = []
    lists = (images.shape[2:], w.shape[2:], strides, amounts, behind, dilations)
    for axis, (n, size, stride, amount, more, dilation) in enumerate(zip(*lists, strict=True)):
        reach = (size - 1) * dilation
        extent = (n - 1) * stride - 2 * amount + reach + more + 1
        if n and extent < 1:
            raise ShapeError(
                f"{name}: axis {axis + 2} of {describe(images)} gives ({n} - 1) * {stride} - 2 * "
                f"{amount} + {dilation} * ({size} - 1) + {more} + 1 = {extent} outputs",
                "use less padding",
            )
        low.append(reach - amount)
        # Where there is no input, there is no first element that the formula counts apart.
        high.append(reach - amount + more + (0 if n else 1 - stride))
    rest = w.shape[1:]
    grouped = reshape(w, (groups, w.shape[0] // groups, *rest))
    turned = _f.flip(_f.swapaxes(grouped, 1, 2), tuple(range(3, 3 + count)))
    weights = reshape(turned, (groups * rest[0], w.shape[0] // groups, *rest[1:]))
    interior = tuple(stride - 1 for stride in strides)
    params = ConvolutionParams((1,) * count, tuple(low), tuple(high), interior, dilations, groups)
    return _finish(name, bind(CONVOLUTION, (images, weights), params), arrays[2], is_single)
