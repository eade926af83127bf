"""Softmax, norms, attention, dropout and losses against formulas in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.array import placeholder
from pyeffect_torch.core.op import Op
from pyeffect_torch.ops.attention import ATTENTION, ATTENTION_GRAD
from pyeffect_torch.ops.cross_entropy import CROSS_ENTROPY, CROSS_ENTROPY_GRAD
from pyeffect_torch.ops.normalization import LAYER_NORM, LOG_SOFTMAX, RMS_NORM, SOFTMAX

pytestmark = pytest.mark.usefixtures("on_reference")
RNG = np.random.default_rng(0)
OPS = [
    SOFTMAX,
    LOG_SOFTMAX,
    LAYER_NORM,
    RMS_NORM,
    CROSS_ENTROPY,
    CROSS_ENTROPY_GRAD,
    ATTENTION,
    ATTENTION_GRAD,
]
TOLERANCE = 64 * 2.0**-52  # sums of at most 30 terms of order 1, and a few more roundings


def close(got: Any, want: Any) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_types_are_those_of_the_reference(op: Op, check_types: Callable[[Op], None]) -> None:
    check_types(op)


@pytest.mark.parametrize("op", OPS, ids=str)
def test_bodies_compute_what_references_do(op: Op, check_body: Callable[[Op], None]) -> None:
    check_body(op)


# --- softmax and norms


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int) -> None:
    x = RNG.standard_normal((3, 4, 5))
    powers = np.exp(x)
    want = powers / powers.sum(axis, keepdims=True)
    close(et.softmax(x, axis), want)
    close(et.log_softmax(x, axis), np.log(want))


def test_softmax_of_extreme_rows() -> None:
    inf = np.inf
    x = np.array([[-inf, -inf], [1e30, -1e30], [-inf, 0.0], [700.0, 710.0]])
    got = et.softmax(x).numpy()
    assert np.isnan(got[0]).all()
    np.testing.assert_array_equal(got[1:3], [[1, 0], [0, 1]])
    assert np.isfinite(got[3]).all()
    assert et.softmax(np.zeros((2, 0), np.float32)).shape == (2, 0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_types_compute_in_float32(dtype: Any) -> None:
    x = RNG.standard_normal((4, 300)).astype(dtype)
    wide = x.astype(np.float64)
    want = np.exp(wide) / np.exp(wide).sum(-1, keepdims=True)
    got = et.softmax(x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.numpy(), want.astype(dtype))


def test_layer_norm_over_trailing_axes() -> None:
    x, weight, bias = (RNG.standard_normal(shape) for shape in ((2, 3, 4, 5), (4, 5), (4, 5)))
    centred = x - x.mean((2, 3), keepdims=True)
    normal = centred / np.sqrt(np.square(centred).mean((2, 3), keepdims=True) + 1e-5)
    close(et.layer_norm(x, weight, bias), normal * weight + bias)
    close(et.layer_norm(x, weight), normal * weight)
    rows = x - x.mean(-1, keepdims=True)
    close(et.layer_norm(x, eps=0.5), rows / np.sqrt(x.var(-1, keepdims=True) + 0.5))


def test_rms_norm() -> None:
    x, weight = RNG.standard_normal((2, 3, 4)), RNG.standard_normal(4)
    normal = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6)
    close(et.rms_norm(x, weight), normal * weight)
    close(et.rms_norm(x), normal)


# --- attention


def attention(q: Any, k: Any, v: Any, allowed: Any = True, added: Any = 0.0) -> Any:
    """Attention of [.., heads, rows, depth] with as many key heads, row by row."""
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]) + added
    scores = np.where(allowed, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


Q = RNG.standard_normal((2, 4, 5, 3))
K = RNG.standard_normal((2, 4, 7, 3))
V = RNG.standard_normal((2, 4, 7, 2))
BEHIND = np.arange(5)[:, None] + 2 - np.arange(7)  # rows are aligned to the last keys


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_attention_of_any_rank(axes: int) -> None:
    lead = (0,) * (4 - axes)
    q, k, v = Q[lead], K[lead], V[lead]
    close(et.scaled_dot_product_attention(q, k, v), attention(q, k, v))
    stacked = [np.stack([x, 2 * x]) for x in (q, k, v)]
    close(et.scaled_dot_product_attention(*stacked), attention(*stacked))


def test_causal_and_windowed_attention() -> None:
    call = et.scaled_dot_product_attention
    close(call(Q, K, V, causal=True), attention(Q, K, V, BEHIND >= 0))
    near = (BEHIND >= 0) & (BEHIND < 2)
    close(call(Q, K, V, causal=True, window=2), attention(Q, K, V, near))
    close(call(Q, K, V, window=3), attention(Q, K, V, abs(BEHIND) < 3))
    close(call(Q, K, V, scale=0.0), np.broadcast_to(V.mean(2, keepdims=True), (2, 4, 5, 2)))


def test_key_heads_serve_groups_of_heads() -> None:
    k, v = K[:, :2], V[:, :2]
    want = attention(Q, np.repeat(k, 2, 1), np.repeat(v, 2, 1))
    close(et.scaled_dot_product_attention(Q, k, v), want)


@pytest.mark.parametrize("shape", [(7,), (5, 7), (4, 1, 7), (2, 1, 1, 7), (2, 4, 5, 7)])
def test_masks_broadcast(shape: tuple[int, ...]) -> None:
    allowed = RNG.random(shape) < 0.6
    allowed[..., 0] = True
    added = RNG.standard_normal(shape)
    call = et.scaled_dot_product_attention
    close(call(Q, K, V, allowed), attention(Q, K, V, allowed))
    close(call(Q, K, V, added), attention(Q, K, V, True, added))
    close(call(Q, K, V, allowed, causal=True), attention(Q, K, V, allowed & (BEHIND >= 0)))


def test_a_row_that_attends_to_nothing_is_zero_with_zero_gradient() -> None:
    mask = np.ones((5, 7), np.bool_)
    mask[1] = False

    def loss(q: Any, k: Any, v: Any, m: Any) -> Any:
        return et.sum(et.square(et.scaled_dot_product_attention(q, k, v, m)))

    for given in (mask, np.where(mask, 0.0, -np.inf)):
        out = et.scaled_dot_product_attention(Q, K, V, given).numpy()
        np.testing.assert_array_equal(out[:, :, 1], 0)
        gradients = et.grad(loss, argnums=(0, 1, 2))(
            et.array(Q), et.array(K), et.array(V), et.array(given)
        )
        assert all(np.isfinite(gradient.numpy()).all() for gradient in gradients)
        np.testing.assert_array_equal(gradients[0].numpy()[:, :, 1], 0)


def test_gradient_of_an_additive_mask() -> None:
    added = RNG.standard_normal((4, 5, 7))

    def loss(m: Any) -> Any:
        return et.sum(et.square(et.scaled_dot_product_attention(Q, K, V, m)))

    direction = RNG.standard_normal(added.shape)
    gradient = et.grad(loss)(et.array(added)).numpy()
    step = 1e-6  # the error of a central difference is about step^2 and 2^-52 / step
    up, down = (float(loss(et.array(added + s * direction))) for s in (step, -step))
    assert (up - down) / (2 * step) == pytest.approx((gradient * direction).sum(), abs=1e-7)


# --- dropout


def test_dropout() -> None:
    key = et.random.key(3)
    x = et.ones((50, 40))
    got = et.dropout(key, x, 0.25).numpy()
    assert set(np.unique(got)) == {np.float32(0), np.float32(1 / 0.75)}
    # 2000 draws of probability 3/4: five standard deviations are 5 * sqrt(2000 * 3/16) = 97
    assert abs(np.count_nonzero(got) - 1500) < 97
    np.testing.assert_array_equal(et.dropout(key, x, 0.25).numpy(), got)
    assert et.dropout(key, x, 0) is x
    np.testing.assert_array_equal(et.dropout(key, x, 1).numpy(), 0)
    with pytest.raises(et.errors.ArgumentError, match=r"rate is 1\.5"):
        et.dropout(key, x, 1.5)


# --- losses

LOGITS = RNG.standard_normal((3, 4))
LOG_P = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))
LABELS = np.array([1, -100, 3])


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_cross_entropy(dtype: str) -> None:
    rows = -np.array([LOG_P[0, 1], 0.0, LOG_P[2, 3]])
    labels = LABELS.astype(dtype)
    for name, scores in (("cross_entropy", LOGITS), ("nll", LOG_P)):
        loss = getattr(et.losses, name)
        close(loss(scores, labels), rows.sum() / 2)
        close(loss(scores, labels, reduction="sum"), rows.sum())
        close(loss(scores, labels, reduction="none"), rows)
        close(loss(scores, np.abs(LABELS) % 97, ignore_index=3), rows[0] / 1)


def test_gradient_of_cross_entropy() -> None:
    got = et.grad(lambda x: et.losses.cross_entropy(x, LABELS))(et.array(LOGITS))
    hits = np.eye(4)[[1, 0, 3]]
    want = (np.exp(LOG_P) - hits) / 2
    want[1] = 0
    close(got, want)


def test_cross_entropy_of_half_logits_computes_in_float32() -> None:
    logits = (LOGITS * 4).astype(np.float16)
    wide = logits.astype(np.float64)
    rows = np.log(np.exp(wide).sum(-1)) - wide[range(3), [1, 0, 3]]
    got = et.losses.cross_entropy(logits, np.array([1, 0, 3]), reduction="none")
    np.testing.assert_array_equal(got.numpy(), rows.astype(np.float16))


@pytest.mark.parametrize("name", ["cross_entropy", "nll"])
def test_bad_labels_fail_at_run_time(name: str) -> None:
    loss = getattr(et.losses, name)
    for label in (-1, 4):
        with pytest.raises(et.errors.IndexOutOfBoundsError):
            loss(LOGITS, np.array([0, label, 1])).numpy()
    with pytest.raises(et.errors.ExecutionError, match="no label is active"):
        loss(LOGITS, np.full(3, -100)).numpy()
    np.testing.assert_array_equal(
        loss(LOGITS, np.full(3, -100), reduction="none").numpy(), np.zeros(3)
    )


P, T = RNG.random((3, 4)), RNG.random((3, 4))
SIGNS = np.sign(T - 0.5)
COSINES = (P * T).sum(-1) / np.sqrt((P * P).sum(-1) * (T * T).sum(-1))
WIDE = 3 * LOGITS
LOSSES: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("mse", (P, T), {}, (P - T) ** 2),
    ("l1", (P, T), {}, abs(P - T)),
    ("huber", (WIDE, T), {}, np.where(
        abs(WIDE - T) <= 1, (WIDE - T) ** 2 / 2, abs(WIDE - T) - 0.5)),
    ("huber", (WIDE, T), {"delta": 0.5}, np.where(
        abs(WIDE - T) <= 0.5, (WIDE - T) ** 2 / 2, 0.5 * (abs(WIDE - T) - 0.25))),
    ("binary_cross_entropy", (P, T), {}, -(T * np.log(P) + (1 - T) * np.log(1 - P))),
    ("binary_cross_entropy", (LOGITS, T), {"from_logits": True},
     np.log1p(np.exp(LOGITS)) - LOGITS * T),
    ("kl_div", (np.log(P), T), {}, T * (np.log(T) - np.log(P))),
    ("kl_div", (np.log(P), SIGNS), {}, np.where(SIGNS > 0, -np.log(P), 0)),
    ("hinge", (LOGITS, SIGNS), {}, np.maximum(0, 1 - SIGNS * LOGITS)),
    ("cosine_embedding", (P, T, np.array([1, -1, 1])), {"margin": 0.2},
     np.where([True, False, True], 1 - COSINES, np.maximum(0, COSINES - 0.2))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "options", "want"), LOSSES)
def test_losses(name: str, arguments: Any, options: dict[str, Any], want: Any) -> None:
    loss = getattr(et.losses, name)
    close(loss(*arguments, **options), want.mean())
    close(loss(*arguments, **options, reduction="sum"), want.sum())
    close(loss(*arguments, **options, reduction="none"), want)
    with pytest.raises(et.errors.ArgumentError, match=f"{name}: unknown reduction 'max'"):
        loss(*arguments, **options, reduction="max")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_binary_cross_entropy_is_finite_on_all_probabilities(dtype: Any) -> None:
    p = et.array(np.array([0, 0, 1, 1, 0.5], dtype))
    t = et.array(np.array([0, 1, 0, 1, 1], dtype))
    losses = et.losses.binary_cross_entropy(p, t, reduction="none").numpy()
    assert np.isfinite(losses.astype(np.float64)).all()
    np.testing.assert_array_equal(losses[[0, 3]], 0)
    gradient = et.grad(lambda x: et.losses.binary_cross_entropy(x, t))(p).numpy()
    assert np.isfinite(gradient.astype(np.float64)).all()


def test_cosine_of_a_zero_vector_is_zero() -> None:
    zero = np.zeros((1, 3))
    got = et.losses.cosine_embedding(zero, zero + 1, np.array([1]))
    assert got.item() == 1.0
    gradient = et.grad(lambda x: et.losses.cosine_embedding(x, zero + 1, np.array([1])))
    assert np.isfinite(gradient(et.array(zero)).numpy()).all()


# --- errors

F = placeholder((2, 3), np.dtype(np.float32), "f")
H = placeholder((1, 4, 5, 8), np.dtype(np.float32), "h")


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        ("DTypeError", lambda: et.softmax(et.arange(3)), "softmax: needs a floating array"),
        ("ShapeError", lambda: et.softmax(F, 2), "axis 2 is out of range for rank 2"),
        ("ShapeError", lambda: et.layer_norm(F, et.ones(4)),
         r"layer_norm: cannot normalise float32\[2, 3\] over trailing axes \[4\]"),
        ("ShapeError", lambda: et.layer_norm(F, et.ones(3), et.ones(2)), "weight and bias differ"),
        ("DTypeError", lambda: et.rms_norm(F, et.ones(3, "float16")), "rms_norm: mixed dtypes"),
        ("ShapeError", lambda: et.scaled_dot_product_attention(H, H[:, :3], H[:, :3]),
         r"4 heads of float32\[1, 4, 5, 8\] are no multiple of the 3"),
        ("ShapeError", lambda: et.scaled_dot_product_attention(H, H, F), "do not fit"),
        ("ShapeError", lambda: et.scaled_dot_product_attention(H, H, H, et.ones((4, 5)) > 0),
         r"the mask bool\[4, 5\] does not broadcast to \[1, 4, 5, 5\]"),
        ("DTypeError", lambda: et.scaled_dot_product_attention(H, H, H, et.ones((5, 5), "int32")),
         r"is neither bool nor of dtype float32"),
        ("ArgumentError", lambda: et.scaled_dot_product_attention(H, H, H, window=0),
         "the window is 0"),
        ("ShapeError", lambda: et.losses.cross_entropy(F, et.zeros((3,), "int64")),
         r"labels int64\[3\] do not fit logits float32\[2, 3\]"),
        ("DTypeError", lambda: et.losses.cross_entropy(F, et.zeros((2,))), "an integer array"),
        ("ArgumentError", lambda: et.losses.huber(F, F, delta=0), "huber: delta is 0"),
    ],
)  # fmt: skip
def test_errors(error: str, call: Callable[[], Any], message: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=message):
        call()
