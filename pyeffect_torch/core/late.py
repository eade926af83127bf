"""What `core` needs from the layers above it, filled in when they are imported.

Array methods call array functions, and reading a value computes it; both live above `core`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyeffect_torch.core.array import Array

functions: Any = SimpleNamespace()
"""The array functions by name; `ops/__init__.py` fills it."""


def _no_compute(arrays: Sequence[Array]) -> None:
    raise AssertionError("no runtime layer is imported")


compute: Callable[[Sequence[Array]], None] = _no_compute
"""Make arrays concrete in one request; `runtime/compute.py` sets it."""

move: Callable[[Array, Any], Array]
"""Copy an array to another runtime; `runtime/compute.py` sets it."""

placement: Callable[[Array], Any]
"""The runtime that an array lives on; `runtime/registry.py` sets it."""
