"""Softmax and norms as composite ops: a body of ordinary ops and a cheaper hand-written backward.

float16 and bfloat16 compute in float32 and round once at the end, in the body and in the kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.core.op import (
    Composite,
    Domain,
    MaybeArray,
    Op,
    Sample,
    Shape,
    declare,
)
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import (
    describe,
    mixed_dtypes,
    normalize_axis,
    operand,
    require_float,
)
from pyeffect_torch.ops.options import require_number
from pyeffect_torch.ops.shape import broadcast_to, reshape

__all__ = ["layer_norm", "log_softmax", "rms_norm", "softmax"]

_f: Any = late.functions


def widen(x: Array) -> Array:
    """Return a half array as float32, others as they are."""
    return _f.cast(x, dtypes.accumulator(x.dtype))


# --- softmax and log_softmax


def _infer_axis(name: str) -> Any:
    def infer(inputs: tuple[Array, ...], params: int) -> Any:
        del params
        require_float(name, inputs[0])
        return inputs[0].shape, inputs[0].dtype

    return infer


def _shifted(x: Array, axis: int) -> Array:
    """Subtract the maximum, which cancels: no derivative goes through it."""
    return _f.subtract(x, _f.stop_gradient(_f.max(x, axis, keepdims=True)))


def _softmax_body(params: int, x: Array) -> Array:
    if 0 in x.shape:
        return x
    powers = _f.exp(_shifted(widen(x), params))
    return _f.cast(_f.divide(powers, _f.sum(powers, params, keepdims=True)), x.dtype)


def _softmax_vjp(
    node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> Sequence[MaybeArray]:
    del need
    ct = cts[0]
    assert ct is not None
    y, wide_ct = widen(node), widen(ct)
    inner = _f.sum(_f.multiply(wide_ct, y), node.params, keepdims=True)
    return [_f.cast(_f.multiply(y, _f.subtract(wide_ct, inner)), ct.dtype)]


def _log_softmax_body(params: int, x: Array) -> Array:
    if 0 in x.shape:
        return x
    shifted = _shifted(widen(x), params)
    total = _f.log(_f.sum(_f.exp(shifted), params, keepdims=True))
    return _f.cast(_f.subtract(shifted, total), x.dtype)


def _log_softmax_vjp(
    node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> Sequence[MaybeArray]:
    del need
    ct = cts[0]
    assert ct is not None
    wide_ct = widen(ct)
    total = _f.sum(wide_ct, node.params, keepdims=True)
    return [_f.cast(_f.subtract(wide_ct, _f.multiply(_f.exp(widen(node)), total)), ct.dtype)]


def _shifted_reference(x: Any, axis: int) -> Any:
    wide = domains.wide(x)
    return wide - wide.max(axis=axis, keepdims=True, initial=-np.inf)


def _softmax_reference(attributes: Any, x: Any) -> Any:
    with np.errstate(invalid="ignore"):
        powers = np.exp(_shifted_reference(x, attributes["axis"]))
        return powers / powers.sum(axis=attributes["axis"], keepdims=True)


def _log_softmax_reference(attributes: Any, x: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = _shifted_reference(x, attributes["axis"])
        return shifted - np.log(np.exp(shifted).sum(axis=attributes["axis"], keepdims=True))


def _axis_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample((domains.draw(rng, shape, dtype, -4.0, 4.0),), axis)
        for shape in domains.SHAPES
        for axis in range(len(shape))
    ]


def _softmax_roundings(sample: Sample) -> float:
    """exp, a tree of n terms and a quotient, of values of at most 1, or 8 + log(n) for the log."""
    return 16.0 + math.log2(max(sample.inputs[0].shape[sample.params], 1))


def _softmax_op(name: str, body: Any, vjp: Any, reference: Any) -> Op:
    return declare(
        name,
        infer=_infer_axis(name),
        derivative=Composite(body, vjp),
        batch=lambda node, inputs, batched, size: bind(node.op, tuple(inputs), node.params + 1),
        reference=reference,
        domain=Domain(domains.FLOATING, _axis_samples, _softmax_roundings),
        opcode=name,
        attributes=lambda node: {"axis": node.params},
    )


SOFTMAX: Final = _softmax_op("softmax", _softmax_body, _softmax_vjp, _softmax_reference)
LOG_SOFTMAX: Final = _softmax_op(
    "log_softmax", _log_softmax_body, _log_softmax_vjp, _log_softmax_reference
)


def softmax(x: Any, axis: int = -1) -> Array:
    """Return `exp(x) / sum(exp(x))` along an axis; a line of only -inf is NaN.

    Args:
        x: floating; half types compute in float32.
    """
    x = operand("softmax", x)
    return bind(SOFTMAX, (x,), normalize_axis("softmax", axis, len(x.shape)))


def log_softmax(x: Any, axis: int = -1) -> Array:
    """Return `x - logsumexp(x)` along an axis; a line of only -inf is NaN."""
    x = operand("log_softmax", x)
    return bind(LOG_SOFTMAX, (x,), normalize_axis("log_softmax", axis, len(x.shape)))


# --- norms over the last axis


def _infer_norm(name: str) -> Any:
    def infer(inputs: tuple[Array, ...], params: float) -> Any:
        del params
        x, *scales = inputs
        require_float(name, x)
        for scale in scales:
            if scale.dtype is not x.dtype:
                raise mixed_dtypes(name, x, scale)
            if not x.shape or scale.shape != x.shape[-1:]:
                raise ShapeError(
                    f"{name}: {describe(scale)} does not scale the last axis of {describe(x)}",
                    "weight and bias have the extents of the normalised axes",
                )
        return x.shape, x.dtype

    return infer


def _statistics(x: Array, eps: float) -> tuple[Array, Array]:
    """Return the deviations from the mean and 1 / sqrt(variance + eps) of the last axis."""
    centred = _f.subtract(x, _f.mean(x, -1, keepdims=True))
    variance = _f.mean(_f.square(centred), -1, keepdims=True)
    return centred, _f.rsqrt(_f.add(variance, literal(eps, x.dtype)))


def _layer_norm_body(params: float, x: Array, weight: Array, bias: Array) -> Array:
    centred, scale = _statistics(widen(x), params)
    scaled = _f.multiply(_f.multiply(centred, scale), widen(weight))
    return _f.cast(_f.add(scaled, widen(bias)), x.dtype)


def _layer_norm_vjp(
    node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> Sequence[MaybeArray]:
    x, weight, _ = node.inputs
    ct = cts[0]
    assert ct is not None
    wide_ct = widen(ct)
    centred, scale = _statistics(widen(x), node.params)
    normal = _f.multiply(centred, scale)
    rows = tuple(range(len(x.shape) - 1))
    found: list[MaybeArray] = [None, None, None]
    if need[0]:
        g = _f.multiply(wide_ct, widen(weight))
        g_mean = _f.mean(g, -1, keepdims=True)
        g_normal = _f.mean(_f.multiply(g, normal), -1, keepdims=True)
        inner = _f.subtract(_f.subtract(g, g_mean), _f.multiply(normal, g_normal))
        found[0] = _f.cast(_f.multiply(scale, inner), x.dtype)
    if need[1]:
        found[1] = _f.cast(_f.sum(_f.multiply(wide_ct, normal), rows), x.dtype)
    if need[2]:
        found[2] = _f.cast(_f.sum(wide_ct, rows), x.dtype)
    return found


def _rms_scale(x: Array, eps: float) -> Array:
    mean_square = _f.mean(_f.square(x), -1, keepdims=True)
    return _f.rsqrt(_f.add(mean_square, literal(eps, x.dtype)))


def _rms_norm_body(params: float, x: Array, weight: Array) -> Array:
    wide = widen(x)
    scaled = _f.multiply(_f.multiply(wide, _rms_scale(wide, params)), widen(weight))
    return _f.cast(scaled, x.dtype)


def _rms_norm_vjp(
    node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> Sequence[MaybeArray]:
    x, weight = node.inputs
    ct = cts[0]
    assert ct is not None
    wide, wide_ct = widen(x), widen(ct)
    scale = _rms_scale(wide, node.params)
    normal = _f.multiply(wide, scale)
    found: list[MaybeArray] = [None, None]
    if need[0]:
        g = _f.multiply(wide_ct, widen(weight))
        g_normal = _f.mean(_f.multiply(g, normal), -1, keepdims=True)
        inner = _f.subtract(g, _f.multiply(normal, g_normal))
        found[0] = _f.cast(_f.multiply(scale, inner), x.dtype)
    if need[1]:
        rows = tuple(range(len(x.shape) - 1))
        found[1] = _f.cast(_f.sum(_f.multiply(wide_ct, normal), rows), x.dtype)
    return found


def _norm_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    """Rows are independent: only a batched weight or bias leaves the op for its body."""
    x = inputs[0]
    if not any(batched[1:]):
        return bind(node.op, tuple(inputs), node.params)
    if not batched[0]:
        x = broadcast_to(x, (size, *x.shape))
    columns = (1,) * (len(x.shape) - 2)
    scales = [
        reshape(scale, (size, *columns, scale.shape[-1])) if is_batched else scale
        for scale, is_batched in zip(inputs[1:], batched[1:], strict=True)
    ]
    assert isinstance(node.op.derivative, Composite)
    return node.op.derivative.body(node.params, x, *scales)


def _layer_norm_reference(attributes: Any, x: Any, weight: Any, bias: Any) -> Any:
    wide = domains.wide(x)
    if not wide.size:
        return wide
    centred = wide - wide.mean(-1, keepdims=True)
    variance = np.square(centred).mean(-1, keepdims=True)
    normal = centred / np.sqrt(variance + attributes["eps"])
    return normal * domains.wide(weight) + domains.wide(bias)


def _rms_norm_reference(attributes: Any, x: Any, weight: Any) -> Any:
    wide = domains.wide(x)
    if not wide.size:
        return wide
    mean_square = np.square(wide).mean(-1, keepdims=True)
    return wide / np.sqrt(mean_square + attributes["eps"]) * domains.wide(weight)


_NORM_SHAPES: Final[tuple[Shape, ...]] = tuple(shape for shape in domains.SHAPES if shape)


def _norm_samples(scales: int) -> Any:
    def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
        return [
            Sample(
                (
                    domains.draw(rng, shape, dtype),
                    *(domains.draw(rng, shape[-1:], dtype) for _ in range(scales)),
                ),
                eps,
            )
            for shape in _NORM_SHAPES
            for eps in (1e-5, 0.125)
        ]

    return samples


def _norm_roundings(sample: Sample) -> float:
    """Two trees over the width; an element's rounding grows where a row is narrow about its mean.

    A row of one element is its own mean, exactly.
    """
    x = domains.wide(sample.inputs[0])
    width = x.shape[-1]
    growth = 1.0
    if width > 1 and x.size:
        spread = np.sqrt(np.var(x, -1) + sample.params)
        growth = max(1.0, float((np.abs(x).max(-1) / spread).max()))
    return (8.0 + 2.0 * math.log2(max(width, 2))) * growth


LAYER_NORM: Final = declare(
    "layer_norm",
    infer=_infer_norm("layer_norm"),
    derivative=Composite(_layer_norm_body, _layer_norm_vjp),
    batch=_norm_batch,
    reference=_layer_norm_reference,
    domain=Domain(domains.FLOATING, _norm_samples(2), _norm_roundings),
    opcode="layer_norm",
    attributes=lambda node: {"eps": node.params},
)
RMS_NORM: Final = declare(
    "rms_norm",
    infer=_infer_norm("rms_norm"),
    derivative=Composite(_rms_norm_body, _rms_norm_vjp),
    batch=_norm_batch,
    reference=_rms_norm_reference,
    domain=Domain(domains.FLOATING, _norm_samples(1), _norm_roundings),
    opcode="rms_norm",
    attributes=lambda node: {"eps": node.params},
)


def _flat_norm(name: str, op: Op, x: Any, scales: Sequence[tuple[Any, int]], eps: float) -> Array:
    """Apply a norm over the trailing axes that the given scales have (the last one if none)."""
    x = operand(name, x)
    require_float(name, x)
    given = [operand(name, scale) for scale, _ in scales if scale is not None]
    shape = given[0].shape if given else x.shape[-1:]
    if not shape or x.shape[len(x.shape) - len(shape) :] != shape:
        raise ShapeError(
            f"{name}: cannot normalise {describe(x)} over trailing axes {list(shape)}",
            "weight has the shape of the last axes of x",
        )
    for scale in given:
        if scale.shape != shape:
            raise ShapeError(
                f"{name}: weight and bias differ, {describe(given[0])} and {describe(scale)}",
                "give both the shape of the last axes of x",
            )
    width = math.prod(shape)
    full = [
        broadcast_to(literal(default, x.dtype), (width,))
        if scale is None
        else reshape(operand(name, scale), (width,))
        for scale, default in scales
    ]
    rows = reshape(x, (*x.shape[: len(x.shape) - len(shape)], width))
    return reshape(bind(op, (rows, *full), require_number(name, eps, "eps")), x.shape)


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Array:
    """Return `(x - mean) / sqrt(variance + eps) * weight + bias` over trailing axes.

    Args:
        x: floating `[.., *weight.shape]`; half types compute in float32.
        weight, bias: of the shape of the normalised axes, each optional; with neither, the last
            axis is normalised. The variance is the biased one.
    """
    return _flat_norm("layer_norm", LAYER_NORM, x, ((weight, 1), (bias, 0)), eps)


def rms_norm(x: Any, weight: Any = None, eps: float = 1e-6) -> Array:
    """Return `x / sqrt(mean(x * x) + eps) * weight` over the trailing axes that `weight` has."""
    return _flat_norm("rms_norm", RMS_NORM, x, ((weight, 1),), eps)
