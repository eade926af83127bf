"""Pooling against loops over windows, on both runtimes; ties, dtypes, options and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.testing import check_grads

pytestmark = pytest.mark.usefixtures("runtime")


def draw(*shape: int, seed: int = 0) -> Any:
    """No two elements are equal."""
    values = np.linspace(-2, 2, int(np.prod(shape)))
    return np.random.default_rng(seed).permutation(values).reshape(shape)


def spread(option: Any, count: int) -> tuple[int, ...]:
    return option if isinstance(option, tuple) else (option,) * count


def starts(n: int, reach: int, stride: int, padding: int, ceil_mode: bool) -> list[int]:
    """Where windows begin: as long as they fit, or as long as they begin before the padding."""
    found = [s for s in range(-padding, n + padding, stride) if s + reach <= n + padding]
    following = len(found) * stride - padding
    is_cut = (n + 2 * padding - reach) % stride > 0
    if ceil_mode and is_cut and following < n:
        found.append(following)
    return found


def pool(
    x: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    combine: Callable[[list[float], int, int], float],
) -> Any:
    """Give `combine` the elements of each window, how many it has, and how many count the pad."""
    count = x.ndim - 2
    lists = [spread(option, count) for option in (kernel, stride, padding, dilation)]
    places = [
        starts(n, (k - 1) * d + 1, s, p, ceil_mode)
        for n, k, s, p, d in zip(x.shape[2:], *lists, strict=True)
    ]
    out = np.zeros((*x.shape[:2], *map(len, places)))
    for n, c, *at in np.ndindex(*out.shape):
        inside, with_padding = [], 0
        for offset in np.ndindex(*lists[0]):
            spot = tuple(
                begin[i] + k * d
                for begin, i, k, d in zip(places, at, offset, lists[3], strict=True)
            )
            if all(0 <= s < m for s, m in zip(spot, x.shape[2:], strict=True)):
                inside.append(x[(n, c, *spot)])
            with_padding += all(
                -p <= s < m + p for s, m, p in zip(spot, x.shape[2:], lists[2], strict=True)
            )
        out[(n, c, *at)] = combine(inside, len(inside), with_padding)
    return out


CASES = [
    # shape, kernel, stride, padding, dilation
    ((2, 3, 9), 2, None, 0, 1),
    ((2, 3, 9), 3, 2, 1, 1),
    ((1, 2, 9), 3, 1, 1, 2),
    ((2, 2, 6, 8), 2, None, 0, 1),
    ((1, 2, 7, 8), 3, 2, 1, 1),
    ((1, 2, 7, 8), (2, 3), (3, 1), (1, 0), 1),
    ((1, 1, 9, 8), (2, 3), 2, 1, (3, 2)),
    ((2, 1, 37, 41), 3, 2, 1, 1),
]


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("shape", "kernel", "stride", "padding", "dilation"), CASES)
def test_max_pool(
    shape: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> None:
    x = draw(*shape)
    function = et.nn.max_pool1d if len(shape) == 3 else et.nn.max_pool2d
    options = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    step = kernel if stride is None else stride
    want = pool(x, kernel, step, padding, dilation, ceil_mode, lambda inside, *_: max(inside))
    np.testing.assert_array_equal(function(x, kernel, **options).numpy(), want)
    np.testing.assert_array_equal(function(x[0], kernel, **options).numpy(), want[0])


@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding"), [case[:4] for case in CASES if case[4] == 1]
)
def test_avg_pool(
    shape: Any, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool
) -> None:
    x = draw(*shape)
    function = et.nn.avg_pool1d if len(shape) == 3 else et.nn.avg_pool2d
    step = kernel if stride is None else stride
    want = pool(
        x, kernel, step, padding, 1, ceil_mode,
        lambda inside, few, many: sum(inside) / (many if count_include_pad else few),
    )  # fmt: skip
    got = function(
        x, kernel, stride=stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )  # fmt: skip
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=32 * 2.0**-52)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_every_dtype(dtype: Any) -> None:
    if dtype is dtypes.bool_:
        with pytest.raises(DTypeError, match="max_pool1d"):
            et.nn.max_pool1d(np.zeros((1, 1, 4), np.bool_), 2)
        return
    low = 0 if dtype in dtypes.UNSIGNED else -3
    x = np.array([[[low, 2, 1, low, low]]]).astype(dtype)
    got = et.nn.max_pool1d(x, 2, padding=1)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.numpy().astype(np.float64), [[[low, 2, low]]])
    if dtype in dtypes.FLOATS:
        mean = et.nn.avg_pool1d(x, 2)
        assert mean.dtype == dtype
        np.testing.assert_array_equal(mean.numpy().astype(np.float64), [[[-0.5, -1]]])
    else:
        with pytest.raises(DTypeError, match="floating"):
            et.nn.avg_pool1d(x, 2)


def test_half_types_do_not_overflow_in_the_sum() -> None:
    x = np.full((1, 1, 4, 4), 60000, np.float16)
    np.testing.assert_array_equal(et.nn.avg_pool2d(x, 4).numpy(), [[[[60000]]]])
    np.testing.assert_array_equal(et.nn.global_avg_pool(x).numpy(), [[60000]])
    assert et.nn.mean_pool(x[0], np.ones((1, 4), np.bool_)).numpy().max() == 60000


def test_values_at_the_edge() -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[[-inf, nan, 1.0, 2.0, -inf, -inf]]])
    np.testing.assert_array_equal(et.nn.max_pool1d(x, 2).numpy(), [[[nan, 2, -inf]]])
    # Padding never wins, also not over what is negative everywhere.
    np.testing.assert_array_equal(
        et.nn.max_pool1d(np.full((1, 1, 3), -5.0), 3, stride=1, padding=1).numpy(), [[[-5.0] * 3]]
    )


def test_ties_share_the_gradient_evenly() -> None:
    x = np.array([[[1.0, 1.0, 0.0, 1.0]]])
    slopes = et.grad(lambda a: et.sum(et.nn.max_pool1d(a, 3, stride=1)))(et.array(x))
    np.testing.assert_array_equal(slopes.numpy(), [[[0.5, 1.0, 0, 0.5]]])
    flat = et.grad(lambda a: et.sum(et.nn.max_pool2d(a, 2)))(et.ones((1, 1, 2, 2)))
    np.testing.assert_array_equal(flat.numpy(), np.full((1, 1, 2, 2), 0.25))


def test_derivatives_of_two_orders() -> None:
    x = draw(1, 2, 5, 6)
    check_grads(lambda a: et.tanh(et.nn.max_pool2d(a, 3, stride=2, padding=1)), (x,), order=2)
    check_grads(
        lambda a: et.tanh(et.nn.avg_pool2d(a, 3, stride=2, padding=1, count_include_pad=False)),
        (x,),
        order=2,
    )
    mask = np.array([[True, False, True], [False, False, False]])
    check_grads(lambda a: et.tanh(et.nn.mean_pool(a, mask)), (draw(2, 3, 4),), order=2)


def test_rows() -> None:
    x = draw(3, 2, 2, 6, 5)
    for f in (
        lambda a: et.nn.max_pool2d(a, 3, stride=2, padding=1),
        lambda a: et.nn.avg_pool2d(a, 2, stride=1, ceil_mode=True, padding=1),
        et.nn.global_max_pool,
    ):
        want = np.stack([f(x[k]).numpy() for k in range(3)])
        np.testing.assert_array_equal(et.vmap(f)(et.array(x)).numpy(), want)


def test_global_pools() -> None:
    x = draw(2, 3, 4, 5)
    np.testing.assert_array_equal(et.nn.global_max_pool(x).numpy(), x.max((2, 3)))
    mean = et.nn.global_avg_pool(x, keepdims=True)
    np.testing.assert_allclose(mean.numpy(), x.mean((2, 3), keepdims=True), rtol=0, atol=2.0**-48)
    with pytest.raises(ShapeError, match="global_max_pool: needs"):
        et.nn.global_max_pool(np.zeros((2, 3), np.float32))


def test_mean_pool_under_a_mask() -> None:
    x = draw(3, 4, 2)
    mask = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]], np.bool_)
    x[0, 2] = np.nan  # what is masked does not matter
    want = np.stack([x[0, :2].mean(0), np.zeros(2), x[2][mask[2]].mean(0)])
    got = et.nn.mean_pool(x, mask).numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=8 * 2.0**-52)
    slopes = et.grad(lambda a: et.sum(et.nn.mean_pool(a, mask)))(et.array(x)).numpy()
    np.testing.assert_allclose(slopes[0], [[0.5] * 2, [0.5] * 2, [0] * 2, [0] * 2])
    np.testing.assert_array_equal(slopes[1], np.zeros((4, 2)))
    none = et.nn.mean_pool(np.ones((2, 0, 3)), np.zeros((2, 0), np.bool_))
    np.testing.assert_array_equal(none.numpy(), np.zeros((2, 3)))


def test_nothing_is_legal() -> None:
    assert et.nn.max_pool2d(np.zeros((0, 2, 4, 4), np.float32), 2).shape == (0, 2, 2, 2)
    assert et.nn.avg_pool2d(np.zeros((2, 0, 4, 4), np.float32), 2).shape == (2, 0, 2, 2)
    assert et.nn.max_pool1d(np.zeros((2, 1, 0), np.float32), 2).shape == (2, 1, 0)
    assert et.nn.max_pool1d(np.zeros((2, 1, 0), np.float32), 2, ceil_mode=True).shape == (2, 1, 0)


@pytest.mark.parametrize(
    ("shape", "kernel", "options", "error", "text"),
    [
        ((4, 4), 2, {}, ShapeError, "needs .batch, channels and 2 more axes., got"),
        ((1, 1, 2, 4), 3, {}, ShapeError, r"kernel of 3 does not fit axis 2 .* = 0 outputs"),
        ((1, 1, 4, 4), 2, {"padding": 2}, ArgumentError, "padding 2 is more than half of the"),
        ((1, 1, 4, 4), 0, {}, ArgumentError, "kernel must be an int or 2 ints of at least 1"),
        ((1, 1, 4, 4), (2, 2, 2), {}, ArgumentError, "kernel must be"),
        ((1, 1, 4, 4), 2, {"stride": 0}, ArgumentError, "stride must be"),
    ],
)
def test_errors(shape: Any, kernel: Any, options: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        et.nn.max_pool2d(np.zeros(shape, np.float32), kernel, **options)


def test_errors_of_the_mask() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    with pytest.raises(ShapeError, match=r"the mask .* does not fit"):
        et.nn.mean_pool(x, np.zeros((2, 4), np.bool_))
    with pytest.raises(DTypeError, match="the mask must be bool"):
        et.nn.mean_pool(x, np.zeros((2, 3), np.float32))
    with pytest.raises(DTypeError, match="floating"):
        et.nn.mean_pool(x.astype(np.int32), np.zeros((2, 3), np.bool_))
