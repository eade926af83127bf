"""A small ModernBERT, stage by stage, against the stored values of every stage.

Layer 0 has no norm before its attention; every third layer attends to all tokens, the others to a
window; norms have no bias; the feed-forward is gated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from tests.conformance.adapter import decode

FILE = Path(__file__).parents[1] / "data" / "conformance" / "encoder.json"
MODEL = json.loads(FILE.read_text())
CONFIG: dict[str, Any] = MODEL["config"]
KINDS: list[str] = MODEL["layer_types"]
Weights = dict[str, Any]


def norm(x: Any, weights: Weights, name: str) -> Any:
    return et.nn.layer_norm(x, weights[f"{name}.weight"], eps=CONFIG["norm_eps"])


def embed(weights: Weights, ids: Any) -> Any:
    table = weights["embeddings.tok_embeddings.weight"]
    return norm(et.nn.embedding(ids, table), weights, "embeddings.norm")


def attend(x: Any, weights: Weights, name: str, mask: Any, base: float) -> Any:
    batch, length, width = x.shape
    heads = CONFIG["num_attention_heads"]
    joint = et.nn.linear(x, weights[f"{name}.Wqkv.weight"])
    q, k, v = joint.reshape(batch, length, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    q, k = (et.nn.rotary_embedding(a, base=base) for a in (q, k))
    out = et.nn.scaled_dot_product_attention(q, k, v, mask=mask)
    joined = out.transpose(0, 2, 1, 3).reshape(batch, length, width)
    return et.nn.linear(joined, weights[f"{name}.Wo.weight"])


def layer(x: Any, weights: Weights, index: int, masks: Weights) -> Any:
    name, kind = f"layers.{index}", KINDS[index]
    base = CONFIG["global_rope_theta" if kind == "full_attention" else "local_rope_theta"]
    inner = x if index == 0 else norm(x, weights, f"{name}.attn_norm")
    x = x + attend(inner, weights, f"{name}.attn", masks[kind], base)
    hidden = et.nn.linear(norm(x, weights, f"{name}.mlp_norm"), weights[f"{name}.mlp.Wi.weight"])
    return x + et.nn.linear(et.nn.geglu(hidden), weights[f"{name}.mlp.Wo.weight"])


def stages(weights: Weights, ids: Any, attended: Any, masks: Weights) -> Weights:
    x = embed(weights, ids)
    out = {"embeddings": x}
    for index in range(CONFIG["num_hidden_layers"]):
        x = out[f"layers.{index}"] = layer(x, weights, index, masks)
    out["final_norm"] = norm(x, weights, "final_norm")
    out["pooled"] = et.nn.mean_pool(out["final_norm"], attended)
    return out


def arrays(group: str) -> Weights:
    return {name: et.array(decode(tensor)) for name, tensor in MODEL[group].items()}


def test_the_masks_follow_from_the_padding_and_the_window() -> None:
    attended = decode(MODEL["inputs"]["attention_mask"])
    position = np.arange(attended.shape[1])
    near = np.abs(position[:, None] - position) <= CONFIG["local_attention"] // 2
    sliding = decode(MODEL["masks"]["sliding_attention"])
    padded = ~attended[:, None, :, None]  # a padded query sees every valid key: no row is empty
    assert np.array_equal(sliding, (near | padded) & attended[:, None, None, :])


@pytest.mark.parametrize("compiled", [True, False], ids=["jit", "lazy"])
@pytest.mark.parametrize("runtime", [et.cpu, et.reference], ids=["cpu", "reference"])
def test_every_stage(runtime: Any, compiled: bool) -> None:
    expected = {name: decode(tensor) for name, tensor in MODEL["stages"].items()}
    with et.use(runtime()), et.scope() as scope:
        weights, masks, inputs = arrays("weights"), arrays("masks"), arrays("inputs")
        run = et.jit(stages) if compiled else stages
        got = run(weights, inputs["input_ids"], inputs["attention_mask"], masks)
        kept = scope.keep(et.compute(got))
    assert weights["final_norm.weight"].is_deleted()
    assert kept.keys() == expected.keys()
    for name, want in expected.items():
        value = kept[name].numpy()
        assert value.shape == want.shape
        bound = MODEL["atol"] + MODEL["rtol"] * np.abs(want)
        assert np.all(np.abs(value - want) <= bound), name


def test_a_padded_token_changes_nothing_that_is_kept() -> None:
    weights, masks, inputs = arrays("weights"), arrays("masks"), arrays("inputs")
    ids, attended = decode(MODEL["inputs"]["input_ids"]), decode(MODEL["inputs"]["attention_mask"])
    run = et.jit(stages)
    first = run(weights, inputs["input_ids"], inputs["attention_mask"], masks)["pooled"].numpy()
    other = et.array(np.where(attended, ids, (ids + 1) % CONFIG["vocab_size"]))
    second = run(weights, other, inputs["attention_mask"], masks)["pooled"].numpy()
    assert np.array_equal(first, second)
