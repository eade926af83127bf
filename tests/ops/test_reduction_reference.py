"""Reductions, statistics and running reductions against NumPy; gradients at ties, zeros, edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.array import placeholder

EPS64 = 2.0**-52
SHAPES = ((), (5,), (2, 3), (2, 0, 3), (3, 1, 4))


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


def draw(shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    values = np.random.default_rng(7).uniform(-3, 3, shape)
    return np.asarray(values.astype(dtype))


def all_axes(rank: int) -> list[Any]:
    subsets = itertools.chain.from_iterable(
        itertools.combinations(range(-rank, 0), n) for n in range(rank + 1)
    )
    return [None, *range(rank), *subsets]


CASES = [(shape, axis) for shape in SHAPES for axis in all_axes(len(shape))]


@pytest.mark.parametrize(("shape", "axis"), CASES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "any", "all", "var", "std"])
def test_values_are_numpys(name: str, shape: tuple[int, ...], axis: Any, keepdims: bool) -> None:
    x = draw(shape)
    if name in ("any", "all"):
        x = x > 0
    empty = x.size == 0 and name in ("mean", "var", "std")
    got = getattr(et, name)(x, axis, keepdims=keepdims).numpy()
    if empty:
        assert np.isnan(got).all()
        assert got.shape == np.sum(x, axis, keepdims=keepdims).shape
        return
    want = getattr(np, name)(x, axis, keepdims=keepdims)
    assert got.shape == want.shape
    # Some dozens of terms of size 10 at most.
    np.testing.assert_allclose(got, want, rtol=64 * EPS64, atol=64 * EPS64)


@pytest.mark.parametrize("name", ["max", "min", "ptp"])
def test_extrema_are_numpys(name: str) -> None:
    x = draw((3, 1, 4))
    for axis in all_axes(3):
        got = getattr(et, name)(x, axis).numpy()
        np.testing.assert_array_equal(got, getattr(np, name)(x, axis))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_are_numpys(name: str) -> None:
    x = np.array([[3.0, 1.0, 3.0, 1.0], [np.nan, 5.0, np.nan, 0.0]])
    for axis in (None, 0, 1, -1):
        for keepdims in (False, True):
            got = getattr(et, name)(x, axis, keepdims=keepdims).numpy()
            want = getattr(np, name)(x, axis, keepdims=keepdims)
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32]
)
def test_dtypes_are_kept(dtype: Any) -> None:
    x = et.array(np.ones((2, 3), dtype))
    for name in ("sum", "prod", "max", "min", "cumsum", "cumprod", "cummax"):
        assert getattr(et, name)(x, 0).numpy().dtype == dtype, name


def test_dtypes_of_bool_and_int() -> None:
    x = et.array([[True, False, True]])
    assert et.sum(x).dtype == np.int64 and int(et.sum(x)) == 2
    assert et.prod(x).dtype == np.int64 and int(et.prod(x)) == 0
    assert et.cumsum(x, 1).tolist() == [[1, 1, 2]]
    assert et.mean(x).dtype == np.float32
    assert et.mean(et.arange(4)).item() == 1.5
    assert et.max(x).item() is True
    assert et.min(x).item() is False
    assert et.count_nonzero(et.array([0.0, 2.0, np.nan])).item() == 2
    assert et.any(et.array([0, 3])).item() is True
    assert et.sum(x, dtype="float16").dtype == np.float16


def test_int_sums_wrap_and_half_sums_round_once() -> None:
    assert et.sum(np.full(3, 100, np.int8)).item() == 44
    assert et.prod(np.full(3, 100, np.int8)).item() == 64
    # 4096 ones and a half: each step in float16 would stop at 2048.
    assert et.sum(np.full(4097, 1, np.float16)).item() == 4096.0
    assert et.mean(np.full(4096, 60000, np.float16)).item() == 60000.0


def test_types_on_placeholders() -> None:
    x = placeholder((2, 3, 4), et.dtypes.bfloat16, "x")
    assert et.sum(x, (0, -1)).shape == (3,)
    assert et.sum(x, (0, -1), keepdims=True).shape == (1, 3, 1)
    assert et.argmax(x, 1, keepdims=True).shape == (2, 1, 4)
    assert et.argmax(x).shape == ()
    assert et.var(x, 1).dtype == ml_dtypes.bfloat16
    assert et.cumsum(x).shape == (24,)


def test_messages() -> None:
    with pytest.raises(et.errors.ShapeError, match=r"max: no elements .* axes \[1\] of float32"):
        et.max(et.zeros((2, 0)), 1)
    with pytest.raises(et.errors.ShapeError, match="argmin: no elements"):
        et.argmin(et.zeros((0,)))
    with pytest.raises(et.errors.ShapeError, match="sum: axis 2 is out of range for rank 2"):
        et.sum(et.zeros((2, 3)), 2)
    with pytest.raises(et.errors.ShapeError, match="name an axis twice"):
        et.sum(et.zeros((2, 3)), (0, -2))
    with pytest.raises(et.errors.DTypeError, match="var: needs a floating array, got int64"):
        et.var(et.arange(3))
    with pytest.raises(et.errors.ShapeError, match=r"average: weights float32\[2\] do not fit"):
        et.average(et.zeros((2, 3)), 1, et.zeros(2))
    with pytest.raises(et.errors.DTypeError, match="average: mixed dtypes, float32"):
        et.average(et.zeros(2), 0, np.zeros(2))
    with pytest.raises(et.errors.ArgumentError, match="norm: ord is nan"):
        et.norm(et.zeros(2), math.nan)
    with pytest.raises(et.errors.DTypeError, match=r"ptp: has no meaning for bool\[2\]"):
        et.ptp(et.zeros(2) > 0)


def test_ties_share_the_gradient() -> None:
    slopes = et.grad(et.max)(et.array([2.0, 2.0, 1.0]))
    assert slopes.tolist() == [0.5, 0.5, 0.0]
    rows = et.grad(lambda x: et.sum(et.min(x, 1)))(et.array([[1.0, 1.0], [3.0, 2.0]]))
    assert rows.tolist() == [[0.5, 0.5], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("factors", "slopes"),
    [([2.0, 3.0, 4.0], [12.0, 8.0, 6.0]), ([2.0, 0.0, 4.0], [0, 8, 0]), ([0.0, 0.0, 4.0], [0] * 3)],
)
def test_gradient_of_products_with_zeros(factors: list[float], slopes: list[float]) -> None:
    x = et.array(factors)
    assert et.grad(et.prod)(x).tolist() == slopes
    assert et.grad(lambda v: et.cumprod(v)[-1])(x).tolist() == slopes
    assert et.grad(lambda v: et.cumprod(v, reverse=True)[0])(x).tolist() == slopes


def test_second_derivative_of_a_product_with_two_zeros() -> None:
    x = et.array([0.0, 0.0, 4.0])
    assert et.hessian(et.prod)(x).tolist() == [[0, 4, 0], [4, 0, 0], [0, 0, 0]]


def test_gradients_that_would_divide_by_zero() -> None:
    for p in (None, 1, 2, 3, 0.5, math.inf, -1):
        slopes = et.grad(lambda x, p=p: et.norm(x, p))(et.zeros(3)).numpy()
        np.testing.assert_array_equal(slopes, np.zeros(3), err_msg=str(p))
    np.testing.assert_array_equal(et.grad(et.std)(et.ones(4)).numpy(), np.zeros(4))
    x = et.full((2, 3), -math.inf)
    assert et.logsumexp(x, 1).tolist() == [-math.inf, -math.inf]
    slopes = et.grad(lambda v: et.sum(et.logsumexp(v, 1)))(x).numpy()
    np.testing.assert_array_equal(slopes, np.zeros((2, 3)))


@pytest.mark.parametrize("p", [None, 0, 1, 2, 3, 1.5, math.inf, -math.inf, -1, -2.5])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_norms(p: float | None, axis: int | None) -> None:
    x = draw((3, 4))
    flat = x.ravel() if axis is None else x
    want = np.linalg.norm(flat, p, axis)
    np.testing.assert_allclose(et.norm(x, p, axis).numpy(), want, rtol=32 * EPS64)


def test_norms_of_negative_order_are_zero_where_an_element_is() -> None:
    assert et.norm(np.array([3.0, 0.0]), -1).numpy() == 0
    assert et.grad(lambda x: et.norm(x, -1))(et.array([3.0, 0.0])).tolist() == [0, 0]


def test_logsumexp() -> None:
    x = draw((3, 4)) + np.array([[0.0], [1000.0], [-1000.0]])
    want = [max(row) + math.log(sum(math.exp(v - max(row)) for v in row)) for row in x.tolist()]
    np.testing.assert_allclose(et.logsumexp(x, 1).numpy(), want, rtol=8 * EPS64)
    assert et.logsumexp(x, (0, 1), keepdims=True).shape == (1, 1)
    assert et.logsumexp(et.array([math.inf, 0.0])).item() == math.inf
    assert et.logsumexp(et.zeros((0,))).item() == -math.inf
    slopes = et.grad(et.logsumexp)(et.array([0.0, 0.0])).tolist()
    assert slopes == [0.5, 0.5]


@pytest.mark.parametrize("correction", [0, 1, 0.5])
def test_variance_is_corrected(correction: float) -> None:
    x = draw((6, 3))
    want = np.var(x, 0, ddof=correction)
    np.testing.assert_allclose(et.var(x, 0, correction=correction).numpy(), want, rtol=32 * EPS64)
    np.testing.assert_allclose(
        et.array(x).std(0, correction=correction).numpy(), np.sqrt(want), rtol=32 * EPS64
    )


def test_average() -> None:
    x, weights = draw((2, 3)), np.array([0.5, 2.0, 1.0])
    want = np.average(x, 1, weights)
    np.testing.assert_allclose(et.average(x, 1, weights).numpy(), want, rtol=8 * EPS64)
    full = np.average(x, None, x * x)
    np.testing.assert_allclose(et.average(x, None, x * x).numpy(), full, rtol=16 * EPS64)
    np.testing.assert_allclose(et.average(x).numpy(), x.mean(), rtol=8 * EPS64)
    cube, matrix = draw((2, 3, 4)), np.abs(draw((4, 2)))
    got = et.average(cube, (2, 0), matrix, keepdims=True).numpy()
    np.testing.assert_allclose(
        got, np.average(cube, (2, 0), matrix, keepdims=True), rtol=32 * EPS64
    )
    for counts in (np.arange(6).reshape(2, 3), weights):
        whole = et.average(np.arange(6).reshape(2, 3), None if counts.ndim > 1 else 1, counts)
        assert whole.dtype == (np.float32 if counts.dtype == np.int64 else np.float64)


RUNNING = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
}


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 0, 3)])
def test_running_reductions(name: str, shape: tuple[int, ...]) -> None:
    x = draw(shape)
    for axis in range(len(shape)):
        got = getattr(et, name)(x, axis).numpy()
        np.testing.assert_allclose(got, RUNNING[name](x, axis=axis), rtol=8 * EPS64)
        back = getattr(et, name)(x, axis - len(shape), reverse=True).numpy()
        flipped = np.flip(RUNNING[name](np.flip(x, axis), axis=axis), axis)
        np.testing.assert_allclose(back, flipped, rtol=16 * EPS64, atol=16 * EPS64)
    np.testing.assert_allclose(
        getattr(et, name)(x).numpy(), RUNNING[name](x.ravel()), rtol=16 * EPS64, atol=16 * EPS64
    )


def test_running_maximum_propagates_nan() -> None:
    x = et.array([1.0, np.nan, 5.0])
    np.testing.assert_array_equal(et.cummax(x).numpy(), np.array([1, np.nan, np.nan], np.float32))


def test_gradient_of_running_maximum_goes_to_the_last_of_ties() -> None:
    slopes = et.grad(lambda x: et.sum(et.cummax(x)))(et.array([1.0, 1.0, 0.0, 3.0]))
    assert slopes.tolist() == [1.0, 2.0, 0.0, 1.0]


def test_unbroadcast_sums_what_broadcasting_repeated() -> None:
    slopes = et.grad(lambda x: et.sum(x * et.ones((4, 2, 3))))(et.ones((2, 1)))
    assert slopes.tolist() == [[12.0], [12.0]]
