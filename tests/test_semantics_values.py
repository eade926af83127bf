"""The rules of values and of gradients, one test each, named after the rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import DTypeError

NAN, INF = math.nan, math.inf
FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]


@pytest.fixture(params=["cpu", "reference", "jit"], autouse=True)
def how(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Calls a function: on the core, on the reference runtime, and compiled (and so fused)."""
    runtime = et.reference() if request.param == "reference" else et.cpu()
    with et.use(runtime):
        yield (lambda f, *xs: et.jit(f)(*xs)) if request.param == "jit" else lambda f, *xs: f(*xs)


def of(values: Any, dtype: Any = "float64") -> Any:
    return et.array(np.array(values).astype(dtypes.canonical(dtype)))


def same(got: Any, values: Any) -> None:
    a = got.numpy()
    np.testing.assert_array_equal(a.astype(np.float64) if a.dtype in dtypes.FLOATS else a, values)


def slope(f: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the sum of `f`."""
    return et.grad(lambda *xs: et.sum(f(*xs)))


# --- values


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_propagates_through_max_min_argmax_argmin(dtype: Any, how: Any) -> None:
    x = of([[1, NAN, 3, NAN], [4, 5, -1, 0]], dtype)
    same(how(lambda x: et.max(x, 1), x), [NAN, 5])
    same(how(lambda x: et.min(x, 1), x), [NAN, -1])
    same(how(lambda x: et.argmax(x, 1), x), [1, 1])
    same(how(lambda x: et.argmin(x, 1), x), [1, 2])
    same(how(lambda x: et.cummax(x, 1), x[:1]), [[1, NAN, NAN, NAN]])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_propagates_through_maximum_minimum_relu_clip(dtype: Any, how: Any) -> None:
    x, y = of([NAN, 1, -2], dtype), of([0, NAN, 3], dtype)
    same(how(et.maximum, x, y), [NAN, NAN, 3])
    same(how(et.minimum, x, y), [NAN, NAN, -2])
    same(how(et.relu, x), [NAN, 1, 0])
    same(how(lambda x: et.clip(x, -1, 1), x), [NAN, 1, -1])
    same(how(lambda x, y: et.clip(x, y, None), of([1, 1, 1], dtype), y), [1, NAN, 3])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sorts_put_nan_last(dtype: Any, how: Any) -> None:
    x = of([NAN, 1, -INF, INF, -2], dtype)
    same(how(et.sort, x), [-INF, -2, 1, INF, NAN])
    same(how(et.argsort, x), [2, 4, 1, 3, 0])


def test_not_equal_is_ieee(how: Any) -> None:
    x = of([NAN, 1, INF])
    same(how(lambda x: x != x, x), [True, False, False])
    same(how(lambda x: x == x, x), [False, True, True])
    same(how(lambda x: x <= x, x), [False, True, True])


def test_where_is_a_true_select_forward_and_backward(how: Any) -> None:
    """What is not chosen contributes nothing, be it NaN or infinite, and has no gradient."""
    x = of([0.0, 4.0])

    def f(x: Any) -> Any:
        return et.where(x > 0, x * 2, x / x)  # 0 / 0 is where nobody chose

    same(how(f, x), [NAN, 8.0])
    same(how(lambda x: et.where(x > 0, et.log(x), 0.0), x), [0.0, math.log(4)])
    a, b = of([1.0, 2.0]), of([NAN, INF])
    mask = et.array(np.array([True, True]))
    got = how(et.grad(lambda a, b: et.where(mask, a, b).sum(), argnums=(0, 1)), a, b)
    same(got[0], [1, 1])
    same(got[1], [0, 0])


def test_round_is_half_to_even(how: Any) -> None:
    for dtype in FLOATS:
        x = of([0.5, 1.5, 2.5, -0.5, -1.5, 2.25], dtype)
        same(how(et.round, x), [0, 2, 2, -0.0, -2, 2])


def test_sign_of_zero_is_zero_and_zero_to_the_zero_is_one(how: Any) -> None:
    same(how(et.sign, of([0.0, -3.0, 2.0])), [0, -1, 1])
    same(how(et.power, of([0.0, 0.0]), of([0.0, 2.0])), [1, 0])
    same(how(lambda x: x**0, of([0.0, NAN])), [1, 1])
    same(how(et.power, of([0, 3], "int64"), of([0, 0], "int64")), [1, 1])


def test_logsumexp_of_all_minus_infinity_is_that_with_zero_gradient(how: Any) -> None:
    x = of([[-INF, -INF], [0.0, -INF]])
    same(how(lambda x: et.logsumexp(x, 1), x), [-INF, 0])
    same(how(slope(lambda x: et.logsumexp(x, 1)), x), [[0, 0], [1, 0]])


def test_softmax_of_all_minus_infinity_is_nan(how: Any) -> None:
    same(how(lambda x: et.softmax(x, -1), of([[-INF, -INF], [0.0, -INF]])), [[NAN, NAN], [1, 0]])


def test_a_masked_attention_row_is_zero_with_zero_gradient(how: Any) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (et.array(rng.standard_normal((1, 1, 2, 4))) for _ in range(3))
    mask = et.array(np.array([[[[False, False], [True, True]]]]))

    def f(q: Any, k: Any, v: Any) -> Any:
        return et.nn.scaled_dot_product_attention(q, k, v, mask)

    got = how(f, q, k, v).numpy()
    assert not got[0, 0, 0].any() and got[0, 0, 1].any()
    gradients = how(et.grad(lambda q, k, v: et.sum(f(q, k, v)[:, :, 0]), argnums=(0, 1, 2)),
                    q, k, v)  # fmt: skip
    for gradient in gradients:
        assert not gradient.numpy().any()


# --- gradients


def test_unused_inputs_get_zeros(how: Any) -> None:
    a, b = how(et.grad(lambda x, y: et.sum(x * x), argnums=(0, 1)), of([1.0, 2.0]), of([3.0]))
    same(a, [2, 4])
    same(b, [0])


def test_integer_and_bool_inputs_to_grad_are_an_error() -> None:
    for x in (of([1, 2], "int64"), of([True], "bool")):
        with pytest.raises(DTypeError):
            et.grad(lambda x: et.sum(x.astype("float32")))(x)


def test_ties_of_maximum_and_minimum_share_the_gradient_evenly(how: Any) -> None:
    x = of([1.0, 2.0, 3.0])
    y = of([1.0, 5.0, 0.0])
    for f, larger in ((et.maximum, True), (et.minimum, False)):
        a, b = how(et.grad(lambda x, y, f=f: f(x, y).sum(), argnums=(0, 1)), x, y)
        same(a, [0.5, 0, 1] if larger else [0.5, 1, 0])
        same(b, [0.5, 1, 0] if larger else [0.5, 0, 1])


def test_ties_of_max_and_min_reductions_share_the_gradient_evenly(how: Any) -> None:
    x = of([3.0, 1.0, 3.0, 1.0, 3.0, 3.0])
    same(how(slope(et.max), x), [0.25, 0, 0.25, 0, 0.25, 0.25])
    same(how(slope(et.min), x), [0, 0.5, 0, 0.5, 0, 0])


def test_slopes_of_relu_and_abs_at_zero_are_zero(how: Any) -> None:
    x = of([-1.0, 0.0, -0.0, 2.0])
    same(how(slope(et.relu), x), [0, 0, 0, 1])
    same(how(slope(et.abs), x), [-1, 0, 0, 1])


def test_the_gradient_of_the_2_norm_at_zero_is_zero(how: Any) -> None:
    same(how(slope(et.norm), of([0.0, 0.0])), [0, 0])
    np.testing.assert_allclose(how(slope(et.norm), of([3.0, 4.0])).numpy(), [0.6, 0.8], rtol=1e-15)


def test_the_gradient_of_std_of_a_constant_is_zero(how: Any) -> None:
    same(how(slope(et.std), of([2.0, 2.0, 2.0])), [0, 0, 0])


def test_the_gradient_of_logaddexp_of_minus_infinities_is_zero(how: Any) -> None:
    x = of([-INF, 0.0])
    y = of([-INF, 0.0])
    a, b = how(et.grad(lambda x, y: et.logaddexp(x, y).sum(), argnums=(0, 1)), x, y)
    same(a, [0, 0.5])
    same(b, [0, 0.5])


def test_second_derivatives_keep_relative_accuracy(how: Any) -> None:
    """tanh'' near 0 is -2x: a formula that subtracts from 1 would have none of its digits."""
    x = of([1e-9, 1e-5, -1e-7])
    second = how(slope(slope(et.tanh)), x).numpy()
    want = -2 * np.tanh(x.numpy()) * (1 - np.tanh(x.numpy()) ** 2)
    np.testing.assert_allclose(second, want, rtol=1e-14)
    second = how(slope(slope(et.sigmoid)), x).numpy()
    np.testing.assert_allclose(second, -x.numpy() / 8, rtol=1e-6)


def test_the_gradient_of_prod_is_right_where_factors_are_zero(how: Any) -> None:
    same(how(slope(et.prod), of([2.0, 0.0, 3.0])), [0, 6, 0])
    same(how(slope(et.prod), of([0.0, 0.0, 3.0])), [0, 0, 0])
    same(how(slope(lambda x: et.cumprod(x, 0)), of([2.0, 0.0, 3.0])), [1, 8, 0])


def test_gradients_of_power_are_finite_wherever_they_exist(how: Any) -> None:
    x, y = of([0.0, 0.0, 0.0, -2.0, 2.0]), of([1.0, 2.0, 0.0, 2.0, 3.0])
    a = how(et.grad(lambda x: et.sum(et.power(x, y))), x)
    same(a, [1, 0, 0, -4, 12])
    b = how(et.grad(lambda y: et.sum(et.power(x[:3], y))), y[:3])
    same(b, [0, 0, 0])


def test_clip_passes_the_gradient_inside_the_bounds_bounds_included(how: Any) -> None:
    x = of([-2.0, -1.0, 0.5, 1.0, 3.0])
    same(how(slope(lambda x: et.clip(x, -1.0, 1.0)), x), [0, 1, 1, 1, 0])


def test_integer_leaves_have_zero_tangents_of_their_own_dtype(how: Any) -> None:
    n = of([1, 2], "int64")
    out, tangent = how(
        lambda x, n: et.jvp(lambda x, n: (x * x, n + 1), (x, n), (x, et.zeros_like(n))),
        of([1.0, 2.0]), n,
    )  # fmt: skip
    same(out[1], [2, 3])
    assert tangent[1].dtype is dtypes.int64
    same(tangent[1], [0, 0])


def test_the_number_of_threads_changes_no_bit() -> None:
    rng = np.random.default_rng(1)
    x = et.array(rng.standard_normal((300, 1000), np.float32))
    before = et.get_num_threads()

    def f(x: Any) -> Any:
        return et.sum(x), et.softmax(x, 0), x @ x.T, et.cumsum(x, 1), et.sum(et.exp(x), 0)

    results = []
    try:
        for threads in (1, 2, 2):
            et.set_num_threads(threads)
            results.append([part.numpy().tobytes() for part in et.jit(f)(x)])
    finally:
        et.set_num_threads(before)
    assert results[0] == results[1] == results[2]
