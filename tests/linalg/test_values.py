"""`et.linalg` against `numpy.linalg`, and what factorisations must satisfy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch import linalg

TOLERANCE = 1e-10
SIZES = (1, 2, 5, 24)
OBLONGS = ((5, 3), (3, 5), (17, 4), (4, 17), (6, 6), (1, 4), (4, 1))


def close(got: Any, want: Any, tolerance: float = TOLERANCE) -> None:
    """Relative to the largest element; a zero has to be one."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    scale = np.abs(want).max(initial=0.0)
    assert np.abs(got - want).max(initial=0.0) <= tolerance * scale


def up_to_sign(got: Any, want: Any) -> None:
    """Columns that may differ by their sign."""
    got = np.asarray(got)
    close(got * np.sign((got * want).sum(-2, keepdims=True)), want)


@pytest.mark.parametrize("n", SIZES)
def test_solutions_and_determinants(matrix: Any, rng: Any, n: int) -> None:
    a, b, v = matrix(n, n, 3), rng.standard_normal((3, n, 2)), rng.standard_normal(n)
    x = et.array(a)
    close(linalg.solve(x, b), np.linalg.solve(a, b))
    close(linalg.solve(x, v), np.linalg.solve(a, np.broadcast_to(v[:, None], (3, n, 1)))[..., 0])
    close(linalg.inv(x), np.linalg.inv(a))
    close(linalg.det(x), np.linalg.det(a))
    sign, size = linalg.slogdet(x)
    wanted = np.linalg.slogdet(a)
    close(sign, wanted.sign)
    close(size, wanted.logabsdet)
    close(linalg.pinv(x), np.linalg.inv(a))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_solve(
    matrix: Any, rng: Any, n: int, lower: bool, transpose: bool, unit: bool
) -> None:
    a = matrix(n, n, 2) + 2 * np.eye(n)
    t = np.tril(a) if lower else np.triu(a)
    if unit:
        t[:, range(n), range(n)] = 1
    t = np.swapaxes(t, -1, -2) if transpose else t
    b = rng.standard_normal((2, n, 3))
    flags = {"lower": lower, "transpose_a": transpose, "unit_diagonal": unit}
    close(linalg.triangular_solve(et.array(a), b, **flags), np.linalg.solve(t, b))
    rows = np.swapaxes(b, -1, -2)
    found = linalg.triangular_solve(et.array(a), rows, left_side=False, **flags)
    close(np.asarray(found) @ t, rows)


@pytest.mark.parametrize("n", SIZES)
def test_cholesky(symmetric: Any, n: int) -> None:
    a = symmetric(n, 3, definite=True)
    want = np.linalg.cholesky(a)
    close(linalg.cholesky(et.array(a)), want)
    close(linalg.cholesky(et.array(a), upper=True), np.swapaxes(want, -1, -2))
    skew = a + np.triu(np.ones((n, n)), 1) - np.tril(np.ones((n, n)), -1)
    close(linalg.cholesky(et.array(skew)), want)


@pytest.mark.parametrize(("m", "n"), OBLONGS)
def test_qr_has_lapacks_signs(matrix: Any, m: int, n: int) -> None:
    a = matrix(m, n, 2)
    for mode in ("reduced", "complete"):
        got, want = linalg.qr(et.array(a), mode), np.linalg.qr(a, mode)
        close(got.Q, want.Q)
        close(got.R, want.R)
        close(got.Q @ got.R, a)
    close(linalg.qr(et.array(a), "r"), np.linalg.qr(a, "r"))


@pytest.mark.parametrize("n", SIZES)
def test_eigh(symmetric: Any, n: int) -> None:
    a = symmetric(n, 3)
    got, want = linalg.eigh(et.array(a)), np.linalg.eigh(a)
    close(got.eigenvalues, want.eigenvalues)
    up_to_sign(got.eigenvectors, want.eigenvectors)
    close(linalg.eigvalsh(et.array(a)), want.eigenvalues)
    vectors = got.eigenvectors.numpy()
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(-2, keepdims=True), -2)
    assert (largest > 0).all()
    other = np.triu(a) + np.tril(np.ones((n, n)), -1)
    close(linalg.eigvalsh(et.array(other), "U"), want.eigenvalues)
    close(linalg.eigvalsh(et.array(np.swapaxes(other, -1, -2)), "L"), want.eigenvalues)


@pytest.mark.parametrize(("m", "n"), OBLONGS)
def test_svd(matrix: Any, m: int, n: int) -> None:
    a = matrix(m, n, 2)
    k = min(m, n)
    got, want = linalg.svd(et.array(a), False), np.linalg.svd(a, False)
    close(got.S, want.S)
    up_to_sign(got.U, want.U)
    up_to_sign(got.Vh.mT, np.swapaxes(want.Vh, -1, -2))
    close((got.U * got.S[..., None, :]) @ got.Vh, a)
    close(linalg.svd(et.array(a), compute_uv=False), want.S)
    close(linalg.svdvals(et.array(a)), want.S)
    full = linalg.svd(et.array(a))
    assert full.U.shape == (2, m, m) and full.Vh.shape == (2, n, n)
    close(full.U.mT @ full.U, np.broadcast_to(np.eye(m), (2, m, m)))
    close(full.Vh @ full.Vh.mT, np.broadcast_to(np.eye(n), (2, n, n)))
    close((full.U[..., :k] * full.S[..., None, :]) @ full.Vh[..., :k, :], a)


@pytest.mark.parametrize(("m", "n"), OBLONGS)
def test_least_squares(matrix: Any, rng: Any, m: int, n: int) -> None:
    a, b = matrix(m, n), rng.standard_normal((m, 2))
    want, residuals, rank, s = np.linalg.lstsq(a, b)
    got = linalg.lstsq(et.array(a), b)
    close(got.x, want)
    assert int(got.rank) == rank
    close(got.s, s)
    if m > n:
        close(got.residuals, residuals)
    close(linalg.lstsq(et.array(a), b[:, 0]).x, want[:, 0])
    close(linalg.pinv(et.array(a)), np.linalg.pinv(a))
    stack = linalg.lstsq(et.array(np.stack([a, 2 * a])), np.stack([b, b]))
    close(stack.x[1], want / 2)


def test_rank_and_powers(matrix: Any, rng: Any) -> None:
    a = matrix(5, 4)
    poor = a.copy()
    poor[:, 3] = poor[:, 0] - poor[:, 2]
    ranks = linalg.matrix_rank(et.array(np.stack([a, poor, 0 * a])))
    assert ranks.dtype == np.int64
    assert ranks.tolist() == [4, 3, 0]
    assert int(linalg.matrix_rank(et.array(a), rtol=0.5)) == 2
    assert linalg.lstsq(et.array(poor), a[:, 0]).rank.tolist() == 3
    close(linalg.pinv(et.array(poor)), np.linalg.pinv(poor, rtol=1e-12))
    square = matrix(4, 4, 2)
    for n in (0, 1, 2, 3, 7, -1, -3):
        want = np.stack([np.linalg.matrix_power(one, n) for one in square])
        close(linalg.matrix_power(et.array(square), n), want)
    integers = rng.integers(-3, 4, (3, 3))
    power = linalg.matrix_power(et.array(integers), 5).numpy()
    np.testing.assert_array_equal(power, np.linalg.matrix_power(integers, 5))


VECTOR_ORDERS = (None, 0, 0.5, 1, 2, 3, -1, -2, -0.5, np.inf, -np.inf)
MATRIX_ORDERS = (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)


def test_norms_are_numpys(rng: Any) -> None:
    x = rng.standard_normal((3, 4, 5))
    array = et.array(x)
    close(linalg.norm(array), np.linalg.norm(x))
    for order in VECTOR_ORDERS:
        close(linalg.norm(array[0, 0], order), np.linalg.norm(x[0, 0], order))
        for axis in (0, 1, -1):
            for keep in (False, True):
                close(linalg.norm(array, order, axis, keep), np.linalg.norm(x, order, axis, keep))
    for order in MATRIX_ORDERS:
        close(linalg.norm(array[0], order), np.linalg.norm(x[0], order))
        for axes in ((0, 1), (1, 2), (2, 0), (-1, -3)):
            for keep in (False, True):
                close(linalg.norm(array, order, axes, keep), np.linalg.norm(x, order, axes, keep))
    hole = np.array([1.0, 0.0, -2.0])
    for order in VECTOR_ORDERS:
        with np.errstate(divide="ignore"):
            want = np.linalg.norm(hole, order)
        close(linalg.norm(et.array(hole), order), want)


@pytest.mark.parametrize("n", [3, 20])
def test_float32_is_rounded_once(matrix: Any, symmetric: Any, n: int) -> None:
    a, s = matrix(n, n, 2).astype("float32"), symmetric(n, 2).astype("float32")
    wide, wide_s = a.astype("float64"), s.astype("float64")
    eps = float(np.finfo("float32").eps)
    results = [
        (linalg.inv(et.array(a)), np.linalg.inv(wide), 1e3),  # in three steps: the condition counts
        (linalg.qr(et.array(a)).R, np.linalg.qr(wide).R, 1),
        (linalg.eigvalsh(et.array(s)), np.linalg.eigvalsh(wide_s), 2),
        (linalg.svdvals(et.array(a)), np.linalg.svd(wide, compute_uv=False), 1),
    ]
    for got, want, factor in results:
        assert got.dtype == np.float32
        close(got, want, factor * eps)


def test_sizes_that_need_several_tasks(matrix: Any, symmetric: Any) -> None:
    a, s = matrix(70, 70), symmetric(70, definite=True)
    close(linalg.inv(et.array(a)), np.linalg.inv(a))
    close(linalg.eigvalsh(et.array(s)), np.linalg.eigvalsh(s))
    u, values, vt = linalg.svd(et.array(a))
    close((u * values) @ vt, a)
    many = matrix(3, 3, 700)
    close(linalg.inv(et.array(many)), np.linalg.inv(many))


# --- edges


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_at_all(dtype: str) -> None:
    none = et.zeros((0, 0), dtype)
    assert linalg.inv(none).shape == (0, 0)
    assert float(linalg.det(none)) == 1.0
    assert [float(x) for x in linalg.slogdet(none)] == [1.0, 0.0]
    assert linalg.cholesky(none).numpy().shape == (0, 0)
    assert linalg.solve(none, et.zeros((0, 3), dtype)).numpy().shape == (0, 3)
    assert linalg.solve(none, et.zeros((4, 0, 3), dtype)).numpy().shape == (4, 0, 3)
    assert [x.numpy().shape for x in linalg.eigh(none)] == [(0,), (0, 0)]
    assert linalg.matrix_power(none, 3).numpy().shape == (0, 0)
    for m, n in ((0, 3), (3, 0), (0, 0)):
        a = et.zeros((2, m, n), dtype)
        assert [x.numpy().shape for x in linalg.qr(a)] == [(2, m, 0), (2, 0, n)]
        q, r = linalg.qr(a, "complete")
        np.testing.assert_array_equal(q.numpy(), np.broadcast_to(np.eye(m), (2, m, m)))
        assert r.numpy().shape == (2, m, n)
        u, s, vt = linalg.svd(a)
        assert s.numpy().shape == (2, 0)
        np.testing.assert_array_equal(u.numpy(), np.broadcast_to(np.eye(m), (2, m, m)))
        np.testing.assert_array_equal(vt.numpy(), np.broadcast_to(np.eye(n), (2, n, n)))
        assert linalg.pinv(a).numpy().shape == (2, n, m)
        assert linalg.matrix_rank(a).tolist() == [0, 0]
        assert linalg.lstsq(a, et.ones((2, m, 2), dtype)).x.tolist() == np.zeros((2, n, 2)).tolist()
    empty = et.zeros((0, 3, 3), dtype)
    assert linalg.inv(empty).numpy().shape == (0, 3, 3)
    assert linalg.svd(empty).Vh.numpy().shape == (0, 3, 3)


def test_singular_matrices_give_what_jax_gives() -> None:
    a = et.array([[1.0, 2.0], [2.0, 4.0]], "float64")
    assert not np.isfinite(linalg.inv(a).numpy()).any()
    assert not np.isfinite(linalg.solve(a, et.array([1.0, 1.0], "float64")).numpy()).any()
    assert float(linalg.det(a)) == 0.0
    assert [float(x) for x in linalg.slogdet(a)] == [0.0, -np.inf]
    triangle = et.array([[0.0, 0.0], [1.0, 1.0]], "float64")
    solved = linalg.triangular_solve(triangle, et.ones(2, "float64"), lower=True)
    assert solved.tolist() == [np.inf, -np.inf]
    indefinite = linalg.cholesky(et.array([[1.0, 2.0], [2.0, 1.0]], "float64")).numpy()
    np.testing.assert_array_equal(indefinite, [[np.nan, 0.0], [np.nan, np.nan]])


def test_degenerate_matrices_are_factored() -> None:
    rng = np.random.default_rng(1)
    vector = rng.standard_normal((6, 1))
    cases = [
        np.zeros((5, 5)),
        np.eye(5),
        np.ones((5, 5)),
        vector @ vector.T,
        np.diag([1.0, 0, 1, 0]),
    ]
    for a in cases:
        n = len(a)
        w, v = linalg.eigh(et.array(a))
        u, s, vt = linalg.svd(et.array(a))
        q, r = linalg.qr(et.array(a))
        for product in ((v * w) @ v.mT, (u * s) @ vt, q @ r):
            np.testing.assert_allclose(product.numpy(), a, rtol=0, atol=1e-14 * n)
        for basis in (v, u, vt, q):
            np.testing.assert_allclose(
                (basis.mT @ basis).numpy(), np.eye(n), rtol=0, atol=1e-14 * n
            )


def test_nan_stays_in_its_own_matrix() -> None:
    a = np.stack([np.eye(3), np.full((3, 3), np.nan), 2 * np.eye(3)])
    for function in (linalg.inv, linalg.det, linalg.cholesky, linalg.svdvals, linalg.eigvalsh):
        found = function(et.array(a)).numpy()
        assert np.isfinite(found[[0, 2]]).all(), function
        assert np.isnan(found[1]).any(), function
    for factors in (linalg.qr(et.array(a)), linalg.svd(et.array(a)), linalg.eigh(et.array(a))):
        for part in factors:
            assert np.isnan(part.numpy()[1]).all()
            assert np.isfinite(part.numpy()[[0, 2]]).all()


def test_values_have_the_bits_that_come_with_vectors(matrix: Any, symmetric: Any) -> None:
    a, s = et.array(matrix(9, 7)), et.array(symmetric(8))
    alone = (linalg.svdvals(a).numpy(), linalg.eigvalsh(s).numpy())
    u, values, _ = linalg.svd(a)
    w, v = linalg.eigh(s)
    et.compute([u, values, w, v])
    np.testing.assert_array_equal(alone[0], values.numpy())
    np.testing.assert_array_equal(alone[1], w.numpy())


@pytest.mark.parametrize("function", [linalg.svd, linalg.eigh, linalg.qr])
def test_a_long_factorisation_can_be_cancelled(rng: Any, function: Any) -> None:
    a = et.array(rng.standard_normal((2000, 2000)))
    with pytest.raises(et.errors.CancelledError), et.cancel_scope(0.1):
        et.compute(list(function(a)))
    close(linalg.inv(2 * et.eye(3, dtype="float64")), np.eye(3) / 2)
