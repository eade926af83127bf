"""Where in the user's program a node was made.

A location is `(code object, last instruction)` of the first frame outside the package: 0.12 us to
capture. The line number is decoded only when a message needs it, and no frame is ever kept.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import threading
from types import CodeType
from typing import TypeAlias

Source: TypeAlias = tuple[CodeType, int]

# Of a line that is quoted in a message, which has to stay readable.
_QUOTED_MAX = 100

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class _Inside(dict[str, bool]):
    """Whether a file is part of the package; found out once."""

    def __missing__(self, filename: str) -> bool:
        known = self[filename] = os.path.abspath(filename).startswith(_PACKAGE)
        return known


# A `with` statement of the user enters our generators through contextlib.
_inside = _Inside({contextlib.__file__: True})


class _Local(threading.local):
    override: Source | None = None


LOCAL = _Local()
"""`override`, when it is set, is the location of new nodes (read where nodes are made)."""


def is_inside(filename: str) -> bool:
    """Whether a file is part of the package."""
    return _inside[filename]


def capture_user() -> Source | None:
    """Return the innermost location outside the package, or None when there is none."""
    # The caller of our caller at least is inside the package.
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  inspect takes long to import
    inside = _inside
    while frame is not None:
        code = frame.f_code
        if not inside[code.co_filename]:
            return (code, frame.f_lasti)
        frame = frame.f_back
    return None


def set_override(where: Source | None) -> Source | None:
    """Make new nodes carry `where` on this thread; return what was set before.

    Transforms use it so that a node they emit carries the line of the node it comes from.
    """
    before = LOCAL.override
    LOCAL.override = where
    return before


def line_of(where: Source) -> int:
    """Decode the line number of a location."""
    code, last = where
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= last < end and number is not None:
            line = number
    return line


def describe(where: Source | str | None) -> str:
    """Return `file:line in function: source text`, or "" when nothing is known.

    A location that was read from a file is text already.
    """
    if where is None or isinstance(where, str):
        return where or ""
    code = where[0]
    line = line_of(where)
    text = linecache.getline(code.co_filename, line).strip()
    if len(text) > _QUOTED_MAX:
        text = text[: _QUOTED_MAX - 3] + "..."
    place = f"{os.path.basename(code.co_filename)}:{line} in {code.co_name}"
    return f"{place}: {text}" if text else place
