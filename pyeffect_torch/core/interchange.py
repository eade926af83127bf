"""What other libraries and the standard library ask of an `Array`.

NumPy: a NumPy array or scalar on the left of an operator leaves the operation to us, by our rules.
Any other ufunc is refused, as it would leave the graph in silence. Other functions of NumPy read
the value, as `np.asarray(x)` does, and give what they give for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.errors import ArgumentError

if TYPE_CHECKING:
    from pyeffect_torch.core.array import Array

_f = late.functions

_CPU: Final = (1, 0)
"""The type and the number of the device in DLPack."""
_OPERATORS: Final = (
    "add subtract multiply divide floor_divide remainder power matmul bitwise_and bitwise_or "
    "bitwise_xor left_shift right_shift equal not_equal less less_equal greater "
    "greater_equal"
)
"""The ufuncs that an operator with a NumPy operand on its left calls."""
_OPERATOR_SET: Final = frozenset(_OPERATORS.split())
_COUNTERPARTS: Final = {"absolute": "abs", "invert": "bitwise_not"}


def _values(value: Any) -> Any:
    """Replace arrays by their values in the arguments of a NumPy function."""
    if isinstance(value, Interchange):
        return value.__array__()
    if type(value) in (list, tuple):
        return type(value)(_values(item) for item in value)
    return value


class Interchange:
    """The protocols of NumPy, DLPack, pickle and copy."""

    __slots__ = ()

    # --- NumPy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The value as a NumPy array: read-only and shared unless `copy` or `dtype` needs a copy.

        Raises:
            ValueError: `copy=False` and another dtype.
        """
        value: np.ndarray[Any, Any] = _f.read(self)
        if dtype is not None and np.dtype(dtype) != value.dtype:
            if copy is False:
                raise ValueError(f"an array of {value.dtype} becomes {np.dtype(dtype)} by a copy")
            return value.astype(dtype)
        return value.copy() if copy else value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if method == "__call__" and not options:
            if name in _OPERATOR_SET:
                return getattr(_f, name)(*inputs)
            if name == "divmod":
                return _f.floor_divide(*inputs), _f.remainder(*inputs)
        ours = _COUNTERPARTS.get(name, name)
        cure = f"et.{ours}, or " if hasattr(_f, ours) and method == "__call__" else ""
        called = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
        raise ArgumentError(
            f"{called}: a ufunc of NumPy does not take arrays of pyeffect_torch",
            f"use {cure}x.numpy() for its value",
        )

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        del types
        return function(*_values(args), **{k: _values(v) for k, v in options.items()})

    # --- the array API standard, and DLPack

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The functions of the Python array API standard: `pyeffect_torch.array_api`.

        Raises:
            ArgumentError: another version of the standard than the one that is there.
        """
        return _f.array_namespace(api_version)

    def to_device(self, device: Any, /, *, stream: None = None) -> Array:
        """The same as `to`; there are no streams."""
        if stream is not None:
            raise ArgumentError("to_device: there are no streams", "leave `stream` out")
        return late.move(cast("Array", self), device)

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule that shares the memory; see `pyeffect_torch.runtime.dlpack`."""
        if stream is not None:
            raise BufferError("an array in main memory has no streams")
        if dl_device not in (None, _CPU):
            raise BufferError(f"the array is on device {_CPU}, not {dl_device}: read it first")
        return _f.to_dlpack(self, max_version, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    # --- the standard library

    def copy(self) -> Array:
        """Return the same value in memory of its own, which deleting or donating this one leaves.

        What is traced or differentiated has no memory yet and is returned as it is.
        """
        return _f.copy_value(self, strict=False)

    def __copy__(self) -> Array:
        return _f.copy_value(self, strict=True)

    def __deepcopy__(self, memo: Any) -> Array:
        del memo  # the copy module enters the result
        return _f.copy_value(self, strict=True)

    def __reduce__(self) -> Any:
        return _f.array, (np.array(_f.read(self)),)
