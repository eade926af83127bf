"""What NumPy, copy and pickle ask of an array."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes

OPERATORS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip
BIT_OPERATORS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)


# --- operators with NumPy on the left


@pytest.mark.parametrize("apply", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("left", [np.float32(3), np.array([1, 4, 9], np.float32)], ids=["0d", "1d"])
def test_numpy_on_the_left_leaves_the_operation_to_us(apply: Any, left: Any) -> None:
    right = np.array([1, 2, 3], np.float32)
    got = apply(left, et.array(right))
    want = apply(left, right)
    assert isinstance(got, et.Array)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.numpy(), want, rtol=2 * 2.0**-23)


@pytest.mark.parametrize("apply", BIT_OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("left", [np.int64(3), np.array([1, 4, 9])], ids=["0d", "1d"])
def test_bits_of_numpy_on_the_left(apply: Any, left: Any) -> None:
    right = np.array([1, 2, 3])
    got = apply(left, et.array(right))
    assert isinstance(got, et.Array)
    np.testing.assert_array_equal(got.numpy(), apply(left, right))


def test_matrix_and_divmod_operators_of_numpy_on_the_left() -> None:
    left = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = et.array([1.0, 2.0, 4.0])
    assert (left @ x).tolist() == [10.0, 31.0]
    quotient, rest = divmod(left[1], x)
    assert (quotient.tolist(), rest.tolist()) == ([3.0, 2.0, 1.0], [0.0, 0.0, 1.0])
    quotient, rest = divmod(7, et.array([2, 3]))
    assert (quotient.tolist(), rest.tolist()) == ([3, 2], [1, 1])


def test_our_dtype_rules_hold_for_numpy_on_the_left() -> None:
    with pytest.raises(et.errors.DTypeError, match="mixed dtypes"):
        np.arange(3) + et.ones(3)
    assert (np.float64(2) * et.ones(3)).dtype == np.float32  # a 0-d float takes the array's dtype


def test_the_gradient_passes_numpy_operands() -> None:
    left = np.array([1, 2, 3], np.float32)
    slope = et.jit(et.grad(lambda x: (left * x * np.float32(2)).sum()))(et.ones(3))
    assert slope.tolist() == [2.0, 4.0, 6.0]


# --- functions of NumPy


def test_other_ufuncs_are_refused_and_name_the_cure() -> None:
    x = et.ones(3)
    with pytest.raises(et.errors.ArgumentError, match=r"np.sin: .*\n.*\n  use et.sin, or x.numpy"):
        np.sin(x)
    with pytest.raises(et.errors.ArgumentError, match=r"use et.abs, or"):
        np.abs(x)
    with pytest.raises(et.errors.ArgumentError, match=r"np.add.reduce: .*\n.*\n  use x.numpy\(\)"):
        np.add.reduce(x)
    with pytest.raises(et.errors.ArgumentError, match=r"np.spacing: .*\n.*\n  use x.numpy\(\)"):
        np.spacing(x)
    total = np.ones(3, np.float32)
    with pytest.raises(et.errors.ArgumentError, match=r"np.add: "):
        total += x


def test_array_functions_read_the_value() -> None:
    x = et.array([[1.0, 2.0], [3.0, 4.0]])
    assert np.sum(x) == 10
    assert np.shape(x) == (2, 2)
    assert np.allclose(x, [[1, 2], [3, 4]])
    assert isinstance(np.concatenate([x, (x + 1)]), np.ndarray)
    assert np.where((x > 2).numpy(), x, 0).tolist() == [[0, 0], [3, 4]]
    assert np.clip(a=x, a_min=2, a_max=3).tolist() == [[2, 2], [3, 3]]
    with pytest.raises(et.errors.TraceError):
        et.jit(np.sum)(x)


def test_asarray_shares_what_it_can() -> None:
    x = et.array([1.0, 2.0])
    shared = np.asarray(x)
    assert not shared.flags.writeable
    assert np.shares_memory(shared, x.numpy())
    assert np.shares_memory(np.asarray(x, copy=False), shared)
    own = np.array(x)
    assert own.flags.writeable and not np.shares_memory(own, shared)
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="float64 by a copy"):
        np.asarray(x, np.float64, copy=False)


# --- copy and pickle


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_pickles_of_every_dtype(dtype: Any) -> None:
    x = et.array(np.arange(6).reshape(2, 3) % 2, dtype)
    back = pickle.loads(pickle.dumps({"w": (x, et.flip(x))}))
    assert back["w"][0].dtype is dtype
    np.testing.assert_array_equal(back["w"][0].numpy(), x.numpy())
    assert back["w"][1].state == "concrete"  # a lazy array is computed


def test_a_copy_has_memory_of_its_own() -> None:
    x = et.array([1.0, 2.0])
    for y in (x.copy(), copy.copy(x), copy.deepcopy([x])[0]):
        assert not np.shares_memory(x.numpy(), y.numpy())
    kept = copy.deepcopy({"a": x, "b": x})
    assert kept["a"] is kept["b"]
    et.jit(lambda v: v * 2, donate_argnums=0)(x)
    assert x.is_deleted() and kept["a"].tolist() == [1.0, 2.0]


def test_a_copy_stays_on_its_runtime_and_lazy_ones_are_computed() -> None:
    with et.use(et.reference()):
        x = et.array([1.0]) + 1
    y = copy.copy(x)
    assert y.placement is et.reference()
    assert (y.state, x.state) == ("concrete", "concrete")


def test_what_has_no_value_cannot_leave() -> None:
    for leave in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(et.errors.TraceError, match="has no value"):
            et.jit(lambda x, leave=leave: leave(x))(et.ones(2))
    assert et.jit(lambda x: x.copy() * 2)(et.ones(2)).tolist() == [2.0, 2.0]
    assert et.grad(lambda x: x.copy() * x)(et.constant(3.0)).item() == 6.0


# --- smaller things


def test_text_and_containment() -> None:
    x = et.array(np.float32(1.23456))
    assert f"{x:.2f}" == "1.23"
    assert f"{et.ones(2):}" == str(et.ones(2))
    with pytest.raises(et.errors.ShapeError, match=r"format: only an array of shape \[\]"):
        format(et.ones(2), ".1f")
    assert repr(et.array([1, 2])) == "Array([1, 2], dtype=int64)"
    assert repr(et.array(np.array([1.5], ml_dtypes.bfloat16))) == "Array([1.5], dtype=bfloat16)"
    assert 2 in et.array([1, 2]) and 3 not in et.array([1, 2])
    with pytest.raises(et.errors.ArgumentError, match="not hashable"):
        hash(x)


def test_methods_of_numpy_arrays() -> None:
    x = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    y = et.array(x)
    assert (y.itemsize, y.nbytes, y.tobytes()) == (4, 36, x.tobytes())
    for name in ("ptp", "trace", "diagonal", "sum", "prod", "mean", "cumsum", "cumprod"):
        want = np.ptp(x) if name == "ptp" else getattr(x, name)()
        np.testing.assert_array_equal(getattr(y, name)().numpy(), want)
    shuffled = et.array([3, 1, 2])
    assert (shuffled.sort().tolist(), shuffled.argsort().tolist()) == ([1, 2, 3], [1, 2, 0])
    assert shuffled.sort(descending=True).searchsorted(et.array([9])).tolist() == [3]
    assert [part.tolist() for part in (shuffled - 1).nonzero()] == [[0, 2]]
    assert y.sum(dtype="float64").dtype == np.float64
    assert y.view("uint32").tolist() == x.view(np.uint32).tolist()


def test_to_device_is_to() -> None:
    x = et.ones(2).to_device(et.reference())
    assert x.placement is et.reference()
    with pytest.raises(et.errors.ArgumentError, match="no streams"):
        x.to_device(et.cpu(), stream=1)
