"""The op `eigh`: eigenvalues and eigenvectors of a symmetric matrix, from its lower triangle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind, outputs
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.core.op import Domain, JvpRule, MaybeArray, Sample, declare
from pyeffect_torch.ops.matrices import (
    MATRIX_DTYPES,
    SQUARES,
    check_square,
    column,
    diagonals,
    draw_symmetric,
    each_matrix,
    reciprocal_or_zero,
    roundings_of,
    row,
    square_matrix,
    stacked,
    symmetric_from_lower,
    times,
    turned,
)
from pyeffect_torch.ops.parameters import FactorParams

__all__: list[str] = []

_f: Any = late.functions


class EighResult(NamedTuple):
    """Ascending eigenvalues, and eigenvectors as columns."""

    eigenvalues: Array
    eigenvectors: Array


def _infer(inputs: tuple[Array, ...], params: FactorParams) -> Any:
    del params
    (a,) = inputs
    check_square("eigh", a)
    return (a.shape[:-1], a.dtype), (a.shape, a.dtype)


def _rule(node: Array, tangents: Sequence[MaybeArray]) -> list[MaybeArray]:
    """With M = V^T dA V: dw = diag(M), dV = V (M / gaps); equal eigenvalues do not mix."""
    (tangent,) = tangents
    if tangent is None:
        return [None, None]
    values, vectors = outputs(node)
    inside = times(turned(vectors), times(symmetric_from_lower(tangent), vectors))
    gaps = _f.subtract(row(values), column(values))
    mixed = _f.multiply(reciprocal_or_zero(gaps), inside)
    return [diagonals(inside), times(vectors, mixed)]


def signs_of_largest(vectors: Any) -> Any:
    """For references: 1, or -1 where the element of largest magnitude of a column is negative."""
    if not vectors.size:
        return np.ones(vectors.shape[-1])
    largest = np.argmax(np.abs(vectors), axis=0)
    return np.where(np.take_along_axis(vectors, largest[None], 0)[0] < 0, -1.0, 1.0)


def _reference(attributes: Any, a: Any) -> Any:
    del attributes

    def factor(x: Any) -> tuple[Any, Any]:
        if not np.isfinite(np.tril(x)).all():
            return np.full(len(x), np.nan), np.full(x.shape, np.nan)
        values, vectors = np.linalg.eigh(x)
        return values, vectors * signs_of_largest(vectors)

    return each_matrix(factor, 2, a)


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [Sample((draw_symmetric(rng, shape, dtype, -1.7),), FactorParams()) for shape in SQUARES]


EIGH: Final = declare(
    "eigh",
    infer=_infer,
    derivative=JvpRule(_rule),
    batch=stacked,
    reference=_reference,
    domain=Domain(MATRIX_DTYPES, _samples, lambda sample: 2 * roundings_of(sample.inputs[0])),
    opcode="eigh",
    traits=("multi",),
)


def eigh(a: Any, UPLO: str | None = None) -> EighResult:
    """Return the eigenvalues, ascending, and eigenvectors of symmetric matrices.

    Each eigenvector has norm 1 and its element of largest magnitude positive.

    Args:
        a: `[.., n, n]`, float32 or float64.
        UPLO: "L" or "U": only that triangle is read. By default the symmetric part `(a + a.T) / 2`
            is taken, so that gradients are symmetric.

    Returns:
        `EighResult(eigenvalues, eigenvectors)` of shapes `[.., n]` and `[.., n, n]`, vectors as
        columns. Derivatives of vectors need distinct eigenvalues: what equal ones would mix counts
        as 0.

    Raises:
        ShapeError: not square. DTypeError: neither float32 nor float64. ArgumentError: UPLO.
    """
    return EighResult(*outputs(bind(EIGH, (_triangle("eigh", a, UPLO),), FactorParams())))


def eigvalsh(a: Any, UPLO: str | None = None) -> Array:
    """Return the eigenvalues of symmetric matrices, ascending; arguments and errors of `eigh`."""
    return outputs(bind(EIGH, (_triangle("eigvalsh", a, UPLO),), FactorParams()))[0]


def _triangle(name: str, a: Any, chosen: str | None) -> Array:
    """The matrices whose lower triangle is to be read."""
    matrices = square_matrix(name, a)
    if chosen is None:
        return _f.multiply(_f.add(matrices, turned(matrices)), 0.5)
    if chosen not in ("L", "U"):
        raise ArgumentError(f"{name}: UPLO is {chosen!r}", 'use "L", "U" or None')
    return matrices if chosen == "L" else turned(matrices)
