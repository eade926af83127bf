"""A fixed point by `while_loop`, differentiated by the implicit function theorem (`custom_vjp`)."""

from __future__ import annotations

from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import custom_vjp, grad, jit, tree, vjp, vmap, while_loop

TOLERANCE = 1e-6


def update(params: Any, x: Any) -> Any:
    """A contraction for params below 1."""
    return jnp.cos(params * x) * 0.5 + params * 0.25


def iterate(f: Any, x: Any) -> Any:
    """Apply `f` until the change is small."""
    state = while_loop(
        lambda s: jnp.abs(s[1] - s[0]) > TOLERANCE, lambda s: (s[1], f(s[1])), (x, f(x))
    )
    return state[1]


@custom_vjp
def fixed_point(params: Any, start: Any) -> Any:
    return iterate(lambda x: update(params, x), start)


def forward(params: Any, start: Any) -> tuple[Any, Any]:
    star = fixed_point(params, start)
    return star, (params, star)


def backward(residuals: tuple[Any, Any], ct: Any) -> tuple[Any, Any]:
    params, star = residuals
    _, by_x = vjp(lambda x: update(params, x), star)
    adjoint = iterate(lambda u: ct + by_x(u)[0], ct)
    _, by_params = vjp(lambda p: update(p, star), params)
    return by_params(adjoint)[0], jnp.zeros_like(star)


fixed_point.defvjp(forward, backward)


def main() -> dict[str, Any]:
    """Return the fixed point, its derivative, and both for a batch."""
    value = jit(fixed_point)(0.8, 0.1)
    slope = jit(grad(fixed_point))(0.8, 0.1)
    batch = jnp.array([0.1, 0.5, 0.9])
    values = vmap(fixed_point, in_axes=(0, None))(batch, 0.1)
    slopes = jit(vmap(grad(fixed_point), in_axes=(0, None)))(batch, 0.1)
    return {"value": value, "slope": slope, "values": values, "slopes": slopes}


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
