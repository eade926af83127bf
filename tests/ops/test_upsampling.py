"""Upsampling against PyTorch's rules written out for one element, on both runtimes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.testing import check_grads

pytestmark = pytest.mark.usefixtures("runtime")


def draw(*shape: int) -> Any:
    return np.random.default_rng(0).uniform(-1, 1, shape)


def shares(n: int, extent: int, ratio: float, align: bool) -> list[list[tuple[int, float]]]:
    """For each new place along an axis: the old ones that it is made of, and how much of each."""
    found: list[list[tuple[int, float]]] = []
    for i in range(extent):
        if align:
            at = i * (n - 1) / (extent - 1) if extent > 1 else 0.0
        else:
            at = max((i + 0.5) * ratio - 0.5, 0.0)
        first = min(math.floor(at), n - 1)
        share = min(at - first, 1.0)
        found.append([(first, 1 - share), (min(first + 1, n - 1), share)])
    return found


def interpolate(x: Any, extents: Any, ratios: Any, align: bool) -> Any:
    out = np.zeros((*x.shape[:2], *extents))
    lists = [
        shares(n, extent, ratio, align)
        for n, extent, ratio in zip(x.shape[2:], extents, ratios, strict=True)
    ]
    for at in np.ndindex(*extents):
        for terms in itertools.product(*(own[i] for own, i in zip(lists, at, strict=True))):
            weight = math.prod(share for _, share in terms)
            out[(..., *at)] += weight * x[(..., *(place for place, _ in terms))]
    return out


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(6, 8), (9, 20), (3, 4), (5, 7), (2, 1), (1, 9)])
def test_bilinear(size: Any, align: bool) -> None:
    x = draw(2, 2, 3, 4)
    got = et.nn.upsample(x, size=size, mode="bilinear", align_corners=align)
    ratios = [n / extent for n, extent in zip(x.shape[2:], size, strict=True)]
    want = interpolate(x, size, ratios, align)
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=16 * 2.0**-52)


@pytest.mark.parametrize("scale", [1, 2, 3, 1.5, 0.5, 2.6])
def test_linear_by_a_factor(scale: float) -> None:
    x = draw(2, 3, 7)
    extent = math.floor(7 * scale)
    got = et.nn.upsample(x, scale, mode="linear")
    want = interpolate(x, (extent,), (1 / scale,), False)
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=16 * 2.0**-52)


@pytest.mark.parametrize("scale", [1, 2, (3, 1), 1.5, (0.5, 2.6)])
def test_nearest_by_a_factor(scale: Any) -> None:
    x = draw(2, 2, 4, 5)
    factors = scale if isinstance(scale, tuple) else (scale, scale)
    extents = [math.floor(n * f) for n, f in zip((4, 5), factors, strict=True)]
    rows, columns = (
        [min(math.floor(i * (1 / f)), n - 1) for i in range(extent)]
        for n, f, extent in zip((4, 5), factors, extents, strict=True)
    )
    want = x[:, :, rows][:, :, :, columns]
    np.testing.assert_array_equal(et.nn.upsample(x, scale).numpy(), want)


@pytest.mark.parametrize("size", [1, 3, 7, 12, 35])
def test_nearest_to_a_size(size: int) -> None:
    x = draw(1, 2, 6)
    want = x[:, :, [i * 6 // size for i in range(size)]]
    np.testing.assert_array_equal(et.nn.upsample(x, size=size).numpy(), want)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_every_dtype(dtype: Any) -> None:
    x = np.array([[[0, 1, 1]]]).astype(dtype)
    got = et.nn.upsample(x, 2)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.numpy(), np.repeat(x, 2, 2))
    if dtype in dtypes.FLOATS:
        line = et.nn.upsample(x, 2, mode="linear")
        assert line.dtype == dtype
        want = [[[0, 0.25, 0.75, 1, 1, 1]]]
        np.testing.assert_array_equal(line.numpy().astype(np.float64), want)
    else:
        with pytest.raises(DTypeError, match="floating"):
            et.nn.upsample(x, 2, mode="linear")


def test_derivatives_and_rows() -> None:
    x = draw(2, 2, 3, 4)
    for options in (
        {"scale": 2},
        {"size": (5, 3)},
        {"scale": 2, "mode": "bilinear"},
        {"size": (5, 3), "mode": "bilinear", "align_corners": True},
    ):

        def f(a: Any, options: Any = options) -> Any:
            return et.nn.upsample(a, **options)

        check_grads(lambda a, f=f: et.tanh(f(a)), (x,), order=2)
        rows = draw(3, 1, 2, 3, 4)
        want = np.stack([f(rows[k]).numpy() for k in range(3)])
        np.testing.assert_array_equal(et.vmap(f)(et.array(rows)).numpy(), want)


def test_nothing_is_legal() -> None:
    assert et.nn.upsample(np.zeros((0, 2, 3), np.float32), 2).shape == (0, 2, 6)
    assert et.nn.upsample(np.zeros((1, 2, 0), np.float32), 2).shape == (1, 2, 0)
    assert et.nn.upsample(np.zeros((1, 2, 3), np.float32), size=0).shape == (1, 2, 0)
    assert et.nn.upsample(np.zeros((1, 2, 3), np.float32), size=0, mode="linear").size == 0


def test_errors() -> None:
    x = np.zeros((1, 2, 3), np.float32)
    with pytest.raises(ArgumentError, match="give scale or size"):
        et.nn.upsample(x)
    with pytest.raises(ArgumentError, match="give scale or size"):
        et.nn.upsample(x, 2, size=4)
    with pytest.raises(ArgumentError, match="unknown mode 'cubic'"):
        et.nn.upsample(x, 2, mode="cubic")
    with pytest.raises(ArgumentError, match="no corners"):
        et.nn.upsample(x, 2, align_corners=True)
    with pytest.raises(ArgumentError, match="scale must be a factor above 0"):
        et.nn.upsample(x, 0)
    with pytest.raises(ShapeError, match="'bilinear' needs rank 4"):
        et.nn.upsample(x, 2, mode="bilinear")
    with pytest.raises(ShapeError, match=r"needs .batch, channels, "):
        et.nn.upsample(x[0], 2)
    with pytest.raises(ShapeError, match=r"axis 2 of .* has no value for 4 elements"):
        et.nn.upsample(np.zeros((1, 2, 0), np.float32), size=4)
