"""Gathers, scatters, windows and checks against NumPy, and the messages of their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.array import placeholder
from pyeffect_torch.core.op import Op
from pyeffect_torch.ops.dynamic import CHECK, CHECK_INDEX, DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE
from pyeffect_torch.ops.indexing import TAKE, TAKE_ALONG_AXIS
from pyeffect_torch.ops.scatter import (
    SCATTER,
    SCATTER_ALONG_AXIS,
    SCATTER_ALONG_AXIS_REDUCE,
    SCATTER_REDUCE,
)

pytestmark = pytest.mark.usefixtures("on_reference")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5, 6))
MATRIX = X[:, :, 0].copy()
INDEX_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize(
    "op",
    [
        TAKE, TAKE_ALONG_AXIS, SCATTER, SCATTER_REDUCE, SCATTER_ALONG_AXIS,
        SCATTER_ALONG_AXIS_REDUCE, DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE, CHECK_INDEX, CHECK,
    ],
    ids=str,
)  # fmt: skip
def test_types_are_those_of_the_reference(op: Op, check_types: Callable[[Op], None]) -> None:
    check_types(op)


@pytest.mark.parametrize(
    ("index", "axis"),
    [
        (np.array([0, 2, -1]), 0),
        (np.array([[1, 0], [0, 4]]), 1),
        (np.array(3), 2),
        (np.array([], np.int64), 1),
        (np.array([7, 100, -120]), None),
    ],
)
def test_take_is_numpys(index: Any, axis: int | None) -> None:
    np.testing.assert_array_equal(et.take(X, index, axis).numpy(), np.take(X, index, axis))
    lazy = et.take(et.array(X), et.array(index), axis)
    np.testing.assert_array_equal(lazy.numpy(), np.take(X, index, axis))


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_every_integer_dtype_is_an_index(dtype: str) -> None:
    index = et.array(np.array([3, 0, 1], dtype))
    np.testing.assert_array_equal(et.take(X, index, 0).numpy(), X[[3, 0, 1]])
    np.testing.assert_array_equal(et.array(X)[index].numpy(), X[[3, 0, 1]])
    got = et.scatter_add(np.zeros(4), index, np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(got.numpy(), [2, 3, 0, 1])


def test_modes_of_take() -> None:
    index = np.array([-1, 0, 4])
    clipped = et.take(X, index, 0, mode="clip").numpy()
    np.testing.assert_array_equal(clipped, X[[0, 0, 3]])
    filled = et.take(X, index, 0, mode="fill").numpy()
    assert np.isnan(filled[[0, 2]]).all()
    np.testing.assert_array_equal(filled[1], X[0])
    whole = et.take(np.arange(4), index, mode="fill").numpy()
    np.testing.assert_array_equal(whole, [0, 0, 0])


def test_gradient_of_fill_is_zero_out_of_range() -> None:
    index = et.array(np.array([-1, 0, 0, 4]))
    gradient = et.grad(lambda x: et.sum(et.take(x, index, mode="fill")))(et.ones(4))
    np.testing.assert_array_equal(gradient.numpy(), [2, 0, 0, 0])
    updates = et.grad(lambda u: et.sum(et.scatter_add(et.zeros(4), index, u, mode="fill")))(
        et.ones(4)
    )
    np.testing.assert_array_equal(updates.numpy(), [0, 1, 1, 0])


@pytest.mark.parametrize("shape", [(4, 2, 6), (1, 2, 6), (4, 7, 1)])
def test_take_along_axis_is_numpys(shape: tuple[int, ...]) -> None:
    index = RNG.integers(-5, 5, shape)
    want = np.take_along_axis(X, index, 1)
    np.testing.assert_array_equal(et.take_along_axis(X, index, 1).numpy(), want)


def test_gather_reads_no_more_than_its_index() -> None:
    index = np.array([[[1, 2]]])
    np.testing.assert_array_equal(et.gather(X, index, 1).numpy(), [[[X[0, 1, 0], X[0, 2, 1]]]])


@pytest.mark.parametrize(
    ("name", "combine"),
    [
        ("add", np.add),
        ("max", np.maximum),
        ("min", np.minimum),
        ("multiply", np.multiply),
    ],
)
def test_scatter_combines_duplicates(name: str, combine: Any) -> None:
    index, updates = np.array([1, 0, 1, -1]), RNG.standard_normal((4, 4, 6))
    want = np.moveaxis(X.copy(), 1, 0)
    combine.at(want, index, np.moveaxis(updates, 1, 0))
    got = getattr(et, f"scatter_{name}")(X, index, updates, 1).numpy()
    np.testing.assert_allclose(got, np.moveaxis(want, 0, 1), rtol=4 * 2.0**-52, atol=0)
    rows = RNG.integers(0, 4, (3, 5))
    grid = np.broadcast_to(np.arange(5), (3, 5))
    want = MATRIX.copy()
    combine.at(want, (rows, grid), MATRIX[:3])
    got = getattr(et, f"scatter_{name}")(MATRIX, rows, MATRIX[:3].copy(), 0).numpy()
    np.testing.assert_allclose(got, want, rtol=4 * 2.0**-52, atol=4 * 2.0**-52)


def test_the_last_of_several_sets_stays_and_alone_has_a_gradient() -> None:
    index = et.array(np.array([2, 0, 2]))
    updates = et.array(np.array([1.0, 2.0, 3.0], np.float32))
    got = et.scatter_set(et.zeros(4), index, updates)
    np.testing.assert_array_equal(got.numpy(), [2, 0, 3, 0])
    to_x, to_updates = et.grad(lambda x, u: et.sum(et.scatter_set(x, index, u)), argnums=(0, 1))(
        et.zeros(4), updates
    )
    np.testing.assert_array_equal(to_x.numpy(), [0, 1, 0, 1])
    np.testing.assert_array_equal(to_updates.numpy(), [0, 1, 1])


def test_ties_of_scatter_max_share_the_gradient() -> None:
    index = et.array(np.array([0, 0]))
    to_x, to_updates = et.grad(lambda x, u: et.sum(et.scatter_max(x, index, u)), argnums=(0, 1))(
        et.array([3.0, 1.0]), et.array([3.0, 2.0])
    )
    np.testing.assert_array_equal(to_x.numpy(), [0.5, 1])
    np.testing.assert_array_equal(to_updates.numpy(), [0.5, 0])


def test_gradient_of_scatter_multiply_with_zeros() -> None:
    index = et.array(np.array([0, 0, 1]))
    to_x, to_updates = et.grad(
        lambda x, u: et.sum(et.scatter_multiply(x, index, u)), argnums=(0, 1)
    )(et.array([2.0, 5.0]), et.array([0.0, 3.0, 7.0]))
    np.testing.assert_array_equal(to_x.numpy(), [0, 7])
    np.testing.assert_array_equal(to_updates.numpy(), [6, 0, 5])


@pytest.mark.parametrize("name", ["add", "set", "max", "min", "multiply"])
def test_third_derivatives_of_scatters_and_their_batches(name: str) -> None:
    scatter = getattr(et, f"scatter_{name}")
    rows, own = np.array([2, 0, 2, -1]), RNG.integers(0, 4, (3, 5))
    x, few = et.array(MATRIX), et.array(RNG.standard_normal((4, 5)))
    et.testing.check_grads(lambda a, u: scatter(a**2, rows, u**3), (x, few), order=3)
    et.testing.check_grads(lambda a, u: scatter(a**2, own, u**3), (x, few[:3]), order=3)
    indices = np.stack([rows, rows[::-1], np.zeros(4, np.int64)])
    updates = RNG.standard_normal((3, 4, 5))
    for axes in ((None, 0, 0), (None, 0, None), (None, None, 0)):
        given = (x, et.array(indices if axes[1] == 0 else rows),
                 et.array(updates if axes[2] == 0 else updates[0]))  # fmt: skip
        slopes = et.vmap(et.grad(lambda *a: et.sum(scatter(*a) ** 2), argnums=(0, 2)), axes)(*given)
        for k in range(3):
            each = (x, given[1][k] if axes[1] == 0 else rows,
                    given[2][k] if axes[2] == 0 else updates[0])  # fmt: skip
            alone = et.grad(lambda *a: et.sum(scatter(*a) ** 2), argnums=(0, 2))(*each)
            for mine, theirs in zip(slopes, alone, strict=True):
                np.testing.assert_array_equal(mine[k].numpy(), theirs.numpy())


@pytest.mark.parametrize("dtype", et.dtypes.ALL, ids=lambda d: d.name)
def test_scatters_take_every_dtype(dtype: Any) -> None:
    x, updates = np.array([1, 0, 1, 0]).astype(dtype), np.array([1, 1, 0]).astype(dtype)
    index = np.array([1, 1, 2])
    for name, want in (("set", [1, 1, 0, 0]), ("max", [1, 1, 1, 0]), ("min", [1, 0, 0, 0]),
                       ("add", [1, 2, 1, 0]), ("multiply", [1, 0, 0, 0])):  # fmt: skip
        if dtype == np.bool_ and name in ("add", "multiply"):
            continue
        for runtime in (et.reference(), et.cpu()):
            with et.use(runtime):
                got = getattr(et, f"scatter_{name}")(x, index, updates)
                assert got.dtype == dtype
                np.testing.assert_array_equal(got.numpy().astype(np.int64), want)


def product(index: Any, **options: Any) -> Callable[..., Any]:
    return lambda x, u: et.sum(et.scatter_multiply(x, index, u, **options))


def test_second_derivatives_of_scatter_multiply_where_several_factors_are_zero() -> None:
    index = et.array(np.array([0, 1, 0, -2, 0]))
    x, u = np.array([2.0, 0.0]), np.array([0.0, 5.0, 3.0, 0.0, 7.0])
    hessian = et.hessian(product(index), (0, 1))(et.array(x), et.array(u))
    # 2 u0 u2 u3 u4 + x1 u1: only the pair of zeros is left.
    want = np.zeros((5, 5))
    want[0, 3] = want[3, 0] = 2 * 3 * 7
    np.testing.assert_array_equal(hessian[1][1].numpy(), want)
    mixed = np.zeros((2, 5))
    mixed[1, 1] = 1
    np.testing.assert_array_equal(hessian[0][1].numpy(), mixed)
    for options in ({"mode": "clip"}, {"mode": "fill"}, {}):
        wide = et.array(np.array([[0, 1], [1, 1]]))
        holes = et.array(np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 1.0], [0.5, 4.0, 0.0]]))
        updates = et.array(np.round(RNG.standard_normal((3, 2, 2))))
        function = product(wide, axis=1, **options)
        et.testing.check_grads(function, (holes, updates), order=3)
        columns = et.array(np.array([[0, 0, 1], [0, 2, 1], [0, 0, 1], [2, 2, 1]]))
        function = product(columns, axis=0, **options)
        et.testing.check_grads(function, (holes, updates.reshape(4, 3)), order=2)


def test_segment_sum() -> None:
    got = et.segment_sum(X, np.array([0, 2, 0, 1]), 4).numpy()
    np.testing.assert_array_equal(got, np.stack([X[0] + X[2], X[3], X[1], np.zeros((5, 6))]))
    dropped = et.segment_sum(et.ones(3), np.array([0, 9, -1]), 2, mode="fill").numpy()
    np.testing.assert_array_equal(dropped, [1, 0])


def test_one_hot() -> None:
    index = np.array([0, 2, 5, -1])
    want = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], np.float32)
    got = et.one_hot(index, 3)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(et.one_hot(index, 3, "int8", 0).numpy(), want.T)


def test_embedding() -> None:
    ids = np.array([[0, 4], [2, 2]])
    np.testing.assert_array_equal(et.embedding(et.array(ids), MATRIX.T).numpy(), MATRIX.T[ids])
    gradient = et.grad(lambda t: et.sum(et.embedding(et.array(ids), t, padding_index=4)))(
        et.array(MATRIX.T)
    )
    np.testing.assert_array_equal(gradient.numpy()[:, 0], [1, 0, 2, 0, 0])


@pytest.mark.parametrize("bad", [-1, 5])
@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_embedding_refuses_ids_out_of_range(bad: int, dtype: str) -> None:
    ids = np.array([0, bad], dtype)
    with pytest.raises(IndexError, match=f"embedding: id {bad} is out of range for axis 0"):
        et.embedding(ids, MATRIX.T)
    for runtime in (et.reference(), et.cpu()):
        with et.use(runtime), pytest.raises(IndexError, match=f"take: index {bad} is out of"):
            et.embedding(et.array(ids), MATRIX.T).numpy()


def test_a_large_unsigned_index_is_named() -> None:
    index = np.array([0, 2**64 - 1], np.uint64)
    with pytest.raises(IndexError, match=f"take: index {2**64 - 1} is out of range"):
        et.take(et.array(X), et.array(index), 0).numpy()
    with et.use(et.cpu()), pytest.raises(IndexError, match=f"index {2**63 - 1} or more is out of"):
        et.take(et.array(X), et.array(index), 0).numpy()


def test_dynamic_windows() -> None:
    x = et.array(X)
    start = et.array(np.array(3, np.int32))
    np.testing.assert_array_equal(
        et.dynamic_slice(x, (1, 2, start), (2, 2, 2)).numpy(), X[1:3, 2:4, 3:5]
    )
    want = X.copy()
    want[2:4, 1:2, 0:6] = 1.0
    got = et.dynamic_update_slice(x, np.ones((2, 1, 6)), np.array([2, 1, 0]))
    np.testing.assert_array_equal(got.numpy(), want)


def test_batched_windows_start_where_each_row_says() -> None:
    x = et.array(X)
    starts = et.array(np.array([[0, 1, 2], [2, 0, 3]]))
    got = et.vmap(lambda s: et.dynamic_slice(x, s, (2, 2, 2)))(starts).numpy()
    np.testing.assert_array_equal(got, [X[:2, 1:3, 2:4], X[2:, :2, 3:5]])
    with pytest.raises(et.errors.IndexOutOfBoundsError):
        et.vmap(lambda s: et.dynamic_slice(x, s, (2, 2, 2)))(starts - 1).numpy()


F = placeholder((2, 3), np.dtype(np.float32), "f")
INDEX = placeholder((2,), np.dtype(np.int64), "i")


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        ("IndexOutOfBoundsError", lambda: et.take(F, 3, 1), "take: index 3 is out of range for "
         "axis 1 of extent 3"),
        ("IndexOutOfBoundsError", lambda: et.take(F, [0, -3], 0), "take: index -3 is out of range"),
        ("IndexOutOfBoundsError", lambda: et.take(et.zeros((0, 2)), INDEX, 0),
         "take: 2 indices into axis 0, which has extent 0"),
        ("DTypeError", lambda: et.take(F, 1.5), r"the index must be an integer array"),
        ("ArgumentError", lambda: et.take(F, INDEX, 0, mode="wrap"), "unknown mode 'wrap'"),
        ("ShapeError", lambda: et.take_along_axis(F, INDEX, 0),
         r"take_along_axis: the index int64\[2\] does not fit float32\[2, 3\] along axis 0"),
        ("ShapeError", lambda: et.scatter_add(F, INDEX, et.zeros((3, 3))),
         r"float32\[3, 3\] does not broadcast to \[2, 3\]"),
        ("DTypeError", lambda: et.scatter_add(F, INDEX, et.zeros((2, 3), "float64")),
         r"mixed dtypes, float32\[2, 3\] and float64\[2, 3\]"),
        ("DTypeError", lambda: et.scatter_add(F > 0, INDEX, F > 1), r"cannot add or multiply bool"),
        ("ShapeError", lambda: et.dynamic_slice(F, (0, 0), (2, 4)),
         r"a window of \[2, 4\] does not fit float32\[2, 3\]"),
        ("ShapeError", lambda: et.dynamic_slice(F, (0,), (2, 3)), "1 starts for 2 axes"),
        ("ShapeError", lambda: et.embedding(INDEX, et.zeros((3,))), r"must have shape \[rows"),
        ("DTypeError", lambda: et.embedding(INDEX, et.zeros((3, 2), "int32")), "needs a floating"),
    ],
)  # fmt: skip
def test_errors_at_the_call(error: str, call: Callable[[], Any], message: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=message):
        call()


def test_errors_at_run_time_name_op_index_axis_and_extent() -> None:
    lazy = et.take(et.array(X), et.array(np.array([0, 7])), 1)
    with pytest.raises(IndexError, match="take: index 7 is out of range for axis 1 of extent 5"):
        lazy.numpy()
    window = et.dynamic_slice(et.array(X), et.array(np.array([0, 0, 5])), (1, 1, 2))
    with pytest.raises(IndexError, match="start 5 is out of range for axis 2: a window of 2"):
        window.numpy()
