"""Every case of the operator contract, on each runtime and in each float dtype it may run in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from tests.conformance.adapter import DTYPES, OPERATIONS, decode

DATA = Path(__file__).parents[1] / "data" / "conformance"
FILES = ("core", "numerics", "extended", "edges")
LATER = {"quantizedLinear", "quantizedEmbedding", "packQuantized"}
"""Operations of quantized weights, which a later version brings."""

HALF_TOLERANCE = {"f32": 0.0, "f16": 2e-2, "bf16": 5e-2}

HIDDEN = frozenset(
    [
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "logical_and",
        "logical_or",
        "logical_not",
        "logical_xor",
        "sqrt",
        "rsqrt",
        "power",
        "integer_power",
        "negative",
        "abs",
        "tanh",
        "sigmoid",
        "erf",
        "argmax",
        "argmin",
        "reduce_min",
        "square",
        "reciprocal",
        "softmax",
        "log_softmax",
        "layer_norm",
        "rms_norm",
        "attention",
        "attention_grad",
        "cross_entropy",
        "cross_entropy_grad",
    ]
)
"""The numeric kernels that have compositions from simpler ones."""

RUNTIMES: dict[str, Callable[[], Any]] = {
    "cpu": et.cpu,
    "reference": et.reference,
    "composed": lambda: et.cpu(without=HIDDEN),
}


def cases(name: str) -> list[dict[str, Any]]:
    return json.loads((DATA / f"{name}.json").read_text())


CASES = {case["id"]: case for file in FILES for case in cases(file)}
PRESENT = {key: case for key, case in CASES.items() if case["op"] not in LATER}
QUANTIZED = [case["op"] for case in cases("quantized")]


DIFFERENT: dict[str, tuple[str, Any]] = {}
"""Cases where our rule differs on purpose: why, and our results."""

SEVERAL_ROUNDINGS = {"gelu", "geglu", "rope", "meanPool"}
"""Functions of several operations, each of which rounds once: the reference is not exact there."""


def compute(case: dict[str, Any], run: str) -> list[Any]:
    inputs = [None if t is None else et.array(decode(t, run)) for t in case["inputs"]]
    result = OPERATIONS[case["op"]](inputs, case["args"])
    outs = list(result) if isinstance(result, (list, tuple)) else [result]
    return [out.numpy() for out in et.compute(outs)]


def check(case: dict[str, Any], runtime: str, run: str) -> None:
    if case.get("reference") and runtime != "reference":
        return  # only an accumulation in float64 passes
    if case.get("nativeOnly") and runtime == "composed":
        return  # outside of what the compositions cover
    with et.use(RUNTIMES[runtime]()):
        got = compute(case, run)
    expected = [decode(t) for t in case["outputs"]]
    if case["id"] in DIFFERENT:
        expected = [DIFFERENT[case["id"]][1]]
    assert len(got) == len(expected)
    for value, want, tensor in zip(got, expected, case["outputs"], strict=True):
        name = DTYPES[run if tensor["dtype"] == "f32" else tensor["dtype"]]
        assert value.dtype.name == name
        assert value.shape == want.shape
        if tensor["dtype"] != "f32":
            assert np.array_equal(value, want)
            continue
        atol = max(case["atol"], HALF_TOLERANCE[run])
        rtol = max(case["rtol"], HALF_TOLERANCE[run])
        exact = decode({**tensor, "dtype": "f64"})
        wide = value.astype(np.float64)
        assert np.array_equal(np.isnan(wide), np.isnan(exact))
        with np.errstate(invalid="ignore"):
            near = np.abs(wide - exact) <= atol + rtol * np.abs(exact)
        assert np.all(near | (wide == exact) | np.isnan(exact)), np.max(np.abs(wide - exact))
        if runtime == "reference" and run == "f32" and case["op"] not in SEVERAL_ROUNDINGS:
            rounded = exact.astype(np.float32)
            step = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1)))
            with np.errstate(invalid="ignore"):
                close = np.abs(value.astype(np.float64) - exact) <= step
            assert np.all(close | ~np.isfinite(exact)), "not the exact value rounded once"


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("identity", PRESENT)
def test_case(identity: str, runtime: str) -> None:
    for run in PRESENT[identity]["runs"]:
        check(PRESENT[identity], runtime, run)


def test_what_is_left_for_later_is_quantized() -> None:
    assert set(QUANTIZED) == {"quantizedLinear", "quantizedEmbedding"}
    assert {CASES[key]["op"] for key in CASES.keys() - PRESENT.keys()} == {"packQuantized"}
    assert len(CASES) + len(QUANTIZED) == 265
    assert {case["op"] for case in PRESENT.values()} == OPERATIONS.keys()


def test_the_numbers_are_decoded() -> None:
    assert ml_dtypes.bfloat16 in et.dtypes.ALL
    tensor = {"dtype": "f32", "shape": [2], "store": "f2", "b64": "ADwAvA=="}
    assert decode(tensor, "bf16").tolist() == [1.0, -1.0]
