"""Every stack of grad, jvp, vmap, jit, checkpoint and scan to depth 4, against numbers of JAX.

`tools/golden_jax_control.py` wrote the numbers; `stacked.py` repeats the functions and the loop.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import pyeffect_torch as et
from tests.transforms.stacked import FUNCTIONS, check, stack

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "jax_scans.json").read_text())
VALUES: dict[str, dict[str, str]] = GOLDEN["values"]
LETTERS = "gjvics"
# A stack of depth 4 has at most some thousand operations, each of which rounds once.
ROUNDINGS = 4096.0


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
    check(VALUES[name], stacks, got, ROUNDINGS)


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
        got = et.jit(lambda x: [stack(s, f)(x) for s in SAMPLED])(x)
        check(VALUES["wave"], SAMPLED, got, ROUNDINGS)
