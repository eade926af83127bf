"""Reading, showing and deleting arrays in each state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


def test_repr_shows_values_only_where_there_are_some() -> None:
    x = et.array([1.0, 2.0])
    assert repr(x) == "Array([1., 2.], dtype=float32)"
    y = x + 1
    assert repr(y) == "Array(float32[2], lazy)"
    y.numpy()
    assert repr(y) == "Array([2., 3.], dtype=float32)"
    assert repr(et.constant(3)) == "Array(3, dtype=int64)"


def test_a_traced_value_cannot_be_read() -> None:
    def f(v: Any) -> Any:
        assert repr(v * 2) == "Array(float32[2], placeholder)"
        return v.numpy()

    with pytest.raises(et.errors.TraceError, match=r"(?s)shape \[2\] .* select with et.where"):
        et.jit(f)(np.zeros(2, np.float32))


def test_literals_are_read_without_computing() -> None:
    value = et.constant(2.5, "float16").numpy()
    assert value.dtype == np.float16 and value.shape == () and value == 2.5
    assert not value.flags.writeable


def test_delete() -> None:
    x = et.array([1.0, 2.0])
    kept = x.numpy()
    later = x * 2
    x.delete()
    x.delete()
    assert x.is_deleted() and x.state == "deleted"
    assert repr(x) == "Array(float32[2], deleted)"
    np.testing.assert_array_equal(kept, [1, 2])
    for use in (x.numpy, lambda: x + 1, later.numpy):
        with pytest.raises(et.errors.InvalidHandleError, match="was deleted"):
            use()


def test_a_placeholder_cannot_be_deleted() -> None:
    with pytest.raises(et.errors.TraceError, match="has no value to release"):
        et.jit(lambda v: v.delete())(1.0)
