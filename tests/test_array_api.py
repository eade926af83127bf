"""The namespace of the array API standard: names, signatures, and what differs is documented."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

xp: Any = et.array_api
PAGE = Path(__file__).parents[1] / "docs" / "array-api.md"

# The names of version 2024.12, by the standard's own sections.
STANDARD = {
    "constants": "e inf nan newaxis pi",
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid "
    "ones ones_like tril triu zeros zeros_like",
    "dtypes": "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 "
    "complex128",
    "dtype functions": "astype can_cast finfo iinfo isdtype result_type",
    "elementwise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift "
    "bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh "
    "divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf "
    "isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or "
    "logical_xor maximum minimum multiply negative nextafter not_equal positive pow real "
    "reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc",
    "indexing": "take take_along_axis",
    "inspection": "__array_namespace_info__",
    "linear algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims "
    "repeat reshape roll squeeze stack tile unstack",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utility": "all any diff",
}
NAMES = [name for names in STANDARD.values() for name in names.split()]

# Keywords that the standard names, where a function has any beside its arrays.
KEYWORDS = {
    "arange": "dtype device", "asarray": "dtype device copy", "astype": "copy device",
    "clip": "min max", "concat": "axis", "count_nonzero": "axis keepdims",
    "cumulative_sum": "axis dtype include_initial", "expand_dims": "axis", "eye": "k dtype device",
    "flip": "axis", "full": "dtype device", "linspace": "dtype device endpoint",
    "max": "axis keepdims", "mean": "axis keepdims", "meshgrid": "indexing", "repeat": "axis",
    "reshape": "copy", "roll": "axis", "stack": "axis", "std": "axis correction keepdims",
    "sum": "axis dtype keepdims", "take": "axis", "take_along_axis": "axis", "tensordot": "axes",
    "tril": "k", "unstack": "axis", "vecdot": "axis", "zeros_like": "dtype device",
}  # fmt: skip


def documented() -> set[str]:
    (section,) = re.findall(
        r"^## Not there\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return {name for names in re.findall(r"`([^`]*)`", section) for name in names.split()}


def test_every_name_is_there_or_said_to_be_missing() -> None:
    missing = {name for name in NAMES if not hasattr(xp, name)}
    assert missing == set(xp.MISSING)
    assert missing <= documented()


def test_the_namespace_of_an_array_is_the_module() -> None:
    x = et.ones(2)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2023.12") is xp
    assert xp.__array_api_version__ == "2024.12"
    with pytest.raises(et.errors.ArgumentError, match=r"version 2030.12 .* not there"):
        x.__array_namespace__(api_version="2030.12")


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords_are_those_of_the_standard(name: str) -> None:
    parameters = inspect.signature(getattr(xp, name)).parameters
    assert set(KEYWORDS[name].split()) <= set(parameters)


def test_attributes_and_methods_of_arrays() -> None:
    for name in ("dtype", "device", "mT", "ndim", "shape", "size", "T", "to_device"):
        assert hasattr(et.Array, name) or name in et.Array.__slots__
    operators = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
    for name in operators.split():
        assert hasattr(et.Array, f"__{name}__") and hasattr(et.Array, f"__r{name}__")


def test_information_about_the_namespace() -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"] is False
    assert info.default_device() in info.devices()
    assert info.default_dtypes()["real floating"] == np.float32
    assert len(info.dtypes()) == 11
    assert set(info.dtypes(kind="signed integer")) == {"int8", "int16", "int32", "int64"}
    assert set(info.dtypes(kind=("bool", "real floating"))) == {"bool", "float32", "float64"}
    assert info.dtypes(kind="complex floating") == {}


def test_dtypes_are_those_of_arrays() -> None:
    assert xp.ones(2, dtype=xp.int8).dtype is xp.int8
    assert xp.zeros(2).dtype is xp.float32
    assert xp.bool == np.bool_


def test_wrapped_functions_against_numpy() -> None:
    value = np.arange(12, dtype=np.int32).reshape(3, 4)
    x = xp.asarray(value)
    for name, options in (
        ("sum", {}), ("prod", {"axis": 1}), ("sum", {"axis": 0, "keepdims": True}),
        ("sum", {"dtype": np.float32}), ("all", {"axis": 1}), ("any", {}),
        ("cumulative_sum", {"axis": 1}), ("cumulative_prod", {"axis": -1}),
        ("cumulative_sum", {"axis": 0, "include_initial": True}),
        ("cumulative_prod", {"axis": 1, "include_initial": True}),
        ("clip", {"min": 2, "max": 7}), ("expand_dims", {"axis": 1}), ("flip", {"axis": 1}),
        ("tril", {"k": 1}), ("triu", {"k": -1}), ("zeros_like", {}), ("ones_like", {}),
        ("permute_dims", {"axes": (1, 0)}), ("positive", {}), ("bitwise_invert", {}),
        ("count_nonzero", {"axis": 0}), ("reshape", {"shape": (4, 3)}),
    ):  # fmt: skip
        got, want = getattr(xp, name)(x, **options), getattr(np, name)(value, **options)
        np.testing.assert_array_equal(got.numpy(), want, err_msg=name)
        if name not in ("count_nonzero",):
            assert got.dtype == want.dtype, name
    index = np.array([[3], [0], [1]])
    np.testing.assert_array_equal(
        xp.take_along_axis(x, xp.asarray(index)).numpy(), np.take_along_axis(value, index, -1)
    )
    np.testing.assert_array_equal(xp.take(x, xp.asarray([2, 0]), axis=0).numpy(), value[[2, 0]])
    np.testing.assert_array_equal(xp.concat([x, x], axis=1).numpy(), np.concat([value, value], 1))
    np.testing.assert_array_equal(xp.pow(x, 2).numpy(), value**2)
    with pytest.raises(et.errors.ArgumentError, match="2 axes needs an axis"):
        xp.cumulative_sum(x)


def test_order_and_sets_against_numpy() -> None:
    value = np.array([3, 1, 2, 1, 3, 3], np.int32)
    x = xp.asarray(value)
    assert xp.sort(x, descending=True, stable=False).tolist() == [3, 3, 3, 2, 1, 1]
    order = xp.argsort(x, stable=True)
    assert order.tolist() == np.argsort(value, stable=True).tolist()
    wanted = xp.asarray(np.array([2, 3], np.int32))
    assert xp.searchsorted(x, wanted, sorter=order, side="right").tolist() == [3, 6]
    assert xp.searchsorted(xp.sort(x), wanted).tolist() == [2, 3]
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        got, want = getattr(xp, name)(x), getattr(np, name)(value)
        assert got._fields == want._fields
        assert [part.tolist() for part in got] == [part.tolist() for part in want]
    assert xp.unique_values(x).tolist() == [1, 2, 3]
    assert xp.diff(x, n=2).tolist() == np.diff(value, n=2).tolist()
    assert [part.tolist() for part in xp.nonzero(x - 3)] == [[1, 2, 3]]


def test_dtype_functions() -> None:
    assert xp.finfo(xp.float32).eps == np.finfo(np.float32).eps
    assert xp.iinfo(xp.int8).max == 127
    assert xp.isdtype(xp.int8, "integral") and xp.isdtype(xp.float64, ("bool", "real floating"))
    assert xp.can_cast(xp.int8, xp.int16) and not xp.can_cast(xp.float64, xp.float32)
    assert xp.result_type(xp.ones(2), xp.float32) == np.float32
    with pytest.raises(et.errors.DTypeError):
        xp.result_type(xp.float32, xp.float64)


def test_creation_takes_a_device() -> None:
    home = et.reference()
    made = (
        xp.arange(3, device=home), xp.asarray([1, 2], device=home), xp.empty(2, device=home),
        xp.eye(2, device=home), xp.full((2,), 3, device=home), xp.linspace(0, 1, 3, device=home),
        xp.ones(2, device=home), xp.zeros(2, device=home), xp.full_like(xp.ones(2), 4, device=home),
        xp.astype(xp.ones(2), xp.int8, device=home), xp.empty_like(xp.ones(2), device=home),
        xp.from_dlpack(np.ones(2), device=home), xp.asarray(xp.ones(2), device=home),
    )  # fmt: skip
    assert {array.placement for array in made} == {home}


def test_copies_of_asarray() -> None:
    x = xp.ones(2)
    assert xp.asarray(x) is x and xp.asarray(x, copy=False) is x
    assert xp.asarray(x, copy=True) is not x
    with pytest.raises(ValueError, match="needs a copy"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    with pytest.raises(ValueError, match="list is always copied"):
        xp.asarray([1.0], copy=False)


def test_generic_code_runs_under_transforms() -> None:
    def standardise(x: Any) -> Any:
        ns = x.__array_namespace__()
        return ns.sum(ns.square((x - ns.mean(x)) / ns.std(x)) * ns.asarray([1.0, 2.0, 3.0]))

    x = et.array([1.0, 2.0, 4.0])
    slopes = et.jit(et.grad(standardise))(x)
    assert slopes.shape == (3,)
    np.testing.assert_allclose(slopes.numpy().sum(), 0.0, atol=1e-5)
