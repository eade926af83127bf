"""The op `cholesky`, which reads a lower triangle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Domain, JvpRule, MaybeArray, Sample, declare
from pyeffect_torch.ops.index_base import all_batched
from pyeffect_torch.ops.matrices import (
    MATRIX_DTYPES,
    SQUARES,
    check_square,
    draw_symmetric,
    each_matrix,
    roundings_of,
    square_matrix,
    symmetric_from_lower,
    times,
    turned,
)
from pyeffect_torch.ops.triangular import solve_triangle

__all__: list[str] = []

_f: Any = late.functions


def _infer(inputs: tuple[Array, ...], params: Any) -> Any:
    del params
    (a,) = inputs
    check_square("cholesky", a)
    return a.shape, a.dtype


def _rule(node: Array, tangents: Sequence[MaybeArray]) -> MaybeArray:
    """With X = L^-1 dA L^-T: dL = L (lower triangle of X, half of its diagonal)."""
    (tangent,) = tangents
    if tangent is None:
        return None
    x = solve_triangle(node, symmetric_from_lower(tangent), lower=True)
    x = solve_triangle(node, turned(x), lower=True)
    half = _f.multiply(_f.add(_f.tril(x), _f.tril(x, -1)), 0.5)
    return times(node, half)


def _reference(attributes: Any, a: Any) -> Any:
    del attributes

    def factor(x: Any) -> tuple[Any]:
        try:
            return (np.linalg.cholesky(np.tril(x) + np.tril(x, -1).T),)
        except np.linalg.LinAlgError:
            return (np.tril(np.full(x.shape, np.nan)),)

    return each_matrix(factor, 1, a)[0]


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [Sample((draw_symmetric(rng, shape, dtype, 0.8),)) for shape in SQUARES]


CHOLESKY: Final = declare(
    "cholesky",
    infer=_infer,
    derivative=JvpRule(_rule),
    batch=lambda node, inputs, batched, size: bind(
        node.op, all_batched(inputs, batched, size), node.params
    ),
    reference=_reference,
    domain=Domain(MATRIX_DTYPES, _samples, lambda sample: roundings_of(sample.inputs[0])),
    opcode="cholesky",
)


def cholesky(a: Any, *, upper: bool = False) -> Array:
    """Return the lower triangular L with `L @ L.T = a`, of symmetric positive definite matrices.

    Args:
        a: `[.., n, n]`, float32 or float64. Its symmetric part `(a + a.T) / 2` is factored, so
            gradients are symmetric.
        upper: return `L.T` instead.

    Returns:
        `[.., n, n]`; the triangle is NaN where `a` is not positive definite.

    Raises:
        ShapeError: not square. DTypeError: neither float32 nor float64.
    """
    matrices = square_matrix("cholesky", a)
    factor = bind(CHOLESKY, (_f.multiply(_f.add(matrices, turned(matrices)), 0.5),))
    return turned(factor) if upper else factor
