"""The contract of a runtime: supports, compile, run, upload, download, release, stats.

`cpu` and `metal` are native; `reference` interprets the same programs in NumPy. Everything above
this layer sees only these classes.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np

from pyeffect_torch.core import dtypes, forks
from pyeffect_torch.core.array import RUNTIME_SHIFT, Array, from_buffer
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.files import CHUNK_BYTES
from pyeffect_torch.core.op import Shape
from pyeffect_torch.runtime.wire import Program


class Buffer(Protocol):
    """The memory of one concrete array."""

    def numpy(self, shape: Shape, dtype: DType) -> np.ndarray[Any, Any]:
        """Return the value as a read-only array; it stays valid after `release`."""
        ...

    def release(self) -> None:
        """Give the memory back now; views made by `numpy` keep it alive."""
        ...


class Executable(Protocol):
    """A compiled program. Immutable: any thread may run it at any time.

    Programs of one structure share it: what differs between them (how many inputs are formals,
    the user's lines) is passed by the caller.
    """

    def run(self, inputs: Sequence[Any], origin: Program) -> list[Any]:
        """Run on buffers, one for each unbound input, and return the output buffers.

        Donated inputs are consumed on success and untouched on failure, whose error names a line
        of `origin`, the caller's own program.
        """
        ...

    def bind(self, captured: Sequence[Any], first: int) -> Executable:
        """Return an executable whose inputs from number `first` on are bound to `captured`."""
        ...

    def explain(self) -> dict[str, Any]:
        """Return what was compiled: passes, regions, kernels, memory."""
        ...

    @property
    def nbytes(self) -> int:
        """The memory that the executable itself holds."""
        ...


class Runtime(ABC):
    """A place where arrays live and programs run.

    Attributes:
        name: "cpu", "metal" or "reference".
        mask: this runtime's bit in `Array.flags`, shifted down.
        features: what the machine offers, for diagnostics.
        host_handlers: by number, what a program's host calls call, with NumPy arrays.
    """

    capacity: ClassVar[int] = 64
    _count: ClassVar[int] = 0
    _class_lock: ClassVar[threading.Lock] = forks.lock()

    def __init__(self, name: str) -> None:
        with Runtime._class_lock:
            self.mask = 1 << Runtime._count
            Runtime._count += 1
        self.name = name
        self.flags = self.mask << RUNTIME_SHIFT
        self.features: dict[str, Any] = {}
        self.host_handlers: dict[int, Callable[..., object]] = {}
        self._lock = forks.lock()
        self._executables: OrderedDict[tuple[bytes, bool], Executable] = OrderedDict()
        REGISTERED[self.mask] = self

    def __repr__(self) -> str:
        return f"<runtime {self.name}>"

    def supports(self, dtype: Any) -> bool:
        """Whether arrays of `dtype` can live here."""
        return dtypes.canonical(dtype) is not None

    @abstractmethod
    def has(self, opcode: str) -> bool:
        """Whether there is a kernel for `opcode`; otherwise its body is encoded."""

    @abstractmethod
    def upload(self, value: np.ndarray[Any, Any]) -> Any:
        """Copy a NumPy array into a buffer of this runtime."""

    def adopt(self, value: np.ndarray[Any, Any], release: int, context: int) -> Any:
        """Return a buffer over the memory of `value`, or None if this runtime always copies.

        Args:
            value: contiguous, aligned to its elements, not empty and not bool.
            release: address of a C function of `context`, which is called once when nothing uses
                the memory any more; 0 for none.
            context: its argument.
        """
        del value, release, context
        return None

    @abstractmethod
    def reserve(self, shape: Shape, dtype: DType) -> tuple[Any, memoryview]:
        """Return a new buffer and its bytes, to be filled before anything reads them."""

    @abstractmethod
    def compile(self, program: Program, optimize: bool) -> Executable:
        """Compile without looking at the cache."""

    @abstractmethod
    def memory_stats(self) -> dict[str, int]:
        """Counters: live buffers and bytes, peak bytes, workspaces, executables."""

    def array(self, value: np.ndarray[Any, Any]) -> Array:
        """Return a concrete array with a copy of `value`."""
        # An unpickled dtype is equal to ours, but another object.
        dtype = dtypes.canonical(value.dtype) or value.dtype
        return from_buffer(self.upload(value), value.shape, dtype, self.mask)

    def set_threads(self, count: int) -> None:
        """Compute with `count` threads; one without threads of its own has nothing to set."""
        del count

    def receive(self, shape: Shape, dtype: DType, fill: Callable[[memoryview], None]) -> Array:
        """Return a concrete array whose bytes `fill` writes, straight into the buffer."""
        buffer, data = self.reserve(shape, dtype)
        fill(data)
        data.release()
        return from_buffer(buffer, shape, dtype, self.mask)

    def executable(self, program: Program, optimize: bool = True) -> Executable:
        """Return the compiled program, from the cache of structural hashes if it is there."""
        key = (program.digest, optimize)
        with self._lock:
            found = self._executables.get(key)
            if found is not None:
                self._executables.move_to_end(key)
                return found
        # A cached executable must not keep the arrays that its first caller captured.
        made = self.compile(replace(program, captured=(), scalars=()), optimize)
        with self._lock:
            self._executables[key] = made
            while len(self._executables) > self.capacity:
                self._executables.popitem(last=False)
        return made

    def clear_caches(self) -> None:
        """Drop the cached executables."""
        with self._lock:
            self._executables.clear()


def copy_in_pieces(target: np.ndarray[Any, Any], value: np.ndarray[Any, Any]) -> None:
    """Copy a large array so that Python sees its signals on the way."""
    pieces = [(target, value)]
    while pieces:
        to, piece = pieces.pop()
        if piece.nbytes <= CHUNK_BYTES:
            to[...] = piece
            continue
        axis = next(axis for axis, extent in enumerate(piece.shape) if extent > 1)
        lead, half = (slice(None),) * axis, piece.shape[axis] // 2
        for part in (slice(half), slice(half, None)):
            pieces.append((to[*lead, part], piece[*lead, part]))


REGISTERED: dict[int, Runtime] = {}
"""Every runtime made so far, by mask."""
