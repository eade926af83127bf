"""The rules of layers and losses, one test each, named after the rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.errors import EffectTorchError, ExecutionError

RNG = np.random.default_rng(0)


@pytest.fixture(params=["cpu", "reference"], autouse=True)
def on_each_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with et.use(getattr(et, request.param)()):
        yield


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def near(got: Any, want: Any, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=1e-12)


def test_layer_norm_has_eps_1e5_and_a_biased_variance() -> None:
    x, w, b = draw(3, 4), draw(4), draw(4)
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b
    near(et.nn.layer_norm(x, w, b), want)


def test_rms_norm_has_eps_1e6() -> None:
    x, w = draw(3, 4) * 1e-3, draw(4)
    near(et.nn.rms_norm(x, w), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w)


def test_gelu_is_exact_by_default_and_tanh_on_demand() -> None:
    x = np.linspace(-3, 3, 13)
    exact = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]
    near(et.nn.gelu(x), exact)
    near(
        et.nn.gelu(x, approximate="tanh"),
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    )


def test_linear_takes_weights_out_in_and_an_optional_bias() -> None:
    x, w, b = draw(5, 3), draw(4, 3), draw(4)
    near(et.nn.linear(x, w), x @ w.T)
    near(et.nn.linear(x, w, b), x @ w.T + b)


def test_embedding_keeps_the_gradient_of_its_padding_index_zero() -> None:
    table = draw(4, 2)
    ids = et.array([1, 2, 1])

    def f(table: Any) -> Any:
        return et.sum(et.nn.embedding(ids, table, padding_index=1))

    slope = et.grad(f)(et.array(table)).numpy()
    np.testing.assert_array_equal(slope, [[0, 0], [0, 0], [1, 1], [0, 0]])


def attention(q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False) -> Any:
    """The definition, of [L, D] heads."""
    scores = q @ k.T / math.sqrt(q.shape[-1])
    lengths = scores.shape
    if causal:  # right-aligned
        row, column = np.indices(lengths)
        scores = np.where(column <= row + lengths[1] - lengths[0], scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def test_attention_scales_by_the_root_of_the_head_and_takes_one_head_without_axes() -> None:
    q, k, v = draw(3, 4), draw(5, 4), draw(5, 2)
    near(et.nn.scaled_dot_product_attention(q, k, v), attention(q, k, v))
    near(et.nn.scaled_dot_product_attention(q, k, v, scale=0.5), attention(q, k * 0.5 * 2, v))


def test_a_causal_mask_is_right_aligned_when_keys_are_longer() -> None:
    q, k, v = draw(3, 4), draw(5, 4), draw(5, 2)
    near(et.nn.scaled_dot_product_attention(q, k, v, causal=True), attention(q, k, v, None, True))


def test_a_bool_mask_is_true_where_a_key_is_attended_and_a_float_mask_is_added() -> None:
    q, k, v = draw(3, 4), draw(5, 4), draw(5, 2)
    keep = RNG.random((3, 5)) < 0.7
    keep[:, 0] = True
    near(et.nn.scaled_dot_product_attention(q, k, v, keep), attention(q, k, v, keep))
    bias = draw(3, 5)
    near(et.nn.scaled_dot_product_attention(q, k, v, bias), attention(q, k, v, bias))


def test_grouped_queries_share_heads_of_keys() -> None:
    q, k, v = draw(1, 4, 3, 4), draw(1, 2, 3, 4), draw(1, 2, 3, 2)
    got = et.nn.scaled_dot_product_attention(q, k, v).numpy()
    for head in range(4):
        np.testing.assert_allclose(
            got[0, head], attention(q[0, head], k[0, head // 2], v[0, head // 2]), rtol=1e-12
        )


def test_a_window_counts_the_current_token() -> None:
    q, k, v = draw(4, 2), draw(4, 2), draw(4, 2)
    got = et.nn.scaled_dot_product_attention(q, k, v, causal=True, window=1)
    near(got, v)  # each token sees itself alone


def test_dropout_is_inverted() -> None:
    key = et.random.key(0)
    got = et.nn.dropout(key, et.ones((10_000,)), 0.25).numpy()
    assert set(np.unique(got)) == {0.0, np.float32(1 / 0.75)}
    assert abs(got.mean() - 1) < 0.05


def test_max_pooling_pads_with_minus_infinity_and_average_pooling_counts_the_padding() -> None:
    x = -np.ones((1, 1, 2))
    near(et.nn.max_pool1d(x, 3, stride=1, padding=1), [[[-1, -1]]])
    near(et.nn.avg_pool1d(x, 3, stride=1, padding=1), [[[-2 / 3, -2 / 3]]])


def test_rotary_embedding_is_half_split_by_default() -> None:
    x = draw(1, 3, 4)
    half, woven = et.nn.rotary_embedding(x).numpy(), et.nn.rotary_embedding(
        x, interleaved=True
    ).numpy()  # fmt: skip
    angle = np.arange(3)[:, None] * np.array([1.0, 0.01])
    a, b = x[0, :, :2], x[0, :, 2:]
    np.testing.assert_allclose(half[0, :, :2], a * np.cos(angle) - b * np.sin(angle), atol=1e-6)
    a, b = x[0, :, ::2], x[0, :, 1::2]
    np.testing.assert_allclose(woven[0, :, ::2], a * np.cos(angle) - b * np.sin(angle), atol=1e-6)


# --- losses


def test_cross_entropy_is_the_mean_over_active_positions() -> None:
    logits, labels = draw(3, 4), np.array([1, -100, 3])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    near(et.losses.cross_entropy(logits, labels), -(log_p[0, 1] + log_p[2, 3]) / 2)


def test_an_out_of_range_active_label_or_no_active_label_is_an_execution_error() -> None:
    logits = draw(2, 4)
    with pytest.raises(EffectTorchError):
        et.losses.cross_entropy(logits, np.array([0, 4])).numpy()
    with pytest.raises(ExecutionError):
        et.losses.cross_entropy(logits, np.array([-100, -100])).numpy()


def test_binary_cross_entropy_is_finite_for_every_probability() -> None:
    p, t = np.array([0.0, 1.0, 0.0, 1.0, 0.5]), np.array([0.0, 1.0, 1.0, 0.0, 1.0])
    got = et.losses.binary_cross_entropy(p, t, reduction="none").numpy()
    assert np.isfinite(got).all()
    assert abs(got[4] - math.log(2)) < 1e-12


def test_huber_has_delta_1() -> None:
    near(et.losses.huber(np.array([0.5, 3.0]), np.zeros(2), reduction="none"), [0.125, 2.5])


def test_kl_div_is_the_mean_over_all_elements() -> None:
    log_p, t = np.log([[0.25, 0.75]]), np.array([[0.5, 0.5]])
    near(et.losses.kl_div(log_p, t), (t * (np.log(t) - log_p)).mean())
