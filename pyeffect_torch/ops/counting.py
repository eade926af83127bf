"""What there is in an array, and how often: nonzero, unique, bincount, histogram.

How many elements there are is no shape: `size` says how many places the result has. Without it the
values are read, which only an array that has some allows.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import PLACEHOLDER_FLAG, Array, literal
from pyeffect_torch.core.errors import ArgumentError, ShapeError, TraceError
from pyeffect_torch.ops.base import describe, is_number, operand, operands, shape_of
from pyeffect_torch.ops.index_base import check_static, index_operand, mode_number
from pyeffect_torch.ops.options import require_sequence
from pyeffect_torch.ops.parameters import (
    KIND_ADD,
    MODE_ERROR,
    MODE_FILL,
    MODE_STRICT,
    ScatterParams,
)
from pyeffect_torch.ops.reducing import truth
from pyeffect_torch.ops.scatter import scatter_general
from pyeffect_torch.ops.search import count_before
from pyeffect_torch.ops.shape import broadcast_to, reshape

__all__ = ["bincount", "histogram", "nonzero", "unique"]

_f: Any = late.functions


def _known(name: str, option: str, size: int | None, count: Array) -> int:
    """The size that was given, or else the value of `count`."""
    if size is not None:
        return shape_of(name, (size,))[0]
    if count.flags & PLACEHOLDER_FLAG:
        raise TraceError(
            f"{name}: the shape of the result depends on values that a trace does not have",
            f"pass {option}=, the number of places",
        )
    return int(count)


def _added(size: int, index: Array, amounts: Array, mode: int) -> Array:
    """Zeros `[size]` with the amounts added at the indices."""
    zeros = broadcast_to(literal(0, amounts.dtype), (size,))
    return scatter_general(zeros, index, amounts, ScatterParams(0, 0, mode, KIND_ADD))


def nonzero(x: Any, *, size: int | None = None, fill_value: int = 0) -> tuple[Array, ...]:
    """Return the positions of the elements that are not 0, one int64 array `[size]` for each axis.

    Args:
        x: any dtype, at least one axis.
        size: how many positions, in row-major order; None: as many as there are, for an array
            that has a value.
        fill_value: stands in the places behind the last position.
    """
    array = truth("nonzero", x)
    if not array.shape:
        raise ShapeError(f"nonzero: {describe(array)} has no axes", "reshape it to one")
    counts = _f.cumsum(_f.cast(array, dtypes.int64))
    total = _f.count_nonzero(array)
    places = _known("nonzero", "size", size, total)
    number = _f.arange(places)
    flat = count_before(counts, _f.add(number, 1), False)
    missing = _f.greater_equal(number, total)
    positions: list[Array] = []
    stride = 1
    for extent in reversed(array.shape):
        along = _f.remainder(_f.floor_divide(flat, stride), max(extent, 1))
        positions.insert(0, _f.where(missing, fill_value, along))
        stride *= extent
    return tuple(positions)


def unique(
    x: Any,
    *,
    size: int | None = None,
    fill_value: Any = None,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    """Return the different elements of `x` in ascending order, `[size]`; NaN counts once.

    Args:
        x: any dtype and shape; it is flattened.
        size: how many of them; None: as many as there are, for an array that has a value.
        fill_value: stands in the places that are left; None: the smallest element.
        return_index: also return where each comes first in the flattened array, as int64.
        return_inverse: also return, in the shape of `x`, where each element of `x` is among the
            different ones, counted without regard to `size`.
        return_counts: also return how often each comes, 0 in places that are left.

    Returns:
        The elements, or a tuple of them and what else was asked for, in this order.
    """
    array = operand("unique", x)
    flat = reshape(array, (array.size,))
    values, order = _f.sort(flat), _f.argsort(flat)
    group = _groups(values)
    n = array.size
    count = _f.add(_f.take(group, n - 1), 1) if n else literal(0, dtypes.int64)
    places = _known("unique", "size", size, count)
    number = _f.arange(places)
    first, end = count_before(group, number, False), count_before(group, number, True)
    missing = _f.greater_equal(number, count)
    inside = _f.where(missing, 0, first)
    if n == 0:
        blank = literal(0 if fill_value is None else fill_value, array.dtype)
        found, index = broadcast_to(blank, (places,)), _f.zeros((places,), "int64")
    else:
        found = _f.take(values, inside, mode="clip")
        index = _f.take(order, inside, mode="clip")
    if fill_value is not None:
        found = _f.where(missing, fill_value, found)
    results = [found]
    if return_index:
        results.append(index)
    if return_inverse:
        results.append(reshape(_f.take(group, _f.argsort(order), mode="clip"), array.shape))
    if return_counts:
        results.append(_f.subtract(end, first))
    return results[0] if len(results) == 1 else tuple(results)


def _groups(values: Array) -> Array:
    """For each of the sorted elements how many different ones come before it."""
    n = values.shape[0]
    if n == 0:
        return _f.zeros((0,), "int64")
    later, earlier = (_f.slice(values, (start,), (n - 1,), (1,)) for start in (1, 0))
    is_new = _f.not_equal(later, earlier)
    if dtypes.is_float(values.dtype):
        is_new = _f.logical_and(is_new, _f.logical_not(_f.isnan(earlier)))
    first = broadcast_to(literal(False, dtypes.bool_), (1,))
    return _f.cumsum(_f.concatenate([first, is_new]))


def bincount(
    x: Any, weights: Any = None, *, length: int | None = None, mode: str = "error"
) -> Array:
    """Return how often each number from 0 to length-1 comes in a vector, as int64: `[length]`.

    Args:
        x: integers `[n]`.
        weights: `[n]`, added up in place of ones; the result has their dtype.
        length: None: one more than the largest number, for an array that has a value.
        mode: "error" (a number outside 0..length-1 is an `IndexOutOfBoundsError`), "clip" (to the
            nearest), or "fill" (it is not counted).
    """
    number = mode_number("bincount", mode)
    number = MODE_STRICT if number == MODE_ERROR else number
    index = index_operand("bincount", x)
    if len(index.shape) != 1:
        raise ShapeError(f"bincount: {describe(index)} is no vector", "reshape it to one axis")
    if length is None and index.size == 0:
        length = 0
    largest = literal(0, dtypes.int64) if length is not None else _f.cast(_f.max(index), "int64")
    length = _known("bincount", "length", length, _f.add(largest, 1))
    if number == MODE_STRICT:
        check_static("bincount", x, length, 0, number, "number")
    amounts = _amounts("bincount", index, weights)
    if length == 0 and number != MODE_STRICT:
        return _f.zeros((0,), amounts.dtype)
    return _added(length, index, amounts, number)


def _amounts(name: str, x: Array, weights: Any) -> Array:
    """What each element counts: 1, or its weight."""
    if weights is None:
        return broadcast_to(literal(1, dtypes.int64), x.shape)
    array = operand(name, weights)
    if array.shape != x.shape:
        raise ShapeError(
            f"{name}: weights {describe(array)} do not fit {describe(x)}",
            "give them the same shape",
        )
    return _f.cast(array, dtypes.int64) if array.dtype is dtypes.bool_ else array


def histogram(
    x: Any,
    bins: Any = 10,
    range: tuple[Any, Any] | None = None,
    weights: Any = None,
    *,
    density: bool = False,
) -> tuple[Array, Array]:
    """Return how many elements lie in each of n bins, and the n + 1 edges of the bins.

    A bin holds what is at least its left edge and less than its right one, the last bin its right
    edge too. What is in no bin (and NaN) is not counted.

    Args:
        x: any shape; integers and bools count as float32.
        bins: their number, equally wide, or their edges `[n + 1]`, ascending, of the dtype of `x`.
        range: from where to where equal bins go; None: from the smallest to the largest element.
        weights: of the shape of `x`, added up in place of ones; the result has their dtype.
        density: divide by the sum and by the widths of the bins, in the dtype of the edges.

    Returns:
        The counts, int64 without weights, and the edges.
    """
    array = operand("histogram", x)
    amounts = reshape(_amounts("histogram", array, weights), (array.size,))
    array = reshape(array, (array.size,))
    if not dtypes.is_float(array.dtype):
        array = _f.cast(array, dtypes.float32)
    if is_number(bins) or isinstance(bins, np.integer):
        edges = _equal_bins(array, int(bins), range)
    else:
        _, edges = operands("histogram", array, bins, convert_scalars=False)
        if len(edges.shape) != 1 or edges.size < 2:
            raise ShapeError(
                f"histogram: the edges {describe(edges)} bound no bin",
                "pass a vector of two or more",
            )
    n = edges.shape[0] - 1
    place = _f.subtract(count_before(edges, array, True), 1)
    is_last = _f.equal(array, _f.take(edges, n))
    counts = _added(n, _f.where(is_last, n - 1, place), amounts, MODE_FILL)
    if density:
        wide = _f.cast(counts, edges.dtype)
        counts = _f.divide(_f.divide(wide, _f.diff(edges)), _f.sum(wide))
    return counts, edges


def _equal_bins(x: Array, count: int, between: tuple[Any, Any] | None) -> Array:
    if count < 1:
        raise ArgumentError(f"histogram: {count} bins", "pass 1 or more")
    if between is None and not x.size:
        between = (0.0, 1.0)
    if between is None:
        low, high = _f.min(x), _f.max(x)
    else:
        ends = require_sequence("histogram", between, "range")
        if len(ends) != 2:
            raise ArgumentError(f"histogram: range has {len(ends)} ends", "pass (low, high)")
        low, high = (operand("histogram", end) for end in ends)
        if all(is_number(end) for end in ends):
            start, stop = ends
            if not (math.isfinite(start) and math.isfinite(stop) and start <= stop):
                raise ArgumentError(
                    f"histogram: no bins fit the range {start, stop}",
                    "pass finite ascending numbers",
                )
            low, high = literal(float(start), dtypes.float64), literal(float(stop), dtypes.float64)
    low, high = _f.cast(low, dtypes.float64), _f.cast(high, dtypes.float64)
    half = _f.where(_f.equal(low, high), literal(0.5, dtypes.float64), literal(0.0, dtypes.float64))
    low, high = _f.subtract(low, half), _f.add(high, half)
    number = _f.arange(count + 1, dtype="float64")
    step = _f.divide(_f.subtract(high, low), float(count))
    edges = _f.where(_f.equal(number, count), high, _f.add(_f.multiply(number, step), low))
    return _f.cast(edges, x.dtype)
