"""Attention and its gradient in NumPy with float64 inside: the references of the fused ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyeffect_torch.ops.domains import wide


def _grouped(q: Any, k: Any) -> tuple[Any, int]:
    """Repeat keys or values for the heads that share them."""
    group = q.shape[1] // k.shape[1]
    return np.repeat(wide(k), group, axis=1), group


def _scores(attributes: Any, q: Any, k: Any, mask: Any) -> Any:
    full_k, _ = _grouped(q, k)
    scores = np.matmul(wide(q), np.swapaxes(full_k, 2, 3)) * attributes["scale"]
    rows, keys = scores.shape[2:]
    behind = np.arange(rows)[:, None] + (keys - rows) - np.arange(keys)
    allowed = np.ones((rows, keys), np.bool_)
    window = attributes["window"]
    if attributes["causal"]:
        allowed &= behind >= 0
    if window:
        allowed &= behind < window
        if not attributes["causal"]:
            allowed &= behind > -window
    if mask is not None and mask.dtype == np.bool_:
        allowed = allowed & mask
    elif mask is not None:
        scores = scores + wide(mask)
    return np.where(allowed, scores, -np.inf)


def attention_reference(attributes: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Return the output and the log-sum-exp of each row, in float64."""
    scores = _scores(attributes, q, k, mask)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    none = top == -np.inf
    powers = np.where(none, 0.0, np.exp(scores - np.where(none, 0.0, top)))
    total = powers.sum(-1, keepdims=True)
    full_v, _ = _grouped(q, v)
    out = np.matmul(powers / np.where(none, 1.0, total), full_v)
    lse = np.where(none, -np.inf, top + np.log(np.where(none, 1.0, total)))
    return out, lse[..., 0]


def attention_grad_reference(
    attributes: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, ct: Any, mask: Any = None
) -> Any:
    """Return the cotangents of q, k and v, in float64."""
    scores = _scores(attributes, q, k, mask)
    row_lse = wide(lse)[..., None]
    none = row_lse == -np.inf
    weights = np.where(none, 0.0, np.exp(scores - np.where(none, 0.0, row_lse)))
    full_k, group = _grouped(q, k)
    full_v, _ = _grouped(q, v)
    weights_ct = np.matmul(wide(ct), np.swapaxes(full_v, 2, 3))
    inner = (wide(ct) * wide(out)).sum(-1, keepdims=True)
    scaled = weights * (weights_ct - inner) * attributes["scale"]
    q_ct = np.matmul(scaled, full_k)
    k_ct = np.matmul(np.swapaxes(scaled, 2, 3), wide(q))
    v_ct = np.matmul(np.swapaxes(weights, 2, 3), wide(ct))
    return q_ct, _shared(k_ct, k.shape[1], group), _shared(v_ct, k.shape[1], group)


def _shared(full: Any, key_heads: int, group: int) -> Any:
    """Sum over the heads that share a key head."""
    return full.reshape((full.shape[0], key_heads, group, *full.shape[2:])).sum(2)
