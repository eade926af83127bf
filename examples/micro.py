"""A neural network from one neuron up, in one file to read from top to bottom.

There is no class of layers and no tape: a model is a function of its numbers, and `grad`, `vmap`
and `jit` turn one function into another. Run it and watch the boundary between two moons appear.

Usage: python examples/micro.py
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import pyeffect_torch as et

# 1. A derivative. `f` builds a graph of operations; `grad` walks that graph from the result back
#    to x and adds the operations of the chain rule. Nothing is computed until a value is read.


def f(x: Any) -> Any:
    """Return x^3 - 2x."""
    return x**3 - 2.0 * x


slope = et.grad(f)
print("f(2) =", float(f(2.0)), "  f'(2) =", float(slope(2.0)))  # 3 * 4 - 2 = 10
print("f''(2) =", float(et.grad(slope)(2.0)))  # the result is a graph too: again, 6 * 2 = 12

# 2. Is it right? Compare with the slope between two points close to x. The error of a central
#    difference is about step^2 (here f'''/6 * step^2 = 1e-6), plus rounding, so use float64.

x, step = et.array(2.0, dtype="float64"), 1e-3
difference = (float(f(x + step)) - float(f(x - step))) / (2 * step)
assert abs(difference - float(slope(x))) < 2e-6

# 3. A neuron weighs its inputs; a layer is one neuron mapped over rows of weights. `vmap` writes
#    the loop: `neuron` knows vectors [n], `layer` takes weights [out, n] and biases [out].


def neuron(w: Any, b: Any, x: Any) -> Any:
    """Return one number from weights [n], a bias [] and inputs [n]."""
    return et.tanh(et.sum(w * x) + b)


layer = et.vmap(neuron, in_axes=(0, 0, None))


def network(params: Any, x: Any) -> Any:
    """Return a score in (-1, 1) for one point x [2]; its sign says which moon."""
    for w, b in params:
        x = layer(w, b, x)
    return x[0]


# 4. What is to be made small: mean squared error over all points. `vmap` again, this time over
#    the points; the parameters (a list of pairs, any tree of arrays would do) are shared.


def loss(params: Any, points: Any, labels: Any) -> Any:
    """Return the mean squared error for points [rows, 2] and labels [rows], -1 or 1."""
    scores = et.vmap(network, in_axes=(None, 0))(params, points)
    return et.mean(et.square(scores - labels))


# 5. Learning is to walk downhill. `grad` gives a tree like the parameters; `jit` traces the whole
#    step once and compiles it, so that later calls only execute.


@et.jit
def descend(params: Any, points: Any, labels: Any) -> Any:
    """Return the parameters after one step against the gradient, and the loss before it."""
    value, gradient = et.value_and_grad(loss)(params, points, labels)
    return et.tree.map(lambda p, g: p - 0.2 * g, params, gradient), value


rng = np.random.default_rng(0)
angle = rng.uniform(0, np.pi, 200).astype(np.float32)
labels = np.where(np.arange(200) % 2, 1, -1).astype(np.float32)
moons = np.stack([np.cos(angle), np.sin(angle)], 1) * labels[:, None]
moons[labels < 0] += [1.0, 0.4]  # the second moon hangs into the first
points = (moons + rng.normal(0, 0.1, moons.shape)).astype(np.float32)

widths, key = (2, 16, 16, 1), et.random.key(0)
params = [
    (et.random.normal(et.random.fold_in(key, k), (after, before)) / before**0.5, et.zeros((after,)))
    for k, (before, after) in enumerate(itertools.pairwise(widths))
]
for number in range(1001):
    params, value = descend(params, points, labels)
    if number % 250 == 0:
        print(f"step {number:4d}  loss {float(value):.4f}")

# 6. Look at it: the score on a grid, one character for each point.

across, up = np.meshgrid(np.linspace(-1.5, 2.5, 48), np.linspace(1.4, -1.0, 16))
grid = np.stack([across, up], -1).reshape(-1, 2).astype(np.float32)
scores = et.jit(et.vmap(network, in_axes=(None, 0)))(params, grid).numpy().reshape(across.shape)
print("\n".join("".join("#" if score > 0 else "." for score in row) for row in scores))
raise SystemExit(0 if float(value) < 0.1 else 1)
