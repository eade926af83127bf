"""A recurrent network by `scan`, differentiated through time."""

from __future__ import annotations

from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import jit, random, scan, tree, value_and_grad

HIDDEN, TIME = 16, 100


def init(key: Any) -> dict[str, Any]:
    first, second, third = random.split(key, 3)
    return {
        "in": random.normal(first, (HIDDEN,)) * 0.5,
        "hidden": random.normal(second, (HIDDEN, HIDDEN)) / HIDDEN**0.5,
        "out": random.normal(third, (HIDDEN,)) / HIDDEN**0.5,
    }


def loss(p: dict[str, Any], signal: Any) -> Any:
    """The squared error of predicting each next value of a signal."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(p["hidden"] @ h + p["in"] * x)
        return h, p["out"] @ h

    _, predicted = scan(step, jnp.zeros((HIDDEN,)), signal[:-1])
    return jnp.mean((predicted - signal[1:]) ** 2)


def main() -> dict[str, Any]:
    """Return the loss over 100 steps and its gradients."""
    signal = jnp.sin(jnp.arange(TIME + 1).astype("float32") * 0.2)  # strict: the ints are cast
    value, gradient = jit(value_and_grad(loss))(init(random.key(2)), signal)
    return {"loss": value, "gradient": gradient}


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
