"""Learning to learn (MAML): a gradient through steps of gradient descent."""

from __future__ import annotations

from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import grad, jit, random, tree, value_and_grad, vmap

WIDTH, TASKS, POINTS, INNER, OUTER = 16, 6, 10, 2, 5


def init(key: Any) -> dict[str, Any]:
    first, second = random.split(key)
    return {
        "w1": random.normal(first, (1, WIDTH)),
        "b1": jnp.zeros((WIDTH,)),
        "w2": random.normal(second, (WIDTH, 1)) / WIDTH**0.5,
    }


def loss(p: dict[str, Any], x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] - y) ** 2)


def adapt(p: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    for _ in range(INNER):
        p = tree.map(lambda a, g: a - 0.1 * g, p, grad(loss)(p, x, y))
    return p


def meta_loss(p: dict[str, Any], phases: Any, x: Any) -> Any:
    """The loss after adaptation, over tasks that are sines of different phases."""

    def task(phase: Any) -> Any:
        y = jnp.sin(x + phase)
        return loss(adapt(p, x[::2], y[::2]), x[1::2], y[1::2])

    return vmap(task)(phases).mean()


def main() -> dict[str, Any]:
    """Return the meta loss of each outer step and the last weights."""
    params = init(random.key(3))
    phases = random.uniform(random.key(4), (TASKS,)) * 3.0
    x = jnp.linspace(-2.0, 2.0, 2 * POINTS)[:, None]
    losses: list[Any] = []
    step = jit(value_and_grad(meta_loss))
    for _ in range(OUTER):
        value, gradient = step(params, phases, x)
        params = tree.map(lambda p, g: p - 0.05 * g, params, gradient)
        losses.append(value)
    return {"losses": jnp.stack(losses), "params": params}


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
