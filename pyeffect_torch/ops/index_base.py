"""What gathers, scatters, `x[...]` and `x.at` share: checks, index operands, test inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, IndexOutOfBoundsError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.base import operand, require_integer
from pyeffect_torch.ops.parameters import MODE_ERROR, MODE_FILL, MODE_STRICT, MODES
from pyeffect_torch.ops.shape import broadcast_to

_f: Any = late.functions
_INDEX_DTYPES: Final = (dtypes.int64, dtypes.int32, dtypes.uint8, dtypes.int8, dtypes.uint64)


def zeros_of(array: Array) -> Array:
    """Return zeros of the type of `array`."""
    return broadcast_to(literal(0, array.dtype), array.shape)


def mode_number(name: str, mode: str) -> int:
    """Return the number of a mode name, or raise `ArgumentError`."""
    if not isinstance(mode, str) or mode not in MODES:
        raise ArgumentError(f"{name}: unknown mode {mode!r}", "use 'error', 'clip' or 'fill'")
    return MODES[mode]


def require_elements(name: str, index: Array, extent: int, axis: int, mode: int) -> None:
    """Raise `IndexOutOfBoundsError` if there are indices into an axis without elements."""
    if extent == 0 and index.size and mode != MODE_FILL:
        raise IndexOutOfBoundsError(
            f"{name}: {index.size} indices into axis {axis}, which has extent 0",
            "index an axis that has elements",
            operation=name,
            phase="build",
        )


def in_range(index: Array, extent: int) -> Array:
    """Return where an index is in 0..extent-1, as bool."""
    index = _f.cast(index, dtypes.int64)
    return _f.logical_and(_f.greater_equal(index, 0), _f.less(index, extent))


def resolve_positions(name: str, index: Any, extent: int, axis: int, mode: int) -> tuple[Any, Any]:
    """Reference of index checking: positions (in range) and which of them count.

    Raises:
        IndexOutOfBoundsError: mode "error" and an index outside -extent..extent-1, mode "strict"
            and one outside 0..extent-1.
    """
    given = np.asarray(index)
    if given.dtype == np.uint64:
        index = np.minimum(given, np.uint64(2**62))
    position = np.asarray(index, np.int64)
    valid = np.ones(position.shape, np.bool_)
    if mode in (MODE_ERROR, MODE_STRICT):
        outside = (position < (-extent if mode == MODE_ERROR else 0)) | (position >= extent)
        if outside.any():
            raise IndexOutOfBoundsError(
                f"{name}: index {given[outside].ravel()[0]} is out of range for axis {axis} of "
                f"extent {extent}",
                "keep indices inside the axis"
                + (", or use mode='clip' or 'fill'" if mode == MODE_ERROR else ""),
            )
        position = np.where(position < 0, position + extent, position)
    elif mode == MODE_FILL:
        valid = (position >= 0) & (position < extent)
    if extent:
        position = np.clip(position, 0, extent - 1)
    return position, valid


def blank(dtype: DType) -> Any:
    """What mode "fill" reads out of range: NaN for floats, 0 otherwise."""
    return dtype.type(np.nan if dtypes.is_float(dtype) else 0)


def index_operand(name: str, index: Any) -> Array:
    """Return an index argument (an integer array, NumPy array or int) as an array."""
    if isinstance(index, (list, tuple)):
        index = np.asarray(index, np.int64) if not len(index) else np.asarray(index)
    found = operand(name, index)
    require_integer(name, found)
    return found


def check_static(
    name: str, index: Any, extent: int, axis: int, mode: int = MODE_ERROR, what: str = "index"
) -> None:
    """Check an index whose value is known at the call: an int, a list or a NumPy array.

    Raises:
        IndexOutOfBoundsError: an element outside -extent..extent-1, in mode "strict" 0..extent-1.
    """
    if isinstance(index, Array):
        return
    if isinstance(index, int):
        bounds: tuple[int, ...] = (index,)  # which may be too large for any dtype
    else:
        values = np.asarray(index)
        if values.dtype.kind not in "iu" or not values.size:
            return
        bounds = (int(values.min()), int(values.max()))
    lowest = 0 if mode == MODE_STRICT else -extent
    for value in bounds:
        if not lowest <= value < extent:
            raise IndexOutOfBoundsError(
                f"{name}: {what} {value} is out of range for axis {axis} of extent {extent}",
                f"use numbers from {lowest} to {extent - 1}" if extent else "the axis is empty",
                operation=name,
                phase="build",
            )


def all_batched(inputs: Sequence[Array], batched: Sequence[bool], size: int) -> tuple[Array, ...]:
    """Broadcast what is not batched, so that every operand has the batch axis in front."""
    return tuple(
        array if is_batched else broadcast_to(array, (size, *array.shape))
        for array, is_batched in zip(inputs, batched, strict=True)
    )


def draw_index(rng: np.random.Generator, shape: Shape, extent: int, mode: int, k: int) -> Any:
    """Draw an index array for tests; duplicates, and values out of range where `mode` has a use."""
    dtype = _INDEX_DTYPES[k % len(_INDEX_DTYPES)]
    checked = mode in (MODE_ERROR, MODE_STRICT)
    beyond = 0 if checked else 2
    low = -(extent if mode == MODE_ERROR else 2)
    if dtype in dtypes.UNSIGNED or mode == MODE_STRICT:
        low = 0
    if extent == 0 and checked:
        return np.zeros(shape, dtype)
    return rng.integers(low, extent + beyond, shape).astype(dtype)
