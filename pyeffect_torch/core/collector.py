"""Pausing Python's cycle collector while a graph is built.

The nodes of a trace survive until its program is made, so each collection walks all of them and
frees nothing: a tenth of the time of a large trace. Nodes are released by reference counts alone.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager


class _Pause:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders = 0
        self.was_enabled = False


_pause = _Pause()


@contextmanager
def collector_paused() -> Generator[None]:
    """Keep the cycle collector from starting; nests, and threads may overlap.

    The last one to leave switches it on again, if it was on when the first one entered.
    """
    with _pause.lock:
        if _pause.holders == 0:
            _pause.was_enabled = gc.isenabled()
            gc.disable()
        _pause.holders += 1
    try:
        yield
    finally:
        with _pause.lock:
            _pause.holders -= 1
            if _pause.holders == 0 and _pause.was_enabled:
                gc.enable()
