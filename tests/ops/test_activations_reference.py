"""Activations against their formulas in float64; kinks, NaN, infinities and messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

X = np.concatenate([np.linspace(-6, 6, 25), [-30.0, 30.0, 0.1]])
# Rounding of a product of a few factors, of sums whose terms are no larger than |x| + 1.
RTOL, ATOL = 16 * 2.0**-52, 16 * 2.0**-52


def phi(x: Any) -> Any:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


def softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


def sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0, -x))


def tanh_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


FORMULAS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "relu": (et.relu, lambda x: np.maximum(x, 0)),
    "relu6": (et.relu6, lambda x: np.clip(x, 0, 6)),
    "hardtanh": (et.hardtanh, lambda x: np.clip(x, -1, 1)),
    "leaky_relu": (et.leaky_relu, lambda x: np.where(x >= 0, x, 0.01 * x)),
    "elu": (et.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "elu 2": (lambda x: et.elu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(x))),
    "celu": (lambda x: et.celu(x, 2.0), lambda x: np.where(x > 0, x, 2 * np.expm1(x / 2))),
    "selu": (
        et.selu,
        lambda x: (
            1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
        ),
    ),
    "softplus": (et.softplus, softplus),
    "log_sigmoid": (et.log_sigmoid, lambda x: -softplus(-x)),
    "silu": (et.silu, lambda x: x * sigmoid(x)),
    "mish": (et.mish, lambda x: x * np.tanh(softplus(x))),
    "gelu": (et.gelu, lambda x: x * phi(x)),
    "gelu tanh": (lambda x: et.gelu(x, "tanh"), tanh_gelu),
    "softsign": (et.softsign, lambda x: x / (1 + np.abs(x))),
    "hard_sigmoid": (et.hard_sigmoid, lambda x: np.clip(x + 3, 0, 6) / 6),
    "hard_swish": (et.hard_swish, lambda x: x * np.clip(x + 3, 0, 6) / 6),
}


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name: str) -> None:
    ours, formula = FORMULAS[name]
    np.testing.assert_allclose(ours(X).numpy(), formula(X), rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", FORMULAS)
def test_nan_propagates_and_types_are_kept(name: str) -> None:
    ours, _ = FORMULAS[name]
    got = ours(et.array(np.array([np.nan], np.float16)))
    assert got.dtype == np.float16
    assert np.isnan(got.numpy()).all()
    assert ours(et.zeros((2, 0, 3))).numpy().shape == (2, 0, 3)


@pytest.mark.parametrize("name", FORMULAS)
def test_gradient_is_finite_everywhere(name: str) -> None:
    ours, _ = FORMULAS[name]
    x = et.array(np.array([-1e4, -80.0, 0.0, 80.0, 1e4], np.float32))
    slopes = et.grad(lambda v: et.sum(ours(v)))(x).numpy()
    assert np.isfinite(slopes).all(), slopes


@pytest.mark.parametrize(
    ("f", "at", "slope"),
    [
        (et.relu, 0.0, 0.0),
        (et.relu6, 0.0, 0.0),
        (et.relu6, 6.0, 0.0),
        (et.hardtanh, 1.0, 0.0),
        (et.leaky_relu, 0.0, 1.0),
        (et.elu, 0.0, 1.0),
        (et.softplus, 0.0, 0.5),
        (et.gelu, 0.0, 0.5),
        (et.softsign, 0.0, 1.0),
    ],
)
def test_slopes_at_kinks(f: Callable[..., Any], at: float, slope: float) -> None:
    assert float(et.grad(f)(at)) == slope


def test_second_derivative_of_softplus_at_zero() -> None:
    assert float(et.grad(et.grad(et.softplus))(0.0)) == 0.25


def test_relu_of_integers() -> None:
    got = et.relu(np.array([-2, 0, 3], np.int16)).numpy()
    assert got.dtype == np.int16
    np.testing.assert_array_equal(got, [0, 0, 3])


def test_gated_units_split_an_axis() -> None:
    x = np.linspace(-2, 2, 24).reshape(4, 6)
    a, b = x[:, :3], x[:, 3:]
    close = {"rtol": RTOL, "atol": ATOL}
    np.testing.assert_allclose(et.glu(x).numpy(), a * sigmoid(b), **close)
    np.testing.assert_allclose(et.swiglu(x).numpy(), a * sigmoid(a) * b, **close)
    want = a * phi(a.ravel()).reshape(a.shape) * b
    np.testing.assert_allclose(et.geglu(x).numpy(), want, **close)
    top, bottom = x[:2], x[2:]
    np.testing.assert_allclose(et.glu(x, axis=0).numpy(), top * sigmoid(bottom), **close)


def test_messages() -> None:
    with pytest.raises(et.errors.ShapeError, match=r"glu: axis 1 of float32\[2, 3\] has an odd"):
        et.glu(et.zeros((2, 3)))
    with pytest.raises(et.errors.ArgumentError, match="approximate is 'erf'"):
        et.gelu(et.zeros(2), "erf")
    with pytest.raises(et.errors.DTypeError, match=r"silu: needs a floating array, got int64"):
        et.silu(et.arange(3))
    with pytest.raises(et.errors.DTypeError, match="relu: has no meaning for bool"):
        et.relu(et.array([True]))
    with pytest.raises(et.errors.ArgumentError, match="minimum 2 is above maximum 1"):
        et.hardtanh(et.zeros(2), 2, 1)
