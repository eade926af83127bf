"""What a complete declaration of an op is, and its samples as nodes and results.

`declaration_problems` is the completeness check; `tests/registry/` applies it to every op and
draws the other generated tests from the same samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, bind, outputs, placeholder
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import EffectTorchError
from pyeffect_torch.core.op import (
    Affine,
    Composite,
    Domain,
    JvpRule,
    Linear,
    Multilinear,
    Nondiff,
    Op,
    Region,
    Sample,
    Smooth,
    Type,
)
from pyeffect_torch.ops.base import operand
from pyeffect_torch.runtime.native.opcodes import OPCODES
from pyeffect_torch.runtime.registry import reference, use
from pyeffect_torch.testing.values import difference

NumpyArray = np.ndarray[Any, Any]

SAMPLES_MIN: Final = 20
ROUNDINGS_PER_TERM_MAX: Final = 16.0
"""No op rounds more often for each element of its operands: a bound on what may be claimed."""
_RULES: Final = (
    Nondiff, Linear, Affine, Multilinear, Smooth, JvpRule, Composite, Region,
)  # fmt: skip


def is_structural(op: Op) -> bool:
    """Whether nodes of `op` are made with their type (constants, placeholders, projections).

    They compute nothing, so there is nothing to declare or to draw.
    """
    return "structural" in op.traits


def is_region(op: Op) -> bool:
    """Whether `op` holds bodies made of a user's function (checkpoint, custom rules).

    What it computes is that function, so it has no reference, opcode or samples of its own; the
    tests of transforms cover it.
    """
    return "region" in op.traits


def draw_samples(op: Op, dtype: DType, seed: int = 0) -> list[Sample]:
    """Return the samples of `op` for a dtype of its domain."""
    assert op.domain is not None, f"{op.name} has no domain"
    return list(op.domain.samples(np.random.default_rng(seed), dtype))


def results_of(op: Op, inputs: Sequence[Array], params: Any) -> list[Array]:
    """Apply `op`; return its result, or its projections."""
    node = bind(op, tuple(inputs), params)
    return list(outputs(node)) if op.multi else [node]


def symbolic(sample: Sample) -> list[Array]:
    """Return placeholders of the types of a sample's operands."""
    return [
        placeholder(x.shape, dtypes.canonical(x.dtype) or x.dtype, f"operand {index}")
        for index, x in enumerate(sample.inputs)
    ]


def types_of(op: Op, sample: Sample) -> list[Type]:
    """Return the inferred types of the results."""
    return [(r.shape, r.dtype) for r in results_of(op, symbolic(sample), sample.params)]


def unrounded(op: Op, sample: Sample) -> list[NumpyArray]:
    """Return what the reference of `op` computes, before rounding to the result dtypes.

    A region without a reference is inlined and run on the reference runtime.
    """
    if op.reference is None:
        rule = op.derivative
        assert isinstance(rule, Region) and rule.inline is not None
        with use(reference()):
            inputs = [operand(op.name, x) for x in sample.inputs]
            node = bind(op, tuple(inputs), sample.params)
            return [array.numpy() for array in rule.inline(node, inputs)]
    node = bind(op, tuple(symbolic(sample)), sample.params)
    with np.errstate(all="ignore"):
        got = op.reference(op.attributes(node), *sample.inputs)
    return [np.asarray(part) for part in (got if op.multi else (got,))]


def expected(op: Op, sample: Sample) -> list[NumpyArray]:
    """Return the reference results, rounded to the result dtypes as the runtime does."""
    with np.errstate(all="ignore"):
        return [
            value.astype(dtype, copy=False)
            for value, (_, dtype) in zip(unrounded(op, sample), types_of(op, sample), strict=True)
        ]


def sample_problem(
    op: Op, sample: Sample, got: Sequence[NumpyArray], want: Sequence[NumpyArray]
) -> str:
    """Return how results differ by more than the declared number of roundings, or "".

    The largest term of an elementwise result is that result; otherwise it is the largest of all
    operands and results.
    """
    assert op.domain is not None
    roundings = op.domain.roundings(sample)
    terms = [x for x in (*sample.inputs, *want) if x.dtype in dtypes.FLOATS]
    largest = 0.0
    for term in terms:
        wide = np.abs(term.astype(np.float64))
        largest = max(largest, float(wide[np.isfinite(wide)].max(initial=0.0)))
    for index, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        scale: Any = largest
        if "elementwise" in op.traits and theirs.dtype in dtypes.FLOATS:
            wide = np.abs(theirs.astype(np.float64))
            scale = np.where(np.isfinite(wide), wide, 0.0)
        problem = difference(mine, theirs, roundings, scale)
        if problem:
            shapes = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in sample.inputs)
            return f"{op.name}({shapes}; {sample.params}) result {index}: {problem}"
    return ""


# --- completeness


def declaration_problems(op: Op) -> list[str]:
    """Return a sentence for everything that is missing or wrong in a declaration.

    Structural ops are exempt, and regions from what concerns samples (`is_structural`,
    `is_region` say why).
    """
    if is_structural(op):
        return []
    problems = _missing_fields(op)
    if is_region(op):
        rule = op.derivative
        if not isinstance(rule, Region) or (rule.inline is None and rule.slim is None):
            problems.append("a region needs a Region rule that can be inlined or encoded")
        return problems
    if op.domain is None:
        return [*problems, "it has no domain"]
    if problems:
        return problems
    return _domain_problems(op, op.domain)


def _missing_fields(op: Op) -> list[str]:
    problems: list[str] = []
    rule = op.derivative
    if not op.name:
        problems.append("it has no name")
    if not callable(op.infer):
        problems.append("infer is missing")
    if not isinstance(rule, _RULES):
        problems.append("the derivative is missing")
    inlined = isinstance(rule, Region) and rule.inline is not None
    if op.reference is None and not inlined:
        problems.append("the reference is missing, and it cannot be inlined")
    if op.opcode is None and not inlined and not isinstance(rule, Composite):
        problems.append("the opcode is missing, and it has no body")
    if op.opcode is not None and op.opcode not in OPCODES:
        problems.append(f"the core has no opcode {op.opcode!r}")
    if not callable(op.attributes):
        problems.append("attributes is missing")
    if op.batch is None and not isinstance(rule, Composite) and not _is_nullary(op):
        problems.append("the batching rule is missing, and it has no body")
    if bool(op.unsafe) != ("may_fail" in op.traits):
        problems.append('`unsafe` and the trait "may_fail" differ')
    if op.multi != ("multi" in op.traits):
        problems.append('`multi` and the trait "multi" differ')
    return problems


def _is_nullary(op: Op) -> bool:
    return op.opcode is not None and op.opcode in OPCODES and OPCODES[op.opcode].max_operands == 0


def _domain_problems(op: Op, domain: Domain) -> list[str]:
    if not domain.dtypes:
        return ["the domain has no dtypes"]
    if len(set(domain.dtypes)) != len(domain.dtypes):
        return ["the domain names a dtype twice"]
    problems: list[str] = []
    for dtype in domain.dtypes:
        if dtypes.canonical(dtype) is not dtype:
            problems.append(f"{dtype!r} is no dtype of an array")
            continue
        samples = draw_samples(op, dtype)
        if len(samples) < SAMPLES_MIN:
            problems.append(
                f"{dtype.name}: {len(samples)} samples, at least {SAMPLES_MIN} are needed"
            )
            continue
        problems.extend(f"{dtype.name}: {text}" for text in _sample_problems(op, domain, samples))
    return problems


def _sample_problems(op: Op, domain: Domain, samples: list[Sample]) -> list[str]:
    problems: list[str] = []
    if not _is_nullary(op) and not any(0 in x.shape for s in samples for x in s.inputs):
        problems.append("no sample has an extent of 0")
    claims: list[tuple[int, float]] = []
    for number, sample in enumerate(samples):
        try:
            found = _one_sample(op, domain, sample, claims)
        except (EffectTorchError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            found = f"it fails with {type(error).__name__}: {error}"
        if found:
            problems.append(f"sample {number}: {found}")
    if not problems and "elementwise" not in op.traits and any(claim for _, claim in claims):
        sizes, roundings = {size for size, _ in claims}, {claim for _, claim in claims}
        if len(roundings) == 1 and len(sizes) > 1:
            problems.append(
                f"the tolerance is not derived from the size: {max(roundings):g} roundings for "
                f"{min(sizes)} elements and for {max(sizes)}"
            )
    return problems


def _one_sample(op: Op, domain: Domain, sample: Sample, claims: list[tuple[int, float]]) -> str:
    if op.opcode is not None:
        node = bind(op, tuple(symbolic(sample)), sample.params)
        named = {name for name, _ in OPCODES[op.opcode].attributes}
        if set(op.attributes(node)) != named:
            return f"attributes {sorted(op.attributes(node))}, the opcode has {sorted(named)}"
    results = unrounded(op, sample)
    types = types_of(op, sample)
    if len(results) != len(types):
        return f"the reference gives {len(results)} results, infer {len(types)}"
    for value, (shape, dtype) in zip(results, types, strict=True):
        is_float = dtypes.canonical(value.dtype) in dtypes.FLOATS
        if value.shape != shape or is_float != (dtype in dtypes.FLOATS):
            return (
                f"the reference gives {value.dtype.name}{list(value.shape)}, "
                f"infer {dtype.name}{list(shape)}"
            )
    return _tolerance_problem(domain, sample, results, types, claims)


def _tolerance_problem(
    domain: Domain,
    sample: Sample,
    results: list[NumpyArray],
    types: list[Type],
    claims: list[tuple[int, float]],
) -> str:
    """A claim of 0 roundings must be exact; any other is bounded by the number of terms."""
    claim = domain.roundings(sample)
    if not (math.isfinite(claim) and claim >= 0):
        return f"the tolerance is not derived: {claim} roundings"
    size = sum(x.size for x in sample.inputs)
    bound = ROUNDINGS_PER_TERM_MAX * (8 + size)
    if claim > bound:
        return f"the tolerance is not derived: {claim:g} roundings of {size} elements"
    floating = False
    for value, (_, dtype) in zip(results, types, strict=True):
        if dtype not in dtypes.FLOATS:
            continue
        floating = True
        with np.errstate(all="ignore"):
            exact = np.array_equal(value.astype(dtype).astype(value.dtype), value, equal_nan=True)
        if claim == 0 and not exact:
            return f"the tolerance is not derived: 0 roundings, but {dtype.name} cannot hold it"
    if floating:
        claims.append((size, claim))
    return ""
