"""Integers to rows: `one_hot` and `embedding`."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DTypeLike
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.ops.base import (
    describe,
    normalize_axis,
    operand,
    require_float,
    resolve_dtype,
)
from pyeffect_torch.ops.index_base import check_static, index_operand
from pyeffect_torch.ops.indexing import TAKE
from pyeffect_torch.ops.parameters import MODE_STRICT, TakeParams
from pyeffect_torch.ops.shape import expand_dims, reshape

__all__ = ["embedding", "one_hot"]

_f: Any = late.functions


def one_hot(index: Any, num_classes: int, dtype: DTypeLike = "float32", axis: int = -1) -> Array:
    """Return 1 where the position along a new axis equals the index, else 0.

    Args:
        index: integers; one out of 0..num_classes-1 gives a row of zeros.
        num_classes: extent of the new axis.
        axis: where the new axis is in the result.
    """
    index = index_operand("one_hot", index)
    target = resolve_dtype("one_hot", dtype)
    place = normalize_axis("one_hot", axis, len(index.shape) + 1)
    column = [1] * (len(index.shape) + 1)
    column[place] = num_classes
    hits = _f.equal(
        expand_dims(_f.cast(index, dtypes.int64), place), reshape(_f.arange(num_classes), column)
    )
    return _f.cast(hits, target)


def embedding(ids: Any, table: Any, padding_index: int | None = None) -> Array:
    """Return the rows of a table at `ids`: `[.., width]` for ids `[..]`.

    Args:
        ids: integers in 0..rows-1; negative ones are refused.
        table: floating, `[rows, width]`.
        padding_index: a row that is read but gets no gradient.

    Raises:
        IndexOutOfBoundsError: an id outside 0..rows-1 (at the call when it is static).
    """
    table = operand("embedding", table)
    require_float("embedding", table)
    if len(table.shape) != 2:
        raise ShapeError(
            f"embedding: the table must have shape [rows, width], got {describe(table)}",
            "reshape it to two axes",
        )
    rows = table.shape[0]
    check_static("embedding", ids, rows, 0, MODE_STRICT, "id")
    ids = index_operand("embedding", ids)
    found = bind(TAKE, (table, ids), TakeParams(0, 0, MODE_STRICT))
    if padding_index is None:
        return found
    padding = normalize_axis("embedding", padding_index, rows)
    is_padding = _f.equal(_f.cast(ids, dtypes.int64), padding)
    return _f.where(expand_dims(is_padding, -1), _f.stop_gradient(found), found)
