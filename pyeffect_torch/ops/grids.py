"""Positions in a grid: indices of triangles, flat indices and indices by axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.ops.base import shape_of
from pyeffect_torch.ops.dynamic import CHECK_INDEX
from pyeffect_torch.ops.index_base import check_static, index_operand, mode_number
from pyeffect_torch.ops.options import require_int, require_sequence
from pyeffect_torch.ops.parameters import MODE_ERROR, CheckIndexParams

__all__ = ["ravel_multi_index", "tril_indices", "triu_indices", "unravel_index"]

_f: Any = late.functions


def _triangle(name: str, n: int, k: int, m: int | None, lower: bool) -> tuple[Array, Array]:
    rows, columns = shape_of(name, (n, n if m is None else m))
    k = require_int(name, k, "k")
    found = (np.tril_indices if lower else np.triu_indices)(rows, k, columns)
    return _f.array(found[0].astype(np.int64)), _f.array(found[1].astype(np.int64))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Return the rows and columns of the lower triangle of `[n, m]` up to diagonal `k`, as int64.

    `m` is `n` unless it is given.
    """
    return _triangle("tril_indices", n, k, m, True)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Return the rows and columns of the upper triangle of `[n, m]` from diagonal `k`, as int64.

    `m` is `n` unless it is given.
    """
    return _triangle("triu_indices", n, k, m, False)


def _checked(name: str, index: Any, extent: int, axis: int, mode: int) -> Array:
    if mode == MODE_ERROR:
        check_static(name, index, extent, axis)
    array = index_operand(name, index)
    return bind(CHECK_INDEX, (array,), CheckIndexParams(extent, axis, mode))


def unravel_index(indices: Any, shape: Any, *, mode: str = "error") -> tuple[Array, ...]:
    """Return the index by axis of flat positions in row-major order, as int64 for each axis.

    Args:
        indices: integers of any shape, which each result has.
        shape: that of the array that they are positions in.
        mode: "error" (out of range is an `IndexOutOfBoundsError`, negative counts from the end)
            or "clip".
    """
    extents = shape_of("unravel_index", shape)
    number = mode_number("unravel_index", mode)
    rest = _checked("unravel_index", indices, math.prod(extents), 0, number)
    found: list[Array] = []
    for extent in reversed(extents):
        found.insert(0, _f.remainder(rest, extent))
        rest = _f.floor_divide(rest, extent)
    return tuple(found)


def ravel_multi_index(multi_index: Any, shape: Any, *, mode: str = "error") -> Array:
    """Return the flat positions, in row-major order, of indices by axis, as int64.

    Args:
        multi_index: integers for each axis, broadcast together.
        shape: that of the array that they are indices of.
        mode: as for `unravel_index`, for each axis.
    """
    extents = shape_of("ravel_multi_index", shape)
    number = mode_number("ravel_multi_index", mode)
    multi_index = require_sequence("ravel_multi_index", multi_index, "the indices")
    if len(multi_index) != len(extents) or not extents:
        raise ShapeError(
            f"ravel_multi_index: {len(multi_index)} indices for shape {list(extents)}",
            "pass one index for each of one or more axes",
        )
    flat: Array | None = None
    for axis, extent in enumerate(extents):
        index = _checked("ravel_multi_index", multi_index[axis], extent, axis, number)
        flat = index if flat is None else _f.add(_f.multiply(flat, extent), index)
    assert flat is not None
    return flat
