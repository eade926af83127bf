"""`x[...]` by NumPy's rules.

An index is planned once (`plan`): a static slice of every axis, then at most one gather along one
axis made of all axes that have index arrays, then a reshape. `at.py` runs the same plan backwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import PLACEHOLDER_FLAG, Array, bind
from pyeffect_torch.core.errors import (
    ArgumentError,
    DTypeError,
    EffectTorchError,
    IndexOutOfBoundsError,
    ShapeError,
    TraceError,
)
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops import base
from pyeffect_torch.ops.base import describe, operands
from pyeffect_torch.ops.dynamic import CHECK_INDEX
from pyeffect_torch.ops.index_base import check_static, in_range, require_elements
from pyeffect_torch.ops.indexing import TAKE
from pyeffect_torch.ops.parameters import (
    MODE_CLIP,
    MODE_ERROR,
    MODE_FILL,
    CheckIndexParams,
    TakeParams,
)
from pyeffect_torch.ops.pieces import slice_
from pyeffect_torch.ops.shape import broadcast_to, reshape, transpose

__all__ = []

_f: Any = late.functions
IndexArray: TypeAlias = "Array | np.ndarray[Any, Any]"


@dataclass(frozen=True, slots=True)
class Plan:
    """How an index reads an array.

    Attributes:
        starts, sizes, steps: the static slice of every axis; an int is a slice of one element,
            an index array leaves its axis whole.
        sliced: the shape after the slice, without the axes of ints.
        order: permutation of `sliced` that brings the axes with index arrays together.
        merged: the shape after that, with those axes as one.
        axis: which axis of `merged` that is; None without index arrays.
        arrays: the index arrays, each with its extent and its axis in the indexed array.
        gathered: the shape of the broadcast index arrays.
        shape: of the result.
    """

    starts: Shape
    sizes: Shape
    steps: tuple[int, ...]
    sliced: Shape
    order: Shape
    merged: Shape
    axis: int | None
    arrays: tuple[tuple[IndexArray, int, int], ...]
    gathered: Shape
    shape: Shape

    @property
    def taken(self) -> Shape:
        """The shape after the gather, before the final reshape."""
        if self.axis is None:
            return self.merged
        return (*self.merged[: self.axis], *self.gathered, *self.merged[self.axis + 1 :])


def mask_error(mask: Array) -> TraceError:
    """The error for a boolean index whose value is not known."""
    return TraceError(
        f"a boolean mask {describe(mask)} as index gives a shape that depends on values, which "
        "are not known while it is traced",
        "use et.where(mask, x, 0), or x.at[mask].set(v)",
    )


def _entries(index: Any) -> list[Any]:
    """Return the entries of an index, boolean masks replaced by their positions."""
    given = index if isinstance(index, tuple) else (index,)
    entries: list[Any] = []
    for entry in given:
        if entry is None or entry is Ellipsis or isinstance(entry, slice):
            entries.append(entry)
        elif isinstance(entry, (bool, np.bool_)):
            raise ArgumentError("a single bool is no index", "use et.where or an int")
        elif isinstance(entry, Array):
            entries.extend(_array_entries(entry))
        elif isinstance(entry, list):
            entries.extend(_host_entries(np.asarray(entry, None if entry else np.int64)))
        elif isinstance(entry, np.ndarray):
            entries.extend(_host_entries(entry))
        else:
            try:
                entries.append(entry.__index__())
            except EffectTorchError:
                raise  # it says what is wrong
            except (AttributeError, TypeError):
                raise ArgumentError(
                    f"an index is made of ints, slices, None, ... and integer arrays, got "
                    f"{type(entry).__name__}",
                    "cast an index array with i.astype('int64')",
                ) from None
    return entries


def _array_entries(entry: Array) -> list[Any]:
    if entry.dtype is dtypes.bool_:
        if entry.flags & PLACEHOLDER_FLAG:
            raise mask_error(entry)
        return _host_entries(entry.numpy())
    if entry.dtype.kind not in "iu":
        raise DTypeError(
            f"an index must be an integer or bool array, got {describe(entry)}",
            "cast it first, for example i.astype('int64')",
        )
    return [entry]


def _host_entries(entry: np.ndarray[Any, Any]) -> list[Any]:
    if entry.dtype == np.bool_:
        if entry.ndim == 0:
            raise ArgumentError("a bool of shape [] is no index", "use et.where")
        return [_Mask(entry)]
    if entry.dtype.kind not in "iu":
        raise DTypeError(
            f"an index must be an integer or bool array, got dtype {entry.dtype}",
            "cast it first, for example i.astype('int64')",
        )
    return [int(entry)] if entry.ndim == 0 else [entry]


@dataclass(frozen=True, slots=True)
class _Mask:
    """A boolean mask with a known value; it stands for as many axes as it has."""

    value: np.ndarray[Any, Any]


def _expand(x: Array, entries: list[Any]) -> list[Any]:
    """Replace the ellipsis and masks so that every axis of `x` has its entry."""
    consumed = sum(
        entry.value.ndim if isinstance(entry, _Mask) else 1
        for entry in entries
        if entry is not None and entry is not Ellipsis
    )
    dots = sum(entry is Ellipsis for entry in entries)
    if dots > 1:
        raise ArgumentError("an index has more than one ellipsis", "write ... once")
    missing = len(x.shape) - consumed
    if missing < 0:
        raise IndexOutOfBoundsError(
            f"{consumed} indices for {describe(x)}, which has {len(x.shape)} axes",
            "index no more axes than there are",
            operation="getitem",
            phase="build",
        )
    whole = [slice(None)] * missing
    if not dots:
        entries = [*entries, *whole]
    out: list[Any] = []
    axis = 0
    for entry in entries:
        if entry is Ellipsis:
            # an ellipsis of no axes still stands between index arrays
            out.extend(whole or [Ellipsis])
            axis += missing
        elif isinstance(entry, _Mask):
            shape = x.shape[axis : axis + entry.value.ndim]
            if entry.value.shape != shape:
                raise ShapeError(
                    f"a mask of shape {list(entry.value.shape)} does not fit axes of extents "
                    f"{list(shape)} of {describe(x)}",
                    "give the mask the extents of the axes that it indexes",
                )
            out.extend(entry.value.nonzero())
            axis += entry.value.ndim
        else:
            out.append(entry)
            axis += entry is not None
    return out


def _static_int(x: Array, value: int, axis: int, mode: int) -> int | None:
    """Return the position of an int index; None if mode "fill" finds it out of range."""
    extent = x.shape[axis]
    if mode == MODE_FILL:
        return value if 0 <= value < extent else None
    if mode == MODE_CLIP and extent:
        return min(max(value, 0), extent - 1)
    check_static("getitem", value, extent, axis)
    return value % extent


def plan(x: Array, index: Any, mode: int = MODE_ERROR) -> Plan:
    """Plan how `index` reads `x`; `mode` says what an index out of range means.

    Raises:
        IndexOutOfBoundsError: a static index out of range, or too many indices.
        ShapeError: index arrays that do not broadcast. TraceError: a mask without a value.
        ArgumentError, DTypeError: something that is no index.
    """
    entries = _expand(x, _entries(index))
    starts: list[int] = []
    sizes: list[int] = []
    steps: list[int] = []
    kept: list[int] = []  # extents of axes that stay, by the slices
    arrays: list[tuple[IndexArray, int, int]] = []
    array_places: list[int] = []  # positions in `sliced` of the axes with index arrays
    slice_places: list[int] = []
    before_shape: list[int] = []  # result axes of slices and None, in order
    fancy: list[int] = []  # how many result axes stand before each int or array
    for entry in entries:
        axis = len(starts)
        if entry is None:
            before_shape.append(1)
            continue
        if entry is Ellipsis:
            before_shape.append(-1)
            continue
        extent = x.shape[axis]
        if isinstance(entry, slice):
            start, stop, step = _bounds(entry, extent)
            size = max(-(-(stop - start) // step), 0)
            starts.append(start if size else 0)
            sizes.append(size)
            steps.append(step if size > 1 else 1)
            slice_places.append(len(kept))
            kept.append(size)
            before_shape.append(size)
            continue
        fancy.append(len(before_shape))
        if isinstance(entry, int):
            position = _static_int(x, entry, axis, mode)
            if position is not None:
                starts.append(position)
                sizes.append(1)
                steps.append(1)
                continue
            entry = np.asarray(min(max(entry, -1), extent))  # any place out of range
        elif mode == MODE_ERROR:
            check_static("getitem", entry, extent, axis)
        starts.append(0)
        sizes.append(extent)
        steps.append(1)
        array_places.append(len(kept))
        kept.append(extent)
        arrays.append((entry, extent, axis))
    gathered = _gathered_shape(x, arrays)
    together = not fancy or fancy[0] == fancy[-1]
    place = fancy[0] if together and fancy else 0
    lead = [extent for extent in before_shape[:place] if extent != -1]
    tail = [extent for extent in before_shape[place:] if extent != -1]
    shape = (*lead, *gathered, *tail)
    if not arrays:
        return Plan(
            tuple(starts), tuple(sizes), tuple(steps), tuple(kept), tuple(range(len(kept))),
            tuple(kept), None, (), (), shape,
        )  # fmt: skip
    front = [k for k in slice_places if k < array_places[0]] if together else []
    rest = [k for k in slice_places if k not in front]
    extent = math.prod(kept[k] for k in array_places)
    merged = (*(kept[k] for k in front), extent, *(kept[k] for k in rest))
    return Plan(
        tuple(starts), tuple(sizes), tuple(steps), tuple(kept),
        (*front, *array_places, *rest), merged, len(front), tuple(arrays), gathered, shape,
    )  # fmt: skip


def _bounds(entry: slice, extent: int) -> tuple[int, int, int]:
    try:
        return entry.indices(extent)
    except EffectTorchError:
        raise  # a bound without a value says so
    except TypeError:
        raise ArgumentError(
            f"slice bounds must be ints or None, got {entry}", "use et.dynamic_slice otherwise"
        ) from None
    except ValueError:
        raise ArgumentError("a slice has step 0", "use a step other than 0") from None


def _gathered_shape(x: Array, arrays: Sequence[tuple[IndexArray, int, int]]) -> Shape:
    if not arrays:
        return ()
    name = f"index arrays of {describe(x)}"
    return base.broadcast_shapes(name, *(tuple(entry.shape) for entry, _, _ in arrays))


def positions(steps: Plan, mode: int = MODE_ERROR) -> Array:
    """Return the positions, int64, along the merged axis of a plan.

    With several index arrays each is checked or clipped here; mode "fill" gives the extent of the
    merged axis for what is out of range in one of them.
    """
    single = len(steps.arrays) == 1
    total: Array | None = None
    inside: Array | None = None
    stride = 1
    for entry, extent, axis in reversed(steps.arrays):
        array = _index_values(entry, extent, mode)
        require_elements("getitem", array, extent, axis, mode)
        if single:
            return array  # the gather itself checks, clips or fills
        if mode == MODE_FILL:
            valid = in_range(array, extent)
            inside = valid if inside is None else _f.logical_and(inside, valid)
        limit = MODE_ERROR if mode == MODE_ERROR else MODE_CLIP
        place = bind(CHECK_INDEX, (array,), CheckIndexParams(extent, axis, limit))
        if stride != 1:
            place = _f.multiply(place, stride)
        total = place if total is None else _f.add(place, total)
        stride *= extent
    assert total is not None
    if inside is not None:
        total = _f.where(inside, total, stride)
    return broadcast_to(total, steps.gathered)


def _index_values(entry: IndexArray, extent: int, mode: int) -> Array:
    """One index array; of a static one, which was checked, the negative elements are wrapped."""
    if isinstance(entry, Array):
        return entry
    values = np.minimum(entry, np.asarray(2**62, np.uint64)) if entry.dtype == np.uint64 else entry
    values = values.astype(np.int64)
    return _f.array(np.where(values < 0, values + extent, values) if mode == MODE_ERROR else values)


def read_plan(x: Array, steps: Plan) -> Array:
    """Return what a plan reads before its gather: the slice with merged axes."""
    part = reshape(slice_(x, steps.starts, steps.sizes, steps.steps), steps.sliced)
    return reshape(transpose(part, steps.order), steps.merged)


def take_mode(steps: Plan, mode: int = MODE_ERROR) -> int:
    """The mode of a plan's gather: several index arrays were checked one by one before."""
    if mode != MODE_ERROR:
        return mode
    single = len(steps.arrays) == 1 and isinstance(steps.arrays[0][0], Array)
    return MODE_ERROR if single else MODE_CLIP


def getitem(x: Array, index: Any, mode: int = MODE_ERROR, fill_value: Any = None) -> Array:
    """Return `x[index]`: ints, slices, None, an ellipsis, integer arrays and masks, as NumPy.

    An int out of range is an `IndexOutOfBoundsError` at the call, an element of an array at run
    time; slices clip. A mask needs a known value. Another `mode` clips what is out of range to the
    nearest element, or reads `fill_value` there (by default NaN for floats, else 0).
    """
    steps = plan(x, index, mode)
    part = read_plan(x, steps)
    if steps.axis is not None:
        where = positions(steps, mode)
        extent = steps.merged[steps.axis]
        if where.size == 0 and extent == 0:
            part = _f.zeros(steps.taken, x.dtype)
        else:
            params = TakeParams(steps.axis, 0, take_mode(steps, mode))
            part = bind(TAKE, (part, where), params)
        if mode == MODE_FILL and fill_value is not None:
            rest = len(steps.merged) - steps.axis - 1
            valid = reshape(in_range(where, extent), (*where.shape, *(1,) * rest))
            part = _f.where(valid, part, operands("at.get", part, fill_value)[1])
    return reshape(part, steps.shape)
