"""What the loops share: the layout of their operands and what depends on what over all steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pyeffect_torch.core.dtypes import FLOATS
from pyeffect_torch.core.graph import Body
from pyeffect_torch.transforms.regions import through

T = TypeVar("T")


class Groups(NamedTuple):
    """Something for each input of a loop, by kind; a `while` has no `xs`."""

    captures: list[Any]
    carries: list[Any]
    xs: list[Any]


def groups(values: Sequence[Any], captures: int, carries: int) -> Groups:
    """Split what is given for each input."""
    middle = captures + carries
    return Groups(list(values[:captures]), list(values[captures:middle]), list(values[middle:]))


class Closure:
    """What the roots of a loop's body depend on, over any number of steps.

    A carry depends on its own first value, on what its root reads, and so on through the carries
    that it reads. Bit k of a mask is formal k of the body.
    """

    def __init__(self, body: Body, captures: int, carries: int, differentiable: bool) -> None:
        self.captures = captures
        self.carries = carries
        deps = body.deps(differentiable)
        formals = body.formals[captures : captures + carries]
        self.carry_bits = ((1 << carries) - 1) << captures
        closed = [
            deps[j] | (0 if differentiable and formal.dtype not in FLOATS else 1 << captures + j)
            for j, formal in enumerate(formals)
        ]
        changed = True
        while changed:  # at most once for each carry
            changed = False
            for j in range(carries):
                mask = closed[j] | through((closed[j] & self.carry_bits) >> captures, closed)
                changed = changed or mask != closed[j]
                closed[j] = mask
        self.of_carries = closed
        self.masks = closed + [self.close(mask) for mask in deps[carries:]]

    def close(self, mask: int) -> int:
        """Extend a mask of what one step reads to all steps before it."""
        return mask | through((mask & self.carry_bits) >> self.captures, self.of_carries)

    def union(self, roots: Sequence[int]) -> int:
        """What any of these roots depends on."""
        total = 0
        for k in roots:
            total |= self.masks[k]
        return total

    def active(self, mask: int) -> list[bool]:
        """Which carries depend on one of the formals of `mask`."""
        return [bool(closed & mask) for closed in self.of_carries]


def is_int(value: Any) -> bool:
    """Whether `value` is an int, of Python or NumPy, and no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def mask_of(flags: Sequence[bool]) -> int:
    """The mask of the formals whose flag is set."""
    return sum(1 << k for k, flag in enumerate(flags) if flag)


def bit(mask: int, k: int) -> bool:
    """Whether formal k is in the mask."""
    return bool(mask >> k & 1)


def chosen(values: Sequence[T], flags: Sequence[bool]) -> list[T]:
    """The values whose flag is set."""
    return [value for value, flag in zip(values, flags, strict=True) if flag]
