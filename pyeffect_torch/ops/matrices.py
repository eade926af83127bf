"""What the linear algebra ops share: checks of operands, batching, and samples of known spectrum.

A matrix is the last two axes of an array; the axes before them are a stack. Everything here is
float32 or float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, outputs, rebuild
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import DTypeError, ShapeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand
from pyeffect_torch.ops.index_base import all_batched
from pyeffect_torch.ops.shape import moveaxis, reshape, swapaxes

__all__: list[str] = []

_f: Any = late.functions

NumpyArray = np.ndarray[Any, Any]
MATRIX_DTYPES: Final = (dtypes.float32, dtypes.float64)


# --- operands


def matrix(name: str, x: Any) -> Array:
    """Return `x` as a stack of matrices.

    Raises:
        DTypeError: neither float32 nor float64. ShapeError: rank below 2.
    """
    array = operand(name, x)
    check_matrix(name, array)
    return array


def check_matrix(name: str, x: Array) -> None:
    """Raise unless `x` is a stack of float32 or float64 matrices."""
    if x.dtype not in MATRIX_DTYPES:
        raise DTypeError(
            f"{name}: needs float32 or float64, got {describe(x)}",
            "cast it first, for example x.astype('float32')",
        )
    if len(x.shape) < 2:
        raise ShapeError(
            f"{name}: needs matrices in the last two axes, got {describe(x)}",
            "pass an array of rank 2 or more",
        )


def square_matrix(name: str, x: Any) -> Array:
    """Return `x` as a stack of square matrices; raises as `matrix`, or `ShapeError`."""
    array = operand(name, x)
    check_square(name, array)
    return array


def check_square(name: str, x: Array) -> None:
    """Raise unless `x` is a stack of square float32 or float64 matrices."""
    check_matrix(name, x)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            f"{name}: needs square matrices, got {describe(x)}",
            "use a matrix with as many rows as columns, or lstsq and pinv for others",
        )


def check_right_hand_sides(name: str, a: Array, b: Array) -> None:
    """Raise unless `b` `[.., n, k]` fits the square matrices `a`, with the same leading axes."""
    check_square(name, a)
    if b.dtype is not a.dtype:
        raise mixed_dtypes(name, a, b)
    if len(b.shape) < 2 or b.shape[:-1] != a.shape[:-1]:
        raise ShapeError(
            f"{name}: the right-hand sides {describe(b)} do not fit the matrices {describe(a)}",
            "give them as many rows as the matrices, and the same leading axes",
        )


# --- pieces of rules


def turned(x: Array) -> Array:
    """Return the matrices transposed."""
    return swapaxes(x, -1, -2)


def times(a: Array, b: Array) -> Array:
    """Return the products of two stacks of matrices."""
    return _f.matmul(a, b)


def identity_like(x: Array, n: int) -> Array:
    """Return the unit matrices `[.., n, n]` that go with the stack `x`."""
    return _f.broadcast_to(_f.eye(n, dtype=x.dtype), (*x.shape[:-2], n, n))


def diagonals(x: Array) -> Array:
    """Return the diagonals of the matrices as vectors."""
    return _f.diagonal(x, 0, -2, -1)


def symmetric_from_lower(x: Array) -> Array:
    """Return the symmetric matrices with the lower triangles of `x`."""
    return _f.add(_f.tril(x), turned(_f.tril(x, -1)))


def column(x: Array) -> Array:
    """Return vectors `[.., n]` as matrices `[.., n, 1]`."""
    return reshape(x, (*x.shape, 1))


def row(x: Array) -> Array:
    """Return vectors `[.., n]` as matrices `[.., 1, n]`."""
    return reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def on_inputs(node: Array, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """Return the results of `node` on other inputs; of `node` itself if they are its own."""
    same = all(a is b for a, b in zip(node.inputs, inputs, strict=True))
    return outputs(node if same else rebuild(node, tuple(inputs)))


def reciprocal_or_zero(x: Array) -> Array:
    """Return `1 / x`, and 0 with derivative 0 where `x` is 0."""
    none = _f.equal(x, 0)
    safe = _f.where(none, _f.constant_like(x, 1), x)
    return _f.where(none, _f.constant_like(x, 0), _f.reciprocal(safe))


# --- batching: the batch axis is one more leading axis


def stacked(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    """The rule of a factorisation."""
    made = bind(node.op, all_batched(inputs, batched, size), node.params)
    return [(out, True) for out in outputs(made)]


def solved(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    """The rule of a solution: right-hand sides of one matrix become its columns."""
    a, b = inputs
    if batched[0]:
        return stacked(node, inputs, batched, size)
    folded = reshape(moveaxis(b, 0, -2), (*b.shape[1:-1], size * b.shape[-1]))
    (x,) = outputs(bind(node.op, (a, folded), node.params))
    return [(moveaxis(reshape(x, (*b.shape[1:-1], size, b.shape[-1])), -2, 0), True)]


# --- samples

SQUARES: Final[tuple[Shape, ...]] = (
    (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (7, 7), (0, 3, 3), (2, 0, 0), (1, 2, 2),
    (2, 1, 1), (3, 2, 2), (2, 3, 3), (2, 4, 4), (2, 2, 3, 3), (1, 1), (2, 2), (3, 3),
    (6, 6), (9, 9),
)  # fmt: skip
OBLONGS: Final[tuple[Shape, ...]] = (
    (0, 0), (0, 3), (3, 0), (1, 1), (1, 4), (4, 1), (2, 2), (3, 3), (3, 2), (2, 3), (5, 3), (3, 5),
    (7, 2), (2, 7), (0, 3, 2), (2, 4, 3), (2, 3, 4), (2, 1, 2, 2), (2, 2, 0), (6, 6),
)  # fmt: skip
"""Tall, wide and square; none of the tall ones so that a reflection is left out."""


def _orthonormal(rng: np.random.Generator, lead: Shape, n: int) -> NumpyArray:
    return np.linalg.qr(rng.standard_normal((*lead, n, n)))[0]


def spread_values(rng: np.random.Generator, lead: Shape, count: int) -> NumpyArray:
    """Draw ascending values from 0.6 up, at least 0.5 apart."""
    return 0.6 + 0.8 * np.arange(count) + rng.uniform(0, 0.3, (*lead, count))


def draw_matrix(rng: np.random.Generator, shape: Shape, dtype: DType) -> NumpyArray:
    """Draw matrices whose singular values are `spread_values`."""
    *lead, m, n = shape
    values = spread_values(rng, tuple(lead), min(m, n))
    left, right = _orthonormal(rng, tuple(lead), m), _orthonormal(rng, tuple(lead), n)
    k = min(m, n)
    made = (left[..., :k] * values[..., None, :]) @ right[..., :k, :]
    return np.asarray(made.astype(dtype))


def draw_symmetric(
    rng: np.random.Generator, shape: Shape, dtype: DType, lowest: float
) -> NumpyArray:
    """Draw symmetric matrices with spread eigenvalues, moved so that the first is near `lowest`."""
    lead, n = shape[:-2], shape[-1]
    values = spread_values(rng, lead, n) - 0.6 + lowest
    vectors = _orthonormal(rng, lead, n)
    made = (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.asarray(made.astype(dtype))


def each_matrix(function: Any, count: int, *stacks: NumpyArray) -> tuple[NumpyArray, ...]:
    """Apply a function of float64 matrices to stacks; it returns `count` arrays."""
    lead = stacks[0].shape[:-2]
    wide = [x.astype(np.float64) for x in stacks]
    if not lead:
        return function(*wide)
    flat: list[Any] = [x.reshape((math.prod(lead), *x.shape[len(lead) :])) for x in wide]
    if not len(flat[0]):
        empty = function(*(np.eye(x.shape[1], x.shape[2]) for x in flat))
        return tuple(np.zeros((*lead, *part.shape), part.dtype) for part in empty)
    rows = [function(*matrices) for matrices in zip(*flat, strict=True)]
    return tuple(
        np.stack([row[k] for row in rows]).reshape((*lead, *rows[0][k].shape)) for k in range(count)
    )


def roundings_of(x: NumpyArray) -> float:
    """Sums of as many products as the larger extent, of samples with condition below 20."""
    return 4.0 * (8 + min(x.size, max(x.shape[-2:])))
