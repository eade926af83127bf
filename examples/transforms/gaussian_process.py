"""The likelihood of a Gaussian process by Cholesky, and the gradient of its hyperparameters."""

from __future__ import annotations

import math
from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import hessian, jit, random, tree, value_and_grad, vmap
from pyeffect_torch.linalg import cholesky, solve

POINTS = 12


def kernel(p: Any, x: Any, y: Any) -> Any:
    """Squared exponential: p has the logarithms of amplitude, length and noise."""
    return jnp.exp(2.0 * p[0] - 0.5 * ((x - y) / jnp.exp(p[1])) ** 2)


def negative_log_likelihood(p: Any, x: Any, y: Any) -> Any:
    covariance = vmap(lambda a: vmap(lambda b: kernel(p, a, b))(x))(x)
    noisy = covariance + jnp.exp(2.0 * p[2]) * jnp.eye(POINTS)
    factor = cholesky(noisy)
    white = solve(factor, y[:, None])[:, 0]
    logdet = 2.0 * jnp.log(jnp.diagonal(factor)).sum()
    return 0.5 * (white @ white + logdet + POINTS * math.log(2.0 * math.pi))


def main() -> dict[str, Any]:
    """Return the likelihood, its gradient and its Hessian."""
    x = jnp.linspace(-2.0, 2.0, POINTS)
    y = jnp.sin(1.5 * x) + 0.1 * random.normal(random.key(6), (POINTS,))
    p = jnp.array([0.1, -0.2, -1.0])
    value, gradient = jit(value_and_grad(negative_log_likelihood))(p, x, y)
    return {
        "value": value,
        "gradient": gradient,
        "hessian": jit(hessian(negative_log_likelihood))(p, x, y),
    }


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
