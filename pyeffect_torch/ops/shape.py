"""Shapes: the ops `reshape`, `transpose` and `broadcast_to`, and functions that are one of them.

Taking elements out and putting them together is in `pieces.py`; what is made of several ops
(tile, roll, ...) in `shape_extra.py`. Calls that change nothing return their argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.core.op import Domain, Linear, Sample, Shape, declare
from pyeffect_torch.ops import base, domains
from pyeffect_torch.ops.base import describe, normalize_axes, normalize_axis, operand, shape_of
from pyeffect_torch.ops.options import require_int

__all__ = [
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "expand_dims",
    "flatten",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "ravel",
    "reshape",
    "squeeze",
    "swapaxes",
    "transpose",
    "unsqueeze",
]

_f: Any = late.functions


def _exact(sample: Sample) -> float:
    del sample
    return 0.0


def _draw(rng: np.random.Generator, shape: Shape, dtype: DType) -> Any:
    return domains.draw(rng, shape, dtype, -9.0, 9.0)


# --- reshape


def _reshape_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    cases: tuple[tuple[Shape, Shape], ...] = (
        ((), ()), ((), (1,)), ((1,), ()), ((1, 1), (1,)), ((6,), (2, 3)), ((2, 3), (6,)),
        ((2, 3), (3, 2)), ((2, 3, 4), (6, 4)), ((2, 3, 4), (2, 12)), ((2, 3, 4), (4, 3, 2)),
        ((0,), (0, 3)), ((2, 0, 3), (0,)), ((0, 5), (5, 0, 2)), ((1, 4, 1), (4,)),
        ((4,), (1, 4, 1, 1)), ((17,), (17, 1)), ((33, 5), (5, 33)), ((2, 1, 3, 2), (12,)),
        ((12,), (2, 2, 3)), ((8, 3), (2, 2, 2, 3)),
    )  # fmt: skip
    return [Sample((_draw(rng, source, dtype),), target) for source, target in cases]


RESHAPE: Final = declare(
    "reshape",
    infer=lambda inputs, params: (params, inputs[0].dtype),
    derivative=Linear(lambda node, ct: reshape(ct, node.inputs[0].shape)),
    batch=lambda node, inputs, batched, size: reshape(inputs[0], (size, *node.params)),
    reference=lambda attributes, x: x.reshape(attributes["shape"]),
    domain=Domain(domains.EVERY, _reshape_samples, _exact),
    opcode="reshape",
    attributes=lambda node: {"shape": node.params},
    traits=("view",),
)


def reshape(x: Any, shape: Any) -> Array:
    """Return `x` with another shape and the same elements in row-major order.

    Args:
        x: any array.
        shape: an int or a sequence of ints; one of them may be -1 and follows from the rest.

    Raises:
        ShapeError: the sizes differ, or -1 does not give a whole extent.
    """
    x = operand("reshape", x)
    if isinstance(shape, (tuple, list)):
        extents = tuple(shape)
    else:
        extents = (require_int("reshape", shape, "an extent"),)
    if extents == x.shape:
        return x
    known = shape_of("reshape", [extent for extent in extents if extent != -1])
    size, product = math.prod(x.shape), math.prod(known)
    if product == size and len(known) == len(extents):
        return bind(RESHAPE, (x,), known)
    unknown = [axis for axis, extent in enumerate(extents) if extent == -1]
    if len(unknown) > 1:
        raise ShapeError(
            f"reshape: shape {list(extents)} has -1 at {len(unknown)} axes",
            "leave one extent open at most",
        )
    if not unknown:
        raise ShapeError(
            f"reshape: {describe(x)} has {size} elements, shape {list(known)} has {product}",
            "use a shape of the same size, or -1 for one axis",
        )
    if product == 0 or size % product:
        raise ShapeError(
            f"reshape: {describe(x)} with {size} elements does not fit {list(extents)}: axis "
            f"{unknown[0]} would not be whole",
            f"use extents whose product divides {size}",
        )
    target = (*known[: unknown[0]], size // product, *known[unknown[0] :])
    return x if target == x.shape else bind(RESHAPE, (x,), target)


# --- transpose


def _transpose_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    cases: tuple[tuple[Shape, Shape], ...] = (
        ((), ()), ((5,), (0,)), ((0,), (0,)), ((2, 3), (1, 0)), ((2, 3), (0, 1)),
        ((0, 3), (1, 0)), ((2, 3, 4), (2, 1, 0)), ((2, 3, 4), (0, 2, 1)), ((2, 3, 4), (1, 0, 2)),
        ((2, 3, 4), (1, 2, 0)), ((2, 3, 4), (2, 0, 1)), ((2, 0, 3), (2, 0, 1)),
        ((1, 4, 1), (1, 0, 2)), ((2, 1, 3, 2), (3, 1, 0, 2)), ((2, 1, 3, 2), (0, 2, 1, 3)),
        ((33, 5), (1, 0)), ((17, 9), (1, 0)), ((1, 1), (1, 0)), ((2, 2, 2, 2), (3, 2, 1, 0)),
        ((2, 3, 2, 3, 2), (4, 0, 3, 1, 2)),
    )  # fmt: skip
    return [Sample((_draw(rng, shape, dtype),), axes) for shape, axes in cases]


TRANSPOSE: Final = declare(
    "transpose",
    infer=lambda inputs, params: (
        tuple(inputs[0].shape[axis] for axis in params),
        inputs[0].dtype,
    ),
    derivative=Linear(lambda node, ct: transpose(ct, inverse_permutation(node.params))),
    batch=lambda node, inputs, batched, size: transpose(
        inputs[0], (0, *(axis + 1 for axis in node.params))
    ),
    reference=lambda attributes, x: np.transpose(x, attributes["axes"]),
    domain=Domain(domains.EVERY, _transpose_samples, _exact),
    opcode="transpose",
    attributes=lambda node: {"axes": node.params},
    traits=("view",),
)


def inverse_permutation(axes: Sequence[int]) -> Shape:
    """Return the permutation that undoes `axes`."""
    inverse = [0] * len(axes)
    for position, axis in enumerate(axes):
        inverse[axis] = position
    return tuple(inverse)


def transpose(x: Any, axes: Any = None) -> Array:
    """Return `x` with its axes permuted: result axis i is axis `axes[i]` (None: all reversed).

    Raises:
        ShapeError: `axes` is no permutation of the axes of `x`.
    """
    x = operand("transpose", x)
    rank = len(x.shape)
    if axes is None:
        order = tuple(range(rank - 1, -1, -1))
    else:
        given = axes if isinstance(axes, (tuple, list)) else (axes,)
        order = tuple(normalize_axis("transpose", axis, rank) for axis in given)
        if len(order) != rank or len(set(order)) != rank:
            raise ShapeError(
                f"transpose: axes {list(given)} are no permutation of the axes of {describe(x)}",
                f"name each of the {rank} axes once",
            )
    return x if order == tuple(range(rank)) else bind(TRANSPOSE, (x,), order)


# --- broadcast_to


def _broadcast_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    cases: tuple[tuple[Shape, Shape], ...] = (
        ((), ()), ((), (3,)), ((), (2, 0)), ((), (2, 3)), ((1,), (4,)), ((1,), (0,)),
        ((3,), (3,)), ((3,), (2, 3)), ((3,), (0, 3)), ((2, 1), (2, 5)), ((1, 3), (4, 3)),
        ((2, 1), (3, 2, 4)), ((1, 1), (2, 3)), ((0, 1), (0, 4)), ((2, 3, 4), (2, 3, 4)),
        ((2, 1, 4), (5, 2, 3, 4)), ((1, 3, 1), (2, 3, 2)), ((17,), (2, 17)), ((1, 5), (33, 5)),
        ((2, 1, 3, 1), (2, 2, 3, 2)),
    )  # fmt: skip
    return [Sample((_draw(rng, source, dtype),), target) for source, target in cases]


def _broadcast_batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> Array:
    del batched
    x = inputs[0]
    missing = len(node.params) + 1 - len(x.shape)
    return broadcast_to(reshape(x, (size, *(1,) * missing, *x.shape[1:])), (size, *node.params))


BROADCAST_TO: Final = declare(
    "broadcast_to",
    infer=lambda inputs, params: (params, inputs[0].dtype),
    derivative=Linear(lambda node, ct: _f.unbroadcast(ct, node.inputs[0].shape)),
    batch=_broadcast_batch,
    reference=lambda attributes, x: np.broadcast_to(x, attributes["shape"]),
    domain=Domain(domains.EVERY, _broadcast_samples, _exact),
    opcode="broadcast_to",
    attributes=lambda node: {"shape": node.params},
    traits=("view",),
)


def broadcast_to(x: Any, shape: Any) -> Array:
    """Return `x` repeated to `shape` by the rules of broadcasting (right aligned).

    Raises:
        ShapeError: an extent of `x` is neither 1 nor that of `shape`.
    """
    x = operand("broadcast_to", x)
    target = shape_of("broadcast_to", shape)
    if target == x.shape:
        return x
    offset = len(target) - len(x.shape)
    for axis, extent in enumerate(x.shape):
        if offset < 0 or extent not in (1, target[axis + offset]):
            raise ShapeError(
                f"broadcast_to: {describe(x)} does not broadcast to {list(target)} (axis {axis})",
                "extents must be equal or 1, aligned from the right",
            )
    return bind(BROADCAST_TO, (x,), target)


# --- functions that are one op


def ravel(x: Any) -> Array:
    """Return the elements of `x` in row-major order, shape [size]."""
    return reshape(x, (-1,)) if operand("ravel", x).size else reshape(x, (0,))


def flatten(x: Any, start_axis: int = 0, end_axis: int = -1) -> Array:
    """Return `x` with the axes from `start_axis` to `end_axis` (included) merged into one.

    Raises:
        ShapeError: an axis is out of range, or the end comes before the start.
    """
    x = operand("flatten", x)
    if not x.shape:
        return reshape(x, (1,))
    start = normalize_axis("flatten", start_axis, len(x.shape))
    end = normalize_axis("flatten", end_axis, len(x.shape))
    if end < start:
        raise ShapeError(
            f"flatten: axis {end} comes before axis {start} in {describe(x)}", "swap the axes"
        )
    merged = math.prod(x.shape[start : end + 1])
    return reshape(x, (*x.shape[:start], merged, *x.shape[end + 1 :]))


def squeeze(x: Any, axis: Any = None) -> Array:
    """Return `x` without axes of extent 1: all of them, or those that `axis` names.

    Raises:
        ShapeError: a named axis has another extent.
    """
    x = operand("squeeze", x)
    rank = len(x.shape)
    if axis is None:
        return reshape(x, tuple(extent for extent in x.shape if extent != 1))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    dropped = normalize_axes("squeeze", given, rank)
    for one in dropped:
        if x.shape[one] != 1:
            raise ShapeError(
                f"squeeze: axis {one} of {describe(x)} has extent {x.shape[one]}",
                "name axes of extent 1 only",
            )
    return reshape(x, tuple(n for k, n in enumerate(x.shape) if k not in dropped))


def expand_dims(x: Any, axis: Any) -> Array:
    """Return `x` with new axes of extent 1 at the positions `axis` of the result."""
    x = operand("expand_dims", x)
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(x.shape) + len(given)
    places = {normalize_axis("expand_dims", one, rank) for one in given}
    if len(places) != len(given):
        raise ShapeError(f"expand_dims: axes {list(given)} name an axis twice", "name each once")
    extents = iter(x.shape)
    return reshape(x, tuple(1 if k in places else next(extents) for k in range(rank)))


def unsqueeze(x: Any, axis: Any) -> Array:
    """The same as `expand_dims`."""
    return expand_dims(x, axis)


def swapaxes(x: Any, axis1: int, axis2: int) -> Array:
    """Return `x` with two axes exchanged."""
    x = operand("swapaxes", x)
    order = list(range(len(x.shape)))
    a = normalize_axis("swapaxes", axis1, len(order))
    b = normalize_axis("swapaxes", axis2, len(order))
    order[a], order[b] = b, a
    return transpose(x, order)


def matrix_transpose(x: Any) -> Array:
    """Return `x` with its last two axes exchanged; rank 2 at least."""
    x = operand("matrix_transpose", x)
    if len(x.shape) < 2:
        raise ShapeError(f"matrix_transpose: {describe(x)} is no matrix", "use rank 2 or more")
    return swapaxes(x, -1, -2)


def permute_dims(x: Any, axes: Any) -> Array:
    """The same as `transpose` with `axes` given."""
    return transpose(x, axes)


def moveaxis(x: Any, source: Any, destination: Any) -> Array:
    """Return `x` with the axes `source` moved to the positions `destination`; others keep order.

    Raises:
        ShapeError: an axis is out of range or named twice, or the counts differ.
    """
    x = operand("moveaxis", x)
    rank = len(x.shape)
    names = source if isinstance(source, (tuple, list)) else (source,)
    goals = destination if isinstance(destination, (tuple, list)) else (destination,)
    origin = [normalize_axis("moveaxis", axis, rank) for axis in names]
    target = [normalize_axis("moveaxis", axis, rank) for axis in goals]
    if len(origin) != len(target) or len(set(origin)) != len(origin):
        raise ShapeError(
            f"moveaxis: cannot move axes {list(names)} to {list(goals)}",
            "name as many places as axes, each once",
        )
    order = [axis for axis in range(rank) if axis not in origin]
    for goal, axis in sorted(zip(target, origin, strict=True)):
        order.insert(goal, axis)
    return transpose(x, order)


def broadcast_shapes(*shapes: Any) -> Shape:
    """Return the shape that `shapes` broadcast to.

    Raises:
        ShapeError: they do not broadcast.
    """
    given = tuple(shape_of("broadcast_shapes", shape) for shape in shapes)
    return base.broadcast_shapes("broadcast_shapes", *given) if given else ()


def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """Return the arrays broadcast to one shape; dtypes stay as they are."""
    given = tuple(operand("broadcast_arrays", array) for array in arrays)
    if not given:
        return ()
    shape = base.broadcast_shapes("broadcast_arrays", *(array.shape for array in given))
    return tuple(broadcast_to(array, shape) for array in given)


def require_rank(name: str, x: Array, least: int) -> None:
    """Raise `ShapeError` unless `x` has at least `least` axes."""
    if len(x.shape) < least:
        raise ShapeError(
            f"{name}: needs an array of rank {least} or more, got {describe(x)}",
            "add axes with x.reshape(...)",
        )
