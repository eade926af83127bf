"""The ops `slice` and `pad`, each other's transposes, and `concatenate`.

`slice_`, `place` and `pad_general` take exact positions; what users call (`x[...]`, `split`, `pad`)
is built on them in `getitem.py` and `shape_extra.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.core.op import Affine, Domain, Linear, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, mixed_dtypes, normalize_axis, operand
from pyeffect_torch.ops.options import require_sequence
from pyeffect_torch.ops.parameters import PadParams, SliceParams
from pyeffect_torch.ops.shape import broadcast_to, reshape

__all__ = ["concatenate"]

_f: Any = late.functions


def _exact(sample: Sample) -> float:
    del sample
    return 0.0


def _draw(rng: np.random.Generator, shape: Shape, dtype: DType) -> Any:
    return domains.draw(rng, shape, dtype, -9.0, 9.0)


# --- slice and pad, each other's transposes


def _slice_infer(inputs: tuple[Array, ...], params: SliceParams) -> Any:
    x = inputs[0]
    for axis, extent in enumerate(x.shape):
        start, size, step = params.starts[axis], params.sizes[axis], params.steps[axis]
        last = start + (size - 1) * step
        if size and (step == 0 or not (0 <= start < extent and 0 <= last < extent)):
            raise ShapeError(
                f"slice: {size} elements from {start} by {step} leave axis {axis} of {describe(x)}",
                "keep the slice inside the axis",
            )
    return params.sizes, x.dtype


def _slice_transpose(node: Array, ct: Array) -> Array:
    params: SliceParams = node.params
    shape = node.inputs[0].shape
    return place(ct, shape, params.starts, params.steps)


def _slice_batch(node: Array, inputs: Sequence[Array], batched: Any, size: int) -> Array:
    del batched
    starts, sizes, steps = node.params
    return slice_(inputs[0], (0, *starts), (size, *sizes), (1, *steps))


def _slice_reference(attributes: Any, x: Any) -> Any:
    index = tuple(
        start + step * np.arange(size)
        for start, size, step in zip(
            attributes["starts"], attributes["sizes"], attributes["steps"], strict=True
        )
    )
    return x[np.ix_(*index)] if index else x


def _slice_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    cases: tuple[tuple[Shape, Shape, Shape, tuple[int, ...]], ...] = (
        ((), (), (), ()), ((5,), (0,), (5,), (1,)), ((5,), (1,), (3,), (1,)),
        ((5,), (4,), (5,), (-1,)), ((5,), (0,), (3,), (2,)), ((5,), (4,), (3,), (-2,)),
        ((5,), (3,), (2,), (-3,)), ((5,), (2,), (0,), (1,)), ((0,), (0,), (0,), (1,)),
        ((6,), (1,), (2,), (3,)), ((2, 3), (0, 1), (2, 2), (1, 1)),
        ((4, 5), (1, 0), (2, 3), (2, 2)), ((4, 5), (3, 4), (2, 2), (-2, -3)),
        ((4, 5), (1, 4), (3, 5), (1, -1)), ((4, 5), (2, 3), (1, 1), (1, 1)),
        ((2, 0, 3), (0, 0, 0), (2, 0, 2), (1, 1, 2)), ((2, 3, 4), (1, 2, 0), (1, 3, 4), (1, -1, 1)),
        ((2, 3, 4), (0, 0, 3), (2, 1, 2), (1, 1, -3)), ((17,), (1,), (8,), (2,)),
        ((33, 5), (30, 0), (4, 5), (-10, 1)), ((3, 3), (0, 0), (0, 3), (1, 1)),
    )  # fmt: skip
    return [
        Sample((_draw(rng, shape, dtype),), SliceParams(starts, sizes, steps))
        for shape, starts, sizes, steps in cases
    ]


SLICE: Final = declare(
    "slice",
    infer=_slice_infer,
    derivative=Linear(_slice_transpose),
    batch=_slice_batch,
    reference=_slice_reference,
    domain=Domain(domains.EVERY, _slice_samples, _exact),
    opcode="slice",
    attributes=lambda node: node.params._asdict(),
    traits=("view",),
)


def slice_(x: Array, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> Array:
    """Return `sizes[a]` elements of each axis a, from `starts[a]` by `steps[a]` (never 0)."""
    params = SliceParams(tuple(starts), tuple(sizes), tuple(steps))
    if params.sizes == x.shape and all(
        (start == 0 and step == 1) or extent == 0
        for start, step, extent in zip(params.starts, params.steps, x.shape, strict=True)
    ):
        return x
    return bind(SLICE, (x,), params)


def place(x: Array, shape: Shape, starts: Sequence[int], steps: Sequence[int]) -> Array:
    """Return zeros of `shape` with `x` where `slice_(zeros, starts, x.shape, steps)` reads."""
    low: list[int] = []
    high: list[int] = []
    interior: list[int] = []
    flipped: list[int] = []
    for axis, (extent, start, size, step) in enumerate(
        zip(shape, starts, x.shape, steps, strict=True)
    ):
        if size == 0:
            low.append(extent)
            high.append(0)
            interior.append(0)
            continue
        first, gap = start, step
        if step < 0:
            first, gap = start + (size - 1) * step, -step
            if size > 1:
                flipped.append(axis)
        gap = 1 if size == 1 else gap
        low.append(first)
        high.append(extent - first - (size - 1) * gap - 1)
        interior.append(gap - 1)
    return pad_general(_f.flip(x, flipped) if flipped else x, 0, low, high, interior)


def _pad_infer(inputs: tuple[Array, ...], params: PadParams) -> Any:
    x, value = inputs
    if value.shape:
        raise ShapeError(
            f"pad: the pad value must have shape [], got {describe(value)}", "pass one number"
        )
    if value.dtype is not x.dtype:
        raise mixed_dtypes("pad", x, value)
    shape = tuple(
        low + extent + max(extent - 1, 0) * interior + high
        for extent, low, high, interior in zip(x.shape, *params, strict=True)
    )
    return shape, x.dtype


def _is_padding(node: Array) -> Array:
    """Bool of the shape of a pad node (in its operand's own shape): True where it is padded."""
    inside = broadcast_to(literal(False, dtypes.bool_), node.inputs[0].shape)
    return pad_general(inside, True, *node.params)


def _pad_forward(node: Array, j: int, tangent: Array) -> Array:
    if j == 0:
        return pad_general(tangent, 0, *node.params)
    return _f.where(_is_padding(node), tangent, literal(0, tangent.dtype))


def _pad_transpose(node: Array, j: int, ct: Array) -> Array:
    params: PadParams = node.params
    if j == 0:
        steps = tuple(gap + 1 for gap in params.interior)
        return slice_(ct, params.low, node.inputs[0].shape, steps)
    return _f.sum(_f.where(_is_padding(node), ct, literal(0, ct.dtype)))


def _pad_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    x, value = inputs
    low, high, interior = node.params
    if batched[0]:
        low, high, interior = (0, *low), (0, *high), (0, *interior)
    if not batched[1]:
        return pad_general(x, value, low, high, interior)
    column = reshape(value, (size, *(1,) * len(node.shape)))
    return _f.where(_is_padding(node), column, pad_general(x, 0, low, high, interior))


def _pad_reference(attributes: Any, x: Any, value: Any) -> Any:
    low, high, interior = attributes["low"], attributes["high"], attributes["interior"]
    shape = [
        a + n + max(n - 1, 0) * gap + b
        for n, a, b, gap in zip(x.shape, low, high, interior, strict=True)
    ]
    out = np.full(shape, value, x.dtype)
    index = tuple(
        slice(a, a + max(n - 1, 0) * (gap + 1) + min(n, 1), gap + 1)
        for n, a, gap in zip(x.shape, low, interior, strict=True)
    )
    out[index] = x
    return out


def _pad_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    cases: tuple[tuple[Shape, Shape, Shape, Shape], ...] = (
        ((), (), (), ()), ((5,), (0,), (0,), (0,)), ((5,), (2,), (0,), (0,)),
        ((5,), (0,), (3,), (0,)), ((5,), (1,), (2,), (1,)), ((1,), (1,), (2,), (3,)),
        ((0,), (2,), (1,), (4,)), ((0,), (0,), (0,), (0,)), ((2, 3), (1, 0), (0, 2), (0, 0)),
        ((2, 3), (0, 0), (0, 0), (1, 2)), ((2, 3), (1, 1), (1, 1), (0, 1)),
        ((0, 3), (2, 1), (0, 0), (0, 1)), ((0, 3), (0, 1), (0, 1), (0, 0)),
        ((2, 3, 4), (0, 1, 0), (0, 1, 0), (0, 0, 0)), ((2, 3, 4), (1, 2, 3), (3, 2, 1), (1, 0, 2)),
        ((2, 0, 3), (1, 1, 1), (0, 1, 0), (0, 0, 0)), ((17,), (0,), (15,), (0,)),
        ((33, 5), (1, 3), (0, 0), (0, 0)), ((1, 4, 1), (0, 0, 2), (1, 0, 0), (3, 1, 0)),
        ((2, 1, 3, 2), (0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 0, 0)),
    )  # fmt: skip
    return [
        Sample((_draw(rng, shape, dtype), _draw(rng, (), dtype)), PadParams(low, high, interior))
        for shape, low, high, interior in cases
    ]


PAD: Final = declare(
    "pad",
    infer=_pad_infer,
    derivative=Affine(_pad_forward, _pad_transpose),
    batch=_pad_batch,
    reference=_pad_reference,
    domain=Domain(domains.EVERY, _pad_samples, _exact),
    opcode="pad",
    attributes=lambda node: node.params._asdict(),
)


def pad_general(
    x: Array, value: Any, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Array:
    """Return `x` with `value` (0-d) before, after and between the elements of each axis."""
    params = PadParams(tuple(low), tuple(high), tuple(interior))
    if not any(params.low) and not any(params.high) and not any(params.interior):
        return x
    if not isinstance(value, Array):
        value = literal(value, x.dtype)
    return bind(PAD, (x, value), params)


# --- concatenate


def _concatenate_infer(inputs: tuple[Array, ...], axis: int) -> Any:
    first = inputs[0]
    total = 0
    for array in inputs:
        if array.dtype is not first.dtype:
            raise mixed_dtypes("concatenate", first, array)
        if len(array.shape) != len(first.shape) or (
            array.shape[:axis] != first.shape[:axis]
            or array.shape[axis + 1 :] != first.shape[axis + 1 :]
        ):
            raise ShapeError(
                f"concatenate: {describe(first)} and {describe(array)} differ on an axis other "
                f"than {axis}",
                "reshape or slice them to equal extents",
            )
        total += array.shape[axis]
    return (*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype


def _offset(node: Array, j: int) -> int:
    return sum(array.shape[node.params] for array in node.inputs[:j])


def _concatenate_forward(node: Array, j: int, tangent: Array) -> Array:
    starts = [0] * len(node.shape)
    starts[node.params] = _offset(node, j)
    return place(tangent, node.shape, starts, [1] * len(node.shape))


def _concatenate_transpose(node: Array, j: int, ct: Array) -> Array:
    starts = [0] * len(node.shape)
    starts[node.params] = _offset(node, j)
    return slice_(ct, starts, node.inputs[j].shape, [1] * len(node.shape))


def _concatenate_batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> Array:
    rows = [
        array if is_batched else broadcast_to(array, (size, *array.shape))
        for array, is_batched in zip(inputs, batched, strict=True)
    ]
    return bind(CONCATENATE, tuple(rows), node.params + 1)


def _concatenate_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    cases: tuple[tuple[tuple[Shape, ...], int], ...] = (
        (((5,),), 0), (((5,), (3,)), 0), (((0,), (3,)), 0), (((0,), (0,)), 0),
        (((1,), (1,), (1,)), 0), (((2, 3), (2, 3)), 0), (((2, 3), (2, 3)), 1),
        (((2, 3), (4, 3)), 0), (((2, 3), (2, 1)), 1), (((2, 3), (0, 3), (1, 3)), 0),
        (((0, 3), (0, 2)), 1), (((2, 3, 4), (2, 3, 4)), 2), (((2, 3, 4), (2, 1, 4)), 1),
        (((2, 3, 4), (1, 3, 4), (3, 3, 4)), 0), (((2, 0, 3), (2, 2, 3)), 1), (((17,), (16,)), 0),
        (((33, 5), (33, 3)), 1), (((1, 4, 1), (1, 4, 2)), 2), (((2, 1, 3, 2),) * 4, 1),
        (((2, 2),) * 9, 0),
    )  # fmt: skip
    return [
        Sample(tuple(_draw(rng, shape, dtype) for shape in shapes), axis) for shapes, axis in cases
    ]


CONCATENATE: Final = declare(
    "concatenate",
    infer=_concatenate_infer,
    derivative=Affine(_concatenate_forward, _concatenate_transpose),
    batch=_concatenate_batch,
    reference=lambda attributes, *arrays: np.concatenate(arrays, attributes["axis"]),
    domain=Domain(domains.EVERY, _concatenate_samples, _exact),
    opcode="concatenate",
    attributes=lambda node: {"axis": node.params},
)


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Array:
    """Return the arrays joined along an existing axis.

    Args:
        arrays: one or more arrays of one dtype, equal in shape except on `axis`.
        axis: negative counts from the end; None joins them flattened.

    Raises:
        ShapeError: other extents differ, rank 0, or no array. DTypeError: mixed dtypes.
    """
    parts = tuple(
        operand("concatenate", array) for array in require_sequence("concatenate", arrays, "arrays")
    )
    if not parts:
        raise ShapeError("concatenate: no array to join", "pass one array at least")
    if axis is None:
        parts = tuple(reshape(part, (part.size,)) for part in parts)
        axis = 0
    if not parts[0].shape:
        raise ShapeError(
            f"concatenate: {describe(parts[0])} has no axis to join along", "use stack"
        )
    axis = normalize_axis("concatenate", axis, len(parts[0].shape))
    return parts[0] if len(parts) == 1 else bind(CONCATENATE, parts, axis)
