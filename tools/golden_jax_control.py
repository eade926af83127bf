"""Write golden numbers of JAX for control flow: stacks of transforms with scans, and some loops.

In an environment with JAX, `python tools/golden_jax_control.py` writes `tests/data/jax_scans.json`
and `jax_loops.json`; with `--check` it compares what is there with what it would write. The
functions are written twice, here and in `tests/transforms/stacked.py` and
`tests/control/test_loops_jax.py`.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
from golden_jax import Function, apply, bent, mixed, write_or_check

SCANNED: dict[str, tuple[Function, Any, int]] = {
    "wave": (lambda x: x * x * jnp.sin(x), 0.7, 4),
    "bent": (lambda x: bent(x) * x, 0.7, 3),
    "mixed": (mixed, (0.7, -0.4, 1.1), 3),
}
"""The stacks with scans."""


def looped(f: Function) -> Function:
    """Two steps of a recurrence in which f occurs, and the sum of what it goes through."""

    def run(x: Any) -> Any:
        last, seen = jax.lax.scan(
            lambda c, w: (c * f(x * w) + w, c * c), jnp.float64(0.5), jnp.array([1.0, 0.5])
        )
        return last + jnp.sum(seen)

    return run


def stacks() -> dict[str, Any]:
    """Evaluate every stack that has a scan.

    Op by op a scan is a Python loop, which is what is wanted: compiled, JAX loses a derivative of a
    custom_jvp in a scan (its own loop and its own scan differ at the second order).
    """
    values: dict[str, dict[str, str]] = {}
    with jax.disable_jit():
        for name, (f, point, depth) in SCANNED.items():
            x = jnp.array(point, jnp.float64)
            row = values[name] = {}
            for length in range(depth + 1):
                for letters in itertools.product("gjvics", repeat=length):
                    stacked = f
                    for letter in reversed(letters):
                        stacked = looped(stacked) if letter == "s" else apply(letter, stacked)
                    if "s" in letters:
                        row["".join(letters)] = float(stacked(x)).hex()
    note = "Letters from the outside in: g grad, j jvp, v vmap, i jit, c checkpoint, s scan."
    return {"jax": jax.__version__, "note": note, "values": values}


def recurrent(params: Any) -> Any:
    """The loss of 100 steps of a recurrent network, over a batch."""
    weights, inner, bias = params
    steps, width = 100, 6
    xs = jnp.sin(jnp.arange(steps * 4 * width, dtype=jnp.float64) * 0.37).reshape(steps, 4, width)

    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ weights + h @ inner + bias)
        return h, jnp.mean(h * x)

    last, losses = jax.lax.scan(step, jnp.zeros((4, width)), xs)
    return jnp.sum(losses) + jnp.sum(last * last)


def branching(x: Any) -> Any:
    """A loop with a branch, a loop of unknown length and a loop inside."""

    def step(c: Any, t: Any) -> Any:
        c = jax.lax.cond(c > t, lambda v: jnp.sin(v) * x, lambda v: v * v + t, c)
        inner = jax.lax.fori_loop(0, 3, lambda i, d: d * 0.5 + jnp.cos(c * i), x * c)
        return c + 0.25 * inner, jnp.where(t > 0.5, inner, c)

    last, seen = jax.lax.scan(step, x * 1.5, jnp.array([0.1, 0.9, 0.4, 1.2]))
    return last + jnp.sum(seen * seen)


def halving(x: Any) -> Any:
    """How a value is halved until it is below one, with what it goes through."""

    def body(c: Any) -> Any:
        return c[0] * 0.5, c[1] + jnp.sin(c[0]) * x

    return jax.lax.while_loop(lambda c: c[0] > 1.0, body, (x * 10.0, x))[1]


def loops() -> dict[str, Any]:
    """Values and derivatives of the loops."""
    width = 6
    grid = jnp.arange(width * width, dtype=jnp.float64).reshape(width, width)
    params = (jnp.sin(grid) * 0.3, jnp.cos(grid) * 0.2, jnp.linspace(-0.1, 0.1, width))
    points = jnp.array([0.3, 0.7, 1.1, -0.4])
    hessian = jax.hessian(branching)
    tangent = jax.vmap(lambda x: jax.jvp(halving, (x,), (1.0,))[1])
    found = {
        "recurrent": (recurrent(params), *jax.grad(recurrent)(params)),
        "recurrent_product": jax.jvp(jax.grad(recurrent), (params,), (params,))[1],
        "branching": (jax.vmap(branching)(points), jax.vmap(jax.grad(branching))(points)),
        "branching_twice": jax.vmap(hessian)(points),
        "halving": (jax.vmap(halving)(points), tangent(points)),
    }
    values = {
        name: [float(v).hex() for leaf in jax.tree.leaves(value) for v in jnp.ravel(leaf)]
        for name, value in found.items()
    }
    return {"jax": jax.__version__, "note": "Leaves in order, flattened.", "values": values}


if __name__ == "__main__":
    write_or_check({"jax_scans": stacks, "jax_loops": loops})
