"""The arguments of a compiled call: which leaves are donated, and their buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyeffect_torch.core import tree
from pyeffect_torch.core.array import LITERAL, Array
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.runtime.base import Runtime
from pyeffect_torch.runtime.compute import compute_arrays


def donated_leaves(
    dynamic: Sequence[Any],
    donate_argnums: Sequence[int],
    static_argnums: Sequence[int],
    first: int = 0,
) -> list[int]:
    """Return the indices of donated leaves; `first` is the index of the first leaf.

    `dynamic` are the positional arguments without the static ones; `donate_argnums` counts all.
    """
    count = len(dynamic) + len(static_argnums)
    static = {number % count for number in static_argnums}
    donate = {number % count for number in donate_argnums}
    out: list[int] = []
    rest = iter(dynamic)
    for number in range(count):
        if number in static:
            continue
        leaves = len(tree.leaves(next(rest)))
        if number in donate:
            out.extend(range(first, first + leaves))
        first += leaves
    return out


def claim(name: str, donated: list[Array]) -> list[Array]:
    """Return the donated arrays of a call, each of which may be donated only once.

    Raises:
        ArgumentError: one array twice.
    """
    if len({array.serial for array in donated}) != len(donated):
        raise ArgumentError(
            f"jit({name}): the same array is donated twice in one call",
            "pass a copy for one of the arguments, or donate only one of them",
        )
    return donated


def concrete_buffers(leaves: Sequence[Array], runtime: Runtime) -> list[Any]:
    """Compute lazy arguments in one request and return all buffers; literals are uploaded."""
    compute_arrays([a for a in leaves if a.buf is None and a.op is not LITERAL])
    return [
        runtime.upload(np.asarray(leaf.params)) if leaf.buf is None else leaf.buf for leaf in leaves
    ]
