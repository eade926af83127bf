"""Quantiles, reductions that skip NaN, differences and closeness against NumPy, both runtimes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyeffect_torch as et
from pyeffect_torch.core.array import placeholder
from pyeffect_torch.ops.quantiles import METHODS

EPS64 = 2.0**-52
RNG = np.random.default_rng(4)
X = RNG.uniform(-3, 3, (3, 4, 5))
HOLES = np.where(RNG.random((3, 4, 5)) < 0.3, np.nan, X)
HOLES[1, 2] = np.nan
AXES = (None, 0, 1, -1, (0, 2), (0, 1, 2))
QUANTILES = np.array([[0.0, 0.1, 0.25], [0.5, 0.875, 1.0]])


@pytest.fixture(autouse=True, params=["reference", "cpu"])
def on_each_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with et.use(getattr(et, request.param)()):
        yield


def quietly(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """NumPy warns of slices of NaN only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(*arguments, **options)


def close(got: et.Array, want: Any) -> None:
    assert got.shape == np.shape(want)
    # Some dozens of terms of size 3 at most.
    np.testing.assert_allclose(got.numpy(), want, rtol=64 * EPS64, atol=64 * EPS64)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_medians_are_numpys(axis: Any, keepdims: bool) -> None:
    got = et.median(X, axis, keepdims=keepdims)
    np.testing.assert_array_equal(got.numpy(), np.median(X, axis, keepdims=keepdims))
    holes = quietly(np.median, HOLES, axis, keepdims=keepdims)
    np.testing.assert_array_equal(et.median(HOLES, axis, keepdims=keepdims).numpy(), holes)
    present = quietly(np.nanmedian, HOLES, axis, keepdims=keepdims)
    np.testing.assert_array_equal(et.nanmedian(HOLES, axis, keepdims=keepdims).numpy(), present)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_quantiles_are_numpys(method: Any, axis: Any) -> None:
    q = QUANTILES
    close(et.quantile(X, q, axis, method=method), np.quantile(X, q, axis, method=method))
    close(et.quantile(X, et.array(q), axis, method=method), np.quantile(X, q, axis, method=method))
    want = np.quantile(X, 0.3, axis, method=method, keepdims=True)
    close(et.percentile(X, 30, axis, method=method, keepdims=True), want)
    q = q.ravel()  # of more axes NumPy moves only the first to the front
    want = quietly(np.nanquantile, HOLES, q, axis, method=method)
    close(et.nanquantile(HOLES, q, axis, method=method), want)
    close(et.nanpercentile(HOLES, 100 * q, axis, method=method), want)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40)
@given(n=st.integers(1, 12), q=st.integers(0, 48))
def test_positions_on_and_between_elements(method: Any, n: int, q: int) -> None:
    x = np.arange(n) ** 2.0
    want = np.quantile(x, q / 48, method=method)
    # A position up to 12 has a rounding or two, and elements are at most 21 apart.
    allowed = 2 * 12 * 21 * EPS64
    got = et.quantile(x, q / 48, method=method).numpy()
    np.testing.assert_allclose(got, want, rtol=8 * EPS64, atol=allowed)


def test_dtypes_of_quantiles() -> None:
    for dtype in ("int32", "uint8", "bool"):
        got = et.median(np.array([0, 1, 1, 3]).astype(dtype))
        assert got.dtype == np.float32
        assert got.numpy() == 1
    half = et.quantile(np.array([1, 2, 4], np.float16), 0.75)
    assert half.dtype == np.float16
    assert half.numpy() == 3
    assert et.median(np.ones(3, ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16
    assert np.isnan(et.median(np.zeros((2, 0)), 1).numpy()).all()


def test_quantiles_of_infinities_and_of_the_largest() -> None:
    inf = np.inf
    assert et.median(np.array([inf, inf])).numpy() == inf
    assert et.quantile(np.array([-inf, -inf, 3.0]), 0.25).numpy() == -inf
    assert et.quantile(np.array([1.0, 2.0, inf]), 0.5).numpy() == 2
    x = np.array([-inf, 1.0, 3.0, inf])
    for method in ("lower", "higher", "nearest", "inverted_cdf", "closest_observation"):
        q = np.linspace(0, 1, 10)
        close(et.quantile(x, q, method=method), np.quantile(x, q, method=method))
    big = np.finfo(np.float64).max
    assert et.median(np.array([big, big])).numpy() == big
    assert et.median(np.array([-big, big])).numpy() == 0


def test_derivatives_of_quantiles() -> None:
    x = et.array(X)
    et.testing.check_grads(lambda a: et.median(a, 1) ** 2, (x,), order=2)
    et.testing.check_grads(lambda a: et.nanmedian(a, (0, 2)) ** 2, (x,), order=2)
    for method in ("linear", "hazen", "weibull"):
        et.testing.check_grads(
            lambda a, q, method=method: et.quantile(a, q, 0, method=method) ** 2,
            (x, et.array(np.array([0.3, 0.6]))),
            order=2,
        )
    rows = et.vmap(lambda a: et.quantile(a, 0.3))(x)
    close(rows, np.quantile(X, 0.3, (1, 2)))
    gradient = et.grad(lambda a: et.nanmedian(a))(et.array(np.array([1.0, np.nan, 2.0])))
    np.testing.assert_array_equal(gradient.numpy(), [0.5, 0, 0.5])


# --- reductions that skip NaN


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    "name", ["nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd"]
)
def test_nan_reductions_are_numpys(name: str, axis: Any, keepdims: bool) -> None:
    want = quietly(getattr(np, name), HOLES, axis, keepdims=keepdims)
    close(getattr(et, name)(HOLES, axis, keepdims=keepdims), want)
    if name in ("nanvar", "nanstd"):
        want = quietly(getattr(np, name), HOLES, axis, ddof=1, keepdims=keepdims)
        close(getattr(et, name)(HOLES, axis, correction=1, keepdims=keepdims), want)


@pytest.mark.parametrize("name", ["nansum", "nanprod", "nanmean", "nanmax", "nanmin"])
@pytest.mark.parametrize("dtype", ["int16", "uint8", "bool"])
def test_integers_have_no_nan(name: str, dtype: str) -> None:
    x = np.array([3, 0, 1]).astype(dtype)
    got, plain = getattr(et, name)(x), getattr(et, name[3:])(x)
    assert got.dtype == plain.dtype
    np.testing.assert_array_equal(got.numpy(), plain.numpy())


def test_positions_that_skip_nan() -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[nan, 2.0, 3.0, 3.0], [nan, -inf, nan, -inf], [nan, nan, nan, nan]])
    np.testing.assert_array_equal(et.nanargmax(x, 1).numpy(), [2, 1, -1])
    np.testing.assert_array_equal(et.nanargmin(x, 1, keepdims=True).numpy(), [[1], [1], [-1]])
    assert et.nanargmax(x).numpy() == np.nanargmax(x)
    assert et.nanargmin(np.array([2, 1])).numpy() == 1


def test_gradients_are_zero_at_nan() -> None:
    x = et.array(np.array([1.0, np.nan, 3.0, -2.0]))
    for name in ("nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd"):
        gradient = et.grad(getattr(et, name))(x).numpy()
        assert np.isfinite(gradient).all()
        assert gradient[1] == 0
        full = et.array(np.array([1.0, 3.0, -2.0]))
        plain = et.grad(getattr(et, name[3:]))(full).numpy()
        np.testing.assert_allclose(gradient[[0, 2, 3]], plain, rtol=8 * EPS64, atol=0)
    constant = et.array(np.array([2.0, np.nan, 2.0]))
    np.testing.assert_array_equal(et.grad(et.nanstd)(constant).numpy(), [0, 0, 0])


# --- running log-sum-exp, differences


@pytest.mark.parametrize("reverse", [False, True])
def test_cumlogsumexp(reverse: bool) -> None:
    x = np.array([-np.inf, 700.0, 1000.0, -1000.0, 1000.0])
    ordered = x[::-1] if reverse else x
    want = np.logaddexp.accumulate(ordered)
    got = et.cumlogsumexp(x, reverse=reverse).numpy()
    np.testing.assert_allclose(got, want[::-1] if reverse else want, rtol=4 * EPS64, atol=0)
    for axis in (0, -1):
        want = np.log(np.cumsum(np.exp(X), axis))
        close(et.cumlogsumexp(X, axis), want)
    et.testing.check_grads(
        lambda a: et.cumlogsumexp(a, 1, reverse=reverse), (et.array(X),), order=2
    )
    gradient = et.grad(lambda a: et.sum(et.cumlogsumexp(a)[:1]))(et.array(x)).numpy()
    np.testing.assert_array_equal(gradient, np.zeros(5))


@pytest.mark.parametrize("dtype", ["float64", "uint8", "bool"])
@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_differences_are_numpys(dtype: str, n: int) -> None:
    x = (X * 20).astype(dtype) if dtype != "bool" else X > 0
    for axis in (0, -1):
        np.testing.assert_array_equal(et.diff(x, n, axis).numpy(), np.diff(x, n, axis))
    if dtype == "float64":
        got = et.diff(x, n, 1, prepend=1.5, append=x[:, :2]).numpy()
        np.testing.assert_array_equal(got, np.diff(x, n, 1, prepend=1.5, append=x[:, :2]))


# --- closeness


def test_closeness_is_numpys() -> None:
    a = np.array([1.0, 1.0, np.inf, np.inf, -np.inf, np.nan, 0.0, 1.0])
    b = np.array([1.00001, 1.1, np.inf, -np.inf, 1.0, np.nan, 1e-9, np.inf])
    for equal_nan in (False, True):
        want = np.isclose(a, b, equal_nan=equal_nan)
        np.testing.assert_array_equal(et.isclose(a, b, equal_nan=equal_nan).numpy(), want)
        want = np.allclose(a[5:7], b[5:7], equal_nan=equal_nan)
        assert bool(et.allclose(a[5:7], b[5:7], equal_nan=equal_nan)) == want
        assert bool(et.array_equal(a, a, equal_nan=equal_nan)) == equal_nan
    assert bool(et.allclose(X, X + 1e-3, atol=1e-2))
    assert not bool(et.allclose(X, X + 1e-3))
    assert bool(et.array_equal(a[:5], a[:5]))
    assert not bool(et.array_equal(a[:5], a[:4]))
    np.testing.assert_array_equal(
        et.isclose(np.array([2**62, 3]), np.array([2**62 + 1, 4])).numpy(), [True, False]
    )


F = placeholder((2, 3), np.dtype(np.float32), "f")


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        ("ArgumentError", lambda: et.quantile(F, 1.5), r"quantile: the quantiles 1.5 are not all"),
        ("ArgumentError", lambda: et.percentile(F, [5, -1]), "percentile: the quantiles"),
        ("ArgumentError", lambda: et.quantile(F, 0.5, method="mode"), "unknown method 'mode'"),
        ("ShapeError", lambda: et.median(F, 2), "median: axis 2 is out of range"),
        ("DTypeError", lambda: et.nanvar(np.arange(3)), "nanvar: needs a floating array"),
        ("ShapeError", lambda: et.nanmax(np.zeros((0, 2)), 0), "max: no elements to choose from"),
        ("DTypeError", lambda: et.cumlogsumexp(np.arange(3)), "cumlogsumexp: needs a floating"),
        ("ArgumentError", lambda: et.diff(F, -1), "diff: n is -1"),
        ("DTypeError", lambda: et.isclose(F, np.zeros((2, 3))), "isclose: mixed dtypes"),
        ("DTypeError", lambda: et.array_equal(F, np.zeros((2, 3))), "array_equal: mixed dtypes"),
    ],
)  # fmt: skip
def test_errors_at_the_call(error: str, call: Callable[[], Any], message: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=message):
        call()
