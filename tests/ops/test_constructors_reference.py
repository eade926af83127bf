"""Constructors against NumPy: values to the last bit, dtypes, host data, messages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.ops.iota import iota


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


def same(got: Any, want: Any) -> None:
    value = got.numpy()
    assert value.dtype == want.dtype
    assert value.shape == want.shape
    np.testing.assert_array_equal(value, want)


@pytest.mark.parametrize("dtype", et.dtypes.ALL)
def test_filled(dtype: Any) -> None:
    for shape in ((), (0,), (2, 3)):
        same(et.zeros(shape, dtype), np.zeros(shape, dtype))
        same(et.ones(shape, dtype), np.ones(shape, dtype))
        same(et.empty(shape, dtype), np.zeros(shape, dtype))
        same(et.full(shape, 1, dtype), np.ones(shape, dtype))
        pattern = np.ones(shape, dtype)
        same(et.zeros_like(pattern), np.zeros_like(pattern))
        same(et.ones_like(pattern), pattern)
        same(et.full_like(pattern, 0), np.zeros_like(pattern))


def test_filled_defaults() -> None:
    same(et.zeros(3), np.zeros(3, np.float32))
    same(et.full((2,), 7), np.full((2,), 7))
    same(et.full(2, 0.5), np.full(2, 0.5, np.float32))
    same(et.full((2, 2), True), np.full((2, 2), True))
    same(et.full((2, 3), np.arange(3)), np.full((2, 3), np.arange(3)))
    same(et.full((2, 3), et.arange(3), "float16"), np.full((2, 3), np.arange(3), np.float16))
    same(et.zeros_like(np.ones(2, np.int8), "bool"), np.zeros(2, np.bool_))


ARANGES = (
    (5,),
    (0,),
    (-3,),
    (2, 9),
    (9, 2),
    (9, 2, -2),
    (0, 10, 3),
    (1, 2, 0.1),
    (0.0, 1.0, 0.3),
    (5.5,),
    (1e6, 1e6 + 5, 0.7),
    (10, 0, -1.5),
)


@pytest.mark.parametrize("arguments", ARANGES)
@pytest.mark.parametrize("dtype", [None, np.float32, np.float64, np.int64, np.int16])
def test_arange_is_numpys(arguments: tuple[float, ...], dtype: Any) -> None:
    if dtype is np.int16 and abs(arguments[0]) > np.iinfo(dtype).max:
        arguments = (100.0, 105.0, 0.7)
    default = np.int64 if all(isinstance(v, int) for v in arguments) else np.float32
    same(et.arange(*arguments, dtype=dtype), np.arange(*arguments, dtype=dtype or default))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_arange_of_half_types_rounds_once(dtype: Any) -> None:
    got = et.arange(0, 3, 0.1, dtype=dtype).numpy().astype(np.float64)
    step = float(np.asarray(0.1, dtype))
    want = (np.arange(30) * step).astype(dtype).astype(np.float64)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace(dtype: Any, endpoint: bool) -> None:
    eps = float(np.finfo(dtype).eps)
    for low, high, num in ((0, 1, 7), (-3, 5, 50), (2, -2, 3), (1, 1, 4), (0, 9, 1), (0, 9, 0)):
        got = et.linspace(low, high, num, endpoint=endpoint, dtype=dtype)
        want = np.linspace(low, high, num, endpoint=endpoint)
        assert got.dtype == dtype and got.shape == want.shape
        tolerance = 3 * eps * max(abs(low), abs(high))
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=tolerance)
        if num and endpoint:
            assert got[0].item() == low and (num == 1 or got[-1].item() == high)
    same(et.linspace(-3, 3, 5, dtype="int64"), np.linspace(-3, 3, 5, dtype=np.int64))


@pytest.mark.parametrize("k", [-5, -1, 0, 1, 2, 5])
@pytest.mark.parametrize("shape", [(3, None), (2, 4), (4, 2), (0, 3)])
def test_masks(shape: tuple[int, int | None], k: int) -> None:
    same(et.eye(*shape, k), np.eye(*shape, k, dtype=np.float32))
    same(et.tri(*shape, k, "bool"), np.tri(*shape, k, dtype=np.bool_))


@pytest.mark.parametrize("k", [-2, 0, 1])
def test_diag(k: int) -> None:
    vector = np.arange(1, 4, dtype=np.int32)
    same(et.diag(vector, k), np.diag(vector, k))
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    same(et.diag(matrix, k), np.diag(matrix, k))
    slopes = et.grad(lambda v: et.sum(et.diag(v, k) * 2))(et.ones(3))
    assert slopes.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing: Any) -> None:
    vectors = [np.arange(3), np.arange(4.0), np.array(7)]
    for count in (1, 2, 3):
        got = et.meshgrid(*vectors[:count], indexing=indexing)
        for ours, want in zip(got, np.meshgrid(*vectors[:count], indexing=indexing), strict=True):
            same(ours, want)


@pytest.mark.parametrize("dtype", et.dtypes.ALL)
def test_numpy_keeps_its_dtype(dtype: Any) -> None:
    value = np.arange(6).astype(dtype).reshape(2, 3)
    same(et.array(value), value)
    same(et.array(value.T), value.T)
    same(et.array(value[1, 2]), value[1, 2])
    same(et.asarray(value[:, ::-1]), value[:, ::-1])


def test_python_values() -> None:
    same(et.array(1.5), np.float32(1.5))
    same(et.array(3), np.int64(3))
    same(et.array(True), np.bool_(True))
    same(et.array([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))
    same(et.array((1.0, 2)), np.array([1, 2], np.float32))
    same(et.array([]), np.zeros(0, np.float32))
    same(et.array([np.float64(1), 2.0]), np.array([1.0, 2.0]))
    same(et.array([[1, 2]], "uint8"), np.array([[1, 2]], np.uint8))
    same(et.array(2.9, "int32"), np.int32(2))
    same(et.array([math.nan, 1e9], "int8"), np.array([0, 127], np.int8))
    assert et.array(2.0).state == "concrete"


def test_foreign_byte_order_is_converted() -> None:
    value = np.arange(3, dtype=">i4")
    same(et.array(value), value.astype(np.int32))


def test_data_is_copied_at_the_call() -> None:
    value = np.zeros(3)
    array = et.array(value)
    value[:] = 1
    assert array.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="read-only"):
        array.numpy()[0] = 1


def test_lists_of_arrays_are_stacked() -> None:
    row = et.arange(3)
    same(et.array([row, [7, 8, 9]]), np.array([[0, 1, 2], [7, 8, 9]]))
    slopes = et.grad(lambda x: et.sum(et.array([x, x * 2])))(1.0)
    assert float(slopes) == 3.0


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (np.zeros(2, np.complex64), et.errors.DTypeError, "real and imaginary parts"),
        (np.array(["a"]), et.errors.DTypeError, "numbers or bools"),
        ([None], et.errors.DTypeError, "dtype object has no counterpart"),
        ([2**70], et.errors.DTypeError, "within 64 bits"),
        ([2**63], et.errors.DTypeError, "does not fit int64"),
        (np.zeros(2, "datetime64[s]"), et.errors.DTypeError, "convert it to integers"),
        ([[1, 2], [3]], et.errors.ShapeError, "unequal lengths"),
        (object(), et.errors.ArgumentError, "object is no number, list or array"),
        (2**63, et.errors.DTypeError, "does not fit int64"),
    ],
)
def test_what_array_refuses(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        et.array(value)


def test_messages() -> None:
    with pytest.raises(et.errors.ArgumentError, match="arange: the step is 0"):
        et.arange(0, 3, 0)
    with pytest.raises(et.errors.ShapeError, match="negative extent"):
        et.zeros((2, -1))
    with pytest.raises(et.errors.DTypeError, match="'complex64' is not a dtype"):
        et.zeros(2, "complex64")
    with pytest.raises(et.errors.ArgumentError, match="meshgrid: indexing is 'yx'"):
        et.meshgrid(et.arange(2), indexing="yx")
    with pytest.raises(et.errors.ShapeError, match="diag: takes a vector or a matrix"):
        et.diag(et.zeros((2, 2, 2)))
    with pytest.raises(et.errors.ArgumentError, match="constant: takes a number, got list"):
        et.constant([1])


def test_iota_counts_along_one_axis() -> None:
    same(iota((2, 3), "int32", 1), np.array([[0, 1, 2]] * 2, np.int32))
    same(iota((2, 3), "float16", -2), np.array([[0] * 3, [1] * 3], np.float16))
    with pytest.raises(et.errors.DTypeError, match="iota: has no meaning for bool"):
        iota((2,), "bool")
    with pytest.raises(et.errors.ShapeError, match="axis 1 is out of range"):
        iota((2,), axis=1)
