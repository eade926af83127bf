"""What a forked child finds: free locks, and nothing of the threads that it does not have.

Only the thread that forked exists in the child. A lock that another one held would stay held for
ever, and what it had begun (a trace, a derivative, a pause) would never end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()
_hooks: list[Callable[[int], None]] = []


def lock() -> threading.Lock:
    """Return a lock that is free in a forked child."""
    made = threading.Lock()
    _locks.add(made)
    return made


def reentrant_lock() -> Any:
    """Return a reentrant lock that is free in a forked child."""
    made = threading.RLock()
    _locks.add(made)
    return made


def in_child(hook: Callable[[int], None]) -> None:
    """Call `hook(thread)` in each forked child, with the identity of its only thread."""
    _hooks.append(hook)


def _after_fork() -> None:
    for made in list(_locks):
        made._at_fork_reinit()  # as the standard library does with its own
    for hook in _hooks:
        hook(threading.get_ident())


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
