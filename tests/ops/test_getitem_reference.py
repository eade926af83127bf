"""`x[...]` and `x.at[...]` against NumPy, index by index, and their errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

pytestmark = pytest.mark.usefixtures("on_reference")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5, 6))
MASK = X[:, :, 0] > 0
ENTRIES: tuple[Any, ...] = (
    slice(None),
    slice(1, 3),
    slice(None, None, -1),
    slice(4, 0, -2),
    slice(2, 2),
    None,
    Ellipsis,
    0,
    -1,
    np.array([0, 2, -1]),
    np.array([[1], [0]]),
    np.array([3, 1, -2]),
)


def indices(length: int, every: int) -> Iterator[tuple[Any, ...]]:
    """Yield each index of `length` entries that NumPy takes, or one in `every` of them."""
    for number, index in enumerate(itertools.product(ENTRIES, repeat=length)):
        if number % every:
            continue
        try:
            X[index]
        except IndexError:
            continue
        yield index


def lazy(entry: Any) -> Any:
    """Return an entry with ints and index arrays as arrays of the library."""
    return et.array(np.asarray(entry)) if isinstance(entry, (int, np.ndarray)) else entry


@pytest.mark.parametrize(("length", "every"), [(1, 1), (2, 1), (3, 7), (4, 131)])
def test_reading_is_numpys(length: int, every: int) -> None:
    x = et.array(X)
    seen = 0
    for index in indices(length, every):
        want = X[index]
        for given in (index, tuple(lazy(entry) for entry in index)):
            got = x[given]
            assert got.shape == want.shape, index
            np.testing.assert_array_equal(got.numpy(), want, err_msg=str(index))
            seen += 1
    assert seen >= 24


@pytest.mark.parametrize(
    "index",
    [
        MASK,
        (MASK, slice(1, 3)),
        (MASK[:, 0], 0),
        (MASK[:, 0], slice(None), 2),
        (Ellipsis, np.array([True, False] * 3)),
        [0, 2],
        [True, False, True, False],
        ([],),
        np.zeros((0, 2), np.int64),
        (np.int8(2), np.uint8(1)),
    ],
)
def test_masks_and_lists(index: Any) -> None:
    np.testing.assert_array_equal(et.array(X)[index].numpy(), X[index])


UPDATES: dict[str, Any] = {
    "add": np.add,
    "multiply": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


@pytest.mark.parametrize("kind", ["set", *UPDATES])
@pytest.mark.parametrize(("length", "every"), [(1, 1), (2, 3), (3, 41)])
def test_updating_is_numpys(kind: str, length: int, every: int) -> None:
    x = et.array(X)
    for number, index in enumerate(indices(length, every)):
        values = RNG.standard_normal(X[index].shape)
        want = X.copy()
        if kind == "set":
            want[index] = values
        else:
            UPDATES[kind].at(want, index, values)
        given = tuple(lazy(entry) if number % 2 else entry for entry in index)
        got = getattr(x.at[given], kind)(values).numpy()
        np.testing.assert_allclose(got, want, rtol=4 * 2.0**-52, atol=2.0**-50, err_msg=str(index))


def test_values_broadcast_and_numbers_take_the_dtype() -> None:
    x = et.zeros((3, 4), "float16")
    got = x.at[1:, [0, 2]].set(et.array(np.array([1, 2], np.float16)))
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got.numpy(), [[0, 0, 0, 0], [1, 0, 2, 0], [1, 0, 2, 0]])
    np.testing.assert_array_equal(x.at[0].add(2).at[0, 1].mul(3).numpy()[0], [2, 6, 2, 2])
    np.testing.assert_array_equal(x.at[0, 1].get().numpy(), 0)


def test_a_traced_mask_may_update() -> None:
    got = et.jit(lambda x: x.at[x < 0].set(0.0))(et.array(X)).numpy()
    np.testing.assert_array_equal(got, np.where(X < 0, 0, X))
    rows = et.array(MASK[:, 0])
    want = X.copy()
    want[MASK[:, 0]] += 2
    np.testing.assert_array_equal(et.array(X).at[rows].add(2.0).numpy(), want)


def test_gradients_of_updates() -> None:
    index = np.array([1, 1, 0])
    to_x, to_values = et.grad(
        lambda x, v: et.sum(x.at[index].add(v) * et.array(np.array([1.0, 10.0, 100.0]))),
        argnums=(0, 1),
    )(et.array(np.zeros(3)), et.array(np.zeros(3)))
    np.testing.assert_array_equal(to_x.numpy(), [1, 10, 100])
    np.testing.assert_array_equal(to_values.numpy(), [10, 10, 1])
    to_x = et.grad(lambda x: et.sum(x.at[::2].set(0.0)))(et.array(np.zeros(3)))
    np.testing.assert_array_equal(to_x.numpy(), [0, 1, 0])


def test_a_dynamic_index_under_vmap() -> None:
    index = et.array(np.array([0, 3, -1, 2]))
    got = et.vmap(lambda row, i: row[i])(et.array(X), index).numpy()
    np.testing.assert_array_equal(got, X[np.arange(4), [0, 3, -1, 2]])
    shared = et.vmap(lambda i: et.array(X)[:, i])(index).numpy()
    np.testing.assert_array_equal(shared, np.moveaxis(X[:, [0, 3, -1, 2]], 1, 0))


ERRORS: list[tuple[str, Any, str]] = [
    ("IndexOutOfBoundsError", 4, "getitem: index 4 is out of range for axis 0 of extent 4"),
    ("IndexOutOfBoundsError", (0, -6), "index -6 is out of range for axis 1 of extent 5"),
    ("IndexOutOfBoundsError", [0, 4], "index 4 is out of range for axis 0"),
    ("IndexOutOfBoundsError", (0, 0, 0, 0), r"4 indices for float64\[4, 5, 6\]"),
    ("ArgumentError", (..., ...), "more than one ellipsis"),
    ("ArgumentError", True, "a single bool is no index"),
    ("ArgumentError", 1.5, "got float"),
    ("ArgumentError", slice(0, 4, 0), "step 0"),
    ("DTypeError", np.array([0.5]), "must be an integer or bool array, got dtype float64"),
    ("ShapeError", np.array([True, False]), r"a mask of shape \[2\] does not fit axes .*\[4\]"),
    ("ShapeError", ([0, 1], [0, 1, 2]), r"index arrays of float64\[4, 5, 6\]"),
]


@pytest.mark.parametrize(("error", "index", "message"), ERRORS)
def test_errors(error: str, index: Any, message: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=message):
        et.array(X)[index]


def test_dynamic_indices_are_checked_at_run_time() -> None:
    x, bad = et.array(X), et.array(np.array([0, 5]))
    with pytest.raises(IndexError, match="index 5 is out of range for axis 1 of extent 5"):
        x[bad[:1], bad].numpy()
    with pytest.raises(IndexError, match="is out of range"):
        x.at[0, bad].add(1.0).numpy()


def test_a_traced_mask_as_index_names_where() -> None:
    with pytest.raises(et.errors.TraceError, match=r"et\.where"):
        et.jit(lambda x: x[x > 0])(et.array(X))


def test_values_that_do_not_fit() -> None:
    x = et.array(X)
    with pytest.raises(
        et.errors.ShapeError, match=r"at.set: values float64\[3\] do not broadcast to the \[5, 6\]"
    ):
        x.at[0].set(np.zeros(3))
    with pytest.raises(et.errors.ShapeError, match=r"do not broadcast to the .* each True"):
        x.at[et.array(MASK)].set(np.zeros(5))
    with pytest.raises(et.errors.DTypeError, match="mixed dtypes"):
        x.at[0].set(np.zeros((5, 6), np.float32))
