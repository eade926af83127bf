"""Choices among elements over axes: max, min, any, all, and their positions.

Ties share the gradient evenly; NaN wins; there is no extremum of nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import DTypeError, ShapeError
from pyeffect_torch.core.op import (
    Domain,
    JvpRule,
    MaybeArray,
    Nondiff,
    Op,
    Sample,
    Shape,
    declare,
)
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, normalize_axes, normalize_axis, operand
from pyeffect_torch.ops.reducing import (
    Axes,
    count_of,
    declare_reduction,
    kept_shape,
    reduce_over,
    reduction_samples,
    remaining_shape,
    spread_over,
    truth,
)
from pyeffect_torch.ops.reduction import REDUCE_SUM

_f: Any = late.functions


def _infer_extremum(name: str) -> Any:
    def infer(inputs: tuple[Array, ...], axes: Shape) -> Any:
        (x,) = inputs
        _refuse_empty(name, x, axes)
        return remaining_shape(x.shape, axes), x.dtype

    return infer


def _refuse_empty(name: str, x: Array, axes: Shape) -> None:
    if count_of(x.shape, axes) == 0:
        raise ShapeError(
            f"{name}: no elements to choose from, axes {list(axes)} of {describe(x)} are empty",
            "test x.size first, or concatenate an element that may win",
        )


def _extremum_rule(node: Array, tangents: Sequence[MaybeArray]) -> MaybeArray:
    """The mean of the tangents of those elements that attain the extremum."""
    x, axes, tangent = node.inputs[0], node.params, tangents[0]
    if tangent is None:
        return None
    attained = _f.equal(x, spread_over(node, x.shape, axes))
    share = bind(REDUCE_SUM, (_f.cast(attained, node.dtype),), axes)
    chosen = _f.where(attained, tangent, _f.constant_like(node, 0))
    return _f.divide(bind(REDUCE_SUM, (chosen,), axes), share)


REDUCE_MAX: Final = declare_reduction(
    "reduce_max",
    _infer_extremum("max"),
    JvpRule(_extremum_rule),
    np.max,
    domains.EVERY,
    reduction_samples(-9.0, 9.0, empty=False),
    lambda sample: 0.0,
)
REDUCE_MIN: Final = declare_reduction(
    "reduce_min",
    _infer_extremum("min"),
    JvpRule(_extremum_rule),
    np.min,
    domains.EVERY,
    reduction_samples(-9.0, 9.0, empty=False),
    lambda sample: 0.0,
)


def _infer_position(name: str) -> Any:
    def infer(inputs: tuple[Array, ...], axis: int) -> Any:
        (x,) = inputs
        _refuse_empty(name, x, (axis,))
        return remaining_shape(x.shape, (axis,)), dtypes.int64

    return infer


def _position_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample((domains.draw(rng, shape, dtype, -9.0, 9.0),), axis)
        for shape in domains.SHAPES * 2
        for axis in range(len(shape))
        if shape[axis]
    ]


def _position(name: str, reference: Callable[..., Any]) -> Op:
    return declare(
        name,
        infer=_infer_position(name),
        derivative=Nondiff(),
        batch=lambda node, inputs, batched, size: bind(node.op, (inputs[0],), node.params + 1),
        reference=lambda attributes, x: reference(domains.wide(x), attributes["axis"]),
        domain=Domain(domains.EVERY, _position_samples, lambda sample: 0.0),
        opcode=name,
        attributes=lambda node: {"axis": node.params},
        traits=("reduction",),
    )


ARGMAX: Final = _position("argmax", np.argmax)
ARGMIN: Final = _position("argmin", np.argmin)


# --- the functions that users call


def max_(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the largest element of `x` over `axis` (None: all axes).

    NaN propagates; ties share the gradient evenly; on bool it is `any`.

    Raises:
        ShapeError: there are no elements.
    """
    return reduce_over(REDUCE_MAX, "max", operand("max", x), axis, keepdims)


def min_(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the smallest element of `x` over `axis` (None: all axes).

    NaN propagates; ties share the gradient evenly; on bool it is `all`.

    Raises:
        ShapeError: there are no elements.
    """
    return reduce_over(REDUCE_MIN, "min", operand("min", x), axis, keepdims)


def _reduce_truth(op: Op, name: str, x: Any, axis: Axes, keepdims: bool, nothing: bool) -> Array:
    array = truth(name, x)
    axes = normalize_axes(name, axis, len(array.shape))
    if count_of(array.shape, axes):
        return reduce_over(op, name, array, axes, keepdims)
    shape = kept_shape(array.shape, axes) if keepdims else remaining_shape(array.shape, axes)
    return _f.full(shape, nothing)


def any_(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return whether any element over `axis` (None: all axes) is not 0; False of nothing."""
    return _reduce_truth(REDUCE_MAX, "any", x, axis, keepdims, False)


def all_(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return whether no element over `axis` (None: all axes) is 0; True of nothing."""
    return _reduce_truth(REDUCE_MIN, "all", x, axis, keepdims, True)


def ptp(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return the largest minus the smallest element over `axis` (None: all axes)."""
    array = operand("ptp", x)
    if array.dtype is dtypes.bool_:
        raise DTypeError(f"ptp: has no meaning for {describe(array)}", "cast it first")
    return _f.subtract(max_(array, axis, keepdims=keepdims), min_(array, axis, keepdims=keepdims))


def _find(op: Op, x: Any, axis: int | None, keepdims: bool) -> Array:
    array = operand(op.name, x)
    if axis is None:
        found = bind(op, (_f.reshape(array, (array.size,)),), 0)
        return _f.reshape(found, (1,) * len(array.shape)) if keepdims else found
    index = normalize_axis(op.name, axis, len(array.shape))
    found = bind(op, (array,), index)
    return _f.reshape(found, kept_shape(array.shape, (index,))) if keepdims else found


def argmax(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return the first position of the largest element along `axis`, as int64.

    The first NaN wins. Without an axis the position counts in the flattened array.

    Raises:
        ShapeError: there are no elements.
    """
    return _find(ARGMAX, x, axis, keepdims)


def argmin(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Array:
    """Return the first position of the smallest element along `axis`, as int64.

    The first NaN wins. Without an axis the position counts in the flattened array.

    Raises:
        ShapeError: there are no elements.
    """
    return _find(ARGMIN, x, axis, keepdims)
