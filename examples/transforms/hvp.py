"""Hessian-vector products three ways, and Newton's method by conjugate gradients over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import fori_loop, grad, hessian, jit, jvp, tree, vjp

SIZE = 6


def f(x: Any) -> Any:
    """The function of Rosenbrock."""
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum()


def forward_over_reverse(x: Any, v: Any) -> Any:
    return jvp(grad(f), (x,), (v,))[1]


def reverse_over_forward(x: Any, v: Any) -> Any:
    return grad(lambda y: jvp(f, (y,), (v,))[1])(x)


def reverse_over_reverse(x: Any, v: Any) -> Any:
    return vjp(grad(f), x)[1](v)[0]


def conjugate_gradients(product: Callable[[Any], Any], b: Any, steps: int) -> Any:
    def step(i: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        x, r, p = state
        q = product(p)
        alpha = (r @ r) / (p @ q)
        rest = r - alpha * q
        return x + alpha * p, rest, rest + (rest @ rest) / (r @ r) * p

    return fori_loop(0, steps, step, (jnp.zeros_like(b), b, b))[0]


def main() -> dict[str, Any]:
    """Return the products and one Newton step."""
    x = jnp.linspace(0.5, 1.25, SIZE)
    v = jnp.linspace(-1.0, 1.0, SIZE)
    solve = lambda x: conjugate_gradients(lambda p: forward_over_reverse(x, p), grad(f)(x), 4)
    return {
        "jvp of grad": jit(forward_over_reverse)(x, v),
        "grad of jvp": jit(reverse_over_forward)(x, v),
        "vjp of grad": jit(reverse_over_reverse)(x, v),
        "hessian": jit(hessian(f))(x),
        "newton": jit(solve)(x),
    }


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
