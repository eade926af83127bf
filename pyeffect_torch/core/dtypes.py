"""The thirteen element types, as NumPy dtypes.

`Array.dtype` is a `numpy.dtype`; every dtype that reaches a node is one of the singletons below,
so hot code compares them with `is`.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

DType: TypeAlias = "np.dtype[Any]"
DTypeLike: TypeAlias = "str | type | DType | np.generic"

bool_: Final[DType] = np.dtype(np.bool_)
uint8: Final[DType] = np.dtype(np.uint8)
int8: Final[DType] = np.dtype(np.int8)
uint16: Final[DType] = np.dtype(np.uint16)
int16: Final[DType] = np.dtype(np.int16)
uint32: Final[DType] = np.dtype(np.uint32)
int32: Final[DType] = np.dtype(np.int32)
uint64: Final[DType] = np.dtype(np.uint64)
int64: Final[DType] = np.dtype(np.int64)
float16: Final[DType] = np.dtype(np.float16)
bfloat16: Final[DType] = np.dtype(ml_dtypes.bfloat16)
float32: Final[DType] = np.dtype(np.float32)
float64: Final[DType] = np.dtype(np.float64)

ALL: Final[tuple[DType, ...]] = (
    bool_,
    uint8,
    int8,
    uint16,
    int16,
    uint32,
    int32,
    uint64,
    int64,
    float16,
    bfloat16,
    float32,
    float64,
)
"""Every dtype; the position is its number on the wire."""

NUMBER: Final[dict[DType, int]] = {dtype: number for number, dtype in enumerate(ALL)}
FLOATS: Final[frozenset[DType]] = frozenset({float16, bfloat16, float32, float64})
HALVES: Final[frozenset[DType]] = frozenset({float16, bfloat16})
SIGNED: Final[frozenset[DType]] = frozenset({int8, int16, int32, int64})
UNSIGNED: Final[frozenset[DType]] = frozenset({uint8, uint16, uint32, uint64})
INTEGERS: Final[frozenset[DType]] = SIGNED | UNSIGNED

_SHORT: Final[dict[str, DType]] = {
    "f16": float16,
    "bf16": bfloat16,
    "f32": float32,
    "f64": float64,
    "bool_": bool_,
    "i8": int8,
    "i16": int16,
    "i32": int32,
    "i64": int64,
    "u8": uint8,
    "u16": uint16,
    "u32": uint32,
    "u64": uint64,
    "bfloat16": bfloat16,
}
_PYTHON: Final[dict[type, DType]] = {bool: bool_, int: int64, float: float32}
_KNOWN: dict[Any, DType] = {dtype: dtype for dtype in ALL}


def canonical(dtype: Any) -> DType | None:
    """Return the singleton for `"f32"`, `"float32"`, `np.float32`, `float`, ..., or None.

    Python's `float` is float32, `int` is int64, `bool` is bool. A dtype of foreign byte order is
    its native counterpart.
    """
    if dtype is None:
        return None  # NumPy would say float64
    if isinstance(dtype, str) and dtype in _SHORT:
        return _SHORT[dtype]
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    try:
        found = np.dtype(dtype)
    except TypeError:
        return None
    return _KNOWN.get(found) or _KNOWN.get(found.newbyteorder("="))


def is_float(dtype: DType) -> bool:
    """Whether values of `dtype` can be differentiated."""
    return dtype in FLOATS


def accumulator(dtype: DType) -> DType:
    """The dtype that sums of `dtype` are kept in: float32 for the half types."""
    return float32 if dtype in HALVES else dtype


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next number of a floating `dtype`."""
    return float(ml_dtypes.finfo(dtype).eps)
