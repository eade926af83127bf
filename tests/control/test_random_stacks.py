"""Random stacks of all transforms and all control flow, against loops and selections in Python.

The plain twin of a stack has no region in it: Python loops, `where` for branches, one call per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

Function = Callable[[Any], Any]
STACKS = 160
# A stack has at most some hundred thousand operations, most of which shrink errors, and sums of
# values that cancel: rounded 2**20 times at the scale of the result.
TOLERANCE = 2.0**-52 * 2.0**20
LETTERS = "gjvicslbwmuhr"
DERIVATIVES_MAX = 3  # the values of higher ones grow beyond what cancels in them
WEIGHTS = np.array([0.5, -1.0, 2.0])
BASES: list[tuple[Function, Any]] = [
    (lambda x: x * x * et.sin(x), 0.7),
    (lambda x: et.exp(-x) * et.tanh(x), -0.3),
    (lambda x: et.sum(x * et.cos(x)) * x[1], [0.7, -0.4, 1.1]),
]


def number(value: Any) -> Any:
    return value.astype("float64")


def score(x: Any) -> Any:
    """What branches and lengths depend on."""
    return et.sum(x) * 0.5


# --- as it is meant to be written


def with_scan(f: Function, unroll: Any = 1, reverse: bool = False) -> Function:
    def run(x: Any) -> Any:
        step = lambda c, w: (c * f(x * w) + w, c * c)
        ws = np.array([1.0, 0.5, -0.25])
        last, seen = et.scan(step, np.float64(0.5), ws, unroll=unroll, reverse=reverse)
        return last + (seen * np.array([1.0, 2.0, 3.0])).sum()

    return run


def with_fori(f: Function) -> Function:
    step = lambda x: lambda i, c: c * 0.5 + f(x * (number(i) * 0.25))
    return lambda x: et.fori_loop(1, 3, step(x), et.sum(x))


def with_cond(f: Function) -> Function:
    return lambda x: et.cond(score(x) > 0.1, lambda y: f(y) * 2.0, lambda y: f(-y), x)


def with_switch(f: Function) -> Function:
    branches = [f, lambda y: f(y * 0.5), lambda y: f(y) * et.sum(y)]
    return lambda x: et.switch(et.floor(score(x) + 1.0).astype("int64"), branches, x)


def with_map(f: Function) -> Function:
    return lambda x: et.map(lambda t: f(x * t), np.array([1.0, 0.5, -0.5])).sum()


def with_while(f: Function) -> Function:
    def run(x: Any) -> Any:
        count = (score(x) > 0.1).astype("int64") + 1
        step = lambda c: (c[0] + 1, c[1] * 0.5 + f(x * (number(c[0]) + 1.0)))
        return et.while_loop(lambda c: c[0] < count, step, (0, et.sum(x)))[1]

    return run


def with_read(f: Function) -> Function:
    """What has a value is read on the way, also under a derivative."""

    def run(x: Any) -> Any:
        y = f(x)
        if y.state != "placeholder":
            float(y)
        return y

    return run


def applied(letter: str, f: Function) -> Function:
    if letter == "g":
        return lambda x: et.sum(et.grad(f)(x) * (WEIGHTS if x.ndim else np.float64(1.0)))
    if letter == "j":
        return lambda x: et.jvp(f, (x,), (x * x,))[1]
    if letter == "v":
        return lambda x: et.sum(et.vmap(f)(et.stack([x, x - 1.0, x * 0.5])))
    control: dict[str, Callable[[Function], Function]] = {
        "i": et.jit,
        "c": et.checkpoint,
        "s": with_scan,
        "u": lambda f: with_scan(f, unroll=2, reverse=True),
        "l": with_fori,
        "b": with_cond,
        "w": with_switch,
        "m": with_map,
        "h": with_while,
        "r": with_read,
    }
    return control[letter](f)


# --- plainly


def plain_scan(f: Function, order: tuple[int, ...]) -> Function:
    def run(x: Any) -> Any:
        c, total = x[..., 0] * 0 + 0.5 if x.ndim else x * 0 + 0.5, 0.0
        for t in order:
            w = (1.0, 0.5, -0.25)[t]
            total = total + c * c * (t + 1.0)
            c = c * f(x * w) + w
        return c + total

    return run


def plain_fori(f: Function) -> Function:
    return lambda x: (et.sum(x) * 0.5 + f(x * 0.25)) * 0.5 + f(x * 0.5)


def plain_cond(f: Function) -> Function:
    return lambda x: et.where(score(x) > 0.1, f(x) * 2.0, f(-x))


def plain_switch(f: Function) -> Function:
    def run(x: Any) -> Any:
        index = et.floor(score(x) + 1.0)
        last = et.where(index > 1.5, f(x) * et.sum(x), f(x * 0.5))
        return et.where(index < 0.5, f(x), last)

    return run


def plain_map(f: Function) -> Function:
    return lambda x: f(x) + f(x * 0.5) + f(x * -0.5)


def plain_while(f: Function) -> Function:
    def run(x: Any) -> Any:
        once = et.sum(x) * 0.5 + f(x)
        return et.where(score(x) > 0.1, once * 0.5 + f(x * 2.0), once)

    return run


def plainly(letter: str, f: Function) -> Function:
    if letter in "gj":
        return applied(letter, f)
    if letter == "v":
        return lambda x: f(x) + f(x - 1.0) + f(x * 0.5)
    plain: dict[str, Callable[[Function], Function]] = {
        "i": lambda f: f,
        "c": lambda f: f,
        "r": lambda f: f,
        "s": lambda f: plain_scan(f, (0, 1, 2)),
        "u": lambda f: plain_scan(f, (2, 1, 0)),
        "l": plain_fori,
        "b": plain_cond,
        "w": plain_switch,
        "m": plain_map,
        "h": plain_while,
    }
    return plain[letter](f)


# --- drawing


def draw(rng: np.random.Generator) -> str:
    """A stack, from the outside in; no reverse mode through a loop of unknown length."""
    letters = ""
    for _ in range(rng.integers(2, 6)):
        allowed = [
            letter
            for letter in LETTERS
            if not (letter == "h" and "g" in letters)
            and not (letter in "gj" and sum(map(letters.count, "gj")) == DERIVATIVES_MAX)
        ]
        letters += allowed[rng.integers(len(allowed))]
    return letters


def stacked(letters: str, f: Function, apply: Callable[[str, Function], Function]) -> Function:
    for letter in reversed(letters):
        f = apply(letter, f)
    return f


RNG = np.random.default_rng(2024)
CASES = [(draw(RNG), int(RNG.integers(len(BASES)))) for _ in range(STACKS)]
assert {letter for letters, _ in CASES for letter in letters} == set(LETTERS)


@pytest.mark.parametrize("how", ["reference", "eager", "one program"])
def test_stacks_are_what_they_say(how: str) -> None:
    with et.use(et.reference() if how == "reference" else et.cpu()):
        points = [et.array(np.array(point)) for _, point in BASES]
        want = [stacked(s, BASES[k][0], plainly)(points[k]) for s, k in CASES]
        every = lambda points: [stacked(s, BASES[k][0], applied)(points[k]) for s, k in CASES]
        got = (et.jit(every) if how == "one program" else every)(points)
        et.compute((want, got))
        wrong = [
            f"{letters} of {k}: {float(a)!r}, plainly {float(b)!r}"
            for (letters, k), a, b in zip(CASES, got, want, strict=True)
            if not abs(float(a) - float(b)) <= TOLERANCE * max(abs(float(b)), 1.0)
        ]
        assert wrong == []
