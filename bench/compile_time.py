"""How long a 12-layer train step takes to trace, differentiate, encode and compile.

Prints the phases here and, where JAX is installed, its `jit(...).lower(...).compile()` of the same
step in the same run. Exit status 1 if ours is above 1/20 of JAX's.

Usage: python bench/compile_time.py [--layers 12] [--rounds 7] [--no-jax]
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import statistics
import time
from typing import Any

import transformer

import pyeffect_torch as et
from pyeffect_torch.api.inspection import traced
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.runtime.wire import Program

WIDTH, HEADS, VOCABULARY, CONTEXT, BATCH = 768, 12, 50257, 256, 4
RATIO_MAX = 1 / 20


def ours(layers: int, rounds: int) -> dict[str, Any]:
    """Return the median milliseconds of each phase; no program is served from a cache.

    `release` is how long it takes to free the graph.
    """
    spec = transformer.shapes(layers, WIDTH, VOCABULARY, CONTEXT)
    params = {name: et.spec(shape, "float32") for name, shape in spec.items()}
    ids = et.spec((BATCH, CONTEXT + 1), "int32")
    args = (params, params, params, et.spec((), "float32"), ids)
    step = transformer.et_step(HEADS, layers)
    runtime = et.cpu()
    phases: dict[str, list[float]] = {
        name: [] for name in ("trace_and_grad", "encode", "compile", "release")
    }
    nodes = 0
    program: Program | None = None
    for _ in range(rounds):
        marks = [time.perf_counter()]
        trace, _, _ = traced("compile_time", step, args, {})
        marks.append(time.perf_counter())
        body = trace.body
        donated = range(1, 1 + 3 * len(spec))
        program = encode(body.roots, body.formals, runtime.has, donated=donated, nodes=body.nodes)
        marks.append(time.perf_counter())
        runtime.compile(program, True)
        marks.append(time.perf_counter())
        nodes = len(body.nodes)
        del trace, body
        marks.append(time.perf_counter())
        for name, (start, stop) in zip(phases, itertools.pairwise(marks), strict=True):
            phases[name].append((stop - start) * 1e3)
    assert program is not None
    medians = {name: statistics.median(values) for name, values in phases.items()}
    total = statistics.median([sum(row) for row in zip(*phases.values(), strict=True)])
    return {
        "peer": "pyeffect_torch",
        "nodes": nodes,
        "instructions": len(program.operations),
        "program_bytes": len(program.blob),
        **{f"{name}_ms": round(value, 2) for name, value in medians.items()},
        "total_ms": round(total, 2),
    }


def jax_peer(layers: int, rounds: int) -> dict[str, Any]:
    """Return JAX's milliseconds for lower + compile of the same step on the CPU."""
    import jax
    import jax.numpy as jnp

    spec = transformer.shapes(layers, WIDTH, VOCABULARY, CONTEXT)
    of = jax.ShapeDtypeStruct
    params = {name: of(shape, jnp.float32) for name, shape in spec.items()}
    args = (params, params, params, of((), jnp.float32), of((BATCH, CONTEXT + 1), jnp.int32))
    lower, compile_ = [], []
    for _ in range(rounds):
        jax.clear_caches()
        step = jax.jit(transformer.jax_step(HEADS, layers), donate_argnums=(0, 1, 2))
        start = time.perf_counter()
        lowered = step.lower(*args)
        middle = time.perf_counter()
        lowered.compile()
        lower.append((middle - start) * 1e3)
        compile_.append((time.perf_counter() - middle) * 1e3)
    totals = [a + b for a, b in zip(lower, compile_, strict=True)]
    return {
        "peer": f"jax {jax.__version__}",
        "lower_ms": round(statistics.median(lower), 1),
        "compile_ms": round(statistics.median(compile_), 1),
        "total_ms": round(statistics.median(totals), 1),
    }


def main() -> int:
    """Print one JSON line for each library and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-jax", action="store_true")
    options = parser.parse_args()
    mine = ours(options.layers, options.rounds)
    print(json.dumps(mine))
    if options.no_jax or importlib.util.find_spec("jax") is None:
        print(json.dumps({"peer": "jax", "skipped": "not installed"}))
        return 0
    peer = jax_peer(options.layers, max(1, options.rounds // 3))
    print(json.dumps(peer))
    ratio = mine["total_ms"] / peer["total_ms"]
    print(json.dumps({"ratio": round(ratio, 4), "at_most": RATIO_MAX}))
    return 0 if ratio <= RATIO_MAX else 1


if __name__ == "__main__":
    raise SystemExit(main())
