"""The ops `svd` and `pinv`: singular values and vectors, and the inverse that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, outputs
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.core.op import Domain, JvpRule, MaybeArray, Region, Sample, declare
from pyeffect_torch.ops.base import is_number
from pyeffect_torch.ops.eigh import signs_of_largest
from pyeffect_torch.ops.matrices import (
    MATRIX_DTYPES,
    OBLONGS,
    check_matrix,
    column,
    diagonals,
    draw_matrix,
    each_matrix,
    matrix,
    on_inputs,
    reciprocal_or_zero,
    roundings_of,
    row,
    stacked,
    times,
    turned,
)
from pyeffect_torch.ops.parameters import FactorParams, PinvParams
from pyeffect_torch.ops.qr import qr

__all__: list[str] = []

_f: Any = late.functions


class SVDResult(NamedTuple):
    """Left singular vectors as columns, descending singular values, right vectors as rows."""

    U: Array
    S: Array
    Vh: Array


# --- svd


def _infer(inputs: tuple[Array, ...], params: FactorParams) -> Any:
    del params
    (a,) = inputs
    check_matrix("svd", a)
    *lead, m, n = a.shape
    k = min(m, n)
    return ((*lead, m, k), a.dtype), ((*lead, k), a.dtype), ((*lead, k, n), a.dtype)


def _rule(node: Array, tangents: Sequence[MaybeArray]) -> list[MaybeArray]:
    """With D = U^T dA V: ds = diag(D), and vectors turn by D and D^T over gaps of squares.

    What lies outside of the k vectors of the longer side moves by itself, over the value.
    """
    (tangent,) = tangents
    if tangent is None:
        return [None, None, None]
    u, s, vt = outputs(node)
    m, n = node.inputs[0].shape[-2:]
    v = turned(vt)
    image, image_turned = times(tangent, v), times(turned(tangent), u)
    inside = times(turned(u), image)
    s_row, s_column = row(s), column(s)
    gaps = _f.multiply(_f.subtract(s_row, s_column), _f.add(s_row, s_column))
    turn = reciprocal_or_zero(gaps)
    inverse = row(reciprocal_or_zero(s))
    left = _f.add(_f.multiply(inside, s_row), _f.multiply(turned(inside), s_column))
    u_tangent = times(u, _f.multiply(turn, left))
    right = _f.add(_f.multiply(inside, s_column), _f.multiply(turned(inside), s_row))
    v_tangent = times(v, _f.multiply(turn, right))
    if m > n:
        outside = _f.subtract(image, times(u, inside))
        u_tangent = _f.add(u_tangent, _f.multiply(outside, inverse))
    if n > m:
        outside = _f.subtract(image_turned, times(v, turned(inside)))
        v_tangent = _f.add(v_tangent, _f.multiply(outside, inverse))
    return [u_tangent, diagonals(inside), turned(v_tangent)]


def _reference(attributes: Any, a: Any) -> Any:
    del attributes

    def factor(x: Any) -> tuple[Any, Any, Any]:
        if not np.isfinite(x).all():
            made = np.linalg.svd(np.zeros(x.shape), full_matrices=False)
            u, s, vt = (np.full_like(part, np.nan) for part in made)
            return u, s, vt
        u, s, vt = np.linalg.svd(x, full_matrices=False)
        signs = signs_of_largest(u)
        return u * signs, s, vt * signs[:, None]

    return each_matrix(factor, 3, a)


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [Sample((draw_matrix(rng, shape, dtype),), FactorParams()) for shape in OBLONGS]


SVD: Final = declare(
    "svd",
    infer=_infer,
    derivative=JvpRule(_rule),
    batch=stacked,
    reference=_reference,
    domain=Domain(MATRIX_DTYPES, _samples, lambda sample: 2 * roundings_of(sample.inputs[0])),
    opcode="svd",
    traits=("multi",),
)


def _reduced(a: Array) -> SVDResult:
    return SVDResult(*outputs(bind(SVD, (a,), FactorParams())))


# --- pinv


def _pinv_infer(inputs: tuple[Array, ...], params: PinvParams) -> Any:
    del params
    (a,) = inputs
    check_matrix("pinv", a)
    *lead, m, n = a.shape
    return (((*lead, n, m), a.dtype),)


def _pinv_inline(node: Array, inputs: Sequence[Array]) -> list[Array]:
    u, s, vt = _reduced(inputs[0])
    inverse = _f.where(above(s, node.params.rtol), reciprocal_or_zero(s), _f.zeros_like(s))
    return [times(_f.multiply(turned(vt), row(inverse)), turned(u))]


def above(s: Array, rtol: float) -> Array:
    """Return which descending singular values are more than `rtol` times the first."""
    return _f.greater(s, _f.multiply(s[..., :1], rtol))


def _pinv_forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    """dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P (Golub and Pereyra 1973)."""
    (p,) = on_inputs(node, inputs)
    (tangent,) = tangents
    assert tangent is not None
    moved, pt = turned(tangent), turned(p)
    first = times(times(p, tangent), p)
    second = times(p, times(pt, moved))
    second = _f.subtract(second, times(times(second, inputs[0]), p))
    third = times(times(moved, pt), p)
    third = _f.subtract(third, times(p, times(inputs[0], third)))
    return [p], [_f.subtract(_f.add(second, third), first)]


def _pinv_reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> list[MaybeArray]:
    (ct,) = cts
    if ct is None or not need[0]:
        return [None]
    (a,), (p,) = node.inputs, outputs(node)
    pt, back = turned(p), turned(ct)
    first = times(times(pt, ct), pt)
    second = times(times(back, p), pt)
    second = _f.subtract(second, times(a, times(p, second)))
    third = times(pt, times(p, back))
    third = _f.subtract(third, times(times(third, p), a))
    return [_f.subtract(_f.add(second, third), first)]


def _pinv_reference(attributes: Any, a: Any) -> Any:
    rtol = attributes["rtol"]
    return each_matrix(lambda x: (np.linalg.pinv(x, rtol),), 1, a)


def _pinv_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [Sample((draw_matrix(rng, shape, dtype),), PinvParams(1e-3)) for shape in OBLONGS]


PINV: Final = declare(
    "pinv",
    infer=_pinv_infer,
    derivative=Region(_pinv_forward, _pinv_reverse, _pinv_inline),
    batch=stacked,
    reference=_pinv_reference,
    domain=Domain(MATRIX_DTYPES, _pinv_samples, lambda sample: 4 * roundings_of(sample.inputs[0])),
    attributes=lambda node: {"rtol": node.params.rtol},
    traits=("multi",),
)


# --- the functions that users call


def tolerance(name: str, a: Array, rtol: Any) -> float:
    """Return `rtol`, by default the rounding of the dtype times the larger extent."""
    if rtol is None:
        return dtypes.epsilon(a.dtype) * max(a.shape[-2:])
    if not is_number(rtol) or not rtol >= 0:
        raise ArgumentError(f"{name}: the tolerance is {rtol!r}", "pass a number from 0 up")
    return float(rtol)


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Return U, S and Vh with `a = (U * S) @ Vh` for the first min(m, n) vectors.

    Singular values descend. Each left vector has its element of largest magnitude positive.

    Args:
        a: `[.., m, n]`, float32 or float64.
        full_matrices: U `[.., m, m]` and Vh `[.., n, n]`; else `[.., m, k]` and `[.., k, n]`, k the
            smaller of m and n.
        compute_uv: if False, return S `[.., k]` alone, which costs less.

    Returns:
        `SVDResult(U, S, Vh)`, or S. Derivatives of vectors need distinct values that are not 0:
        what equal ones would mix counts as 0.

    Raises:
        ShapeError: rank below 2. DTypeError: neither float32 nor float64.
    """
    matrices = matrix("svd", a)
    u, s, vt = _reduced(matrices)
    if not compute_uv:
        return s
    m, n = matrices.shape[-2:]
    if full_matrices and m > n:
        u = _f.concatenate([u, qr(u, "complete").Q[..., n:]], -1)
    if full_matrices and n > m:
        vt = _f.concatenate([vt, turned(qr(turned(vt), "complete").Q[..., m:])], -2)
    return SVDResult(u, s, vt)


def svdvals(a: Any) -> Array:
    """Return the singular values of matrices `[.., m, n]`, descending; errors of `svd`."""
    return _reduced(matrix("svdvals", a)).S


def pinv(a: Any, rtol: float | None = None) -> Array:
    """Return the pseudo-inverse of matrices: `[.., m, n]` to `[.., n, m]`.

    Args:
        a: float32 or float64. Derivatives are those at constant rank.
        rtol: singular values up to `rtol` times the largest count as 0; by default the larger
            extent times the spacing of the dtype at 1.

    Raises:
        ShapeError: rank below 2. DTypeError: neither float32 nor float64. ArgumentError: `rtol`.
    """
    matrices = matrix("pinv", a)
    params = PinvParams(tolerance("pinv", matrices, rtol))
    return outputs(bind(PINV, (matrices,), params))[0]
