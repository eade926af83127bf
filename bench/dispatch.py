"""Microseconds a call of a compiled function, for 1, 10 and 300 leaves, beside `jax.jit`.

The function adds its leaves in pairs and returns as many, so a call is all overhead. The peers
alternate in one run; the figure is the median of many batches.

Usage: python bench/dispatch.py [--batches 30] [--no-jax]
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyeffect_torch as et

LEAVES = (1, 10, 300)
CALLS = 200


def body(tree: dict[str, Any]) -> dict[str, Any]:
    """Return every leaf plus itself."""
    return {name: leaf + leaf for name, leaf in tree.items()}


def measure(run: Callable[[], Any]) -> float:
    """Return microseconds a call over one batch."""
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    """Print one JSON line for each number of leaves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--no-jax", action="store_true")
    options = parser.parse_args()
    with_jax = not options.no_jax and importlib.util.find_spec("jax") is not None
    for leaves in LEAVES:
        values = {f"w{k:03d}": np.float32(k) for k in range(leaves)}
        runs: dict[str, Callable[[], Any]] = {}
        tree = et.compute({name: et.array(value) for name, value in values.items()})
        compiled = et.jit(body)
        runs["pyeffect_torch"] = functools.partial(compiled, tree)
        if with_jax:
            import jax

            jax_tree = {name: jax.numpy.asarray(value) for name, value in values.items()}
            jax_compiled = jax.jit(body)
            runs["jax"] = functools.partial(jax_compiled, jax_tree)
        for run in runs.values():
            measure(run)
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(options.batches):
            for name, run in runs.items():
                times[name].append(measure(run))
        row: dict[str, Any] = {"leaves": leaves}
        row |= {name: round(statistics.median(t), 2) for name, t in times.items()}
        if with_jax:
            row["ratio"] = round(row["pyeffect_torch"] / row["jax"], 2)
        print(json.dumps(row))


if __name__ == "__main__":
    main()
