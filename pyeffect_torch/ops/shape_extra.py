"""Shape functions made of several ops: joining, splitting, rolling, diagonals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.ops.base import describe, normalize_axes, normalize_axis, operand
from pyeffect_torch.ops.options import require_int, require_sequence
from pyeffect_torch.ops.pieces import concatenate, slice_
from pyeffect_torch.ops.shape import (
    broadcast_to,
    expand_dims,
    moveaxis,
    require_rank,
    reshape,
    swapaxes,
)

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "chunk",
    "concat",
    "diagonal",
    "flip",
    "hstack",
    "repeat",
    "roll",
    "rot90",
    "split",
    "stack",
    "tile",
    "trace",
    "tril",
    "triu",
    "unstack",
    "vstack",
]

_f: Any = late.functions


def slice_axis(x: Array, axis: int, start: int, size: int, step: int = 1) -> Array:
    """Return `size` elements of one axis, from `start` by `step`; other axes whole."""
    rank = len(x.shape)
    starts, sizes, steps = [0] * rank, list(x.shape), [1] * rank
    starts[axis], sizes[axis], steps[axis] = start, size, step
    return slice_(x, starts, sizes, steps)


# --- joining and splitting


def concat(arrays: Sequence[Any], axis: int | None = 0) -> Array:
    """The same as `concatenate`."""
    return concatenate(arrays, axis)


def stack(arrays: Sequence[Any], axis: int = 0) -> Array:
    """Return arrays of one type joined along a new axis at position `axis` of the result.

    Raises:
        ShapeError: the shapes differ. DTypeError: the dtypes differ.
    """
    parts = [operand("stack", array) for array in require_sequence("stack", arrays, "arrays")]
    if not parts:
        raise ShapeError("stack: no array to join", "pass one array at least")
    for part in parts:
        if part.shape != parts[0].shape:
            raise ShapeError(
                f"stack: {describe(parts[0])} and {describe(part)} differ in shape",
                "broadcast them to one shape first",
            )
    return concatenate([expand_dims(part, axis) for part in parts], axis)


def unstack(x: Any, axis: int = 0) -> tuple[Array, ...]:
    """Return the slices of `x` along an axis, without that axis: the inverse of `stack`."""
    x = operand("unstack", x)
    require_rank("unstack", x, 1)
    axis = normalize_axis("unstack", axis, len(x.shape))
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return tuple(reshape(slice_axis(x, axis, k, 1), shape) for k in range(x.shape[axis]))


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> tuple[Array, ...]:
    """Return `x` cut along an axis.

    Args:
        indices_or_sections: a number of equal sections, or the positions to cut at (negative
            ones count from the end, as in slices).

    Raises:
        ShapeError: the extent is no multiple of the number of sections.
    """
    x = operand("split", x)
    axis = normalize_axis("split", axis, len(x.shape))
    extent = x.shape[axis]
    if isinstance(indices_or_sections, (tuple, list, np.ndarray)):
        cuts = [require_int("split", cut, "a position") for cut in indices_or_sections]
        edges = [0, *cuts, extent]
        parts: list[Array] = []
        for first, last in itertools.pairwise(edges):
            start, stop, _ = slice(first, last).indices(extent)
            parts.append(slice_axis(x, axis, start, max(stop - start, 0)))
        return tuple(parts)
    sections = require_int("split", indices_or_sections, "the number of sections")
    if sections < 1 or extent % sections:
        raise ShapeError(
            f"split: axis {axis} of {describe(x)} has no {sections} equal sections",
            "use a divisor of the extent, a list of positions, or chunk",
        )
    size = extent // sections
    return tuple(slice_axis(x, axis, k * size, size) for k in range(sections))


def chunk(x: Any, chunks: int, axis: int = 0) -> tuple[Array, ...]:
    """Return `x` cut into at most `chunks` pieces of ceil(extent / chunks); the last is smaller."""
    x = operand("chunk", x)
    axis = normalize_axis("chunk", axis, len(x.shape))
    count = require_int("chunk", chunks, "the number of chunks")
    if count < 1:
        raise ShapeError(f"chunk: {count} chunks of {describe(x)}", "use 1 chunk or more")
    extent = x.shape[axis]
    size = max(-(-extent // count), 1)
    starts = range(0, extent, size) if extent else (0,)
    return tuple(slice_axis(x, axis, start, min(size, extent - start)) for start in starts)


def atleast_1d(x: Any) -> Array:
    """Return `x`, a scalar as shape [1]."""
    x = operand("atleast_1d", x)
    return x if x.shape else reshape(x, (1,))


def atleast_2d(x: Any) -> Array:
    """Return `x` with axes of extent 1 in front until it has two axes."""
    x = operand("atleast_2d", x)
    return x if len(x.shape) >= 2 else reshape(x, (1, x.size))


def hstack(arrays: Sequence[Any]) -> Array:
    """Return the arrays joined along axis 1, or axis 0 for vectors."""
    parts = [atleast_1d(array) for array in require_sequence("hstack", arrays, "arrays")]
    return concatenate(parts, 0 if parts and len(parts[0].shape) == 1 else 1)


def vstack(arrays: Sequence[Any]) -> Array:
    """Return the arrays joined along axis 0, vectors as rows."""
    return concatenate(
        [atleast_2d(array) for array in require_sequence("vstack", arrays, "arrays")], 0
    )


# --- repeating


def tile(x: Any, reps: Any) -> Array:
    """Return `x` repeated `reps[a]` times along each axis a, ranks aligned from the right."""
    x = operand("tile", x)
    given = reps if isinstance(reps, (tuple, list)) else (reps,)
    counts = [require_int("tile", count, "a repetition") for count in given]
    if any(count < 0 for count in counts):
        raise ShapeError(f"tile: negative repetitions {counts}", "use repetitions >= 0")
    rank = max(len(counts), len(x.shape))
    counts = [1] * (rank - len(counts)) + counts
    shape = (*(1,) * (rank - len(x.shape)), *x.shape)
    paired = [extent for pair in zip((1,) * rank, shape, strict=True) for extent in pair]
    spread = [extent for pair in zip(counts, shape, strict=True) for extent in pair]
    result = [count * extent for count, extent in zip(counts, shape, strict=True)]
    return reshape(broadcast_to(reshape(x, paired), spread), result)


def repeat(x: Any, repeats: Any, axis: int | None = None) -> Array:
    """Return each element of an axis repeated.

    Args:
        repeats: an int, or one int per element of the axis.
        axis: None repeats the elements of the flattened array.
    """
    x = operand("repeat", x)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normalize_axis("repeat", axis, len(x.shape))
    extent = x.shape[axis]
    if isinstance(repeats, (tuple, list, np.ndarray)):
        counts = [require_int("repeat", count, "a repetition") for count in repeats]
        if len(counts) == 1:
            counts *= extent
        if len(counts) != extent or any(count < 0 for count in counts):
            raise ShapeError(
                f"repeat: {len(counts)} repetitions for axis {axis} of {describe(x)}",
                "pass one count >= 0 for each element of the axis",
            )
        return _f.take(x, np.repeat(np.arange(extent), counts), axis)
    count = require_int("repeat", repeats, "repeats")
    if count < 0:
        raise ShapeError(f"repeat: {count} repetitions", "use a number >= 0")
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    spread = broadcast_to(
        reshape(x, (*before, extent, 1, *after)), (*before, extent, count, *after)
    )
    return reshape(spread, (*before, extent * count, *after))


# --- reversing and turning


def flip(x: Any, axis: Any = None) -> Array:
    """Return `x` with the order of the elements reversed along the given axes (None: all)."""
    x = operand("flip", x)
    axes = normalize_axes("flip", axis, len(x.shape))
    starts, steps = [0] * len(x.shape), [1] * len(x.shape)
    for one in axes:
        if x.shape[one] > 1:
            starts[one], steps[one] = x.shape[one] - 1, -1
    return slice_(x, starts, x.shape, steps)


def roll(x: Any, shift: Any, axis: Any = None) -> Array:
    """Return `x` with elements moved along axes; those pushed out come back at the other end.

    Args:
        shift: an int, or one int per axis. axis: None rolls the flattened array.
    """
    x = operand("roll", x)
    if axis is None:
        return reshape(roll(reshape(x, (x.size,)), shift, 0), x.shape)
    axes = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift] * len(axes)
    if len(shifts) != len(axes):
        raise ArgumentError(
            f"roll: {len(shifts)} shifts for {len(axes)} axes", "pass one shift per axis"
        )
    for one, amount in zip(axes, shifts, strict=True):
        place = normalize_axis("roll", one, len(x.shape))
        extent = x.shape[place]
        head = require_int("roll", amount, "shift") % extent if extent else 0
        if head:
            end = slice_axis(x, place, extent - head, head)
            x = concatenate([end, slice_axis(x, place, 0, extent - head)], place)
    return x


def rot90(x: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """Return `x` turned by k quarter turns in the plane of two axes, from the first to the second.

    Raises:
        ShapeError: not two different axes.
    """
    x = operand("rot90", x)
    axes = require_sequence("rot90", axes, "axes")
    if len(axes) != 2:
        raise ShapeError(f"rot90: a plane has two axes, got {list(axes)}", "pass two axes")
    first, second = (normalize_axis("rot90", axis, len(x.shape)) for axis in axes)
    if first == second:
        raise ShapeError(f"rot90: axes {list(axes)} are one axis", "pass two different axes")
    turns = require_int("rot90", k, "k") % 4
    if turns == 0:
        return x
    if turns == 2:
        return flip(x, (first, second))
    if turns == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second)


# --- triangles and diagonals


def _triangle(name: str, x: Any, k: int, lower: bool) -> Array:
    x = operand(name, x)
    require_rank(name, x, 2)
    rows, columns = x.shape[-2:]
    diagonal_of_row = _f.add(reshape(_f.arange(rows), (rows, 1)), require_int(name, k, "k"))
    column = _f.arange(columns)
    keep = (
        _f.less_equal(column, diagonal_of_row)
        if lower
        else _f.greater_equal(column, diagonal_of_row)
    )
    return _f.where(keep, x, literal(0, x.dtype))


def tril(x: Any, k: int = 0) -> Array:
    """Return `x` with zeros above the k-th diagonal of its last two axes."""
    return _triangle("tril", x, k, True)


def triu(x: Any, k: int = 0) -> Array:
    """Return `x` with zeros below the k-th diagonal of its last two axes."""
    return _triangle("triu", x, k, False)


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return the diagonal `x[.., i, i + offset]` of two axes as a new last axis.

    Raises:
        ShapeError: rank below 2, or one axis twice.
    """
    x = operand("diagonal", x)
    require_rank("diagonal", x, 2)
    first = normalize_axis("diagonal", axis1, len(x.shape))
    second = normalize_axis("diagonal", axis2, len(x.shape))
    if first == second:
        raise ShapeError(f"diagonal: axes {axis1} and {axis2} are one axis", "name two axes")
    moved = moveaxis(x, (first, second), (-2, -1))
    rows, columns = moved.shape[-2:]
    start = require_int("diagonal", offset, "offset")
    top, left = max(-start, 0), max(start, 0)
    length = max(min(rows - top, columns - left), 0)
    rest = moved.shape[:-2]
    if length == 0:
        return broadcast_to(literal(0, x.dtype), (*rest, 0))
    flat = reshape(moved, (*rest, rows * columns))
    step = columns + 1 if length > 1 else 1
    return slice_axis(flat, len(rest), top * columns + left, length, step)


def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return the sum of a diagonal; the dtype stays."""
    return _f.sum(diagonal(x, offset, axis1, axis2), -1)
