"""Write `tests/data/jax_examples.json`: what JAX computes for `examples/transforms/`.

Run in an environment with JAX (`make interop` makes one): `python tools/golden_examples.py`, or
with `--check` to compare. Each program is read, its import lines are changed to JAX's, nothing
else, and its `main` is called.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "examples" / "transforms"
TARGET = ROOT / "tests" / "data" / "jax_examples.json"
SHOWN = 64
RELATIVE_MAX = 2.0**-12
CONTROL = {"associative_scan", "cond", "fori_loop", "scan", "switch", "while_loop"}
MODULES = {
    "pyeffect_torch.nn": "jax.nn",
    "pyeffect_torch.linalg": "jax.numpy.linalg",
}


def with_jax_imports(text: str) -> str:
    """Return a program with its imports of this package changed to JAX's."""

    def change(match: re.Match[str]) -> str:
        module, names = match.groups()
        if module in MODULES:
            return f"from {MODULES[module]} import {names}"
        several = names.split(", ")
        loops = [name for name in several if name in CONTROL]
        others = [name for name in several if name not in CONTROL]
        lines = [f"from jax.lax import {', '.join(loops)}"] if loops else []
        lines += [f"from jax import {', '.join(others)}"] if others else []
        return "; ".join(lines)

    text = re.sub(r"^import pyeffect_torch as jnp$", "import jax.numpy as jnp", text, flags=re.M)
    return re.sub(r"^from (pyeffect_torch[\w.]*) import ([\w, ]+)$", change, text, flags=re.M)


def flat(value: Any, path: str = "") -> dict[str, list[Any]]:
    """Return every array of a tree by its path: its shape, and its numbers or 64 of them."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    else:
        import numpy as np

        array = np.asarray(value)
        numbers = array.ravel()[:: max(1, array.size // SHOWN)]
        return {path: [list(array.shape), [float(str(x)) for x in numbers]]}
    return {key: got for k, v in items for key, got in flat(v, f"{path}/{k}").items()}


def run(path: Path, text: str) -> dict[str, list[Any]]:
    """Return the results of a program's `main`."""
    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec"), scope)
    return flat(scope["main"]())


def differs(mine: Any, theirs: Any) -> bool:
    """Whether two results are further apart than another machine's order of sums explains."""
    import numpy as np

    if mine.keys() != theirs.keys():
        return True
    for path, (shape, numbers) in mine.items():
        other = np.array(theirs[path][1])
        size = np.abs(other).max(initial=1.0)
        if shape != theirs[path][0] or np.abs(np.array(numbers) - other).max(initial=0) > (
            RELATIVE_MAX * size
        ):
            return True
    return False


def main() -> int:
    """Write the file, or with `--check` compare it with what would be written."""
    import jax

    jax.config.update("jax_threefry_partitionable", True)
    programs = sorted(PROGRAMS.glob("*.py"))
    values = {path.stem: run(path, with_jax_imports(path.read_text())) for path in programs}
    if "--check" in sys.argv[1:]:
        stored = json.loads(TARGET.read_text())["values"]
        wrong = [
            name
            for name in sorted({*values, *stored})
            if name not in values or name not in stored or differs(values[name], stored[name])
        ]
        print(f"{len(values)} programs compared; different: {wrong or 'none'}")
        return 1 if wrong else 0
    text = json.dumps({"jax": jax.__version__, "values": values}, indent=None)
    TARGET.write_text(text.replace('}, "', '},\n"') + "\n")
    print(f"wrote {TARGET.name}: {len(programs)} programs with JAX {jax.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
