"""`x.at[index]` with indices out of range: clipped, filled or dropped, by every way to index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

VALUE = np.arange(12, dtype=np.float32).reshape(3, 4)
INDICES: list[Any] = [
    (np.array([0, 5, -1, 2]),),
    (slice(None), np.array([[0, 9], [-3, 3]])),
    (np.array([0, 3, 1]), np.array([1, 1, 7])),
    (np.array([[0], [-1]]), np.array([3, 4])),
    (2, np.array([0, 4])),
    (5,),
    (1, -7),
    (slice(1, 9), 4),
    (np.array([2, 3], np.uint64), slice(None, None, 2)),
]


def clipped(index: Any) -> Any:
    return tuple(
        entry if isinstance(entry, slice) else np.clip(np.asarray(entry, np.int64), 0, extent - 1)
        for entry, extent in zip(index, VALUE.shape, strict=False)
    )


def inside(index: Any) -> np.ndarray[Any, Any]:
    """Where the result is in range: the same index into a larger array, with a margin of False."""
    margin = 10
    larger = np.pad(np.ones(VALUE.shape, np.bool_), margin)
    shifted: list[Any] = []
    for entry, extent in zip(index, VALUE.shape, strict=False):
        if isinstance(entry, slice):
            start, stop, step = entry.indices(extent)
            shifted.append(slice(start + margin, stop + margin, step))
        else:
            shifted.append(np.asarray(entry, np.int64) + margin)
    whole = slice(margin, -margin)
    return np.asarray(larger[*shifted, *[whole] * (VALUE.ndim - len(index))])


def arrays(index: Any) -> Any:
    return tuple(et.array(e) if isinstance(e, np.ndarray) else e for e in index)


@pytest.mark.parametrize("convert", [lambda i: i, arrays], ids=["static", "arrays"])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_reading(index: Any, convert: Any) -> None:
    x = et.array(VALUE)
    at = x.at[convert(index)]
    want = VALUE[clipped(index)]
    np.testing.assert_array_equal(at.get(mode="clip").numpy(), want)
    valid = inside(index)
    np.testing.assert_array_equal(at.get(mode="fill").numpy(), np.where(valid, want, np.nan))
    got = et.jit(lambda v: v.at[convert(index)].get(mode="fill", fill_value=-1))(x)
    np.testing.assert_array_equal(got.numpy(), np.where(valid, want, -1))
    bounds = zip(index, VALUE.shape, strict=False)
    if any(not isinstance(e, slice) and np.any(np.asarray(e, int) >= n) for e, n in bounds):
        with pytest.raises(et.errors.IndexOutOfBoundsError):
            at.get().numpy()


@pytest.mark.parametrize("convert", [lambda i: i, arrays], ids=["static", "arrays"])
@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("kind", ["set", "add", "mul", "multiply", "min", "max"])
def test_writing(index: Any, convert: Any, kind: str) -> None:
    update = {"set": lambda a, b: b, "add": np.add, "mul": np.multiply, "multiply": np.multiply,
              "min": np.minimum, "max": np.maximum}[kind]  # fmt: skip
    at = et.array(VALUE).at[convert(index)]
    positions = np.arange(VALUE.size).reshape(VALUE.shape)[clipped(index)]
    for mode, valid in (
        ("clip", np.ones(positions.shape, np.bool_)),
        ("fill", inside(index)),
        ("drop", inside(index)),
    ):
        want = VALUE.ravel().copy()
        for position in positions[valid].ravel():
            want[position] = update(want[position], np.float32(5))
        got = getattr(at, kind)(5.0, mode=mode)
        np.testing.assert_array_equal(got.numpy().ravel(), want)


def test_derivatives_and_batching() -> None:
    index = et.array([1, 7, 0])
    fill = et.grad(lambda v: et.sum(v.at[index].get(mode="fill", fill_value=0.0) * 2.0))
    assert fill(et.ones(3)).tolist() == [2.0, 2.0, 0.0]
    drop = et.grad(lambda v: et.sum(et.zeros(3).at[index].set(v, mode="drop")))
    assert drop(et.ones(3)).tolist() == [1.0, 0.0, 1.0]
    rows = et.vmap(lambda v, i: v.at[i].get(mode="clip"))(et.array(VALUE), et.array([1, 9, -4]))
    assert rows.tolist() == [1.0, 7.0, 8.0]


def test_unknown_modes_are_named() -> None:
    with pytest.raises(et.errors.ArgumentError, match=r"at\.set: unknown mode 'wrap'"):
        et.ones(2).at[0].set(1, mode="wrap")
    with pytest.raises(et.errors.ArgumentError, match=r"at\.get: unknown mode 'drop'"):
        et.ones(2).at[0].get(mode="drop")
    with pytest.raises(et.errors.DTypeError, match=r"at\.get"):
        et.arange(2).at[3].get(mode="fill", fill_value=0.5)
