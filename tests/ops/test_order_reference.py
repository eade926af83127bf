"""Sorts and searches against NumPy on both runtimes: ties, NaN, zeros, derivatives, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pyeffect_torch as et
from pyeffect_torch.core.array import placeholder
from pyeffect_torch.core.op import Op
from pyeffect_torch.ops.order import SORT
from pyeffect_torch.ops.search import SEARCHSORTED

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4, 5))
NAN = np.nan


@pytest.fixture(autouse=True, params=["reference", "cpu"])
def on_each_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with et.use(getattr(et, request.param)()):
        yield


@pytest.mark.parametrize("op", [SORT, SEARCHSORTED], ids=str)
def test_types_are_those_of_the_reference(op: Op, check_types: Callable[[Op], None]) -> None:
    check_types(op)


def drawn(dtype: Any) -> st.SearchStrategy[Any]:
    """Arrays of up to three axes with many ties; floats with zeros of both signs, inf and NaN."""
    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9)
    if np.dtype(dtype).kind == "f":
        few = st.sampled_from([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, NAN])
        return hnp.arrays(dtype, shapes, elements=few)
    return hnp.arrays(dtype, shapes)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "int64", "uint64", "float16", "float32", "float64"]
)
@settings(max_examples=25)
@given(data=st.data())
def test_sorts_are_numpys_stable_sorts(dtype: str, data: Any) -> None:
    x = data.draw(drawn(dtype))
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    values, positions = et.sort(x, axis).numpy(), et.argsort(x, axis).numpy()
    np.testing.assert_array_equal(positions, np.argsort(x, axis, kind="stable"))
    np.testing.assert_array_equal(values, np.sort(x, axis, kind="stable"))
    assert values.dtype == x.dtype
    assert positions.dtype == np.int64


@settings(max_examples=25)
@given(x=drawn("float32"))
def test_descending_keeps_the_order_of_ties_and_puts_nan_last(x: Any) -> None:
    positions = et.argsort(x, descending=True).numpy()
    for at in np.ndindex(*x.shape[:-1]):
        row = x[at]
        keys = [(bool(np.isnan(v)), 0.0 if np.isnan(v) else -v, i) for i, v in enumerate(row)]
        assert positions[at].tolist() == [i for _, _, i in sorted(keys)]


def test_a_sort_keeps_the_signs_of_zeros() -> None:
    values = et.sort(np.array([0.0, -0.0, -1.0, -0.0])).numpy()
    np.testing.assert_array_equal(np.signbit(values), [True, False, True, True])


def test_bfloat16_sorts_as_its_numbers() -> None:
    x = RNG.standard_normal(50).astype(ml_dtypes.bfloat16)
    want = np.argsort(x.astype(np.float64), kind="stable")
    np.testing.assert_array_equal(et.argsort(x).numpy(), want)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_top_k_is_the_head_of_the_descending_sort(axis: int) -> None:
    for k in range(X.shape[axis] + 1):
        values, positions = et.top_k(X, k, axis)
        order = np.take(np.argsort(-X, axis, kind="stable"), range(k), axis)
        np.testing.assert_array_equal(positions.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(X, order, axis))
    few, places = et.top_k(np.array([1.0, NAN, 3.0, 3.0]), 4)
    np.testing.assert_array_equal(few.numpy(), [3, 3, 1, NAN])
    np.testing.assert_array_equal(places.numpy(), [2, 3, 0, 1])


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_the_few_largest_of_a_long_row(dtype: str) -> None:
    x = (RNG.standard_normal((3, 5000)) * 40).astype(dtype)
    values, positions = et.top_k(x, 70)
    order = np.argsort(-x.astype(np.float64), -1, kind="stable")[:, :70]
    np.testing.assert_array_equal(positions.numpy(), order)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, order, -1))


def test_lexsort_is_numpys() -> None:
    keys = RNG.integers(0, 3, (3, 2, 40))
    np.testing.assert_array_equal(et.lexsort(keys).numpy(), np.lexsort(keys))
    np.testing.assert_array_equal(et.lexsort(tuple(keys), 0).numpy(), np.lexsort(keys, 0))


def test_partitions_put_the_kth_where_it_belongs() -> None:
    got = et.partition(X, 2, 1).numpy()
    np.testing.assert_array_equal(got[:, 2], np.partition(X, 2, 1)[:, 2])
    order = et.argpartition(X, -1, None).numpy()
    assert X.ravel()[order[-1]] == X.max()


# --- derivatives


def test_derivatives_of_all_orders_and_under_vmap() -> None:
    x = et.array(X)
    for f in (
        lambda a: et.sum(et.sort(a, 1) ** 3 * np.arange(4.0)[:, None]),
        lambda a: et.sum(et.sort(a, 0, descending=True) ** 2 * np.arange(3.0)[:, None, None]),
        lambda a: et.sum(et.top_k(a, 2)[0] ** 3),
    ):
        et.testing.check_grads(f, (x,), order=2)
    stacked = et.vmap(et.grad(lambda row: et.sum(et.sort(row) * np.arange(5.0))), in_axes=1)
    got = stacked(et.array(X[0].T)).numpy()
    np.testing.assert_array_equal(got, np.argsort(np.argsort(X[0], -1), -1))


def test_tangents_move_with_the_elements() -> None:
    x, t = np.array([3.0, 1.0, 2.0]), np.array([30.0, 10.0, 20.0])
    values, moved = et.jvp(et.sort, (et.array(x),), (et.array(t),))
    np.testing.assert_array_equal(values.numpy() * 10, moved.numpy())
    positions, zero = et.jvp(et.argsort, (et.array(x),), (et.array(t),))
    np.testing.assert_array_equal(positions.numpy(), [1, 2, 0])
    assert not zero.numpy().any()


# --- searching


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float64", "bool"])
def test_searchsorted_is_numpys(side: Any, dtype: str) -> None:
    row = np.sort((RNG.standard_normal(9) * 4).astype(dtype))
    values = (RNG.standard_normal((3, 4)) * 4).astype(dtype)
    got = et.searchsorted(row, values, side)
    np.testing.assert_array_equal(got.numpy(), np.searchsorted(row, values, side))
    assert got.dtype == np.int64
    np.testing.assert_array_equal(
        et.searchsorted(row, row, side).numpy(), np.searchsorted(row, row, side)
    )


def test_searchsorted_knows_nan_and_empty_rows() -> None:
    row = np.array([-np.inf, -0.0, 0.0, 1.0, NAN, NAN])
    values = np.array([NAN, np.inf, 0.0, -0.0])
    for side in ("left", "right"):
        want = np.searchsorted(row, values, side)
        np.testing.assert_array_equal(et.searchsorted(row, values, side).numpy(), want)
    assert et.searchsorted(np.zeros(0), 1.0).numpy() == 0


def test_searchsorted_under_vmap_of_either_operand() -> None:
    rows, values = np.sort(RNG.standard_normal((4, 9)), -1), RNG.standard_normal((4, 3))
    search = et.vmap(et.searchsorted)
    want = np.stack([np.searchsorted(a, b) for a, b in zip(rows, values, strict=True)])
    np.testing.assert_array_equal(search(et.array(rows), et.array(values)).numpy(), want)
    np.testing.assert_array_equal(
        et.vmap(et.vmap(et.searchsorted, in_axes=(None, 0)))(et.array(rows), values).numpy(), want
    )


@pytest.mark.parametrize("right", [False, True])
def test_digitize_is_numpys(right: bool) -> None:
    x = np.array([-1.0, 0.0, 0.5, 1.0, 2.5, 9.0])
    for bins in ([0.0, 1.0, 2.5, 4.0], [4.0, 2.5, 1.0, 0.0], [1.0], [1.0, 1.0]):
        edges = np.array(bins)
        want = np.digitize(x, edges, right)
        np.testing.assert_array_equal(et.digitize(x, edges, right).numpy(), want)


def test_isin_is_numpys() -> None:
    x, values = RNG.integers(0, 9, (3, 4)), RNG.integers(0, 9, (2, 2))
    for invert in (False, True):
        got = et.isin(x, values, invert=invert).numpy()
        np.testing.assert_array_equal(got, np.isin(x, values, invert=invert))
        empty = et.isin(x, np.zeros(0, np.int64), invert=invert).numpy()
        np.testing.assert_array_equal(empty, np.full(x.shape, invert))
    holes = np.array([NAN, 1.0])
    np.testing.assert_array_equal(et.isin(holes, holes).numpy(), np.isin(holes, holes))


@pytest.mark.parametrize("options", [{}, {"left": -7.0, "right": 7.0}, {"period": 2.5}])
def test_interp_is_numpys(options: Any) -> None:
    xp, fp = np.sort(RNG.uniform(0, 4, 7)), RNG.standard_normal(7)
    x = np.concatenate([RNG.uniform(-2, 6, 20), xp, [NAN]])
    got = et.interp(x, xp, fp, **options).numpy()
    np.testing.assert_allclose(got, np.interp(x, xp, fp, **options), rtol=0, atol=32 * 2.0**-52)
    et.testing.check_grads(
        lambda a, b, c: et.interp(a, b, c, **options),
        (et.array(RNG.uniform(0.1, 3.9, 6)), et.array(xp), et.array(fp)),
        order=2,
    )


def test_interp_at_its_points_gives_their_values() -> None:
    inf, xp = np.inf, np.array([0.1, 0.3, 0.77])
    for values in ([0.1, 0.37, 0.9], [1, inf, 2], [-inf, 1, inf], [1, 2, NAN]):
        fp = np.array(values, float)
        np.testing.assert_array_equal(et.interp(xp, xp, fp).numpy(), fp)
    ends = np.array([-inf, 0.0, inf])
    np.testing.assert_array_equal(et.interp(ends, ends, np.arange(3.0)).numpy(), np.arange(3.0))


def test_interp_of_one_point_and_of_halves() -> None:
    x = np.array([0.0, 1.0, 2.0])
    np.testing.assert_array_equal(et.interp(x, x[:1], x[2:]).numpy(), [2, 2, 2])
    half = et.interp(*(part.astype(np.float16) for part in (x / 3, x, x * 3)))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half.numpy(), ((x / 3).astype(np.float16) * np.float16(3)))


F = placeholder((2, 3), np.dtype(np.float32), "f")
V = placeholder((3,), np.dtype(np.float32), "v")


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        ("ShapeError", lambda: et.sort(F, 2), "sort: axis 2 is out of range for rank 2"),
        ("ShapeError", lambda: et.top_k(F, 4), r"top_k: k is 4, but axis 1 of float32\[2, 3\] has"),
        ("ArgumentError", lambda: et.top_k(F, 1.0), "top_k: k is 1.0"),
        ("ShapeError", lambda: et.partition(F, 3), "partition: kth is 3, but the axis has 3"),
        ("ShapeError", lambda: et.argpartition(F, -7, None), "kth is -7, but the axis has 6"),
        ("ShapeError", lambda: et.lexsort((F, V)), r"keys float32\[2, 3\], float32\[3\]"),
        ("ShapeError", lambda: et.searchsorted(F, V), "the sorted array must be a vector"),
        ("DTypeError", lambda: et.searchsorted(V, np.arange(3)), "searchsorted: mixed dtypes"),
        ("ArgumentError", lambda: et.searchsorted(V, V, "up"), "unknown side 'up'"),
        ("ShapeError", lambda: et.digitize(V, F), "digitize: the bins must be a vector"),
        ("ShapeError", lambda: et.interp(V, V, F), r"interp: points float32\[3\] and values"),
        ("DTypeError", lambda: et.interp(*[np.arange(3)] * 3), "interp: needs a floating array"),
        ("ArgumentError", lambda: et.interp(V, V, V, period=-1.0), "the period is -1.0"),
    ],
)  # fmt: skip
def test_errors_at_the_call(error: str, call: Callable[[], Any], message: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=message):
        call()
