"""Functions of the array API standard whose keywords or defaults differ from ours."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyeffect_torch.core import dtypes as _dtypes
from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.ops.base import normalize_axis

_f: Any = late.functions


def positive(x: Array, /) -> Array:
    """Return `x`."""
    return +x


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """See `et.clip`."""
    return _f.clip(x, min, max)


def reshape(x: Array, /, shape: Any, *, copy: bool | None = None) -> Array:
    """See `et.reshape`; an array is immutable, so `copy` says nothing."""
    del copy
    return _f.reshape(x, shape)


def expand_dims(x: Array, /, *, axis: int = 0) -> Array:
    """See `et.expand_dims`."""
    return _f.expand_dims(x, axis)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """See `et.take`."""
    return _f.take(x, indices, axis)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """See `et.take_along_axis`."""
    return _f.take_along_axis(x, indices, axis)


def all_(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """See `et.all`; what is not 0 counts as True."""
    return _f.all(_truth(x), axis, keepdims=keepdims)


def any_(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """See `et.any`; what is not 0 counts as True."""
    return _f.any(_truth(x), axis, keepdims=keepdims)


def _truth(x: Array) -> Array:
    return x if x.dtype is _dtypes.bool_ else _f.not_equal(x, 0)


def sum_(x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """See `et.sum`; integers are summed in 64 bits."""
    return _f.sum(_widened(x, dtype), axis, keepdims=keepdims)


def prod(x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """See `et.prod`; integers are multiplied in 64 bits."""
    return _f.prod(_widened(x, dtype), axis, keepdims=keepdims)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """See `et.cumsum`; integers are summed in 64 bits.

    Args:
        x: an array; of one axis if `axis` is None.
        axis: the axis to sum along.
        dtype: of the result.
        include_initial: begin with a 0, so that the axis has one element more.
    """
    return _cumulative("cumsum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """See `et.cumprod`; as `cumulative_sum`, beginning with a 1."""
    return _cumulative("cumprod", x, axis, dtype, 1 if include_initial else None)


def _cumulative(name: str, x: Array, axis: int | None, dtype: Any, first: int | None) -> Array:
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"{name}: an array of {x.ndim} axes needs an axis", "pass axis=")
        axis = 0
    wide = _widened(x, dtype)
    if first is not None:
        axis = normalize_axis(name, axis, x.ndim)
        shape = list(x.shape)
        shape[axis] = 1
        wide = _f.concatenate([_f.full(shape, first, wide.dtype), wide], axis)
    return getattr(_f, name)(wide, axis)


def _widened(x: Array, dtype: Any) -> Array:
    """Cast to `dtype`, by default 64 bits for integers."""
    if dtype is None and x.dtype in _dtypes.INTEGERS:
        dtype = _dtypes.uint64 if x.dtype in _dtypes.UNSIGNED else _dtypes.int64
    return x if dtype is None else _f.cast(x, dtype)


# --- order and sets


def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """See `et.sort`, which is always stable."""
    del stable
    return _f.sort(x, axis, descending=descending)


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """See `et.argsort`, which is always stable."""
    del stable
    return _f.argsort(x, axis, descending=descending)


def searchsorted(
    x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """See `et.searchsorted`; `sorter` are the positions that sort `x1`."""
    return _f.searchsorted(x1 if sorter is None else _f.take(x1, sorter, 0), x2, side)


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Array
    inverse_indices: Array


def unique_all(x: Array, /) -> UniqueAll:
    """See `et.unique`; `x` must have a value."""
    return UniqueAll(*_f.unique(x, return_index=True, return_inverse=True, return_counts=True))


def unique_counts(x: Array, /) -> UniqueCounts:
    """See `et.unique`; `x` must have a value."""
    return UniqueCounts(*_f.unique(x, return_counts=True))


def unique_inverse(x: Array, /) -> UniqueInverse:
    """See `et.unique`; `x` must have a value."""
    return UniqueInverse(*_f.unique(x, return_inverse=True))


def unique_values(x: Array, /) -> Array:
    """See `et.unique`; `x` must have a value."""
    return _f.unique(x)
