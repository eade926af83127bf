"""How soon a running program stops after Ctrl-C: the p50, p99 and worst of many interrupts.

Each round starts a product chain that takes seconds, raises SIGINT at a random moment from another
thread, and measures from there until Python has the KeyboardInterrupt.

Usage: python bench/cancel.py [--rounds 200]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import threading
import time
from typing import Any

import pyeffect_torch as et


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    x = et.compute(et.ones((1024, 1024)) * 1e-3)

    def chain(x: Any) -> Any:
        y = x
        for _ in range(4000):
            y = et.tanh(y @ x)
        return y

    compiled = et.jit(chain)
    with et.cancel_scope(timeout=0.01), contextlib.suppress(et.errors.CancelledError):
        compiled(x)
    delays: list[float] = []
    rng = random.Random(0)
    for _ in range(options.rounds):
        raised_at: list[float] = []

        def interrupt(raised_at: list[float] = raised_at) -> None:
            raised_at.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.01 + 0.05 * rng.random(), interrupt)
        try:
            timer.start()
            compiled(x)
        except KeyboardInterrupt:
            delays.append((time.perf_counter() - raised_at[0]) * 1e3)
        timer.join()
    delays.sort()
    print(
        json.dumps(
            {
                "interrupts": len(delays),
                "p50_ms": round(statistics.median(delays), 2),
                "p99_ms": round(delays[int(len(delays) * 0.99)], 2),
                "worst_ms": round(delays[-1], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
