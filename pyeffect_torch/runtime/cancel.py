"""`cancel_scope`: cancels what runs inside it, from any thread or after a time."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Generator
from contextvars import ContextVar

from pyeffect_torch.core import forks
from pyeffect_torch.core.errors import ArgumentError, CancelledError
from pyeffect_torch.ops.options import require_number


class CancelScope:
    """Handed out by `cancel_scope`; `cancel()` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._hooks: dict[int, Callable[[], None]] = {}
        self._next = 0
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel what runs inside the scope, and what starts there later."""
        with self._lock:
            self.cancelled = True
            hooks = list(self._hooks.values())
        for hook in hooks:
            hook()

    def attach(self, hook: Callable[[], None]) -> int:
        """Call `hook` when the scope is cancelled; raises if it is already."""
        with self._lock:
            if not self.cancelled:
                self._next += 1
                self._hooks[self._next] = hook
                return self._next
        raise cancelled_error()

    def detach(self, number: int) -> None:
        """Forget a hook."""
        with self._lock:
            self._hooks.pop(number, None)


def cancelled_error() -> CancelledError:
    """The error for work that its scope cancelled."""
    return CancelledError(
        "the computation was cancelled by its cancel_scope",
        "start it again outside the scope, or give the scope more time",
    )


_scope: ContextVar[CancelScope | None] = ContextVar("pyeffect_torch_cancel", default=None)


def current_scope() -> CancelScope | None:
    """The innermost scope of this context."""
    return _scope.get()


def check_cancelled() -> None:
    """Raise `CancelledError` if the innermost scope of this context is cancelled."""
    scope = _scope.get()
    if scope is not None and scope.cancelled:
        raise cancelled_error()


@contextlib.contextmanager
def cancel_scope(timeout: float | None = None) -> Generator[CancelScope, None, None]:
    """Cancel what runs inside the block when `timeout` seconds are over or `cancel()` is called.

    Scopes nest: cancelling one cancels those inside it.

    Raises:
        CancelledError: in the thread whose computation was cancelled. ArgumentError: the timeout is
        no number.
    """
    seconds = None if timeout is None else require_number("cancel_scope", timeout, "the timeout")
    if seconds is not None and math.isnan(seconds):
        raise ArgumentError("cancel_scope: the timeout is NaN", "pass seconds, or None")
    scope = CancelScope()
    outer = _scope.get()
    hook = 0
    if outer is not None:
        try:
            hook = outer.attach(scope.cancel)
        except CancelledError:
            scope.cancel()
    timer = None
    if seconds is not None and seconds < threading.TIMEOUT_MAX:  # no clock counts further
        timer = threading.Timer(seconds, scope.cancel)
        timer.daemon = True
        timer.start()
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)
        if outer is not None:
            outer.detach(hook)
        if timer is not None:
            timer.cancel()
