"""Medians, quantiles and percentiles, of all elements or of those that are not NaN.

A quantile lies between two neighbours of the sorted elements; the method says which and where.
Derivatives go to those elements, and for the continuous methods to the quantile as well.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.ops.base import normalize_axes, operand
from pyeffect_torch.ops.order import along
from pyeffect_torch.ops.reducing import Axes, count_of, kept_shape, remaining_shape

__all__ = [
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "quantile",
]

_f: Any = late.functions

_SPREADS: Final[dict[str, tuple[float, float]]] = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
"""The continuous methods 4 to 9 of Hyndman and Fan (1996) by their alpha and beta, 7 apart."""
_OFFSETS: Final = {"inverted_cdf": 1.0, "averaged_inverted_cdf": 1.0, "closest_observation": 1.5}
"""Their methods 1 to 3: what is subtracted from `n q` for a position that counts from 0."""
_BETWEEN: Final = ("linear", "lower", "higher", "nearest", "midpoint")
METHODS: Final = (*_BETWEEN, *_SPREADS, *_OFFSETS)


def _number(value: float) -> Array:
    return literal(value, dtypes.float64)


def _positions(method: str, q: Array, n: Array) -> tuple[Array, Array]:
    """Return the place of the lower neighbour and the weight of the upper one, in float64."""
    last = _f.subtract(n, 1)
    if method in _OFFSETS:
        position = _f.subtract(_f.multiply(n, q), _OFFSETS[method])
    elif method in _SPREADS:
        alpha, beta = _SPREADS[method]
        shift = _f.add(_f.multiply(q, 1 - alpha - beta), alpha - 1)
        position = _f.clip(_f.add(_f.multiply(n, q), shift), 0, last)
    else:
        position = _f.multiply(last, q)
    low = _f.floor(position)
    rest = _f.subtract(position, low)
    if method == "linear" or method in _SPREADS:
        return low, rest
    if method == "nearest":
        return low, _f.subtract(_f.round(position), low)
    if method == "closest_observation":
        is_odd = _f.equal(_f.remainder(low, 2), 1)
        stays = _f.logical_and(_f.equal(rest, 0), is_odd)
        return low, _f.where(stays, _number(0.0), _number(1.0))
    beyond, exact = {
        "lower": (0.0, 0.0),
        "higher": (1.0, 0.0),
        "midpoint": (0.5, 0.0),
        "inverted_cdf": (1.0, 0.0),
        "averaged_inverted_cdf": (1.0, 0.5),
    }[method]
    return low, _f.where(_f.greater(rest, 0), _number(beyond), _number(exact))


def _blend(low: Array, high: Array, weight: Array, method: str) -> Array:
    """The point between two neighbours; halves do not overflow, and equal infinities stay."""
    if method != "linear" and method not in _SPREADS:  # the weight is 0, 1/2 or 1
        middle = _f.add(_f.multiply(low, 0.5), _f.multiply(high, 0.5))
        whole = _f.where(_f.equal(weight, 0), low, high)
        return _f.where(_f.equal(weight, 0.5), middle, whole)
    stuck = _f.logical_and(_f.isinf(low), _f.equal(low, high))
    rise = _f.where(stuck, _f.constant_like(low, 0), _f.subtract(high, low))
    near_low = _f.add(low, _f.multiply(rise, weight))
    near_high = _f.subtract(high, _f.multiply(rise, _f.subtract(1, weight)))
    return _f.where(_f.greater_equal(weight, 0.5), near_high, near_low)


def _fractions(name: str, q: Any, whole: float) -> Array:
    """The quantiles as float64 in 0..1."""
    if not isinstance(q, Array):
        given = np.asarray(q)
        if given.dtype.kind not in "biuf" or not bool(np.all((given >= 0) & (given <= whole))):
            raise ArgumentError(
                f"{name}: the quantiles {q!r} are not all in 0..{whole:g}",
                f"pass numbers from 0 to {whole:g}",
            )
        return _f.array(given.astype(np.float64) / whole)
    wide = _f.cast(q, dtypes.float64)
    return _f.clip(wide if whole == 1 else _f.divide(wide, whole), 0.0, 1.0)


def _quantile(
    name: str, x: Any, q: Array, axis: Axes, method: str, keepdims: bool, ignore_nan: bool
) -> Array:
    array = operand(name, x)
    if method not in METHODS:
        raise ArgumentError(
            f"{name}: unknown method {method!r}", f"use one of {', '.join(METHODS)}"
        )
    result = array.dtype if dtypes.is_float(array.dtype) else dtypes.float32
    axes = normalize_axes(name, axis, len(array.shape))
    kept = remaining_shape(array.shape, axes)
    shape = (*q.shape, *(kept_shape(array.shape, axes) if keepdims else kept))
    n = count_of(array.shape, axes)
    if n == 0:
        return _f.full(shape, float("nan"), result)
    order = [a for a in range(len(array.shape)) if a not in axes]
    rows = _f.sort(_f.reshape(_f.transpose(array, (*order, *axes)), (*kept, n)))
    found = _of_rows(rows, _f.reshape(q, (q.size,)), method, ignore_nan, result)
    return _f.reshape(_f.moveaxis(found, -1, 0), shape)


def _of_rows(rows: Array, q: Array, method: str, ignore_nan: bool, result: DType) -> Array:
    """The quantiles `[.., m]` of sorted rows `[.., n]`, at `q` `[m]`."""
    n = rows.shape[-1]
    is_float = dtypes.is_float(rows.dtype)
    count = _number(float(n))
    if ignore_nan and is_float:
        present = _f.logical_not(_f.isnan(rows))
        count = _f.cast(_f.count_nonzero(present, -1, keepdims=True), dtypes.float64)
    low, weight = _positions(method, q, count)
    wanted = (*rows.shape[:-1], q.shape[0])
    last = _f.maximum(_f.subtract(count, 1), _number(0.0))
    upper = _f.where(_f.greater(weight, 0), _f.add(low, 1), low)
    axis = len(rows.shape) - 1
    computed = dtypes.accumulator(result)

    def at(place: Array) -> Array:
        inside = _f.cast(_f.clip(place, 0, last), dtypes.int64)
        return _f.cast(along(rows, _f.broadcast_to(inside, wanted), axis), computed)

    value = _blend(at(low), at(upper), _f.cast(weight, computed), method)
    if is_float:
        undefined = _f.equal(count, 0) if ignore_nan else _f.isnan(_last_of(rows))
        value = _f.where(undefined, _f.constant_like(value, float("nan")), value)
    return _f.cast(value, result)


def _last_of(rows: Array) -> Array:
    """The last column, where a sort puts NaN."""
    rank = len(rows.shape)
    starts, sizes = [0] * rank, list(rows.shape)
    starts[-1], sizes[-1] = rows.shape[-1] - 1, 1
    return _f.slice(rows, tuple(starts), tuple(sizes), (1,) * rank)


def quantile(
    x: Any, q: Any, axis: Axes = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Return the quantiles `q` of `x` over `axis` (None: all axes); NaN where there is a NaN.

    Args:
        x: any dtype; integers and bools give float32.
        q: numbers in 0..1 of any shape, which comes first in the result's shape; of an array
            they are clipped to that.
        axis: None, an int or several.
        method: where between two neighbours: "linear", "lower", "higher", "nearest", "midpoint",
            or another method of `numpy.quantile`.
        keepdims: leave the axes with extent 1.

    Raises:
        ArgumentError: a number outside 0..1, or an unknown method.
    """
    return _quantile("quantile", x, _fractions("quantile", q, 1), axis, method, keepdims, False)


def percentile(
    x: Any, q: Any, axis: Axes = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Return the percentiles `q` (in 0..100) of `x` over `axis`; arguments as for `quantile`."""
    q = _fractions("percentile", q, 100)
    return _quantile("percentile", x, q, axis, method, keepdims, False)


def median(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the median of `x` over `axis` (None: all axes); NaN where there is a NaN.

    That is the middle element of the sorted ones, or the mean of the two in the middle. Integers
    and bools give float32.
    """
    return _quantile("median", x, _number(0.5), axis, "midpoint", keepdims, False)


def nanquantile(
    x: Any, q: Any, axis: Axes = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Return the quantiles of what is not NaN over `axis`, NaN of nothing; else as `quantile`."""
    q = _fractions("nanquantile", q, 1)
    return _quantile("nanquantile", x, q, axis, method, keepdims, True)


def nanpercentile(
    x: Any, q: Any, axis: Axes = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """Return the percentiles of what is not NaN over `axis`, NaN of nothing; else as `quantile`."""
    q = _fractions("nanpercentile", q, 100)
    return _quantile("nanpercentile", x, q, axis, method, keepdims, True)


def nanmedian(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the median of what is not NaN over `axis`, NaN of nothing; else as `median`."""
    return _quantile("nanmedian", x, _number(0.5), axis, "midpoint", keepdims, True)
