"""Which values were made inside a scope of this thread; `et.scope` is in `runtime/scope.py`.

Only arrays with a buffer hold memory, so a buffer is what makes an array count. What is made
during a trace belongs to the traced function, which may outlive the scope.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

from pyeffect_torch.core import forks


class Made:
    """The values that one scope has seen; `first` is the serial its own arrays begin at."""

    __slots__ = ("first", "values")

    def __init__(self, first: int) -> None:
        self.first = first
        self.values: list[weakref.ref[Any]] = []


class _Open(threading.local):
    def __init__(self) -> None:
        self.stack: list[Made] = []


_open = _Open()
_lock = forks.lock()
count = 0
"""Scopes that are open on any thread: while it is 0, nothing is noted."""


def enter(made: Made) -> None:
    """Open a scope on this thread."""
    global count
    with _lock:
        count += 1
    _open.stack.append(made)


def leave(made: Made) -> Made | None:
    """Close the innermost scope; return the one around it."""
    global count
    last = _open.stack.pop()
    assert last is made
    with _lock:
        count -= 1
    return _open.stack[-1] if _open.stack else None


def note(arrays: Iterable[Any]) -> None:
    """Note arrays that have just got a buffer."""
    from pyeffect_torch.core.trace import frames  # which imports arrays, and they this module

    if not _open.stack or frames():
        return
    made = _open.stack[-1]
    for array in arrays:
        if array.serial >= made.first:
            made.values.append(weakref.ref(array))
