"""A perceptron learns two spirals: `value_and_grad` inside `jit`, over a list of pairs."""

from __future__ import annotations

from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import jit, random, tree, value_and_grad

WIDTHS = (2, 32, 32, 1)
POINTS, STEPS, RATE = 64, 20, 0.5


def spirals(count: int) -> tuple[Any, Any]:
    t = jnp.linspace(0.25, 1.0, count)
    angle = t * 6.0
    arm = jnp.stack([jnp.cos(angle) * t, jnp.sin(angle) * t], axis=1)
    labels = jnp.concatenate([jnp.zeros((count,)), jnp.ones((count,))])
    return jnp.concatenate([arm, -arm]), labels


def init(key: Any) -> list[tuple[Any, Any]]:
    keys = random.split(key, len(WIDTHS) - 1)
    return [
        (random.normal(k, (n, m)) / n**0.5, jnp.zeros((m,)))
        for k, n, m in zip(keys, WIDTHS[:-1], WIDTHS[1:], strict=True)
    ]


def logits(params: list[tuple[Any, Any]], x: Any) -> Any:
    *hidden, (w, b) = params
    for weight, bias in hidden:
        x = jnp.tanh(x @ weight + bias)
    return (x @ w + b)[:, 0]


def loss(params: list[tuple[Any, Any]], x: Any, y: Any) -> Any:
    z = logits(params, x)
    return jnp.mean(jnp.logaddexp(0.0, z) - y * z)


@jit
def step(params: Any, x: Any, y: Any) -> tuple[Any, Any]:
    value, gradient = value_and_grad(loss)(params, x, y)
    return tree.map(lambda p, g: p - RATE * g, params, gradient), value


def main() -> dict[str, Any]:
    """Return the loss of each step and the last weights."""
    x, y = spirals(POINTS)
    params = init(random.key(0))
    losses: list[Any] = []
    for _ in range(STEPS):
        params, value = step(params, x, y)
        losses.append(value)
    return {"losses": jnp.stack(losses), "weights": params[-1][0]}


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
