"""An ODE by Runge-Kutta steps: `fori_loop` with a derivative, `while_loop` with chosen steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import fori_loop, grad, jit, jvp, tree, vmap, while_loop

STEPS, END = 50, 2.0


def field(y: Any, mu: Any) -> Any:
    """The oscillator of van der Pol."""
    return jnp.stack([y[1], mu * (1.0 - y[0] ** 2) * y[1] - y[0]])


def runge_kutta(f: Callable[[Any], Any], y: Any, h: Any) -> Any:
    a = f(y)
    b = f(y + 0.5 * h * a)
    c = f(y + 0.5 * h * b)
    d = f(y + h * c)
    return y + h / 6.0 * (a + 2.0 * b + 2.0 * c + d)


def fixed(y: Any, mu: Any) -> Any:
    """Integrate in equal steps; reverse mode goes through it."""
    return fori_loop(0, STEPS, lambda i, y: runge_kutta(lambda v: field(v, mu), y, END / STEPS), y)


def adaptive(y: Any, mu: Any) -> tuple[Any, Any]:
    """Integrate in steps of bounded change; return the end and how many steps it took."""

    def going(state: tuple[Any, Any, Any]) -> Any:
        return state[0] < END

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        t, y, count = state
        slope = jnp.abs(field(y, mu)).max()
        h = jnp.minimum(0.05 / (slope + 0.1), END - t)
        return t + h, runge_kutta(lambda v: field(v, mu), y, h), count + 1

    _, y, count = while_loop(going, step, (0.0, y, 0))
    return y, count


def main() -> dict[str, Any]:
    """Return ends, derivatives by the parameter, and a batch of step counts."""
    y0 = jnp.array([1.5, 0.5])
    end = jit(fixed)(y0, 1.25)
    slope = jit(grad(lambda mu: fixed(y0, mu)[0]))(1.25)
    tangent = jit(lambda mu: jvp(lambda m: adaptive(y0, m)[0], (mu,), (1.0,))[1])(1.25)
    ends, counts = jit(vmap(adaptive, in_axes=(None, 0)))(y0, jnp.array([0.0, 1.0, 3.0]))
    return {"end": end, "slope": slope, "tangent": tangent, "ends": ends, "counts": counts}


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
