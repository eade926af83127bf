"""Pausing Python's cycle collector while a graph is built and encoded.

The nodes of a trace survive until its program is made, so each collection walks all of them and
frees nothing: a tenth of the time of a large trace. Nodes are released by reference counts alone.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager

from pyeffect_torch.core import forks


class _Pause:
    def __init__(self) -> None:
        self.lock = forks.lock()
        self.holders: list[int] = []
        self.was_enabled = False

    def enter(self) -> None:
        """Begin a pause of this thread."""
        with self.lock:
            if not self.holders:
                self.was_enabled = gc.isenabled()
                gc.disable()
            self.holders.append(threading.get_ident())

    def leave(self) -> None:
        """End a pause of this thread."""
        with self.lock:
            self.holders.remove(threading.get_ident())
            self.restore()

    def restore(self) -> None:
        """Switch the collector on again after the last pause."""
        if not self.holders and self.was_enabled:
            gc.enable()

    def keep_only(self, thread: int) -> None:
        """Forget the pauses of other threads, in a forked child."""
        if self.holders:
            self.holders = [holder for holder in self.holders if holder == thread]
            self.restore()


_pause = _Pause()
forks.in_child(_pause.keep_only)


@contextmanager
def collector_paused() -> Generator[None]:
    """Keep the cycle collector from starting; nests, and threads may overlap.

    The last one to leave switches it on again, if it was on when the first one entered.
    """
    _pause.enter()
    try:
        yield
    finally:
        _pause.leave()
