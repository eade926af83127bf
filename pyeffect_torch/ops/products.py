"""Products of vectors and arrays: vdot, vecdot, inner, outer, kron, cross."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.ops import base
from pyeffect_torch.ops.base import describe, normalize_axis, operand
from pyeffect_torch.ops.contraction import (
    check_dtypes,
    dot_general,
    matmul,
    mismatch,
    need_axes,
    product_operands,
)
from pyeffect_torch.ops.parameters import DotParams
from pyeffect_torch.ops.shape import moveaxis, reshape

__all__ = ["cross", "inner", "kron", "outer", "vdot", "vecdot"]

_f: Any = late.functions


def vdot(a: Any, b: Any) -> Array:
    """Return the inner product of two arrays of one size, flattened: shape []."""
    x, y = product_operands("vdot", a, b)
    x, y = reshape(x, (x.size,)), reshape(y, (y.size,))
    if x.shape != y.shape:
        raise mismatch("vdot", x, 0, y, 0)
    return dot_general(x, y, DotParams((0,), (0,), (), ()))


def vecdot(a: Any, b: Any, axis: int = -1) -> Array:
    """Return the inner products along an axis; the other axes broadcast.

    Raises:
        ShapeError: the extents on `axis` differ.
    """
    x, y = product_operands("vecdot", a, b)
    need_axes("vecdot", x, y)
    x_axis = normalize_axis("vecdot", axis, len(x.shape))
    y_axis = normalize_axis("vecdot", axis, len(y.shape))
    if x.shape[x_axis] != y.shape[y_axis]:
        raise mismatch("vecdot", x, x_axis, y, y_axis)
    x, y = moveaxis(x, x_axis, -1), moveaxis(y, y_axis, -1)
    base.broadcast_shapes("vecdot", x.shape, y.shape)
    product = matmul(reshape(x, (*x.shape[:-1], 1, x.shape[-1])), reshape(y, (*y.shape, 1)))
    return reshape(product, product.shape[:-2])


def inner(a: Any, b: Any) -> Array:
    """Return the sum of products over the last axes of both; a 0-d operand multiplies."""
    x, y = operand("inner", a), operand("inner", b)
    if not x.shape or not y.shape:
        return _f.multiply(a, b)
    x, y = product_operands("inner", x, y)
    if x.shape[-1] != y.shape[-1]:
        raise mismatch("inner", x, len(x.shape) - 1, y, len(y.shape) - 1)
    return dot_general(x, y, DotParams((len(x.shape) - 1,), (len(y.shape) - 1,), (), ()))


def outer(a: Any, b: Any) -> Array:
    """Return all products of the elements of two flattened arrays: `[a.size, b.size]`."""
    x, y = operand("outer", a), operand("outer", b)
    check_dtypes("outer", x, y)
    return _f.multiply(reshape(x, (x.size, 1)), reshape(y, (1, y.size)))


def kron(a: Any, b: Any) -> Array:
    """Return the Kronecker product: `b` scaled by each element of `a`, as one array."""
    x, y = operand("kron", a), operand("kron", b)
    check_dtypes("kron", x, y)
    rank = max(len(x.shape), len(y.shape))
    left = (1,) * (rank - len(x.shape)) + x.shape
    right = (1,) * (rank - len(y.shape)) + y.shape
    product = _f.multiply(
        reshape(x, [n for extent in left for n in (extent, 1)]),
        reshape(y, [n for extent in right for n in (1, extent)]),
    )
    return reshape(product, [n * m for n, m in zip(left, right, strict=True)])


def cross(a: Any, b: Any, axis: int = -1) -> Array:
    """Return the vector product along an axis of extent 3; the other axes broadcast."""
    x, y = operand("cross", a), operand("cross", b)
    check_dtypes("cross", x, y)
    need_axes("cross", x, y)
    x_axis = normalize_axis("cross", axis, len(x.shape))
    y_axis = normalize_axis("cross", axis, len(y.shape))
    if x.shape[x_axis] != 3 or y.shape[y_axis] != 3:
        raise ShapeError(
            f"cross: needs extent 3 along axis {axis}, got {describe(x)} and {describe(y)}",
            "use vectors of three components",
        )
    x, y = moveaxis(x, x_axis, -1), moveaxis(y, y_axis, -1)
    (x0, x1, x2), (y0, y1, y2) = _f.unstack(x, -1), _f.unstack(y, -1)
    parts = [
        _f.subtract(_f.multiply(p, q), _f.multiply(r, s))
        for p, q, r, s in ((x1, y2, x2, y1), (x2, y0, x0, y2), (x0, y1, x1, y0))
    ]
    return moveaxis(_f.stack(parts, -1), -1, axis)
