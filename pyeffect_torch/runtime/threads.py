"""How many threads the cpu runtimes compute with. The number never changes a result."""

from __future__ import annotations

import os
from typing import Any, Final

from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.runtime.base import REGISTERED
from pyeffect_torch.runtime.registry import cpu

THREADS_MAX: Final = 256
VARIABLE: Final = "PYEFFECT_NUM_THREADS"

_wanted: list[int] = []


def set_num_threads(count: int) -> None:
    """Compute with `count` threads from now on, the calling thread included.

    Args:
        count: 1 to 256; 0 restores the default: `PYEFFECT_NUM_THREADS`, else as many as the cores
            that this process may use by its affinity mask and its cgroup's quota.

    Raises:
        ArgumentError: another number.
    """
    checked = check_count("set_num_threads", count)
    _wanted[:] = [checked]
    cpu()
    for runtime in list(REGISTERED.values()):
        runtime.set_threads(checked)


def get_num_threads() -> int:
    """Return how many threads the cpu runtime computes with; they start when they are needed."""
    return cpu().memory_stats()["threads"]


def wanted_count() -> int:
    """What a runtime made now starts with; 0 is left to the core.

    Raises:
        ArgumentError: `PYEFFECT_NUM_THREADS` is no number of threads.
    """
    chosen = _wanted[0] if _wanted else 0
    return chosen or count_from_environment()


def count_from_environment() -> int:
    """The value of `PYEFFECT_NUM_THREADS`, 0 if it is not set."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return 0
    return check_count(VARIABLE, int(text) if text.isdecimal() else text)


def check_count(name: str, count: Any) -> int:
    """Return a number of threads, or raise `ArgumentError`."""
    if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= THREADS_MAX:
        return count
    raise ArgumentError(f"{name}: cannot have {count!r} threads", f"use 1 to {THREADS_MAX}")
