"""Constant arguments of a compiled function: trees whose arrays are part of its programs."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import tree
from pyeffect_torch.core.array import DEAD_FLAG, RUNTIME_SHIFT, Array, deleted_error
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.ops.base import is_number


class Constant:
    """A tree that counts as equal to another of the same structure, arrays and numbers.

    Arrays are immutable, so the same array has the same value at every call.
    """

    __slots__ = ("_key", "placement", "value")

    def __init__(self, name: str, value: Any) -> None:
        leaves, structure = tree.flatten(value)
        marks: list[Any] = []
        self.placement = 0  # the runtimes of the arrays, as in `Array.flags`
        for leaf in leaves:
            if isinstance(leaf, Array):
                if leaf.flags & DEAD_FLAG:
                    raise deleted_error(leaf, name)
                marks.append(leaf.serial)
                self.placement |= leaf.flags >> RUNTIME_SHIFT << RUNTIME_SHIFT
            elif is_number(leaf):
                marks.append((type(leaf), leaf))
            else:
                raise ArgumentError(
                    f"{name}: a constant argument is made of arrays and numbers, got "
                    f"{type(leaf).__name__}",
                    "convert it once with et.array(...), before the first call",
                )
        self.value = value
        self._key = (structure, tuple(marks))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._key == other._key

    def __repr__(self) -> str:
        return f"a constant of {len(self._key[1])} leaves"
