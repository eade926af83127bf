"""Each `reference` against the NumPy function of that name, or a formula written independently.

`peers.py` beside this file is that table; an op without an entry fails. Floats are compared in
float64 with the sample's own number of roundings, everything else exactly.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import bind
from pyeffect_torch.core.op import REGISTRY, Sample
from pyeffect_torch.testing.declarations import (
    draw_samples,
    is_region,
    is_structural,
    symbolic,
    unrounded,
)
from pyeffect_torch.testing.values import difference

_SPEC = importlib.util.spec_from_file_location("peers", Path(__file__).with_name("peers.py"))
assert _SPEC is not None and _SPEC.loader is not None
_PEERS = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_PEERS)
PEERS: dict[str, Any] = _PEERS.PEERS

OPS = [name for name, op in REGISTRY.items() if not is_structural(op) and not is_region(op)]


def test_every_op_has_a_peer() -> None:
    assert sorted(PEERS) == sorted(OPS)


def widened(x: Any) -> Any:
    return x.astype(np.float64) if x.dtype in dtypes.FLOATS else x


def attributes_of(name: str, sample: Sample) -> Any:
    op = REGISTRY[name]
    return op.attributes(bind(op, tuple(symbolic(sample)), sample.params))


@pytest.mark.parametrize("name", OPS)
def test_reference_is_its_peer(name: str) -> None:
    op = REGISTRY[name]
    assert op.domain is not None
    for dtype in op.domain.dtypes:
        if name in _PEERS.FLOAT64_ONLY and dtype is not dtypes.float64:
            continue
        for sample in draw_samples(op, dtype, 5):
            inputs = [widened(x) for x in sample.inputs]
            given = sample.inputs if name in _PEERS.OF_BITS else inputs
            with np.errstate(all="ignore"):
                made = PEERS[name](attributes_of(name, sample), *given)
            got = unrounded(op, sample)
            peers = made if isinstance(made, (tuple, list)) else (made,)
            for mine, theirs in zip(got, peers, strict=True):
                mine, theirs = widened(mine), widened(np.asarray(theirs))
                scale = max(
                    (float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in (*inputs, theirs)
                     if x.dtype == np.float64), default=0.0)  # fmt: skip
                # exact ops are exact; the others are two computations in float64
                roundings = 2 * op.domain.roundings(sample)
                problem = difference(mine, theirs.astype(mine.dtype), roundings, scale)
                assert problem == "", (dtype.name, sample.params, [x.shape for x in inputs])
