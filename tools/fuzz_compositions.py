"""Run many random compositions: `python -m tools.fuzz_compositions --count 10000 [--seed N]`.

Prints the seed, and saves each failing case to `outputs/`. Exit status 1 if one failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import pyeffect_torch as et
from tests.compositions.stacks import case, problem

CLEAR_EVERY = 200  # the cases have nothing in common that a cache could serve


def main() -> int:
    """Run the cases; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--save", type=Path, default=Path("outputs"))
    options = parser.parse_args()
    print(f"{options.count} compositions from seed {options.seed}", flush=True)
    started, failed = time.monotonic(), 0
    depths: Counter[int] = Counter()
    for k in range(options.count):
        drawn = case(options.seed + k)
        depths[len(drawn.stack)] += 1
        try:
            found = problem(drawn)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found:
            failed += 1
            options.save.mkdir(parents=True, exist_ok=True)
            path = options.save / f"composition-{drawn.seed}.txt"
            path.write_text(f"{found}\n{drawn.text()}\n")
            print(f"FAILED {' '.join(drawn.stack)}: {found.splitlines()[0]} ({path})", flush=True)
        if k % CLEAR_EVERY == CLEAR_EVERY - 1:
            et.cpu().clear_caches()
            et.reference().clear_caches()
    shown = ", ".join(f"{depths[n]} of depth {n}" for n in sorted(depths))
    print(f"{shown}; {failed} failed; {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
