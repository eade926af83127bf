"""DLPack with NumPy, which speaks both versions of it: sharing, lifetimes, dtypes, refusals."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes

NATIVE = [dtype for dtype in dtypes.ALL if dtype is not dtypes.bfloat16]


class Offer:
    """Lends a NumPy array, by one version of the protocol, and notes what was asked."""

    def __init__(self, value: Any, *, old: bool = False) -> None:
        self.value = value
        self.old = old
        self.asked: list[dict[str, Any]] = []

    def __dlpack__(self, **options: Any) -> Any:
        self.asked.append(options)
        if self.old and options:
            raise TypeError("unexpected keyword")
        return self.value.__dlpack__(**options)


def address(x: Any) -> int:
    return x.numpy().ctypes.data


def live() -> int:
    gc.collect()
    return et.cpu().memory_stats()["buffers_live"]


# --- lending


@pytest.mark.parametrize("runtime", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", NATIVE, ids=lambda d: d.name)
def test_numpy_shares_the_memory_and_may_not_write(runtime: str, dtype: Any) -> None:
    with et.use(getattr(et, runtime)()):
        x = et.array(np.arange(6).reshape(2, 3) % 2, dtype) if dtype.kind != "b" else et.ones(3) > 0
    view = np.from_dlpack(x)
    assert view.dtype == dtype
    assert view.ctypes.data == address(x)
    assert not view.flags.writeable
    np.testing.assert_array_equal(view, x.numpy())


def test_a_lent_value_outlives_its_array() -> None:
    before = live()
    x = et.array(np.arange(4096, dtype=np.float32)) + 1
    view = np.from_dlpack(x)
    x.delete()
    et.ones(4096).numpy()  # may not take the memory
    assert view[-1] == 4096
    assert live() == before + 1
    del view
    assert live() == before


def test_a_capsule_that_nobody_takes_gives_the_memory_back() -> None:
    before = live()
    x = et.array([1.0, 2.0])
    old, new = x.__dlpack__(), x.__dlpack__(max_version=(1, 0))
    assert '"dltensor"' in repr(old) and '"dltensor_versioned"' in repr(new)
    assert '"dltensor_versioned"' in repr(x.__dlpack__(max_version=(2, 3)))
    assert '"dltensor"' in repr(x.__dlpack__(max_version=(0, 8)))
    del old, new, x
    assert live() == before


def test_what_is_lent_is_not_overwritten_by_a_donation() -> None:
    x = et.array([1.0, 2.0])
    view = np.from_dlpack(x)
    et.jit(lambda v: v * 2, donate_argnums=0)(x)
    assert view.tolist() == [1.0, 2.0]


def test_a_copy_is_lent_on_demand() -> None:
    x = et.array([1.0, 2.0])
    view = np.from_dlpack(x, copy=True)
    assert view.ctypes.data != address(x)
    assert x.__dlpack_device__() == (1, 0)


def test_refusals_of_lending() -> None:
    x = et.array([1.0])
    with pytest.raises(BufferError, match="no streams"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="on device"):
        x.__dlpack__(dl_device=(2, 0))
    x.delete()
    with pytest.raises(et.errors.InvalidHandleError, match="was deleted"):
        x.__dlpack__()
    with pytest.raises(et.errors.TraceError, match="has no value"):
        et.jit(np.from_dlpack)(et.ones(2))


# --- borrowing


@pytest.mark.parametrize("old", [False, True], ids=["versioned", "old"])
@pytest.mark.parametrize("dtype", NATIVE, ids=lambda d: d.name)
def test_memory_is_borrowed_without_a_copy(dtype: Any, old: bool) -> None:
    value = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
    offer = Offer(value, old=old)
    x = et.from_dlpack(offer)
    assert offer.asked == ([{"max_version": (1, 0)}, {}] if old else [{"max_version": (1, 0)}])
    assert (x.dtype, x.shape, x.state) == (dtype, (3, 4), "concrete")
    assert (address(x) == value.ctypes.data) == (dtype is not dtypes.bool_)
    np.testing.assert_array_equal(x.numpy(), value)
    np.testing.assert_array_equal((x == x.T.T).numpy(), np.ones((3, 4), np.bool_))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_there_and_back_for_every_dtype(dtype: Any) -> None:
    x = et.array(np.arange(5) % 2, dtype)
    for version in (None, (1, 0)):
        capsule = x.__dlpack__(max_version=version)

        class Holder:
            def __dlpack__(self, capsule: Any = capsule, **_: Any) -> Any:
                return capsule

        y = et.from_dlpack(Holder())
        assert y.dtype is dtype
        np.testing.assert_array_equal(y.numpy(), x.numpy())
        if dtype is not dtypes.bool_:  # which is copied, and the capsule left alone
            with pytest.raises(ValueError, match="PyCapsule"):
                et.from_dlpack(Holder())


def test_the_lender_lives_as_long_as_anything_uses_its_memory() -> None:
    before = live()
    value = np.arange(1000, dtype=np.float32)
    owner = weakref.ref(value)
    x = et.from_dlpack(value)
    doubled = et.jit(lambda captured=x: captured * 2)  # the program keeps the buffer
    assert float(doubled()[-1]) == 1998
    view = x.numpy()
    del value
    assert owner() is not None
    x.delete()
    del x, doubled
    gc.collect()
    assert owner() is not None and view[-1] == 999
    del view
    assert live() == before
    assert owner() is None


def test_borrowed_memory_is_never_written() -> None:
    value = np.arange(4, dtype=np.float32)
    value.flags.writeable = False
    x = et.from_dlpack(value)
    out = et.jit(lambda v: v + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    assert value.tolist() == [0, 1, 2, 3]
    assert out.tolist() == [1, 2, 3, 4]


def test_memory_that_is_aligned_to_its_elements_only() -> None:
    """Kernels read what no allocator of ours would give them: every offset of a cache line."""
    block = np.arange(64 * 33 + 16, dtype=np.float32)
    rng = np.random.default_rng(0)
    block[:] = rng.standard_normal(block.shape)
    want = et.array(np.ones((33, 2), np.float32))
    for offset in range(16):
        value = block[offset : offset + 64 * 33].reshape(64, 33)
        x = et.from_dlpack(value)
        assert address(x) == value.ctypes.data
        y = et.array(value)
        for f in (lambda v: v @ want, et.softmax, lambda v: et.sum(v * v, 0), lambda v: v.T + 1):
            np.testing.assert_array_equal(f(x).numpy(), f(y).numpy())


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(12, dtype=np.int16)[::-2],
        np.zeros((2, 0, 3), np.float64),
        np.array([True, False]),
        np.frombuffer(bytes(range(17)), np.uint8)[1:].view(np.float32),
    ],
    ids=["transposed", "negative-step", "empty", "bool", "misaligned"],
)
def test_what_cannot_be_shared_is_copied(value: Any) -> None:
    x = et.from_dlpack(Offer(value))
    assert x.shape == value.shape
    np.testing.assert_array_equal(x.numpy(), value)
    if value.size:
        assert address(x) != value.ctypes.data
    with pytest.raises(BufferError, match="cannot share this memory"):
        et.from_dlpack(Offer(value), copy=False)


def test_copies_and_other_runtimes() -> None:
    value = np.arange(3.0)
    assert address(et.from_dlpack(value, copy=True)) != value.ctypes.data
    x = et.from_dlpack(value, device=et.reference())
    assert x.placement is et.reference()
    assert x.tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(BufferError, match="<runtime reference> cannot share"):
        et.from_dlpack(value, device=et.reference(), copy=False)
    assert et.from_dlpack(x) is x
    assert et.array(Offer(value)).tolist() == [0.0, 1.0, 2.0]


def test_refusals_of_borrowing() -> None:
    with pytest.raises(et.errors.ArgumentError, match="list has no __dlpack__"):
        et.from_dlpack([1.0])
    with pytest.raises(et.errors.DTypeError, match="DLPack type 5 with 64 bits"):
        et.from_dlpack(np.ones(2, np.complex64))
