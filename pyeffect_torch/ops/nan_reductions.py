"""Reductions of the elements that are not NaN.

Integers and bools have no NaN: of them these are the plain reductions. NaN elements get gradient 0.
"""

from __future__ import annotations

import math
from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.ops.base import operand, require_float
from pyeffect_torch.ops.options import require_number
from pyeffect_torch.ops.reducing import Axes
from pyeffect_torch.ops.statistics import safe_root

__all__ = [
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]

_f: Any = late.functions


def _filled(x: Array, value: float) -> tuple[Array, Array]:
    """The array with NaN replaced, and where it was."""
    absent = _f.isnan(x)
    return _f.where(absent, _f.constant_like(x, value), x), absent


def _float_or_none(name: str, x: Any) -> tuple[Array, bool]:
    array = operand(name, x)
    return array, dtypes.is_float(array.dtype)


def nansum(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the sum of what is not NaN over `axis` (None: all axes); 0 of nothing."""
    array, is_float = _float_or_none("nansum", x)
    return _f.sum(_filled(array, 0)[0] if is_float else array, axis, keepdims=keepdims)


def nanprod(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the product of what is not NaN over `axis` (None: all axes); 1 of nothing."""
    array, is_float = _float_or_none("nanprod", x)
    return _f.prod(_filled(array, 1)[0] if is_float else array, axis, keepdims=keepdims)


def _mean(x: Array, absent: Array, axis: Axes, keepdims: bool) -> tuple[Array, Array]:
    """The mean of the elements that are there, and their number; `x` is 0 where one is not."""
    present = _f.logical_not(absent)
    count = _f.cast(_f.count_nonzero(present, axis, keepdims=keepdims), x.dtype)
    return _f.divide(_f.sum(x, axis, keepdims=keepdims), count), count


def nanmean(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the mean of what is not NaN over `axis` (None: all axes); NaN of nothing.

    Integers and bools give float32; half types are averaged in float32.
    """
    array, is_float = _float_or_none("nanmean", x)
    if not is_float:
        return _f.mean(array, axis, keepdims=keepdims)
    wide = _f.cast(array, dtypes.accumulator(array.dtype))
    return _f.cast(_mean(*_filled(wide, 0), axis, keepdims)[0], array.dtype)


def _variance(name: str, x: Any, axis: Axes, correction: float, keepdims: bool) -> Array:
    array = operand(name, x)
    require_float(name, array)
    filled, absent = _filled(_f.cast(array, dtypes.accumulator(array.dtype)), 0)
    mean, _ = _mean(filled, absent, axis, True)
    zero = _f.constant_like(filled, 0)
    centred = _f.where(absent, zero, _f.subtract(filled, mean))
    total = _f.sum(_f.square(centred), axis, keepdims=keepdims)
    count = _f.count_nonzero(_f.logical_not(absent), axis, keepdims=keepdims)
    free = _f.maximum(
        _f.subtract(_f.cast(count, filled.dtype), require_number(name, correction, "correction")),
        zero,
    )
    return _f.divide(total, free)


def nanvar(x: Any, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> Array:
    """Return the variance of what is not NaN over `axis`, NaN of nothing; else as `var`."""
    array = operand("nanvar", x)
    return _f.cast(_variance("nanvar", array, axis, correction, keepdims), array.dtype)


def nanstd(x: Any, axis: Axes = None, *, correction: float = 0, keepdims: bool = False) -> Array:
    """Return the standard deviation of what is not NaN over `axis`, NaN of nothing; as `std`."""
    array = operand("nanstd", x)
    return _f.cast(safe_root(_variance("nanstd", array, axis, correction, keepdims)), array.dtype)


def _extremum(x: Array, axis: Axes, keepdims: bool, sign: int) -> Array:
    filled, absent = _filled(x, -math.inf if sign > 0 else math.inf)
    choose = _f.max if sign > 0 else _f.min
    found = choose(filled, axis, keepdims=keepdims)
    nothing = _f.all(absent, axis, keepdims=keepdims)
    return _f.where(nothing, _f.constant_like(found, math.nan), found)


def nanmax(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the largest element that is not NaN over `axis` (None: all axes); NaN if none is.

    Raises:
        ShapeError: there are no elements.
    """
    array, is_float = _float_or_none("nanmax", x)
    if not is_float:
        return _f.max(array, axis, keepdims=keepdims)
    return _extremum(array, axis, keepdims, 1)


def nanmin(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the smallest element that is not NaN over `axis` (None: all axes); NaN if none is.

    Raises:
        ShapeError: there are no elements.
    """
    array, is_float = _float_or_none("nanmin", x)
    if not is_float:
        return _f.min(array, axis, keepdims=keepdims)
    return _extremum(array, axis, keepdims, -1)


def _position(x: Array, axis: int | None, keepdims: bool, sign: int) -> Array:
    """The first element that equals the extremum: NaN equals nothing."""
    attained = _f.equal(x, _extremum(x, axis, True, sign))
    found = _f.argmax(attained, axis, keepdims=keepdims)
    return _f.where(_f.any(attained, axis, keepdims=keepdims), found, -1)


def nanargmax(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return the first position of the largest element that is not NaN, as int64; -1 if none is.

    Without an axis the position counts in the flattened array.

    Raises:
        ShapeError: there are no elements.
    """
    array, is_float = _float_or_none("nanargmax", x)
    if not is_float:
        return _f.argmax(array, axis, keepdims=keepdims)
    return _position(array, axis, keepdims, 1)


def nanargmin(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return the first position of the smallest element that is not NaN, as int64; -1 if none is.

    Arguments as for `nanargmax`.
    """
    array, is_float = _float_or_none("nanargmin", x)
    if not is_float:
        return _f.argmin(array, axis, keepdims=keepdims)
    return _position(array, axis, keepdims, -1)
