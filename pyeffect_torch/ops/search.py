"""Positions in sorted arrays, and what bisection answers: bins, membership, interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.core.op import Domain, Nondiff, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import (
    describe,
    is_number,
    mixed_dtypes,
    operands,
    require_float,
)
from pyeffect_torch.ops.parameters import SearchParams
from pyeffect_torch.ops.shape import broadcast_to, moveaxis, reshape

__all__ = ["digitize", "interp", "isin", "searchsorted"]

_f: Any = late.functions


def _infer(inputs: tuple[Array, ...], params: SearchParams) -> Any:
    del params
    rows, values = inputs
    if rows.dtype is not values.dtype:
        raise mixed_dtypes("searchsorted", rows, values)
    batch = len(rows.shape) - 1
    if batch < 0 or values.shape[:batch] != rows.shape[:batch]:
        raise ShapeError(
            f"searchsorted: values {describe(values)} do not fit the sorted rows {describe(rows)}",
            "pass a sorted vector, or rows and values that share their leading axes",
        )
    return values.shape, dtypes.int64


def _batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    rows, values = inputs
    if not batched[0]:
        shared = len(rows.shape) - 1
        found = bind(node.op, (rows, moveaxis(values, 0, shared)), node.params)
        return moveaxis(found, shared, 0)
    if not batched[1]:
        values = broadcast_to(values, (size, *values.shape))
    return bind(node.op, (rows, values), node.params)


def _reference(attributes: Any, rows: Any, values: Any) -> Any:
    rows, values = domains.wide(rows), domains.wide(values)
    side = "right" if attributes["right"] else "left"
    out = np.zeros(values.shape, np.int64)
    for at in np.ndindex(*rows.shape[:-1]):
        out[at] = np.searchsorted(rows[at], values[at], side)
    return out


_CASES: Final[tuple[tuple[Shape, Shape], ...]] = (
    ((5,), ()), ((5,), (7,)), ((5,), (2, 3)), ((0,), (3,)), ((1,), (4,)), ((9,), (0,)),
    ((33,), (33,)), ((2, 5), (2,)), ((2, 5), (2, 3)), ((2, 5), (2, 2, 2)), ((2, 0), (2, 3)),
    ((2, 3, 4), (2, 3)), ((2, 3, 4), (2, 3, 5)), ((0, 4), (0, 2)),
)  # fmt: skip


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample(
            (
                np.sort(domains.draw(rng, rows, dtype, -9.0, 9.0), -1),
                domains.draw(rng, values, dtype, -9.0, 9.0),
            ),
            SearchParams(right),
        )
        for rows, values in _CASES
        for right in (False, True)
    ]


SEARCHSORTED: Final = declare(
    "searchsorted",
    infer=_infer,
    derivative=Nondiff(),
    batch=_batch,
    reference=_reference,
    domain=Domain(domains.EVERY, _samples, lambda sample: 0.0),
    opcode="searchsorted",
    attributes=lambda node: node.params._asdict(),
)


def count_before(rows: Array, values: Array, right: bool) -> Array:
    """Return how many elements of its sorted row come before each value (right: or equal it)."""
    return bind(SEARCHSORTED, (rows, values), SearchParams(right))


def searchsorted(sorted_array: Any, values: Any, side: str = "left") -> Array:
    """Return where values would be inserted in a sorted vector to keep it sorted, as int64.

    Args:
        sorted_array: `[n]`, ascending as `sort` gives it (NaN last); of any dtype.
        values: of the same dtype and any shape, which the result has.
        side: "left": before elements equal to the value; "right": behind them.

    Raises:
        ShapeError: the array is no vector.
    """
    if side not in ("left", "right"):
        raise ArgumentError(f"searchsorted: unknown side {side!r}", "use 'left' or 'right'")
    rows, array = operands("searchsorted", sorted_array, values, convert_scalars=False)
    if len(rows.shape) != 1:
        raise ShapeError(
            f"searchsorted: the sorted array must be a vector, got {describe(rows)}",
            "vmap over its rows",
        )
    return count_before(rows, array, side == "right")


def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """Return the number of the bin of each element, as int64: i where bins[i-1] <= x < bins[i].

    Args:
        x: any shape; the result has it.
        bins: `[n]`, ascending or descending, of the dtype of `x`; numbers below and above all of
            them give 0 and n, and for descending bins the other way round.
        right: the bins include their right edges and not their left ones.
    """
    edges, array = operands("digitize", bins, x, convert_scalars=False)
    if len(edges.shape) != 1:
        raise ShapeError(
            f"digitize: the bins must be a vector, got {describe(edges)}", "pass its edges"
        )
    count = edges.shape[0]
    ascending = count_before(edges, array, not right)
    if count < 2:
        return ascending
    first = _f.slice(edges, (0,), (1,), (1,))
    last = _f.slice(edges, (count - 1,), (1,), (1,))
    descending = _f.subtract(count, count_before(_f.flip(edges), array, not right))
    is_ascending = reshape(_f.less_equal(first, last), ())
    return _f.where(is_ascending, ascending, descending)


def isin(x: Any, values: Any, *, invert: bool = False) -> Array:
    """Return whether each element of `x` is among `values`, as bool; NaN is in nothing.

    Args:
        x: any shape; the result has it.
        values: any shape, of the dtype of `x`.
        invert: whether it is not.
    """
    array, found = operands("isin", x, values, convert_scalars=False)
    if found.size == 0:
        return _f.full(array.shape, invert)
    row = _f.sort(found, None)
    nearest = _f.minimum(count_before(row, array, False), row.shape[0] - 1)
    compare = _f.not_equal if invert else _f.equal
    return compare(_f.take(row, nearest, 0, mode="clip"), array)


def interp(
    x: Any,
    xp: Any,
    fp: Any,
    left: Any = None,
    right: Any = None,
    period: float | None = None,
) -> Array:
    """Return the piecewise linear function through the points (xp, fp) at `x`.

    Args:
        x: floating, any shape; the result has it.
        xp: `[n]`, ascending (with a `period` in any order), n at least 1.
        fp: `[n]`, of the dtype of `x` as `xp` is.
        left, right: values below and above all of `xp`; by default those of the first and the
            last point.
        period: positive: the points repeat, and left and right are not used.

    It has derivatives in `x`, `xp` and `fp`; at a point in `x` that of the segment behind it.

    Raises:
        ShapeError: the points are no two vectors of one length, or there are none.
    """
    array, points = operands("interp", x, xp, convert_scalars=False)
    _, values = operands("interp", array, fp, convert_scalars=False)
    require_float("interp", array)
    if len(points.shape) != 1 or points.shape != values.shape or not points.size:
        raise ShapeError(
            f"interp: points {describe(points)} and values {describe(values)}",
            "pass two vectors of the same length, at least 1",
        )
    result = array.dtype
    wide = dtypes.accumulator(result)
    array, points, values = (_f.cast(part, wide) for part in (array, points, values))
    if period is not None:
        if not is_number(period) or not period > 0:
            raise ArgumentError(f"interp: the period is {period!r}", "pass a positive number")
        array, points = _f.remainder(array, period), _f.remainder(points, period)
        order = _f.argsort(points)
        points, values = _f.take(points, order), _f.take(values, order)
        points, values = _around(points, period), _around(values, 0.0)
        left = right = None
    return _f.cast(_interpolate(array, points, values, left, right), result)


def _around(row: Array, period: float) -> Array:
    """The row with its last element, a period earlier, before it, and its first one behind."""
    n = row.shape[0]
    before = _f.subtract(_f.slice(row, (n - 1,), (1,), (1,)), period)
    behind = _f.add(_f.slice(row, (0,), (1,), (1,)), period)
    return _f.concatenate([before, row, behind])


def _interpolate(x: Array, points: Array, values: Array, left: Any, right: Any) -> Array:
    n = points.shape[0]
    first, last = _f.take(points, 0), _f.take(points, n - 1)
    if n == 1:
        inside = _f.where(_f.isnan(x), x, _f.take(values, 0))
    else:
        upper = _f.clip(count_before(points, x, True), 1, n - 1)
        lower = _f.subtract(upper, 1)
        start, end = (_f.take(points, place, mode="clip") for place in (lower, upper))
        first_value, end_value = (_f.take(values, place, mode="clip") for place in (lower, upper))
        width, rise = _f.subtract(end, start), _f.subtract(end_value, first_value)
        flat = _f.equal(width, 0)
        slope = _f.divide(rise, _f.where(flat, _f.constant_like(width, 1), width))
        # From the point that x is at, if any: there the ramp is 0, also if the slope is infinite.
        is_end = _f.equal(x, end)
        base = _f.where(is_end, end, start)
        ramp = _f.multiply(_f.subtract(x, base), slope)
        undefined = _f.logical_and(_f.equal(x, base), _f.isnan(ramp))
        ramp = _f.where(undefined, _f.constant_like(ramp, 0), ramp)
        inside = _f.add(_f.where(is_end, end_value, first_value), ramp)
    below = _f.take(values, 0) if left is None else left
    above = _f.take(values, n - 1) if right is None else right
    return _f.where(_f.less(x, first), below, _f.where(_f.greater(x, last), above, inside))
