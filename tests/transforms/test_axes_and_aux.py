"""Every form of in_axes and out_axes; has_aux of the Jacobians; linear_transpose."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError, TraceError
from pyeffect_torch.testing import assert_close

A = np.arange(24.0).reshape(2, 3, 4)
B = np.array([1.0, -2.0, 0.5])


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("out", [0, 1, -1])
def test_each_axis_in_and_out(axis: int, out: int) -> None:
    got = et.vmap(lambda a: a * 2.0 + a.sum(), in_axes=axis, out_axes=out)(et.array(A))
    rows = np.moveaxis(A, axis, 0)
    expected = np.moveaxis(rows * 2 + rows.sum((1, 2), keepdims=True), 0, out)
    assert_close(got, expected)


def test_axes_per_argument_and_shared_ones() -> None:
    f = lambda a, b, c: a @ b + c
    got = et.vmap(f, in_axes=(1, None, 0))(et.array(A[0]), et.array(B), et.array(np.arange(4.0)))
    assert_close(got, A[0].T @ B + np.arange(4.0))
    as_list = et.vmap(f, in_axes=[1, None, 0])(
        et.array(A[0]), et.array(B), et.array(np.arange(4.0))
    )
    assert_close(as_list, A[0].T @ B + np.arange(4.0))


def test_axes_as_trees_and_prefixes_of_trees() -> None:
    p = {"w": et.array(A[0]), "pair": Pair(et.array(B), et.array(A[0].T))}
    axes = {"w": 0, "pair": Pair(0, 1)}
    got = et.vmap(lambda p: p["w"].sum() + p["pair"].left * p["pair"].right.sum(), in_axes=(axes,))(
        p
    )
    assert_close(got, A[0].sum(1) + B * A[0].T.sum(0))
    prefix = {"w": 0, "pair": None}
    shared = et.vmap(lambda p: p["w"].sum() + p["pair"].left.sum(), in_axes=(prefix,))(p)
    assert_close(shared, A[0].sum(1) + B.sum())


def test_out_axes_as_a_tree() -> None:
    got = et.vmap(lambda a: {"x": a, "y": (a.sum(), a * 2)}, out_axes={"x": 1, "y": (0, -1)})(A[0])
    assert_close(got["x"], A[0].T)
    assert_close(got["y"][0], A[0].sum(1))
    assert_close(got["y"][1], 2 * A[0].T)


def test_keyword_arguments_are_batched_along_the_front() -> None:
    got = et.vmap(lambda a, *, b: a.sum() * b)(et.array(A[0]), b=et.array(B))
    assert_close(got, A[0].sum(1) * B)


def test_axis_size_alone_gives_the_rows() -> None:
    got = et.vmap(lambda a: a * 2.0, in_axes=None, axis_size=3)(et.array(B))
    assert_close(got, np.broadcast_to(B * 2, (3, 3)))
    with pytest.raises(ShapeError, match=r"axis_size: 4"):
        et.vmap(lambda a: a, axis_size=4)(et.array(B))
    with pytest.raises(ArgumentError, match="no argument has a batch axis"):
        et.vmap(lambda a: a, in_axes=None)(et.array(B))


def test_no_axis_for_a_result_that_depends_on_the_rows() -> None:
    with pytest.raises(TraceError, match="out_axes is None, but result depends on the batch"):
        et.vmap(lambda a: a, out_axes=None)(et.array(B))
    same = et.vmap(lambda a: et.array(B) * 2.0, out_axes=None)(et.array(B))
    assert_close(same, B * 2)


def test_zero_rows() -> None:
    got = et.vmap(lambda a: et.sin(a).sum())(et.zeros((0, 3)))
    assert got.shape == (0,)


# --- has_aux


def square(x: Any) -> Any:
    return et.sin(x) * x, {"count": x.size, "twice": x * 2.0}


@pytest.mark.parametrize("jacobian", [et.jacfwd, et.jacrev])
def test_a_jacobian_with_aux(jacobian: Any) -> None:
    got, aux = jacobian(square, has_aux=True)(et.array(B))
    assert_close(got, np.diag(np.cos(B) * B + np.sin(B)))
    assert_close(aux["twice"], 2 * B)


def test_a_hessian_with_aux() -> None:
    f = lambda x: ((x**3).sum(), x * 2.0)
    got, aux = et.hessian(f, has_aux=True)(et.array(B))
    assert_close(got, np.diag(6 * B))
    assert_close(aux, 2 * B)


# --- linear_transpose


def test_the_transpose_of_a_linear_function() -> None:
    matrix = et.array(A[0])
    f = lambda x, y: (matrix @ x, 3.0 * y + x[:3].sum())
    transposed = et.linear_transpose(f, et.spec((4,), "f64"), et.spec((2,), "f64"))
    ct = np.array([1.0, 2.0, -1.0])
    dx, dy = transposed((et.array(ct), et.array(np.array([1.0, -3.0]))))
    assert_close(dx, A[0].T @ ct + np.array([-2.0, -2.0, -2.0, 0.0]))
    assert_close(dy, np.array([3.0, -9.0]))


def test_the_transpose_composes() -> None:
    f = lambda x: et.cumsum(x) * 2.0
    g = lambda ct: et.linear_transpose(f, ct)(ct)[0]
    expected = 2 * np.cumsum(B[::-1])[::-1]
    assert_close(et.jit(g)(et.array(B)), expected)
    assert_close(et.vmap(g)(et.array(np.stack([B, B]))), np.stack([expected, expected]))
    assert_close(et.grad(lambda x: (g(x) * et.array(B)).sum())(et.array(B)), 2 * np.cumsum(B))
    twice = et.linear_transpose(lambda x: et.linear_transpose(f, x)(x)[0], et.array(B))
    assert_close(twice(et.array(B))[0], 2 * np.cumsum(B))


def test_what_is_not_linear_has_no_transpose() -> None:
    with pytest.raises(TraceError, match="the function is not linear in its arguments"):
        et.linear_transpose(lambda x: x * x, et.array(B))
    with pytest.raises(DTypeError, match=r"primals\[0\] has dtype int64"):
        et.linear_transpose(lambda x: x * 2, et.arange(3))
