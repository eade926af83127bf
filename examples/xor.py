"""A small network learns xor, which no linear model can.

A model is a dict of arrays and a function of it; a training step is a pure function that `et.jit`
compiles once. Exit status 1 if the loss ends above 0.05.

Usage: python examples/xor.py [--steps 500]
"""

from __future__ import annotations

import argparse
from typing import Any

import pyeffect_torch as et

HIDDEN = 8
RATE = 0.5
LOSS_MAX = 0.05

Params = dict[str, Any]

INPUTS = et.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
TARGETS = et.array([0.0, 1.0, 1.0, 0.0])


def init(key: Any) -> Params:
    """Return random weights [out, in] and zero biases [out]."""
    first, second = et.random.split(key)
    return {
        "w1": et.random.normal(first, (HIDDEN, 2)),
        "b1": et.zeros((HIDDEN,)),
        "w2": et.random.normal(second, (1, HIDDEN)),
        "b2": et.zeros((1,)),
    }


def logits(params: Params, x: Any) -> Any:
    """Return one logit for each row of x [rows, 2]."""
    hidden = et.tanh(et.nn.linear(x, params["w1"], params["b1"]))
    return et.nn.linear(hidden, params["w2"], params["b2"])[:, 0]


def loss(params: Params, x: Any, targets: Any) -> Any:
    """Return the mean binary cross entropy in nats."""
    return et.losses.binary_cross_entropy(logits(params, x), targets, from_logits=True)


@et.jit
def step(params: Params, x: Any, targets: Any) -> tuple[Params, Any]:
    """Return the parameters after one step of gradient descent, and the loss before it."""
    value, gradient = et.value_and_grad(loss)(params, x, targets)
    return et.tree.map(lambda p, g: p - RATE * g, params, gradient), value


def main() -> int:
    """Train, print what was learned, and return 1 if it was not learned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    params = init(et.random.key(0))
    for number in range(options.steps):
        params, value = step(params, INPUTS, TARGETS)
        if number % 100 == 0:
            print(f"step {number:4d}  loss {float(value):.4f}")
    final = float(loss(params, INPUTS, TARGETS))
    print(f"after {options.steps} steps  loss {final:.4f}")
    answers = et.sigmoid(logits(params, INPUTS)).tolist()
    for (a, b), answer in zip(INPUTS.tolist(), answers, strict=True):
        print(f"{a:.0f} xor {b:.0f} = {answer:.3f}")
    return 0 if final <= LOSS_MAX else 1


if __name__ == "__main__":
    raise SystemExit(main())
