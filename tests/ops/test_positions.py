"""Rotary and learned positions, on both runtimes, against formulas pair by pair."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import DTypeError, IndexOutOfBoundsError, ShapeError
from pyeffect_torch.testing import check_grads

pytestmark = pytest.mark.usefixtures("runtime")


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def rotate(x: Any, positions: Any, base: float, interleaved: bool) -> Any:
    """One pair after the other; frequency and angle are rounded to float32."""
    x = x.astype(np.float64)
    out = np.zeros(x.shape)
    half = x.shape[-1] // 2
    places = np.broadcast_to(positions, x.shape[:-1])
    for *row, j in np.ndindex(*x.shape[:-1], half):
        frequency = np.float32(base ** (-2 * j / x.shape[-1]))
        angle = float(np.float32(places[tuple(row)]) * frequency)
        a, b = (2 * j, 2 * j + 1) if interleaved else (j, j + half)
        c, s = math.cos(angle), math.sin(angle)
        first, second = x[(*row, a)], x[(*row, b)]
        out[(*row, a)] = first * c - second * s
        out[(*row, b)] = second * c + first * s
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("base", [10000.0, 500.0])
@pytest.mark.parametrize("shape", [(7, 8), (2, 3, 40, 6), (3, 2, 2), (2, 0, 4), (2, 3, 0)])
def test_rotary_embedding(shape: Any, base: float, interleaved: bool) -> None:
    x = draw(*shape)
    got = et.nn.rotary_embedding(x, base=base, interleaved=interleaved)
    want = rotate(x, np.arange(shape[-2]), base, interleaved)
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=16 * 2.0**-52)


@pytest.mark.parametrize(
    "positions",
    [np.array([5, 0, 1000]), np.array([[[3], [900]]]), np.array(7), np.array([2], "u1")],
)
def test_rotary_embedding_at_given_positions(positions: Any) -> None:
    x = draw(2, 2, 3, 4)
    got = et.nn.rotary_embedding(x, positions)
    np.testing.assert_allclose(
        got.numpy(), rotate(x, positions, 10000.0, False), rtol=0, atol=16 * 2.0**-52
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rotary_embedding_rounds_once(dtype: str) -> None:
    kind = dtypes.canonical(dtype)
    x = draw(2, 70, 16).astype(kind)
    got = et.nn.rotary_embedding(x)
    assert got.dtype is kind
    want = rotate(x, np.arange(70), 10000.0, False)
    error = np.abs(got.numpy().astype(np.float64) - want)
    half = float(ml_dtypes.finfo(kind).eps) / 2
    assert (error <= half * np.abs(want) * 1.01 + 8 * 2.0**-24).all()


def test_a_decoder_goes_on_where_the_prompt_ended() -> None:
    x = draw(1, 2, 10, 8)
    whole = et.nn.rotary_embedding(x).numpy()
    last = et.nn.rotary_embedding(x[:, :, 9:], np.array([9])).numpy()
    np.testing.assert_array_equal(last, whole[:, :, 9:])


def test_rotation_keeps_products_of_equal_distance() -> None:
    q, k = draw(1, 8), draw(1, 8, seed=1)

    def product(i: int, j: int) -> float:
        a = et.nn.rotary_embedding(q, np.array([i]))
        b = et.nn.rotary_embedding(k, np.array([j]))
        return float(et.sum(a * b))

    assert abs(product(3, 1) - product(13, 11)) < 1e-5  # angles are rounded to float32


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_derivatives_and_rows(interleaved: bool) -> None:
    def f(a: Any) -> Any:
        return et.nn.rotary_embedding(a, interleaved=interleaved)

    check_grads(lambda a: et.tanh(f(a)), (draw(2, 3, 4),), order=2)
    x = draw(3, 2, 5, 4)
    np.testing.assert_array_equal(et.vmap(f)(et.array(x)).numpy(), f(x).numpy())
    # The gradient is the rotation back.
    y, pull = et.vjp(f, et.array(x))
    np.testing.assert_allclose(pull(y)[0].numpy(), x, rtol=0, atol=8 * 2.0**-52)


def test_rotary_errors() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    with pytest.raises(ShapeError, match="even depth"):
        et.nn.rotary_embedding(np.zeros((2, 3), np.float32))
    with pytest.raises(ShapeError, match="even depth"):
        et.nn.rotary_embedding(np.zeros(4, np.float32))
    with pytest.raises(ShapeError, match=r"positions int64\[2\] do not fit float32\[2, 3, 4\]"):
        et.nn.rotary_embedding(x, np.arange(2))
    with pytest.raises(DTypeError, match="positions must be an integer array"):
        et.nn.rotary_embedding(x, np.zeros(3, np.float32))
    with pytest.raises(DTypeError, match="floating"):
        et.nn.rotary_embedding(x.astype(np.int32))


def test_position_embedding() -> None:
    table = draw(10, 3)
    np.testing.assert_array_equal(et.nn.position_embedding(table, 4).numpy(), table[:4])
    np.testing.assert_array_equal(et.nn.position_embedding(table, 4, offset=6).numpy(), table[6:])
    cursor = et.nn.position_embedding(table, 2, offset=np.array(8))
    np.testing.assert_array_equal(cursor.numpy(), table[8:])
    cursors = et.nn.position_embedding(table, 2, offset=np.array([0, 5], np.int32))
    np.testing.assert_array_equal(cursors.numpy(), np.stack([table[:2], table[5:7]]))
    assert et.nn.position_embedding(table, 0, offset=np.array([1])).shape == (1, 0, 3)
    slopes = et.grad(lambda t: et.sum(et.nn.position_embedding(t, 2, offset=np.array([0, 1]))))(
        et.array(table)
    )
    np.testing.assert_array_equal(slopes.numpy()[:4, 0], [1, 2, 1, 0])


def test_position_embedding_errors() -> None:
    table = np.zeros((4, 2), np.float32)
    with pytest.raises(ShapeError, match="positions 2 to 5 do not lie in the 4 rows"):
        et.nn.position_embedding(table, 3, offset=2)
    with pytest.raises(ShapeError, match="needs a table"):
        et.nn.position_embedding(table[0], 1)
    with pytest.raises(DTypeError, match="the offset must be an integer"):
        et.nn.position_embedding(table, 1, offset=np.zeros(1, np.float32))
    with pytest.raises(IndexOutOfBoundsError):
        et.nn.position_embedding(table, 2, offset=np.array([3])).numpy()
