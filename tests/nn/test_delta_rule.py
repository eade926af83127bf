"""The gated delta rule against its recurrence in NumPy, in chunks and token by token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.testing import check_grads

pytestmark = pytest.mark.usefixtures("runtime")

LENGTHS = [1, 13, 40, 70, 129]


def draw(lead: tuple[int, ...], length: int, depth: int, width: int, decay: float = 1.0) -> Any:
    """Keys of norm 1, decays from nearly none to nearly everything."""
    rng = np.random.default_rng(length)
    q, k = rng.standard_normal((2, *lead, length, depth))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    v = rng.standard_normal((*lead, length, width))
    log_decay = -decay * np.exp(rng.standard_normal((*lead, length, depth)))
    beta = rng.uniform(0, 1, (*lead, length))
    return q, k, v, log_decay, beta


def recur(arrays: Any, scale: float, state: Any) -> tuple[Any, Any]:
    """S = (I - beta k k^T) diag(exp g) S + beta k v^T, out = scale S^T q, one head at a time."""
    q, k, v, g, beta = arrays
    out, state = np.zeros(v.shape), state.copy()
    for head in np.ndindex(*q.shape[:-2]):
        s = state[head]
        for t in range(q.shape[-2]):
            key = k[(*head, t)]
            erase = np.eye(len(key)) - beta[(*head, t)] * np.outer(key, key)
            s = erase @ np.diag(np.exp(g[(*head, t)])) @ s
            s = s + beta[(*head, t)] * np.outer(key, v[(*head, t)])
            out[(*head, t)] = scale * s.T @ q[(*head, t)]
        state[head] = s
    return out, state


def close(got: Any, want: Any, tolerance: float) -> None:
    assert got.shape == want.shape
    largest = np.abs(want).max(initial=1.0)
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("depth", "width"), [(8, 8), (16, 5)])
def test_chunks_are_the_recurrence(length: int, depth: int, width: int) -> None:
    arrays = draw((2, 3), length, depth, width)
    state = np.random.default_rng(1).standard_normal((2, 3, depth, width))
    for start in (None, state):
        before = np.zeros_like(state) if start is None else start
        want = recur(arrays, depth**-0.5, before)
        # float64: some hundred roundings of sums of `depth` and of 64 terms.
        out, after = et.nn.kda(*arrays, state=start)
        close(out, want[0], 2.0**-42)
        close(after, want[1], 2.0**-42)
        narrow = [x.astype(np.float32) for x in arrays]
        out, after = et.nn.kda(*narrow, state=None if start is None else start.astype(np.float32))
        close(out, want[0], 1e-4)
        close(after, want[1], 1e-4)


@pytest.mark.parametrize("chunk_size", [1, 5, 16, 20, 24, 64, 1000])
def test_the_size_of_chunks_changes_nothing(chunk_size: int) -> None:
    arrays = draw((2,), 45, 4, 3)
    want = recur(arrays, 0.5, np.zeros((2, 4, 3)))
    out, after = et.nn.kda(*arrays, chunk_size=chunk_size)
    close(out, want[0], 2.0**-44)
    close(after, want[1], 2.0**-44)


@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_token_by_token(lead: tuple[int, ...]) -> None:
    arrays = draw(lead, 9, 6, 4)
    want, _ = et.nn.kda(*arrays, scale=0.25)
    state: Any = np.zeros((*lead, 6, 4))
    axis = len(lead)
    for t in range(9):
        token = [np.take(x, t, axis) for x in arrays]
        out, state = et.nn.kda_step(*token, state, scale=0.25)
        close(out, np.take(want.numpy(), t, axis), 2.0**-46)


def test_a_prompt_and_then_tokens() -> None:
    arrays = draw((2,), 50, 8, 8)
    want, last = et.nn.kda(*arrays)
    first, state = et.nn.kda(*(x[:, :37] for x in arrays))
    second, state = et.nn.kda(*(x[:, 37:49] for x in arrays), state=state)
    third, state = et.nn.kda_step(*(x[:, 49] for x in arrays), state)
    parts = np.concatenate([first.numpy(), second.numpy(), third.numpy()[:, None]], 1)
    close(want, parts, 2.0**-44)
    close(last, state.numpy(), 2.0**-44)


@pytest.mark.parametrize("decay", [1e-3, 30.0, 1000.0])
def test_strong_decay_does_not_overflow(decay: float) -> None:
    """`exp(-sum of log_decay)` of a chunk is infinite here; the result is not."""
    arrays = draw((2,), 70, 8, 4, decay)
    want = recur(arrays, 8**-0.5, np.zeros((2, 8, 4)))
    out, after = et.nn.kda(*(x.astype(np.float32) for x in arrays))
    close(out, want[0], 1e-4)
    close(after, want[1], 1e-4)
    slopes = et.grad(
        lambda g: et.sum(et.nn.kda(*(et.array(x) for x in arrays[:3]), g, arrays[4])[0])
    )(et.array(arrays[3]))
    assert np.isfinite(slopes.numpy()).all()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_half_types_compute_in_float32(dtype: Any) -> None:
    arrays = [x.astype(dtype) for x in draw((1,), 40, 8, 8)]
    wide = [x.astype(np.float64) for x in arrays]
    want = recur(wide, 8**-0.5, np.zeros((1, 8, 8)))
    out, after = et.nn.kda(*arrays)
    assert out.dtype == dtype
    assert after.dtype == dtypes.float32
    bound = dtypes.epsilon(dtype) / 2 * np.abs(want[0]) * 1.01 + 1e-4
    assert (np.abs(out.numpy().astype(np.float64) - want[0]) <= bound).all()
    close(after, want[1], 1e-4)
    token, state = et.nn.kda_step(*(x[:, 0] for x in arrays), np.zeros((1, 8, 8), np.float32))
    assert token.dtype == dtype
    assert state.dtype == dtypes.float32


def test_derivatives_of_all_operands() -> None:
    """Over a border of chunks and of pieces; and to the second order in one chunk."""
    arrays = draw((1,), 37, 3, 2)
    state = np.random.default_rng(2).standard_normal((1, 3, 2))

    def f(*given: Any) -> Any:
        out, after = et.nn.kda(*given[:5], state=given[5], chunk_size=32)
        return et.tanh(out), et.tanh(after)

    check_grads(f, (*arrays, state), order=1)
    short = draw((1,), 5, 3, 2)
    check_grads(lambda *given: et.tanh(et.nn.kda(*given)[0]), short, order=2)
    token = tuple(x[:, 0] for x in short)
    check_grads(lambda *given: et.nn.kda_step(*given)[0], (*token, state), order=2)


def test_rows_and_compiled() -> None:
    arrays = [et.array(x) for x in draw((3,), 21, 4, 4)]
    want = et.nn.kda(*arrays)[0].numpy()
    rows = et.vmap(lambda *one: et.nn.kda(*one)[0])(*arrays)
    close(rows, want, 2.0**-46)
    close(et.jit(lambda *given: et.nn.kda(*given)[0])(*arrays), want, 2.0**-46)


def test_nothing_is_legal() -> None:
    arrays = draw((2,), 0, 4, 3)
    state = np.ones((2, 4, 3))
    out, after = et.nn.kda(*arrays, state=state)
    assert out.shape == (2, 0, 3)
    np.testing.assert_array_equal(after.numpy(), state)
    out, after = et.nn.kda(*draw((0,), 5, 4, 3))
    assert out.shape == (0, 5, 3)
    assert after.shape == (0, 4, 3)


def test_errors() -> None:
    q, k, v, g, beta = (x.astype(np.float32) for x in draw((2,), 5, 4, 3))
    with pytest.raises(ShapeError, match=r"kda: q .* do not fit"):
        et.nn.kda(q, k[:, :4], v, g, beta)
    with pytest.raises(ShapeError, match="do not fit"):
        et.nn.kda(q, k, v, g, beta[..., None])
    with pytest.raises(ShapeError, match="do not fit"):
        et.nn.kda(q, k, v, g[..., :1], beta)
    with pytest.raises(ShapeError, match=r"the state .* must have shape \[2, 4, 3\]"):
        et.nn.kda(q, k, v, g, beta, state=np.zeros((4, 3), np.float32))
    with pytest.raises(DTypeError, match="mixed dtypes"):
        et.nn.kda(q, k, v, g, beta, state=np.zeros((2, 4, 3)))
    with pytest.raises(DTypeError, match="mixed dtypes"):
        et.nn.kda(q, k, v.astype(np.float64), g, beta)
    with pytest.raises(DTypeError, match="floating"):
        et.nn.kda_step(*(x[:, 0].astype(np.int32) for x in (q, k, v, g, beta)), np.zeros((2, 4, 3)))
    with pytest.raises(ArgumentError, match="chunk_size is 0"):
        et.nn.kda(q, k, v, g, beta, chunk_size=0)
