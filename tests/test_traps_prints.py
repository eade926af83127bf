"""The traps of prints: at each call, once, in order, and nothing where nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pyeffect_torch as et

pytestmark = pytest.mark.usefixtures("runtime")

say = et.debug.print
Lines = Callable[[], list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    return lambda: capsys.readouterr().out.splitlines()


def test_prints_in_a_compiled_function_at_each_call(lines: Lines) -> None:
    def f(x: Any) -> Any:
        say("first {}", x)
        say("no value")
        y = x * 2.0
        say("second {:.2f}", y)
        return y

    g = et.jit(f)
    for value in (1.0, 2.5):
        g(et.array(value))
        assert lines() == [f"first {value}", "no value", f"second {2 * value:.2f}"]
    assert g.stats.traces == 1


def test_a_print_in_a_loop_of_three_steps_is_three(lines: Lines) -> None:
    def f(x: Any) -> Any:
        return et.scan(lambda c, _: (say("at {}", c), (c + 1.0, None))[1], x, length=3)[0]

    et.jit(f)(et.array(0.0))
    assert lines() == ["at 0.0", "at 1.0", "at 2.0"]


def test_a_print_in_a_checkpoint_is_not_recomputed(lines: Lines) -> None:
    def f(x: Any) -> Any:
        say("inside {}", x)
        return et.sin(x)

    assert float(et.jit(et.grad(et.checkpoint(f)))(et.array(0.0))) == 1.0
    assert lines() == ["inside 0.0"]


def test_a_branch_that_is_not_taken_prints_nothing(lines: Lines) -> None:
    x = et.array(2.0)

    def yes() -> Any:
        say("yes")
        return x

    def no() -> Any:
        say("no")
        return -x

    f = et.jit(lambda flag: et.cond(flag, yes, no))
    f(et.array(True))
    assert lines() == ["yes"]
    f(et.array(False))
    assert lines() == ["no"]
    et.cond(et.array(True), yes, no).item()
    assert lines() == ["yes"]


def test_a_print_in_a_loop_under_jvp_is_one_for_each_step(lines: Lines) -> None:
    def f(x: Any) -> Any:
        return et.scan(lambda c, _: (say("at {}", c), (c * 2.0, None))[1], x, length=3)[0]

    x = et.array(1.0)
    value, tangent = et.jit(lambda x: et.jvp(f, (x,), (x,)))(x)
    assert (float(value), float(tangent)) == (8.0, 8.0)
    assert lines() == ["at 1.0", "at 2.0", "at 4.0"]
    et.compute(et.jvp(f, (x,), (x,)))
    assert lines() == ["at 1.0", "at 2.0", "at 4.0"]
