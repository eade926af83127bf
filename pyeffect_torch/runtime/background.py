"""`compute_async`: computing off the event loop, under the cancellation of its task."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from typing import Any

from pyeffect_torch.runtime.cancel import cancel_scope
from pyeffect_torch.runtime.compute import compute


async def compute_async(value: Any) -> Any:
    """Return the tree with every array concrete, in one request, without blocking the event loop.

    The request runs on a thread of its own, in a copy of this task's context (`et.use`,
    `et.cancel_scope`). If the task is cancelled, the native core is too, and the task ends when it
    has stopped.

    Args:
        value: a tree of arrays, as for `et.compute`.

    Raises:
        asyncio.CancelledError: the task was cancelled. CancelledError: a cancel scope around it.
    """
    done: concurrent.futures.Future[Any] = concurrent.futures.Future()
    done.set_running_or_notify_cancel()  # from here on it ends by itself only
    with cancel_scope() as scope:
        context = contextvars.copy_context()

        def work() -> None:
            try:
                done.set_result(context.run(compute, value))
            except BaseException as error:
                done.set_exception(error)

        # Not a pool: a forked child would wait for threads that it does not have.
        threading.Thread(target=work, name="pyeffect_torch compute", daemon=True).start()
        ended = asyncio.wrap_future(done)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            scope.cancel()
            while not ended.done():
                try:
                    await asyncio.wait([ended])
                except asyncio.CancelledError:
                    continue  # cancelled once more: the core stops within milliseconds
            ended.exception()  # it counts as looked at: the task reports its own cancellation
            raise
