"""Host calls: a program that was put together by hand asks, Python answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import ExecutionError
from pyeffect_torch.runtime import registry
from pyeffect_torch.runtime.cpu import CpuRuntime
from pyeffect_torch.runtime.native.opcodes import OPCODES
from pyeffect_torch.runtime.wire import Program, assemble, opcode_records, type_records

FLOAT = np.dtype(np.float32)
LENGTH = 3


def words(values: list[int], width: str) -> bytes:
    return np.asarray(values, dtype=width).tobytes()


def blob(
    types: list[tuple[np.dtype[np.float32], tuple[int, ...]]],
    inputs: int,
    instructions: list[tuple[str, int, list[int], list[int]]],
    outputs: list[int],
    blocks: list[bytes],
) -> bytes:
    """A program of one type for each value; instructions are (opcode, results, operands, words)."""
    table = {t: n for n, t in enumerate(dict.fromkeys(types))}
    type_bytes, dims = type_records(table)
    heads = [
        OPCODES[name].number | results << 16 | len(operands) << 32 | len(attributes) << 48
        for name, results, operands, attributes in instructions
    ]
    return assemble(
        {
            "opcodes": opcode_records(np.asarray(heads, dtype="<u8")),
            "types": type_bytes,
            "dims": dims,
            "value_types": words([table[t] for t in types], "<u4"),
            "inputs": words([0, 0] * inputs, "<u4"),
            "instructions": words(heads, "<u8"),
            "operands": words([v for row in instructions for v in row[2]], "<u4"),
            "attrs": words([w for row in instructions for w in row[3]], "<i8"),
            "outputs": words([w for v in outputs for w in (v, 0)], "<u4"),
            "blocks": b"".join(blocks),
        },
        (len(types), inputs, 0, len(instructions), len(outputs)),
    )


def telling_scan() -> Program:
    """x -> x + x three times over; every step tells 7 what it starts with and 8 what it made."""
    t = (FLOAT, (2,))
    body = blob(
        [t, t],
        1,
        [("host_call", 0, [0], [7]), ("add", 1, [0, 0], []), ("host_call", 0, [1, 0], [8])],
        [1],
        [],
    )
    root = blob([t, t], 1, [("scan", 1, [0], [0, 0, 1, LENGTH, 0])], [1], [body])
    return Program(
        blob=root,
        captured=(),
        scalars=(),
        outputs=(((2,), dtypes.float32),),
        sources=(None,),
        operations=("scan",),
        locations=(),
        formal_count=1,
        donated=(),
    )


@pytest.fixture
def runtime() -> Iterator[CpuRuntime]:
    made = registry.current()
    assert isinstance(made, CpuRuntime)
    before = dict(made.host_handlers)
    yield made
    made.host_handlers.clear()
    made.host_handlers.update(before)


def start(runtime: CpuRuntime, optimize: bool) -> np.ndarray:
    program = telling_scan()
    x = runtime.upload(np.asarray([1, -2], FLOAT))
    (out,) = runtime.compile(program, optimize).run([x], program)
    return out.numpy((2,), dtypes.float32)


@pytest.mark.parametrize("optimize", [False, True])
def test_calls_come_in_order_on_this_thread(runtime: CpuRuntime, optimize: bool) -> None:
    seen: list[tuple[int, list[list[float]]]] = []
    threads = set[int]()
    kept: list[np.ndarray] = []

    def note(number: int) -> None:
        def handler(*values: np.ndarray) -> None:
            seen.append((number, [value.tolist() for value in values]))
            threads.add(threading.get_ident())
            kept.extend(values)

        runtime.host_handlers[number] = handler

    note(7)
    note(8)
    np.testing.assert_array_equal(start(runtime, optimize), [8, -16])
    assert seen == [
        (7, [[1, -2]]),
        (8, [[2, -4], [1, -2]]),
        (7, [[2, -4]]),
        (8, [[4, -8], [2, -4]]),
        (7, [[4, -8]]),
        (8, [[8, -16], [4, -8]]),
    ]
    assert threads == {threading.get_ident()}
    # What a handler keeps stays what it was.
    assert kept[1].tolist() == [2, -4]
    assert not kept[1].flags.writeable


def test_an_exception_of_the_handler_ends_the_run_and_is_raised(runtime: CpuRuntime) -> None:
    calls: list[int] = []

    def fail(*_: np.ndarray) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("mine")

    runtime.host_handlers.update({7: fail, 8: lambda *_: None})
    live = runtime.memory_stats()["buffers_live"]
    with pytest.raises(KeyError, match="mine"):
        start(runtime, True)
    assert len(calls) == 2
    assert runtime.memory_stats()["buffers_live"] == live
    runtime.host_handlers[7] = lambda *_: None
    np.testing.assert_array_equal(start(runtime, True), [8, -16])


def test_a_number_without_a_handler_is_an_error(runtime: CpuRuntime) -> None:
    runtime.host_handlers.clear()
    with pytest.raises(ExecutionError, match="there is no handler 7"):
        start(runtime, True)


def test_a_handler_may_compute_and_run_programs_that_call_again(runtime: CpuRuntime) -> None:
    depth = 0

    def nested(value: np.ndarray) -> None:
        nonlocal depth
        assert float((et.asarray(value) * 2.0).sum()) == 2 * float(value.sum())
        if depth < 40:  # more than the core has service threads
            depth += 1
            start(runtime, True)

    runtime.host_handlers.update({7: nested, 8: lambda *_: None})
    np.testing.assert_array_equal(start(runtime, True), [8, -16])
    assert depth == 40


def test_a_cancel_while_a_handler_runs_ends_the_run(runtime: CpuRuntime) -> None:
    calls: list[int] = []
    with et.cancel_scope() as scope:

        def cancel(*_: np.ndarray) -> None:
            calls.append(1)
            scope.cancel()

        runtime.host_handlers.update({7: cancel, 8: cancel})
        with pytest.raises(et.errors.CancelledError):
            start(runtime, True)
    assert calls == [1]
