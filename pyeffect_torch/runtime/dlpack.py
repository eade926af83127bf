"""DLPack: arrays lent to other libraries, and borrowed from them, without a copy where possible.

A capsule owns a C struct that describes memory and has a deleter. What we lend is a capsule that
NumPy makes of a view of the value; the view keeps the buffer alive and out of reuse. What we
borrow is read from the struct, whose deleter the core calls when nothing uses the memory any more.
The layout is that of the header `dlpack.h` of versions 0.8 and 1.x.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import LEAF_FLAG, PLACEHOLDER_FLAG, Array, from_buffer
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, DTypeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.runtime.base import Runtime
from pyeffect_torch.runtime.registry import current, require_runtime, runtime_of

Value = np.ndarray[Any, Any]

_VERSION: Final = (1, 0)
_CPU: Final = 1
_BFLOAT: Final = 4
_DTYPES: Final[dict[tuple[int, int], DType]] = {
    **{(0, 8 * dtype.itemsize): dtype for dtype in dtypes.SIGNED},
    **{(1, 8 * dtype.itemsize): dtype for dtype in dtypes.UNSIGNED},
    (2, 16): dtypes.float16,
    (2, 32): dtypes.float32,
    (2, 64): dtypes.float64,
    (_BFLOAT, 16): dtypes.bfloat16,
    (6, 8): dtypes.bool_,
}
"""By type code and bits of an element."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _ManagedVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# What a capsule is called; a capsule keeps the pointer to its name, so these live for ever.
_OLD: Final = b"dltensor"
_NEW: Final = b"dltensor_versioned"
_USED: Final = {_OLD: b"used_dltensor", _NEW: b"used_dltensor_versioned"}


def _capsule_function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the interpreter, of our own: those of `ctypes.pythonapi` are shared."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _capsule_function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _capsule_function(
    "PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)
_rename = _capsule_function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


class _Memory:
    """Memory at an address as NumPy reads it; the array keeps this object and so the owner."""

    def __init__(
        self,
        address: int,
        shape: Shape,
        dtype: DType,
        *,
        strides: tuple[int, ...] | None = None,
        read_only: bool,
        owner: Any = None,
    ) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, read_only),
            "shape": shape,
            "strides": strides,
            "typestr": dtype.str,
        }


# --- lending


def to_dlpack(x: Array, max_version: tuple[int, int] | None, copy: bool | None) -> Any:
    """Return a capsule with the value of `x`, computed if need be; the memory is shared.

    A consumer of version 1 is told that the memory is read-only. An older one cannot be told, and
    must not write: arrays are immutable.

    Args:
        x: an array.
        max_version: the newest version of DLPack that the consumer knows; None: before 1.0.
        copy: True for memory of its own.

    Raises:
        TraceError: `x` has no value. InvalidHandleError: it was deleted or donated.
    """
    value: Value = late.functions.read(x)
    if copy:
        value = value.copy()
    if x.dtype is dtypes.bfloat16:
        value = value.view(np.uint16)  # NumPy has no other number for it
    if max_version is not None and max_version[0] >= _VERSION[0]:
        name, kind = _NEW, _ManagedVersioned
        capsule = value.__dlpack__(max_version=_VERSION)
    else:
        name, kind = _OLD, _Managed
        capsule = _writable(value).__dlpack__()
    if x.dtype is dtypes.bfloat16:
        kind.from_address(_pointer(capsule, name)).tensor.code = _BFLOAT
    return capsule


def _writable(value: Value) -> Value:
    """A view without the read-only flag, which capsules before version 1 do not have."""
    if not value.size:
        return np.empty(value.shape, value.dtype)
    address = value.ctypes.data
    return np.asarray(_Memory(address, value.shape, value.dtype, read_only=False, owner=value))


# --- borrowing


@dataclass(frozen=True, slots=True)
class _Loan:
    """A capsule that nobody has taken over yet, and the memory that it describes."""

    capsule: Any
    name: bytes
    pointer: int
    deleter: int | None
    value: Value


def _describe(tensor: _Tensor) -> Value:
    """Return a read-only view of the memory of a tensor; it does not keep that alive.

    Raises:
        ArgumentError: it is not in main memory. DTypeError: its dtype has no counterpart.
    """
    if tensor.device_type != _CPU:
        raise ArgumentError(
            f"from_dlpack: the tensor is on device {(tensor.device_type, tensor.device_id)}",
            "move it to main memory first, for example with x.cpu()",
        )
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise DTypeError(
            f"from_dlpack: elements of DLPack type {tensor.code} with {tensor.bits} bits and "
            f"{tensor.lanes} lanes have no counterpart",
            "convert the tensor to numbers or bools first",
        )
    rank = tensor.ndim
    shape = tuple(tensor.shape[axis] for axis in range(rank))
    if 0 in shape:
        return np.empty(shape, dtype)
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[axis] * dtype.itemsize for axis in range(rank))
    address = tensor.data + tensor.byte_offset
    read_as = dtypes.uint16 if dtype is dtypes.bfloat16 else dtype
    memory = _Memory(address, shape, read_as, strides=strides, read_only=True)
    return np.asarray(memory).view(dtype)


def _ask(obj: Any) -> _Loan:
    """Ask an object for its capsule, of version 1 if it knows that."""
    if not hasattr(obj, "__dlpack__"):
        raise ArgumentError(
            f"from_dlpack: {type(obj).__name__} has no __dlpack__", "use et.array instead"
        )
    try:
        capsule = obj.__dlpack__(max_version=_VERSION)
    except TypeError:
        capsule = obj.__dlpack__()
    name = _NEW if _is_valid(capsule, _NEW) else _OLD
    pointer = _pointer(capsule, name)
    managed: Any = (_ManagedVersioned if name is _NEW else _Managed).from_address(pointer)
    if name is _NEW and managed.major != _VERSION[0]:
        raise ArgumentError(
            f"from_dlpack: version {managed.major}.{managed.minor} of DLPack is not known",
            "use et.array instead",
        )
    return _Loan(capsule, name, pointer, managed.deleter, _describe(managed.tensor))


def borrow(obj: Any) -> Value:
    """Return a copy of what an object offers by DLPack, as a NumPy array."""
    loan = _ask(obj)
    return loan.value.copy()


def from_dlpack(x: Any, /, *, device: Runtime | None = None, copy: bool | None = None) -> Array:
    """Return an array over the memory of `x`, which has `__dlpack__` (PyTorch, JAX, NumPy, ...).

    Where the memory is shared, `x` must not be changed any more: what was computed from it may or
    may not see the change. It is shared on the cpu runtime if it is contiguous and aligned to its
    elements; bools are copied, because other libraries may hold other bytes than 0 and 1 in them.

    Args:
        x: a tensor in main memory.
        device: the runtime of the result; by default the current one.
        copy: True: always copy. False: never.

    Raises:
        ArgumentError: `x` is not in main memory, or has no `__dlpack__`.
        DTypeError: its dtype has no counterpart.
        BufferError: `copy=False` and sharing is not possible; or `x` refuses to be lent.
    """
    if isinstance(x, Array):
        return x.copy() if copy else x
    runtime = current() if device is None else device
    require_runtime("from_dlpack", runtime)
    loan = _ask(x)
    value = loan.value
    fits = value.flags.c_contiguous and value.size and value.dtype is not dtypes.bool_
    if not copy and fits and value.ctypes.data % value.dtype.itemsize == 0:
        # Renamed first: from here on the capsule's own destructor leaves the memory alone.
        _rename(loan.capsule, _USED[loan.name])
        buffer = runtime.adopt(value, loan.deleter or 0, loan.pointer)
        if buffer is not None:
            return from_buffer(buffer, value.shape, value.dtype, runtime.mask)
        _rename(loan.capsule, loan.name)
    if copy is False:
        raise BufferError(
            f"from_dlpack: {runtime!r} cannot share this memory: it must be contiguous and aligned "
            "on the cpu runtime, and not bool"
        )
    return runtime.array(value)


def _copy_value(x: Array, *, strict: bool) -> Array:
    """Copy a value; what has none is a `TraceError` if `strict`, else returned as it is."""
    if not strict and x.flags & (PLACEHOLDER_FLAG | LEAF_FLAG):
        return x
    value = cast("Value", late.functions.read(x))
    return runtime_of(x).array(value)


late.functions.to_dlpack = to_dlpack
late.functions.borrow = borrow
late.functions.copy_value = _copy_value
