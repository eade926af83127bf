"""Scatter functions: which layout a call means, and sums over segments."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.ops.base import describe, normalize_axis, operand, operands
from pyeffect_torch.ops.index_base import check_static, index_operand, mode_number
from pyeffect_torch.ops.indexing import check_along, take_shape
from pyeffect_torch.ops.parameters import (
    KIND_ADD,
    KIND_MAX,
    KIND_MIN,
    KIND_MULTIPLY,
    KIND_SET,
    MODE_ERROR,
    ScatterAlongParams,
    ScatterParams,
)
from pyeffect_torch.ops.scatter import scatter_along_general, scatter_general
from pyeffect_torch.ops.shape import broadcast_to

__all__ = [
    "scatter_add",
    "scatter_max",
    "scatter_min",
    "scatter_multiply",
    "scatter_set",
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


def segment_sum(data: Any, segment_ids: Any, num_segments: int, *, mode: str = "error") -> Array:
    """Return the sums of the rows of `data` that share a segment: `[num_segments, ..]`.

    Args:
        data: `[rows, ..]`. segment_ids: integers `[rows]`, in any order.
        mode: as for `scatter_add`; "fill" drops rows of other segments.
    """
    data = operand("segment_sum", data)
    ids = index_operand("segment_sum", segment_ids)
    if len(ids.shape) != 1 or data.shape[:1] != ids.shape:
        raise ShapeError(
            f"segment_sum: the ids {describe(ids)} do not number the rows of {describe(data)}",
            "give one id per row",
        )
    zeros = broadcast_to(literal(0, data.dtype), (num_segments, *data.shape[1:]))
    return _scatter("segment_sum", KIND_ADD, zeros, segment_ids, data, 0, mode)
