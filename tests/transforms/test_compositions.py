"""Every stack of grad, jvp, vmap, jit and checkpoint to depth 4, against numbers that JAX computed.

`tools/golden_jax.py` wrote the numbers; its functions and transforms are repeated here.
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

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "jax_compositions.json").read_text())
VALUES: dict[str, dict[str, str]] = GOLDEN["values"]
LETTERS = "gjvic"
WEIGHTS = np.array([0.5, -1.0, 2.0])
# A stack of depth 4 has at most about a thousand operations, each of which rounds once.
ROUNDINGS = 1024.0
Function = Callable[[Any], Any]


@et.custom_jvp
def bent(x: Any) -> Any:
    return et.sin(x)


bent.defjvp(lambda primals, tangents: (bent(*primals), tangents[0] * 3.0 * primals[0]))

FUNCTIONS: dict[str, tuple[Function, Any]] = {
    "wave": (lambda x: x * x * et.sin(x), 0.7),
    "kinks": (lambda x: et.where(x > 0.3, x * x * x, et.maximum(x, -2.0 * x)) * x, 0.7),
    "bent": (lambda x: bent(x) * x, 0.7),
    "mixed": (
        lambda x: et.exp(-x[0]) * et.tanh(x[1]) + x[2] * x[2] * x[2] * x[0], [0.7, -0.4, 1.1],
    ),
    "decay": (lambda x: et.exp(-x) * et.tanh(x), 0.7),
    "total": (lambda x: et.sum(x * x * et.sin(x)) * x[0], [0.7, -0.4, 1.1]),
    "largest": (lambda x: et.max(x) * et.sum(et.where(x > 0, x, x * x)), [0.7, -0.4, 1.1]),
}  # fmt: skip


def apply(letter: str, f: Function, optimize: bool) -> Function:
    if letter == "g":
        return lambda x: et.sum(et.grad(f)(x) * (WEIGHTS if x.ndim else np.float64(1.0)))
    if letter == "j":
        return lambda x: et.jvp(f, (x,), (x * x,))[1]
    if letter == "v":
        return lambda x: et.sum(et.vmap(f)(et.stack([x, x - 1.0])))
    return et.jit(f, optimize=optimize) if letter == "i" else et.checkpoint(f)


def stack(letters: str, f: Function, optimize: bool = True) -> Function:
    """Apply transforms, the last letter first."""
    for letter in reversed(letters):
        f = apply(letter, f, optimize)
    return f


def check(name: str, stacks: list[str], got: list[Any]) -> None:
    wrong: list[str] = []
    for letters, value in zip(stacks, got, strict=True):
        want = float.fromhex(VALUES[name][letters])
        result = value.numpy()
        assert result.dtype == np.float64
        assert result.shape == ()
        if not abs(float(result) - want) <= ROUNDINGS * 2.0**-52 * max(abs(want), 1.0):
            wrong.append(f"{letters or 'f'}: {float(result)!r}, JAX has {want!r}")
    assert wrong == []


def test_every_stack_is_there() -> None:
    every = {"".join(s) for n in range(5) for s in itertools.product(LETTERS, repeat=n)}
    assert len(every) == 781
    for name in ("wave", "kinks", "bent", "mixed"):
        assert set(VALUES[name]) == every
    for name in ("decay", "total", "largest"):
        assert set(VALUES[name]) == {letters for letters in every if len(letters) < 4}
    assert set(VALUES) == set(FUNCTIONS)


CASES = [
    pytest.param(name, first, id=f"{name}-{first or 'f'}")
    for name in FUNCTIONS
    for first in ("", *LETTERS)
]


@pytest.mark.parametrize(("name", "first"), CASES)
def test_stacks_are_jaxs(name: str, first: str) -> None:
    f, point = FUNCTIONS[name]
    x = et.array(np.array(point))
    stacks = [letters for letters in VALUES[name] if letters[:1] == first]
    got = [stack(letters, f)(x) for letters in stacks]
    et.compute(got)
    check(name, stacks, got)


SAMPLED = [
    letters
    for k, letters in enumerate(s for s in VALUES["wave"] if len(s) == 4)
    if k % 17 == 0 or letters in ("gggg", "jjjj", "vgvg", "jgcv", "icgv", "gicg")
]


@pytest.mark.parametrize("how", ["optimised", "unoptimised", "reference"])
@pytest.mark.parametrize("name", ["wave", "kinks", "bent", "mixed"])
def test_stacks_inside_one_jit(name: str, how: str) -> None:
    f, point = FUNCTIONS[name]
    optimize = how != "unoptimised"
    with et.use(et.reference() if how == "reference" else et.cpu()):
        x = et.array(np.array(point))

        def every(x: Any) -> list[Any]:
            return [stack(letters, f, optimize)(x) for letters in SAMPLED]

        check(name, SAMPLED, et.jit(every, optimize=optimize)(x))
