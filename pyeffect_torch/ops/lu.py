"""LU factorisation, and what follows from it: the ops `lu`, `solve`, `det` and `logabsdet`.

The last three are regions: when encoded they are an `lu` and triangular solutions, which equal
ones in a program share, and their derivatives are those of the implicit function, not of the
factorisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, outputs
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Domain, JvpRule, MaybeArray, Op, Region, Sample, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import mixed_dtypes, operand
from pyeffect_torch.ops.indexing import TAKE
from pyeffect_torch.ops.matrices import (
    MATRIX_DTYPES,
    SQUARES,
    check_right_hand_sides,
    check_square,
    column,
    diagonals,
    draw_matrix,
    each_matrix,
    identity_like,
    on_inputs,
    roundings_of,
    solved,
    square_matrix,
    stacked,
    times,
    turned,
)
from pyeffect_torch.ops.parameters import (
    KIND_SET,
    MODE_CLIP,
    FactorParams,
    ScatterParams,
    SolveParams,
    TakeParams,
)
from pyeffect_torch.ops.stacks import with_stacks
from pyeffect_torch.ops.triangular import solve_triangle

__all__: list[str] = []

_f: Any = late.functions


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its magnitude."""

    sign: Array
    logabsdet: Array


# --- lu


def _factor(a: Array) -> tuple[Array, ...]:
    """L and U in one matrix, the permutation of the rows, and its sign."""
    return outputs(bind(LU, (a,), FactorParams()))


def _infer_lu(inputs: tuple[Array, ...], params: FactorParams) -> Any:
    del params
    (a,) = inputs
    check_square("lu", a)
    return (a.shape, a.dtype), (a.shape[:-1], dtypes.int64), (a.shape[:-2], a.dtype)


def _permuted(x: Array, permutation: Array) -> Array:
    """The rows of `x` in the order of a factorisation."""
    lead = len(permutation.shape) - 1
    return bind(TAKE, (x, permutation), TakeParams(lead, lead, MODE_CLIP))


def _restored(x: Array, permutation: Array) -> Array:
    """The inverse of `_permuted`."""
    lead = len(permutation.shape) - 1
    params = ScatterParams(lead, lead, MODE_CLIP, KIND_SET)
    return _f.scatter_general(_f.zeros_like(x), permutation, x, params)


def _lu_rule(node: Array, tangents: Sequence[MaybeArray]) -> list[MaybeArray]:
    """With X = L^-1 dA U^-1: dL = L lower(X), dU = upper(X) U."""
    (tangent,) = tangents
    if tangent is None:
        return [None, None, None]
    packed, permutation, _ = outputs(node)
    x = solve_triangle(packed, _permuted(tangent, permutation), lower=True, unit=True)
    x = turned(solve_triangle(packed, turned(x), lower=False, transpose=True))
    left = _f.add(_f.tril(packed, -1), identity_like(packed, packed.shape[-1]))
    below = times(left, _f.tril(x, -1))
    above = times(_f.triu(x), _f.triu(packed))
    return [_f.add(below, above), None, None]


def _lu_reference(attributes: Any, a: Any) -> Any:
    del attributes

    def factor(x: Any) -> tuple[Any, Any, Any]:
        x = x.copy()
        order, sign = np.arange(len(x)), 1.0
        for j in range(len(x)):
            pivot = j + int(np.argmax(np.abs(x[j:, j])))
            if pivot != j:
                x[[j, pivot]], order[[j, pivot]], sign = x[[pivot, j]], order[[pivot, j]], -sign
            x[j + 1 :, j] /= x[j, j] if x[j, j] else 1.0
            x[j + 1 :, j + 1 :] -= np.outer(x[j + 1 :, j], x[j, j + 1 :])
        return x, order.astype(np.int64), np.asarray(sign)

    return each_matrix(factor, 3, a)


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [Sample((draw_matrix(rng, shape, dtype),), FactorParams()) for shape in SQUARES]


_DOMAIN: Final = Domain(MATRIX_DTYPES, _samples, lambda sample: roundings_of(sample.inputs[0]))

LU: Final = declare(
    "lu",
    infer=_infer_lu,
    derivative=JvpRule(_lu_rule),
    batch=stacked,
    reference=_lu_reference,
    domain=_DOMAIN,
    opcode="lu",
    traits=("multi",),
)


# --- solve


def solve_square(a: Array, b: Array, *, transpose: bool = False) -> Array:
    """Return the solution of `a x = b`, or `a.T x = b`; both `[.., n, _]`, equal leading axes."""
    return outputs(bind(SOLVE, (a, b), SolveParams(transpose)))[0]


def _infer_solve(inputs: tuple[Array, ...], params: SolveParams) -> Any:
    del params
    a, b = inputs
    check_right_hand_sides("solve", a, b)
    return ((b.shape, b.dtype),)


def _solve_inline(node: Array, inputs: Sequence[Array]) -> list[Array]:
    a, b = inputs
    packed, permutation, _ = _factor(a)
    if node.params.transpose:
        y = solve_triangle(packed, b, lower=False, transpose=True)
        y = solve_triangle(packed, y, lower=True, transpose=True, unit=True)
        return [_restored(y, permutation)]
    y = solve_triangle(packed, _permuted(b, permutation), lower=True, unit=True)
    return [solve_triangle(packed, y, lower=False)]


def _solve_forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    (x,) = on_inputs(node, inputs)
    a_tangent, total = tangents
    transpose: bool = node.params.transpose
    if a_tangent is not None:
        pushed = times(turned(a_tangent) if transpose else a_tangent, x)
        total = _f.negative(pushed) if total is None else _f.subtract(total, pushed)
    assert total is not None
    return [x], [solve_square(inputs[0], total, transpose=transpose)]


def _solve_reverse(
    node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> list[MaybeArray]:
    (ct,) = cts
    if ct is None:
        return [None, None]
    transpose: bool = node.params.transpose
    b_ct = solve_square(node.inputs[0], ct, transpose=not transpose)
    if not need[0]:
        return [None, b_ct]
    (x,) = outputs(node)
    pulled = times(x, turned(b_ct)) if transpose else times(b_ct, turned(x))
    return [_f.negative(pulled), b_ct]


def _solve_reference(attributes: Any, a: Any, b: Any) -> Any:
    transpose = attributes["transpose"]
    return each_matrix(lambda x, y: (np.linalg.solve(x.T if transpose else x, y),), 1, a, b)


def _solve_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample(
            (
                draw_matrix(rng, shape, dtype),
                domains.draw(rng, (*shape[:-1], number % 4), dtype),
            ),
            SolveParams(number % 2 == 1),
        )
        for number, shape in enumerate(SQUARES)
    ]


SOLVE: Final = declare(
    "solve",
    infer=_infer_solve,
    derivative=Region(_solve_forward, _solve_reverse, _solve_inline),
    batch=solved,
    reference=_solve_reference,
    domain=Domain(MATRIX_DTYPES, _solve_samples, lambda s: 4 * roundings_of(s.inputs[0])),
    attributes=lambda node: {"transpose": node.params.transpose},
    traits=("multi",),
)


# --- determinants


def _infer_scalar(name: str) -> Any:
    def infer(inputs: tuple[Array, ...], params: FactorParams) -> Any:
        del params
        (a,) = inputs
        check_square(name, a)
        return ((a.shape[:-2], a.dtype),)

    return infer


def _scalar_op(name: str, inline: Any, slope: Any, reference: Any) -> Op:
    """An op from matrices to numbers; `slope` gives its gradient, `[.., n, n]`."""

    def forward(
        node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
    ) -> tuple[list[Array], list[MaybeArray]]:
        (tangent,) = tangents
        assert tangent is not None
        moved = _f.sum(_f.multiply(slope(inputs[0]), tangent), (-2, -1))
        return list(on_inputs(node, inputs)), [moved]

    def reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> list[MaybeArray]:
        (ct,) = cts
        if ct is None or not need[0]:
            return [None]
        return [_f.multiply(column(column(ct)), slope(node.inputs[0]))]

    return declare(
        name,
        infer=_infer_scalar(name),
        derivative=Region(forward, reverse, inline),
        batch=stacked,
        reference=lambda attributes, a: each_matrix(lambda x: (np.asarray(reference(x)),), 1, a),
        domain=_DOMAIN,
        traits=("multi",),
    )


def _det_inline(node: Array, inputs: Sequence[Array]) -> list[Array]:
    del node
    packed, _, sign = _factor(inputs[0])
    return [_f.multiply(sign, _f.prod(diagonals(packed), -1))]


def _cofactors(a: Array) -> Array:
    """The gradient of the determinant, right also where a singular `a` has rank n - 1.

    The determinant times the inverse: the last pivot, which alone may vanish then, is multiplied
    where it would have to be divided by. Other pivots that vanish make everything 0.
    """
    n = a.shape[-1]
    if n == 0:
        return _f.zeros_like(a)
    packed, permutation, sign = _factor(a)
    pivots = diagonals(packed)
    before = column(_f.multiply(sign, _f.prod(pivots[..., :-1], -1)))
    last = _f.equal(_f.arange(n), n - 1)
    one = _f.ones_like(pivots)
    factors = _f.multiply(before, _f.where(last, one, pivots[..., -1:]))
    y = _permuted(identity_like(a, n), permutation)
    y = solve_triangle(packed, y, lower=True, unit=True)
    divisors = _f.where(_f.logical_or(last, _f.equal(pivots, 0)), one, pivots)
    unit = identity_like(a, n)
    upper = _f.add(_f.triu(packed, 1), _f.multiply(unit, column(divisors)))
    return turned(solve_triangle(upper, _f.multiply(column(factors), y), lower=False))


def _logabsdet_inline(node: Array, inputs: Sequence[Array]) -> list[Array]:
    del node
    packed, _, _ = _factor(inputs[0])
    return [_f.sum(_f.log(_f.abs(diagonals(packed))), -1)]


def _inverse_turned(a: Array) -> Array:
    return solve_square(a, identity_like(a, a.shape[-1]), transpose=True)


DET: Final = _scalar_op("det", _det_inline, _cofactors, np.linalg.det)
LOGABSDET: Final = _scalar_op(
    "logabsdet", _logabsdet_inline, _inverse_turned, lambda x: np.linalg.slogdet(x)[1]
)


# --- the functions that users call


def solve(a: Any, b: Any) -> Array:
    """Return the solution x of `a @ x = b`, by LU with partial pivoting; leading axes broadcast.

    Args:
        a: `[.., n, n]`, float32 or float64.
        b: of the same dtype, `[n]` or `[.., n, k]`.

    Returns:
        x, of the shape of `b` broadcast; infinite or NaN where `a` is singular.

    Raises:
        ShapeError: not square, or extents do not fit. DTypeError: dtypes differ, or are others.
    """
    matrices, sides = square_matrix("solve", a), operand("solve", b)
    if sides.dtype is not matrices.dtype:
        raise mixed_dtypes("solve", matrices, sides)
    return with_stacks("solve", solve_square, matrices, sides)


def inv(a: Any) -> Array:
    """Return the inverse of square matrices `[.., n, n]`; infinite or NaN where singular.

    Raises:
        ShapeError: not square. DTypeError: neither float32 nor float64.
    """
    matrices = square_matrix("inv", a)
    return solve_square(matrices, identity_like(matrices, matrices.shape[-1]))


def det(a: Any) -> Array:
    """Return the determinant of square matrices: `[.., n, n]` to `[..]`.

    The gradient is right for singular matrices too; second derivatives need a regular one.

    Raises:
        ShapeError: not square. DTypeError: neither float32 nor float64.
    """
    return outputs(bind(DET, (square_matrix("det", a),), FactorParams()))[0]


def slogdet(a: Any) -> SlogdetResult:
    """Return the sign of the determinant and the logarithm of its magnitude, each `[..]`.

    Of a singular matrix they are 0 and -inf.

    Raises:
        ShapeError: not square. DTypeError: neither float32 nor float64.
    """
    matrices = square_matrix("slogdet", a)
    packed, _, sign = _factor(matrices)
    signs = _f.prod(_f.sign(diagonals(packed)), -1)
    (size,) = outputs(bind(LOGABSDET, (matrices,), FactorParams()))
    return SlogdetResult(_f.multiply(sign, signs), size)
