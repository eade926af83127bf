"""What the methods of `Array` need of a value: reading it, releasing it, showing it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyeffect_torch.core import array as nodes
from pyeffect_torch.core import late, source
from pyeffect_torch.core.array import (
    DEAD_FLAG,
    LITERAL,
    PLACEHOLDER,
    PLACEHOLDER_FLAG,
    Array,
    Deleted,
    deleted_error,
)
from pyeffect_torch.core.errors import TraceError
from pyeffect_torch.core.graph import placeholders_of, store
from pyeffect_torch.core.trace import read_error
from pyeffect_torch.ops.base import describe

__all__: list[str] = []


def read(x: Array) -> np.ndarray[Any, Any]:
    """Compute `x` if need be and return its value as a read-only NumPy array.

    Raises:
        InvalidHandleError: `x` was deleted or donated.
        TraceError: `x` depends on an input of a trace, so that it has no value.
    """
    if x.flags & DEAD_FLAG:
        raise deleted_error(x, "read")
    buffer = x.buf
    if buffer is None:
        if x.op is LITERAL:
            value = np.array(x.params, x.dtype)
            value.flags.writeable = False
            return value
        if x.flags & PLACEHOLDER_FLAG:
            raise read_error(x, next(iter(placeholders_of(x)), None))
        late.compute([x])
        buffer = x.buf
        assert buffer is not None  # compute gave it a value, or raised
    return buffer.numpy(x.shape, x.dtype)


def delete(x: Array) -> None:
    """Release the value of `x` now; deleting it again does nothing.

    NumPy arrays read from it before stay valid.

    Raises:
        TraceError: `x` is an input of a trace.
    """
    if x.flags & DEAD_FLAG:
        return
    if x.op is PLACEHOLDER and x.buf is None:
        raise TraceError(
            f"delete: {x.params} has no value to release",
            "delete the argument outside the traced function, or donate it",
        )
    buf = x.buf
    store(x, Deleted("deleted", source.capture_user()))  # a live derivative still walks through it
    x.flags |= DEAD_FLAG
    if buf is not None:
        buf.release()


def state(x: Array) -> str:
    """Return `"lazy"`, `"concrete"`, `"placeholder"` or `"deleted"`."""
    return nodes.state(x)


def represent(x: Array) -> str:
    """Return the text of `x`: its values if it has any, else its type and state.

    Nothing is computed for it.
    """
    how = nodes.state(x)
    if how == "concrete" or (how == "lazy" and x.op is LITERAL):
        text = np.array2string(read(x), separator=", ", prefix="Array(")
        return f"Array({text}, dtype={x.dtype.name})"
    return f"Array({describe(x)}, {how})"
