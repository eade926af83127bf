"""Padding as users call it: with a constant, or with elements of the array itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.ops.base import describe, operand, operands
from pyeffect_torch.ops.pieces import concatenate, pad_general
from pyeffect_torch.ops.shape import broadcast_to
from pyeffect_torch.ops.shape_extra import slice_axis

__all__ = ["pad"]


def _pad_pairs(x: Array, pad_width: Any) -> list[tuple[int, int]]:
    rank = len(x.shape)
    width = np.asarray(pad_width)
    if width.dtype.kind not in "iu" or width.ndim > 2:
        raise ArgumentError(
            f"pad: widths are ints, got {pad_width!r}", "pass (before, after) for each axis"
        )
    try:
        pairs = np.broadcast_to(width, (rank, 2))
    except ValueError:
        raise ShapeError(
            f"pad: widths {pad_width!r} do not fit the {rank} axes of {describe(x)}",
            "pass (before, after) for each axis",
        ) from None
    if (pairs < 0).any():
        raise ShapeError(f"pad: negative widths {pad_width!r}", "use a slice to remove elements")
    return [(int(a), int(b)) for a, b in pairs]


_PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Array:
    """Return `x` with elements added before and after each axis.

    Args:
        pad_width: an int, `(before, after)` for all axes, or one pair per axis.
        mode: "constant"; "edge" repeats the border; "reflect" mirrors without the border,
            "symmetric" with it; "wrap" continues from the other end.
        constant_values: a number, or a 0-d array of the dtype of `x`.

    Raises:
        ShapeError: negative widths, widths for other axes, or a mode that needs elements on an
            empty axis.
    """
    x = operand("pad", x)
    pairs = _pad_pairs(x, pad_width)
    if mode == "constant":
        if x.dtype is dtypes.bool_ and constant_values in (0, 1):
            constant_values = literal(constant_values, x.dtype)
        elif not isinstance(constant_values, Array):
            _, constant_values = operands("pad", x, constant_values)
        low, high = [a for a, _ in pairs], [b for _, b in pairs]
        return pad_general(x, constant_values, low, high, [0] * len(pairs))
    if mode not in _PAD_MODES:
        raise ArgumentError(f"pad: unknown mode {mode!r}", f"use one of {', '.join(_PAD_MODES)}")
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            x = _pad_axis(x, axis, before, after, mode)
    return x


def _pad_axis(x: Array, axis: int, before: int, after: int, mode: Any) -> Array:
    extent = x.shape[axis]
    if extent == 0:
        raise ShapeError(
            f"pad: axis {axis} of {describe(x)} has no element to {mode} from",
            "use mode='constant'",
        )
    positions = np.pad(np.arange(extent), (before, after), mode=mode).tolist()
    parts: list[Array] = []
    first = 0
    while first < len(positions):  # one slice for each run of equal steps of -1, 0 or 1
        last = first
        step = positions[first + 1] - positions[first] if first + 1 < len(positions) else 1
        if step in (-1, 0, 1):
            while last + 1 < len(positions) and positions[last + 1] - positions[last] == step:
                last += 1
        count = last - first + 1
        if step == 0:
            shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
            parts.append(broadcast_to(slice_axis(x, axis, positions[first], 1), shape))
        else:
            parts.append(slice_axis(x, axis, positions[first], count, step if count > 1 else 1))
        first = last + 1
    return concatenate(parts, axis)
