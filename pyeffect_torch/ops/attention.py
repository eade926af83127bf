"""Scaled dot-product attention: the ops `attention` and `attention_grad`.

`attention` gives the output and the log-sum-exp of each row of scores; its backward recomputes the
probabilities from that. Both are composites whose bodies are `attention_body.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, outputs
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.core.op import Composite, Domain, MaybeArray, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.attention_body import attention_body, attention_grad_body, gradients
from pyeffect_torch.ops.attention_reference import attention_grad_reference, attention_reference
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand, require_float
from pyeffect_torch.ops.index_base import zeros_of
from pyeffect_torch.ops.parameters import AttentionParams
from pyeffect_torch.ops.shape import broadcast_to, reshape

__all__ = ["scaled_dot_product_attention"]

_f: Any = late.functions


# --- types


def _check(name: str, inputs: Sequence[Array]) -> None:
    """Check q, k, v and a mask of rank 4."""
    q, k, v, *rest = inputs
    require_float(name, q)
    for other in (k, v):
        if other.dtype is not q.dtype:
            raise mixed_dtypes(name, q, other)
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        raise ShapeError(
            f"{name}: needs rank 4, got {describe(q)}, {describe(k)} and {describe(v)}",
            "use scaled_dot_product_attention, which takes other ranks",
        )
    batch, heads, rows, depth = q.shape
    if k.shape[0] != batch or k.shape[3] != depth or v.shape[:3] != k.shape[:3]:
        raise ShapeError(
            f"{name}: {describe(q)}, {describe(k)} and {describe(v)} do not fit",
            "q is [.., heads, rows, depth], k [.., key heads, keys, depth], v [.., key heads, "
            "keys, value depth]",
        )
    if k.shape[1] == 0 or heads % k.shape[1]:
        raise ShapeError(
            f"{name}: {heads} heads of {describe(q)} are no multiple of the {k.shape[1]} of "
            f"{describe(k)}",
            "use a number of heads that the key heads divide",
        )
    if rest:
        _check_mask(name, q, rest[0], (batch, heads, rows, k.shape[2]))


def _check_mask(name: str, q: Array, mask: Array, scores: Shape) -> None:
    if mask.dtype is not dtypes.bool_ and mask.dtype is not q.dtype:
        raise DTypeError(
            f"{name}: the mask {describe(mask)} is neither bool nor of dtype {q.dtype.name}",
            "use bool (True attends), or a mask to add of the queries' dtype",
        )
    if len(mask.shape) != len(scores) or any(
        extent not in (1, full) for extent, full in zip(mask.shape, scores, strict=False)
    ):
        raise ShapeError(
            f"{name}: the mask {describe(mask)} does not broadcast to {list(scores)}",
            "its axes are [batch, heads, rows, keys], each full or 1",
        )


def _infer(inputs: tuple[Array, ...], params: AttentionParams) -> Any:
    del params
    _check("attention", inputs)
    q, _, v = inputs[:3]
    rows = q.shape[:3]
    return ((*rows, v.shape[3]), q.dtype), (rows, dtypes.accumulator(q.dtype))


def _infer_grad(inputs: tuple[Array, ...], params: AttentionParams) -> Any:
    del params
    q, k, v, out, lse, ct, *mask = inputs
    _check("attention_grad", (q, k, v, *mask))
    expected = (*q.shape[:3], v.shape[3])
    if out.shape != expected or ct.shape != expected or lse.shape != q.shape[:3]:
        raise ShapeError(
            f"attention_grad: {describe(out)}, {describe(lse)} and {describe(ct)} are not of the "
            f"attention of {describe(q)}",
            "pass the outputs of attention and their cotangent",
        )
    return tuple((array.shape, array.dtype) for array in (q, k, v))


# --- derivative and batching


def _vjp(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    ct, lse_ct = cts
    out, lse = outputs(node)
    q, k, v, *mask = node.inputs
    ct = zeros_of(out) if ct is None else ct
    params: AttentionParams = node.params
    if lse_ct is None and not (mask and need[3]):
        plain = AttentionParams(*params[:3])
        grad = bind(ATTENTION_GRAD, (q, k, v, out, lse, ct, *mask), plain)
        return [*outputs(grad), *(None for _ in mask)]
    found = gradients(params, q, k, v, out, lse, ct, lse_ct, *mask)
    return [*found, *(None for _ in range(len(found), len(node.inputs)))]


def _fold_mask(mask: Array, is_batched: bool, size: int, batch: int) -> Array:
    """Give a mask the merged leading axis `size * batch`, or leave it 1."""
    if not is_batched:
        if mask.shape[0] == 1:
            return mask
        mask = broadcast_to(mask, (size, *mask.shape))
    rest = mask.shape[2:]
    return reshape(broadcast_to(mask, (size, batch, *rest)), (size * batch, *rest))


def _batch(arrays: int) -> Any:
    """The rule of an op whose first `arrays` operands have a batch axis, then maybe a mask."""

    def rule(
        node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
    ) -> list[tuple[Array, bool]]:
        batch = inputs[0].shape[1] if batched[0] else inputs[0].shape[0]
        folded: list[Array] = []
        for array, is_batched in zip(inputs[:arrays], batched[:arrays], strict=True):
            if not is_batched:
                array = broadcast_to(array, (size, *array.shape))
            folded.append(reshape(array, (size * batch, *array.shape[2:])))
        for mask, is_batched in zip(inputs[arrays:], batched[arrays:], strict=True):
            folded.append(_fold_mask(mask, is_batched, size, batch))
        made = bind(node.op, tuple(folded), AttentionParams(*node.params[:3]))
        return [(reshape(out, (size, batch, *out.shape[1:])), True) for out in outputs(made)]

    return rule


# --- declarations


def _attributes(node: Array) -> Mapping[str, Any]:
    scale, causal, window, _ = node.params
    return {"scale": scale, "causal": causal, "window": window}


_CASES: Final[tuple[tuple[tuple[int, ...], bool, int, Shape | None], ...]] = (
    ((1, 1, 1, 1, 1, 1, 1), False, 0, None), ((1, 1, 1, 3, 5, 4, 4), False, 0, None),
    ((2, 2, 2, 3, 3, 4, 4), True, 0, None), ((2, 4, 2, 3, 5, 2, 3), True, 0, None),
    ((1, 4, 1, 5, 5, 2, 2), True, 2, None), ((1, 2, 2, 4, 6, 3, 3), True, 3, None),
    ((1, 2, 1, 4, 4, 3, 2), False, 2, None), ((2, 2, 1, 3, 4, 3, 2), False, 0, (2, 2, 3, 4)),
    ((2, 2, 2, 3, 4, 3, 2), False, 0, (1, 1, 3, 4)), ((2, 2, 2, 3, 4, 3, 2), True, 0, (2, 1, 1, 4)),
    ((1, 2, 2, 3, 3, 3, 3), True, 2, (1, 2, 3, 3)), ((0, 2, 1, 3, 3, 2, 2), False, 0, None),
    ((1, 0, 1, 3, 3, 2, 2), False, 0, None), ((1, 2, 2, 0, 3, 2, 2), True, 0, None),
    ((1, 2, 2, 3, 0, 2, 2), False, 0, None), ((1, 1, 1, 5, 2, 3, 3), True, 0, None),
    ((1, 1, 1, 17, 33, 8, 8), True, 0, None), ((3, 1, 1, 1, 7, 4, 5), True, 0, None),
    ((1, 3, 3, 2, 2, 1, 2), False, 0, (1, 3, 2, 1)), ((2, 6, 3, 2, 4, 2, 2), True, 3, (2, 6, 2, 4)),
)  # fmt: skip
"""Batch, heads, key heads, rows, keys, depth, value depth; causal; window; mask shape."""


def _samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    out: list[Sample] = []
    for index, (sizes, causal, window, mask_shape) in enumerate(_CASES):
        batch, heads, key_heads, rows, keys, depth, value_depth = sizes
        inputs = [
            domains.draw(rng, (batch, heads, rows, depth), dtype),
            domains.draw(rng, (batch, key_heads, keys, depth), dtype),
            domains.draw(rng, (batch, key_heads, keys, value_depth), dtype),
        ]
        params = AttentionParams(1.0 / math.sqrt(depth), causal, window)
        if mask_shape is None:
            out.append(Sample(tuple(inputs), params))
            continue
        for kind in (dtypes.bool_, dtype):
            mask = domains.draw(rng, mask_shape, kind)
            if kind is dtypes.bool_ and index % 2:
                mask[..., 0, :] = False  # a row that attends to nothing
            out.append(Sample((*inputs, mask), params))
    return out


def _grad_samples(rng: np.random.Generator, dtype: DType) -> list[Sample]:
    out: list[Sample] = []
    for sample in _samples(rng, dtype):
        scale, causal, window, _ = sample.params
        attributes = {"scale": scale, "causal": causal, "window": window}
        result, lse = attention_reference(attributes, *sample.inputs)
        wide = dtypes.accumulator(dtype)
        ct = domains.draw(rng, result.shape, dtype)
        q, k, v, *mask = sample.inputs
        inputs = (q, k, v, result.astype(dtype), lse.astype(wide), ct, *mask)
        out.append(Sample(inputs, sample.params))
    return out


def _roundings(sample: Sample) -> float:
    """Scores are sums over the depth, outputs over the keys."""
    return 16.0 + 2.0 * (sample.inputs[0].shape[3] + sample.inputs[1].shape[2])


def _grad_roundings(sample: Sample) -> float:
    """As `_roundings`, and once more over the rows and the heads of a group."""
    return 4.0 * (_roundings(sample) + sample.inputs[0].shape[1] * sample.inputs[0].shape[2])


ATTENTION: Final = declare(
    "attention",
    infer=_infer,
    derivative=Composite(attention_body, _vjp),
    batch=_batch(3),
    reference=attention_reference,
    domain=Domain(domains.FLOATING, _samples, _roundings),
    opcode="attention",
    attributes=_attributes,
    traits=("multi",),
)
ATTENTION_GRAD: Final = declare(
    "attention_grad",
    infer=_infer_grad,
    derivative=Composite(attention_grad_body),
    batch=_batch(6),
    reference=attention_grad_reference,
    domain=Domain(domains.FLOATING, _grad_samples, _grad_roundings),
    opcode="attention_grad",
    attributes=_attributes,
    traits=("multi",),
)


# --- the function


def _four_axes(array: Array) -> Array:
    """Merge the axes before the last three into one; a missing head or batch axis is 1."""
    shape = array.shape
    if len(shape) <= 4:
        return reshape(array, (*(1,) * (4 - len(shape)), *shape))
    return reshape(array, (math.prod(shape[:-3]), *shape[-3:]))


def _mask_operand(mask: Any, q: Array, keys: int) -> Array:
    mask = operand("scaled_dot_product_attention", mask)
    scores = (*q.shape[:-1], keys)
    offset = len(scores) - len(mask.shape)
    if offset < 0 or any(
        extent not in (1, scores[axis + offset]) for axis, extent in enumerate(mask.shape)
    ):
        raise ShapeError(
            f"scaled_dot_product_attention: the mask {describe(mask)} does not broadcast to "
            f"{list(scores)}",
            "its axes are [.., heads, rows, keys], each full or 1",
        )
    mask = reshape(mask, (*(1,) * offset, *mask.shape))
    lead = mask.shape[:-3]
    if len(scores) > 4 and any(extent != 1 for extent in lead):
        mask = broadcast_to(mask, (*scores[:-3], *mask.shape[-3:]))
    return _four_axes(mask)


def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
) -> Array:
    """Return `softmax(scale * q @ k.T) @ v` for each head.

    Args:
        q: floating `[.., heads, rows, depth]`; the leading axes, also the heads, may be absent.
        k: `[.., key heads, keys, depth]`; each key head serves heads / key heads heads in turn.
        v: `[.., key heads, keys, value depth]`.
        mask: bool, True where a row attends to a key, or floating of the dtype of `q`, added
            after scaling; broadcasts to `[.., heads, rows, keys]`.
        causal: row i attends to keys up to `i + keys - rows`.
        scale: a Python number; by default `1 / sqrt(depth)`.
        window: how many of the latest keys a row attends to, its own included; without `causal`
            as many on the other side.

    Returns:
        `[.., heads, rows, value depth]`; a row with every key masked is 0, with gradient 0. Half
        types compute in float32 and round once.

    Raises:
        ShapeError: extents or heads do not fit, or the mask does not broadcast.
        DTypeError: mixed dtypes, or a mask of another dtype. ArgumentError: a window below 1.
    """
    name = "scaled_dot_product_attention"
    q, k, v = operand(name, q), operand(name, k), operand(name, v)
    rank = len(q.shape)
    if (
        rank < 2
        or len(k.shape) != rank
        or len(v.shape) != rank
        or (q.shape[:-3] != k.shape[:-3] or k.shape[:-3] != v.shape[:-3])
    ):
        raise ShapeError(
            f"{name}: {describe(q)}, {describe(k)} and {describe(v)} do not fit",
            "give the three the same rank, 2 or more, and the same axes before the heads",
        )
    if window is not None and window < 1:
        raise ArgumentError(f"{name}: the window is {window}", "use a window of 1 or more")
    inputs = [_four_axes(q), _four_axes(k), _four_axes(v)]
    if mask is not None:
        inputs.append(_mask_operand(mask, q, k.shape[-2]))
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    params = AttentionParams(float(scale), bool(causal), int(window or 0))
    out = outputs(bind(ATTENTION, tuple(inputs), params))[0]
    return reshape(out, (*q.shape[:-1], v.shape[-1]))
