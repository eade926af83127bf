"""Attention and its gradient in ordinary ops: what the fused ops mean and derive from.

Heads are grouped: q is seen as [batch, key heads, group, rows, depth] beside k of
[batch, key heads, keys, depth]. Half types compute in float32.
"""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.op import MaybeArray
from pyeffect_torch.ops.normalization import widen
from pyeffect_torch.ops.parameters import AttentionParams
from pyeffect_torch.ops.shape import expand_dims, reshape

_f: Any = late.functions


def _grouped(array: Array, key_heads: int) -> Array:
    """Split axis 1, the heads, into key heads and the heads that share one."""
    batch, heads, *rest = array.shape
    return reshape(array, (batch, key_heads, heads // key_heads, *rest))


def _grouped_mask(mask: Array, key_heads: int) -> Array:
    batch, heads, rows, keys = mask.shape
    split = (1, 1) if heads == 1 else (key_heads, heads // key_heads)
    return reshape(mask, (batch, *split, rows, keys))


def _allowed(params: AttentionParams, rows: int, keys: int, mask: Array | None) -> MaybeArray:
    """Return where a row may attend to a key, as bool that broadcasts to the scores; None: all."""
    found: MaybeArray = None
    if params.causal or params.window:
        # how far a key lies behind the row's own position, which is right aligned
        own = _f.add(reshape(_f.arange(rows), (rows, 1)), keys - rows)
        behind = _f.subtract(own, _f.arange(keys))
        if params.causal:
            found = _f.greater_equal(behind, 0)
        if params.window:
            near = _f.less(behind, params.window)
            if not params.causal:
                near = _f.logical_and(near, _f.greater(behind, -params.window))
            found = near if found is None else _f.logical_and(found, near)
    if mask is not None and mask.dtype is dtypes.bool_:
        found = mask if found is None else _f.logical_and(found, mask)
    return found


def _scores(params: AttentionParams, q: Array, k: Array, mask: Array | None) -> Array:
    """Scores [batch, key heads, group, rows, keys]: scaled, with an additive mask, -inf if not
    allowed. `q` is grouped, everything is wide."""
    scores = _f.multiply(_f.einsum("bhgld,bhsd->bhgls", q, k), literal(params.scale, q.dtype))
    if mask is not None and mask.dtype is not dtypes.bool_:
        scores = _f.add(scores, widen(mask))
    allowed = _allowed(params, scores.shape[3], scores.shape[4], mask)
    if allowed is None:
        return scores
    return _f.where(allowed, scores, literal(float("-inf"), scores.dtype))


def attention_body(
    params: AttentionParams, q: Array, k: Array, v: Array, mask: Array | None = None
) -> tuple[Array, Array]:
    """Return the output [batch, heads, rows, value depth] and the rows' log-sum-exp."""
    key_heads, keys = k.shape[1], k.shape[2]
    rows = q.shape[:3]
    wide_q, wide_k, wide_v = _grouped(widen(q), key_heads), widen(k), widen(v)
    if keys == 0 or 0 in rows:
        return _nothing(q, v)
    grouped_mask = None if mask is None else _grouped_mask(mask, key_heads)
    scores = _scores(params, wide_q, wide_k, grouped_mask)
    top = _f.stop_gradient(_f.max(scores, -1, keepdims=True))
    zero, one = literal(0, scores.dtype), literal(1, scores.dtype)
    none = _f.equal(top, literal(float("-inf"), scores.dtype))  # a row that attends to nothing
    # differences are taken between finite numbers only, so that gradients of such rows are 0
    safe_scores = _f.where(none, zero, scores)
    powers = _f.where(none, zero, _f.exp(_f.subtract(safe_scores, _f.where(none, zero, top))))
    total = _f.where(none, one, _f.sum(powers, -1, keepdims=True))
    weights = _f.divide(powers, total)
    out = reshape(_f.einsum("bhgls,bhsd->bhgld", weights, wide_v), (*rows, v.shape[3]))
    lse = _f.where(
        none,
        literal(float("-inf"), scores.dtype),
        _f.add(_f.where(none, zero, top), _f.log(total)),
    )
    return _f.cast(out, q.dtype), reshape(lse, rows)


def _nothing(q: Array, v: Array) -> tuple[Array, Array]:
    shape = q.shape[:3]
    wide = dtypes.accumulator(q.dtype)
    return _f.zeros((*shape, v.shape[3]), q.dtype), _f.full(shape, float("-inf"), wide)


def gradients(
    params: AttentionParams,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    ct: Array,
    lse_ct: MaybeArray = None,
    mask: Array | None = None,
) -> list[Array]:
    """Return the cotangents of q, k, v and, if there is a floating one, of the mask.

    Args:
        out, lse: what attention gave. ct, lse_ct: their cotangents.
    """
    key_heads = k.shape[1]
    if k.shape[2] == 0 or 0 in q.shape[:3]:
        return [_f.zeros_like(array) for array in (q, k, v, *(() if mask is None else (mask,)))]
    wide_q, wide_k, wide_v = _grouped(widen(q), key_heads), widen(k), widen(v)
    wide_ct = _grouped(widen(ct), key_heads)
    row_lse = expand_dims(_grouped(lse, key_heads), -1)
    grouped_mask = None if mask is None else _grouped_mask(mask, key_heads)
    scores = _scores(params, wide_q, wide_k, grouped_mask)
    zero = literal(0, scores.dtype)
    none = _f.equal(row_lse, literal(float("-inf"), scores.dtype))
    shifted = _f.subtract(_f.where(none, zero, scores), _f.where(none, zero, row_lse))
    weights = _f.where(none, zero, _f.exp(shifted))
    weights_ct = _f.einsum("bhgld,bhsd->bhgls", wide_ct, wide_v)
    inner = _f.sum(_f.multiply(wide_ct, _grouped(widen(out), key_heads)), -1, keepdims=True)
    if lse_ct is not None:
        inner = _f.subtract(inner, expand_dims(_grouped(lse_ct, key_heads), -1))
    scores_ct = _f.multiply(weights, _f.subtract(weights_ct, inner))
    scaled = _f.multiply(scores_ct, literal(params.scale, scores.dtype))
    q_ct = reshape(_f.einsum("bhgls,bhsd->bhgld", scaled, wide_k), q.shape)
    k_ct = _f.einsum("bhgls,bhgld->bhsd", scaled, wide_q)
    v_ct = _f.einsum("bhgls,bhgld->bhsd", weights, wide_ct)
    found = [_f.cast(q_ct, q.dtype), _f.cast(k_ct, k.dtype), _f.cast(v_ct, v.dtype)]
    if mask is not None and mask.dtype is not dtypes.bool_:
        full = reshape(scores_ct, (*q.shape[:3], k.shape[2]))
        found.append(_f.cast(_f.unbroadcast(full, mask.shape), mask.dtype))
    return found


def attention_grad_body(
    params: AttentionParams,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    ct: Array,
    mask: Array | None = None,
) -> tuple[Array, Array, Array]:
    """Return the cotangents of q, k and v."""
    q_ct, k_ct, v_ct, *_ = gradients(params, q, k, v, out, lse, ct, None, mask)
    return q_ct, k_ct, v_ct
