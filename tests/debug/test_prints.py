"""`et.debug.print` and `callback`: in order at each call, once with the primal, never again."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.transforms.effects import HANDLERS

pytestmark = pytest.mark.usefixtures("runtime")

say = et.debug.print


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    return lambda: capsys.readouterr().out.splitlines()


Lines = Callable[[], list[str]]


def looped(x: Any) -> Any:
    """A print before, in each of three steps, and after."""
    say("before {}", x)

    def step(c: Any, t: Any) -> Any:
        say("step {} {}", c, t)
        return c * t, None

    c, _ = et.scan(step, x, et.array([1.0, 2.0, 3.0]))
    say("after {c}", c=c)
    return c


LOOPED = ["before 1.0", "step 1.0 1.0", "step 1.0 2.0", "step 2.0 3.0", "after 6.0"]

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda f: f,
    "jit": et.jit,
    "grad": et.grad,
    "jvp": lambda f: lambda x: et.jvp(f, (x,), (x,)),
    "vjp": lambda f: lambda x: et.vjp(f, x)[1](x),
    "linearize": lambda f: lambda x: et.linearize(f, x)[1](x),
    "checkpoint": et.checkpoint,
    "second": lambda f: et.grad(et.grad(f)),
    "hessian": et.hessian,
}


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product(TRANSFORMS, repeat=2)))
def test_a_print_happens_once_with_the_primal_and_in_order(
    outer: str, inner: str, lines: Lines
) -> None:
    if inner in ("jvp", "vjp", "linearize", "hessian") and outer not in ("plain", "jit"):
        inner = "plain"  # they do not return a scalar
    f = TRANSFORMS[outer](TRANSFORMS[inner](looped))
    et.compute(f(et.array(1.0)))
    assert lines() == LOOPED


@pytest.mark.parametrize("transform", ["grad", "jvp", "vjp", "checkpoint", "second"])
def test_nor_does_it_happen_again_inside_a_compiled_function(transform: str, lines: Lines) -> None:
    f = et.jit(TRANSFORMS[transform](looped))
    for _ in range(2):
        et.compute(f(et.array(1.0)))
        assert lines() == LOOPED


# --- vmap


def test_under_vmap_there_is_one_print_with_the_rows(lines: Lines) -> None:
    y = et.array(7.0)

    def f(x: Any) -> Any:
        say("{} {}", x, y)
        say("shared {}", y)
        return x * y

    et.vmap(f)(et.array([1.0, 2.0])).numpy()
    assert lines() == ["[1. 2.] 7.0", "shared 7.0"]
    et.jit(et.vmap(et.vmap(f)))(et.ones((1, 2)))
    assert lines() == ["[[1. 1.]] 7.0", "shared 7.0"]
    et.vmap(et.grad(et.jit(f)))(et.array([3.0])).numpy()
    assert lines() == ["[3.] 7.0", "shared 7.0"]


def test_order_holds_where_only_some_prints_are_batched(lines: Lines) -> None:
    def f(x: Any) -> Any:
        say("a {}", x)
        say("b")
        c, _ = et.scan(lambda c, _: (say("c"), (c, None))[1], et.array(0.0), length=2)
        say("d {}", x + c)
        say("e")
        return x

    et.jit(et.vmap(f))(et.array([1.0]))
    assert lines() == ["a [1.]", "b", "c", "c", "d [1.]", "e"]


def test_rows_that_do_not_come_by_are_not_printed(lines: Lines) -> None:
    def branch(x: Any) -> Any:
        return et.cond(x > 0, lambda: (say("up {}", x), x)[1], lambda: (say("down {}", x), -x)[1])

    et.vmap(branch)(et.array([1.0, -2.0, 3.0])).numpy()
    assert sorted(lines()) == ["down [-2.]", "up [1. 3.]"]
    et.vmap(branch)(et.array([1.0, 2.0])).numpy()
    assert lines() == ["up [1. 2.]"]

    def loop(n: Any) -> Any:
        return et.while_loop(
            lambda c: c < n, lambda c: (say("{} of {}", c, n), c + 1)[1], et.array(0)
        )

    assert et.vmap(loop)(et.array([1, 3, 0])).tolist() == [1, 3, 0]
    assert lines() == ["[0 0] of [1 3]", "[1] of [3]", "[2] of [3]"]


# --- other frames


def test_a_while_loop_prints_in_condition_and_body(lines: Lines) -> None:
    def f(x: Any) -> Any:
        return et.while_loop(
            lambda c: (say("test {}", c), c < 2)[1], lambda c: (say("body {}", c), c + 1)[1], x
        )

    assert int(et.jit(f)(et.array(0))) == 2
    assert lines() == ["test 0", "body 0", "test 1", "body 1", "test 2"]
    et.jit(lambda x: et.while_loop(lambda c: (say("?"), c < 1)[1], lambda c: c + 1, x))(0)
    assert lines() == ["?", "?"]


@pytest.mark.parametrize("unroll", [1, 2, True])
def test_an_unrolled_loop_prints_in_each_step(unroll: Any, lines: Lines) -> None:
    f = lambda x: et.scan(lambda c, _: (say("step"), (c, None))[1], x, length=3, unroll=unroll)[0]
    et.jit(f)(et.array(0.0))
    assert lines() == ["step"] * 3


def test_fori_loop_map_and_switch(lines: Lines) -> None:
    def f(x: Any) -> Any:
        x = et.fori_loop(0, 2, lambda i, c: (say("i {}", i), c + 1.0)[1], x)
        et.map(lambda row: (say("row {}", row), row)[1], et.array([5.0, 6.0]))
        return et.switch(1, [lambda v: v, lambda v: (say("one {}", v), v)[1]], x)

    et.jit(f)(et.array(0.0))
    assert lines() == ["i 0", "i 1", "row 5.0", "row 6.0", "one 2.0"]


def test_a_compiled_function_inside_another_prints_each_time(lines: Lines) -> None:
    hello = et.jit(lambda x: (say("hello"), x + 1.0)[1])
    f = et.jit(lambda x: hello(hello(x)))
    f(et.array(0.0))
    assert lines() == ["hello", "hello"]
    f(et.array(0.0))
    hello(et.array(0.0))
    assert lines() == ["hello"] * 3


@et.custom_vjp
def reversed_rule(x: Any) -> Any:
    say("called {}", x)
    return et.sin(x)


reversed_rule.defvjp(lambda x: (et.sin(x), x), lambda x, ct: (ct * et.cos(x),))


@et.custom_jvp
def forward_rule(x: Any) -> Any:
    say("called {}", x)
    return et.sin(x)


forward_rule.defjvp(lambda primals, tangents: (et.sin(*primals), tangents[0] * et.cos(*primals)))


@pytest.mark.parametrize("rule", [reversed_rule, forward_rule])
def test_custom_rules_print_with_the_function(rule: Any, lines: Lines) -> None:
    assert float(et.jit(et.grad(lambda x: rule(x) * 2.0))(et.array(0.0))) == 2.0
    assert lines() == ["called 0.0"]
    assert et.vmap(et.grad(rule))(et.array([0.0, 0.0])).tolist() == [1.0, 1.0]
    assert lines() == ["called [0. 0.]"]
    if rule is forward_rule:
        assert float(et.jit(lambda x: et.jvp(rule, (x,), (x,))[1])(et.array(1.0))) == pytest.approx(
            np.cos(1.0)
        )
        assert lines() == ["called 1.0"]


def test_shapes_and_ir_need_no_run(lines: Lines) -> None:
    assert et.eval_shape(looped, et.array(1.0)).shape == ()
    assert "effect" in str(et.make_ir(looped)(et.array(1.0)))
    assert et.jit(looped).lower(et.array(1.0)).explain()["instructions"] > 0
    assert lines() == []


# --- callbacks


def test_a_callback_gets_arrays_and_whatever_else_is_given() -> None:
    seen: list[Any] = []

    def note(tree: Any, text: str, *, scale: float) -> str:
        seen.append((tree, text, scale))
        return "ignored"

    def f(x: Any) -> Any:
        et.debug.callback(note, {"x": x, "n": 3}, "text", scale=0.5)
        return x

    et.jit(f)(et.array([1.0, 2.0]).astype("bfloat16"))
    ((tree, text, scale),) = seen
    assert (tree["n"], text, scale) == (3, "text", 0.5)
    assert isinstance(tree["x"], np.ndarray)
    assert tree["x"].dtype is et.dtypes.bfloat16
    assert tree["x"].tolist() == [1.0, 2.0]


def test_a_callback_may_keep_and_compute(lines: Lines) -> None:
    kept: list[Any] = []

    def work(x: Any) -> None:
        kept.append(x)
        say("inside {}", et.array(x).sum())

    f = et.jit(lambda x: (et.debug.callback(work, x * 2.0), x + 1.0)[1])
    assert f(et.array([1.0, 2.0])).tolist() == [2.0, 3.0]
    assert lines() == ["inside 6.0"]
    assert kept[0].tolist() == [2.0, 4.0]


def test_an_exception_ends_the_program_and_the_next_call_works() -> None:
    calls = itertools.count()

    def refuse(x: Any) -> None:
        if next(calls) == 0:
            raise KeyError("not this one")

    x = et.compute(et.array([1.0]) * 1.0)
    f = et.jit(lambda v: (et.debug.callback(refuse, v), v * 2.0)[1], donate_argnums=0)
    with pytest.raises(KeyError, match="not this one"):
        f(x)
    assert f(x).tolist() == [2.0]


class Big:
    """A callback that is worth freeing."""

    def __call__(self, x: Any) -> None:
        pass


def with_a_callback() -> tuple[Any, weakref.ref[Any]]:
    big = Big()
    f = et.jit(lambda x: (et.debug.callback(big, x), x)[1])
    f(et.array(1.0))
    return f, weakref.ref(big)


def test_a_callback_is_freed_with_its_function() -> None:
    before = len(HANDLERS)
    held = [with_a_callback()]
    assert len(HANDLERS) == before + 1
    watched = held.pop()[1]
    gc.collect()
    assert watched() is None
    assert len(HANDLERS) == before


def test_prints_of_one_text_are_one_program(runtime: Any, lines: Lines) -> None:
    x = et.compute(et.array([1.0]) * 1.0)
    say("warm {}", x)
    runtime.clear_caches()
    before = runtime.memory_stats()["executables"]
    for _ in range(5):
        say("warm {}", x)
    assert runtime.memory_stats()["executables"] == before + 1
    assert lines() == ["warm [1.]"] * 6


def test_what_has_no_hash_is_printed_too(lines: Lines) -> None:
    say("{} {}", [1, 2], np.array([3]))
    say("{a} {b}", a={"k": et.array([1])}, b={1, 2})
    assert lines() == ["[1, 2] [3]", "{'k': array([1])} {1, 2}"]


def test_threads_print_what_is_theirs() -> None:
    seen: dict[int, list[float]] = {}

    def note(number: Any, x: Any) -> None:
        seen.setdefault(int(number), []).append(float(x))

    def loop(number: Any, x: Any) -> Any:
        step = lambda c, t: (et.debug.callback(note, number, t), (c, None))[1]
        return et.scan(step, x, et.array([1.0, 2.0, 3.0]))[0]

    f = et.jit(loop)
    f(et.array(99), et.array(0.0))
    with et.use(et.current()):
        runtime = et.current()

        def work(number: int) -> None:
            with et.use(runtime):
                for _ in range(5):
                    f(et.array(number), et.array(0.0))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {n: values for n, values in seen.items() if n != 99} == {
        n: [1.0, 2.0, 3.0] * 5 for n in range(4)
    }


def test_nan_checks_and_profiles_come_by_too(lines: Lines) -> None:
    with et.debug.nans(), et.debug.profile() as p:
        et.jit(looped)(et.array(1.0))
    assert lines() == LOOPED
    assert (
        "host_call"
        in {row.family for row in p.rows()} | {name for row in p.rows() for name in row.operations}
        or p.rows()
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: say(et.array(1.0)), "ArgumentError", "debug.print: expected a format string"),
        (lambda: et.debug.callback(3), "ArgumentError", "debug.callback: expected a function"),
        (
            lambda: et.freeze(looped, et.array(1.0)),
            "TraceError",
            "freeze: the function calls et.debug",
        ),
    ],
)
def test_what_cannot_be_is_refused(call: Any, error: str, message: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=message):
        call()


def test_a_value_that_leaked_is_an_error() -> None:
    kept: list[Any] = []
    et.jit(lambda x: (kept.append(x), x)[1])(et.array(1.0))
    with pytest.raises(et.errors.TraceError, match="depends on x of jit"):
        say("{}", kept[0])
