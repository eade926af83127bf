"""The calls that the operator contract refuses, and with what kind of error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import errors
from tests.conformance.adapter import DTYPES, OPERATIONS, keywords

DATA = Path(__file__).parents[1] / "data" / "conformance" / "errors.json"
CASES = {case["id"]: case for case in json.loads(DATA.read_text())}
KINDS: dict[str, tuple[type[Exception], ...]] = {
    "shape": (errors.ShapeError, errors.ArgumentError),
    "axis": (errors.ShapeError,),
    "index": (errors.IndexOutOfBoundsError,),
    "dtype": (errors.DTypeError,),
}

# Without the adapter's casts: the strict layer is ours.
STRICT = {
    "add": et.add,
    "matmul": et.matmul,
    "less": et.less,
    "where": et.where,
    "exp": et.exp,
    "log": et.log,
    "sqrt": et.sqrt,
    "rsqrt": et.rsqrt,
    "tanh": et.tanh,
    "sigmoid": et.sigmoid,
    "erf": et.erf,
    "gelu": et.gelu,
    "softmax": et.softmax,
    "mean": et.mean,
    "pow": et.power,
    "layerNorm": et.nn.layer_norm,
    "logicalAnd": et.logical_and,
    "logicalNot": et.logical_not,
    "neg": et.negative,
    "abs": et.abs,
    "relu": et.relu,
    "sum": et.sum,
    "max": et.max,
    "argmax": et.argmax,
    "cumsum": et.cumsum,
}


def rotated_ones(length: int, width: int) -> Any:
    """What rotating halves of ones gives, `[length, width]`."""
    rate = np.float32(10000.0) ** (-np.arange(0, width, 2, dtype=np.float32) / width)
    angle = np.arange(length, dtype=np.float32)[:, None] * rate
    return np.concatenate([np.cos(angle) - np.sin(angle), np.cos(angle) + np.sin(angle)], 1)


ALLOWED: dict[str, tuple[str, str, Any]] = {
    "errors/matmul/rank1": ("a vector is a matrix of one row, as in NumPy", "float32", [6.0, 6.0]),
    "errors/gatherRows/batch": ("an index of extent 1 broadcasts", "float32", np.ones((2, 1, 3))),
    "errors/rope/rank": ("any number of leading axes", "float32", [rotated_ones(3, 4)] * 2),
    "errors/sdpa/rank": ("any number of leading axes", "float32", np.ones((1, 2, 3))),
    "errors/strict/mean/i32": ("mean of integers is float32, as in NumPy", "float32", 1.0),
    "errors/strict/pow/i32": ("powers of integers stay integers", "int32", [1, 1, 1]),
    "errors/strict/sum/bool": ("a sum counts", "int64", 3),
    "errors/strict/cumsum/bool": ("a cumulative sum counts", "int64", [1, 2, 3]),
    "errors/strict/max/bool": ("the maximum of bools is any", "bool", True),
    "errors/strict/argmax/bool": ("False comes before True", "int64", 0),
}
"""Calls that the contract refuses and ours defines (on ones): why, the dtype, our result."""


def array(tensor: dict[str, Any] | None) -> Any:
    if tensor is None:
        return None
    values = tensor.get("values", np.ones(tensor["shape"]))
    dtype = et.dtypes.canonical(DTYPES[tensor["dtype"]])
    return et.array(np.asarray(values).reshape(tensor["shape"]).astype(dtype))


def call(case: dict[str, Any]) -> Any:
    inputs = [array(tensor) for tensor in case["inputs"]]
    if case["op"] == "fromHost":
        et.array(np.zeros(case["args"]["length"], np.float32)).reshape(case["args"]["shape"])
    elif case["layer"] == "strict":
        return STRICT[case["op"]](*inputs, **keywords(case["args"]))
    else:
        result = OPERATIONS[case["op"]](inputs, case["args"])
        outs = list(result) if isinstance(result, (list, tuple)) else [result]
        return et.compute(outs)
    return None


@pytest.mark.parametrize("runtime", [et.cpu, et.reference], ids=["cpu", "reference"])
@pytest.mark.parametrize("identity", CASES)
def test_case(identity: str, runtime: Any) -> None:
    case = CASES[identity]
    with et.use(runtime()):
        if identity in ALLOWED:
            _, dtype, want = ALLOWED[identity]
            (got,) = [call(case)] if case["layer"] == "strict" else call(case)
            assert got.dtype.name == dtype
            rounding = 4 * np.finfo(np.float32).eps if dtype == "float32" else 0
            assert np.abs(got.numpy().astype(np.float64) - want).max() <= rounding
            return
        with pytest.raises(KINDS[case["error"]]) as caught:
            call(case)
    assert "\n  " in str(caught.value), "says how to mend it"


def test_there_are_sixty_five() -> None:
    assert len(CASES) == 65
    assert ALLOWED.keys() < CASES.keys()
