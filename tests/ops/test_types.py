"""finfo, iinfo, result_type, can_cast, isdtype and the constants."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes


def f32(*shape: int) -> Any:
    return et.zeros(shape)


def f64(*shape: int) -> Any:
    return et.zeros(shape, "float64")


@pytest.mark.parametrize("dtype", sorted(dtypes.FLOATS, key=str), ids=str)
def test_finfo_is_the_limits_of_the_bits(dtype: Any) -> None:
    info, want = et.finfo(dtype), ml_dtypes.finfo(dtype)
    assert (info.bits, info.dtype) == (dtype.itemsize * 8, dtype)
    assert info.max == -info.min == float(want.max)
    assert info.smallest_normal == info.tiny == float(want.tiny)
    one = np.ones((), dtype)
    assert float(np.nextafter(one, one * 2)) - 1 == info.eps
    assert float(np.nextafter(one * 0, one)) == info.smallest_subnormal
    assert et.finfo(et.zeros((2,), dtype)) == info


@pytest.mark.parametrize("dtype", sorted(dtypes.INTEGERS, key=str), ids=str)
def test_iinfo_is_the_range(dtype: Any) -> None:
    info = et.iinfo(dtype)
    assert info.bits == dtype.itemsize * 8
    assert info.max - info.min == 2**info.bits - 1
    assert (info.min == 0) == (dtype in dtypes.UNSIGNED)


def test_result_type_is_that_of_the_sum() -> None:
    assert et.result_type(f32(2), f32()) is dtypes.float32
    assert et.result_type(f64(), f32(2), 2.5) is dtypes.float32  # the array with axes decides
    assert et.result_type("float16", 3, True) is dtypes.float16
    assert et.result_type(np.int8(3), 100) is dtypes.int8
    assert et.result_type(1, 2.0) is dtypes.float32
    assert et.result_type(1, True) is dtypes.int64
    assert et.result_type(True, False) is dtypes.bool_
    assert et.result_type("bf16") is dtypes.bfloat16


@pytest.mark.parametrize(
    "values",
    [
        (f32(2), f64(2)),
        (f32(), f64()),
        ("float32", "int64"),
        ("int8", 1000),
        ("int8", 0.5),
        ("bool", 1),
        ("int32", "uint32"),
        ("float32", "no dtype"),
    ],
)
def test_result_type_refuses_what_does_not_mix(values: Any) -> None:
    with pytest.raises(et.errors.DTypeError):
        et.result_type(*values)
    with pytest.raises(et.errors.ArgumentError):
        et.result_type()


def test_can_cast_where_no_value_is_lost() -> None:
    """Against the values themselves: the limits and 1 + eps survive, or they do not."""
    for a in dtypes.ALL:
        values: list[Any] = [True, False]
        if a in dtypes.INTEGERS:
            info = np.iinfo(a)
            values = [info.min, info.max, info.max - 1]
        elif a in dtypes.FLOATS:
            limits = ml_dtypes.finfo(a)
            values = [limits.max, 1 + float(limits.eps), limits.smallest_subnormal, np.inf]
        x = np.array(values, np.float64 if a in dtypes.FLOATS else a).astype(a)
        for b in dtypes.ALL:
            with np.errstate(all="ignore"):
                there = et.array(x).astype(b).numpy()
            kept = [int(p) == int(q) if a in dtypes.INTEGERS and b in dtypes.INTEGERS
                    else float(p) == float(q) and (a in dtypes.FLOATS or int(p) == int(float(q)))
                    for p, q in zip(x.tolist(), there.tolist(), strict=True)]  # fmt: skip
            if b is dtypes.bool_ and a is not b:
                kept = [False]
            assert et.can_cast(a, b) == all(kept), (a, b)


def test_isdtype_knows_the_kinds() -> None:
    assert et.isdtype("int8", "signed integer")
    assert not et.isdtype("int8", "unsigned integer")
    assert et.isdtype("uint8", ("bool", "integral"))
    assert et.isdtype("bf16", "real floating")
    assert et.isdtype(float, "numeric")
    assert not et.isdtype("bool", "numeric")
    assert et.isdtype("bool", "bool")
    assert et.isdtype("float32", np.float32)
    assert not et.isdtype("float32", "complex floating")
    with pytest.raises(et.errors.DTypeError):
        et.isdtype("float32", "floating")


def test_constants_are_those_of_the_language() -> None:
    assert (et.pi, et.e, et.inf) == (math.pi, math.e, math.inf)
    assert math.isnan(et.nan)
    assert et.newaxis is None
    assert et.zeros((2, 3))[:, et.newaxis].shape == (2, 1, 3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: et.finfo("int8"), "int8 is not floating"),
        (lambda: et.iinfo("float32"), "float32 is not an integer dtype"),
        (lambda: et.iinfo("bool"), "bool is not an integer dtype"),
        (lambda: et.finfo("float31"), "float31"),
    ],
)
def test_messages(call: Any, words: str) -> None:
    with pytest.raises(et.errors.DTypeError, match=words):
        call()
