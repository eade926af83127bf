"""Creation functions of the array API standard; a `device` is a runtime."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import dtypes as _dtypes
from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array
from pyeffect_torch.runtime.base import Runtime
from pyeffect_torch.runtime.dlpack import from_dlpack as _from_dlpack
from pyeffect_torch.runtime.registry import current, use

_f: Any = late.functions


def _placed(array: Array, device: Runtime | None) -> Array:
    return array if device is None else array.to(device)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Runtime | None = None, copy: bool | None = None
) -> Array:
    """Return `obj` as an array; host data is always copied.

    Raises:
        ValueError: `copy=False` for what is not an array of the dtype and the device already.
    """
    if isinstance(obj, Array):
        made = _placed(obj if dtype is None else _f.cast(obj, dtype), device)
        if copy is False and made is not obj:
            raise ValueError("asarray: another dtype or device needs a copy")
        return made.copy() if copy else made
    if copy is False:
        raise ValueError(f"asarray: {type(obj).__name__} is always copied")
    with use(device or current()):
        return _f.array(obj, dtype)


def from_dlpack(x: Any, /, *, device: Runtime | None = None, copy: bool | None = None) -> Array:
    """See `et.from_dlpack`."""
    return _from_dlpack(x, device=device, copy=copy)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Runtime | None = None,
) -> Array:
    """See `et.arange`."""
    return _placed(_f.arange(start, stop, step, dtype), device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Runtime | None = None,
    endpoint: bool = True,
) -> Array:
    """See `et.linspace`."""
    made = _f.linspace(start, stop, num, endpoint=endpoint, dtype=dtype or _dtypes.float32)
    return _placed(made, device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Runtime | None = None,
) -> Array:
    """See `et.eye`."""
    return _placed(_f.eye(n_rows, n_cols, k, dtype or _dtypes.float32), device)


def zeros(shape: Any, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.zeros`."""
    return _placed(_f.zeros(shape, dtype or _dtypes.float32), device)


def ones(shape: Any, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.ones`."""
    return _placed(_f.ones(shape, dtype or _dtypes.float32), device)


def empty(shape: Any, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.empty`."""
    return zeros(shape, dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.full`."""
    return _placed(_f.full(shape, fill_value, dtype), device)


def zeros_like(x: Array, /, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.zeros_like`."""
    return _placed(_f.zeros_like(x, dtype), device)


def ones_like(x: Array, /, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.ones_like`."""
    return _placed(_f.ones_like(x, dtype), device)


def empty_like(x: Array, /, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.empty_like`."""
    return zeros_like(x, dtype=dtype, device=device)


def full_like(
    x: Array, /, fill_value: Any, *, dtype: Any = None, device: Runtime | None = None
) -> Array:
    """See `et.full_like`."""
    return _placed(_f.full_like(x, fill_value, dtype), device)


def tril(x: Array, /, *, k: int = 0) -> Array:
    """See `et.tril`."""
    return _f.tril(x, k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """See `et.triu`."""
    return _f.triu(x, k)


def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Runtime | None = None) -> Array:
    """See `et.cast`; an array is immutable, so `copy` says nothing."""
    del copy
    return _placed(_f.cast(x, dtype), device)
