"""Stacks of transforms over small functions, as `tools/golden_jax.py` has them for JAX.

A stack is a word of letters, the outermost transform first: g grad, j jvp, v vmap, i jit,
c checkpoint, s scan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import pyeffect_torch as et

WEIGHTS = np.array([0.5, -1.0, 2.0])
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


def apply(letter: str, f: Function, optimize: bool) -> Function:
    if letter == "g":
        return lambda x: et.sum(et.grad(f)(x) * (WEIGHTS if x.ndim else np.float64(1.0)))
    if letter == "j":
        return lambda x: et.jvp(f, (x,), (x * x,))[1]
    if letter == "v":
        return lambda x: et.sum(et.vmap(f)(et.stack([x, x - 1.0])))
    if letter == "s":
        return looped(f)
    return et.jit(f, optimize=optimize) if letter == "i" else et.checkpoint(f)


def stack(letters: str, f: Function, optimize: bool = True) -> Function:
    """Apply transforms, the last letter first."""
    for letter in reversed(letters):
        f = apply(letter, f, optimize)
    return f


def check(
    golden: Mapping[str, str], stacks: Sequence[str], got: Sequence[Any], roundings: float
) -> None:
    """Compare the results of stacks with JAX's, which are written as hexadecimal floats."""
    wrong: list[str] = []
    for letters, value in zip(stacks, got, strict=True):
        want = float.fromhex(golden[letters])
        result = value.numpy()
        assert result.dtype == np.float64
        assert result.shape == ()
        if not abs(float(result) - want) <= roundings * 2.0**-52 * max(abs(want), 1.0):
            wrong.append(f"{letters or 'f'}: {float(result)!r}, JAX has {want!r}")
    assert wrong == []
