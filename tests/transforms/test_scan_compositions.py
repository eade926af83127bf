"""Every stack of grad, jvp, vmap, jit, checkpoint and scan to depth 4, against numbers of JAX.

`tools/golden_jax_control.py` wrote the numbers; its functions and the loop are repeated here.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "jax_scans.json").read_text())
VALUES: dict[str, dict[str, str]] = GOLDEN["values"]
LETTERS = "gjvics"
WEIGHTS = np.array([0.5, -1.0, 2.0])
# A stack of depth 4 has at most some thousand operations, each of which rounds once.
ROUNDINGS = 4096.0
Function = Callable[[Any], Any]


@et.custom_jvp
def bent(x: Any) -> Any:
    return et.sin(x)


bent.defjvp(lambda primals, tangents: (bent(*primals), tangents[0] * 3.0 * primals[0]))

FUNCTIONS: dict[str, tuple[Function, Any]] = {
    "wave": (lambda x: x * x * et.sin(x), 0.7),
    "bent": (lambda x: bent(x) * x, 0.7),
    "mixed": (
        lambda x: et.exp(-x[0]) * et.tanh(x[1]) + x[2] * x[2] * x[2] * x[0], [0.7, -0.4, 1.1],
    ),
}  # fmt: skip


def looped(f: Function) -> Function:
    """Two steps of a recurrence in which f occurs, and the sum of what it goes through."""

    def run(x: Any) -> Any:
        last, seen = et.scan(
            lambda c, w: (c * f(x * w) + w, c * c), np.float64(0.5), np.array([1.0, 0.5])
        )
        return last + seen.sum()

    return run


def apply(letter: str, f: Function) -> Function:
    if letter == "g":
        return lambda x: et.sum(et.grad(f)(x) * (WEIGHTS if x.ndim else np.float64(1.0)))
    if letter == "j":
        return lambda x: et.jvp(f, (x,), (x * x,))[1]
    if letter == "v":
        return lambda x: et.sum(et.vmap(f)(et.stack([x, x - 1.0])))
    if letter == "s":
        return looped(f)
    return et.jit(f) if letter == "i" else et.checkpoint(f)


def stack(letters: str, f: Function) -> Function:
    """Apply transforms, the last letter first."""
    for letter in reversed(letters):
        f = apply(letter, f)
    return f


def check(name: str, stacks: list[str], got: list[Any]) -> None:
    wrong: list[str] = []
    for letters, value in zip(stacks, got, strict=True):
        want = float.fromhex(VALUES[name][letters])
        result = value.numpy()
        assert result.dtype == np.float64
        assert result.shape == ()
        if not abs(float(result) - want) <= ROUNDINGS * 2.0**-52 * max(abs(want), 1.0):
            wrong.append(f"{letters}: {float(result)!r}, JAX has {want!r}")
    assert wrong == []


def test_every_stack_is_there() -> None:
    for name, depth in (("wave", 4), ("bent", 3), ("mixed", 3)):
        every = ("".join(s) for n in range(depth + 1) for s in itertools.product(LETTERS, repeat=n))
        assert set(VALUES[name]) == {letters for letters in every if "s" in letters}
    assert set(VALUES) == set(FUNCTIONS)


CASES = [pytest.param(name, first, id=f"{name}-{first}") for name in FUNCTIONS for first in LETTERS]


@pytest.mark.parametrize(("name", "first"), CASES)
def test_stacks_are_jaxs(name: str, first: str) -> None:
    f, point = FUNCTIONS[name]
    x = et.array(np.array(point))
    stacks = [letters for letters in VALUES[name] if letters[0] == first]
    got = [stack(letters, f)(x) for letters in stacks]
    et.compute(got)
    check(name, stacks, got)


SAMPLED = [
    letters
    for k, letters in enumerate(s for s in VALUES["wave"] if len(s) == 4)
    if k % 19 == 0 or letters in ("ggss", "vgsg", "jgsv", "isgc", "sgcs", "svsg")
]


@pytest.mark.parametrize("how", ["optimised", "reference"])
def test_stacks_inside_one_jit(how: str) -> None:
    f, point = FUNCTIONS["wave"]
    with et.use(et.reference() if how == "reference" else et.cpu()):
        x = et.array(np.array(point))
        check("wave", SAMPLED, et.jit(lambda x: [stack(s, f)(x) for s in SAMPLED])(x))
