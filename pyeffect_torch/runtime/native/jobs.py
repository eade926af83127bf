"""Jobs of the core: waiting in slices, abandoning, and the token that cancels them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyeffect_torch.core.errors import CancelledError
from pyeffect_torch.runtime.cancel import current_scope
from pyeffect_torch.runtime.native.opcodes import STATUSES

SLICE_MS = 20
"""How long a wait may be before Python looks at its signals."""

_OK = STATUSES["ok"]
_PENDING = STATUSES["host_call_pending"]


class Token:
    """A cancellation token of the core, tied to the cancel scope of this context (0: none)."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self._ffi, self._lib = ffi, lib
        self._scope = current_scope()
        self._handle = 0
        self._hook = 0

    def __enter__(self) -> int:
        if self._scope is not None:
            out = self._ffi.new("uint64_t *")
            self._lib.pet_token_create(out)
            handle = self._handle = out[0]
            try:
                self._hook = self._scope.attach(lambda: self._lib.pet_token_cancel(handle))
            except CancelledError:
                self._lib.pet_token_release(handle)
                raise
        return self._handle

    def __exit__(self, *_: object) -> None:
        if self._scope is not None:
            self._scope.detach(self._hook)
            self._lib.pet_token_release(self._handle)


def wait(
    ffi: Any,
    lib: Any,
    job: int,
    out: Any,
    count: int,
    error: Any,
    answer: Callable[[int], None] | None = None,
) -> int:
    """Wait for a job in slices, so that Python sees its signals, and take its result.

    Args:
        answer: called with the job when it waits for the answer to a host call.
    """
    done = ffi.new("uint32_t *")
    status = _OK
    while status == _OK and not done[0]:
        status = lib.pet_job_wait(job, SLICE_MS, done, error)
        if status == _PENDING and answer is not None:
            answer(job)
            status = _OK
    return lib.pet_job_result(job, out, count) if status == _OK else status


def abandon(ffi: Any, lib: Any, job: int) -> bool:
    """Cancel a job, wait for its end and release it; True if it had succeeded all the same."""
    if not job:
        return False
    lib.pet_job_cancel(job)
    done = ffi.new("uint32_t *")
    try:
        status = _OK
        while not done[0]:
            status = lib.pet_job_wait(job, SLICE_MS, done, ffi.NULL)
            if status == _PENDING:
                lib.pet_job_answer(job, 1)
            elif status != _OK:
                break
        return status == _OK
    finally:
        lib.pet_job_release(job)
