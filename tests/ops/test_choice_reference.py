"""clip, select and nan_to_num against NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et

X = np.array([-np.inf, -2.0, -1.0, 0.25, 1.0, 3.0, np.inf, np.nan], np.float32)


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


@pytest.mark.parametrize("bounds", [(-1, 1), (None, 0.5), (0.5, None), (2, -2), (None, None)])
def test_clip_is_numpys(bounds: tuple[float | None, float | None]) -> None:
    want = X if bounds == (None, None) else np.clip(X, *bounds)
    np.testing.assert_array_equal(et.clip(X, *bounds).numpy(), want)


def test_clip_by_arrays() -> None:
    low = np.array([[0.0], [np.nan]], np.float32)
    high = np.linspace(-1, 2, 8, dtype=np.float32)
    got = et.clip(X, et.array(low), high).numpy()
    np.testing.assert_array_equal(got, np.clip(X, low, high))


def test_clip_of_integers() -> None:
    got = et.array(np.array([-5, 0, 200], np.int16)).clip(-1, 100)
    assert got.dtype == np.int16
    np.testing.assert_array_equal(got.numpy(), [-1, 0, 100])
    with pytest.raises(et.errors.DTypeError, match=r"the float 0\.5 does not fit"):
        et.clip(et.arange(3), 0.5)
    with pytest.raises(et.errors.DTypeError, match="clip: has no meaning for bool"):
        et.clip(et.array([True]), 0, 1)


def test_gradient_of_clip_passes_inside_and_on_the_bounds() -> None:
    x = et.array(np.array([-2.0, -1.0, 0.0, 1.0, 2.0], np.float32))
    to_x, to_low, to_high = et.grad(lambda *v: et.sum(et.clip(*v)), argnums=(0, 1, 2))(
        x, et.array(-1.0), et.array(1.0)
    )
    np.testing.assert_array_equal(to_x.numpy(), [0, 1, 1, 1, 0])
    assert (float(to_low), float(to_high)) == (1.0, 1.0)


def test_select_is_numpys() -> None:
    x = np.arange(12).reshape(3, 4)
    conditions, choices = [x < 3, x > 7, x > 5], [x, x * 10, -x]
    got = et.select(conditions, choices, -99).numpy()
    np.testing.assert_array_equal(got, np.select(conditions, choices, -99))
    with pytest.raises(et.errors.ArgumentError, match="1 conditions against 2 choices"):
        et.select([x < 3], [x, x])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_nan_to_num(dtype: type) -> None:
    x = X.astype(dtype)
    limits = ml_dtypes.finfo(dtype)
    want = np.array([limits.min, -2, -1, 0.25, 1, 3, limits.max, 0], dtype)
    np.testing.assert_array_equal(et.nan_to_num(x).numpy(), want)
    filled = et.nan_to_num(x, nan=7, posinf=8, neginf=9).numpy().astype(np.float64)
    np.testing.assert_array_equal(filled, [9, -2, -1, 0.25, 1, 3, 8, 7])


def test_nan_to_num_keeps_integers() -> None:
    assert et.nan_to_num(et.arange(3)).dtype == np.int64
