"""Reductions over the rows of a named vmap: values, both derivatives, nesting, messages."""

from __future__ import annotations

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.errors import ArgumentError, DTypeError
from pyeffect_torch.testing import assert_close

X = np.array([1.0, 2.0, 5.0])
GRID = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -2.0]])


def test_each_row_gets_the_reduction() -> None:
    x = et.array(X)
    got = et.vmap(
        lambda a: (et.psum(a, "i"), et.pmean(a, "i"), et.pmax(a, "i"), et.pmin(a, "i")),
        axis_name="i",
    )(x)
    for value, expected in zip(got, (8.0, 8.0 / 3.0, 5.0, 1.0), strict=True):
        assert_close(value, np.full(3, expected))


def test_a_value_shared_by_the_rows_counts_once_for_each() -> None:
    shared = et.array(2.0)
    got = et.vmap(lambda a: a * et.psum(shared, "i") + et.pmax(shared, "i"), axis_name="i")(
        et.array(np.ones(3, np.float32))
    )
    assert_close(got, np.full(3, 8.0, np.float32))
    assert int(et.vmap(lambda: et.psum(et.array(3), "i"), axis_size=4, axis_name="i")()[0]) == 12


def test_bool_is_counted() -> None:
    got = et.vmap(lambda a: et.psum(a > 1.5, "i"), axis_name="i")(et.array(X))
    assert got.dtype is et.dtypes.int64
    assert got.tolist() == [2, 2, 2]


def test_a_result_that_all_rows_share_may_leave_without_an_axis() -> None:
    assert float(et.vmap(lambda a: et.psum(a, "i"), axis_name="i", out_axes=None)(X)) == 8.0


def test_nested_names() -> None:
    x = et.array(GRID)

    def inner(a: et.Array) -> tuple[et.Array, ...]:
        return et.psum(a, "j"), et.psum(a, "i"), et.psum(a, ("i", "j")), et.pmax(a, "i")

    by_j, by_i, by_both, top = et.vmap(et.vmap(inner, axis_name="j"), axis_name="i")(x)
    assert_close(by_j, np.broadcast_to(GRID.sum(1, keepdims=True), (2, 3)))
    assert_close(by_i, np.broadcast_to(GRID.sum(0), (2, 3)))
    assert_close(by_both, np.full((2, 3), GRID.sum()))
    assert_close(top, np.broadcast_to(GRID.max(0), (2, 3)))


def test_the_innermost_of_equal_names_wins() -> None:
    got = et.vmap(et.vmap(lambda a: et.psum(a, "i"), axis_name="i"), axis_name="i")(GRID)
    assert_close(got, np.broadcast_to(GRID.sum(1, keepdims=True), (2, 3)))


def test_index_and_size() -> None:
    index, size = et.vmap(lambda a: (et.axis_index("i"), a * et.axis_size("i")), axis_name="i")(
        et.array(X)
    )
    assert index.tolist() == [0, 1, 2]
    assert_close(size, X * 3)


def test_reverse_mode_inside_sums_over_the_rows() -> None:
    """The derivative of the sum of all rows' results, as JAX has it: [46, 62, 110]."""
    f = lambda a: a * a * et.psum(a, "i")
    inside = et.vmap(et.grad(f), axis_name="i")(et.array(X))
    outside = et.grad(lambda x: et.vmap(f, axis_name="i")(x).sum())(et.array(X))
    assert_close(inside, np.array([46.0, 62.0, 110.0]))
    assert_close(outside, np.array([46.0, 62.0, 110.0]))


def test_forward_mode() -> None:
    f = lambda a: et.jvp(lambda b: et.pmean(b * b, "i"), (a,), (et.ones_like(a),))[1]
    assert_close(et.vmap(f, axis_name="i")(et.array(X)), np.full(3, 2 * X.mean()))


def test_ties_of_a_maximum_share_the_gradient() -> None:
    x = et.array(np.array([2.0, 2.0, 1.0]))
    got = et.vmap(et.grad(lambda a: et.pmax(a, "i")), axis_name="i")(x)
    assert_close(got, np.array([1.5, 1.5, 0.0]))


@pytest.mark.parametrize("wrap", [et.jit, et.checkpoint, lambda f: f], ids=["jit", "ckpt", "plain"])
def test_inside_other_transforms(wrap: object) -> None:
    f = wrap(lambda a: et.psum(et.sin(a), "i") * a)
    value = et.vmap(f, axis_name="i")(et.array(X))
    assert_close(value, np.sin(X).sum() * X)
    gradient = et.vmap(et.grad(f), axis_name="i")(et.array(X))
    assert_close(gradient, np.sin(X).sum() + np.cos(X) * X.sum())
    second = et.vmap(et.grad(et.grad(f)), axis_name="i")(et.array(X))
    assert_close(second, 3 * np.cos(X) - np.sin(X) * X.sum() + np.cos(X).sum())


def test_trees() -> None:
    got = et.vmap(lambda p: et.psum(p, "i"), axis_name="i")({"a": et.array(X), "b": [et.array(X)]})
    assert_close(got["a"], np.full(3, 8.0))
    assert_close(got["b"][0], np.full(3, 8.0))


def test_an_unknown_name_lists_those_under_way() -> None:
    with pytest.raises(ArgumentError, match=r"axis_name='k' is under way \(known here: 'i'\)"):
        et.vmap(lambda a: et.psum(a, "k"), axis_name="i")(X)
    with pytest.raises(ArgumentError, match="known here: none"):
        et.psum(et.array(X), "i")


def test_a_mean_of_integers_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"pmean: needs floating arrays, got int64\[\]"):
        et.vmap(lambda a: et.pmean(a, "i"), axis_name="i")(et.arange(3))
