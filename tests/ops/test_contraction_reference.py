"""Products and einsum against NumPy, inferred types, and the messages of their errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.array import placeholder
from pyeffect_torch.core.op import Op
from pyeffect_torch.ops.contraction import DOT_GENERAL

pytestmark = pytest.mark.usefixtures("on_reference")
RNG = np.random.default_rng(0)
Shape = tuple[int, ...]
SHAPES: tuple[Shape, ...] = (
    (3,),
    (2, 3),
    (3, 2),
    (4, 2, 3),
    (4, 3, 2),
    (1, 2, 3),
    (5, 1, 3, 2),
    (5, 4, 2, 3),
    (1, 4, 3, 2),
    (5, 1, 1, 3, 3),
    (1, 4, 1, 3, 3),
    (0, 3),
    (2, 0, 3),
)
# The sums below have at most 24 terms, each at most about 16: 24 roundings of 24 * 16.
TOLERANCE = 24 * 24 * 16 * 2.0**-52


def same(got: Any, want: Any, what: Any = "") -> None:
    assert got.shape == want.shape, what
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=TOLERANCE, err_msg=str(what))


def test_types_are_those_of_the_reference(check_types: Callable[[Op], None]) -> None:
    check_types(DOT_GENERAL)


@pytest.mark.parametrize("name", ["matmul", "dot", "inner", "vecdot", "outer", "kron"])
def test_products_are_numpys(name: str) -> None:
    taken = refused = 0
    for a_shape, b_shape in itertools.product(SHAPES, SHAPES):
        a, b = RNG.standard_normal(a_shape), RNG.standard_normal(b_shape)
        if name == "kron" and 0 in a_shape + b_shape:
            continue  # NumPy's reshape does not take these
        try:
            want = getattr(np, name)(a, b)
        except ValueError:
            with pytest.raises(et.errors.ShapeError, match=name):
                getattr(et, name)(a, b)
            refused += 1
            continue
        same(getattr(et, name)(a, b), want, (a_shape, b_shape))
        taken += 1
    assert taken >= 30
    assert refused >= (0 if name in ("outer", "kron") else 20)


EINSUMS: tuple[tuple[str, tuple[Shape, ...]], ...] = (
    ("ij,jk", ((2, 3), (3, 4))),
    ("ij,jk->ki", ((2, 3), (3, 4))),
    (" i j , j k -> i k ", ((2, 3), (3, 4))),
    ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)),
    ("iij->j", ((3, 3, 2),)),
    ("iiij->ij", ((3, 3, 3, 2),)),
    ("...ij,...jk", ((2, 1, 2, 3), (4, 3, 2))),
    ("i,j,k->kji", ((2,), (3,), (4,))),
    ("ij,jk,kl,lm", ((2, 3), (3, 4), (4, 5), (5, 2))),
    ("ab,ab->ab", ((2, 3), (2, 3))),
    ("ab,ab->a", ((2, 3), (2, 3))),
    ("ab->", ((2, 3),)),
    ("ab->ba", ((2, 3),)),
    ("ab,c->b", ((2, 3), (4,))),
    ("abc,cd,bd->a", ((2, 3, 4), (4, 5), (3, 5))),
    ("...a->...", ((2, 3, 4),)),
    ("a...,a...->...", ((2, 3, 1), (2, 1, 4))),
    ("i,i->", ((3,), (3,))),
    ("bhld,bhsd->bhls", ((2, 2, 3, 4), (2, 2, 5, 4))),
    ("ij,ik->ijk", ((2, 3), (2, 4))),
    ("a,b->ab", ((0,), (3,))),
    ("ab,bc->ac", ((2, 0), (0, 3))),
    ("iji,j->ij", ((3, 2, 3), (2,))),
    ("...,...", ((2, 3), (3,))),
    ("z...,b->b...z", ((2, 3), (4,))),
    ("ab,bc,ca->", ((2, 3), (3, 4), (4, 2))),
    (",a->a", ((), (3,))),
)


@pytest.mark.parametrize(("subscripts", "shapes"), EINSUMS)
def test_einsum_is_numpys(subscripts: str, shapes: tuple[Shape, ...]) -> None:
    arrays = [RNG.standard_normal(shape) for shape in shapes]
    same(et.einsum(subscripts, *arrays), np.einsum(subscripts, *arrays), subscripts)


def test_einsum_takes_the_cheap_path() -> None:
    """A chain that ends in a vector never makes a matrix of the large extents."""
    made = et.make_ir(lambda a, b, v: et.einsum("ij,jk,k->i", a, b, v))(
        et.zeros((50, 60)), et.zeros((60, 70)), et.zeros(70)
    )
    assert "50, 70" not in str(made)


def test_gradients_of_einsum_are_einsums() -> None:
    a, b = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((4, 2, 5))
    ct = RNG.standard_normal((2, 3, 5))
    to_a, to_b = et.grad(lambda x, y: et.sum(et.einsum("bij,jbk->bik", x, y) * ct), argnums=(0, 1))(
        et.array(a), et.array(b)
    )
    same(to_a, np.einsum("bik,jbk->bij", ct, b))
    same(to_b, np.einsum("bik,bij->jbk", ct, a))


@pytest.mark.parametrize("axes", [0, 1, 2, ([1], [0]), ([0, 1], [1, 0]), (0, 1), ([-1], [0])])
def test_tensordot_is_numpys(axes: Any) -> None:
    a, b = RNG.standard_normal((3, 3)), RNG.standard_normal((3, 3))
    same(et.tensordot(a, b, axes), np.tensordot(a, b, axes))


def test_others() -> None:
    a, b = RNG.standard_normal((2, 1, 3)), RNG.standard_normal((4, 3))
    same(et.cross(a, b), np.cross(a, b))
    same(et.cross(b.T, b.T, axis=0), np.cross(b.T, b.T, axis=0))
    same(et.vdot(a, a), np.vdot(a, a))
    weights, bias = RNG.standard_normal((5, 3)), RNG.standard_normal(5)
    same(et.linear(a, weights, bias), a @ weights.T + bias)
    same(et.linear(a[0, 0], weights), weights @ a[0, 0])
    same(et.dot(a, 2.0), a * 2)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint64", "float16", "float32"])
def test_dtypes_are_kept(dtype: str) -> None:
    a = np.arange(6).reshape(2, 3).astype(dtype)
    got = et.matmul(a, a.T)
    assert got.dtype == a.dtype
    np.testing.assert_array_equal(got.numpy(), a @ a.T)


def test_int8_products_do_not_wrap() -> None:
    a = np.full((1, 2), 100, np.int8)
    got = et.matmul(a, a.T)
    assert got.dtype == np.int32
    assert got.item() == 20000


def test_half_products_round_once() -> None:
    a = np.full((1, 4096), 0.5, np.float16)
    assert et.matmul(a, np.ones((4096, 1), np.float16)).item() == 2048.0


F = placeholder((2, 3), np.dtype(np.float32), "f")
G = placeholder((4, 2), np.dtype(np.float32), "g")


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [
        (
            "ShapeError",
            lambda: F @ G,
            r"matmul: contracted axes differ, 3 \(axis 1 of float32\[2, 3\]\) against 4 \(axis 0 "
            r"of float32\[4, 2\]\)",
        ),
        ("ShapeError", lambda: et.matmul(F, et.zeros(())), "needs arrays with axes"),
        ("DTypeError", lambda: F @ et.zeros((3, 2), "float64"), r"matmul: mixed dtypes"),
        ("DTypeError", lambda: et.dot(F > 0, F > 0), r"dot: has no meaning for bool\[2, 3\]"),
        ("ShapeError", lambda: et.linear(F, G), r"weights float32\[4, 2\] do not apply to"),
        (
            "ShapeError",
            lambda: et.linear(G, et.zeros((5, 2)), et.zeros((2,))),
            r"the bias float32\[2\] must have shape \[5\]",
        ),
        ("ShapeError", lambda: et.tensordot(F, G, 1), "tensordot: contracted axes differ, 3"),
        ("ShapeError", lambda: et.tensordot(F, G, 3), "have no 3 axes to contract"),
        ("ShapeError", lambda: et.cross(F, G), "cross: needs extent 3 along axis -1"),
        ("ArgumentError", lambda: et.einsum("ij,jk", F), "names 2 operands, but 1 were given"),
        ("ArgumentError", lambda: et.einsum("i1", F), "'i1' is not made of letters"),
        ("ArgumentError", lambda: et.einsum("ij->k", F), "no operand has 'k'"),
        ("ArgumentError", lambda: et.einsum("ij->ii", F), "the result names a letter twice"),
        ("ShapeError", lambda: et.einsum("i", F), r"'i' does not name the axes of float32\[2, 3\]"),
        ("ShapeError", lambda: et.einsum("ij,jk", F, G), "'j' has extent 3 and, as axis 0 of"),
        ("DTypeError", lambda: et.einsum("ij->i", F > 0), "einsum: has no meaning for bool"),
    ],
)
def test_errors(error: str, call: Callable[[], Any], message: str) -> None:
    with pytest.raises(getattr(et.errors, error), match=message):
        call()
