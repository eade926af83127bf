"""Permutations and choices: those of jax.random, for batches of keys, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch import random

pytestmark = pytest.mark.usefixtures("runtime")

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "jax_random.json").read_text())
GRID = np.arange(12).reshape(3, 4)
P = np.array([0.1, 0.4, 0.0, 0.3, 0.2], np.float32)

DRAWS: dict[str, Any] = {
    "permutation": lambda k: random.permutation(k, 10),
    "permutation_long": lambda k: random.permutation(k, 2000)[..., :20],
    "permutation_rows": lambda k: random.permutation(k, GRID),
    "permutation_columns": lambda k: random.permutation(k, GRID, axis=1),
    "permutation_independent": lambda k: random.permutation(k, GRID, axis=-1, independent=True),
    "choice": lambda k: random.choice(k, 7, (2, 3)),
    "choice_rows": lambda k: random.choice(k, GRID, (2,)),
    "choice_unique": lambda k: random.choice(k, 9, (2, 3), replace=False),
    "choice_columns": lambda k: random.choice(k, GRID, (2,), replace=False, axis=1),
    "choice_p": lambda k: random.choice(k, 5, (12,), p=P),
    "choice_p_unique": lambda k: random.choice(k, 5, (3,), replace=False, p=P),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_jax(name: str) -> None:
    got = DRAWS[name](random.key(GOLDEN["seed"]))
    assert got.dtype == np.int64
    assert got.numpy().ravel().tolist() == GOLDEN[name]


@pytest.mark.parametrize("name", DRAWS)
def test_each_key_of_a_batch_draws_by_itself(name: str) -> None:
    keys = random.split(random.key(1), (2, 2))
    batch = DRAWS[name](keys).numpy()
    mapped = et.jit(et.vmap(et.vmap(DRAWS[name])))(keys).numpy()
    for row in np.ndindex(2, 2):
        alone = DRAWS[name](keys[row]).numpy()
        np.testing.assert_array_equal(batch[row], alone)
        np.testing.assert_array_equal(mapped[row], alone)


def test_permutations_are_permutations() -> None:
    key = random.key(3)
    for count in (0, 1, 2, 1000, 5000):
        assert sorted(random.permutation(key, count).tolist()) == list(range(count))
    values = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    rows = random.permutation(key, values).numpy()
    assert sorted(map(tuple, rows)) == sorted(map(tuple, values))


def test_every_order_is_as_likely() -> None:
    """Counts of the six orders of three elements lie within five standard deviations."""
    n = 6000
    drawn = random.permutation(random.split(random.key(5), n), 3).numpy()
    _, counts = np.unique(drawn @ [9, 3, 1], return_counts=True)
    assert len(counts) == 6
    assert np.abs(counts - n / 6).max() < 5 * np.sqrt(n * 5 / 36)


def test_gradients_pass_to_what_was_chosen() -> None:
    key = random.key(0)
    order = random.permutation(key, 4).numpy()
    weights = np.arange(4, dtype=np.float32)
    slope = et.grad(lambda x: et.sum(random.permutation(key, x) * weights))(et.ones(4))
    assert slope.numpy()[order].tolist() == weights.tolist()


def test_messages() -> None:
    key = random.key(0)
    with pytest.raises(et.errors.ArgumentError, match="draws without replacement from 3 elements"):
        random.choice(key, 3, (4,), replace=False)
    with pytest.raises(et.errors.ArgumentError, match="nothing to draw from"):
        random.choice(key, et.zeros((0, 2)), (1,))
    with pytest.raises(et.errors.ShapeError, match=r"p must have the shape \[3\]"):
        random.choice(key, 3, (4,), p=et.ones(2))
    with pytest.raises(et.errors.ShapeError, match="no axis to permute"):
        random.permutation(key, et.array(3.0))
    with pytest.raises(et.errors.ArgumentError, match="cannot order -1 numbers"):
        random.permutation(key, -1)
    assert random.choice(key, 0, (0,)).shape == (0,)
    assert random.choice(key, GRID, ()).shape == (4,)
