"""Host calls: what a running program asks Python to do, on the thread that waits for it.

The core stops the run, says which handler it wants (a number in the program) and lends the
operands; here they are copied, the handler is called, and the answer lets the run go on or ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import ExecutionError
from pyeffect_torch.runtime.native.opcodes import STATUSES
from pyeffect_torch.transforms.effects import HANDLERS

GO_ON, GIVE_UP = 0, 1


def answer(ffi: Any, lib: Any, job: int, handlers: dict[int, Callable[..., object]]) -> None:
    """Call the handler that `job` asks for and answer; the job then runs on.

    A handler gets one read-only array for each operand; what it returns is ignored.

    Raises:
        ExecutionError: no handler has that number. Whatever the handler raises is raised too; in
            both cases the run ends.
    """
    reply = GIVE_UP
    try:
        call = ffi.new("pet_host_call_t *")
        if lib.pet_job_host_call(job, call, ffi.NULL, 0) != STATUSES["ok"]:
            return  # cancelled in between
        operands = ffi.new("pet_host_operand_t[]", call.operand_count)
        lib.pet_job_host_call(job, call, operands, call.operand_count)
        handler = handlers.get(call.id) or HANDLERS.get(call.id)
        if handler is None:
            raise ExecutionError(
                f"host_call: there is no handler {call.id}",
                "register it before the program runs",
                backend="cpu",
                operation="host_call",
                phase="execute",
            )
        handler(*(_array(ffi, operand) for operand in operands))
        reply = GO_ON
    finally:
        lib.pet_job_answer(job, reply)


def _array(ffi: Any, operand: Any) -> np.ndarray[Any, Any]:
    """A read-only copy: the memory belongs to the run, the handler may keep what it gets."""
    data = bytes(ffi.buffer(operand.data, operand.bytes))
    shape = tuple(operand.dims[0 : operand.rank])
    return np.frombuffer(data, dtypes.ALL[operand.dtype]).reshape(shape)
