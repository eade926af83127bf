"""Fixtures of the reference tests of op families: types and bodies against references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, bind, outputs, placeholder
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Composite, Op, Sample


def samples(op: Op, dtype: DType, seed: int = 0) -> list[Sample]:
    """Draw the samples of an op for one dtype."""
    assert op.domain is not None
    return list(op.domain.samples(np.random.default_rng(seed), dtype))


def node_of(op: Op, sample: Sample) -> Array:
    """Bind an op on placeholders of the types of a sample."""
    inputs = tuple(
        placeholder(x.shape, dtypes.canonical(x.dtype) or x.dtype, f"operand {k}")
        for k, x in enumerate(sample.inputs)
    )
    return bind(op, inputs, sample.params)


def results_of(node: Array) -> list[Array]:
    """The single result of a node, or its projections."""
    return list(outputs(node)) if node.op.multi else [node]


def reference_of(op: Op, sample: Sample) -> list[Any]:
    """What the reference returns, as a list."""
    assert op.reference is not None
    with np.errstate(all="ignore"):
        got = op.reference(op.attributes(node_of(op, sample)), *sample.inputs)
    return [np.asarray(part) for part in (got if op.multi else (got,))]


def _check_types(op: Op) -> None:
    """Inferred types are those that the reference returns, for every sample of every dtype."""
    assert op.domain is not None
    for dtype in op.domain.dtypes:
        drawn = samples(op, dtype)
        assert len(drawn) >= 20
        for sample in drawn:
            assert op.domain.roundings(sample) >= 0
            for result, got in zip(
                results_of(node_of(op, sample)), reference_of(op, sample), strict=True
            ):
                assert got.shape == result.shape, (op.name, sample.params)
                is_float = dtypes.canonical(got.dtype) in dtypes.FLOATS
                assert is_float == (result.dtype in dtypes.FLOATS), (op.name, got.dtype)
                if not is_float:
                    assert got.dtype == result.dtype, (op.name, sample.params)


def _check_body(op: Op, dtype: DType = dtypes.float64) -> None:
    """The body of a composite computes what its reference does.

    Both are computed in float64, so they differ by the sample's number of its roundings.
    """
    rule = op.derivative
    assert isinstance(rule, Composite)
    assert op.domain is not None
    for sample in samples(op, dtype):
        inputs = [et.array(x) for x in sample.inputs]
        made = rule.body(sample.params, *inputs)
        bodies = list(made) if op.multi else [made]
        tolerance = dtypes.epsilon(dtype) * op.domain.roundings(sample)
        for body, want in zip(bodies, reference_of(op, sample), strict=True):
            scale = np.abs(want[np.isfinite(want)]).max(initial=1.0)
            np.testing.assert_allclose(
                body.numpy(), want, rtol=0, atol=tolerance * scale, err_msg=str(sample.params)
            )


@pytest.fixture
def on_reference() -> Iterator[None]:
    """Place and compute arrays on the reference runtime."""
    with et.use(et.reference()):
        yield


@pytest.fixture
def check_types() -> Callable[[Op], None]:
    """A check of inferred types against what the reference of an op returns."""
    return _check_types


@pytest.fixture
def check_body(on_reference: None) -> Callable[[Op], None]:
    """A check of a composite's body against its reference, in float64."""
    del on_reference
    return _check_body
