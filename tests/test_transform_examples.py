"""The programs of `examples/transforms/` give what JAX gives for the same source."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from tools.golden_examples import PROGRAMS, SHOWN, flat, with_jax_imports

GOLDEN = json.loads((Path(__file__).parent / "data" / "jax_examples.json").read_text())["values"]
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))

ROUNDINGS = {
    "clip": 64,
    "fixed_point": 64,
    "gaussian_process": 4096,  # times the condition of the matrix, about 100
    "gpt_block": 1024,  # sums of up to 128 products, five deep
    "hvp": 4096,  # conjugate gradients on a matrix of condition 2000
    "maml": 1024,  # 5 x 3 steps of descent
    "mlp": 1024,  # 20 steps of descent
    "ode": 1024,  # 50 steps of 4 stages
    "rnn": 1024,  # 100 steps
}
"""How many float32 roundings, of the largest number of an array, its numbers may differ by."""


@pytest.mark.parametrize("runtime", [et.cpu, et.reference], ids=["cpu", "reference"])
@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_are_jaxs(name: str, runtime: Any) -> None:
    with et.use(runtime()):
        got = flat(runpy.run_path(str(PROGRAMS / f"{name}.py"))["main"]())
    want = GOLDEN[name]
    assert got.keys() == want.keys()
    for path, (shape, numbers) in want.items():
        assert got[path][0] == shape, path
        mine, theirs = np.array(got[path][1]), np.array(numbers)
        assert len(mine) == min(np.prod(shape, dtype=int), len(mine)) <= 2 * SHOWN
        bound = ROUNDINGS[name] * 2.0**-24 * np.abs(theirs).max(initial=0)
        assert np.abs(mine - theirs).max(initial=0) <= bound, path


def test_only_imports_differ_from_jax() -> None:
    for name in NAMES:
        text = (PROGRAMS / f"{name}.py").read_text()
        assert "pyeffect_torch" not in re.sub(r'""".*?"""', "", with_jax_imports(text), flags=re.S)
        changed = [
            (mine, theirs)
            for mine, theirs in zip(
                text.splitlines(), with_jax_imports(text).splitlines(), strict=True
            )
            if mine != theirs
        ]
        assert all("import" in mine for mine, _ in changed)
        assert len(changed) >= 2


def test_every_program_has_numbers() -> None:
    assert GOLDEN.keys() == set(NAMES) == ROUNDINGS.keys()
    assert len(NAMES) == 9
