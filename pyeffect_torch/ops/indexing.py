"""Gathers: the ops `take` and `take_along_axis`, and the functions over them.

`take` reads whole slices at the positions of an index array; `take_along_axis` reads single
elements. Their transposes, the scatters, are in `scatter.py`. Out of range is an error by default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.core.op import Affine, Domain, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, normalize_axis, operand, require_integer
from pyeffect_torch.ops.index_base import (
    all_batched,
    blank,
    check_static,
    draw_index,
    in_range,
    index_operand,
    mode_number,
    require_elements,
    resolve_positions,
    zeros_of,
)
from pyeffect_torch.ops.parameters import (
    KIND_ADD,
    MODE_CLIP,
    MODE_ERROR,
    MODE_FILL,
    MODE_STRICT,
    AlongParams,
    ScatterAlongParams,
    ScatterParams,
    TakeParams,
)
from pyeffect_torch.ops.shape import broadcast_to, moveaxis, reshape

__all__ = ["gather", "take", "take_along_axis"]

_f: Any = late.functions


def _exact(sample: Sample) -> float:
    del sample
    return 0.0


# --- take


def take_shape(x: Array, index: Array, axis: int, batch_dims: int) -> Shape:
    """The result shape of `take`: the index axes behind `batch_dims` in place of `axis`."""
    return (*x.shape[:axis], *index.shape[batch_dims:], *x.shape[axis + 1 :])


def _take_infer(inputs: tuple[Array, ...], params: TakeParams) -> Any:
    x, index = inputs
    check_take("take", x, index, params.axis, params.batch_dims, params.mode)
    return take_shape(x, index, params.axis, params.batch_dims), x.dtype


def check_take(name: str, x: Array, index: Array, axis: int, batch_dims: int, mode: int) -> None:
    """Raise unless an array and an index fit each other; shared with `scatter`."""
    require_integer(name, index)
    if index.shape[:batch_dims] != x.shape[:batch_dims] or axis < batch_dims:
        raise ShapeError(
            f"{name}: {describe(x)} and the index {describe(index)} do not share {batch_dims} "
            f"leading axes before axis {axis}",
            "give both the same batch axes",
        )
    require_elements(name, index, x.shape[axis], axis, mode)


def take_zero(x: Array, index: Array, axis: int, batch_dims: int, mode: int) -> Array:
    """As `take`, but mode "fill" reads 0 out of range: the transpose of a scatter."""
    if mode != MODE_FILL:
        return bind(TAKE, (x, index), TakeParams(axis, batch_dims, mode))
    shape = take_shape(x, index, axis, batch_dims)
    extent = x.shape[axis]
    if extent == 0:
        return broadcast_to(literal(0, x.dtype), shape)
    rows = bind(TAKE, (x, index), TakeParams(axis, batch_dims, MODE_CLIP))
    count = len(index.shape) - batch_dims
    spread = (
        *index.shape[:batch_dims],
        *(1,) * (axis - batch_dims),
        *index.shape[batch_dims:],
        *(1,) * (len(shape) - axis - count),
    )
    valid = reshape(in_range(index, extent), spread)
    return _f.where(valid, rows, literal(0, x.dtype))


def _take_transpose(node: Array, j: int, ct: Array) -> Array:
    del j
    x, index = node.inputs
    axis, shared, mode = node.params
    params = ScatterParams(axis, shared, mode, KIND_ADD)
    return _f.scatter_general(zeros_of(x), index, ct, params)


def _take_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    del size
    x, index = inputs
    axis, shared, mode = node.params
    if all(batched):
        return bind(TAKE, (x, index), TakeParams(axis + 1, shared + 1, mode))
    if batched[0]:
        # behind the shared axes the batch axis is one more axis before the taken one
        rows = bind(TAKE, (moveaxis(x, 0, shared), index), TakeParams(axis + 1, shared, mode))
        return moveaxis(rows, shared, 0)
    rows = bind(TAKE, (x, moveaxis(index, 0, shared)), TakeParams(axis, shared, mode))
    return moveaxis(rows, axis, 0)


def _take_reference(attributes: Any, x: Any, index: Any) -> Any:
    axis, shared = attributes["axis"], attributes["batch_dims"]
    position, valid = resolve_positions("take", index, x.shape[axis], axis, attributes["mode"])
    lead = x.shape[:shared]
    shape = (*x.shape[:axis], *index.shape[shared:], *x.shape[axis + 1 :])
    fill = blank(x.dtype)
    if x.shape[axis] == 0:
        return np.full(shape, fill, x.dtype)
    rows = x.reshape((math.prod(lead), *x.shape[shared:]))
    where = position.reshape((math.prod(lead), *index.shape[shared:]))
    kept = valid.reshape(where.shape)
    out = np.empty((math.prod(lead), *shape[shared:]), x.dtype)
    for row in range(out.shape[0]):
        taken = np.take(rows[row], where[row], axis - shared)
        tail = (1,) * (x.ndim - axis - 1)
        out[row] = np.where(kept[row].reshape((*kept[row].shape, *tail)), taken, fill)
    return out.reshape(shape)


TAKE_CASES: Final[tuple[tuple[Shape, Shape, int, int], ...]] = (
    ((5,), (), 0, 0), ((5,), (3,), 0, 0), ((5,), (0,), 0, 0), ((5,), (2, 3), 0, 0),
    ((1,), (4,), 0, 0), ((0,), (0,), 0, 0), ((4, 3), (2,), 0, 0), ((4, 3), (2,), 1, 0),
    ((4, 3), (), 1, 0), ((4, 3), (2, 2), 0, 0), ((0, 3), (2,), 1, 0), ((2, 3, 4), (5,), 1, 0),
    ((2, 3, 4), (2, 2), 2, 0), ((2, 3), (2, 4), 1, 1), ((2, 3), (2,), 1, 1),
    ((2, 3, 4), (2, 5), 2, 1), ((2, 3, 4), (2, 5), 1, 1), ((2, 3, 4), (2, 3), 2, 2),
    ((2, 3, 4), (2, 3, 2, 2), 2, 2), ((2, 0, 4), (2, 3), 2, 1), ((17, 2), (40,), 0, 0),
)  # fmt: skip
"""Shape, index shape, axis, batch_dims."""


def _take_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample(
            (
                domains.draw(rng, shape, dtype, -9.0, 9.0),
                draw_index(rng, index, shape[axis], mode, k),
            ),
            TakeParams(axis, shared, mode),
        )
        for k, (shape, index, axis, shared) in enumerate(TAKE_CASES)
        for mode in (MODE_ERROR, MODE_CLIP, MODE_FILL, MODE_STRICT)
    ]


TAKE: Final = declare(
    "take",
    infer=_take_infer,
    derivative=Affine(
        lambda node, j, t: take_zero(t, node.inputs[1], *node.params), _take_transpose
    ),
    batch=_take_batch,
    reference=_take_reference,
    domain=Domain(domains.EVERY, _take_samples, _exact),
    opcode="take",
    attributes=lambda node: node.params._asdict(),
    traits=("may_fail",),
    unsafe=(1,),
)


def take(x: Any, index: Any, axis: int | None = None, *, mode: str = "error") -> Array:
    """Return the slices of `x` at the positions `index` along an axis.

    Args:
        x: any array.
        index: integers of any dtype and shape; they replace the axis in the result's shape.
        axis: None takes from the flattened array.
        mode: "error": out of range is an `IndexOutOfBoundsError`, negative counts from the end.
            "clip": to the nearest element, negative to the first. "fill": NaN, or 0 for integers,
            also for negative ones.
    """
    x = operand("take", x)
    number = mode_number("take", mode)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normalize_axis("take", axis, len(x.shape))
    if number == MODE_ERROR:
        check_static("take", index, x.shape[axis], axis)
    return bind(TAKE, (x, index_operand("take", index)), TakeParams(axis, 0, number))


# --- take_along_axis


def check_along(name: str, x: Array, index: Array, axis: int, mode: int) -> None:
    """Raise unless the index has the rank of the array and its extents except on `axis`."""
    require_integer(name, index)
    rank = len(x.shape)
    fits = len(index.shape) == rank and all(
        index.shape[k] == x.shape[k] for k in range(rank) if k != axis
    )
    if not fits:
        raise ShapeError(
            f"{name}: the index {describe(index)} does not fit {describe(x)} along axis {axis}",
            "give it the same rank and the same extents on every other axis",
        )
    require_elements(name, index, x.shape[axis], axis, mode)


def _along_infer(inputs: tuple[Array, ...], params: AlongParams) -> Any:
    x, index = inputs
    check_along("take_along_axis", x, index, params.axis, params.mode)
    return index.shape, x.dtype


def along_zero(x: Array, index: Array, axis: int, mode: int) -> Array:
    """As `take_along_axis`, but mode "fill" reads 0 out of range."""
    if mode != MODE_FILL:
        return bind(TAKE_ALONG_AXIS, (x, index), AlongParams(axis, mode))
    if x.shape[axis] == 0:
        return broadcast_to(literal(0, x.dtype), index.shape)
    taken = bind(TAKE_ALONG_AXIS, (x, index), AlongParams(axis, MODE_CLIP))
    return _f.where(in_range(index, x.shape[axis]), taken, literal(0, x.dtype))


def _along_transpose(node: Array, j: int, ct: Array) -> Array:
    del j
    x, index = node.inputs
    axis, mode = node.params
    params = ScatterAlongParams(axis, mode, KIND_ADD)
    return _f.scatter_along_general(zeros_of(x), index, ct, params)


def _along_reference(attributes: Any, x: Any, index: Any) -> Any:
    axis = attributes["axis"]
    position, valid = resolve_positions(
        "take_along_axis", index, x.shape[axis], axis, attributes["mode"]
    )
    if x.shape[axis] == 0:
        return np.full(index.shape, blank(x.dtype), x.dtype)
    return np.where(valid, np.take_along_axis(x, position, axis), blank(x.dtype))


ALONG_CASES: Final[tuple[tuple[Shape, int, int], ...]] = (
    ((5,), 0, 3), ((5,), 0, 0), ((5,), 0, 9), ((1,), 0, 4), ((0,), 0, 0), ((4, 3), 0, 2),
    ((4, 3), 1, 2), ((4, 3), 1, 3), ((4, 3), 0, 6), ((0, 3), 1, 2), ((2, 3, 4), 0, 3),
    ((2, 3, 4), 1, 1), ((2, 3, 4), 2, 5), ((2, 0, 4), 2, 3), ((1, 4, 1), 1, 4),
    ((17, 2), 0, 20), ((33, 5), 1, 1), ((2, 1, 3, 2), 2, 3), ((2, 1, 3, 2), 3, 1),
    ((3, 1), 1, 2),
)  # fmt: skip
"""Shape, axis, extent of the index on that axis."""


def along_index(rng: np.random.Generator, case: tuple[Shape, int, int], mode: int, k: int) -> Any:
    """Draw an index for `take_along_axis` and `scatter_along_axis`."""
    shape, axis, count = case
    index_shape = (*shape[:axis], count, *shape[axis + 1 :])
    return draw_index(rng, index_shape, shape[axis], mode, k)


def _along_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample(
            (domains.draw(rng, case[0], dtype, -9.0, 9.0), along_index(rng, case, mode, k)),
            AlongParams(case[1], mode),
        )
        for k, case in enumerate(ALONG_CASES)
        for mode in (MODE_ERROR, MODE_CLIP, MODE_FILL, MODE_STRICT)
    ]


TAKE_ALONG_AXIS: Final = declare(
    "take_along_axis",
    infer=_along_infer,
    derivative=Affine(
        lambda node, j, t: along_zero(t, node.inputs[1], *node.params), _along_transpose
    ),
    batch=lambda node, inputs, batched, size: bind(
        TAKE_ALONG_AXIS,
        all_batched(inputs, batched, size),
        node.params._replace(axis=node.params.axis + 1),
    ),
    reference=_along_reference,
    domain=Domain(domains.EVERY, _along_samples, _exact),
    opcode="take_along_axis",
    attributes=lambda node: node.params._asdict(),
    traits=("may_fail",),
    unsafe=(1,),
)


def take_along_axis(x: Any, index: Any, axis: int | None, *, mode: str = "error") -> Array:
    """Return `x[.., index[.., k, ..], ..]`: one element of the axis for each index.

    Args:
        index: integers of the rank of `x`; on other axes the two broadcast against each other.
        axis: None reads from the flattened array with a vector of indices.
        mode: as for `take`.
    """
    x = operand("take_along_axis", x)
    number = mode_number("take_along_axis", mode)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normalize_axis("take_along_axis", axis, len(x.shape))
    if number == MODE_ERROR:
        check_static("take_along_axis", index, x.shape[axis], axis)
    index = index_operand("take_along_axis", index)
    if len(index.shape) == len(x.shape):
        shape = list(_f.broadcast_shapes(_without(x.shape, axis), _without(index.shape, axis)))
        x = broadcast_to(x, (*shape[:axis], x.shape[axis], *shape[axis:]))
        index = broadcast_to(index, (*shape[:axis], index.shape[axis], *shape[axis:]))
    return bind(TAKE_ALONG_AXIS, (x, index), AlongParams(axis, number))


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def gather(x: Any, index: Any, axis: int = 0, *, mode: str = "error") -> Array:
    """Return `x` read along an axis at `index`, in the shape of `index`.

    Args:
        index: integers of the rank of `x`, no larger than `x` on the other axes; row r of the
            index reads row r of `x`.

    Raises:
        ShapeError: ranks differ, or the index is larger on another axis.
    """
    x = operand("gather", x)
    axis = normalize_axis("gather", axis, len(x.shape))
    if mode_number("gather", mode) == MODE_ERROR:
        check_static("gather", index, x.shape[axis], axis)
    index = index_operand("gather", index)
    sizes = [x.shape[k] if k == axis else n for k, n in enumerate(index.shape)]
    if len(sizes) != len(x.shape) or any(
        n > extent for n, extent in zip(sizes, x.shape, strict=True)
    ):
        raise ShapeError(
            f"gather: the index {describe(index)} does not fit {describe(x)} along axis {axis}",
            "give it the same rank, and no larger extents on other axes",
        )
    rank = len(sizes)
    return take_along_axis(_f.slice(x, (0,) * rank, sizes, (1,) * rank), index, axis, mode=mode)
