"""`et.testing` itself: it passes what is right, and fails what is wrong by a little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.testing import assert_close, check_grads

X = np.array([[0.3, -1.2, 0.8], [1.7, 0.4, -0.6]])


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


# --- values


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_tolerance_is_roundings_of_the_dtype(dtype: Any) -> None:
    eps = float(ml_dtypes.finfo(dtype).eps)
    want = np.array([1.0, 4.0], dtype)
    assert_close(et.array((want + dtype(4 * eps)).astype(dtype)), want, roundings=1)
    with pytest.raises(AssertionError, match=r"x: 1 of 2 elements differ by more than .* at \[1\]"):
        assert_close({"a": want * dtype(1), "b": want}["a"] + np.array([0, 8 * eps], dtype), want,
                     roundings=1, name="x")  # fmt: skip
    with pytest.raises(AssertionError, match="2 of 2"):
        assert_close((want + dtype(4 * eps)).astype(dtype), want, roundings=1, scale=0.5)


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        ([np.zeros(2)], np.zeros(2), "the trees differ"),
        ({"a": np.zeros(2)}, {"a": np.zeros(3)}, r"value\['a'\]: shape \[2\], expected \[3\]"),
        (np.zeros(2, np.float32), np.zeros(2), "dtype float32, expected float64"),
        (np.array([1, 2]), np.array([1, 3]), "1 of 2 elements differ"),
        (np.array([np.nan]), np.array([1.0]), "1 of 1"),
        (np.array([1.0]), np.array([np.nan]), "1 of 1"),
        (np.array([-np.inf]), np.array([np.inf]), "1 of 1"),
        (np.array([np.inf]), np.array([1e300]), "1 of 1"),
    ],
)
def test_differences_are_found(got: Any, want: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_close(got, want)


def test_equal_things_are_close() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert_close({"a": et.array(special), "n": (2, 0.5)}, {"a": special, "n": (2, 0.5)})
    assert_close(et.ones((2, 0)), np.ones((2, 0), np.float32))
    assert_close(et.sum(et.array(X)), 1.4)  # a Python number takes the other's dtype


# --- derivatives


def test_right_derivatives_pass_at_order_three() -> None:
    check_grads(lambda x: et.exp(x) * et.sin(x), (X,), order=3)
    check_grads(lambda p, i: {"y": et.take(p["w"], i, 1) @ p["v"]},
                ({"w": X, "v": np.array([0.2, 1.1])}, np.array([0, 2])))  # fmt: skip


def test_one_mode_alone() -> None:
    @et.custom_vjp
    def f(x: Any) -> Any:
        return et.sin(x)

    f.defvjp(lambda x: (et.sin(x), x), lambda x, ct: (ct * et.cos(x),))
    check_grads(f, (X,), order=1, modes=("rev",))
    with pytest.raises(et.errors.TraceError, match="no forward-mode rule"):
        check_grads(f, (X,), order=1)


@pytest.mark.parametrize("slip", [1.0001, -1.0])
@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_wrong_first_derivative_is_found(slip: float, mode: str) -> None:
    @et.custom_jvp
    def f(x: Any) -> Any:
        return et.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * et.cos(primals[0]) * slip))
    with pytest.raises(AssertionError, match=r"jvp|vjp"):
        check_grads(f, (X,), order=1, modes=(mode,))


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_wrong_second_derivative_is_found(mode: str) -> None:
    @et.custom_jvp
    def f(x: Any) -> Any:
        return et.sin(x)

    @et.custom_jvp
    def slope(x: Any) -> Any:
        return et.cos(x)

    slope.defjvp(lambda primals, tangents: (slope(*primals), tangents[0] * et.sin(primals[0])))
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * slope(primals[0])))
    check_grads(f, (X,), order=1, modes=(mode,))
    with pytest.raises(AssertionError, match=r"(jvp|vjp) of (jvp|vjp)|of f:|of (jvp|vjp)"):
        check_grads(f, (X,), order=2, modes=(mode,))


def test_a_kink_within_a_step_is_refused() -> None:
    at = np.array([0.5, 1e-6])
    with pytest.raises(AssertionError, match="a kink or a tie lies within"):
        check_grads(lambda x: et.maximum(x, 0.0), (at,), order=1)


def test_unknown_mode() -> None:
    with pytest.raises(et.errors.ArgumentError, match=r"unknown modes \['both'\]"):
        check_grads(et.sin, (X,), modes=("both",))
