"""Host data as NumPy arrays of our dtypes: nested lists, and what converts to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.ops.base import saturating_cast

_DEFAULTS = {"f": dtypes.float32, "i": dtypes.int64, "b": dtypes.bool_}


def host_array(obj: Any, target: DType | None) -> np.ndarray[Any, Any]:
    """Return host data as a C-contiguous NumPy array of `target` (None: the dtype by default).

    It may share the memory of `obj`.

    Raises:
        DTypeError: a dtype that has no counterpart, or an int that does not fit.
        ShapeError: rows of unequal length.
    """
    value = _as_numpy(obj)
    if isinstance(obj, np.ma.MaskedArray) and np.ma.is_masked(obj):
        raise ArgumentError(
            "array: a masked array has elements without a value", "pass obj.filled(value)"
        )
    if target is None and isinstance(obj, (list, tuple)) and not holds(obj, np.generic):
        if value.dtype.kind == "u":
            raise DTypeError("array: an int does not fit int64", "pass dtype='uint64'")
        target = _DEFAULTS.get(value.dtype.kind)
    found = host_dtype("array", value)
    native = value.astype(found, copy=False)  # foreign byte order
    if target is not None and target is not found:
        if isinstance(obj, (list, tuple)) and not holds(obj, np.generic):
            _check_ints(native, target)
        native = saturating_cast(native, target)
    return np.ascontiguousarray(native).reshape(native.shape)


def _check_ints(value: np.ndarray[Any, Any], target: DType) -> None:
    """Raise `DTypeError` for a Python int that does not fit, as for one that stands alone."""
    if value.dtype.kind not in "iu" or target.kind not in "iu" or not value.size:
        return
    info = np.iinfo(target)
    for number in (int(value.min()), int(value.max())):
        if not info.min <= number <= info.max:
            raise DTypeError(
                f"array: the number {number} does not fit {target.name}", "use a wider dtype"
            )


def host_dtype(name: str, value: np.ndarray[Any, Any] | np.generic) -> DType:
    """Return the canonical dtype of NumPy data.

    Raises:
        DTypeError: it has none; the message says what to convert it to.
    """
    found = dtypes.canonical(value.dtype)
    if found is not None:
        return found
    kind = value.dtype.kind
    if kind == "c":
        cure = "pass its real and imaginary parts as two arrays"
    elif kind in "fV":
        cure = "convert it first, for example value.astype('float64')"
    elif kind in "mM":
        cure = "convert it to integers first, for example value.astype('int64')"
    elif kind == "O":
        cure = "pass numbers of one kind, each within 64 bits"
    else:
        cure = "pass numbers or bools"
    raise DTypeError(f"{name}: dtype {value.dtype} has no counterpart", cure)


def _as_numpy(obj: Any) -> np.ndarray[Any, Any]:
    if not isinstance(obj, (np.ndarray, np.generic, list, tuple)):
        if hasattr(obj, "__dlpack__"):
            return late.functions.borrow(obj)  # which knows bfloat16, as NumPy does not
        if hasattr(obj, "__array__"):
            return np.asarray(obj)
        if not hasattr(obj, "__buffer__"):
            raise ArgumentError(
                f"array: {type(obj).__name__} is no number, list or array",
                "pass a number, a nested list or a NumPy array",
            )
    try:
        return np.asarray(obj)
    except ValueError:
        raise ragged() from None


def ragged() -> ShapeError:
    """The error for nested lists that are no rectangle."""
    return ShapeError("array: the rows have unequal lengths", "pad them to one length first")


def holds(obj: Any, kind: type) -> bool:
    """Whether nested lists hold an element of `kind` (NumPy arrays count as NumPy scalars)."""
    if isinstance(obj, (list, tuple)):
        return any(holds(item, kind) for item in obj)
    return isinstance(obj, kind) or (kind is np.generic and isinstance(obj, np.ndarray))
