"""Sorts along an axis, and what follows from one: positions, the largest k, partitions.

Every sort is stable, in either direction: equal elements (-0.0 and 0.0 are equal) keep their
order. NaN comes last, also in descending order. What a sort moves, derivatives move along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, outputs
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.core.op import Domain, JvpRule, MaybeArray, Sample, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, normalize_axis, operand
from pyeffect_torch.ops.indexing import TAKE_ALONG_AXIS
from pyeffect_torch.ops.options import require_int, require_sequence
from pyeffect_torch.ops.parameters import MODE_CLIP, AlongParams, SortParams

__all__ = ["argpartition", "argsort", "lexsort", "partition", "sort", "top_k"]

_f: Any = late.functions


def _infer(inputs: tuple[Array, ...], params: SortParams) -> Any:
    (x,) = inputs
    shape = (*x.shape[: params.axis], params.kept, *x.shape[params.axis + 1 :])
    return (shape, x.dtype), (shape, dtypes.int64)


def _rule(node: Array, tangents: Sequence[MaybeArray]) -> list[MaybeArray]:
    (tangent,) = tangents
    if tangent is None:
        return [None, None]
    return [along(tangent, outputs(node)[1], node.params.axis), None]


def along(x: Array, positions: Array, axis: int) -> Array:
    """Return `x` at positions along an axis that are known to be inside."""
    return bind(TAKE_ALONG_AXIS, (x, positions), AlongParams(axis, MODE_CLIP))


def _batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Any:
    del batched, size
    moved = node.params._replace(axis=node.params.axis + 1)
    return [(out, True) for out in outputs(bind(node.op, tuple(inputs), moved))]


def _reference(attributes: Any, x: Any) -> Any:
    axis, count = attributes["axis"], attributes["count"]
    wide = domains.wide(x)
    order = np.argsort(wide, axis, kind="stable")
    if attributes["descending"]:
        # The stable order of the reversed array, read backwards: ties come first to last again.
        backwards = np.argsort(np.flip(wide, axis), axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(backwards, axis)
        if wide.dtype.kind == "f":
            absent = np.isnan(np.take_along_axis(wide, order, axis))
            behind = np.argsort(absent, axis, kind="stable")
            order = np.take_along_axis(order, behind, axis)
    order = np.take(order, range(count), axis).astype(np.int64)
    return np.take_along_axis(x, order, axis), order


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample((domains.draw(rng, shape, dtype, -9.0, 9.0),), SortParams(axis, descending, count))
        for shape in (*domains.SHAPES, (2, 50))
        for axis in range(len(shape))
        for descending in (False, True)
        for count in sorted({shape[axis], min(shape[axis], 2)})
    ]


SORT: Final = declare(
    "sort",
    infer=_infer,
    derivative=JvpRule(_rule),
    batch=_batch,
    reference=_reference,
    domain=Domain(domains.EVERY, _samples, lambda sample: 0.0),
    opcode="sort",
    attributes=lambda node: {
        "axis": node.params.axis,
        "descending": node.params.descending,
        "count": node.params.kept,
    },
    traits=("multi",),
)


# --- the functions that users call


def sorted_with_positions(
    name: str, x: Any, axis: int | None, descending: bool = False, count: int | None = None
) -> tuple[Array, Array, int]:
    """Return the first `count` sorted values, their positions, and the axis as a number >= 0."""
    array = operand(name, x)
    if axis is None:
        array, axis = _f.reshape(array, (array.size,)), 0
    axis = normalize_axis(name, axis, len(array.shape))
    kept = array.shape[axis] if count is None else count
    node = bind(SORT, (array,), SortParams(axis, bool(descending), kept))
    values, positions = outputs(node)
    return values, positions, axis


def sort(x: Any, axis: int | None = -1, *, descending: bool = False) -> Array:
    """Return the elements of `x` in ascending order along `axis`.

    Args:
        x: any dtype.
        axis: None: of the flattened array.
        descending: largest first.

    The sort is stable, and NaN comes last in either direction. The gradient goes to where the
    elements came from.
    """
    return sorted_with_positions("sort", x, axis, descending)[0]


def argsort(x: Any, axis: int | None = -1, *, descending: bool = False) -> Array:
    """Return the positions along `axis` that sort `x`, as int64; of equal elements the first first.

    Arguments as for `sort`: `take_along_axis(x, argsort(x), -1)` is `sort(x)`.
    """
    return sorted_with_positions("argsort", x, axis, descending)[1]


def top_k(x: Any, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Return the `k` largest elements along `axis`, largest first, and their int64 positions.

    They are the first of `sort(x, axis, descending=True)`: of equal elements the first ones, and
    NaN only when there is nothing else.

    Args:
        x: any dtype, at least one axis.
        k: from 0 to the extent of the axis.

    Raises:
        ShapeError: the axis has fewer than `k` elements.
    """
    array = operand("top_k", x)
    place = normalize_axis("top_k", axis, len(array.shape))
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise ArgumentError(f"top_k: k is {k!r}", "pass an int")
    if not 0 <= k <= array.shape[place]:
        raise ShapeError(
            f"top_k: k is {k}, but axis {place} of {describe(array)} has {array.shape[place]} "
            "elements",
            f"use a k from 0 to {array.shape[place]}",
        )
    values, positions, _ = sorted_with_positions("top_k", array, place, True, int(k))
    return values, positions


def lexsort(keys: Sequence[Any], axis: int = -1) -> Array:
    """Return the positions along `axis` that sort by several keys, the last one first, as int64.

    Args:
        keys: arrays of one shape, or an array whose rows they are; where the last is equal, the
            one before it decides, and so on.
    """
    arrays = [operand("lexsort", key) for key in require_sequence("lexsort", keys, "keys")]
    if not arrays or any(array.shape != arrays[0].shape for array in arrays):
        raise ShapeError(
            f"lexsort: keys {', '.join(map(describe, arrays)) or 'of no number'}",
            "pass one or more keys of one shape",
        )
    _, order, place = sorted_with_positions("lexsort", arrays[0], axis)
    for key in arrays[1:]:
        _, finer, _ = sorted_with_positions("lexsort", along(key, order, place), place)
        order = along(order, finer, place)
    return order


def _check_kth(name: str, x: Any, kth: int, axis: int | None) -> None:
    array = operand(name, x)
    kth = require_int(name, kth, "kth")
    extent = array.size if axis is None else array.shape[normalize_axis(name, axis, array.ndim)]
    if not -extent <= kth < extent:
        raise ShapeError(
            f"{name}: kth is {kth}, but the axis has {extent} elements",
            f"use a kth from {-extent} to {extent - 1}" if extent else "the axis is empty",
        )


def partition(x: Any, kth: int, axis: int | None = -1) -> Array:
    """Return `x` with what sorts before its `kth` element before it, and the rest behind.

    That is `sort(x, axis)` here: a partition that is sorted as well.

    Raises:
        ShapeError: the axis has no `kth` element.
    """
    _check_kth("partition", x, kth, axis)
    return sorted_with_positions("partition", x, axis)[0]


def argpartition(x: Any, kth: int, axis: int | None = -1) -> Array:
    """Return the int64 positions of `partition(x, kth, axis)`: here `argsort(x, axis)`.

    Raises:
        ShapeError: the axis has no `kth` element.
    """
    _check_kth("argpartition", x, kth, axis)
    return sorted_with_positions("argpartition", x, axis)[1]
