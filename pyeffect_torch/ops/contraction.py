"""The op `dot_general` and the products that it is: matmul, dot, tensordot, linear.

`dot_general` contracts pairs of axes and keeps pairs of batch axes; the result has the batch axes,
then the free axes of the left operand, then those of the right one. float16 and bfloat16
accumulate in float32 and round once. Other products are in `products.py`, `einsum` in
`einsum.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.core.op import Domain, Multilinear, Sample, Shape, declare
from pyeffect_torch.ops import base, domains
from pyeffect_torch.ops.base import describe, is_number, mixed_dtypes, normalize_axis, operand
from pyeffect_torch.ops.options import require_int
from pyeffect_torch.ops.parameters import DotParams
from pyeffect_torch.ops.shape import (
    inverse_permutation,
    moveaxis,
    reshape,
    transpose,
)

__all__ = ["dot", "linear", "matmul", "tensordot"]

_f: Any = late.functions


def free_axes(rank: int, contract: Sequence[int], batch: Sequence[int]) -> Shape:
    """Return the axes that are neither contracted nor batch axes, ascending."""
    return tuple(axis for axis in range(rank) if axis not in contract and axis not in batch)


def _infer(inputs: tuple[Array, ...], params: DotParams) -> Any:
    lhs, rhs = inputs
    check_dtypes("dot_general", lhs, rhs)
    shape, apart = _product_shape(lhs.shape, rhs.shape, params)
    if apart is not None:
        role, a, b = apart
        raise ShapeError(
            f"dot_general: {role} axes differ, {lhs.shape[a]} (axis {a} of "
            f"{describe(lhs)}) against {rhs.shape[b]} (axis {b} of {describe(rhs)})",
            "transpose or slice an operand",
        )
    return shape, lhs.dtype


@functools.lru_cache(maxsize=4096)
def _product_shape(
    lhs: Shape, rhs: Shape, params: DotParams
) -> tuple[Shape, tuple[str, int, int] | None]:
    """The shape of the result, and what pair of axes differs, if one does."""
    for role, left, right in (
        ("contracted", params.lhs_contract, params.rhs_contract),
        ("batch", params.lhs_batch, params.rhs_batch),
    ):
        for a, b in zip(left, right, strict=True):
            if lhs[a] != rhs[b]:
                return (), (role, a, b)
    shape = (
        *(lhs[a] for a in params.lhs_batch),
        *(lhs[a] for a in free_axes(len(lhs), params.lhs_contract, params.lhs_batch)),
        *(rhs[b] for b in free_axes(len(rhs), params.rhs_contract, params.rhs_batch)),
    )
    return shape, None


def check_dtypes(name: str, a: Array, b: Array) -> None:
    """Raise `DTypeError` unless both have one numeric dtype."""
    if a.dtype is not b.dtype:
        raise mixed_dtypes(name, a, b)
    if a.dtype is dtypes.bool_:
        raise DTypeError(
            f"{name}: has no meaning for {describe(a)} and {describe(b)}",
            "cast them to a numeric dtype first",
        )


def _transpose_rule(node: Array, j: int, ct: Array) -> Array:
    mine, other = node.inputs[j], node.inputs[1 - j]
    params, order = _transposed(node.params, j, len(mine.shape), len(other.shape))
    return transpose(dot_general(ct, other, params), order)


@functools.lru_cache(maxsize=4096)
def _transposed(params: DotParams, j: int, rank: int, other_rank: int) -> tuple[DotParams, Shape]:
    """What the cotangent's product with the other operand contracts, and how to order its axes."""
    contract, other_contract = (params[j], params[1 - j])
    batch, other_batch = (params[2 + j], params[3 - j])
    free = free_axes(rank, contract, batch)
    other_free = free_axes(other_rank, other_contract, other_batch)
    batch_count = len(batch)
    # the cotangent's axes: batch, free of lhs, free of rhs
    first = batch_count + (len(free) if j == 0 else 0)
    contracted = tuple(range(first, first + len(other_free)))
    shared = tuple(range(batch_count))
    # The product's axes: batch, my free ones, my contracted ones in the other's axis order.
    by_other = sorted(range(len(contract)), key=lambda k: other_contract[k])
    order = (*batch, *free, *(contract[k] for k in by_other))
    return DotParams(contracted, other_free, shared, other_batch), inverse_permutation(order)


def _batch_rule(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    del size
    lhs, rhs = inputs
    lhs_contract, rhs_contract, lhs_batch, rhs_batch = node.params

    def shifted(axes: Shape) -> Shape:
        return tuple(axis + 1 for axis in axes)

    if batched[0]:
        lhs_contract, lhs_batch = shifted(lhs_contract), shifted(lhs_batch)
    if batched[1]:
        rhs_contract, rhs_batch = shifted(rhs_contract), shifted(rhs_batch)
    if all(batched):
        params = DotParams(lhs_contract, rhs_contract, (0, *lhs_batch), (0, *rhs_batch))
        return dot_general(lhs, rhs, params)
    params = DotParams(lhs_contract, rhs_contract, lhs_batch, rhs_batch)
    result = dot_general(lhs, rhs, params)
    place = len(lhs_batch)  # the batch axis is the first free axis of its operand
    if batched[1]:
        place += len(free_axes(len(lhs.shape), lhs_contract, lhs_batch))
    return moveaxis(result, place, 0)


def _reference(attributes: Any, lhs: Any, rhs: Any) -> Any:
    lhs_contract, rhs_contract = attributes["lhs_contract"], attributes["rhs_contract"]
    lhs_batch, rhs_batch = attributes["lhs_batch"], attributes["rhs_batch"]
    lhs_free = free_axes(lhs.ndim, lhs_contract, lhs_batch)
    rhs_free = free_axes(rhs.ndim, rhs_contract, rhs_batch)
    left = domains.wide(lhs).transpose((*lhs_batch, *lhs_free, *lhs_contract))
    right = domains.wide(rhs).transpose((*rhs_batch, *rhs_contract, *rhs_free))
    batch = left.shape[: len(lhs_batch)]
    rows = left.shape[len(lhs_batch) : len(lhs_batch) + len(lhs_free)]
    columns = right.shape[len(rhs_batch) + len(rhs_contract) :]
    depth = math.prod(lhs.shape[axis] for axis in lhs_contract)
    count = math.prod(batch)
    product = np.matmul(
        left.reshape((count, math.prod(rows), depth)),
        right.reshape((count, depth, math.prod(columns))),
    )
    return product.reshape((*batch, *rows, *columns))


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    cases: tuple[tuple[Shape, Shape, Shape, Shape, Shape, Shape], ...] = (
        ((), (), (), (), (), ()), ((3,), (), (), (), (), ()), ((3,), (3,), (0,), (0,), (), ()),
        ((0,), (0,), (0,), (0,), (), ()), ((3,), (3,), (), (), (0,), (0,)),
        ((2,), (3,), (), (), (), ()), ((2, 3), (3, 4), (1,), (0,), (), ()),
        ((2, 3), (4, 3), (1,), (1,), (), ()), ((3, 2), (3, 4), (0,), (0,), (), ()),
        ((2, 0), (0, 4), (1,), (0,), (), ()), ((0, 3), (3, 4), (1,), (0,), (), ()),
        ((2, 3), (3,), (1,), (0,), (), ()), ((2, 3, 4), (2, 4, 5), (2,), (1,), (0,), (0,)),
        ((2, 3, 4), (2, 5, 4), (2,), (2,), (0,), (0,)), ((2, 3, 4), (4, 5), (2,), (0,), (), ()),
        ((3, 2, 4), (4, 5, 2), (2,), (0,), (1,), (2,)),
        ((2, 3, 4), (4, 3, 5), (1, 2), (1, 0), (), ()),
        ((2, 3, 4, 5), (3, 5, 2, 6), (3,), (1,), (1, 0), (0, 2)),
        ((2, 3, 2), (2, 3, 2), (0, 1, 2), (0, 1, 2), (), ()),
        ((1, 7), (7, 1), (1,), (0,), (), ()), ((17, 33), (33, 5), (1,), (0,), (), ()),
        ((2, 0, 4), (2, 4, 5), (2,), (1,), (0,), (0,)),
    )  # fmt: skip
    return [
        Sample((domains.draw(rng, a, dtype), domains.draw(rng, b, dtype)), DotParams(*axes))
        for a, b, *axes in cases
    ]


def _roundings(sample: Sample) -> float:
    """A sum of `depth` products: each addition rounds a partial sum of at most depth terms."""
    depth = math.prod(sample.inputs[0].shape[axis] for axis in sample.params.lhs_contract)
    return 2.0 * max(depth, 1)


DOT_GENERAL: Final = declare(
    "dot_general",
    infer=_infer,
    derivative=Multilinear(_transpose_rule),
    batch=_batch_rule,
    reference=_reference,
    domain=Domain(domains.NUMERIC, _samples, _roundings),
    opcode="dot_general",
    attributes=lambda node: node.params._asdict(),
)


def dot_general(lhs: Array, rhs: Array, params: DotParams) -> Array:
    """Return the contraction of two arrays of one numeric dtype; see the module's docstring."""
    return bind(DOT_GENERAL, (lhs, rhs), params)


def product_operands(name: str, a: Any, b: Any) -> tuple[Array, Array]:
    """Return the operands of a product; int8 pairs become int32, so that sums do not wrap.

    Raises:
        DTypeError: mixed dtypes, or bool.
    """
    x, y = operand(name, a), operand(name, b)
    if is_number(a) or is_number(b):
        raise ShapeError(
            f"{name}: needs arrays with axes, got the number {a if is_number(a) else b!r}",
            "use * to multiply by a number",
        )
    check_dtypes(name, x, y)
    if x.dtype is dtypes.int8:
        return _f.cast(x, dtypes.int32), _f.cast(y, dtypes.int32)
    return x, y


def mismatch(name: str, x: Array, a: int, y: Array, b: int) -> ShapeError:
    """The error for contracted axes (a of x, b of y) of different extents."""
    return ShapeError(
        f"{name}: contracted axes differ, {x.shape[a]} (axis {a} of {describe(x)}) against "
        f"{y.shape[b]} (axis {b} of {describe(y)})",
        "transpose an operand, or check their order",
    )


def need_axes(name: str, x: Array, y: Array) -> None:
    """Raise `ShapeError` if an operand has shape []."""
    if not x.shape or not y.shape:
        raise ShapeError(
            f"{name}: needs arrays with axes, got {describe(x)} and {describe(y)}",
            "use * to multiply by a number",
        )


def matmul(a: Any, b: Any) -> Array:
    """Return the matrix product `a @ b` by NumPy's rules.

    Args:
        a, b: of one numeric dtype; vectors count as a row (left) or a column (right) and lose
            that axis again; axes before the last two broadcast. int8 gives int32.

    Raises:
        ShapeError: contracted extents differ, batch axes do not broadcast, or rank 0.
    """
    x, y = product_operands("matmul", a, b)
    need_axes("matmul", x, y)
    x_axis, y_axis = len(x.shape) - 1, max(len(y.shape) - 2, 0)
    if x.shape[x_axis] != y.shape[y_axis]:
        raise mismatch("matmul", x, x_axis, y, y_axis)
    x_lead, y_lead = x.shape[:-2], y.shape[:-2]
    if not y_lead or not x_lead:
        result = dot_general(x, y, DotParams((x_axis,), (y_axis,), (), ()))
        if y_lead and len(x.shape) == 2:  # rows came out before the batch axes
            return moveaxis(result, 0, -2)
        return result
    return _batched_matmul(x, y)


def _batched_matmul(x: Array, y: Array) -> Array:
    """Both have batch axes: equal ones are batch axes, an axis of only one operand is free."""
    shape = base.broadcast_shapes("matmul", x.shape[:-2], y.shape[:-2])
    rank = len(shape)
    x_full = (1,) * (rank - len(x.shape) + 2) + x.shape[:-2]
    y_full = (1,) * (rank - len(y.shape) + 2) + y.shape[:-2]
    both = [k for k in range(rank) if x_full[k] == y_full[k]]
    x_only = [k for k in range(rank) if x_full[k] != y_full[k] and y_full[k] == 1]
    y_only = [k for k in range(rank) if x_full[k] != y_full[k] and y_full[k] != 1]
    x_keep, y_keep = sorted(both + x_only), sorted(both + y_only)
    left = reshape(x, (*(x_full[k] for k in x_keep), *x.shape[-2:]))
    right = reshape(y, (*(y_full[k] for k in y_keep), *y.shape[-2:]))
    params = DotParams(
        (len(left.shape) - 1,),
        (len(right.shape) - 2,),
        tuple(x_keep.index(k) for k in both),
        tuple(y_keep.index(k) for k in both),
    )
    result = dot_general(left, right, params)
    made = [*both, *x_only, rank, *y_only, rank + 1]  # which result axis each one is
    return transpose(result, inverse_permutation(made))


def dot(a: Any, b: Any) -> Array:
    """Return NumPy's `dot`: inner product of vectors, matrix product, or last with second last.

    A 0-d operand multiplies.
    """
    x, y = operand("dot", a), operand("dot", b)
    if not x.shape or not y.shape:
        return _f.multiply(a, b)
    x, y = product_operands("dot", x, y)
    x_axis, y_axis = len(x.shape) - 1, max(len(y.shape) - 2, 0)
    if x.shape[x_axis] != y.shape[y_axis]:
        raise mismatch("dot", x, x_axis, y, y_axis)
    return dot_general(x, y, DotParams((x_axis,), (y_axis,), (), ()))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """Return the sum of products over pairs of axes.

    Args:
        axes: a number n (the last n axes of `a` with the first n of `b`), or two sequences (or
            ints) of axes of `a` and of `b`.

    Raises:
        ShapeError: paired extents differ, or an axis is named twice.
    """
    x, y = product_operands("tensordot", a, b)
    if isinstance(axes, (tuple, list)):
        if len(axes) != 2:
            raise ArgumentError(
                f"tensordot: axes {axes!r} are not one sequence per operand", "pass two sequences"
            )
        left, right = (
            tuple(normalize_axis("tensordot", axis, rank) for axis in group)
            for group, rank in zip(
                (one if isinstance(one, (tuple, list)) else (one,) for one in axes),
                (len(x.shape), len(y.shape)),
                strict=True,
            )
        )
    else:
        count = require_int("tensordot", axes, "axes")
        if not 0 <= count <= min(len(x.shape), len(y.shape)):
            raise ShapeError(
                f"tensordot: {describe(x)} and {describe(y)} have no {count} axes to contract",
                "contract fewer axes",
            )
        left = tuple(range(len(x.shape) - count, len(x.shape)))
        right = tuple(range(count))
    if len(left) != len(right) or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ShapeError(
            f"tensordot: axes {list(left)} and {list(right)} are not pairs of different axes",
            "name each axis once, as many on both sides",
        )
    for i, j in zip(left, right, strict=True):
        if x.shape[i] != y.shape[j]:
            raise mismatch("tensordot", x, i, y, j)
    return dot_general(x, y, DotParams(left, right, (), ()))


def linear(x: Any, w: Any, b: Any = None) -> Array:
    """Return `x @ w.T + b`: a layer with weights `[out, in]`.

    Args:
        x: `[.., in]`. w: `[out, in]`. b: `[out]`, or None.

    Raises:
        ShapeError: the last axis of `x` is not `in`, or `b` has another shape.
    """
    x, w = product_operands("linear", x, w)
    if len(w.shape) != 2 or not x.shape or x.shape[-1] != w.shape[1]:
        raise ShapeError(
            f"linear: weights {describe(w)} do not apply to {describe(x)}",
            "weights are [out, in], and the last axis of x is in",
        )
    result = dot_general(x, w, DotParams((len(x.shape) - 1,), (1,), (), ()))
    if b is None:
        return result
    bias = operand("linear", b)
    if bias.shape != w.shape[:1]:
        raise ShapeError(
            f"linear: the bias {describe(bias)} must have shape [{w.shape[0]}], the first axis of "
            f"{describe(w)}",
            "give one value for each output",
        )
    return _f.add(result, bias)
