"""Times of the kernels of every run inside a block: who asks for them, and where they go.

`et.debug.profile` opens a collector; executables look for one at each run.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

from pyeffect_torch.core import forks
from pyeffect_torch.runtime.wire import Program


@dataclass(frozen=True, slots=True)
class Timed:
    """One run of a program.

    Attributes:
        program: the caller's, with the user's lines.
        executable: what ran it; its `explain()["kernels"]` are what `records` are about.
        records: for each kernel when it began first, how long it took in all (nanoseconds of one
            monotonic clock), and how often it ran.
        thread: who called.
    """

    program: Program
    executable: Any
    records: list[tuple[int, int, int]]
    thread: int


class Collector:
    """What the runs inside one block add to."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self.runs: list[Timed] = []

    def add(self, program: Program, executable: Any, records: list[tuple[int, int, int]]) -> None:
        """Note a run of this thread that succeeded."""
        with self._lock:
            self.runs.append(Timed(program, executable, records, threading.get_ident()))


def all_kernels(explained: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the kernels of a program and of its nested programs, in the order of the records."""
    inner = [row for block in explained.get("blocks", ()) for row in block["kernels"]]
    return [*explained["kernels"], *inner]


_current: ContextVar[Collector | None] = ContextVar("pyeffect_torch_profile", default=None)
_lock = forks.lock()
open_count = 0
"""Blocks that are open in any context: while it is 0, nobody looks for a collector."""


def enter(collector: Collector) -> Token[Collector | None]:
    """Collect the runs of this context."""
    global open_count
    with _lock:
        open_count += 1
    return _current.set(collector)


def leave(token: Token[Collector | None]) -> None:
    """Stop collecting."""
    global open_count
    _current.reset(token)
    with _lock:
        open_count -= 1


def current() -> Collector | None:
    """The collector of this context, if there is one."""
    return _current.get() if open_count else None
