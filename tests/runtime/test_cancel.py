"""Cancellation: scopes, and Ctrl-C in a long run, a compile and a save."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import pyeffect_torch as et

INTERRUPT = """
import os, signal, threading, time
import numpy as np
import pyeffect_torch as et

def interrupt_soon(seconds=0.1):
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()

def expect_interrupt(work):
    start = time.perf_counter()
    try:
        work()
    except KeyboardInterrupt:
        value = et.array([1.0, 2.0]) * 2.0 + 1.0
        assert value.tolist() == [3.0, 5.0], value
        print("interrupted", time.perf_counter() - start)
        return
    print("finished without an interrupt")

def product_chain(count):
    x = et.compute(et.ones((1024, 1024)) * 1e-3)

    def chain(x):
        y = x
        for _ in range(count):
            y = y @ x
        return y

    return x, chain
"""

LONG_RUN = """
x, chain = product_chain(4000)

compiled = et.jit(chain)

def work():
    compiled(x)

original = type(et.cpu()).compile

def compile_then_arm(self, program, optimize):
    made = original(self, program, optimize)
    interrupt_soon()
    return made

type(et.cpu()).compile = compile_then_arm
expect_interrupt(work)
"""

COMPILE = """
def chain(x):
    for _ in range(60_000):
        x = et.sin(x) * 0.5
    return x

original = type(et.cpu()).compile

def arm_then_compile(self, program, optimize):
    if len(program.operations) > 1000:
        interrupt_soon(0.02)
    return original(self, program, optimize)

type(et.cpu()).compile = arm_then_compile
expect_interrupt(lambda: et.jit(chain)(0.5))
"""

SAVE = """
import sys
from pyeffect_torch.core.files import write_atomically

def parts():
    yield b"x" * 1000
    os.kill(os.getpid(), signal.SIGINT)
    yield b"y" * 1000

path = sys.argv[1]
write_atomically(path, [b"before"])
expect_interrupt(lambda: write_atomically(path, parts()))
assert open(path, "rb").read() == b"before"
assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
"""


def run_python(code: str, *arguments: str) -> str:
    """Run a program in a process of its own and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPT + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("code", [LONG_RUN, COMPILE], ids=["run", "compile"])
def test_ctrl_c_stops_native_work_and_the_next_call_works(code: str) -> None:
    assert run_python(code).startswith("interrupted")


def test_ctrl_c_during_a_save_leaves_the_old_file(tmp_path: Path) -> None:
    assert run_python(SAVE, str(tmp_path / "model.pet")).startswith("interrupted")


def long_work() -> et.Array:
    """A lazy product that takes seconds."""
    x = et.compute(et.ones((1024, 1024)) * 1e-3)
    y = x
    for _ in range(2000):
        y = y @ x
    return y


def test_a_scope_cancels_after_its_timeout() -> None:
    refused = pytest.raises(et.errors.CancelledError, match="cancel_scope")
    with refused, et.cancel_scope(timeout=0.1):
        et.compute(long_work())
    assert (et.array([1.0]) + 1.0).tolist() == [2.0]


def test_a_scope_is_cancelled_from_another_thread() -> None:
    with pytest.raises(et.errors.CancelledError), et.cancel_scope() as scope:
        threading.Timer(0.05, scope.cancel).start()
        et.compute(long_work())


def test_a_cancelled_scope_starts_nothing() -> None:
    with et.cancel_scope() as scope:
        scope.cancel()
        with pytest.raises(et.errors.CancelledError):
            et.compute(et.array([1.0]) * 2.0)


def test_a_scope_that_is_not_cancelled_changes_nothing() -> None:
    with et.cancel_scope(timeout=60.0):
        assert np.array_equal((et.array([1.0, 2.0]) * 2.0).numpy(), [2.0, 4.0])


def test_donated_arguments_survive_a_cancelled_call() -> None:
    x = et.compute(et.ones((1024, 1024)) * 1e-3)

    def chain(x: et.Array) -> et.Array:
        y = x
        for _ in range(2000):
            y = y @ x
        return y

    compiled = et.jit(chain, donate_argnums=0)
    with pytest.raises(et.errors.CancelledError), et.cancel_scope(timeout=0.1):
        compiled(x)
    assert x.state == "concrete"
    assert float(x[0, 0]) == np.float32(1e-3)


AT_SUBMIT = """
x, chain = product_chain(2000)

compiled = et.jit(chain, donate_argnums=0)
executable = compiled.lower(x).compile()

class Interrupted:
    # What Python does when a signal arrives during the submitting call.
    def __init__(self, lib):
        self.lib = lib

    def __getattr__(self, name):
        function = getattr(self.lib, name)
        if name != "pet_run_submit":
            return function

        def call(*arguments):
            function(*arguments)
            raise KeyboardInterrupt

        return call

before = et.cpu().memory_stats()["buffers_live"]
executable._lib, kept = Interrupted(executable._lib), executable._lib
expect_interrupt(lambda: compiled(x))
executable._lib = kept
assert float(x[0, 0]) == np.float32(1e-3)  # the donated argument is still there
assert et.cpu().memory_stats()["buffers_live"] <= before + 1

small = et.jit(lambda v: v + 1.0)
v = et.compute(et.array([1.0]) * 1.0)
executable = small.lower(v).compile()
before = et.cpu().memory_stats()["buffers_live"]
executable._lib, kept = Interrupted(executable._lib), executable._lib
expect_interrupt(lambda: small(v))
executable._lib = kept
assert et.cpu().memory_stats()["buffers_live"] <= before
assert small(v).tolist() == [2.0]
"""

ABANDONED = """
x, chain = product_chain(4000)

compiled = et.jit(chain)
executable = compiled.lower(x).compile()
handles = executable._ffi.new("uint64_t[]", [x.buf.handle])
out = executable._ffi.new("uint64_t[2]")
null = executable._ffi.NULL
executable._lib.pet_run_submit(executable.handle, handles, 1, out, 1, 0, out + 1, null)
assert out[1] != 0
print("interrupted")  # and the process ends while the job runs
"""


def test_an_interrupt_as_the_submit_returns_loses_nothing() -> None:
    assert run_python(AT_SUBMIT).count("interrupted") == 2


def test_a_process_may_end_while_a_job_runs() -> None:
    assert run_python(ABANDONED).startswith("interrupted")
