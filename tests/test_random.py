"""Distributions that draw in loops or in several variables: values of JAX, moments, derivatives."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch import random
from pyeffect_torch.random.gamma import _slope

GOLDEN = json.loads((Path(__file__).parent / "data" / "jax_random.json").read_text())
SHAPES = (0.01, 0.3, 1.0, 2.5, 40.0)
COVARIANCE = [[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 3.0]]
MEANS = np.array([0.0, 0.5, 3.0, 9.99, 10.0, 55.5, 1e4], np.float32)

# The wanted values went through as many roundings; a power 1 / 0.01 multiplies its own by 100.
ROUNDINGS = {"gamma": 256, "gamma_rows": 256, "loggamma": 32, "beta": 256, "dirichlet": 256,
             "multivariate_normal": 32}  # fmt: skip
QUADRATURE = {"float32": 2.0**-17, "float64": 2.0**-40}


def key() -> Any:
    return random.key(GOLDEN["seed"])


def draw(name: str, dtype: str, keys: Any) -> Any:
    a = et.array(np.array(SHAPES, dtype))
    if name == "beta":
        return random.beta(keys, a, et.flip(a))
    if name == "dirichlet":
        return random.dirichlet(keys, a[1:], (2,))
    if name == "multivariate_normal":
        mean = et.array(np.array([1.0, 2.0, 3.0], dtype))
        return random.multivariate_normal(keys, mean, et.array(np.array(COVARIANCE, dtype)), (2,))
    if name == "gamma_rows":
        return random.gamma(keys, a, (2, 5))
    return getattr(random, name)(keys, a)


def golden(name: str, dtype: str) -> Any:
    return np.array([float.fromhex(text) for text in GOLDEN[name][dtype]])


# --- values


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_draws_are_those_of_jax(runtime: None, name: str, dtype: str) -> None:
    got = draw(name, dtype, key())
    assert got.dtype == dtype
    tolerance = ROUNDINGS[name] * float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(got.numpy().ravel(), golden(name, dtype), rtol=tolerance)


def test_counts_are_those_of_jax(runtime: None) -> None:
    got = random.poisson(key(), et.array(MEANS), (3, 7))
    assert got.dtype == np.int64
    # A mean of 10,000 is found by logarithms of numbers as large: one may round to its neighbour.
    want = np.array(GOLDEN["poisson"]).reshape(3, 7)
    np.testing.assert_array_equal(got.numpy()[:, :6], want[:, :6])
    assert np.abs(got.numpy() - want).max() <= 1


@pytest.mark.parametrize("name", [*ROUNDINGS, "poisson"])
def test_each_key_of_a_batch_draws_by_itself(name: str) -> None:
    def one(keys: Any) -> Any:
        if name == "poisson":
            return random.poisson(keys, et.array(MEANS))
        return draw(name, "float32", keys)

    keys = random.split(random.key(1), 3)
    batch, mapped = one(keys).numpy(), et.jit(et.vmap(one))(keys).numpy()
    exact = name != "multivariate_normal"  # whose product may be summed in another order
    for row in range(3):
        alone = one(keys[row]).numpy()
        np.testing.assert_allclose(batch[row], alone, rtol=0 if exact else 1e-5)
        np.testing.assert_allclose(mapped[row], alone, rtol=0 if exact else 1e-5)


def test_moments() -> None:
    """Means and variances of n draws lie within five standard errors."""
    n, a, b = 1 << 14, 2.5, 1.5
    total = a + b
    keys = random.split(random.key(9), 6)
    cases = (
        (random.gamma(keys[0], a, (n,)), a, a, 6 / a),
        (random.gamma(keys[1], 0.3, (n,)), 0.3, 0.3, 6 / 0.3),
        (random.beta(keys[2], a, b, (n,)), a / total, a * b / total**2 / (total + 1), 0.0),
        (random.poisson(keys[3], 4.0, (n,)), 4.0, 4.0, 1 / 4),
        (random.poisson(keys[4], 60.0, (n,)), 60.0, 60.0, 1 / 60),
    )
    for drawn, mean, variance, excess in cases:
        values = drawn.numpy().astype(np.float64)
        assert abs(values.mean() - mean) < 5 * math.sqrt(variance / n)
        assert abs(values.var() - variance) < 5 * variance * math.sqrt((2 + excess) / n)
    vectors = random.dirichlet(keys[5], et.array([1.0, 2.0, 5.0]), (n,)).numpy()
    np.testing.assert_allclose(vectors.sum(1), 1, rtol=8 * 2.0**-23)
    np.testing.assert_allclose(vectors.mean(0), [1 / 8, 2 / 8, 5 / 8], atol=5 * 0.17 / math.sqrt(n))


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_covariances(method: Any) -> None:
    n = 1 << 14
    mean, cov = et.array([1.0, -2.0, 0.5]), et.array(COVARIANCE)
    values = random.multivariate_normal(key(), mean, cov, (n,), method=method).numpy()
    deviation = np.sqrt(np.diagonal(COVARIANCE))
    assert (np.abs(values.mean(0) - mean.numpy()) < 5 * deviation / math.sqrt(n)).all()
    error = np.abs(np.cov(values.T) - COVARIANCE)
    assert (error < 5 * np.outer(deviation, deviation) * math.sqrt(2 / n)).all()


# --- derivatives


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["gamma", "loggamma"])
def test_gradients_are_those_of_jax(runtime: None, name: str, dtype: str) -> None:
    a = et.array(np.array(SHAPES, dtype))
    f = getattr(random, name)
    want = golden(f"{name}_gradient", dtype)
    reverse = et.jit(et.grad(lambda v: et.sum(f(key(), v))))(a)
    np.testing.assert_allclose(reverse.numpy(), want, rtol=QUADRATURE[dtype])
    forward = et.jvp(lambda v: f(key(), v), (a,), (et.ones_like(a),))[1]
    np.testing.assert_allclose(forward.numpy(), want, rtol=QUADRATURE[dtype])


@pytest.mark.parametrize("a", [0.02, 0.3, 0.999, 1.0, 1.001, 4.0, 300.0])
def test_the_slope_keeps_the_distribution(a: float) -> None:
    """With `z(a)` moved along the slope, the mean of any function of z changes as it should.

    Here by Stein's identity for the gamma distribution: E[z^k] = Gamma(a + k) / Gamma(a), whose
    derivative by a is a mean of `k z^k slope`. Quantiles at equal probabilities stand for draws.
    """
    lengths = np.linspace(-700, math.log(a + 40 * math.sqrt(a) + 40), 400_001)
    density = np.exp(a * lengths - np.exp(lengths) - math.lgamma(a))
    step = lengths[1] - lengths[0]
    slope = _slope(et.array(np.full(lengths.shape, a)), et.array(lengths)).numpy()
    for k in (0.5, 1.0, 2.0):
        moment = math.exp(math.lgamma(a + k) - math.lgamma(a))
        weights = density * np.exp(k * lengths) * step
        np.testing.assert_allclose(weights.sum(), moment, rtol=1e-6)
        digamma = et.digamma(et.array(np.array([a + k, a]))).numpy()
        want = moment * (digamma[0] - digamma[1])
        np.testing.assert_allclose((k * weights * slope).sum(), want, rtol=1e-5)


@pytest.mark.parametrize("a", [0.05, 0.7, 1.3, 6.0, 80.0])
@pytest.mark.parametrize("quantile", [-1.5, 0.0, 1.5])
def test_the_second_derivative_follows_the_first(a: float, quantile: float) -> None:
    """Along the path `log z(a)` with that slope, the slope changes by its own derivative."""
    log_z = math.log(a) + quantile / math.sqrt(a) if a > 1 else math.log(a) + quantile / a

    def slope(v: float, length: float) -> float:
        return _slope(et.array(np.float64(v)), et.array(np.float64(length))).item()

    first = slope(a, log_z)
    h = 1e-4 * a
    middle = [log_z + first * d for d in (-h, h)]
    # A step of the midpoint rule: the path is as accurate as the difference below.
    ends = [
        log_z + d * slope(a + d / 2, (log_z + mid) / 2)
        for d, mid in zip((-h, h), middle, strict=True)
    ]
    change = (slope(a + h, ends[1]) - slope(a - h, ends[0])) / (2 * h)
    by_a, by_z = et.grad(_slope, (0, 1))(et.array(np.float64(a)), et.array(np.float64(log_z)))
    np.testing.assert_allclose(by_a.item() + by_z.item() * first, change, rtol=1e-5)


def test_second_derivatives_of_draws_pass_every_transform() -> None:
    a = et.array(np.array([0.4, 2.0, 9.0]))

    def total(v: Any) -> Any:
        return et.sum(random.gamma(key(), v) ** 2)

    hessian = et.jit(et.hessian(total))(a).numpy()
    assert np.isfinite(hessian).all()
    np.testing.assert_array_equal(hessian, np.diag(np.diagonal(hessian)))
    np.testing.assert_allclose(et.jacrev(et.grad(total))(a).numpy(), hessian, rtol=1e-9)
    rows = et.vmap(et.grad(lambda v: random.gamma(key(), v)))(a).numpy()
    assert [float(et.grad(lambda v: random.gamma(key(), v))(x).item()) for x in a] == rows.tolist()


def test_gradients_of_the_other_distributions() -> None:
    a, b = et.array(np.float64(2.0)), et.array(np.float64(3.0))
    slopes = et.grad(lambda x, y: random.beta(key(), x, y), (0, 1))(a, b)
    assert slopes[0].item() > 0 > slopes[1].item()
    weights = et.array(np.array([1.0, 2.0, 3.0]))
    jacobian = et.jacrev(lambda w: random.dirichlet(key(), w))(weights).numpy()
    np.testing.assert_allclose(jacobian.sum(0), 0, atol=1e-12)  # the draw sums to 1
    mean, cov = et.array(np.zeros(3)), et.array(np.array(COVARIANCE))
    et.testing.check_grads(lambda m, c: random.multivariate_normal(key(), m, c), (mean, cov))
    counted = et.grad(lambda m: et.sum(random.poisson(key(), m).astype("float32") * m))
    assert counted(et.array(3.0)).item() == random.poisson(key(), 3.0).item()


# --- types and messages


def test_types_and_shapes() -> None:
    assert random.gamma(key(), 2.0, (3,)).dtype == np.float32
    assert random.gamma(key(), 2, (3,), "bfloat16").dtype == ml_dtypes.bfloat16
    assert random.gamma(key(), et.ones((2, 1), "float16"), (2, 3)).dtype == np.float16
    assert random.beta(key(), et.ones((3, 1)), et.ones(2)).shape == (3, 2)
    assert random.gamma(key(), et.zeros(0) + 1).shape == (0,)
    assert random.poisson(key(), 2.0, (2, 2), "int8").dtype == np.int8
    assert random.dirichlet(key(), et.ones((4, 3))).shape == (4, 3)
    assert random.multivariate_normal(key(), et.zeros(2), et.eye(2), (5, 4)).shape == (5, 4, 2)
    assert np.isnan(random.gamma(key(), et.array([-1.0, np.nan])).numpy()).all()


def test_messages() -> None:
    with pytest.raises(et.errors.DTypeError, match=r"gamma: a parameter is floating, got int64"):
        random.gamma(key(), et.array([1, 2]))
    with pytest.raises(et.errors.DTypeError, match="beta: mixed dtypes"):
        random.beta(key(), et.ones(2), et.ones(2, "float64"))
    with pytest.raises(et.errors.ShapeError, match=r"gamma: parameters of shape \[3\] do not"):
        random.gamma(key(), et.ones(3), (3, 1))
    with pytest.raises(et.errors.ShapeError, match=r"a mean \[.., n\] and a covariance"):
        random.multivariate_normal(key(), et.zeros(2), et.eye(3))
    with pytest.raises(et.errors.ArgumentError, match="unknown method 'qr'"):
        random.multivariate_normal(key(), et.zeros(2), et.eye(2), method="qr")
    with pytest.raises(et.errors.ShapeError, match="dirichlet: alpha needs an axis"):
        random.dirichlet(key(), 1.0)
    with pytest.raises(et.errors.DTypeError, match="poisson: draws integers, not float32"):
        random.poisson(key(), 1.0, dtype="float32")
