"""The cpu runtime: buffers, executables and jobs of the native core, through its C ABI.

A run is submit and wait: short programs run inside the submitting call; for long ones the caller
waits in slices, so that signals are seen, and an exception there cancels and drains the job.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import (
    BackendError,
    ExecutionError,
    InvalidHandleError,
)
from pyeffect_torch.core.op import Shape
from pyeffect_torch.runtime import host, profiling
from pyeffect_torch.runtime.base import Runtime, copy_in_pieces
from pyeffect_torch.runtime.cancel import current_scope
from pyeffect_torch.runtime.job_errors import job_error, status_name
from pyeffect_torch.runtime.native.jobs import Token, abandon, wait
from pyeffect_torch.runtime.native.loader import load
from pyeffect_torch.runtime.native.opcodes import OPCODES, STATUSES
from pyeffect_torch.runtime.threads import check_count, count_from_environment, wanted_count
from pyeffect_torch.runtime.wire import Program

_OK = STATUSES["ok"]


class NativeBuffer:
    """The memory of one array; released with the object."""

    __slots__ = ("_lib", "handle", "nbytes")

    def __init__(self, lib: Any, handle: int, nbytes: int) -> None:
        self._lib = lib
        self.handle = handle
        self.nbytes = nbytes

    def numpy(self, shape: Shape, dtype: DType) -> np.ndarray[Any, Any]:
        """Return a read-only view, which keeps the memory alive and out of reuse."""
        ffi, lib = load()
        out = ffi.new("uint64_t *")
        data = ffi.new("uint8_t **")
        handle = self.handle  # another thread may release the buffer between the two calls
        if not handle or lib.pet_buffer_export(handle, out) != _OK:
            raise _released()
        exported, unexport = out[0], lib.pet_buffer_unexport
        if self.nbytes == 0:
            unexport(exported)
            return _read_only(np.empty(shape, dtype))
        if lib.pet_buffer_data(handle, data, ffi.NULL) != _OK:
            unexport(exported)
            raise _released()
        owner = ffi.gc(data[0], lambda _: unexport(exported))
        # Read-only memory, not only a flag of the view, which its holder could set back.
        memory = memoryview(ffi.buffer(owner, self.nbytes)).toreadonly()
        return np.frombuffer(memory, dtype).reshape(shape)

    def release(self) -> None:
        """Give the memory back once no run and no view uses it."""
        handle, self.handle = self.handle, 0
        if handle:
            self._lib.pet_buffer_release(handle)

    def __del__(self) -> None:
        handle = self.handle
        if handle:
            self.handle = 0
            self._lib.pet_buffer_release(handle)


def _released() -> InvalidHandleError:
    return InvalidHandleError("the buffer was released", "keep the array alive")


def _read_only(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    value.flags.writeable = False
    return value


class CpuRuntime(Runtime):
    """The native core on this machine's CPU."""

    def __init__(self, hidden: frozenset[str] = frozenset()) -> None:
        super().__init__("cpu")
        self.hidden = hidden
        self.ffi, self.lib = load()
        options = self.ffi.new("pet_runtime_options_t *")
        options.thread_count = wanted_count()
        out = self.ffi.new("uint64_t *")
        self._check(self.lib.pet_runtime_create(options, out), "create the runtime")
        self.handle: int = out[0]
        info = self.ffi.new("pet_library_info_t *")
        self.lib.pet_library_info(info)
        self.features = {"isa": self.ffi.string(self.ffi.cast("char *", info.isa)).decode()}

    def _check(self, status: int, doing: str) -> None:
        if status != _OK:
            raise BackendError(
                f"cpu: cannot {doing}: {status_name(status)}", backend="cpu", operation=doing
            )

    def has(self, opcode: str) -> bool:
        """Whether the core has a kernel for `opcode` and it is not hidden."""
        return opcode in OPCODES and opcode not in self.hidden

    def upload(self, value: np.ndarray[Any, Any]) -> NativeBuffer:
        """Copy a NumPy array into a new buffer."""
        nbytes = value.nbytes
        buffer, data = self._allocate(nbytes)
        if nbytes:
            target = np.frombuffer(self.ffi.buffer(data, nbytes), value.dtype)
            copy_in_pieces(target.reshape(value.shape), value)
        return buffer

    def reserve(self, shape: Shape, dtype: DType) -> tuple[NativeBuffer, memoryview]:
        """Return a new buffer and its bytes."""
        nbytes = math.prod(shape) * dtype.itemsize
        buffer, data = self._allocate(nbytes)
        return buffer, memoryview(self.ffi.buffer(data, nbytes) if nbytes else bytearray())

    def _allocate(self, nbytes: int) -> tuple[NativeBuffer, Any]:
        ffi, lib = self.ffi, self.lib
        out, data = ffi.new("uint64_t *"), ffi.new("uint8_t **")
        status = lib.pet_buffer_create(self.handle, nbytes, out, data)
        if status != _OK:
            raise ExecutionError(
                f"cpu: cannot allocate {nbytes} bytes: {status_name(status)}",
                "free arrays, or use smaller ones",
                backend="cpu",
                operation="upload",
                phase="allocate",
            )
        return NativeBuffer(lib, out[0], nbytes), data[0]

    def adopt(self, value: np.ndarray[Any, Any], release: int, context: int) -> NativeBuffer | None:
        """Return a buffer over the memory of `value`; see `base.Runtime`."""
        ffi, lib = self.ffi, self.lib
        out = ffi.new("uint64_t *")
        data = ffi.cast("uint8_t *", value.ctypes.data)
        give_back = ffi.cast("void(*)(void *)", release)
        status = lib.pet_buffer_import(
            self.handle, data, value.nbytes, give_back, ffi.cast("void *", context), out
        )
        return NativeBuffer(lib, out[0], value.nbytes) if status == _OK else None

    def compile(self, program: Program, optimize: bool) -> NativeExecutable:
        """Compile a program."""
        ffi, lib = self.ffi, self.lib
        options = ffi.new("pet_compile_options_t *")
        options.optimize = int(optimize)
        bytes_ = ffi.from_buffer(program.blob)
        job = ffi.new("uint64_t *")
        error = ffi.new("pet_error_t *")
        out = ffi.new("uint64_t[1]")
        with Token(ffi, lib) as token:
            try:
                status = lib.pet_compile_submit(
                    self.handle, bytes_, len(program.blob), options, token, job
                )
                self._check(status, "compile")
                status = wait(ffi, lib, job[0], out, 1, error)
            except BaseException:
                abandon(ffi, lib, job[0])
                raise
        lib.pet_job_release(job[0])
        if status != _OK:
            raise job_error(ffi, status, error, program, "compile")
        return NativeExecutable(self, out[0], program)

    def set_threads(self, count: int) -> None:
        """Set the number of compute threads, at most 256; 0 restores the default.

        Raises:
            ArgumentError: a negative or very large number.
        """
        count = check_count("set_threads", count) or count_from_environment()
        self._check(self.lib.pet_runtime_set_threads(self.handle, count), "set the threads")

    def clear_caches(self) -> None:
        """Drop the cached executables, and give the memory kept for reuse back to the system."""
        super().clear_caches()
        self._check(self.lib.pet_runtime_trim(self.handle), "trim the memory")

    def memory_stats(self) -> dict[str, int]:
        """Counters of the core: buffers, bytes, peak, workspaces, executables, runs, threads."""
        stats = self.ffi.new("pet_runtime_stats_t *")
        self._check(self.lib.pet_runtime_stats(self.handle, stats), "read the counters")
        return {
            name: getattr(stats, name)
            for name, _ in self.ffi.typeof("pet_runtime_stats_t").fields
            if name != "reserved"
        }


class NativeExecutable:
    """A compiled program of the core."""

    def __init__(self, runtime: CpuRuntime, handle: int, program: Program) -> None:
        self.runtime = runtime
        self.handle = handle
        self.program = program
        self._ffi, self._lib = runtime.ffi, runtime.lib
        self._donated = program.donated
        self._sizes = [
            int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in program.outputs
        ]
        # The handles of the outputs and, behind them, of the job.
        self._handles_type = self._ffi.typeof(f"uint64_t[{len(self._sizes) + 1}]")
        self._local = threading.local()
        self._kernels: int | None = None

    def __del__(self) -> None:
        handle = getattr(self, "handle", 0)
        if handle:
            self._lib.pet_executable_release(handle)

    @property
    def nbytes(self) -> int:
        """Bytes of the arena and of the baked constants."""
        info = self._info()
        return info.arena_bytes + info.constant_bytes

    def _info(self) -> Any:
        info = self._ffi.new("pet_executable_info_t *")
        self._lib.pet_executable_info(self.handle, info)
        return info

    def bind(self, captured: Sequence[NativeBuffer], first: int) -> NativeExecutable:
        """Return a clone whose inputs from number `first` on are bound to `captured`."""
        out = self._ffi.new("uint64_t *")
        status = self._lib.pet_executable_clone(self.handle, out)
        if status != _OK:
            raise BackendError(f"cpu: cannot clone the program: {status_name(status)}")
        made = NativeExecutable(self.runtime, out[0], self.program)
        for index, buffer in enumerate(captured):
            status = self._lib.pet_executable_bind(made.handle, first + index, buffer.handle)
            if status != _OK:
                raise BackendError(
                    f"cpu: cannot bind captured input {index}: {status_name(status)}"
                )
        return made

    def run(self, inputs: Sequence[NativeBuffer], origin: Program) -> list[NativeBuffer]:
        """Run on one buffer per unbound input; see `base.Executable`."""
        ffi, lib = self._ffi, self._lib
        count = len(self._sizes)
        handles = ffi.new("uint64_t[]", [buffer.handle for buffer in inputs])
        out = ffi.new(self._handles_type)
        error = self._error_struct()
        profile = profiling.current()
        records: Any = None
        if profile is not None:
            records = ffi.new("pet_record_t[]", self._kernel_count())
        # Ctrl-C may be raised between any two steps here, also as the submit returns: whatever
        # the core has made by then is found in `out`.
        try:
            if current_scope() is None:
                status = (
                    lib.pet_run_submit(
                        self.handle, handles, len(inputs), out, count, 0, out + count, error
                    )
                    if records is None
                    else self._submit_timed(handles, out, 0, records, error)
                )
                if out[count]:
                    status = wait(ffi, lib, out[count], out, count, error, self._answer)
            else:
                with Token(ffi, lib) as token:
                    status = (
                        lib.pet_run_submit(
                            self.handle, handles, len(inputs), out, count, token, out + count, error
                        )
                        if records is None
                        else self._submit_timed(handles, out, token, records, error)
                    )
                    if out[count]:
                        status = wait(ffi, lib, out[count], out, count, error, self._answer)
        except BaseException:
            self._give_up(inputs, out)
            raise
        if out[count]:
            lib.pet_job_release(out[count])
        if status != _OK:
            raise job_error(ffi, status, error, origin, "execute")
        for index in self._donated:
            inputs[index].handle = 0  # the core released it
        if profile is not None:
            rows = ffi.unpack(records, self._kernel_count())
            profile.add(origin, self, [(row.start_ns, row.ns, row.calls) for row in rows])
        return [
            NativeBuffer(lib, handle, size)
            for handle, size in zip(ffi.unpack(out, count), self._sizes, strict=True)
        ]

    def _kernel_count(self) -> int:
        if self._kernels is None:
            self._kernels = len(profiling.all_kernels(self.explain()))
        return self._kernels

    def _submit_timed(self, handles: Any, out: Any, token: int, records: Any, error: Any) -> int:
        count = len(self._sizes)
        return self._lib.pet_run_profile(
            *(self.handle, handles, len(handles), out, count, token),
            *(records, len(records), out + count, error),
        )

    def _answer(self, job: int) -> None:
        host.answer(self._ffi, self._lib, job, self.runtime.host_handlers)

    def _error_struct(self) -> Any:
        """The error struct of this thread: it is large, and read only after a failure."""
        try:
            return self._local.error
        except AttributeError:
            self._local.error = self._ffi.new("pet_error_t *")
            return self._local.error

    def _give_up(self, inputs: Sequence[NativeBuffer], out: Any) -> None:
        """Undo an interrupted run: drain its job, release what it made, forget what it took."""
        count = len(self._sizes)
        finished = abandon(self._ffi, self._lib, out[count])
        made = [handle for handle in self._ffi.unpack(out, count) if handle] if count else []
        for handle in made:
            self._lib.pet_buffer_release(handle)
        if finished or made:
            for index in self._donated:
                inputs[index].handle = 0

    def explain(self) -> dict[str, Any]:
        """Return passes, regions, kernels and the memory plan."""
        needed = self._ffi.new("uint64_t *")
        self._lib.pet_executable_explain(self.handle, self._ffi.NULL, 0, needed)
        text = self._ffi.new("uint8_t[]", needed[0] + 1)
        self._lib.pet_executable_explain(self.handle, text, needed[0] + 1, needed)
        return json.loads(self._ffi.unpack(self._ffi.cast("char *", text), needed[0]))
