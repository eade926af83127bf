"""`vmap` of every op against stacked calls, for each combination of batched operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.op import REGISTRY, Op, Sample
from pyeffect_torch.testing.declarations import (
    draw_samples,
    is_region,
    is_structural,
    results_of,
    sample_problem,
)

ROWS = 2
SUBSETS_MAX = 8
OPS = [name for name, op in REGISTRY.items() if not is_structural(op) and not is_region(op)]


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


def chosen_dtypes(name: str) -> list[Any]:
    """One floating, one integer and the bool dtype of a domain: batching moves, it computes not."""
    domain = REGISTRY[name].domain
    assert domain is not None
    found: list[Any] = []
    for group in (dtypes.FLOATS, dtypes.INTEGERS, {dtypes.bool_}):
        found.extend([dtype for dtype in domain.dtypes if dtype in group][-1:])
    return found


def combinations(count: int) -> list[tuple[bool, ...]]:
    """Every non-empty choice of batched operands; for many operands each alone, and all."""
    every = [flags for flags in itertools.product((False, True), repeat=count) if any(flags)]
    if len(every) <= SUBSETS_MAX:
        return every
    return [flags for flags in every if sum(flags) in (1, count)]


def rows_of(name: str, dtype: Any) -> list[list[Sample]]:
    """Samples whose operands have one type and one set of params, drawn several times."""
    drawn = [draw_samples(REGISTRY[name], dtype, seed) for seed in range(ROWS)]
    return [list(rows) for rows in zip(*drawn, strict=True)]


def is_uniform(rows: list[Sample]) -> bool:
    first = rows[0]
    types = [(x.shape, x.dtype) for x in first.inputs]
    return all(
        row.params == first.params and [(x.shape, x.dtype) for x in row.inputs] == types
        for row in rows
    )


def function_of(op: Op, params: object) -> Callable[..., list[Array]]:
    """The op as a function of its operands."""
    return lambda *inputs: results_of(op, inputs, params)


@pytest.mark.parametrize("name", OPS)
def test_vmap_is_stacked_calls(name: str) -> None:
    op = REGISTRY[name]
    wanted: list[Array] = []
    found: list[Array] = []
    cases: list[tuple[Sample, int]] = []
    for dtype in chosen_dtypes(name):
        for rows in rows_of(name, dtype):
            assert is_uniform(rows)
            params = rows[0].params
            for flags in combinations(len(rows[0].inputs)):
                given = [
                    np.stack([row.inputs[k] for row in rows]) if batched else rows[0].inputs[k]
                    for k, batched in enumerate(flags)
                ]
                axes = tuple(0 if batched else None for batched in flags)
                results = et.vmap(function_of(op, params), in_axes=axes)(
                    *(et.array(x) for x in given)
                )
                for r in range(ROWS):
                    row = [et.array(x[r] if b else x) for x, b in zip(given, flags, strict=True)]
                    single = results_of(op, row, params)
                    wanted.extend(single)
                    found.extend(result[r] for result in results)
                    one = Sample(tuple(x.numpy() for x in row), params)
                    cases.append((one, len(single)))
    et.compute([wanted, found])
    start = 0
    for sample, count in cases:
        stop = start + count
        mine = [array.numpy() for array in found[start:stop]]
        theirs = [array.numpy() for array in wanted[start:stop]]
        assert sample_problem(op, sample, mine, theirs) == ""
        start = stop


@pytest.mark.parametrize("name", OPS)
def test_an_empty_batch_is_empty(name: str) -> None:
    op = REGISTRY[name]
    dtype = chosen_dtypes(name)[0]
    for rows in rows_of(name, dtype):
        sample = rows[0]
        if not sample.inputs:
            continue
        empty = [np.zeros((0, *x.shape), x.dtype) for x in sample.inputs]
        results = et.vmap(function_of(op, sample.params))(*(et.array(x) for x in empty))
        single = results_of(op, [et.array(x) for x in sample.inputs], sample.params)
        for result, one in zip(results, single, strict=True):
            assert result.numpy().shape == (0, *one.shape)
            assert result.dtype == one.dtype
