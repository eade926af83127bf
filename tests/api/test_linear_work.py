"""Work is counted, not timed: a model of twice the depth costs twice the work, in every phase."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyeffect_torch as et
from pyeffect_torch.api.inspection import traced
from pyeffect_torch.runtime.encode import encode

ROOT = Path(__file__).resolve().parent.parent.parent


def load_model() -> ModuleType:
    """The train step of the compile benchmark."""
    path = ROOT / "bench" / "transformer.py"
    spec = importlib.util.spec_from_file_location("transformer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def count_calls(work: Any) -> tuple[Any, int]:
    """Run `work` and count the Python and C calls that it makes."""
    calls = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        del frame, argument
        calls += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        value = work()
    finally:
        sys.setprofile(None)
    return value, calls


def measure(layers: int) -> dict[str, int]:
    """Count the nodes, calls and instructions of each phase for a train step of that depth."""
    model = load_model()
    shapes = model.shapes(layers, 32, 64, 16)
    params = {name: et.spec(shape, "float32") for name, shape in shapes.items()}
    args = (params, params, params, et.spec((), "float32"), et.spec((2, 17), "int32"))
    step = model.et_step(4, layers)
    (trace, _, _), trace_calls = count_calls(lambda: traced("count", step, args, {}))
    runtime = et.cpu()
    body = trace.body
    program, encode_calls = count_calls(lambda: encode(body.roots, body.formals, runtime.has))
    explained = runtime.compile(program, True).explain()
    return {
        "nodes": len(body.nodes),
        "trace_calls": trace_calls,
        "encode_calls": encode_calls,
        "instructions": len(program.operations),
        "planned": explained["instructions"],
        "program_bytes": len(program.blob),
    }


def test_counted_work_is_linear_in_nodes() -> None:
    measure(1)  # what is done once in a process: imports, the tables of constants and of lines
    small, middle, large = (measure(layers) for layers in (2, 4, 8))
    for name in small:
        first, second = middle[name] - small[name], large[name] - middle[name]
        # Twice the layers added, twice the work added; 3 % for what is rounded up to blocks.
        assert second <= 2 * first * 1.03, f"{name}: {small[name]}, {middle[name]}, {large[name]}"
    # Measured 21 and 45 calls a node; the room is for what other Pythons count.
    assert large["encode_calls"] <= 25 * large["nodes"]
    assert large["trace_calls"] <= 60 * large["nodes"]
