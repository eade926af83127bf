"""Making arrays concrete: which runtime computes, what deleting leaves, and two threads at once."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.graph import store
from pyeffect_torch.runtime.decode import decode
from pyeffect_torch.runtime.encode import encode


def test_a_value_is_computed_where_its_inputs_are_by_now() -> None:
    base = et.zeros(3) + 1  # belongs to no runtime yet
    later = base * 2
    base.numpy()
    home = base.placement
    with et.use(et.reference()):
        assert np.array_equal(later.numpy(), [2, 2, 2])
    assert later.placement is home


def test_values_of_two_runtimes_are_refused() -> None:
    with et.use(et.reference()):
        one = et.zeros(2) + 1
    two = et.zeros(2) + 2
    total = one + two  # neither belongs to a runtime yet
    with et.use(et.reference()):
        one.numpy()
    with et.use(et.reference(without=["sin"])):
        two.numpy()
    with pytest.raises(et.errors.ForeignHandleError, match="different runtimes"):
        total.numpy()


def test_a_deleted_array_is_not_computed() -> None:
    x = et.array([1.0])
    x.delete()
    with pytest.raises(et.errors.InvalidHandleError, match="was deleted"):
        et.compute(x)


def test_deleting_a_value_does_not_cut_its_derivative() -> None:
    def f(x: Array) -> Array:
        y = x * 2
        z = y * 3
        y.numpy()
        y.delete()
        return z.sum()

    assert np.array_equal(et.grad(f)(et.ones(4)).numpy(), [6, 6, 6, 6])


def test_a_derivative_that_needs_a_deleted_value_says_so() -> None:
    def f(x: Array) -> Array:
        y = x * 2
        z = y * y
        y.numpy()
        y.delete()
        return z.sum()

    with pytest.raises(et.errors.InvalidHandleError, match="was deleted"):
        et.grad(f)(et.ones(4))


def test_a_node_is_not_cut_while_it_is_encoded() -> None:
    values, _ = et.linalg.eigh(et.array([[1.0, 0.0], [0.0, 2.0]]))
    (both,) = values.inputs
    found = (et.array([1.0, 2.0]).buf, et.eye(2).buf)
    other = threading.Thread(target=store, args=(both, found))

    def supports(opcode: str) -> bool:
        if opcode == "eigh":  # the encoder has seen that it has no value, but not read its inputs
            other.start()
            other.join(0.05)  # it waits for the encoder, so this join cannot succeed
        return True

    program = encode([values], (), supports)
    other.join()
    assert both.inputs == ()
    name, operands, _, _ = decode(program.blob).instructions[-1]
    assert (name, len(operands)) == ("eigh", 1)


def test_the_age_of_a_shared_literal_is_no_part_of_the_structure() -> None:
    x = et.array([1.0, 2.0])
    older = x * 0.8125  # numbers are made once: below, this one is older than its operand

    def digest(a: float, b: float) -> bytes:
        return encode([x * a + b], (), lambda opcode: True, scalar_slots=True).digest

    assert digest(3.5, 4.5) == digest(2.5, 0.8125)
    assert older.shape == x.shape


def test_more_operands_than_an_instruction_has_are_refused() -> None:
    pieces = [et.array([1.0])] * 65_535
    encode([et.concatenate(pieces)], (), lambda opcode: True)
    with pytest.raises(et.errors.UnsupportedError, match=r"65536 operands, .* at most 65535"):
        encode([et.concatenate([*pieces, *pieces[:1]])], (), lambda opcode: True)


@pytest.mark.parametrize("runtime", [et.cpu, et.reference])
def test_errors_of_compiled_functions_say_how_to_mend(runtime: Any) -> None:
    with et.use(runtime()):
        x, index = et.arange(3.0), et.array(np.array([5]))
        with pytest.raises(et.errors.IndexOutOfBoundsError) as caught:
            et.compute(et.jit(lambda x, index: x[index])(x, index))
    assert "test_compute.py" in caught.value.where
    assert "mode=" in caught.value.mend
    assert (caught.value.backend, caught.value.operation) == (runtime().name, "take")
