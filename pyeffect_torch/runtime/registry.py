"""Which runtimes there are and which one new arrays are placed on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from contextvars import ContextVar
from typing import Any

import numpy as np

from pyeffect_torch.core import forks, late
from pyeffect_torch.core.array import DEAD_FLAG, RUNTIME_SHIFT, Array
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.ops.options import require_sequence
from pyeffect_torch.runtime.base import REGISTERED, Runtime
from pyeffect_torch.runtime.native.opcodes import OPCODES

_current: ContextVar[Runtime | None] = ContextVar("pyeffect_torch_runtime", default=None)
_lock = forks.reentrant_lock()
_default: list[Runtime] = []


class Factory:
    """Makes a runtime on the first call and returns the same one afterwards.

    `without` names kernels to hide: an independent runtime on which compositions are tested.
    """

    def __init__(
        self, name: str, make: Callable[[frozenset[str]], Runtime], available: Callable[[], bool]
    ) -> None:
        self.name = name
        self._make = make
        self._available = available
        self._made: dict[frozenset[str], Runtime] = {}

    def __call__(self, without: Iterable[str] = ()) -> Runtime:
        """Return the runtime, made on the first call with these hidden kernels."""
        names = (without,) if isinstance(without, str) else without
        hidden = frozenset(require_sequence(self.name, names, "the kernels to hide"))
        unknown = sorted(str(name) for name in hidden if name not in OPCODES)
        if unknown:
            raise ArgumentError(f"{self.name}: there is no kernel {unknown}", "name opcodes")
        made = self._made.get(hidden)
        if made is None:
            with _lock:
                made = self._made.get(hidden)
                if made is None:
                    made = self._made[hidden] = self._make(hidden)
        return made

    def is_available(self) -> bool:
        """Whether the runtime can be made here; never raises."""
        return self._available()

    def __repr__(self) -> str:
        return f"et.{self.name}"


def _make_reference(hidden: frozenset[str]) -> Runtime:
    from pyeffect_torch.runtime.reference import ReferenceRuntime

    return ReferenceRuntime(hidden)


def _make_cpu(hidden: frozenset[str]) -> Runtime:
    from pyeffect_torch.runtime.cpu import CpuRuntime

    return CpuRuntime(hidden)


def _cpu_available() -> bool:
    from pyeffect_torch.runtime.native import loader

    return loader.is_available()


cpu = Factory("cpu", _make_cpu, _cpu_available)
reference = Factory("reference", _make_reference, lambda: True)


def current() -> Runtime:
    """Return the runtime that new arrays are placed on: `use`, else `set_default`, else cpu."""
    chosen = _current.get()
    if chosen is not None:
        return chosen
    return _default[0] if _default else cpu()


@contextlib.contextmanager
def use(runtime: Runtime) -> Generator[Runtime, None, None]:
    """Place new arrays on `runtime` inside the block (per thread and asyncio task)."""
    require_runtime("use", runtime)
    token = _current.set(runtime)
    try:
        yield runtime
    finally:
        _current.reset(token)


def set_default(runtime: Runtime) -> None:
    """Place new arrays on `runtime` from now on, in the whole process."""
    require_runtime("set_default", runtime)
    with _lock:
        _default[:] = [runtime]


def require_runtime(what: str, runtime: Any) -> None:
    """Raise `ArgumentError` unless `runtime` is one."""
    if not isinstance(runtime, Runtime):
        raise ArgumentError(
            f"{what}: expected a runtime, got {type(runtime).__name__}",
            "call the factory: et.cpu(), et.reference()",
        )


def runtime_of(array: Array) -> Runtime:
    """Return the runtime that `array` lives on; the current one for what belongs to none."""
    mask = array.flags >> RUNTIME_SHIFT
    return REGISTERED[mask] if mask else current()


def _upload(value: np.ndarray[Any, Any]) -> Array:
    return current().array(value)


def _move(array: Array, runtime: Runtime) -> Array:
    require_runtime("to", runtime)
    if not array.flags & DEAD_FLAG and array.flags >> RUNTIME_SHIFT == runtime.mask:
        return array
    return runtime.array(late.functions.read(array))


late.move = _move
late.placement = runtime_of
late.functions.upload = _upload
late.functions.current_flags = lambda: current().flags
