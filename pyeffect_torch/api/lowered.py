"""What `Compiled.lower` gives: a traced signature to print, compile and explain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyeffect_torch.core.printer import IR
from pyeffect_torch.runtime.base import Executable


class Lowered:
    """A traced signature of a compiled function."""

    def __init__(self, ir: IR, compile_: Callable[[], Executable]) -> None:
        self._ir = ir
        self._compile = compile_

    def ir(self) -> IR:
        """Return the semantic graph as printable text."""
        return self._ir

    def compile(self) -> Executable:
        """Compile now, if no call has, and return the executable."""
        return self._compile()

    def explain(self) -> dict[str, Any]:
        """Return what was compiled: passes with their times, regions, kernels, memory plan."""
        return self.compile().explain()
