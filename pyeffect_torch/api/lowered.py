"""What `Compiled.lower` gives: a traced signature to print, compile and explain."""

from __future__ import annotations

from collections.abc import Callable

from pyeffect_torch.api.explain import Explanation, explanation
from pyeffect_torch.core.printer import IR
from pyeffect_torch.runtime.base import Executable
from pyeffect_torch.runtime.wire import Program


class Lowered:
    """A traced signature of a compiled function."""

    def __init__(self, ir: IR, prepare: Callable[[], tuple[Executable, Program]]) -> None:
        self._ir = ir
        self._prepare = prepare

    def ir(self) -> IR:
        """Return the semantic graph as printable text."""
        return self._ir

    def compile(self) -> Executable:
        """Compile now, if no call has, and return the executable."""
        return self._prepare()[0]

    def explain(self) -> Explanation:
        """Return what was compiled: kernels and fused regions with their costs, memory plan.

        It prints as a table; `explain().html()` is a page that draws it.
        """
        return explanation(*self._prepare())
