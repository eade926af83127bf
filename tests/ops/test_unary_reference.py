"""Elementwise ops of one operand: references against NumPy, types, messages, edges."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.array import bind, placeholder
from pyeffect_torch.core.op import REGISTRY
from pyeffect_torch.ops.unary import integer_power

EPS = float(np.finfo(np.float32).eps)

# NumPy's name where it differs, or values computed by hand.
PEERS: dict[str, Any] = {
    "negative": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "arcsinh": np.arcsinh,
    "arccosh": np.arccosh,
    "arctanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.round,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
POINTS = np.array(
    [-np.inf, -3.5, -2.5, -1.0, -0.5, -0.0, 0.0, 1e-30, 0.5, 1.0, 1.5, 2.5, 40.0, np.inf, np.nan]
)


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_values_are_numpys(name: str, dtype: Any) -> None:
    x = POINTS.astype(dtype)
    with np.errstate(all="ignore"):
        want = PEERS[name](x.astype(np.float64))
        want = want if want.dtype == np.bool_ else want.astype(dtype)
    got = getattr(et, name)(x).numpy()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("name", sorted({*PEERS, "erf", "erfc", "sigmoid", "rsqrt"} - {"isnan"}))
def test_type_is_inferred(name: str) -> None:
    x = placeholder((2, 0, 3), et.dtypes.float16, "x")
    node = bind(REGISTRY[name], (x,))
    assert node.shape == (2, 0, 3)
    assert node.dtype == (np.bool_ if name in ("isinf", "isfinite") else np.float16)


def test_special_functions() -> None:
    points = [-3.0, -0.25, 0.0, 0.5, 2.0, 6.0]
    x = np.array(points)
    np.testing.assert_array_equal(et.erf(x).numpy(), [math.erf(v) for v in points])
    np.testing.assert_array_equal(et.erfc(x).numpy(), [math.erfc(v) for v in points])
    np.testing.assert_allclose(
        et.sigmoid(x).numpy(), [1 / (1 + math.exp(-v)) for v in points], rtol=4 * 2.0**-52
    )
    edges = et.sigmoid(np.array([-np.inf, -800.0, 0.0, 800.0, np.inf, np.nan])).numpy()
    np.testing.assert_array_equal(edges, [0.0, math.exp(-745.2), 0.5, 1.0, 1.0, np.nan])
    np.testing.assert_array_equal(et.rsqrt(np.array([0.25, 4.0, 0.0])).numpy(), [2.0, 0.5, np.inf])


def test_integers_keep_their_dtype() -> None:
    x = np.array([-128, -3, 0, 5], np.int8)
    for name in ("negative", "abs", "sign", "square"):
        got = getattr(et, name)(x).numpy()
        want = PEERS[name](x)
        assert got.dtype == np.int8
        np.testing.assert_array_equal(got, want)
    for name in ("floor", "ceil", "trunc", "round"):
        assert getattr(et, name)(et.array(x)).dtype == np.int8
    np.testing.assert_array_equal(et.isnan(x).numpy(), np.zeros(4, np.bool_))
    np.testing.assert_array_equal(et.isfinite(x).numpy(), np.ones(4, np.bool_))
    np.testing.assert_array_equal(et.bitwise_not(x).numpy(), ~x)
    np.testing.assert_array_equal((~et.array([True, False])).numpy(), [False, True])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, -1, -2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
def test_integer_power(n: int, dtype: Any) -> None:
    x = np.array([1, 2, 3, 5], dtype)
    if n < 0 and x.dtype.kind in "iu":
        words = rf"{x.dtype.name}\[4\] to the power {n} is no integer"
        with pytest.raises(et.errors.DTypeError, match=words):
            integer_power(x, n)
        return
    got = integer_power(x, n).numpy()
    want = x**n if x.dtype.kind in "iu" else np.power(x.astype(np.float64), n).astype(dtype)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want)


def test_integer_power_edges() -> None:
    x = np.array([np.nan, 0.0, np.inf], np.float32)
    np.testing.assert_array_equal(integer_power(x, 0).numpy(), np.ones(3))
    assert integer_power(np.int8(3), 1 << 40).item() == pow(3, 1 << 40, 256)
    slope = et.grad(lambda v: v**2)
    curvature = et.grad(et.grad(lambda v: v**1 + v**0))
    assert float(slope(0.0)) == 0.0
    assert float(curvature(0.0)) == 0.0
    assert float(et.grad(et.grad(lambda v: v**3))(2.0)) == 12.0


@pytest.mark.parametrize("name", ["sqrt", "exp", "sigmoid", "isnan", "floor"])
def test_bools_are_refused_by_floating_ops(name: str) -> None:
    if name == "isnan":
        assert not et.isnan(True).numpy()
        return
    with pytest.raises(et.errors.DTypeError, match=rf"{name}: has no meaning for bool\[2\]"):
        getattr(et, name)(np.array([True, False]))


def test_messages_name_the_cure() -> None:
    with pytest.raises(et.errors.DTypeError, match=r"sqrt: has no meaning for int64\[\]") as caught:
        et.sqrt(et.array(4))
    assert "x.astype('float32')" in str(caught.value)
    with pytest.raises(et.errors.DTypeError, match="x != 0"):
        et.logical_not(et.array([1.0]))
    with pytest.raises(et.errors.DTypeError, match="cast it to bool or an integer dtype"):
        et.bitwise_not(et.array([1.0]))
    with pytest.raises(et.errors.ArgumentError, match="the exponent must be an int, got float"):
        integer_power(et.array(1.0), 2.0)


def test_gradients_at_kinks_are_zero() -> None:
    assert float(et.grad(et.abs)(0.0)) == 0.0
    assert float(et.grad(lambda x: et.floor(x) + et.round(x) + et.sign(x))(0.3)) == 0.0


@pytest.mark.parametrize("x", [1e-20, 1e-6, 1e-3])
def test_second_derivatives_keep_relative_accuracy(x: float) -> None:
    at = et.array(np.float32(x))
    for f, want in (
        (et.tanh, -2 * math.tanh(x) * (1 - math.tanh(x) ** 2)),
        (et.arcsin, x * (1 - x * x) ** -1.5),
        (et.arctanh, 2 * x / (1 - x * x) ** 2),
        (et.erf, -4 / math.sqrt(math.pi) * x * math.exp(-x * x)),
    ):
        got = float(et.grad(et.grad(f))(at))
        assert abs(got - want) <= 8 * EPS * abs(want), f


def test_slope_of_sigmoid_keeps_its_digits_far_out() -> None:
    got = float(et.grad(et.sigmoid)(et.array(np.float32(30.0))))
    want = math.exp(-30) / (1 + math.exp(-30)) ** 2
    assert abs(got - want) <= 4 * EPS * want


def test_logaddexp() -> None:
    inf = np.float32(np.inf)
    x = np.array([0.0, -20.0, 1e30, -inf, inf, -inf, 3.0], np.float32)
    y = np.array([0.0, 0.0, -1e30, -inf, inf, 2.0, np.nan], np.float32)
    with np.errstate(all="ignore"):
        want = np.logaddexp(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    got = et.logaddexp(x, y).numpy()
    np.testing.assert_allclose(got, want, rtol=4 * EPS)
    slopes = et.grad(lambda a: et.sum(et.logaddexp(a, y[:-1])))(et.array(x[:-1])).numpy()
    low = math.exp(-20) / (1 + math.exp(-20))
    np.testing.assert_allclose(slopes, [0.5, low, 1.0, 0.0, 0.0, 0.0], rtol=4 * EPS)
    curvature = et.grad(et.grad(lambda a: et.logaddexp(a, 0.0)))
    assert float(curvature(0.0)) == 0.25


def test_hypot() -> None:
    big = np.float32(1e30)
    assert float(et.hypot(3 * big, 4 * big)) == pytest.approx(5e30, rel=4 * EPS)
    assert float(et.hypot(np.float32(np.nan), np.float32(-np.inf))) == np.inf
    assert np.isnan(float(et.hypot(np.float32(np.nan), np.float32(1))))
    slope = et.grad(lambda x: et.hypot(x, et.zeros_like(x)))
    assert float(slope(0.0)) == 0.0
    across = et.grad(et.grad(lambda y: et.hypot(et.full_like(y, 4.0), y)))
    assert float(across(0.0)) == 0.25
