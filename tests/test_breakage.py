"""Programs that broke the library once: what a hostile user writes, and the answer it must get."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

f32 = np.float32


@pytest.fixture(params=["cpu", "reference"], autouse=True)
def runtime(request: pytest.FixtureRequest) -> Iterator[Any]:
    with et.use(getattr(et, request.param)()) as made:
        yield made


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
