"""The rules of indices, one test each, named after the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import (
    DTypeError,
    IndexOutOfBoundsError,
    ShapeError,
    TraceError,
)

INTEGERS = sorted(dtypes.INTEGERS, key=str)


@pytest.fixture(params=["cpu", "reference", "jit"], autouse=True)
def how(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Calls a function: on the core, on the reference runtime, and compiled."""
    runtime = et.reference() if request.param == "reference" else et.cpu()
    with et.use(runtime):
        yield (lambda f, *xs: et.jit(f)(*xs)) if request.param == "jit" else lambda f, *xs: f(*xs)


def same(got: Any, values: Any) -> None:
    np.testing.assert_array_equal(got.numpy(), values)


X = np.arange(12.0).reshape(3, 4)


def test_negative_indices_wrap(how: Any) -> None:
    index = et.array(np.array([-1, 0, -3]))
    same(how(lambda x, i: x[i], et.array(X), index), X[[-1, 0, -3]])
    same(how(lambda x: x[-1, -2], et.array(X)), X[-1, -2])
    same(how(lambda x, i: et.take(x, i, -1), et.array(X), index), X[:, [-1, 0, -3]])
    same(how(lambda x, i: x.at[i].set(0.0)[-1], et.array(X), index), np.zeros(4))


@pytest.mark.parametrize("index", [3, -4, 10**30])
def test_a_static_index_out_of_range_fails_at_the_call(index: int) -> None:
    with pytest.raises(IndexOutOfBoundsError) as caught:
        et.array(X)[index]
    assert isinstance(caught.value, IndexError)
    for word in ("axis 0", "3"):
        assert word in str(caught.value)


@pytest.mark.parametrize("index", [4, -5])
def test_a_dynamic_index_out_of_range_fails_at_run_time_and_names_op_index_axis_extent(
    index: int, how: Any
) -> None:
    cases: list[Callable[..., Any]] = [
        lambda x, i: x[:, i],
        lambda x, i: et.take(x, i, 1),
        lambda x, i: x.at[:, i].add(1.0),
        lambda x, i: et.take_along_axis(x, et.full((3, 1), 0) + i, 1),
    ]
    for f in cases:
        with pytest.raises(IndexOutOfBoundsError) as caught:
            how(f, et.array(X), et.array(np.array([0, index]))[1:]).numpy()
        assert isinstance(caught.value, IndexError)
        text = str(caught.value)
        assert str(index) in text and "axis 1" in text and "extent 4" in text, text
        assert "test_semantics_indexing.py" in text


def test_modes_clip_and_fill_opt_out_of_the_check(how: Any) -> None:
    index = et.array(np.array([1, 7, -9]))
    same(how(lambda x, i: et.take(x, i, 0, mode="clip"), et.array(X), index), X[[1, 2, 0]])
    filled = how(lambda x, i: et.take(x, i, 0, mode="fill"), et.array(X), index).numpy()
    np.testing.assert_array_equal(filled, [X[1], [np.nan] * 4, [np.nan] * 4])


def test_embedding_refuses_negative_ids(how: Any) -> None:
    with pytest.raises(IndexOutOfBoundsError, match="-1"):
        how(lambda i, t: et.nn.embedding(i, t), et.array([0, -1]), et.array(X)).numpy()


def test_dynamic_slice_checks_its_start(how: Any) -> None:
    start = et.array(np.array(2))
    same(how(lambda x, i: et.dynamic_slice(x, (i, 0), (1, 4)), et.array(X), start), X[2:])
    with pytest.raises(IndexOutOfBoundsError):
        how(lambda x, i: et.dynamic_slice(x, (i, 0), (2, 4)), et.array(X), start).numpy()


def test_static_slices_clip_as_pythons_do(how: Any) -> None:
    for s in (slice(1, 100), slice(-100, 2), slice(5, 2), slice(None, None, -2), slice(9, None)):
        same(how(lambda x, s=s: x[s], et.array(X)), X[s])


def test_a_boolean_mask_as_index_is_for_concrete_arrays() -> None:
    mask = X[:, 0] > 3
    same(et.array(X)[et.array(mask)], X[mask])
    with pytest.raises(TraceError, match="where"):
        et.jit(lambda x: x[x[:, 0] > 3])(et.array(X))


def test_a_traced_mask_may_be_updated_with_set(how: Any) -> None:
    same(how(lambda x: x.at[x > 3].set(0.0), et.array(X)), np.where(X > 3, 0, X))


def test_an_op_whose_result_nobody_uses_raises_nothing(how: Any) -> None:
    def f(x: Any, i: Any) -> Any:
        _ = x[i]  # out of range
        return x * 2

    same(how(f, et.array(X), et.array(np.array(99))), X * 2)


def test_nothing_that_can_fail_is_hoisted_out_of_a_branch(how: Any) -> None:
    def f(x: Any, i: Any, on: Any) -> Any:
        return et.cond(on, lambda x, i: x[i, 0], lambda x, i: x[0, 0], x, i)

    bad = et.array(np.array(99))
    same(how(f, et.array(X), bad, et.array(False)), 0.0)
    with pytest.raises(IndexOutOfBoundsError):
        how(f, et.array(X), bad, et.array(True)).numpy()


def test_nothing_that_can_fail_is_hoisted_out_of_a_loop_without_steps(how: Any) -> None:
    def f(x: Any, i: Any, n: Any) -> Any:
        return et.fori_loop(0, n, lambda k, total: total + x[i, 0], et.zeros((), "float64"))

    bad = et.array(np.array(99))
    same(how(f, et.array(X), bad, et.array(0)), 0.0)
    with pytest.raises(IndexOutOfBoundsError):
        how(f, et.array(X), bad, et.array(1)).numpy()


def test_under_a_batched_predicate_checks_are_masked_by_it(how: Any) -> None:
    def row(on: Any, i: Any) -> Any:
        return et.cond(on, lambda i: et.array(X)[i, 0], lambda i: et.zeros((), "float64"), i)

    on, index = et.array(np.array([True, False])), et.array(np.array([1, 99]))
    same(how(lambda on, i: et.vmap(row)(on, i), on, index), [4.0, 0.0])
    with pytest.raises(IndexOutOfBoundsError):
        how(lambda on, i: et.vmap(row)(on, i), ~on, index).numpy()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_index_arrays_are_of_any_integer_dtype(dtype: Any, how: Any) -> None:
    index = et.array(np.array([2, 0], dtype))
    same(how(lambda x, i: x[i], et.array(X), index), X[[2, 0]])
    same(how(lambda x, i: x.at[i].add(1.0), et.array(X), index), X + np.array([[1], [0], [1]]))


def test_index_arrays_of_other_dtypes_are_errors() -> None:
    with pytest.raises(DTypeError):
        et.take(et.array(X), et.array([0.0, 1.0]), 0)


def test_one_hot_out_of_range_is_a_zero_row(how: Any) -> None:
    same(how(lambda i: et.one_hot(i, 3), et.array([1, 3, -1])), [[0, 1, 0], [0, 0, 0], [0, 0, 0]])


def test_scatter_with_duplicates_accumulates_deterministically() -> None:
    rng = np.random.default_rng(0)
    index = rng.integers(0, 7, 50_000)
    updates = rng.standard_normal(50_000).astype(np.float32)
    before = et.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 2):
            et.set_num_threads(threads)
            got = et.zeros((7,)).at[et.array(index)].add(et.array(updates)).numpy()
            found.append(got.tobytes())
    finally:
        et.set_num_threads(before)
    assert found[0] == found[1] == found[2]
    # NumPy adds in the order of the indices, as we do; the reference accumulates in float64.
    want = np.zeros(7, np.float64 if et.current() is et.reference() else np.float32)
    np.add.at(want, index, updates)
    assert found[0] == want.astype(np.float32).tobytes()


def test_too_many_indices_are_a_shape_error() -> None:
    with pytest.raises((ShapeError, IndexError)):
        et.array(X)[0, 0, 0]
