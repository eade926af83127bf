"""DLPack with PyTorch and JAX: no copy in either direction, dtypes kept, lifetimes right."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import pyeffect_torch as et
from pyeffect_torch.core import dtypes

jax.config.update("jax_enable_x64", True)

# PyTorch's names; it has no other number for bool than ours.
TORCH = {dtype: getattr(torch, dtype.name) for dtype in dtypes.ALL}
LENT = [dtype for dtype in dtypes.ALL if dtype is not dtypes.bool_]


def value(dtype: Any) -> Any:
    return (np.arange(12).reshape(3, 4) % 5).astype(dtype)


def address(x: Any) -> int:
    return x.numpy().ctypes.data


def live() -> int:
    gc.collect()
    return et.cpu().memory_stats()["buffers_live"]


# --- lending


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("lazy", [False, True], ids=["concrete", "lazy"])
def test_torch_shares_our_memory(dtype: Any, lazy: bool) -> None:
    x = et.array(value(dtype))
    x = et.flip(x) if lazy else x
    t = torch.from_dlpack(x)
    assert t.dtype is TORCH[dtype]
    assert t.data_ptr() == address(x)
    assert t.double().tolist() == x.numpy().astype(np.float64).tolist()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_jax_shares_our_memory(dtype: Any) -> None:
    x = et.array(value(dtype))
    j = jnp.from_dlpack(x)
    assert j.dtype == dtype
    if dtype is not dtypes.bool_:
        assert j.unsafe_buffer_pointer() == address(x)
    assert np.asarray(j).tolist() == x.tolist()


@pytest.mark.parametrize("take", [torch.from_dlpack, jnp.from_dlpack], ids=["torch", "jax"])
def test_a_lent_value_outlives_its_array(take: Any) -> None:
    before = live()
    x = et.array(np.arange(4096, dtype=np.float32)) + 1
    t = take(x)
    x.delete()
    et.ones(4096).numpy()  # may not take the memory
    assert float(t[-1]) == 4096
    assert live() == before + 1
    del t
    assert live() == before


# --- borrowing


@pytest.mark.parametrize("dtype", LENT, ids=lambda d: d.name)
def test_the_memory_of_torch_is_shared(dtype: Any) -> None:
    t = torch.arange(12).reshape(3, 4).to(TORCH[dtype])
    x = et.from_dlpack(t)
    assert x.dtype is dtype
    assert address(x) == t.data_ptr()
    assert x.numpy().astype(np.float64).tolist() == t.double().tolist()
    doubled = (x + x).numpy().astype(np.float64)
    assert doubled.tolist() == (2 * t.double()).tolist()


@pytest.mark.parametrize("dtype", LENT, ids=lambda d: d.name)
def test_the_memory_of_jax_is_shared(dtype: Any) -> None:
    j = jnp.arange(12).reshape(3, 4).astype(dtype)
    x = et.from_dlpack(j)
    assert x.dtype is dtype
    assert address(x) == j.unsafe_buffer_pointer()
    assert x.tolist() == np.asarray(j).tolist()


def test_bools_are_copied() -> None:
    for t in (torch.tensor([True, False]), jnp.array([True, False])):
        assert et.from_dlpack(t).tolist() == [True, False]
        with pytest.raises(BufferError, match="not bool"):
            et.from_dlpack(t, copy=False)


def test_layouts_of_torch() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    for t in (
        base.permute(2, 0, 1),
        base[:, 1:, ::2],
        base[1],
        torch.zeros(0, 3),
        torch.tensor(2.5),
    ):
        x = et.from_dlpack(t)
        assert x.shape == tuple(t.shape)
        assert x.tolist() == t.tolist()
    assert address(et.from_dlpack(base[1])) == base[1].data_ptr()
    assert address(et.from_dlpack(base[:, 1:])) != base[:, 1:].data_ptr()


def test_the_lender_lives_as_long_as_its_memory_is_used() -> None:
    t = torch.arange(1000.0)
    x = et.from_dlpack(t)
    view = x.numpy()
    del t, x
    gc.collect()
    torch.zeros(1000)  # may not take the memory
    assert view[-1] == 999


def test_a_change_by_the_lender_is_seen() -> None:
    t = torch.zeros(3)
    x = et.from_dlpack(t)
    t += 1
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert et.array(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_tensors_under_differentiation_are_refused_by_torch() -> None:
    with pytest.raises(BufferError, match="require"):
        et.from_dlpack(torch.ones(2, requires_grad=True))


def test_arrays_from_tensors_are_copies() -> None:
    t = torch.ones(3, dtype=torch.bfloat16)
    x = et.array(t)
    t += 1
    assert x.dtype is dtypes.bfloat16
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert et.array(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_a_training_step_between_the_libraries() -> None:
    """A gradient of ours, applied by PyTorch in its own memory."""
    weight = torch.ones(3)
    slope = et.grad(lambda w: et.sum(w * w * w))(et.from_dlpack(weight.clone()))
    weight -= 0.5 * torch.from_dlpack(slope)
    assert weight.tolist() == [-0.5, -0.5, -0.5]
