"""Native against reference: every op, every dtype of its domain, operands of any layout.

All samples of an op and dtype are one program with many roots. Hypothesis draws the layout of each
operand: it is uploaded otherwise and turned into the operand inside the program, so that kernels
see transposed, strided, reversed and broadcast views.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, bind, placeholder
from pyeffect_torch.core.op import REGISTRY, Sample
from pyeffect_torch.ops.parameters import SliceParams
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.testing.declarations import (
    draw_samples,
    expected,
    is_region,
    is_structural,
    results_of,
    sample_problem,
)

CASES = [
    pytest.param(op.name, dtype, id=f"{op.name}-{dtype.name}")
    for op in REGISTRY.values()
    if not is_structural(op) and not is_region(op) and op.domain is not None
    for dtype in op.domain.dtypes
]
LAYOUTS = ("dense", "transposed", "sliced", "reversed", "broadcast")
FULL_RANK = {"lu", "solve", "det", "logabsdet", "qr", "eigh", "svd", "pinv"}
"""Ops whose results are not unique, or not finite, if all rows of a matrix are the same."""
DRAWS = 7  # layouts are drawn once and used in turn by all operands of all samples


def lay_out(x: np.ndarray[Any, Any], layout: str) -> tuple[Any, Any, Any]:
    """Return the operand's value, what to upload, and how the program makes one from the other."""
    rank = x.ndim
    if layout == "transposed" and rank > 1:
        axes = tuple(reversed(range(rank)))
        return x, np.transpose(x, axes), lambda a: et.transpose(a, axes)
    if layout in ("sliced", "reversed") and rank:
        step = 2 if layout == "sliced" else -2
        # Every second element of something larger, whose other elements must not be seen.
        wide = np.full([2 * n + 1 for n in x.shape], 1, x.dtype)
        inner = tuple(slice(1, None, 2) for _ in x.shape)
        wide[inner] = x if step > 0 else x[(slice(None, None, -1),) * rank]
        starts = tuple(1 if step > 0 else max(2 * n - 1, 0) for n in x.shape)
        params = SliceParams(starts, x.shape, (step,) * rank)
        return x, wide, lambda a: bind(REGISTRY["slice"], (a,), params)
    if layout == "broadcast" and rank and x.size and x.shape[0] > 1:
        row = x[:1]
        return np.broadcast_to(row, x.shape).copy(), row, lambda a: et.broadcast_to(a, x.shape)
    return x, x, lambda a: a


def run_case(name: str, dtype: Any, seed: int, layouts: list[str], optimize: bool) -> list[str]:
    op = REGISTRY[name]
    runtime = et.cpu()
    formals: list[Array] = []
    uploads: list[Any] = []
    roots: list[Array] = []
    samples: list[Sample] = []
    counts: list[int] = []
    turn = 0
    for sample in draw_samples(op, dtype, seed):
        inputs: list[Array] = []
        values: list[Any] = []
        for k, x in enumerate(sample.inputs):
            layout = layouts[turn % len(layouts)]
            turn += 1
            if layout == "broadcast" and k and x.dtype.kind in "iu" and "may_fail" in op.traits:
                layout = "sliced"  # repeating one index may put others out of range
            if layout == "broadcast" and name in FULL_RANK and x.ndim == 2:
                layout = "transposed"
            value, upload, view = lay_out(x, layout)
            formal = placeholder(upload.shape, dtypes.canonical(x.dtype) or x.dtype, "operand")
            formals.append(formal)
            uploads.append(np.ascontiguousarray(upload).reshape(upload.shape))
            values.append(value)
            inputs.append(view(formal))
        results = results_of(op, inputs, sample.params)
        roots.extend(results)
        counts.append(len(results))
        samples.append(Sample(tuple(values), sample.params))
    program = encode(roots, formals, runtime.has)
    buffers = runtime.executable(program, optimize).run(
        [runtime.upload(x) for x in uploads], program
    )
    got = [b.numpy(r.shape, r.dtype) for b, r in zip(buffers, roots, strict=True)]
    problems: list[str] = []
    for sample, count in zip(samples, counts, strict=True):
        mine, got = got[:count], got[count:]
        problem = sample_problem(op, sample, mine, expected(op, sample))
        if problem:
            problems.append(problem)
    return problems


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_native_is_the_reference(name: str, dtype: Any) -> None:
    # Decorated anew for each case: Hypothesis nests the settings of one function in each other at
    # each call, and there are more cases than Python has recursions.
    @settings(max_examples=2, phases=(Phase.explicit, Phase.reuse, Phase.generate))
    @given(
        seed=st.integers(0, 2**16),
        layouts=st.lists(st.sampled_from(LAYOUTS), min_size=DRAWS, max_size=DRAWS),
        optimize=st.booleans(),
    )
    def agree(seed: int, layouts: list[str], optimize: bool) -> None:
        assert run_case(name, dtype, seed, layouts, optimize) == []

    agree()
