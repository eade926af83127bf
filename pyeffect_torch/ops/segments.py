"""Scatter functions: which layout a call means; reductions over segments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.ops.arithmetic import divide
from pyeffect_torch.ops.base import describe, normalize_axis, operand, operands, shape_of
from pyeffect_torch.ops.index_base import check_static, index_operand, mode_number
from pyeffect_torch.ops.indexing import check_along, take_shape
from pyeffect_torch.ops.parameters import (
    KIND_ADD,
    KIND_MAX,
    KIND_MIN,
    KIND_MULTIPLY,
    KIND_SET,
    MODE_ERROR,
    MODE_STRICT,
    ScatterAlongParams,
    ScatterParams,
)
from pyeffect_torch.ops.scatter import scatter_along_general, scatter_general
from pyeffect_torch.ops.selection import cast
from pyeffect_torch.ops.shape import broadcast_to, reshape

__all__ = [
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_multiply",
    "scatter_set",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
]


def _scatter(name: str, kind: int, x: Any, index: Any, updates: Any, axis: int, mode: str) -> Array:
    x = operand(name, x)
    number = mode_number(name, mode)
    axis = normalize_axis(name, axis, len(x.shape))
    if number == MODE_ERROR:
        check_static(name, index, x.shape[axis], axis)
    index = index_operand(name, index)
    x, updates = operands(name, x, updates, convert_scalars=False)
    if index.shape == updates.shape and len(index.shape) == len(x.shape) > 1:
        along = ScatterAlongParams(axis, number, kind)
        check_along(name, x, index, axis, number)
        return scatter_along_general(x, index, updates, along)
    shape = take_shape(x, index, axis, 0)
    params = ScatterParams(axis, 0, number, kind)
    return scatter_general(x, index, broadcast_to(updates, shape), params)


_UPDATES = """

    Args:
        index: integers of any dtype. Either of any shape, with updates that broadcast to the
            shape of `take(x, index, axis)`; or of the rank of `x` (2 or more) and the shape of
            the updates, then each update goes to its own row's position on `axis`.
        mode: "error" (out of range is an `IndexOutOfBoundsError`, negative counts from the end),
            "clip", or "fill" (an update out of range is dropped).
    """


def scatter_add(x: Any, index: Any, updates: Any, axis: int = 0, *, mode: str = "error") -> Array:
    """Return `x` with updates added at the positions `index` of an axis; duplicates add up."""
    return _scatter("scatter_add", KIND_ADD, x, index, updates, axis, mode)


def scatter_set(x: Any, index: Any, updates: Any, axis: int = 0, *, mode: str = "error") -> Array:
    """Return `x` with updates stored at the positions `index`; of duplicates the last stays."""
    return _scatter("scatter_set", KIND_SET, x, index, updates, axis, mode)


def scatter_max(x: Any, index: Any, updates: Any, axis: int = 0, *, mode: str = "error") -> Array:
    """Return `x` with the maximum of itself and the updates at the positions `index`."""
    return _scatter("scatter_max", KIND_MAX, x, index, updates, axis, mode)


def scatter_min(x: Any, index: Any, updates: Any, axis: int = 0, *, mode: str = "error") -> Array:
    """Return `x` with the minimum of itself and the updates at the positions `index`."""
    return _scatter("scatter_min", KIND_MIN, x, index, updates, axis, mode)


def scatter_multiply(
    x: Any, index: Any, updates: Any, axis: int = 0, *, mode: str = "error"
) -> Array:
    """Return `x` multiplied by the updates at the positions `index`; duplicates all multiply."""
    return _scatter("scatter_multiply", KIND_MULTIPLY, x, index, updates, axis, mode)


for _function in (scatter_add, scatter_set, scatter_max, scatter_min, scatter_multiply):
    _function.__doc__ = (_function.__doc__ or "") + _UPDATES


_SEGMENTS = """

    Args:
        data: `[rows, ..]`. segment_ids: integers `[rows]` in 0..num_segments-1, in any order.
        mode: "error" (another id is an `IndexOutOfBoundsError`), "clip" (to the nearest segment),
            or "fill" (rows of other segments are dropped).
    """


def _segments(
    name: str, kind: int, data: Array, segment_ids: Any, count: int, mode: str, start: Any
) -> Array:
    """Combine the rows of each segment, beginning with `start`."""
    number = mode_number(name, mode)
    number = MODE_STRICT if number == MODE_ERROR else number
    (count,) = shape_of(name, (count,))
    if number == MODE_STRICT:
        check_static(name, segment_ids, count, 0, number, "segment id")
    ids = index_operand(name, segment_ids)
    if len(ids.shape) != 1 or data.shape[:1] != ids.shape:
        raise ShapeError(
            f"{name}: the ids {describe(ids)} do not number the rows of {describe(data)}",
            "give one id per row",
        )
    starts = broadcast_to(literal(start, data.dtype), (count, *data.shape[1:]))
    return scatter_general(starts, ids, data, ScatterParams(0, 0, number, kind))


def segment_sum(data: Any, segment_ids: Any, num_segments: int, *, mode: str = "error") -> Array:
    """Return the sums of the rows of `data` that share a segment: `[num_segments, ..]`.

    A segment without rows gives 0; bool is counted in int64."""
    data = _summand("segment_sum", data)
    return _segments("segment_sum", KIND_ADD, data, segment_ids, num_segments, mode, 0)


def segment_prod(data: Any, segment_ids: Any, num_segments: int, *, mode: str = "error") -> Array:
    """Return the products of the rows of `data` that share a segment: `[num_segments, ..]`.

    A segment without rows gives 1; the gradient is right where factors are 0."""
    data = _summand("segment_prod", data)
    return _segments("segment_prod", KIND_MULTIPLY, data, segment_ids, num_segments, mode, 1)


def segment_max(data: Any, segment_ids: Any, num_segments: int, *, mode: str = "error") -> Array:
    """Return the largest of the rows of `data` that share a segment: `[num_segments, ..]`.

    A segment without rows gives the lowest value of the dtype: -inf, or False. NaN propagates, and
    ties share the gradient evenly."""
    data = operand("segment_max", data)
    start = _bounds(data.dtype)[0]
    return _segments("segment_max", KIND_MAX, data, segment_ids, num_segments, mode, start)


def segment_min(data: Any, segment_ids: Any, num_segments: int, *, mode: str = "error") -> Array:
    """Return the smallest of the rows of `data` that share a segment: `[num_segments, ..]`.

    A segment without rows gives the highest value of the dtype: inf, or True. NaN propagates, and
    ties share the gradient evenly."""
    data = operand("segment_min", data)
    start = _bounds(data.dtype)[1]
    return _segments("segment_min", KIND_MIN, data, segment_ids, num_segments, mode, start)


def segment_mean(data: Any, segment_ids: Any, num_segments: int, *, mode: str = "error") -> Array:
    """Return the means of the rows of `data` that share a segment: `[num_segments, ..]`.

    A segment without rows gives NaN. Integers and bools give float32; half types are averaged in
    float32."""
    data = operand("segment_mean", data)
    result = data.dtype if dtypes.is_float(data.dtype) else dtypes.float32
    wide = cast(data, dtypes.accumulator(result))
    given = ("segment_mean", KIND_ADD)
    total = _segments(*given, wide, segment_ids, num_segments, mode, 0)
    ones = broadcast_to(literal(1, wide.dtype), data.shape[:1])
    count = _segments(*given, ones, segment_ids, num_segments, mode, 0)
    column = reshape(count, (*count.shape, *(1,) * (len(data.shape) - 1)))
    return cast(divide(total, column), result)


def _summand(name: str, data: Any) -> Array:
    array = operand(name, data)
    return cast(array, dtypes.int64) if array.dtype is dtypes.bool_ else array


def _bounds(dtype: DType) -> tuple[Any, Any]:
    """The lowest and the highest value of a dtype."""
    if dtype is dtypes.bool_:
        return False, True
    if dtypes.is_float(dtype):
        return -math.inf, math.inf
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


for _function in (segment_sum, segment_prod, segment_max, segment_min, segment_mean):
    _function.__doc__ = (_function.__doc__ or "") + _SEGMENTS
