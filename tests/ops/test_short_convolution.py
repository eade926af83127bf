"""`short_conv1d` against its sum written out, and against the depthwise convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import DTypeError, ShapeError
from pyeffect_torch.testing import check_grads

pytestmark = pytest.mark.usefixtures("runtime")


def draw(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


@pytest.mark.parametrize("shape", [(9, 3), (2, 3, 7, 4), (2, 2, 5), (0, 3), (2, 5, 0)])
@pytest.mark.parametrize("size", [1, 4])
def test_the_sum(shape: Any, size: int) -> None:
    x, w = draw(*shape), draw(shape[-1], size, seed=1)
    want = np.zeros(shape)
    for t in range(shape[-2]):
        for j in range(size):
            if t - size + 1 + j >= 0:
                want[..., t, :] += w[:, j] * x[..., t - size + 1 + j, :]
    got = et.nn.short_conv1d(x, w)
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=8 * 2.0**-52)
    if x.size and x.ndim == 3:
        turned = np.swapaxes(x, 1, 2)
        other = et.nn.conv1d(turned, w[:, None], padding=((size - 1, 0),), groups=shape[-1])
        np.testing.assert_array_equal(got.numpy(), np.swapaxes(other.numpy(), 1, 2))


def test_a_sequence_in_parts() -> None:
    x, w = draw(2, 9, 3), draw(3, 4, seed=1)
    whole = et.nn.short_conv1d(x, w).numpy()
    first = et.nn.short_conv1d(x[:, :5], w)
    second = et.nn.short_conv1d(x[:, 5:6], w, x[:, 2:5])
    third = et.nn.short_conv1d(x[:, 6:], w, x[:, 3:6])
    parts = np.concatenate([first.numpy(), second.numpy(), third.numpy()], 1)
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
def test_half_types_round_once(dtype: Any) -> None:
    x, w = draw(40, 5).astype(dtype), draw(5, 8, seed=1).astype(dtype)
    got = et.nn.short_conv1d(x, w)
    assert got.dtype == dtype
    want = et.nn.short_conv1d(x.astype(np.float64), w.astype(np.float64)).numpy()
    bound = np.abs(want) * dtypes.epsilon(dtype) / 2 * 1.01 + 32 * 2.0**-24
    assert (np.abs(got.numpy().astype(np.float64) - want) <= bound).all()


def test_derivatives_and_rows() -> None:
    x, w, before = draw(2, 5, 3), draw(3, 3, seed=1), draw(2, 2, 3, seed=2)
    check_grads(lambda *a: et.tanh(et.nn.short_conv1d(*a)), (x, w, before), order=2)
    rows, weights = draw(3, 5, 2), draw(3, 2, 4, seed=1)
    got = et.vmap(et.nn.short_conv1d)(et.array(rows), et.array(weights)).numpy()
    want = [et.nn.short_conv1d(rows[k], weights[k]).numpy() for k in range(3)]
    np.testing.assert_array_equal(got, np.stack(want))


def test_errors() -> None:
    x, w = np.zeros((2, 5, 3), np.float32), np.zeros((3, 4), np.float32)
    with pytest.raises(ShapeError, match=r"weights .* do not fit"):
        et.nn.short_conv1d(x, w.T)
    with pytest.raises(ShapeError, match="do not fit"):
        et.nn.short_conv1d(x, w[:, :0])
    with pytest.raises(ShapeError, match=r"the history .* must have shape \[2, 3, 3\]"):
        et.nn.short_conv1d(x, w, x)
    with pytest.raises(DTypeError, match="mixed dtypes"):
        et.nn.short_conv1d(x, w.astype(np.float64))
    with pytest.raises(DTypeError, match="floating"):
        et.nn.short_conv1d(x.astype(np.int32), w.astype(np.int32))
