"""Triangular systems: the op `triangular_solve`, which the other solutions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, bind, outputs
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Domain, MaybeArray, Region, Sample, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import mixed_dtypes, operand
from pyeffect_torch.ops.matrices import (
    MATRIX_DTYPES,
    SQUARES,
    check_right_hand_sides,
    draw_matrix,
    each_matrix,
    on_inputs,
    roundings_of,
    solved,
    square_matrix,
    times,
    turned,
)
from pyeffect_torch.ops.parameters import TriangularParams
from pyeffect_torch.ops.stacks import with_stacks

__all__: list[str] = []

_f: Any = late.functions


def solve_triangle(
    a: Array, b: Array, *, lower: bool, transpose: bool = False, unit: bool = False
) -> Array:
    """Return the solution of `a x = b`, or `a.T x = b`; both `[.., n, _]`, equal leading axes."""
    return outputs(bind(TRIANGULAR_SOLVE, (a, b), TriangularParams(lower, transpose, unit)))[0]


def _infer(inputs: tuple[Array, ...], params: TriangularParams) -> Any:
    del params
    a, b = inputs
    check_right_hand_sides("triangular_solve", a, b)
    return ((b.shape, b.dtype),)


def _again(node: Array, a: Array, b: Array, *, transpose: bool) -> Array:
    lower, _, unit, _ = node.params
    return solve_triangle(a, b, lower=lower, transpose=transpose, unit=unit)


def _triangle(node: Array, x: Array) -> Array:
    """What the op reads of a matrix."""
    lower, _, unit, _ = node.params
    return _f.tril(x, -1 if unit else 0) if lower else _f.triu(x, 1 if unit else 0)


def _forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    (x,) = on_inputs(node, inputs)
    a_tangent, total = tangents
    transpose: bool = node.params.transpose
    if a_tangent is not None:
        moved = _triangle(node, a_tangent)
        pushed = times(turned(moved) if transpose else moved, x)
        total = _f.negative(pushed) if total is None else _f.subtract(total, pushed)
    assert total is not None
    return [x], [_again(node, inputs[0], total, transpose=transpose)]


def _reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> list[MaybeArray]:
    (ct,) = cts
    if ct is None:
        return [None, None]
    transpose: bool = node.params.transpose
    b_ct = _again(node, node.inputs[0], ct, transpose=not transpose)
    if not need[0]:
        return [None, b_ct]
    (x,) = outputs(node)
    pulled = times(x, turned(b_ct)) if transpose else times(b_ct, turned(x))
    return [_f.negative(_triangle(node, pulled)), b_ct]


def _reference(attributes: Any, a: Any, b: Any) -> Any:
    lower, transpose, unit = (attributes[k] for k in ("lower", "transpose", "unit_diagonal"))

    def solve(t: Any, rhs: Any) -> tuple[Any]:
        t = np.tril(t) if lower else np.triu(t)
        t = t.T if transpose else t
        x = np.zeros(rhs.shape)
        order = range(len(t)) if lower != transpose else reversed(range(len(t)))
        for i in order:
            left = rhs[i] - t[i] @ x  # what is not solved yet is 0 in x
            x[i] = left if unit else left / t[i, i]
        return (x,)

    return each_matrix(solve, 1, a, b)


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    out: list[Sample] = []
    for number, shape in enumerate(SQUARES):
        n = shape[-1]
        a = draw_matrix(rng, shape, dtype)
        a = (a / (n + 1) + np.sign(a) * np.eye(n)).astype(dtype)
        b = domains.draw(rng, (*shape[:-1], number % 4), dtype)
        lower, transpose, unit = (number >> bit & 1 == 1 for bit in range(3))
        out.append(Sample((a, b), TriangularParams(lower, transpose, unit)))
    return out


TRIANGULAR_SOLVE: Final = declare(
    "triangular_solve",
    infer=_infer,
    derivative=Region(_forward, _reverse, None),
    batch=solved,
    reference=_reference,
    domain=Domain(MATRIX_DTYPES, _samples, lambda sample: roundings_of(sample.inputs[0])),
    opcode="triangular_solve",
    attributes=lambda node: {
        "lower": node.params.lower,
        "transpose": node.params.transpose,
        "unit_diagonal": node.params.unit_diagonal,
    },
    traits=("multi",),
)


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = True,
    lower: bool = False,
    transpose_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """Return the solution x of `a @ x = b`, with `a` triangular; leading axes broadcast.

    Args:
        a: `[.., n, n]`, float32 or float64; only one triangle of it is read.
        b: of the same dtype, `[n]` or `[.., n, k]`; with `left_side=False` `[.., k, n]`.
        left_side: if False, x solves `x @ a = b`.
        lower: the lower triangle is read, by default the upper one.
        transpose_a: `a.T` takes the place of `a`.
        unit_diagonal: the diagonal counts as 1 and is not read.

    Returns:
        x, of the shape of `b` broadcast; infinite or NaN where the diagonal has a 0.

    Raises:
        ShapeError: not square, or extents do not fit. DTypeError: dtypes differ, or are others.
    """
    name = "triangular_solve"
    matrices, sides = square_matrix(name, a), operand(name, b)
    if sides.dtype is not matrices.dtype:
        raise mixed_dtypes(name, matrices, sides)

    def solve(t: Array, x: Array) -> Array:
        if left_side:
            return solve_triangle(t, x, lower=lower, transpose=transpose_a, unit=unit_diagonal)
        # x a = b is a.T x.T = b.T.
        found = solve_triangle(
            t, turned(x), lower=lower, transpose=not transpose_a, unit=unit_diagonal
        )
        return turned(found)

    return with_stacks(name, solve, matrices, sides, left_side)
