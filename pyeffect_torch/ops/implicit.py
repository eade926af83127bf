"""Draws without a key: `randn`, `rand` and the seed they start from.

Where a draw stands decides its key. Inside a compiled function it starts from that function's
hidden key, fresh in each call; elsewhere from the global seed. A count tells the draws apart, and
under `vmap` and `scan` the row or step is folded in, so that each draws its own numbers.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import forks, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DTypeLike
from pyeffect_torch.core.errors import ArgumentError, TraceError
from pyeffect_torch.core.trace import Frame, frames
from pyeffect_torch.ops import random
from pyeffect_torch.ops.threefry import encrypt

_f: Any = late.functions
_WORD: Final = 0xFFFFFFFF


class _Stream:
    """The global seed, and how many draws it has served."""

    def __init__(self, number: int) -> None:
        self.lock = forks.lock()
        self.restart(number)

    def restart(self, number: int) -> None:
        """Begin anew from a 64-bit seed."""
        with self.lock:
            self.key = (number >> 32) & _WORD, number & _WORD
            self.count = 0

    def following(self) -> tuple[int, int]:
        """Return the words of the next key: the count's high word is folded in only if it has one.

        Any draw of the first 2**32 costs one encryption.
        """
        with self.lock:
            key, count = self.key, self.count
            self.count += 1
        if count >> 32:
            key = encrypt(key, (1, count >> 32))
        return encrypt(key, (0, count & _WORD))


_stream: Final = _Stream(int.from_bytes(os.urandom(8), "little"))


def seed(number: int) -> None:
    """Set the global seed, from which draws outside compiled functions start.

    Args:
        number: an int that fits 64 bits. The same seed gives the same sequence of draws.
    """
    if not isinstance(number, (int, np.integer)) or not -(1 << 63) <= number < 1 << 64:
        raise ArgumentError(f"seed: {number!r} is no int of 64 bits", "pass an int")
    _stream.restart(int(number))


def _fresh_key_bits() -> np.ndarray[Any, Any]:
    """Return the words [2] of a key from the global seed that no other call gets."""
    return np.array(_stream.following(), np.uint32)


def _implicit_key() -> Array:
    """Return a key [2] that no other call gets, by the frames that are open on this thread.

    Raises:
        TraceError: inside the body of a `while_loop`, whose steps have no number.
    """
    stack = frames()
    base = next((i for i in reversed(range(len(stack))) if stack[i].key is not None), -1)
    inside = stack[base + 1 :]
    if any(frame.kind == "while" for frame in inside):
        raise TraceError(
            "a draw without a key inside while_loop would repeat itself in every step",
            "carry a key through the loop, and draw with et.random",
        )
    key = _from_frame(stack[base]) if base >= 0 else _f.array(_fresh_key_bits())
    for frame in inside:
        if frame.row is not None:
            key = random.fold_in(key, frame.row)
    return key


def _from_frame(frame: Frame) -> Array:
    count = frame.draws
    frame.draws += 1  # a frame belongs to one thread
    return random.fold_in(frame.key, count)


def randn(shape: Any = (), dtype: DTypeLike = "float32") -> Array:
    """Return fresh standard normal numbers of `shape`; see `et.random.normal` for explicit keys."""
    return random.normal(_implicit_key(), shape, dtype)


def rand(shape: Any = (), dtype: DTypeLike = "float32") -> Array:
    """Return fresh uniform numbers in [0, 1) of `shape`; see `et.random.uniform`."""
    return random.uniform(_implicit_key(), shape, dtype)


# What compiled functions start from, at a call and where one is inlined in another.
late.functions.fresh_key_bits = _fresh_key_bits
late.functions.implicit_key = _implicit_key
