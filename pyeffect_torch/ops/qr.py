"""The op `qr`: Householder's factorisation, with LAPACK's signs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind, outputs
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.core.op import Domain, JvpRule, MaybeArray, Sample, declare
from pyeffect_torch.ops.lu import solve_square
from pyeffect_torch.ops.matrices import (
    MATRIX_DTYPES,
    OBLONGS,
    check_matrix,
    draw_matrix,
    each_matrix,
    identity_like,
    matrix,
    roundings_of,
    stacked,
    times,
    turned,
)
from pyeffect_torch.ops.parameters import QrParams
from pyeffect_torch.ops.triangular import solve_triangle

__all__: list[str] = []

_f: Any = late.functions

MODES: Final = ("reduced", "complete", "r")


class QRResult(NamedTuple):
    """A factorisation `Q @ R`."""

    Q: Array
    R: Array


def _infer(inputs: tuple[Array, ...], params: QrParams) -> Any:
    (a,) = inputs
    check_matrix("qr", a)
    *lead, m, n = a.shape
    k = m if params.complete else min(m, n)
    return ((*lead, m, k), a.dtype), ((*lead, k, n), a.dtype)


def _rule(node: Array, tangents: Sequence[MaybeArray]) -> list[MaybeArray]:
    """The first min(m, n) columns A1 = Q1 R1 decide: X = dA1 R1^-1 = dQ1 + Q1 (upper triangle).

    Then W = Q1^T dQ1 is antisymmetric with the lower triangle of Q1^T X, and dR = Q1^T dA - W R.
    """
    (tangent,) = tangents
    if tangent is None:
        return [None, None]
    q, r = outputs(node)
    m, n = node.inputs[0].shape[-2:]
    k = min(m, n)
    q1, r1 = q[..., :k], r[..., :k, :]
    x = turned(solve_triangle(r1[..., :k], turned(tangent[..., :k]), lower=False, transpose=True))
    inside = times(turned(q1), x)
    below = _f.tril(inside, -1)
    turn = _f.subtract(below, turned(below))
    q_tangent = _f.add(times(q1, _f.subtract(turn, inside)), x)
    r_tangent = _f.subtract(times(turned(q1), tangent), times(turn, r1))
    if not node.params.complete or m <= n:
        return [q_tangent, r_tangent]
    none = _f.zeros_like(r[..., k:, :])
    rest = _rest_of_q(q1, q_tangent)
    return [_f.concatenate([q_tangent, rest], -1), _f.concatenate([r_tangent, none], -2)]


def _rest_of_q(q1: Array, moved: Array) -> Array:
    """The tangent of the other columns of a square Q, from the first k and theirs.

    Reflections are decided by what they make of the first k columns: with E the first k columns of
    the unit matrix and T, B the top and bottom parts of Q1, Q2 = E2 + (Q1 - E) (T - I)^-T B^T
    (as in Ballard et al. 2014, "Reconstructing Householder vectors from TSQR").
    """
    k = q1.shape[-1]
    unit = _f.eye(q1.shape[-2], k, dtype=q1.dtype)
    top = _f.subtract(q1[..., :k, :], identity_like(q1, k))
    g = solve_square(top, turned(q1[..., k:, :]), transpose=True)
    inner = _f.subtract(turned(moved[..., k:, :]), times(turned(moved[..., :k, :]), g))
    g_tangent = solve_square(top, inner, transpose=True)
    return _f.add(times(moved, g), times(_f.subtract(q1, unit), g_tangent))


def _reference(attributes: Any, a: Any) -> Any:
    mode = "complete" if attributes["complete"] else "reduced"

    def factor(x: Any) -> tuple[Any, Any]:
        finite = np.isfinite(x).all()
        q, r = np.linalg.qr(x if finite else np.zeros(x.shape), mode)
        return (q, r) if finite else (np.full(q.shape, np.nan), np.full(r.shape, np.nan))

    return each_matrix(factor, 2, a)


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample((draw_matrix(rng, shape, dtype),), QrParams(complete))
        for shape in OBLONGS
        for complete in (False, True)
    ]


QR: Final = declare(
    "qr",
    infer=_infer,
    derivative=JvpRule(_rule),
    batch=stacked,
    reference=_reference,
    domain=Domain(MATRIX_DTYPES, _samples, lambda sample: roundings_of(sample.inputs[0])),
    opcode="qr",
    attributes=lambda node: {"complete": node.params.complete},
    traits=("multi",),
)


def qr(a: Any, mode: str = "reduced") -> Any:
    """Return Q with orthonormal columns and upper triangular R, `Q @ R = a`.

    Signs are LAPACK's: the diagonal of R is not made positive.

    Args:
        a: `[.., m, n]`, float32 or float64. Derivatives need its first min(m, n) columns to be
            independent.
        mode: "reduced": Q `[.., m, k]` and R `[.., k, n]` with k the smaller of m and n;
            "complete": Q `[.., m, m]`, R `[.., m, n]`; "r": R of "reduced" alone.

    Returns:
        `QRResult(Q, R)`, or R.

    Raises:
        ShapeError: rank below 2. DTypeError: neither float32 nor float64. ArgumentError: the mode.
    """
    matrices = matrix("qr", a)
    if mode not in MODES:
        raise ArgumentError(f"qr: unknown mode {mode!r}", 'use "reduced", "complete" or "r"')
    q, r = outputs(bind(QR, (matrices,), QrParams(mode == "complete")))
    return r if mode == "r" else QRResult(q, r)
