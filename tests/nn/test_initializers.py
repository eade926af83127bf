"""Initializers: means, deviations, fans, dtypes, transforms."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.nn import initializers

SHAPE = (64, 48, 5)
FAN_IN, FAN_OUT = 48 * 5, 64 * 5
WRONG: dict[str, Any] = {"mode": "in"}
# What is drawn: the deviation, and the bound if there is one.
DRAWN: dict[str, tuple[float, float]] = {
    "normal": (1.0, math.inf),
    "truncated_normal": (0.8796, 2.0),
    "xavier_uniform": (math.sqrt(2 / (FAN_IN + FAN_OUT)), math.sqrt(6 / (FAN_IN + FAN_OUT))),
    "xavier_normal": (math.sqrt(2 / (FAN_IN + FAN_OUT)), math.inf),
    "kaiming_uniform": (math.sqrt(2 / FAN_IN), math.sqrt(6 / FAN_IN)),
    "kaiming_normal": (math.sqrt(2 / FAN_IN), math.inf),
    "lecun_uniform": (math.sqrt(1 / FAN_IN), math.sqrt(3 / FAN_IN)),
    "lecun_normal": (math.sqrt(1 / FAN_IN), math.sqrt(1 / FAN_IN) * 2 / 0.8796),
}


@pytest.mark.parametrize("name", DRAWN)
def test_deviation_and_bound_are_those_of_the_formula(name: str) -> None:
    deviation, bound = DRAWN[name]
    x = getattr(initializers, name)(et.random.key(3), SHAPE, "float64").numpy()
    assert x.shape == SHAPE
    # 15360 numbers: the mean is within 5 deviations of its own, the deviation within 5 of its.
    assert abs(x.mean()) < 5 * deviation / math.sqrt(x.size)
    assert abs(x.std() / deviation - 1) < 5 / math.sqrt(x.size)
    assert np.abs(x).max() <= bound * 1.0001
    if math.isfinite(bound):
        assert np.abs(x).max() > 0.98 * bound


def test_options_change_the_distribution() -> None:
    key = et.random.key(1)
    out = initializers.kaiming_normal(key, SHAPE, mode="fan_out", slope=1.0).numpy()
    assert abs(out.std() * math.sqrt(FAN_OUT) - 1) < 0.05
    x = initializers.normal(key, SHAPE, mean=3.0, stddev=0.5).numpy()
    assert abs(x.mean() - 3) < 0.05 and abs(x.std() - 0.5) < 0.05
    u = initializers.uniform(key, SHAPE, low=2.0, high=5.0).numpy()
    assert u.min() >= 2 and u.max() < 5 and abs(u.mean() - 3.5) < 0.05
    t = initializers.truncated_normal(key, SHAPE, lower=0.0, upper=1.0, stddev=2.0).numpy()
    assert t.min() > 0 and t.max() < 2
    doubled = initializers.xavier_uniform(key, SHAPE, gain=2.0).numpy()
    np.testing.assert_allclose(doubled, 2 * initializers.xavier_uniform(key, SHAPE).numpy())


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (6, 2, 2), (2, 0), (0, 3)])
def test_orthogonal_has_orthonormal_rows_or_columns(shape: tuple[int, ...]) -> None:
    made = initializers.orthogonal(et.random.key(2), shape, "float64", gain=2.0).numpy()
    matrix = made.reshape(shape[0], math.prod(shape[1:])) / 2
    product = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(product, np.eye(len(product)), atol=1e-14)


def test_orthogonal_matrices_are_evenly_distributed() -> None:
    """The mean of each entry is 0, the signs on the diagonal too."""
    keys = et.random.split(et.random.key(5), 2000)
    draws = et.vmap(lambda key: initializers.orthogonal(key, (3, 3)))(keys).numpy()
    assert np.abs(draws.mean(0)).max() < 5 / np.sqrt(3 * 2000)


def test_constants_do_not_need_the_key() -> None:
    assert not initializers.zeros(None, (2, 3)).numpy().any()
    assert (initializers.ones(None, (2, 3), "int8").numpy() == 1).all()
    assert (initializers.constant(None, (2,), "float64", value=2.5).numpy() == 2.5).all()


@pytest.mark.parametrize("name", initializers.__all__)
def test_every_initializer_takes_key_shape_dtype(name: str) -> None:
    function = getattr(initializers, name)
    options = {"value": 2} if name == "constant" else {}
    assert list(inspect.signature(function).parameters)[:3] == ["key", "shape", "dtype"]
    key = et.random.key(0)
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for shape in ((4, 3), (4, 3, 2), (4, 4)):
            made = function(key, shape, dtype, **options)
            assert (made.shape, made.dtype.name) == (shape, dtype)
            assert np.isfinite(made.numpy().astype(np.float64)).all()
    jitted = et.jit(lambda key: function(key, (5, 3), **options))(key)
    np.testing.assert_array_equal(jitted.numpy(), function(key, (5, 3), **options).numpy())


@pytest.mark.parametrize("name", sorted({*initializers.__all__} - {"constant", "orthogonal"}))
def test_shapes_without_two_axes_are_legal(name: str) -> None:
    for shape in ((), (3,), (0, 4), (4, 0)):
        assert getattr(initializers, name)(et.random.key(0), shape).numpy().shape == shape


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3), (4, 4), (0, 3)])
def test_orthogonal_rows_or_columns(shape: tuple[int, ...]) -> None:
    made = initializers.orthogonal(et.random.key(2), shape, "float64", gain=2.0).numpy()
    matrix = made.reshape(shape[0], -1) / 2 if made.size else made
    small = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    # Each element of the product is a sum of at most 6 products of elements below 1.
    np.testing.assert_allclose(small @ small.T, np.eye(len(small)), rtol=0, atol=64 * 2.0**-52)


def test_orthogonal_matrices_have_no_preferred_signs() -> None:
    keys = et.random.split(et.random.key(5), 400)
    first = et.vmap(lambda key: initializers.orthogonal(key, (3, 3)))(keys).numpy()
    # Each element has mean 0 and variance 1/3.
    assert np.abs(first.mean(0)).max() < 5 * math.sqrt(1 / 3 / 400)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda key: initializers.kaiming_normal(key, (2, 2), **WRONG), "mode is 'in'"),
        (lambda key: initializers.xavier_normal(key, (2, 2), gain=-1.0), "the gain is -1.0"),
        (lambda key: initializers.orthogonal(key, (3,)), "no matrix"),
    ],
)
def test_messages(call: Any, words: str) -> None:
    with pytest.raises((et.errors.ArgumentError, et.errors.ShapeError), match=words):
        call(et.random.key(0))


def test_orthogonal_needs_a_matrix() -> None:
    with pytest.raises(et.errors.ShapeError, match=r"orthogonal: shape \[3\] is that of no matrix"):
        initializers.orthogonal(et.random.key(0), (3,))
