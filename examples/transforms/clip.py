"""Per-example gradients by `vmap` of `grad`, each clipped to a norm, as private training does."""

from __future__ import annotations

from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import grad, jit, random, tree, vmap

FEATURES, EXAMPLES, LIMIT = 5, 12, 0.75


def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
    return jnp.logaddexp(0.0, -y * (jnp.dot(p["w"], jnp.sin(x)) + p["b"]))


def clipped(p: dict[str, Any], x: Any, y: Any) -> tuple[dict[str, Any], Any]:
    """The mean of the clipped gradients, and the norms before."""
    gradients = vmap(grad(loss), in_axes=(None, 0, 0))(p, x, y)
    squares = [(leaf.reshape(EXAMPLES, -1) ** 2).sum(1) for leaf in tree.leaves(gradients)]
    norms = jnp.sqrt(sum(squares))
    scale = jnp.minimum(1.0, LIMIT / norms)
    mean = tree.map(lambda g: jnp.tensordot(scale, g, axes=1) / EXAMPLES, gradients)
    return mean, norms


def main() -> dict[str, Any]:
    """Return the mean of the clipped gradients and the norms."""
    first, second, third = random.split(random.key(5), 3)
    x = random.normal(first, (EXAMPLES, FEATURES))
    y = jnp.sign(random.normal(second, (EXAMPLES,)))
    params = {"w": random.normal(third, (FEATURES,)), "b": jnp.array(0.25)}
    gradient, norms = jit(clipped)(params, x, y)
    return {"gradient": gradient, "norms": norms}


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
