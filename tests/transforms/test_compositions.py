"""Every stack of grad, jvp, vmap, jit and checkpoint to depth 4, against numbers that JAX computed.

`tools/golden_jax.py` wrote the numbers; its functions and transforms are repeated here and
in `stacked.py`.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from tests.transforms import stacked
from tests.transforms.stacked import Function, check, stack

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "jax_compositions.json").read_text())
VALUES: dict[str, dict[str, str]] = GOLDEN["values"]
LETTERS = "gjvic"
# A stack of depth 4 has at most about a thousand operations, each of which rounds once.
ROUNDINGS = 1024.0
FUNCTIONS: dict[str, tuple[Function, Any]] = {
    **stacked.FUNCTIONS,
    "kinks": (lambda x: et.where(x > 0.3, x * x * x, et.maximum(x, -2.0 * x)) * x, 0.7),
    "decay": (lambda x: et.exp(-x) * et.tanh(x), 0.7),
    "total": (lambda x: et.sum(x * x * et.sin(x)) * x[0], [0.7, -0.4, 1.1]),
    "largest": (lambda x: et.max(x) * et.sum(et.where(x > 0, x, x * x)), [0.7, -0.4, 1.1]),
}


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
    check(VALUES[name], stacks, got, ROUNDINGS)


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

        check(VALUES[name], SAMPLED, et.jit(every, optimize=optimize)(x), ROUNDINGS)
