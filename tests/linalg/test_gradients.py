"""Derivatives of `et.linalg` at orders 1 and 2: formulas at condition 1000, differences, vmap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch import linalg
from pyeffect_torch.testing import check_grads

TOLERANCE = 1e-10
N = 8


def close(got: Any, want: Any, tolerance: float = TOLERANCE) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    scale = np.abs(want).max(initial=0.0)
    assert np.abs(got - want).max(initial=0.0) <= tolerance * scale


def second(f: Callable[..., Any], x: Any, direction: Any) -> tuple[Any, ...]:
    """The second derivative along a direction: as jvp of jvp, of grad, and as grad of jvp."""
    v = et.array(direction)

    def slope(y: Any) -> Any:
        return et.jvp(f, (y,), (v,))[1]

    forward = et.jvp(slope, (x,), (v,))[1]
    mixed = et.jvp(et.grad(f), (x,), (v,))[1]
    reverse = et.grad(slope)(x)
    return forward, et.sum(mixed * v), et.sum(reverse * v)


# --- formulas


def test_logarithm_of_the_determinant(matrix: Any, rng: Any) -> None:
    a, e = matrix(N, N), rng.standard_normal((N, N))
    inverse = np.linalg.inv(a)

    def f(x: Any) -> Any:
        return linalg.slogdet(x).logabsdet

    close(et.grad(f)(et.array(a)), inverse.T)
    want = -np.trace(inverse @ e @ inverse @ e)
    for got in second(f, et.array(a), e):
        close(got, want)


def test_determinant(matrix: Any, rng: Any) -> None:
    a, e = matrix(N, N), rng.standard_normal((N, N))
    inverse, size = np.linalg.inv(a), np.linalg.det(a)
    close(et.grad(linalg.det)(et.array(a)), size * inverse.T)
    moved = inverse @ e
    want = size * (np.trace(moved) ** 2 - np.trace(moved @ moved))
    for got in second(linalg.det, et.array(a), e):
        close(got, want, 1e-9)  # a difference of two terms


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_determinant_of_a_singular_matrix_has_its_cofactors(rng: Any, rank: int) -> None:
    """Exact zeros as last pivots: small integers."""
    left, right = np.eye(4, rank), np.eye(rank, 4)
    left[3], right[:, 3] = 1.0, 2.0
    a = left @ right
    want = np.array(
        [
            [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(4)]
            for i in range(4)
        ]
    )
    got = et.grad(linalg.det)(et.array(a)).numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)
    assert (rank == 3) == bool(np.abs(want).any())


def test_inverse_and_solution(matrix: Any, rng: Any) -> None:
    a, e, b = matrix(N, N), rng.standard_normal((N, N)), rng.standard_normal((N, 2))
    inverse = np.linalg.inv(a)
    x, v = et.array(a), et.array(e)
    close(et.jvp(linalg.inv, (x,), (v,))[1], -inverse @ e @ inverse)
    twice = et.jvp(lambda y: et.jvp(linalg.inv, (y,), (v,))[1], (x,), (v,))[1]
    close(twice, 2 * inverse @ e @ inverse @ e @ inverse)

    def f(y: Any, z: Any) -> Any:
        return et.sum(linalg.solve(y, z))

    ones = np.ones((N, 2))
    a_grad, b_grad = et.grad(f, argnums=(0, 1))(x, et.array(b))
    close(b_grad, inverse.T @ ones)
    close(a_grad, -(inverse.T @ ones) @ (inverse @ b).T)
    want = 2 * np.sum(inverse @ e @ inverse @ e @ inverse @ b)
    for got in second(lambda y: f(y, et.array(b)), x, e):
        close(got, want)


def test_eigenvalues(symmetric: Any, rng: Any) -> None:
    """Gaps down to 1/7 of what differs in sign, 1/100 and less of what does not."""
    a, e = symmetric(N), rng.standard_normal((N, N))
    e = (e + e.T) / 2
    values, vectors = np.linalg.eigh(a)
    inside = vectors.T @ e @ vectors
    gaps = values[:, None] - values + np.eye(N)
    for k in range(N):
        close(
            et.grad(lambda x, k=k: linalg.eigvalsh(x)[k])(et.array(a)),
            np.outer(vectors[:, k], vectors[:, k]),
        )
        shares = inside[:, k] ** 2 / gaps[k]
        want = 2 * (shares.sum() - shares[k])
        for got in second(lambda x, k=k: linalg.eigvalsh(x)[k], et.array(a), e):
            close(got, want)


def test_eigenvectors(symmetric: Any, rng: Any) -> None:
    a, e = symmetric(N), rng.standard_normal((N, N))
    e = (e + e.T) / 2
    values, vectors = linalg.eigh(et.array(a))
    v, w = vectors.numpy(), values.numpy()
    gaps = w - w[:, None]
    turn = np.where(gaps == 0, 0.0, v.T @ e @ v) / np.where(gaps == 0, 1.0, gaps)
    tangent = et.jvp(lambda x: linalg.eigh(x).eigenvectors, (et.array(a),), (et.array(e),))[1]
    close(tangent, v @ turn)

    def cubes(x: Any) -> Any:
        """The third power, which has derivatives of its own."""
        found = linalg.eigh(x)
        return et.sum(((found.eigenvectors * found.eigenvalues**3) @ found.eigenvectors.mT)[0])

    first = et.jvp(cubes, (et.array(a),), (et.array(e),))[1]
    close(first, (e @ a @ a + a @ e @ a + a @ a @ e)[0].sum())
    for got in second(cubes, et.array(a), e):
        close(got, 2 * (e @ e @ a + e @ a @ e + a @ e @ e)[0].sum())


@pytest.mark.parametrize(("m", "n"), [(N, N), (N, 5), (5, N)])
def test_singular_values(matrix: Any, rng: Any, m: int, n: int) -> None:
    """They are the positive eigenvalues of the symmetric [[0, A], [A^T, 0]]."""
    a, e = matrix(m, n), rng.standard_normal((m, n))

    def doubled(x: Any) -> Any:
        return np.block([[np.zeros((m, m)), x], [x.T, np.zeros((n, n))]])

    values, vectors = np.linalg.eigh(doubled(a))
    inside = vectors.T @ doubled(e) @ vectors
    for k in range(min(m, n)):
        at = m + n - 1 - k
        u, v = vectors[:m, at], vectors[m:, at]
        close(et.grad(lambda x, k=k: linalg.svdvals(x)[k])(et.array(a)), 2 * np.outer(u, v))
        gaps = values[at] - values
        gaps[at] = np.inf
        want = 2 * np.sum(inside[:, at] ** 2 / gaps)
        for got in second(lambda x, k=k: linalg.svdvals(x)[k], et.array(a), e):
            close(got, want)


@pytest.mark.parametrize(("m", "n"), [(N, N), (N, 5), (5, N)])
def test_singular_vectors_and_orthogonal_factors_rebuild(
    matrix: Any, rng: Any, m: int, n: int
) -> None:
    """The product is the matrix, so its derivatives are 1 and 0 whatever the factors do."""
    a, e = matrix(m, n), rng.standard_normal((m, n))
    weights = et.array(rng.standard_normal((m, n)))

    def by_svd(x: Any) -> Any:
        u, s, vt = linalg.svd(x, full_matrices=False)
        return (u * s) @ vt

    def by_qr(x: Any) -> Any:
        q, r = linalg.qr(x, "complete")
        return q @ r

    for rebuild in (by_svd, by_qr):
        close(et.jvp(rebuild, (et.array(a),), (et.array(e),))[1], e)
        total = et.grad(lambda x, f=rebuild: et.sum(f(x) * weights))
        close(total(et.array(a)), weights)
        curved = et.jvp(total, (et.array(a),), (et.array(e),))[1].numpy()
        # Terms of size 1/gap^2 cancel.
        assert np.abs(curved).max() <= 1e-8


def test_cholesky_and_triangular_solution_rebuild(symmetric: Any, rng: Any) -> None:
    a, e = symmetric(N, definite=True), rng.standard_normal((N, N))
    e = (e + e.T) / 2
    weights = et.array(rng.standard_normal((N, N)))
    inverse = np.linalg.inv(a)

    def square(x: Any) -> Any:
        factor = linalg.cholesky(x)
        return factor @ factor.mT

    close(et.jvp(square, (et.array(a),), (et.array(e),))[1], e)
    both = (np.asarray(weights) + np.asarray(weights).T) / 2
    close(et.grad(lambda x: et.sum(square(x) * weights))(et.array(a)), both)

    def inverted(x: Any) -> Any:
        factor = linalg.cholesky(x)
        half = linalg.triangular_solve(factor, et.eye(N, dtype="float64"), lower=True)
        return linalg.triangular_solve(factor, half, lower=True, transpose_a=True)

    close(et.jvp(inverted, (et.array(a),), (et.array(e),))[1], -inverse @ e @ inverse)
    twice = et.jvp(
        lambda y: et.jvp(inverted, (y,), (et.array(e),))[1], (et.array(a),), (et.array(e),)
    )[1]
    close(twice, 2 * inverse @ e @ inverse @ e @ inverse, 1e-9)


# --- differences


def gentle(shape: tuple[int, ...], seed: int = 0) -> Any:
    """A matrix with condition below 10."""
    rng = np.random.default_rng(seed)
    *_, m, n = shape
    return rng.standard_normal(shape) / (2 * math.sqrt(max(m, n))) + np.eye(m, n) * np.arange(
        1, n + 1
    )


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (linalg.solve, (gentle((3, 3)), np.ones((3, 2)))),
    "solve vector": (linalg.solve, (gentle((2, 3, 3)), np.ones(3))),
    "triangular right": (
        lambda a, b: linalg.triangular_solve(a, b, left_side=False, lower=True, unit_diagonal=True),
        (gentle((3, 3)), np.ones((2, 3))),
    ),
    "inv": (linalg.inv, (gentle((2, 3, 3)),)),
    "det": (linalg.det, (gentle((2, 3, 3)),)),
    "slogdet": (lambda a: linalg.slogdet(a).logabsdet, (gentle((3, 3)),)),
    "cholesky": (lambda a: linalg.cholesky(a @ a.mT, upper=True), (gentle((3, 3)),)),
    "qr tall": (lambda a: tuple(linalg.qr(a)), (gentle((4, 3)),)),
    "qr wide": (lambda a: tuple(linalg.qr(a)), (gentle((3, 4)),)),
    "qr complete": (lambda a: tuple(linalg.qr(a, "complete")), (gentle((5, 2)),)),
    "eigh": (lambda a: tuple(linalg.eigh(a)), (gentle((3, 3)),)),
    "eigh lower": (lambda a: tuple(linalg.eigh(a, "L")), (gentle((3, 3)),)),
    "eigh upper": (lambda a: tuple(linalg.eigh(a, "U")), (gentle((3, 3)),)),
    "svd tall": (lambda a: tuple(linalg.svd(a, full_matrices=False)), (gentle((4, 3)),)),
    "svd full": (lambda a: tuple(linalg.svd(a)), (gentle((4, 2)),)),
    "svd full wide": (lambda a: tuple(linalg.svd(a)), (gentle((2, 4)),)),
    "pinv tall": (linalg.pinv, (gentle((4, 3)),)),
    "pinv wide": (linalg.pinv, (gentle((3, 4)),)),
    "lstsq": (lambda a, b: linalg.lstsq(a, b)[:2], (gentle((4, 3)), np.ones((4, 2)))),
    "power": (lambda a: (linalg.matrix_power(a, 3), linalg.matrix_power(a, -2)), (gentle((3, 3)),)),
    "norms": (
        lambda a: [linalg.norm(a, p) for p in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)],
        (gentle((4, 3)),),
    ),
    "vector norms": (
        lambda a: [linalg.norm(a, p, -1) for p in (0.5, 1, 2, 3, -1, -2.5, np.inf, -np.inf)],
        (gentle((2, 3)) + 0.3,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_differences(name: str) -> None:
    f, args = CASES[name]
    check_grads(f, args, order=2)


# --- transforms


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_rows(name: str) -> None:
    """`vmap(grad)`, and a second order, are those of each row."""
    f, args = CASES[name]
    rows = [[np.asarray(x) * s for x in args] for s in (1.0, 1.25)]

    def total(*given: Any) -> Any:
        leaves, _ = et.tree.flatten(f(*given))
        return sum((et.sum(et.sin(leaf)) for leaf in leaves), et.array(0.0, "float64"))

    def curved(*given: Any) -> Any:
        return et.jvp(et.grad(total), given, tuple(et.ones_like(x) for x in given))

    stacked = [et.array(np.stack(parts)) for parts in zip(*rows, strict=True)]
    together = et.vmap(curved)(*stacked)
    compiled = et.jit(et.vmap(curved))(*stacked)
    for k, row in enumerate(rows):
        alone = curved(*(et.array(x) for x in row))
        for got, same, want in zip(together, compiled, alone, strict=True):
            close(got[k], want)
            close(same[k], want)


def test_right_hand_sides_alone_are_batched_as_columns(matrix: Any, rng: Any) -> None:
    a, b = matrix(4, 4), rng.standard_normal((5, 4, 2))
    found = et.vmap(linalg.solve, in_axes=(None, 0))(et.array(a), et.array(b))
    close(found, np.linalg.solve(a, b))
    vectors = rng.standard_normal((5, 3, 4))
    deep = et.vmap(et.vmap(lambda z: linalg.solve(et.array(a), z)))(et.array(vectors))
    close(deep, np.linalg.solve(a, vectors[..., None])[..., 0])
    factored = et.make_ir(et.vmap(linalg.solve, in_axes=(None, 0)))(et.array(a), et.array(b))
    assert "solve(" in str(factored) and "[5, 4, 4]" not in str(factored)


def test_hessians_agree_in_every_mode() -> None:
    a = et.array(gentle((3, 3)))

    def f(x: Any) -> Any:
        return linalg.slogdet(x).logabsdet + et.sum(linalg.eigvalsh(x)[:1])

    wanted = et.hessian(f)(a)
    for outer in (et.jacfwd, et.jacrev):
        for inner in (et.jacfwd, et.jacrev):
            close(outer(inner(f))(a), wanted)


# --- zeros and ties


@pytest.mark.parametrize("order", [None, "fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf])
def test_a_norm_has_gradient_0_at_0(order: Any) -> None:
    gradient = et.grad(lambda x: linalg.norm(x, order))(et.zeros((3, 2), "float64"))
    np.testing.assert_array_equal(gradient.numpy(), np.zeros((3, 2)))


@pytest.mark.parametrize("order", [None, 2, 1, 3, np.inf, -np.inf, 0.5, -1])
def test_a_norm_of_a_vector_has_gradient_0_at_0(order: Any) -> None:
    gradient = et.grad(lambda x: linalg.norm(x, order))(et.zeros(3, "float64"))
    np.testing.assert_array_equal(gradient.numpy(), np.zeros(3))


def test_equal_eigenvalues_do_not_spoil_what_does_not_mix_them() -> None:
    a = et.array(np.diag([1.0, 1.0, 2.0]))
    close(et.grad(lambda x: et.sum(linalg.eigvalsh(x) ** 2))(a), 2 * np.diag([1.0, 1.0, 2.0]))
    close(et.grad(lambda x: et.sum(linalg.svdvals(x) ** 2))(a), 2 * np.diag([1.0, 1.0, 2.0]))


def test_pseudo_inverse_of_constant_rank(rng: Any) -> None:
    """Differences along a curve of matrices of rank 2."""
    left, right = rng.standard_normal((5, 2)), rng.standard_normal((2, 4))
    e = rng.standard_normal((5, 2))
    step = 1e-5

    def at(t: float) -> Any:
        return (left + t * e) @ right

    got = et.jvp(linalg.pinv, (et.array(at(0.0)),), (et.array(e @ right),))[1].numpy()
    plus, minus = (np.linalg.pinv(at(t), rtol=1e-10) for t in (step, -step))
    np.testing.assert_allclose(got, (plus - minus) / (2 * step), rtol=0, atol=1e-7)


# --- a Gaussian process


def test_likelihood_of_a_gaussian_process(rng: Any) -> None:
    """Cholesky, triangular solution and logarithm of the determinant; fitted by gradient steps."""
    x = np.linspace(0, 1, 30)
    y = np.sin(6 * x) + 0.1 * rng.standard_normal(30)
    distances = et.array((x[:, None] - x) ** 2)
    values, unit = et.array(y), et.eye(30, dtype="float64")

    def kernel(log_length: Any, log_noise: Any) -> Any:
        return et.exp(-0.5 * distances * et.exp(-2 * log_length)) + et.exp(2 * log_noise) * unit

    def loss(parameters: Any) -> Any:
        factor = linalg.cholesky(kernel(*parameters))
        half = linalg.triangular_solve(factor, values, lower=True)
        size = et.sum(et.log(et.diagonal(factor)))
        return 0.5 * et.sum(half * half) + size + 15 * math.log(2 * math.pi)

    def same(parameters: Any) -> Any:
        k = kernel(*parameters)
        fit = 0.5 * et.sum(values * linalg.solve(k, values))
        return fit + 0.5 * linalg.slogdet(k).logabsdet + 15 * math.log(2 * math.pi)

    start = (et.array(-1.0, "float64"), et.array(-1.5, "float64"))
    check_grads(loss, (start,), order=2)
    step = et.jit(et.value_and_grad(loss))
    parameters, losses = start, []
    for _ in range(40):
        value, slopes = step(parameters)
        close(value, same(parameters))
        for slope, other in zip(slopes, et.grad(same)(parameters), strict=True):
            assert abs(float(slope) - float(other)) <= 1e-9  # near 0 as terms of size 1 cancel
        losses.append(float(value))
        parameters = tuple(p - 0.01 * g for p, g in zip(parameters, slopes, strict=True))
    assert losses[-1] < losses[0] - 5
    assert 0.05 < math.exp(float(parameters[1])) < 0.2
