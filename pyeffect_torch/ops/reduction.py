"""Sums and products over axes, means, and what reductions have in common.

The ops remove their axes; `keepdims` is a reshape outside. Sums keep the dtype (bool counts in
int64), half types accumulate in float32 and round once. Choices among elements: `extremum.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DTypeLike
from pyeffect_torch.core.errors import DTypeError, ShapeError
from pyeffect_torch.core.op import JvpRule, Linear, MaybeArray, Sample, Shape
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import (
    describe,
    mixed_dtypes,
    normalize_axes,
    normalize_axis,
    operand,
    resolve_dtype,
)
from pyeffect_torch.ops.reducing import (
    Axes,
    count_of,
    declare_reduction,
    reduce_axes,
    reduce_over,
    reduction_samples,
    remaining_shape,
    spread_over,
    truth,
)

_f: Any = late.functions


def unbroadcast(x: Array, shape: Shape) -> Array:
    """Sum `x` over the axes that broadcasting `shape` to `x.shape` made or stretched."""
    if x.shape == shape:
        return x
    lead = len(x.shape) - len(shape)
    stretched = tuple(
        lead + axis
        for axis, extent in enumerate(shape)
        if extent == 1 and x.shape[lead + axis] != 1
    )
    axes = (*range(lead), *stretched)
    summed = bind(REDUCE_SUM, (x,), axes) if axes else x
    return summed if summed.shape == shape else _f.reshape(summed, shape)


# --- the ops


def _infer_sum(name: str) -> Any:
    def infer(inputs: tuple[Array, ...], axes: Shape) -> Any:
        (x,) = inputs
        if x.dtype is dtypes.bool_:
            raise DTypeError(
                f"{name}: has no meaning for {describe(x)}", "cast it first, or use any or all"
            )
        return remaining_shape(x.shape, axes), x.dtype

    return infer


def _sum_roundings(sample: Sample) -> float:
    """A tree over n terms of size m: log2(n) roundings of partial sums of at most n m."""
    terms = count_of(sample.inputs[0].shape, sample.params)
    return 1.0 + terms * max(1.0, math.log2(max(terms, 1)))


REDUCE_SUM: Final = declare_reduction(
    "reduce_sum",
    _infer_sum("sum"),
    Linear(lambda node, ct: spread_over(ct, node.inputs[0].shape, node.params)),
    lambda x, axes: np.sum(x, axes, dtype=x.dtype),
    domains.NUMERIC,
    reduction_samples(-2.0, 2.0, empty=True),
    _sum_roundings,
)


def _product_of_others(x: Array, axes: Shape) -> Array:
    """For each element the product of the others along `axes`, without any division."""
    kept = tuple(axis for axis in range(len(x.shape)) if axis not in axes)
    order = (*kept, *axes)
    moved = _f.transpose(x, order)
    lead = moved.shape[: len(kept)]
    terms = count_of(x.shape, axes)
    flat = _f.reshape(moved, (*lead, terms))
    rank = len(lead)
    one = _f.ones_like(_part(flat, rank, 0, 1))
    before = _f.cumprod(_f.concatenate([one, _part(flat, rank, 0, terms - 1)], rank), rank)
    behind = _f.concatenate([_part(flat, rank, 1, terms - 1), one], rank)
    after = _f.cumprod(behind, rank, reverse=True)
    others = _f.reshape(_f.multiply(before, after), moved.shape)
    inverse = tuple(order.index(axis) for axis in range(len(order)))
    return _f.transpose(others, inverse)


def _part(x: Array, axis: int, start: int, size: int) -> Array:
    starts, sizes = [0] * len(x.shape), list(x.shape)
    starts[axis], sizes[axis] = start, size
    return _f.slice(x, tuple(starts), tuple(sizes), (1,) * len(x.shape))


def _product_rule(node: Array, tangents: Sequence[MaybeArray]) -> MaybeArray:
    x, axes, tangent = node.inputs[0], node.params, tangents[0]
    if tangent is None:
        return None
    if count_of(x.shape, axes) == 0:
        return _f.zeros_like(node)
    terms = _f.multiply(tangent, _product_of_others(x, axes))
    return bind(REDUCE_SUM, (terms,), axes)


REDUCE_PROD: Final = declare_reduction(
    "reduce_prod",
    _infer_sum("prod"),
    JvpRule(_product_rule),
    lambda x, axes: np.prod(x, axes, dtype=x.dtype),
    domains.NUMERIC,
    reduction_samples(0.75, 1.25, empty=True),
    lambda sample: 1.0 + count_of(sample.inputs[0].shape, sample.params),
)


# --- the functions that users call


def _summand(name: str, x: Any, dtype: DTypeLike | None) -> Array:
    array = operand(name, x)
    if dtype is not None:
        return _f.cast(array, resolve_dtype(name, dtype))
    return _f.cast(array, dtypes.int64) if array.dtype is dtypes.bool_ else array


def sum_(
    x: Any, axis: Axes = None, *, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Array:
    """Return the sum of `x` over `axis` (None: all axes); 0 where there is nothing to add.

    Args:
        x: any dtype; bool is counted in int64, other dtypes are kept and integers wrap.
        axis: None, an int or several.
        keepdims: leave the axes with extent 1.
        dtype: cast `x` to it first.
    """
    return reduce_over(REDUCE_SUM, "sum", _summand("sum", x, dtype), axis, keepdims)


def prod(
    x: Any, axis: Axes = None, *, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Array:
    """Return the product of `x` over `axis` (None: all axes); 1 where there are no factors.

    The gradient is right where factors are 0. Arguments as for `sum`.
    """
    return reduce_over(REDUCE_PROD, "prod", _summand("prod", x, dtype), axis, keepdims)


def mean(
    x: Any, axis: Axes = None, *, keepdims: bool = False, dtype: DTypeLike | None = None
) -> Array:
    """Return the mean of `x` over `axis` (None: all axes); NaN where there is nothing.

    Args:
        x: any dtype; integers and bools give float32; half types are averaged in float32.
        axis: None, an int or several.
        keepdims: leave the axes with extent 1.
        dtype: a floating dtype to cast `x` to first.
    """
    array = operand("mean", x)
    if dtype is not None:
        array = _f.cast(array, resolve_dtype("mean", dtype))
    result = array.dtype if dtypes.is_float(array.dtype) else dtypes.float32
    axes = normalize_axes("mean", axis, len(array.shape))
    wide = _f.cast(array, dtypes.accumulator(result))
    total = reduce_axes(REDUCE_SUM, wide, axes, keepdims)
    return _f.cast(_f.divide(total, float(count_of(array.shape, axes))), result)


def count_nonzero(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Array:
    """Return how many elements over `axis` (None: all axes) are not 0, as int64."""
    return sum_(truth("count_nonzero", x), axis, keepdims=keepdims)


def average(x: Any, axis: Axes = None, weights: Any = None, *, keepdims: bool = False) -> Array:
    """Return the mean of `x` over `axis` (None: all axes), weighted by `weights`.

    Args:
        x: any dtype; integers and bools give float32.
        axis: None, an int or several.
        weights: of the shape of `x`, or of the extents of `axis` in the order given; floating
            weights have the dtype of a floating `x`. None: equal weights.
        keepdims: leave the axes with extent 1.
    """
    if weights is None:
        return mean(x, axis, keepdims=keepdims)
    array, weight = operand("average", x), operand("average", weights)
    floats = [part.dtype for part in (array, weight) if dtypes.is_float(part.dtype)]
    if len(set(floats)) > 1:
        raise mixed_dtypes("average", array, weight)
    result = floats[0] if floats else dtypes.float32
    axes = normalize_axes("average", axis, len(array.shape))
    if weight.shape != array.shape:
        weight = _fit_weights(array, weight, axis, axes)
    computed = dtypes.accumulator(result)
    weight = _f.broadcast_to(_f.cast(weight, computed), array.shape)
    total = sum_(_f.multiply(_f.cast(array, computed), weight), axes, keepdims=keepdims)
    return _f.cast(_f.divide(total, sum_(weight, axes, keepdims=keepdims)), result)


def _fit_weights(array: Array, weight: Array, axis: Axes, axes: Shape) -> Array:
    """Weights along some axes, in the order that they were named, with extent 1 on the others."""
    rank = len(array.shape)
    named = axis if isinstance(axis, (tuple, list)) else axes
    order = [normalize_axis("average", a, rank) for a in named]
    if axis is None or weight.shape != tuple(array.shape[a] for a in order):
        raise ShapeError(
            f"average: weights {describe(weight)} do not fit axes {list(axes)} of "
            f"{describe(array)}",
            "pass weights of the same shape, or of the extents of these axes",
        )
    ascending = tuple(order.index(a) for a in axes)
    extents = tuple(extent if a in axes else 1 for a, extent in enumerate(array.shape))
    return _f.reshape(_f.transpose(weight, ascending), extents)
