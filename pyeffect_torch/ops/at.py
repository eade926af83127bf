"""`x.at[index]`: what an assignment to `x[index]` would give, as a new array.

The plan of the index (`getitem.py`) is run backwards: a gather becomes a scatter, a slice a window
that is written. A boolean mask becomes a `where`, so it may be traced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.ops.base import describe, operands
from pyeffect_torch.ops.dynamic import DYNAMIC_UPDATE_SLICE, start_vector
from pyeffect_torch.ops.getitem import Plan, getitem, plan, positions, read_plan, take_mode
from pyeffect_torch.ops.index_base import mode_number
from pyeffect_torch.ops.parameters import KINDS, MODE_FILL, ScatterParams
from pyeffect_torch.ops.pieces import place
from pyeffect_torch.ops.scatter import scatter_general
from pyeffect_torch.ops.shape import (
    broadcast_to,
    inverse_permutation,
    reshape,
    transpose,
)

__all__ = []

_f: Any = late.functions


class At:
    """`x.at`; index it: `x.at[index]`."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> AtIndex:
        return AtIndex(self._array, index)


class AtIndex:
    """`x.at[index]`: functional updates of the elements that the index names.

    Values broadcast to the shape of `x[index]` and have the dtype of `x` (a Python number takes
    it). With an index array that names an element twice, `add` and the like count both, and of
    several `set` the last one stays. An index out of range is an error; with `mode="clip"` it names
    the nearest element, and with "drop" (or "fill") none.
    """

    __slots__ = ("_array", "_index")

    def __init__(self, array: Array, index: Any) -> None:
        self._array = array
        self._index = index

    def get(self, *, mode: str = "error", fill_value: Any = None) -> Array:
        """Return `x[index]`.

        Args:
            mode: "error", "clip" (to the nearest element) or "fill" for indices out of range;
                negative ones count from the end only for "error".
            fill_value: what "fill" reads out of range; by default NaN for floats, else 0.
        """
        return getitem(self._array, self._index, mode_number("at.get", mode), fill_value)

    def set(self, values: Any, *, mode: str = "error") -> Array:
        """Return `x` with the elements replaced by `values`."""
        return _update(self._array, self._index, values, "set", mode)

    def add(self, values: Any, *, mode: str = "error") -> Array:
        """Return `x` with `values` added to the elements."""
        return _update(self._array, self._index, values, "add", mode)

    def multiply(self, values: Any, *, mode: str = "error") -> Array:
        """Return `x` with the elements multiplied by `values`."""
        return _update(self._array, self._index, values, "multiply", mode)

    def mul(self, values: Any, *, mode: str = "error") -> Array:
        """The same as `multiply`."""
        return self.multiply(values, mode=mode)

    def min(self, values: Any, *, mode: str = "error") -> Array:
        """Return `x` with the elements replaced by their minimum with `values`."""
        return _update(self._array, self._index, values, "min", mode)

    def max(self, values: Any, *, mode: str = "error") -> Array:
        """Return `x` with the elements replaced by their maximum with `values`."""
        return _update(self._array, self._index, values, "max", mode)


def _combine(old: Array, values: Array, kind: str) -> Array:
    if kind == "set":
        return values
    if kind == "add":
        return _f.add(old, values)
    if kind == "multiply":
        return _f.multiply(old, values)
    return _f.maximum(old, values) if kind == "max" else _f.minimum(old, values)


def _update(x: Array, index: Any, values: Any, kind: str, mode: str) -> Array:
    name = f"at.{kind}"
    number = MODE_FILL if mode == "drop" else mode_number(name, mode)
    x, values = operands(name, x, values, convert_scalars=False)
    mask = _as_mask(index)
    if mask is not None:
        return _masked(name, x, mask, values, kind)
    steps = plan(x, index, number)
    if len(values.shape) > len(steps.shape):
        extra = len(values.shape) - len(steps.shape)
        if values.shape[:extra] != (1,) * extra:
            raise _unfit(name, x, values, steps)
        values = reshape(values, values.shape[extra:])
    for extent, full in zip(reversed(values.shape), reversed(steps.shape), strict=False):
        if extent not in (1, full):
            raise _unfit(name, x, values, steps)
    updates = reshape(broadcast_to(values, steps.shape), steps.taken)
    part = read_plan(x, steps)
    if steps.axis is None:
        part = _combine(part, updates, kind)
    elif updates.size:
        params = ScatterParams(steps.axis, 0, take_mode(steps, number), KINDS[kind])
        part = scatter_general(part, positions(steps, number), updates, params)
    return _write(x, part, steps)


def _unfit(name: str, x: Array, values: Array, steps: Plan) -> ShapeError:
    return ShapeError(
        f"{name}: values {describe(values)} do not broadcast to the {list(steps.shape)} elements "
        f"that the index names in {describe(x)}",
        "give the values the shape of x[index]",
    )


def _as_mask(index: Any) -> Array | None:
    """Return an index that is one boolean mask over leading axes as an array, else None."""
    if isinstance(index, Array) and index.dtype is dtypes.bool_:
        return index
    if isinstance(index, np.ndarray) and index.dtype == np.bool_ and index.ndim:
        return _f.array(index)
    return None


def _masked(name: str, x: Array, mask: Array, values: Array, kind: str) -> Array:
    rank = len(mask.shape)
    if mask.shape != x.shape[:rank]:
        raise ShapeError(
            f"{name}: the mask {describe(mask)} does not fit the leading axes of {describe(x)}",
            "give the mask the extents of the axes that it indexes",
        )
    rest = x.shape[rank:]
    fits = len(values.shape) <= len(rest) and all(
        extent in (1, full)
        for extent, full in zip(reversed(values.shape), reversed(rest), strict=False)
    )
    if not fits:
        raise ShapeError(
            f"{name}: values {describe(values)} do not broadcast to the {list(rest)} elements "
            f"that each True of the mask names in {describe(x)}",
            "pass one value for all of them, or use et.where(mask, values, x)",
        )
    column = reshape(mask, (*mask.shape, *(1,) * len(rest)))
    return _f.where(column, _combine(x, values, kind), x)


def _write(x: Array, part: Array, steps: Plan) -> Array:
    """Return `x` with the slice of a plan replaced by `part`, which has the merged shape."""
    shape = tuple(steps.sliced[axis] for axis in steps.order)
    part = transpose(reshape(part, shape), inverse_permutation(steps.order))
    part = reshape(part, steps.sizes)
    if part.size == 0:
        return x
    ascending = _f.flip(part, [axis for axis, step in enumerate(steps.steps) if step == -1])
    if all(step in (1, -1) for step in steps.steps):
        starts = [
            start if step == 1 else start - size + 1
            for start, size, step in zip(steps.starts, steps.sizes, steps.steps, strict=True)
        ]
        if part.shape == x.shape:
            return ascending
        vector = start_vector("at", starts, len(starts))
        return bind(DYNAMIC_UPDATE_SLICE, (x, ascending, vector))
    inside = broadcast_to(literal(True, dtypes.bool_), part.shape)
    return _f.where(
        place(inside, x.shape, steps.starts, steps.steps),
        place(part, x.shape, steps.starts, steps.steps),
        x,
    )
