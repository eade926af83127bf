"""Write `tests/data/jax_compositions.json`: what JAX computes for stacks of transforms.

Run once, in an environment with JAX: `python tools/golden_jax.py`. The functions and the stacks are
written twice, here for JAX and in `tests/transforms/test_compositions.py` for this package.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

TARGET = Path(__file__).parents[1] / "tests" / "data" / "jax_compositions.json"
WEIGHTS = (0.5, -1.0, 2.0)
Function = Callable[[Any], Any]


@jax.custom_jvp
def bent(x: Any) -> Any:
    """sin, with a derivative of its own."""
    return jnp.sin(x)


bent.defjvp(lambda primals, tangents: (bent(*primals), tangents[0] * 3.0 * primals[0]))


def mixed(x: Any) -> Any:
    """Products across elements."""
    return jnp.exp(-x[0]) * jnp.tanh(x[1]) + x[2] * x[2] * x[2] * x[0]


FUNCTIONS: dict[str, tuple[Function, Any, int]] = {
    "wave": (lambda x: x * x * jnp.sin(x), 0.7, 4),
    "kinks": (lambda x: jnp.where(x > 0.3, x * x * x, jnp.maximum(x, -2.0 * x)) * x, 0.7, 4),
    "bent": (lambda x: bent(x) * x, 0.7, 4),
    "mixed": (mixed, (0.7, -0.4, 1.1), 4),
    "decay": (lambda x: jnp.exp(-x) * jnp.tanh(x), 0.7, 3),
    "total": (lambda x: jnp.sum(x * x * jnp.sin(x)) * x[0], (0.7, -0.4, 1.1), 3),
    "largest": (
        lambda x: jnp.max(x) * jnp.sum(jnp.where(x > 0, x, x * x)), (0.7, -0.4, 1.1), 3,
    ),
}  # fmt: skip
"""Name: the function, where it is evaluated, and the greatest depth of stacks."""


def apply(letter: str, f: Function) -> Function:
    """One transform as a map of scalar functions to scalar functions."""
    if letter == "g":
        return lambda x: jnp.sum(jax.grad(f)(x) * (jnp.array(WEIGHTS) if x.ndim else 1.0))
    if letter == "j":
        return lambda x: jax.jvp(f, (x,), (x * x,))[1]
    if letter == "v":
        return lambda x: jnp.sum(jax.vmap(f)(jnp.stack([x, x - 1.0])))
    return jax.jit(f) if letter == "i" else jax.checkpoint(f)


def main() -> None:
    """Evaluate every stack; op by op, as jit changes no value beyond rounding."""
    values: dict[str, dict[str, str]] = {}
    with jax.disable_jit():
        for name, (f, point, depth) in FUNCTIONS.items():
            x = jnp.array(point, jnp.float64)
            row = values[name] = {}
            for length in range(depth + 1):
                for letters in itertools.product("gjvic", repeat=length):
                    stacked = f
                    for letter in reversed(letters):
                        stacked = apply(letter, stacked)
                    row["".join(letters)] = float(stacked(x)).hex()
    note = "Letters from the outside in: g grad, j jvp, v vmap, i jit, c checkpoint."
    data = {"jax": jax.__version__, "note": note, "values": values}
    TARGET.write_text(json.dumps(data, indent=0) + "\n")


if __name__ == "__main__":
    main()
