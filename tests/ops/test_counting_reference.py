"""nonzero, unique, bincount, histogram, segments and grids against NumPy, on both runtimes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pyeffect_torch as et
from pyeffect_torch.core.array import placeholder

EPS64 = 2.0**-52
RNG = np.random.default_rng(5)
X = RNG.standard_normal((9, 2, 3))
IDS = np.array([3, 0, 3, 1, 0, 3, 3, 1, 0])


@pytest.fixture(autouse=True, params=["reference", "cpu"])
def on_each_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with et.use(getattr(et, request.param)()):
        yield


SMALL = hnp.arrays("int8", hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
                   elements=st.integers(-2, 2))  # fmt: skip


@settings(max_examples=40)
@given(x=SMALL, size=st.integers(0, 9))
def test_nonzero_is_numpys(x: Any, size: int) -> None:
    want = np.nonzero(x)
    for got, positions in zip(et.nonzero(x), want, strict=True):
        np.testing.assert_array_equal(got.numpy(), positions)
    for got, positions in zip(et.nonzero(x, size=size, fill_value=-7), want, strict=True):
        padded = np.full(size, -7)
        padded[: len(positions)] = positions[:size]
        np.testing.assert_array_equal(got.numpy(), padded)


@settings(max_examples=40)
@given(x=SMALL, size=st.integers(0, 9))
def test_unique_is_numpys(x: Any, size: int) -> None:
    want = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    options = {"return_index": True, "return_inverse": True, "return_counts": True}
    for got, theirs in zip(et.unique(x, **options), want, strict=True):
        np.testing.assert_array_equal(got.numpy(), theirs)
    few = min(size, len(want[0]))
    got = [part.numpy() for part in et.unique(x, size=size, fill_value=99, **options)]
    np.testing.assert_array_equal(got[0], [*want[0][:few], *[99] * (size - few)])
    np.testing.assert_array_equal(got[1][:few], want[1][:few])
    np.testing.assert_array_equal(got[2], want[2])
    np.testing.assert_array_equal(got[3], [*want[3][:few], *[0] * (size - few)])


def test_unique_counts_nan_once_and_fills_with_the_smallest() -> None:
    x = np.array([3.0, np.nan, -1.0, np.nan, 3.0, -0.0, 0.0])
    np.testing.assert_array_equal(et.unique(x).numpy(), np.unique(x))
    np.testing.assert_array_equal(et.unique(x, size=6).numpy(), [-1, 0, 3, np.nan, -1, -1])
    gradient = et.grad(lambda a: et.sum(et.unique(a, size=2) * np.array([1.0, 10.0])))
    got = gradient(et.array(np.array([3.0, 3.0, 1.0]))).numpy()
    np.testing.assert_array_equal(got, [10, 0, 1])


def test_sizes_under_transforms() -> None:
    x = RNG.integers(0, 3, (4, 6))
    batched = et.vmap(lambda row: et.unique(row, size=3, return_counts=True))(et.array(x))
    for row, values, counts in zip(x, *(part.numpy() for part in batched), strict=True):
        want, how_often = np.unique(row, return_counts=True)
        np.testing.assert_array_equal(values[: len(want)], want)
        np.testing.assert_array_equal(counts[: len(want)], how_often)
    (positions,) = et.jit(lambda a: et.nonzero(a, size=6))(et.array(x[0]))
    assert positions.shape == (6,)
    for call in (et.nonzero, et.unique, et.bincount):
        with pytest.raises(et.errors.TraceError, match="depends on values that a trace does not"):
            et.jit(call)(et.array(x[0]))


@pytest.mark.parametrize("weights", [None, "int8", "float64", "bool"])
def test_bincount_is_numpys(weights: Any) -> None:
    given_weights = None if weights is None else (X[:, 0, 0] * 9).astype(weights)
    want = np.bincount(IDS, given_weights)
    np.testing.assert_array_equal(et.bincount(IDS, given_weights).numpy(), want)
    longer = et.bincount(IDS.astype(np.uint8), given_weights, length=7).numpy()
    np.testing.assert_array_equal(longer, [*want, 0, 0, 0])
    assert et.bincount(np.zeros(0, np.int64)).shape == (0,)


def test_bincount_of_other_numbers() -> None:
    x = np.array([-3, 0, 9, 1])
    np.testing.assert_array_equal(et.bincount(x, length=3, mode="clip").numpy(), [2, 1, 1])
    np.testing.assert_array_equal(et.bincount(x, length=3, mode="fill").numpy(), [1, 1, 0])
    with pytest.raises(IndexError, match="bincount: number -3 is out of range for axis 0 of"):
        et.bincount(x, length=3)
    with pytest.raises(IndexError, match=r"scatter: index -3 is out of"):
        et.bincount(et.array(x), length=10).numpy()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bins": 3},
        {"bins": 5, "range": (-1.0, 0.5)},
        {"bins": 1, "range": (2.0, 2.0)},
        {"bins": np.array([-1.0, 0.0, 0.25, 2.0])},
        {"density": True},
        {"bins": 4, "weights": RNG.standard_normal(54).reshape(9, 2, 3)},
    ],
    ids=str,
)
def test_histogram_is_numpys(options: Any) -> None:
    counts, edges = et.histogram(X, **options)
    want, their_edges = np.histogram(X, **options)
    np.testing.assert_array_equal(edges.numpy(), their_edges)
    np.testing.assert_allclose(counts.numpy(), want, rtol=16 * EPS64, atol=16 * EPS64)
    assert counts.dtype == want.dtype


def test_histogram_of_edges_halves_and_integers() -> None:
    x = np.array([0, 1, 2, 3, 4, 4])
    counts, edges = et.histogram(x, 4)
    np.testing.assert_array_equal(counts.numpy(), np.histogram(x, 4)[0])
    assert edges.dtype == np.float32
    half, _ = et.histogram(x.astype(np.float16), 4)
    np.testing.assert_array_equal(half.numpy(), [1, 1, 1, 3])
    holes = np.array([np.nan, 0.5, 7.0])
    np.testing.assert_array_equal(et.histogram(holes, 2, (0.0, 1.0))[0].numpy(), [0, 1])
    np.testing.assert_array_equal(et.histogram(np.zeros(0), 2)[1].numpy(), [0, 0.5, 1])
    traced = et.jit(lambda a: et.histogram(a, 3))(et.array(X))
    np.testing.assert_array_equal(traced[0].numpy(), np.histogram(X, 3)[0])
    weights = et.grad(lambda w: et.histogram(holes, 2, (0.0, 8.0), w)[0][1])(et.ones(3, "float64"))
    np.testing.assert_array_equal(weights.numpy(), [0, 0, 1])


# --- segments


@pytest.mark.parametrize(
    ("name", "function"),
    [("sum", np.sum), ("prod", np.prod), ("max", np.max), ("min", np.min), ("mean", np.mean)],
)
def test_segments_are_reductions_of_their_rows(name: str, function: Any) -> None:
    empty = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "mean": np.nan}[name]
    want = [function(X[k == IDS], 0) if (k == IDS).any() else np.full((2, 3), empty)
            for k in range(5)]  # fmt: skip
    segment = getattr(et, f"segment_{name}")
    got = segment(X, IDS, 5)
    np.testing.assert_allclose(got.numpy(), want, rtol=16 * EPS64, atol=16 * EPS64)
    shuffled = segment(et.array(X[::-1].copy()), et.array(IDS[::-1].astype(np.uint8)), 5)
    np.testing.assert_allclose(shuffled.numpy(), want, rtol=16 * EPS64, atol=16 * EPS64)
    et.testing.check_grads(
        lambda a: segment(a, IDS, 4)[np.array([0, 1, 3])] ** 2, (et.array(X),), order=2
    )
    columns = et.vmap(lambda a: segment(a, IDS, 5), in_axes=1, out_axes=1)(et.array(X))
    np.testing.assert_array_equal(columns.numpy(), got.numpy())


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16"])
def test_dtypes_of_segments(dtype: str) -> None:
    x = np.array([1, 0, 1, 1]).astype(dtype)
    ids = np.array([2, 0, 2, 0])
    total = et.segment_sum(x, ids, 3)
    assert total.dtype == ("int64" if dtype == "bool" else dtype)
    np.testing.assert_array_equal(total.numpy(), [1, 0, 2])
    mean = et.segment_mean(x, ids, 3)
    assert mean.dtype == ("float16" if dtype == "float16" else "float32")
    np.testing.assert_array_equal(mean.numpy(), [0.5, np.nan, 1])
    lowest = -np.inf if dtype == "float16" else np.iinfo(dtype).min if dtype != "bool" else 0
    np.testing.assert_array_equal(et.segment_max(x, ids, 3).numpy(), [1, lowest, 1])
    np.testing.assert_array_equal(et.segment_min(x, ids, 3).numpy()[[0, 2]], [0, 1])
    np.testing.assert_array_equal(et.segment_prod(x, ids, 3).numpy(), [0, 1, 1])


def test_other_segments() -> None:
    rows = np.array([1.0, 2.0, 4.0])
    got = et.segment_sum(rows, np.array([0, 9, -1]), 2, mode="fill").numpy()
    np.testing.assert_array_equal(got, [1, 0])
    got = et.segment_max(rows, np.array([0, 9, -1]), 2, mode="clip").numpy()
    np.testing.assert_array_equal(got, [4, 2])
    for bad in (-1, 2):
        with pytest.raises(IndexError, match=f"segment_max: segment id {bad} is out of range"):
            et.segment_max(rows, np.array([0, 1, bad]), 2)
        with pytest.raises(IndexError, match=f"index {bad} is out of"):
            et.segment_max(rows, et.array(np.array([0, 1, bad])), 2).numpy()


# --- grids


@pytest.mark.parametrize(("n", "k", "m"), [(4, 0, None), (3, 1, 5), (5, -2, 3), (0, 0, 2)])
def test_triangles_are_numpys(n: int, k: int, m: int | None) -> None:
    for name in ("triu_indices", "tril_indices"):
        got, want = getattr(et, name)(n, k, m), getattr(np, name)(n, k, m)
        for mine, theirs in zip(got, want, strict=True):
            assert mine.dtype == np.int64
            np.testing.assert_array_equal(mine.numpy(), theirs)


def test_positions_in_grids_are_numpys() -> None:
    shape = (3, 4, 5)
    flat = RNG.integers(0, 60, (2, 7))
    by_axis = et.unravel_index(et.array(flat), shape)
    for mine, theirs in zip(by_axis, np.unravel_index(flat, shape), strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs)
    np.testing.assert_array_equal(et.ravel_multi_index(by_axis, shape).numpy(), flat)
    clipped = et.ravel_multi_index((np.array([9, -1]), 1, 2), shape, mode="clip")
    np.testing.assert_array_equal(clipped.numpy(), [47, 7])
    assert [int(part) for part in et.unravel_index(-1, shape)] == [2, 3, 4]
    with pytest.raises(IndexError, match="unravel_index: index 60 is out of range for axis 0 of"):
        et.unravel_index(60, shape)
    with pytest.raises(IndexError, match=r"check_index: index 4 is out of \w+ for axis 1"):
        et.ravel_multi_index((0, et.array(4), 0), shape).numpy()


F = placeholder((2, 3), np.dtype(np.float32), "f")


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        ("ShapeError", lambda: et.nonzero(1.0), r"nonzero: bool\[\] has no axes"),
        ("ShapeError", lambda: et.nonzero(F, size=-1), "nonzero: negative extent"),
        ("ShapeError", lambda: et.bincount(np.zeros((2, 2), int)), "is no vector"),
        ("DTypeError", lambda: et.bincount(F), "bincount: the index must be an integer array"),
        ("ShapeError", lambda: et.bincount(IDS, X, length=4), "bincount: weights float64"),
        ("ArgumentError", lambda: et.histogram(F, 0), "histogram: 0 bins"),
        ("ArgumentError", lambda: et.histogram(F, 2, (1, 0)), r"no bins fit the range \(1, 0\)"),
        ("ShapeError", lambda: et.histogram(F, et.zeros(1)), "bound no bin"),
        ("DTypeError", lambda: et.histogram(F, np.zeros(3)), "histogram: mixed dtypes"),
        ("ShapeError", lambda: et.segment_min(F, IDS, 4), "segment_min: the ids int64"),
        ("ShapeError", lambda: et.segment_sum(F, [0, 1], -4), "segment_sum: negative extent"),
        ("ShapeError", lambda: et.ravel_multi_index((1, 2), (3,)), "2 indices for shape"),
    ],
)  # fmt: skip
def test_errors_at_the_call(error: str, call: Callable[[], Any], message: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=message):
        call()
