"""Random numbers: the bits of jax.random, distributions, and where implicit draws differ."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch import random
from pyeffect_torch.core.array import placeholder
from pyeffect_torch.ops.threefry import encrypt

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "jax_random.json").read_text())


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


def key() -> Any:
    return random.key(42)


def ulps(got: Any, want: list[str], dtype: str) -> float:
    """The largest difference in units in the last place of the wanted values."""
    wanted = np.array([float.fromhex(text) for text in want])
    unit = np.exp2(np.floor(np.log2(np.abs(wanted)))) * float(ml_dtypes.finfo(dtype).eps)
    return float(np.max(np.abs(got.numpy().astype(np.float64) - wanted) / unit))


@pytest.mark.parametrize(("seed", "words"), GOLDEN["key"])
def test_keys(seed: int, words: list[int]) -> None:
    assert random.key(seed).tolist() == words
    assert random.key(et.array(np.int64(seed))).tolist() == words
    traced = et.jit(random.key)(np.int64(seed))
    assert traced.tolist() == words


def test_published_vectors_of_the_cipher() -> None:
    # Random123's known answers for threefry2x32 with 20 rounds.
    assert encrypt((0, 0), (0, 0)) == (0x6B200159, 0x99BA4EFE)
    ones = 0xFFFFFFFF
    assert encrypt((ones, ones), (ones, ones)) == (0x1CB996FC, 0xBB002BE7)
    pi = (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)
    assert encrypt(*pi) == (0xC4923A9C, 0x483DF7A0)


def test_split_and_fold_in() -> None:
    assert random.split(key(), 3).numpy().ravel().tolist() == GOLDEN["split"]
    assert random.split(key(), (2, 2)).numpy().ravel().tolist() == GOLDEN["split_2_2"]
    for data, words in GOLDEN["fold_in"]:
        assert random.fold_in(key(), data).tolist() == words
        assert random.fold_in(key(), et.array(np.uint32(data))).tolist() == words


def test_batches_of_keys_draw_as_each_key_alone() -> None:
    keys = random.split(key(), 3)
    rows = random.bits(keys, (4,)).numpy()
    folded = random.fold_in(keys, et.arange(3)).numpy()
    spread = random.fold_in(key(), et.arange(3)).numpy()
    for k in range(3):
        assert rows[k].tolist() == random.bits(keys[k], (4,)).tolist()
        assert folded[k].tolist() == random.fold_in(keys[k], k).tolist()
        assert spread[k].tolist() == random.fold_in(key(), k).tolist()
    mapped = et.vmap(lambda one: random.normal(one, (4,)))(keys).numpy()
    np.testing.assert_array_equal(mapped, random.normal(keys, (4,)).numpy())
    np.testing.assert_array_equal(
        et.vmap(lambda n: random.fold_in(key(), n))(et.arange(3)).numpy(), spread
    )


@pytest.mark.parametrize("dtype", GOLDEN["bits"])
def test_bits(dtype: str) -> None:
    got = random.bits(key(), (2, 3), dtype)
    assert got.dtype.name == dtype
    assert got.numpy().ravel().tolist() == GOLDEN["bits"][dtype]


@pytest.mark.parametrize("dtype", GOLDEN["uniform"])
def test_uniform_is_bit_equal(dtype: str) -> None:
    assert ulps(random.uniform(key(), (5,), dtype), GOLDEN["uniform"][dtype], dtype) == 0
    between = random.uniform(key(), (5,), dtype, -3, 5)
    assert ulps(between, GOLDEN["uniform_range"][dtype], dtype) == 0
    bounds = et.array(np.asarray(-3, dtype)), et.array(np.asarray(5, dtype))
    assert (
        ulps(random.uniform(key(), (5,), dtype, *bounds), GOLDEN["uniform_range"][dtype], dtype)
        == 0
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_normal_is_within_two_units(dtype: str) -> None:
    assert ulps(random.normal(key(), (16,), dtype), GOLDEN["normal"][dtype], dtype) <= 2


def test_normal_in_float64() -> None:
    # JAX's float64 log1p is itself off by some units, which near 0 the polynomial passes on.
    assert (
        ulps(random.normal(key(), (16,), "float64"), GOLDEN["normal"]["float64"], "float64") <= 32
    )


@pytest.mark.parametrize("name", ["exponential", "laplace", "gumbel", "cauchy", "logistic"])
def test_other_distributions(name: str) -> None:
    got = getattr(random, name)(key(), (6,))
    assert ulps(got, GOLDEN[name]["float32"], "float32") <= (4 if name == "cauchy" else 2)


def test_gradients_of_the_bounds() -> None:
    """A draw between two bounds follows them; what has no parameter is a constant."""

    def draw(bounds: Any) -> Any:
        return random.uniform(key(), (5,), "float64", bounds[0], bounds[1])

    bounds = et.array(np.array([-1.0, 3.0]))
    share = (draw(bounds).numpy() + 1) / 4
    jacobian = et.jacrev(draw)(bounds).numpy()
    np.testing.assert_allclose(jacobian, np.stack([1 - share, share], 1), rtol=8 * 2.0**-52)
    np.testing.assert_array_equal(et.jacfwd(draw)(bounds).numpy(), jacobian)
    et.testing.check_grads(
        lambda b: random.truncated_normal(key(), b[0], b[1], (5,), "float64"), (bounds,)
    )
    location, scale = et.array(np.array([2.0, 3.0]))
    for name in ("normal", "exponential", "gumbel", "laplace", "logistic", "cauchy"):
        noise = getattr(random, name)(key(), (), "float64")
        slopes = et.grad(lambda a, b, noise=noise: a + b * noise, (0, 1))(location, scale)
        assert (slopes[0].item(), slopes[1].item()) == (1.0, noise.item())


def test_truncated_normal() -> None:
    got = random.truncated_normal(key(), -0.5, 1.5, (6,))
    assert ulps(got, GOLDEN["truncated_normal"]["float32"], "float32") <= 2
    bounds = et.array([-0.5]), et.array(1.5)
    by_arrays = random.truncated_normal(key(), *bounds, (6,))
    assert ulps(by_arrays, GOLDEN["truncated_normal"]["float32"], "float32") <= 2
    assert random.truncated_normal(key(), *bounds).shape == (1,)
    many = random.truncated_normal(key(), -0.25, 0.25, (4096,), "float16").numpy()
    assert (np.abs(many) < 0.25).all()


@pytest.mark.parametrize(("dtype", "low", "high", "want"), GOLDEN["randint"])
def test_randint(dtype: str, low: int, high: int, want: list[int]) -> None:
    got = random.randint(key(), (5,), low, high, dtype)
    assert got.dtype.name == dtype
    assert got.tolist() == want
    if high <= np.iinfo(dtype).max:
        bounds = et.array(np.int64(low)), et.array(np.int64(high))
        assert random.randint(key(), (5,), *bounds, dtype).tolist() == want


def test_choices() -> None:
    assert random.bernoulli(key(), 0.3, (20,)).numpy().astype(int).tolist() == GOLDEN["bernoulli"]
    logits = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    assert random.categorical(key(), logits).tolist() == GOLDEN["categorical"]
    assert random.categorical(key(), logits, axis=0).tolist() == GOLDEN["categorical_axis0"]
    draws = random.categorical(key(), logits, shape=(5, 3))
    assert draws.numpy().ravel().tolist() == GOLDEN["categorical_draws"]


def test_moments() -> None:
    """Means of n draws lie within five standard errors."""
    n = 1 << 14
    for name, mean, deviation in (
        ("uniform", 0.5, math.sqrt(1 / 12)),
        ("normal", 0.0, 1.0),
        ("exponential", 1.0, 1.0),
        ("laplace", 0.0, math.sqrt(2)),
        ("gumbel", 0.5772156649, math.pi / math.sqrt(6)),
    ):
        drawn = getattr(random, name)(random.key(7), (n,)).numpy().astype(np.float64)
        assert abs(drawn.mean() - mean) < 5 * deviation / math.sqrt(n), name


def test_types_on_placeholders() -> None:
    keys = placeholder((3, 2), et.dtypes.uint32, "keys")
    assert random.split(keys, 4).shape == (3, 4, 2)
    assert random.normal(keys, (5,), "bfloat16").shape == (3, 5)
    assert random.randint(keys, (), 0, 9).dtype == np.int64
    assert random.categorical(placeholder((2,), et.dtypes.uint32, "k"), et.zeros((3, 4))).shape == (
        3,
    )


def test_messages() -> None:
    with pytest.raises(et.errors.DTypeError, match=r"a key is uint32, got int64\[2\]"):
        random.bits(et.arange(2))
    with pytest.raises(et.errors.ShapeError, match="last axis of extent 2"):
        random.bits(et.zeros((3,), "uint32"))
    with pytest.raises(et.errors.DTypeError, match="uniform: draws floating numbers, not int32"):
        random.uniform(key(), (2,), "int32")
    with pytest.raises(et.errors.DTypeError, match="bits: draws unsigned integers, not int8"):
        random.bits(key(), (2,), "int8")
    with pytest.raises(et.errors.ArgumentError, match=r"randint: \[0, 300\) does not fit uint8"):
        random.randint(key(), (2,), 0, 300, "uint8")
    with pytest.raises(et.errors.ShapeError, match=r"shape \[4\] does not end with \[3\]"):
        random.categorical(key(), et.zeros((3, 2)), shape=(4,))
    with pytest.raises(et.errors.ArgumentError, match="does not fit 64 bits"):
        random.key(1 << 64)
    with pytest.raises(et.errors.ArgumentError, match=r"interval .* is empty"):
        random.truncated_normal(key(), 1.0, 1.0)


# --- draws without a key


def test_the_seed_fixes_the_sequence() -> None:
    et.seed(5)
    first = et.randn((3,)).tolist(), et.rand((2, 2)).tolist()
    et.seed(5)
    again = et.randn((3,)).tolist(), et.rand((2, 2)).tolist()
    assert first == again
    assert et.randn((3,)).tolist() != first[0]


def test_one_node_is_one_draw() -> None:
    x = et.rand(3)
    assert x.tolist() == x.tolist() == (x + 0).tolist()


def test_each_call_of_a_compiled_function_draws() -> None:
    f = et.jit(lambda: (et.rand(3), et.rand(3)))
    (a, b), (c, d) = f(), f()
    values = {tuple(x.tolist()) for x in (a, b, c, d)}
    assert len(values) == 4


def test_rows_of_vmap_draw_their_own() -> None:
    zeros = np.zeros((4, 3), np.float32)
    flat = et.vmap(lambda x: x + et.rand())(zeros[:, 0]).numpy()
    nested = et.vmap(et.vmap(lambda x: x + et.rand()))(zeros).numpy()
    inlined = et.vmap(et.jit(lambda x: x + et.rand()))(zeros[:, 0]).numpy()
    compiled = et.jit(et.vmap(lambda x: x + et.rand()))(zeros[:, 0]).numpy()
    assert [len(np.unique(v)) for v in (flat, nested, inlined, compiled)] == [4, 12, 4, 4]


def test_checkpoint_recomputes_the_same_draw() -> None:
    def loss(x: Any) -> Any:
        return et.sum(x * et.checkpoint(lambda v: v * et.rand((3,)))(x))

    et.seed(1)
    value, slopes = et.value_and_grad(loss)(et.ones(3))
    np.testing.assert_allclose(float(value) * 2, slopes.numpy().sum(), rtol=8 * 2.0**-23)


def test_seed_refuses_other_things() -> None:
    with pytest.raises(et.errors.ArgumentError, match="is no int of 64 bits"):
        et.seed(1.5)
