"""Every declaration in the registry is complete; and the check refuses those that are not."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.op import REGISTRY, Domain, Op, Sample
from pyeffect_torch.ops import domains
from pyeffect_torch.runtime.native.opcodes import OPCODES
from pyeffect_torch.testing import declaration_problems
from pyeffect_torch.testing.declarations import SAMPLES_MIN, is_region, is_structural

EXP, SUM, CONCATENATE = REGISTRY["exp"], REGISTRY["reduce_sum"], REGISTRY["concatenate"]


@pytest.mark.parametrize("name", REGISTRY)
def test_declaration_is_complete(name: str) -> None:
    assert declaration_problems(REGISTRY[name]) == []


def test_exceptions_are_these_and_no_others() -> None:
    structural = {name for name, op in REGISTRY.items() if is_structural(op)}
    assert structural == {"constant", "literal", "placeholder", "output", "leaf", "start"}
    regions = {name for name, op in REGISTRY.items() if is_region(op)}
    assert regions == {
        "scan",
        "switch",
        "while_loop",
        "checkpoint",
        "collective",
        "custom_vjp",
        "custom_jvp",
        "effect",
    }


def test_every_opcode_has_a_declaration() -> None:
    assert set(OPCODES) == {op.opcode for op in REGISTRY.values()} - {None}


# --- bad declarations are refused


def with_domain(op: Op, **changes: Any) -> Op:
    assert op.domain is not None
    return replace(op, domain=replace(op.domain, **changes))


def no_samples(rng: np.random.Generator, dtype: Any) -> Sequence[Sample]:
    return []


def nineteen(rng: np.random.Generator, dtype: Any) -> Sequence[Sample]:
    assert EXP.domain is not None
    return EXP.domain.samples(rng, dtype)[: SAMPLES_MIN - 1]


def never_empty(rng: np.random.Generator, dtype: Any) -> Sequence[Sample]:
    return [Sample((domains.draw(rng, (2, k + 1), dtype),)) for k in range(SAMPLES_MIN)]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (replace(EXP, domain=None), "it has no domain"),
        (with_domain(EXP, dtypes=()), "the domain has no dtypes"),
        (with_domain(EXP, dtypes=(dtypes.float32,) * 2), "the domain names a dtype twice"),
        (with_domain(EXP, dtypes=(np.dtype("complex64"),)), "is no dtype of an array"),
        (with_domain(EXP, samples=no_samples), "float32: 0 samples, at least 20 are needed"),
        (with_domain(EXP, samples=nineteen), "float32: 19 samples, at least 20 are needed"),
        (with_domain(EXP, samples=never_empty), "no sample has an extent of 0"),
        (replace(EXP, name=""), "it has no name"),
        (replace(EXP, infer=None), "infer is missing"),
        (replace(EXP, derivative=None), "the derivative is missing"),
        (replace(EXP, batch=None), "the batching rule is missing"),
        (replace(EXP, reference=None), "the reference is missing"),
        (replace(EXP, opcode=None), "the opcode is missing"),
        (replace(EXP, opcode="exponential"), "the core has no opcode 'exponential'"),
        (replace(EXP, attributes=None), "attributes is missing"),
        (replace(EXP, attributes=lambda node: {"base": 2}), r"attributes \['base'\], the opcode"),
        (replace(EXP, multi=True), '`multi` and the trait "multi" differ'),
        (replace(EXP, reference=lambda attributes, x: x[None]), "the reference gives float32"),
        (replace(EXP, reference=lambda attributes, x: 1 / 0), "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_missing_field_is_refused(bad: Op, problem: str) -> None:
    assert any(re.search(problem, text) for text in declaration_problems(bad)), (
        declaration_problems(bad)
    )


@pytest.mark.parametrize(
    ("op", "roundings", "problem"),
    [
        # exact, but exp has to round
        (EXP, lambda sample: 0.0, "0 roundings, but float16 cannot hold it"),
        (EXP, lambda sample: math.nan, "nan roundings"),
        (EXP, lambda sample: math.inf, "inf roundings"),
        (EXP, lambda sample: -1.0, "-1.0 roundings"),
        # chosen so that anything passes
        (EXP, lambda sample: 1e6, r"1e\+06 roundings of \d+ elements"),
        # a sum of n terms rounds more often the longer it is
        (SUM, lambda sample: 8.0, "not derived from the size: 8 roundings for 0 elements and for"),
    ],
)
def test_tolerance_that_is_not_derived_is_refused(op: Op, roundings: Any, problem: str) -> None:
    found = declaration_problems(with_domain(op, roundings=roundings))
    assert any("the tolerance is not derived" in text for text in found)
    assert any(re.search(problem, text) for text in found), found


def test_an_exact_op_may_claim_exactness() -> None:
    assert isinstance(CONCATENATE.domain, Domain)
    assert {CONCATENATE.domain.roundings(s) for s in CONCATENATE.domain.samples(
        np.random.default_rng(0), dtypes.float16)} == {0.0}  # fmt: skip
    assert declaration_problems(CONCATENATE) == []
