"""Random programs under random stacks of transforms; `make fuzz` runs thousands of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyeffect_torch as et
from tests.compositions import programs, stacks


@settings(max_examples=300)
@given(seed=st.integers(0, 2**31 - 1))
def test_executors_agree(seed: int) -> None:
    drawn = stacks.case(seed)
    assert stacks.problem(drawn) == "", drawn.text()


def test_every_step_and_transform_is_drawn() -> None:
    def names(program: programs.Program) -> set[str]:
        inner = (names(p) for step in program.steps for p in step.inner)
        return {step.name for step in program.steps}.union(*inner)

    cases = [stacks.case(seed) for seed in range(1500)]
    seen = set[str]().union(*(names(drawn.program) for drawn in cases))
    assert seen == {*programs.UNARY, *programs.BINARY, *programs.NESTED}
    assert {name for drawn in cases for name in drawn.stack} == stacks.TRANSFORMS.keys()
    assert {len(drawn.stack) for drawn in cases} == set(range(stacks.DEPTH_MAX + 1))


def test_a_wrong_derivative_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One executor that gets an input 1e-7 away differs from the others."""
    step = programs.Step("sin", (0,))
    drawn = stacks.Case(0, programs.Program(2, (step, step)), ("grad",), (0.5, -0.25))
    assert stacks.problem(drawn) == ""
    runtime = et.reference()
    upload = runtime.upload

    def wrong(value: Any) -> Any:
        return upload(np.asarray(value) + 1e-7)

    monkeypatch.setattr(runtime, "upload", wrong)
    assert "instead of" in stacks.problem(drawn)
