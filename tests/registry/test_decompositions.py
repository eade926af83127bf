"""Each decomposition gives what the kernel it stands for gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import bind
from pyeffect_torch.core.op import DECOMPOSITIONS, REGISTRY
from pyeffect_torch.testing.declarations import draw_samples

BY_OPCODE = {op.opcode: op for op in REGISTRY.values() if op.opcode is not None}
DTYPES = (dtypes.bool_, dtypes.uint8, dtypes.int32, dtypes.float32, dtypes.float64)
ROUNDINGS = 128
"""A power goes through a logarithm of size up to 2 log(4) * 3, whose rounding exp multiplies; the
series of erf adds 20 terms of size at most 1."""


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_it_is_the_kernel_to_rounding(name: str) -> None:
    op = BY_OPCODE[name]
    assert op.domain is not None
    whole, without = et.cpu(), et.cpu(without={name})
    checked = 0
    for dtype in DTYPES:
        if dtype not in op.domain.dtypes or (name == "power" and not dtypes.is_float(dtype)):
            continue
        for sample in draw_samples(op, dtype):
            results: list[Any] = []
            for runtime in (whole, without):
                with et.use(runtime):
                    inputs = tuple(et.array(x) for x in sample.inputs)
                    results.append(bind(op, inputs, sample.params).numpy())
            want, got = results
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            checked += 1
            if not dtypes.is_float(dtype) or want.dtype.kind in "biu":
                assert np.array_equal(got, want), (dtype, sample)
                continue
            bound = ROUNDINGS * np.finfo(dtype).eps * np.maximum(1, np.abs(want))
            assert np.all((np.abs(got - want) <= bound) | (np.isnan(got) & np.isnan(want)))
    assert checked > 20


def test_an_expanded_comparison_treats_nan_alike() -> None:
    x = np.array([np.nan, 1.0, np.nan, -0.0, np.inf], np.float32)
    y = np.array([np.nan, np.nan, 1.0, 0.0, np.inf], np.float32)
    names = ("equal", "not_equal", "less", "less_equal", "greater")
    with et.use(et.cpu(without=set(names))):
        for name in names:
            got = getattr(et, name)(et.array(x), et.array(y)).numpy()
            assert np.array_equal(got, getattr(np, name)(x, y)), name


def test_a_runtime_that_lacks_a_kernel_without_decomposition_says_so() -> None:
    with (
        et.use(et.cpu(without={"exp"})),
        pytest.raises(et.errors.UnsupportedError, match="no kernel for exp"),
    ):
        float(et.exp(et.array(1.0)))
