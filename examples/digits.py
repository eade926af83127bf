"""An MLP learns to read scikit-learn's 1,797 handwritten digits, 8x8 pixels each.

Forward pass, loss, gradients and AdamW update are one compiled step whose parameters and optimizer
state are donated: the results take the memory of the arguments. Exit status 1 if fewer than 97 % of
the held-out digits are read right.

Usage: python examples/digits.py [--epochs 60]
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import pyeffect_torch as et

WIDTHS = (64, 128, 64, 10)
BATCH = 64
RATE = 2e-3
DROPOUT = 0.2
DECAY = 0.05
ACCURACY_MIN = 0.97

Params = dict[str, Any]
HostArray = np.ndarray[Any, Any]


def init(key: Any) -> Params:
    """Return weights [out, in] scaled for ReLU, and zero biases [out]."""
    params: Params = {}
    keys = et.random.split(key, len(WIDTHS) - 1)
    for k, (before, after) in enumerate(itertools.pairwise(WIDTHS)):
        params[f"w{k}"] = et.random.normal(keys[k], (after, before)) * (2 / before) ** 0.5
        params[f"b{k}"] = et.zeros((after,))
    return params


def logits(params: Params, x: Any, key: Any = None) -> Any:
    """Return [rows, 10] for pixels x [rows, 64]; with a key, hidden units are dropped at random."""
    last = len(WIDTHS) - 2
    for k in range(last):
        x = et.relu(et.nn.linear(x, params[f"w{k}"], params[f"b{k}"]))
        if key is not None:
            x = et.nn.dropout(et.random.fold_in(key, k), x, DROPOUT)
    return et.nn.linear(x, params[f"w{last}"], params[f"b{last}"])


def loss(params: Params, x: Any, labels: Any, key: Any) -> Any:
    """Return the mean cross entropy in nats."""
    return et.losses.cross_entropy(logits(params, x, key), labels)


def step(params: Params, state: Any, x: Any, labels: Any, key: Any) -> tuple[Params, Any, Any]:
    """Return parameters and state after one step of AdamW, and the loss before it."""
    value, gradient = et.value_and_grad(loss)(params, x, labels, key)
    first, second, count = state
    count = count + 1.0
    first = et.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = et.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    up, down = 1.0 - 0.9**count, 1.0 - 0.999**count

    def updated(p: Any, m: Any, v: Any) -> Any:
        return p - RATE * (m / up / (et.sqrt(v / down) + 1e-8) + DECAY * p)

    return et.tree.map(updated, params, first, second), (first, second, count), value


def train(x: HostArray, labels: HostArray, epochs: int) -> Params:
    """Return parameters trained on pixels [rows, 64] and labels [rows]."""
    params = et.compute(init(et.random.key(0)))
    zeros = [et.compute(et.tree.map(et.zeros_like, params)) for _ in range(2)]
    state = (*zeros, et.array(0.0))
    compiled = et.jit(step, donate_argnums=(0, 1))
    rng, key, number = np.random.default_rng(0), et.random.key(1), 0
    for epoch in range(epochs):
        order, losses = rng.permutation(len(x)), []
        # A last, shorter batch would be compiled anew: it is left out.
        for start in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            draw = et.random.fold_in(key, number)
            params, state, value = compiled(params, state, x[rows], labels[rows], draw)
            losses.append(float(value))
            number += 1
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3d}  loss {np.mean(losses):.4f}")
    return params


def main() -> int:
    """Train on three quarters of the digits and read the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    digits = load_digits()
    pixels = (digits.data / 16).astype(np.float32)
    labels = digits.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        pixels, labels, test_size=0.25, random_state=0, stratify=labels
    )
    started = time.perf_counter()
    params = train(train_x, train_y, options.epochs)
    seconds = time.perf_counter() - started
    answers = et.argmax(et.jit(logits)(params, test_x), -1).numpy()
    accuracy = float((answers == test_y).mean())
    print(f"{seconds:.1f} s; {accuracy:.2%} of {len(test_y)} held-out digits are read right")
    return 0 if accuracy >= ACCURACY_MIN else 1


if __name__ == "__main__":
    raise SystemExit(main())
