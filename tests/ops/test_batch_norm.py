"""Batch and group norm against the formulas written out, on both runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.testing import check_grads

pytestmark = pytest.mark.usefixtures("runtime")

TOLERANCE = 64 * 2.0**-52


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape)


def close(got: Any, want: Any) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5)])
def test_batch_norm(shape: Any) -> None:
    x, mean, weight, bias = draw(*shape), draw(3, seed=1), draw(3, seed=2), draw(3, seed=3)
    variance = np.square(draw(3, seed=4)) + 0.5
    axes = (0, *range(2, len(shape)))

    def column(a: Any) -> Any:
        return a.reshape((3, *(1,) * (len(shape) - 2)))

    want = (x - column(mean)) / np.sqrt(column(variance) + 1e-5)
    close(et.nn.batch_norm(x, mean, variance), want)
    scaled = want * column(weight) + column(bias)
    close(et.nn.batch_norm(x, mean, variance, weight, bias), scaled)

    y, mean_now, variance_now = et.nn.batch_norm(
        x, mean, variance, weight, bias, training=True, momentum=0.25, eps=0.1
    )
    own = (x - column(x.mean(axes))) / np.sqrt(column(x.var(axes)) + 0.1)
    close(y, own * column(weight) + column(bias))
    close(mean_now, 0.75 * mean + 0.25 * x.mean(axes))
    close(variance_now, 0.75 * variance + 0.25 * x.var(axes, ddof=1))
    _, first_mean, first_variance = et.nn.batch_norm(x, training=True)
    close(first_mean, x.mean(axes))
    close(first_variance, x.var(axes, ddof=1))


def test_batch_norm_of_half_types_keeps_statistics_in_float32() -> None:
    x = (100 + draw(64, 2, 8)).astype(np.float16)
    mean, variance = np.zeros(2, np.float32), np.ones(2, np.float32)
    y, mean_now, variance_now = et.nn.batch_norm(x, mean, variance, training=True)
    assert y.dtype == dtypes.float16
    assert mean_now.dtype == variance_now.dtype == dtypes.float32
    wide = x.astype(np.float64)
    want = (wide - wide.mean((0, 2), keepdims=True)) / np.sqrt(
        wide.var((0, 2), keepdims=True) + 1e-5
    )
    # One rounding to float16, and what float32 loses of a mean of 100.
    assert np.abs(y.numpy() - want).max() < 2 * 2.0**-11 + 100 * 4 * 2.0**-24
    np.testing.assert_allclose(mean_now.numpy(), 0.1 * wide.mean((0, 2)), rtol=1e-6)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3, 5)])
def test_group_norm(shape: Any, groups: int) -> None:
    x, weight, bias = draw(*shape), draw(4, seed=1), draw(4, seed=2)
    rows = x.reshape((shape[0], groups, -1))
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-3)
    want = normal.reshape(shape)
    close(et.nn.group_norm(x, groups, eps=1e-3), want)
    column = (4, *(1,) * (len(shape) - 2))
    scaled = want * weight.reshape(column) + bias.reshape(column)
    close(et.nn.group_norm(x, groups, weight, bias, eps=1e-3), scaled)
    close(et.nn.group_norm(x, groups, None, bias, eps=1e-3), want + bias.reshape(column))


def test_group_norm_of_half_types_rounds_once() -> None:
    x, weight = draw(2, 4, 9).astype(np.float16), draw(4, seed=1).astype(np.float32)
    got = et.nn.group_norm(x, 2, weight)
    assert got.dtype == dtypes.float16
    rows = x.astype(np.float64).reshape((2, 2, -1))
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    want = normal.reshape(x.shape) * weight.reshape((4, 1))
    assert (np.abs(got.numpy() - want) <= np.abs(want) * 2.0**-11 * 1.01 + 2.0**-20).all()


def test_derivatives_of_two_orders() -> None:
    x, weight, bias = draw(3, 2, 4), draw(2, seed=1), draw(2, seed=2)

    def train(a: Any, w: Any, b: Any) -> Any:
        return et.tanh(et.nn.batch_norm(a, None, None, w, b, training=True)[0])

    check_grads(train, (x, weight, bias), order=2)
    check_grads(lambda a, w, b: et.tanh(et.nn.group_norm(a, 2, w, b)), (x, weight, bias), order=2)
    # Statistics are a record, not a path of the gradient.
    slopes = et.grad(lambda a: et.sum(et.nn.batch_norm(a, training=True)[1]))(et.array(x))
    np.testing.assert_array_equal(slopes.numpy(), np.zeros(x.shape))


def test_rows() -> None:
    x = draw(3, 4, 2, 5)
    for f in (
        lambda a: et.nn.batch_norm(a, training=True)[0],
        lambda a: et.nn.group_norm(a, 2),
    ):
        want = np.stack([f(x[k]).numpy() for k in range(3)])
        close(et.vmap(f)(et.array(x)), want)


def test_nothing_is_legal() -> None:
    assert et.nn.group_norm(np.zeros((0, 4, 3), np.float32), 2).shape == (0, 4, 3)
    assert et.nn.group_norm(np.zeros((2, 4, 0), np.float32), 2).shape == (2, 4, 0)
    ones = np.ones(2, np.float32)
    assert et.nn.batch_norm(np.zeros((0, 2), np.float32), ones, ones).shape == (0, 2)


def test_errors() -> None:
    x = np.zeros((4, 3, 2), np.float32)
    ones = np.ones(3, np.float32)
    with pytest.raises(ArgumentError, match="needs running_mean and running_var"):
        et.nn.batch_norm(x, ones)
    with pytest.raises(ShapeError, match=r"weight .* does not have one value for each of the 3"):
        et.nn.batch_norm(x, ones, ones, ones[:2])
    with pytest.raises(ShapeError, match="1 values for each channel"):
        et.nn.batch_norm(x[:1, :, :1], training=True)
    with pytest.raises(DTypeError, match="mixed dtypes"):
        et.nn.batch_norm(x, ones.astype(np.float64), ones)
    with pytest.raises(DTypeError, match="floating"):
        et.nn.batch_norm(x.astype(np.int32), training=True)
    with pytest.raises(ShapeError, match=r"needs .batch, channels"):
        et.nn.group_norm(ones, 1)
    for groups in (0, 2, 1.5):
        with pytest.raises(ArgumentError, match="do not divide the 3 channels"):
            et.nn.group_norm(x, groups)
