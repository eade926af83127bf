"""Slices at positions known only at run time, and the ops that check values at run time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import (
    DTypeError,
    ExecutionError,
    IndexOutOfBoundsError,
    ShapeError,
)
from pyeffect_torch.core.op import Affine, Domain, Linear, Nondiff, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand, require_integer, shape_of
from pyeffect_torch.ops.checks import NO_LABEL, check_texts
from pyeffect_torch.ops.index_base import (
    all_batched,
    check_static,
    draw_index,
    index_operand,
    require_elements,
    resolve_positions,
    zeros_of,
)
from pyeffect_torch.ops.indexing import TAKE
from pyeffect_torch.ops.options import require_sequence
from pyeffect_torch.ops.parameters import (
    KIND_SET,
    MODE_CLIP,
    MODE_ERROR,
    MODE_STRICT,
    CheckIndexParams,
    ScatterParams,
    TakeParams,
)
from pyeffect_torch.ops.pieces import concatenate
from pyeffect_torch.ops.shape import broadcast_to, reshape

__all__ = ["dynamic_slice", "dynamic_update_slice"]

_f: Any = late.functions


def _exact(sample: Sample) -> float:
    del sample
    return 0.0


# --- dynamic_slice and dynamic_update_slice


def _check_starts(name: str, x: Array, starts: Array, sizes: Shape) -> None:
    if starts.dtype is not dtypes.int64 or starts.shape != (len(x.shape),):
        raise ShapeError(
            f"{name}: the starts {describe(starts)} must be int64[{len(x.shape)}] for "
            f"{describe(x)}",
            "pass one start for each axis",
        )
    if len(sizes) != len(x.shape) or any(
        size > extent for size, extent in zip(sizes, x.shape, strict=True)
    ):
        raise ShapeError(
            f"{name}: a window of {list(sizes)} does not fit {describe(x)}",
            "use one size for each axis, no larger than its extent",
        )


def _slice_infer(inputs: tuple[Array, ...], params: Shape) -> Any:
    x, starts = inputs
    _check_starts("dynamic_slice", x, starts, params)
    return params, x.dtype


def _update_infer(inputs: tuple[Array, ...], params: Any) -> Any:
    del params
    x, update, starts = inputs
    if x.dtype is not update.dtype:
        raise mixed_dtypes("dynamic_update_slice", x, update)
    _check_starts("dynamic_update_slice", x, starts, update.shape)
    return x.shape, x.dtype


def _with_batch_start(starts: Array) -> Array:
    zero = broadcast_to(literal(0, dtypes.int64), (1,))
    return concatenate([zero, starts])


def _window_positions(starts: Array, shape: Shape, sizes: Shape) -> Array:
    """Positions in the flattened array of each window element: `[batch, window size]`.

    `starts` is `[batch, rank]`; every start is checked against its axis.
    """
    rows = starts.shape[0]
    rank = len(shape)
    total = reshape(broadcast_to(literal(0, dtypes.int64), (rows,)), (rows, *(1,) * rank))
    stride = 1
    for axis in reversed(range(rank)):
        start = reshape(_f.slice(starts, (0, axis), (rows, 1), (1, 1)), (rows,))
        room = shape[axis] - sizes[axis] + 1
        start = bind(CHECK_INDEX, (start,), CheckIndexParams(room, axis, MODE_STRICT))
        offset = [1] * (rank + 1)
        offset[axis + 1] = sizes[axis]
        place = _f.add(
            reshape(start, (rows, *(1,) * rank)), reshape(_f.arange(sizes[axis]), offset)
        )
        total = _f.add(total, _f.multiply(place, stride))
        stride *= shape[axis]
    return reshape(total, (rows, math.prod(sizes)))


def _slice_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    x, starts = inputs
    sizes: Shape = node.params
    if not batched[1]:
        return bind(DYNAMIC_SLICE, (x, _with_batch_start(starts)), (size, *sizes))
    shape = x.shape[1:] if batched[0] else x.shape
    positions = _window_positions(starts, shape, sizes)
    if batched[0]:
        flat = reshape(x, (size, math.prod(shape)))
        taken = bind(TAKE, (flat, positions), TakeParams(1, 1, MODE_CLIP))
    else:
        flat = reshape(x, (math.prod(shape),))
        taken = bind(TAKE, (flat, positions), TakeParams(0, 0, MODE_CLIP))
    return reshape(taken, (size, *sizes))


def _update_batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> Array:
    x, update = all_batched(inputs[:2], batched[:2], size)
    starts = inputs[2]
    if not batched[2]:
        return bind(DYNAMIC_UPDATE_SLICE, (x, update, _with_batch_start(starts)))
    positions = _window_positions(starts, x.shape[1:], update.shape[1:])
    flat = reshape(x, (size, math.prod(x.shape[1:])))
    values = reshape(update, positions.shape)
    params = ScatterParams(1, 1, MODE_CLIP, KIND_SET)
    return reshape(_f.scatter_general(flat, positions, values, params), x.shape)


def _window(x: Any, starts: Any, sizes: Sequence[int]) -> tuple[slice, ...]:
    window: list[slice] = []
    for axis, (start, size) in enumerate(zip(starts.tolist(), sizes, strict=True)):
        if not 0 <= start <= x.shape[axis] - size:
            raise IndexOutOfBoundsError(
                f"dynamic_slice: start {start} is out of range for axis {axis}: a window of {size} "
                f"in an extent of {x.shape[axis]}",
                f"use starts from 0 to {x.shape[axis] - size}",
            )
        window.append(slice(start, start + size))
    return tuple(window)


def _update_reference(attributes: Any, x: Any, update: Any, starts: Any) -> Any:
    del attributes
    out = np.array(x)
    out[_window(x, starts, update.shape)] = update
    return out


_WINDOWS: Final[tuple[tuple[Shape, Shape], ...]] = (
    ((), ()), ((5,), (5,)), ((5,), (2,)), ((5,), (0,)), ((0,), (0,)), ((1,), (1,)),
    ((2, 3), (2, 3)), ((2, 3), (1, 2)), ((2, 3), (2, 1)), ((2, 3), (0, 3)), ((0, 3), (0, 2)),
    ((4, 5), (2, 2)), ((4, 5), (1, 5)), ((2, 3, 4), (1, 2, 3)), ((2, 3, 4), (2, 3, 1)),
    ((2, 0, 4), (1, 0, 2)), ((1, 4, 1), (1, 2, 1)), ((17,), (16,)), ((33, 5), (8, 5)),
    ((2, 1, 3, 2), (1, 1, 2, 2)),
)  # fmt: skip


def _draw_starts(rng: np.random.Generator, shape: Shape, sizes: Shape) -> Any:
    rooms = [n - size + 1 for n, size in zip(shape, sizes, strict=True)]
    return np.array([rng.integers(0, room) for room in rooms], np.int64)


def _slice_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample((domains.draw(rng, shape, dtype, -9.0, 9.0), _draw_starts(rng, shape, sizes)), sizes)
        for shape, sizes in _WINDOWS
    ]


def _update_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample(
            (
                domains.draw(rng, shape, dtype, -9.0, 9.0),
                domains.draw(rng, sizes, dtype, -9.0, 9.0),
                _draw_starts(rng, shape, sizes),
            )
        )
        for shape, sizes in _WINDOWS
    ]


def _update(x: Array, update: Array, starts: Array) -> Array:
    return bind(DYNAMIC_UPDATE_SLICE, (x, update, starts))


DYNAMIC_SLICE: Final = declare(
    "dynamic_slice",
    infer=_slice_infer,
    derivative=Linear(lambda node, ct: _update(zeros_of(node.inputs[0]), ct, node.inputs[1])),
    batch=_slice_batch,
    reference=lambda attributes, x, starts: x[_window(x, starts, attributes["sizes"])],
    domain=Domain(domains.EVERY, _slice_samples, _exact),
    opcode="dynamic_slice",
    attributes=lambda node: {"sizes": node.params},
    traits=("may_fail",),
    unsafe=(1,),
)
DYNAMIC_UPDATE_SLICE: Final = declare(
    "dynamic_update_slice",
    infer=_update_infer,
    derivative=Affine(
        lambda node, j, t: (
            _update(t, zeros_of(node.inputs[1]), node.inputs[2])
            if j == 0
            else _update(zeros_of(node.inputs[0]), t, node.inputs[2])
        ),
        lambda node, j, ct: (
            _update(ct, zeros_of(node.inputs[1]), node.inputs[2])
            if j == 0
            else bind(DYNAMIC_SLICE, (ct, node.inputs[2]), node.inputs[1].shape)
        ),
    ),
    batch=_update_batch,
    reference=_update_reference,
    domain=Domain(domains.EVERY, _update_samples, _exact),
    opcode="dynamic_update_slice",
    traits=("may_fail",),
    unsafe=(2,),
)


def start_vector(name: str, starts: Any, rank: int) -> Array:
    """Return start positions as int64 [rank]: from one array, or a sequence of ints and arrays.

    Ints become embedded constants, so the result belongs to no runtime of its own.
    """
    if isinstance(starts, (Array, np.ndarray)):
        return _f.cast(index_operand(name, starts), dtypes.int64)
    parts: list[Array] = []
    for start in require_sequence(name, starts, "the starts"):
        value = index_operand(name, start)
        if value.shape:
            raise ShapeError(
                f"{name}: a start must have shape [], got {describe(value)}", "index it"
            )
        parts.append(reshape(_f.cast(value, dtypes.int64), (1,)))
    if len(parts) != rank:
        raise ShapeError(f"{name}: {len(parts)} starts for {rank} axes", "pass one for each axis")
    return concatenate(parts) if parts else broadcast_to(literal(0, dtypes.int64), (0,))


def dynamic_slice(x: Any, starts: Any, sizes: Any) -> Array:
    """Return the window of `sizes` elements whose first element is at `starts`.

    Args:
        starts: integers, an array [rank] or one int or 0-d array for each axis.
        sizes: static ints, one for each axis.

    Raises:
        IndexOutOfBoundsError: at run time, a window that leaves the array (nothing is clamped,
            and a negative start is refused).
    """
    x = operand("dynamic_slice", x)
    window = shape_of("dynamic_slice", sizes)
    vector = start_vector("dynamic_slice", starts, len(x.shape))
    return bind(DYNAMIC_SLICE, (x, vector), window)


def dynamic_update_slice(x: Any, update: Any, starts: Any) -> Array:
    """Return `x` with the window at `starts` replaced by `update`.

    Args:
        update: of the dtype and rank of `x`, no larger on any axis.
        starts: as for `dynamic_slice`; the same errors.
    """
    x = operand("dynamic_update_slice", x)
    update = operand("dynamic_update_slice", update)
    return _update(x, update, start_vector("dynamic_update_slice", starts, len(x.shape)))


# --- checks


def _check_index_infer(inputs: tuple[Array, ...], params: CheckIndexParams) -> Any:
    (index,) = inputs
    require_integer("check_index", index)
    require_elements("check_index", index, params.extent, params.axis, params.mode)
    return index.shape, dtypes.int64


def _check_index_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample(
            (draw_index(rng, shape, 7, mode, 0).clip(min=np.iinfo(dtype).min).astype(dtype),),
            CheckIndexParams(7, len(shape), mode),
        )
        for shape in domains.SHAPES
        for mode in (MODE_ERROR, MODE_CLIP, MODE_STRICT)
    ]


CHECK_INDEX: Final = declare(
    "check_index",
    infer=_check_index_infer,
    derivative=Nondiff(),
    batch=lambda node, inputs, batched, size: bind(CHECK_INDEX, tuple(inputs), node.params),
    reference=lambda attributes, index: resolve_positions(
        "check_index", index, attributes["extent"], attributes["axis"], attributes["mode"]
    )[0],
    domain=Domain(domains.INTEGERS, _check_index_samples, _exact),
    opcode="check_index",
    attributes=lambda node: node.params._asdict(),
    traits=("may_fail",),
    unsafe=(0,),
)


def check_index(index: Any, extent: int, axis: int = 0) -> Array:
    """Return `index` as int64 in 0..extent-1, negative ones counted from the end.

    Raises:
        IndexOutOfBoundsError: an index outside -extent..extent-1: at the call if it is static,
            else at run time; `axis` is the axis that the error names.
    """
    check_static("check_index", index, extent, axis)
    return bind(CHECK_INDEX, (index_operand("check_index", index),), CheckIndexParams(extent, axis))


def _check_infer(inputs: tuple[Array, ...], params: int) -> Any:
    del params
    x, condition = inputs
    if condition.dtype is not dtypes.bool_ or condition.shape:
        raise DTypeError(
            f"check: the condition must be bool[], got {describe(condition)}", "reduce it with all"
        )
    return x.shape, x.dtype


def _check_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    x, condition = inputs
    if batched[1]:
        condition = _f.all(condition)
    checked = bind(CHECK, (x, condition), node.params)
    return checked if batched[0] else broadcast_to(checked, (size, *node.shape))


def _check_reference(attributes: Any, x: Any, condition: Any) -> Any:
    if not condition:
        raise ExecutionError(*check_texts(attributes["code"]))
    return x


CHECK: Final = declare(
    "check",
    infer=_check_infer,
    derivative=Linear(lambda node, ct: ct),
    batch=_check_batch,
    reference=_check_reference,
    domain=Domain(
        domains.EVERY,
        lambda rng, dtype: [
            Sample((domains.draw(rng, shape, dtype), np.array(True)), NO_LABEL)
            for shape in domains.SHAPES * 2
        ],
        _exact,
    ),
    opcode="check",
    attributes=lambda node: {"code": node.params},
    traits=("may_fail",),
    unsafe=(1,),
)


def check(x: Array, condition: Array, code: int) -> Array:
    """Return `x`, or fail at run time with an `ExecutionError` if the 0-d bool does not hold."""
    return bind(CHECK, (x, condition), code)
