"""The exceptions for what the core reports: its statuses with the user's line."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core.errors import (
    CompileError,
    ExecutionError,
    IndexOutOfBoundsError,
    InvalidHandleError,
    UnsupportedError,
)
from pyeffect_torch.core.source import Source
from pyeffect_torch.ops.checks import check_texts
from pyeffect_torch.runtime.cancel import cancelled_error
from pyeffect_torch.runtime.native.opcodes import STATUSES
from pyeffect_torch.runtime.wire import Program

_WITH_MODE = frozenset({"take", "take_along_axis", "scatter", "scatter_along_axis"})


def status_name(status: int) -> str:
    """A status of the core in words."""
    names = {number: name for name, number in STATUSES.items()}
    return names.get(status, f"status {status}").replace("_", " ")


def _instruction(program: Program, block: int, index: int) -> tuple[str, Source | None]:
    """The op and the user's line of an instruction; block 0 is the program itself."""
    operations, sources = program.operations, program.sources
    if block:
        known = block <= len(program.block_operations)
        operations = program.block_operations[block - 1] if known else ()
        sources = program.block_sources[block - 1] if known else ()
    return (operations[index], sources[index]) if index < len(operations) else ("", None)


def job_error(ffi: Any, status: int, error: Any, program: Program, phase: str) -> Exception:
    """The exception for a failed job, with the user's line of the instruction."""
    # By instruction, not by `error.source`: that numbers the lines of the program that was
    # compiled, which may be another of the same structure.
    operation, where = _instruction(program, error.block, error.instruction)
    message = ffi.string(ffi.cast("char *", error.message)).decode("utf-8", "replace")
    context = {"backend": "cpu", "operation": operation, "phase": phase, "details": message}
    if status == STATUSES["index_out_of_bounds"]:
        # The core counts in int64: a larger uint64 arrives as the largest.
        index = f"{error.value} or more" if error.value == 2**63 - 1 else error.value
        return IndexOutOfBoundsError(
            f"{operation}: index {index} is out of bounds for axis {error.axis} "
            f"with extent {error.extent}",
            'use indices inside the axis, or mode="clip" or mode="fill"'
            if operation in _WITH_MODE
            else "use indices inside the axis",
            where,
            **context,
        )
    if status == STATUSES["execution_failed"]:
        reason, mend = check_texts(error.value)
        return ExecutionError(f"{operation}: {reason}", mend, where, **context)
    if status == STATUSES["cancelled"]:
        return cancelled_error()
    if status == STATUSES["invalid_handle"]:
        return InvalidHandleError(
            "an input was deleted or donated", "keep the arrays alive", where, **context
        )
    kind = status_name(status)
    what = f"cpu: cannot {phase} the program: {message or kind}"
    if status == STATUSES["unsupported"]:
        return UnsupportedError(what, "use another runtime", where, **context)
    mend = (
        "free memory, or use smaller arrays"
        if status == STATUSES["out_of_memory"]
        else ("report this as a defect with the program (et.freeze(f, ...).save(path))")
    )
    cls = CompileError if phase == "compile" else ExecutionError
    return cls(what, mend, where, **context)
