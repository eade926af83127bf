"""Programs that broke the library once: what a hostile user writes, and the answer it must get."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.ops import base
from pyeffect_torch.runtime.native.opcodes import LIMITS

f32 = np.float32

pytestmark = pytest.mark.usefixtures("runtime")


# --- programs of one structure share an executable, but not what their callers know


def test_a_capture_is_bound_where_the_caller_has_it() -> None:
    # The eager program captures x and the index; the compiled one has x as an argument.
    x = et.array(np.arange(6, dtype=f32).reshape(2, 3))
    index = et.array([1, 0])
    want = x[index].numpy()
    np.testing.assert_array_equal(et.jit(lambda x: x[index])(x).numpy(), want)


def test_an_error_names_the_line_of_its_own_program() -> None:
    x, index = et.array([1.0, 2.0]), et.array([5])
    with pytest.raises(et.errors.IndexOutOfBoundsError, match="first = x"):
        first = x[index]
        first.numpy()
    with pytest.raises(et.errors.IndexOutOfBoundsError, match="second = x"):
        second = x[index]
        second.numpy()


# --- huge numbers


@pytest.mark.parametrize("index", [2**63, 2**70, -(2**70)])
def test_a_huge_index_is_out_of_range(index: int) -> None:
    with pytest.raises(et.errors.IndexOutOfBoundsError, match="out of range for axis 0"):
        et.zeros((2, 3))[index]


@pytest.mark.parametrize(
    "make",
    [
        lambda: et.ones(2) + 10**400,
        lambda: et.maximum(10**400, 1.0),
        lambda: et.full((2,), 10**5000),
        lambda: et.array(10**400, "float32"),
        lambda: et.array([1, 300], "int8"),
        lambda: et.array([0, -1], "uint8"),
        lambda: et.hardtanh(et.array([0, 1], "uint8")),
    ],
)
def test_an_int_that_does_not_fit_is_an_error(make: Callable[[], Any]) -> None:
    with pytest.raises(et.errors.DTypeError, match="does not fit"):
        make()


@pytest.mark.filterwarnings("error")
def test_a_float_that_is_too_large_is_infinite_without_a_warning() -> None:
    assert float(et.ones(()) * 1e300) == np.inf
    assert float(et.array(-1e300)) == -np.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda: et.zeros((2**40, 2**40)),
        lambda: et.zeros((2**63,)),
        lambda: et.zeros((2**31, 2**31, 0)),
        lambda: et.broadcast_to(1.0, (2**63,)),
        lambda: et.zeros((1,) * 17),
        lambda: et.zeros((1,) * 16)[None],
        lambda: et.tile(et.ones(2), 2**62),
        lambda: et.pad(et.ones(2), 2**62).numpy(),
        lambda: et.outer(et.ones(2**30), et.ones(2**30)).numpy(),
    ],
)
def test_a_shape_that_no_program_can_hold_is_a_shape_error(make: Callable[[], Any]) -> None:
    with pytest.raises(et.errors.ShapeError, match=r"too many elements|axes"):
        make()


def test_the_limits_are_those_of_the_programs() -> None:
    limits = (LIMITS["rank_max"], LIMITS["element_count_max"])
    assert limits == (base.RANK_MAX, base.ELEMENTS_MAX)


@pytest.mark.parametrize("bound", [float("nan"), float("inf")])
def test_arange_takes_finite_numbers(bound: float) -> None:
    with pytest.raises(et.errors.ArgumentError, match="finite"):
        et.arange(bound)


# --- arguments


def test_a_masked_array_is_refused_where_its_mask_hides_something() -> None:
    with pytest.raises(et.errors.ArgumentError, match="masked"):
        et.array(np.ma.array([1.0, 2.0], mask=[False, True]))


def test_squeeze_refuses_an_axis_twice() -> None:
    with pytest.raises(et.errors.ShapeError, match="twice"):
        et.squeeze(et.ones((1, 3, 1)), (0, -3))


def test_a_product_with_a_number_says_so() -> None:
    with pytest.raises(et.errors.ShapeError, match=r"use \* to multiply"):
        et.ones(2) @ 2


def test_the_cast_that_is_advised_loses_the_least() -> None:
    with pytest.raises(et.errors.DTypeError, match=r"x.astype\('float32'\)"):
        np.int64(2) * et.ones(2)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: et.zeros(n),
        lambda x, n: x.sum(axis=n),
        lambda x, n: x[:n],
        lambda x, n: et.roll(x, n),
    ],
)
def test_a_traced_number_where_an_int_belongs_names_the_argument(use: Any) -> None:
    with pytest.raises(et.errors.TraceError, match=r"depends on n of jit.*\n.*\n.*static argument"):
        et.jit(use)(et.ones(3), 1)


def test_one_value_takes_a_format() -> None:
    assert f"{et.array(1.5):.2f}" == "1.50"
    with pytest.raises(et.errors.ShapeError, match="format"):
        f"{et.ones(2):.2f}"


def test_stop_gradient_takes_a_tree() -> None:
    def loss(tree: Any) -> Any:
        return (et.stop_gradient(tree)["a"] * tree["a"]).sum()

    got = et.grad(loss)({"a": et.array([2.0, 3.0])})["a"]
    np.testing.assert_array_equal(got.numpy(), [2.0, 3.0])


def test_deleting_a_capture_leaves_the_compiled_function_alone() -> None:
    x = et.array([1.0, 2.0])
    f = et.jit(lambda y: y + x)
    f(et.ones(2))
    x.delete()
    np.testing.assert_array_equal(f(et.ones(2)).numpy(), [2.0, 3.0])


def test_hidden_kernels_have_names() -> None:
    with pytest.raises(et.errors.ArgumentError, match="no kernel"):
        et.cpu(without={"no such kernel"})
    assert not et.reference(without="erf").has("erf")


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_cache_keeps_one_signature_at_least(capacity: int) -> None:
    with pytest.raises(et.errors.ArgumentError, match="cache_capacity"):
        et.jit(et.sin, cache_capacity=capacity)


# --- the end of the process


_BUSY = """
import threading
import pyeffect_torch as et

started = threading.Semaphore(0)

def work():
    while True:
        et.jit(et.grad(lambda x: et.sin(x * x).sum()))(et.ones(3)).numpy()
        started.release()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
for _ in range(20):
    started.acquire()
"""


def test_a_process_ends_with_threads_that_trace(runtime: Any) -> None:
    if runtime.name == "cpu":  # it sets its own runtime
        for _ in range(3):
            done = subprocess.run([sys.executable, "-c", _BUSY], capture_output=True, timeout=60)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "statics", [{"static_argnames": "n"}, {"static_argnums": 1}, {"static_argnums": -2}]
)
def test_a_static_parameter_is_static_however_it_is_passed(statics: dict[str, Any]) -> None:
    f = et.jit(lambda x, n=2, m=1: x * n * m, **statics)
    want = [3.0, 3.0]
    np.testing.assert_array_equal(f(et.ones(2), 3).numpy(), want)
    np.testing.assert_array_equal(f(et.ones(2), n=3).numpy(), want)
    np.testing.assert_array_equal(f(et.ones(2)).numpy(), [2.0, 2.0])


@pytest.mark.parametrize("statics", [{"static_argnames": "k"}, {"static_argnums": 2}])
def test_a_static_parameter_that_is_not_there_is_an_error(statics: dict[str, Any]) -> None:
    with pytest.raises(et.errors.ArgumentError, match="static_arg"):
        et.jit(lambda x, n: x * n, **statics)


def test_a_static_parameter_left_to_its_default_is_no_argument_to_donate() -> None:
    f = et.jit(lambda x, a=1.0, n=2: x * n, static_argnums=2, donate_argnums=0)
    x = et.array([1.0, 2.0])
    np.testing.assert_array_equal(f(x).numpy(), [2.0, 4.0])
    assert x.is_deleted()


def test_the_mode_is_advised_where_there_is_one() -> None:
    with pytest.raises(et.errors.IndexOutOfBoundsError) as caught:
        et.dynamic_slice(et.ones(5), et.array([4]), (2,)).numpy()
    assert "mode=" not in str(caught.value)


@pytest.mark.parametrize("count", [-1, 257, 2**40, 1.5])
def test_a_number_of_threads_is_checked(runtime: Any, count: Any) -> None:
    if runtime.name == "cpu":
        with pytest.raises(et.errors.ArgumentError, match="threads"):
            runtime.set_threads(count)


def test_the_sign_of_a_zero_is_that_zero() -> None:
    np.testing.assert_array_equal(np.signbit(et.sign(et.array([0.0, -0.0])).numpy()), [False, True])


@pytest.mark.parametrize("made", [lambda: et.ones(3) + 1, lambda: et.array([1.0, 2.0])])
def test_a_read_value_cannot_be_made_writable(made: Callable[[], Any]) -> None:
    value = made().numpy()
    with pytest.raises(ValueError, match="WRITEABLE"):
        value.flags.writeable = True


def test_none_is_no_dtype() -> None:
    with pytest.raises(et.errors.DTypeError, match="None is not a dtype"):
        et.array([1, 2]).astype(None)
