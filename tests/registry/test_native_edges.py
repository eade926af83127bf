"""Native against reference where samples do not reach: edges of dtypes, large arrays, bodies.

Edges are all pairs of the extreme and special values of a dtype. Large arrays are divided into
many tasks. Bodies are what stands in for a fused kernel that a runtime lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import bind, placeholder
from pyeffect_torch.core.op import REGISTRY, Composite, Op, Sample
from pyeffect_torch.runtime.base import Runtime
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.testing.declarations import (
    draw_samples,
    expected,
    results_of,
    sample_problem,
    symbolic,
)
from pyeffect_torch.testing.values import difference

ELEMENTWISE = [name for name, op in REGISTRY.items() if "elementwise" in op.traits]
REDUCING = [
    name
    for name, op in REGISTRY.items()
    if "reduction" in op.traits or name.startswith("cum") or name in ("softmax", "log_softmax")
]
SIGNED_ZEROS = (
    "negative", "abs", "sqrt", "floor", "ceil", "trunc", "round", "sin", "tan", "sinh", "tanh",
    "arcsin", "arctan", "arcsinh", "arctanh", "expm1", "log1p", "cbrt", "erf",
)  # fmt: skip
BODIES = [
    name
    for name, op in REGISTRY.items()
    if isinstance(op.derivative, Composite) and op.opcode is not None
]


def run(runtime: Runtime, op: Op, samples: Sequence[Sample], optimize: bool = True) -> list[Any]:
    """The results of each sample, all computed by one program."""
    formals: list[Any] = []
    roots: list[Any] = []
    counts: list[int] = []
    for sample in samples:
        inputs = symbolic(sample)
        formals.extend(inputs)
        results = results_of(op, inputs, sample.params)
        roots.extend(results)
        counts.append(len(results))
    program = encode(roots, formals, runtime.has)
    uploads = [runtime.upload(x) for sample in samples for x in sample.inputs]
    buffers = iter(runtime.executable(program, optimize).run(uploads, program))
    values = [b.numpy(r.shape, r.dtype) for b, r in zip(buffers, roots, strict=True)]
    found: list[Any] = []
    for count in counts:
        found.append(values[:count])
        values = values[count:]
    return found


# --- edges


def edges(dtype: Any) -> np.ndarray[Any, Any]:
    """The special and extreme values of a dtype, and a few between them."""
    if dtype is dtypes.bool_:
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = {info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 3, 7, info.max - 1, info.max}
        return np.array(sorted(v for v in near if info.min <= v <= info.max), dtype)
    info = ml_dtypes.finfo(dtype)
    sizes = [0.0, float(info.smallest_subnormal), float(info.tiny), 1e-3, 0.5, 1.0, 1.5, 2.5, 3.0,
             7.25, 88.0, float(info.max), np.inf]  # fmt: skip
    return np.array([*sizes, *(-size for size in sizes), np.nan], np.float64).astype(dtype)


def allowed(name: str, dtype: Any) -> float:
    """Roundings for an edge; results near the end of the range may be one step further."""
    domain = REGISTRY[name].domain
    assert domain is not None
    return domain.roundings(Sample(())) if dtype in dtypes.FLOATS else 0.0


def edge_samples(name: str, dtype: Any) -> list[Sample]:
    """All combinations of edge values, for each of the op's params."""
    op = REGISTRY[name]
    drawn = draw_samples(op, dtype)
    params = list(dict.fromkeys(sample.params for sample in drawn))
    count = len(drawn[0].inputs)
    kinds = [x.dtype for x in drawn[0].inputs]
    grids = np.meshgrid(*(edges(dtypes.canonical(kind)) for kind in kinds), indexing="ij")
    assert len(grids) == count
    return [Sample(tuple(np.ascontiguousarray(g) for g in grids), param) for param in params]


CASES = [
    pytest.param(name, dtype, id=f"{name}-{dtype.name}")
    for name in ELEMENTWISE
    if (domain := REGISTRY[name].domain) is not None
    for dtype in domain.dtypes
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_edges(name: str, dtype: Any) -> None:
    op = REGISTRY[name]
    samples = edge_samples(name, dtype)
    for optimize in (True, False):
        for sample, got in zip(samples, run(et.cpu(), op, samples, optimize), strict=True):
            want = expected(op, sample)[0]
            scale = np.abs(want.astype(np.float64)) if want.dtype in dtypes.FLOATS else None
            if scale is not None:
                scale = np.where(np.isfinite(scale), scale, 0.0)
            text = difference(got[0], want, allowed(name, dtype), scale)
            assert text == "", (sample.params, at_edge(sample, got[0], want))


def at_edge(sample: Sample, got: Any, want: Any) -> list[str]:
    """The operands of elements that differ."""
    with np.errstate(invalid="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        wrong = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    rows = zip(*(x[wrong] for x in sample.inputs), got[wrong], want[wrong], strict=True)
    return [f"{row[:-2]} -> {row[-2]}, expected {row[-1]}" for row in rows][:12]


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_signs_of_zero(dtype: Any) -> None:
    """Signed zeros compare equal, so they need a test of their own."""
    if dtype not in dtypes.FLOATS:
        return
    zeros = np.array([0.0, -0.0], dtype)
    for name in SIGNED_ZEROS:
        sample = Sample((zeros,), None)
        (got,) = run(et.cpu(), REGISTRY[name], [sample])[0]
        (want,) = expected(REGISTRY[name], sample)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want), err_msg=name)


# --- large arrays

LARGE = (3, 70_001)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_large_elementwise(name: str) -> None:
    op = REGISTRY[name]
    assert op.domain is not None
    rng = np.random.default_rng(1)
    dtype = op.domain.dtypes[0]
    template = draw_samples(op, dtype)[8]
    pools = [x.ravel() for x in template.inputs]
    inputs = tuple(rng.choice(pool, LARGE) for pool in pools)
    sample = Sample(inputs, template.params)
    (got,) = run(et.cpu(), op, [sample])
    assert sample_problem(op, sample, got, expected(op, sample)) == ""


@pytest.mark.parametrize("shape", [(200_003,), (3, 70_001), (70_001, 3), (130, 17, 131)])
@pytest.mark.parametrize("name", REDUCING)
def test_large_reductions(name: str, shape: tuple[int, ...]) -> None:
    op = REGISTRY[name]
    assert op.domain is not None
    rng = np.random.default_rng(2)
    # Products stay in range; every other op has ties only where several are equally far.
    x = rng.uniform(0.9995, 1.0005, shape) if "prod" in name else rng.permutation(
        np.linspace(-2, 2, int(np.prod(shape)))
    ).reshape(shape)  # fmt: skip
    kinds = list(dict.fromkeys(sample.params for sample in draw_samples(op, dtypes.float32)))
    rank = len(shape)
    samples = [
        Sample((x.astype(np.float32),), param)
        for param in kinds
        if max(axes_of(param), default=-1) < rank and axes_of(param)
    ]
    assert samples
    for sample, got in zip(samples, run(et.cpu(), op, samples), strict=True):
        want = expected(op, sample)
        if "sum" in name:
            # A tree of n terms of size at most 2: log2(n) roundings of partial sums near 2 sqrt(n).
            along = [shape[axis] for axis in axes_of(sample.params)]
            terms = float(np.prod(along))
            scale = 2 * terms if name == "cumsum" else np.sqrt(terms) * 4
            assert difference(got[0], want[0], 2 + np.log2(terms), scale) == "", sample.params
        else:
            assert sample_problem(op, sample, got, want) == "", sample.params


def axes_of(params: Any) -> tuple[int, ...]:
    if isinstance(params, int):
        return (params,)
    if hasattr(params, "axis"):
        return (params.axis,)
    return tuple(params)


# --- bodies


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("name", BODIES)
def test_a_body_stands_in_for_its_kernel(name: str, dtype: Any) -> None:
    op = REGISTRY[name]
    assert op.opcode is not None
    runtime = et.cpu(without=[op.opcode])
    samples = draw_samples(op, dtype, 3)
    for optimize in (True, False):
        for sample, got in zip(samples, run(runtime, op, samples, optimize), strict=True):
            assert sample_problem(op, sample, got, expected(op, sample)) == ""


def test_a_hidden_kernel_is_not_used() -> None:
    runtime = et.cpu(without=["softmax"])
    x = placeholder((2, 3), dtypes.float32, "x")
    program = encode([bind(REGISTRY["softmax"], (x,), 1)], [x], runtime.has)
    assert "softmax" not in program.operations
    assert "softmax" in encode([bind(REGISTRY["softmax"], (x,), 1)], [x], et.cpu().has).operations
