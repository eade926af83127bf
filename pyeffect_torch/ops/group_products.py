"""For each factor the product of the others of its group, without any division.

That is the derivative of a product by group (`scatter_multiply`), right to every order where
factors are 0. Groups are sorted, so that each is a run, and runs are multiplied up from both ends.
"""

from __future__ import annotations

import math
from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.order import along
from pyeffect_torch.ops.parameters import (
    MODE_CLIP,
    MODE_ERROR,
    ScatterAlongParams,
    ScatterParams,
)
from pyeffect_torch.ops.shape import broadcast_to, reshape

__all__: list[str] = []

_f: Any = late.functions


def other_updates(
    shape: Shape, index: Array, updates: Array, params: ScatterParams | ScatterAlongParams
) -> Array:
    """Return for each update of a scatter into `shape` the product of the others at its place."""
    axis, extent = params.axis, shape[params.axis]
    groups = _f.cast(index, dtypes.int64)
    if params.mode == MODE_CLIP:
        groups = _f.clip(groups, 0, max(extent - 1, 0))
    elif params.mode == MODE_ERROR:
        groups = _f.where(_f.less(groups, 0), _f.add(groups, extent), groups)
    if isinstance(params, ScatterAlongParams):
        return products_of_others(updates, groups, axis)
    shared = params.batch_dims
    count = math.prod(index.shape[shared:])
    behind = shape[axis + 1 :]
    flat = reshape(updates, (*shape[:axis], count, *behind))
    inner = (*(1,) * (axis - shared), count, *(1,) * len(behind))
    groups = reshape(groups, (*index.shape[:shared], *inner))
    return reshape(products_of_others(flat, groups, axis), updates.shape)


def products_of_others(factors: Array, groups: Array, axis: int) -> Array:
    """Return for each factor the product of the others along `axis` with an equal group number.

    Args:
        groups: int64, of the rank of `factors`; broadcast to its shape.
    """
    order = _f.argsort(groups, axis)
    runs = along(groups, order, axis)
    spread = broadcast_to(order, factors.shape)
    rows = along(factors, spread, axis)
    before, behind = _before(rows, runs, axis), _f.flip(rows, axis)
    behind = _f.flip(_before(behind, _f.flip(runs, axis), axis), axis)
    back = broadcast_to(_f.argsort(order, axis), factors.shape)
    return along(_f.multiply(before, behind), back, axis)


def _before(rows: Array, runs: Array, axis: int) -> Array:
    """The product of what comes earlier in the same run."""
    product = _earlier(rows, runs, axis, 1)
    by = 1
    while by < rows.shape[axis]:
        product = _f.multiply(product, _earlier(product, runs, axis, by))
        by *= 2
    return product


def _earlier(rows: Array, runs: Array, axis: int, by: int) -> Array:
    """What is `by` places earlier, 1 where that is in another run."""
    one = literal(1, rows.dtype)
    moved = _shifted(rows, axis, by, one)
    same = _f.equal(runs, _shifted(runs, axis, by, literal(0, dtypes.int64)))
    extent = [1] * len(rows.shape)
    extent[axis] = rows.shape[axis]
    exists = _f.greater_equal(_f.iota(tuple(extent), "int64", axis), by)
    return _f.where(_f.logical_and(same, exists), moved, one)


def _shifted(rows: Array, axis: int, by: int, fill: Array) -> Array:
    extents = rows.shape
    by = min(by, extents[axis])
    sizes = tuple(n - by if a == axis else n for a, n in enumerate(extents))
    start = broadcast_to(fill, tuple(by if a == axis else n for a, n in enumerate(extents)))
    kept = _f.slice(rows, (0,) * len(extents), sizes, (1,) * len(extents))
    return _f.concatenate([start, kept], axis)
