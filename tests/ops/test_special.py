"""Special functions and those of signs, bits and divisors: values, edges, derivatives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.testing import check_grads
from pyeffect_torch.testing.values import difference

FLOATS = sorted(dtypes.FLOATS, key=str)
INTEGERS = sorted(dtypes.INTEGERS, key=str)
NUMERIC = [*FLOATS, *INTEGERS]
POINTS = np.array(
    [0.0, -0.0, 1e-7, -0.3, 0.5, 1.0, -1.0, 1.5, -2.0, 2.25, 7.0, -1e4, np.inf, -np.inf, np.nan]
)


def of(dtype: Any) -> Any:
    """Awkward values of a dtype."""
    if dtype in dtypes.FLOATS:
        return POINTS.astype(dtype)
    info = np.iinfo(dtype)
    values = {info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 3, 12, info.max}
    return np.array(sorted(v for v in values if info.min <= v <= info.max), dtype)


@pytest.fixture(params=[et.cpu, et.reference], ids=["cpu", "reference"], autouse=True)
def on_each_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with et.use(request.param()):
        yield


def wide(x: Any) -> Any:
    return x.astype(np.float64) if x.dtype in dtypes.FLOATS else x


def same(got: Any, want: Any) -> None:
    """Equal, signs of zeros too; NaN in the same places."""
    a, b = wide(np.asarray(got)), wide(np.asarray(want))
    np.testing.assert_array_equal(a, b)
    if a.dtype == np.float64:
        signed = ~np.isnan(b)
        np.testing.assert_array_equal(np.signbit(a[signed]), np.signbit(b[signed]))


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_signbit_sees_every_sign(dtype: Any) -> None:
    x = of(dtype)
    want = np.signbit(wide(x)) if dtype in dtypes.FLOATS else x < 0
    np.testing.assert_array_equal(et.signbit(x).numpy(), want)
    nan = np.copysign(np.nan, -1.0) * np.ones(1)
    assert et.signbit(nan).numpy().all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_copysign_and_nextafter_are_numpys(dtype: Any) -> None:
    x = of(dtype)
    a, b = x[:, None], x[None, :]
    with np.errstate(all="ignore"):
        same(et.copysign(a, b).numpy(), np.copysign(wide(a), wide(b)))
        # C's rule for equal ones, from which NumPy's float16 departs for zeros.
        same(et.nextafter(a, b).numpy(), np.where(a == b, b, np.nextafter(a, b)))


def test_nextafter_crosses_zero_by_the_smallest_numbers() -> None:
    tiny = np.finfo(np.float32).smallest_subnormal
    same(et.nextafter(np.float32(0), np.float32(-1)).numpy(), -tiny)
    same(et.nextafter(tiny, np.float32(-1)).numpy(), np.float32(0))
    same(et.nextafter(-tiny, np.float32(1)).numpy(), np.float32(-0.0))
    largest = np.finfo(np.float64).max
    same(et.nextafter(largest, np.float64(np.inf)).numpy(), np.float64(np.inf))


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_fmod_has_the_sign_of_the_dividend(dtype: Any) -> None:
    x = of(dtype)
    a, b = np.meshgrid(x, x)
    got = et.fmod(a, b).numpy()
    with np.errstate(all="ignore"):
        if dtype in dtypes.FLOATS:
            same(got, np.fmod(wide(a), wide(b)))
        else:
            safe = np.where(b == 0, 1, b)
            same(got, np.where(b == 0, 0, np.fmod(a, safe)).astype(dtype))


@pytest.mark.parametrize("dtype", NUMERIC, ids=str)
def test_heaviside_is_numpys(dtype: Any) -> None:
    a, b = np.meshgrid(of(dtype), of(dtype))
    want = np.where(a == 0, wide(b), np.where(np.isnan(wide(a)), wide(a), wide(a) > 0))
    same(et.heaviside(a, b).numpy(), want.astype(dtype))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_gcd_and_lcm_are_numpys(dtype: Any) -> None:
    a, b = np.meshgrid(of(dtype), of(dtype))
    with np.errstate(over="ignore"):
        same(et.gcd(a, b).numpy(), np.gcd(a, b))
        divisor = np.gcd(a, b)
        quotient = np.where(divisor == 0, 0, a // np.where(divisor == 0, 1, divisor)).astype(dtype)
        same(et.lcm(a, b).numpy(), np.abs(quotient * b))
    assert int(et.lcm(np.int64(-21), np.int64(6)).numpy()) == 42


def test_derivatives_of_signs_flow_to_the_value() -> None:
    x = et.array(np.array([0.0, -0.0, 2.0, -3.0]))
    y = et.array(np.array([-1.0, -1.0, -1.0, 1.0]))
    a, b = et.grad(lambda x, y: et.copysign(x, y).sum(), argnums=(0, 1))(x, y)
    np.testing.assert_array_equal(a.numpy(), [-1.0, 1.0, -1.0, -1.0])
    assert not b.numpy().any()
    a, b = et.grad(lambda x, y: et.heaviside(x, y).sum(), argnums=(0, 1))(x, y)
    assert not a.numpy().any()
    np.testing.assert_array_equal(b.numpy(), [1.0, 1.0, 0.0, 0.0])
    a, b = et.grad(lambda x, y: et.nextafter(x, y).sum(), argnums=(0, 1))(x, y)
    assert not a.numpy().any() and not b.numpy().any()


def test_derivatives_of_fmod_are_those_of_its_formula() -> None:
    x = np.array([7.5, -7.5, 7.5, -7.5, 0.0])
    y = np.array([2.0, 2.0, -2.0, -2.0, 3.0])
    a, b = et.grad(lambda x, y: et.fmod(x, y).sum(), argnums=(0, 1))(et.array(x), et.array(y))
    np.testing.assert_array_equal(a.numpy(), np.ones(5))
    np.testing.assert_array_equal(b.numpy(), -np.trunc(x / y))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sinc_is_sin_over_its_argument(dtype: Any) -> None:
    x = np.concatenate([np.linspace(-6, 6, 193), [1e-30, 0.477, 0.478, 20.25]]).astype(dtype)
    with np.errstate(all="ignore"):
        # NumPy rounds pi x, whose error the sine multiplies by up to 20 here.
        want = np.sinc(wide(x)).astype(dtype)
    double = dtype is dtypes.float64
    scale = 1.0 if double else np.maximum(np.abs(wide(want)), 1e-8)
    roundings = {dtypes.float64: 8.0, dtypes.float32: 3.0}.get(dtype, 1.0)
    assert difference(et.sinc(x).numpy(), want, roundings, scale) == ""


def test_sinc_is_zero_at_integers_and_one_at_zero() -> None:
    whole = np.array([1.0, -2.0, 3.0, 1e6, 123457.0])
    assert not et.sinc(whole).numpy().any()
    same(et.sinc(np.array([0.0, -0.0])).numpy(), np.ones(2))


def test_derivatives_of_sinc_at_zero_are_those_of_its_series() -> None:
    f: Any = et.sinc
    for order in range(7):
        want = (
            0.0 if order % 2 else (-1) ** (order // 2) * math.pi**order / (order + 1)
        )  # the integral of cos(pi x t) over t
        got = float(f(et.array(np.float64(0.0))).numpy())
        assert abs(got - want) <= 1e-14 * max(1.0, abs(want)) * 2**order, order
        f = et.grad(f)


def test_derivatives_of_every_order_exist() -> None:
    """The fourth derivatives, against differences of the third ones."""
    points = np.array([0.4, 1.3, 2.2])
    for f in (et.lgamma, et.digamma, et.i0, et.i1, et.sinc, lambda x: et.erfinv(x * 0.25)):
        third: Any = f
        for _ in range(3):
            third = et.grad(lambda x, inner=third: inner(x).sum())
        check_grads(third, (points,), order=1)


def test_lgamma_is_the_factorial() -> None:
    n = np.arange(1.0, 30.0)
    want = [math.log(math.factorial(int(k) - 1)) for k in n]
    assert difference(et.lgamma(n).numpy(), np.array(want), 8.0, np.maximum(want, 1)) == ""


def test_polygamma_of_whole_numbers_is_a_sum_of_powers() -> None:
    zeta3 = 1.2020569031595942
    assert abs(float(et.polygamma(2, 1.0).numpy()) + 2 * zeta3) < 1e-6
    x = et.array(np.float64(1.0))
    assert abs(float(et.polygamma(2, x).numpy()) + 2 * zeta3) < 1e-15 * 8
    assert abs(float(et.digamma(x).numpy()) + 0.5772156649015329) < 1e-15 * 8


def test_polygamma_far_below_zero_has_its_poles_period() -> None:
    """Of odd order it is the whole sum of squares there, up to the little that lies below."""
    x = np.array([-70.25, -1000.375, -(2.0**20) - 0.125])
    sine = np.sin(math.pi * (x - np.round(x)))
    want = (math.pi / sine) ** 2 - [et.polygamma(1, 1 - v).item() for v in x]
    assert difference(et.polygamma(1, x).numpy(), want, 32.0, np.abs(want)) == ""


def test_bessel_functions_are_numpys_and_its_derivative() -> None:
    x = np.linspace(-60, 60, 61)
    assert difference(et.i0(x).numpy(), np.i0(x), 64.0, np.i0(x)) == ""
    slope = et.grad(lambda x: et.i0(x).sum())(et.array(x))
    same(slope.numpy(), et.i1(x).numpy())


def test_erfinv_undoes_erf() -> None:
    x = np.concatenate([np.linspace(-2.5, 2.5, 101), [1e-300, 1e-9]])
    got = et.erfinv(et.erf(x)).numpy()
    # The slope of erfinv multiplies the rounding of erf.
    slope = np.sqrt(np.pi) / 2 * np.exp(x * x)
    assert difference(got, x, 4.0, np.abs(x) + slope * np.minimum(1.0, np.abs(x))) == ""


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: et.polygamma(-1, 2.0), "ArgumentError", "order -1"),
        (lambda: et.polygamma(171, 2.0), "ArgumentError", "order 171"),
        (lambda: et.polygamma(1.5, 2.0), "ArgumentError", "must be an int, got float"),
        (lambda: et.lgamma(np.int32(3)), "DTypeError", "int32"),
        (lambda: et.sinc(np.int32(3)), "DTypeError", "int32"),
        (lambda: et.i0(np.int32(3)), "DTypeError", "i0: needs a floating array, got int32"),
        (lambda: et.digamma(np.int32(3)), "DTypeError", "digamma: needs a floating array"),
        (lambda: et.fmod(np.bool_(True), np.bool_(True)), "DTypeError", "fmod: has no meaning"),
        (lambda: et.gcd(1.5, 2.5), "DTypeError", "float32"),
        (lambda: et.gcd(np.int32(3), np.int64(2)), "DTypeError", "mixed dtypes"),
        (lambda: et.signbit(True), "DTypeError", "bool"),
        (lambda: et.heaviside(np.bool_(True), np.bool_(True)), "DTypeError", "bool"),
        (lambda: et.copysign(np.int32(3), np.int32(2)), "DTypeError", "int32"),
        (lambda: et.nextafter(np.int32(3), np.int32(2)), "DTypeError", "int32"),
    ],
)
def test_messages(call: Any, error: str, words: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=words):
        call()
