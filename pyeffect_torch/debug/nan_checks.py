"""`nans`: stop at the first NaN or infinity, and name the operation and the line."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from pyeffect_torch.runtime import finite


@contextlib.contextmanager
def nans(*, infinities: bool = True) -> Generator[None, None, None]:
    """Stop at the first operation that makes a NaN or an infinity inside the block.

    Everything that is computed inside the block (by this thread or asyncio task) is looked at:
    values of lazy arrays, compiled functions, derivatives, bodies of loops and branches. An
    operation is named if its result has a NaN and none of its operands has one, or likewise an
    infinity, so a mask of -inf that you put in is not. An argument that has a NaN is named too.
    Compiled functions get a program of their own for it, kept beside the usual one: each operation
    runs by itself, which is slow. Frozen programs are not looked into.

    Args:
        infinities: look for infinities as well.

    Raises:
        ExecutionError: from the call that computes; it names the operation and the user's line.

    Example:
        >>> with et.debug.nans():
        ...     et.log(et.array(-1.0)).item()
        Traceback (most recent call last):
        ExecutionError: log: the result has a NaN, and no operand has one
    """
    token = finite.enter(finite.Mode(infinities))
    try:
        yield
    finally:
        finite.leave(token)
