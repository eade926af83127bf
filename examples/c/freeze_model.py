"""Freeze a small network, weights included, into a file that `run_program.c` runs without Python.

Usage: python examples/c/freeze_model.py model.pet
"""

from __future__ import annotations

import sys
from typing import Any

import pyeffect_torch as et


def network(params: dict[str, Any], x: Any) -> Any:
    """A two-layer network: float32 [4] -> float32 [3], probabilities."""
    hidden = et.tanh(x @ params["w1"] + params["b1"])
    return et.nn.softmax(hidden @ params["w2"])


def main() -> None:
    """Write the program and print its output for 0.1 0.2 0.3 0.4."""
    keys = et.random.split(et.random.key(0), 2)
    params = {
        "w1": et.random.normal(keys[0], (4, 8)),
        "b1": et.zeros(8),
        "w2": et.random.normal(keys[1], (8, 3)),
    }
    program = et.freeze(network, et.spec((4,), "float32"), constants=params)
    program.save(sys.argv[1])
    example = et.array([0.1, 0.2, 0.3, 0.4])
    print(*(f"{value:.9g}" for value in program(example).tolist()))


if __name__ == "__main__":
    main()
