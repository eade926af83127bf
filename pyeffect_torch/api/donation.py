"""The arguments of a compiled call: which leaves are donated, and their buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyeffect_torch.core import tree
from pyeffect_torch.core.array import DEAD_FLAG, LITERAL, RUNTIME_SHIFT, Array, deleted_error
from pyeffect_torch.core.errors import ArgumentError, ForeignHandleError
from pyeffect_torch.runtime.base import Runtime
from pyeffect_torch.runtime.compute import compute_arrays
from pyeffect_torch.transforms.arguments import argument_indices


def donated_leaves(
    name: str,
    dynamic: Sequence[Any],
    donate_argnums: Sequence[int],
    static_argnums: Sequence[int],
    first: int = 0,
) -> list[int]:
    """Return the indices of donated leaves; `first` is the index of the first leaf.

    `dynamic` are the positional arguments without the static ones; `donate_argnums` counts all.

    Raises:
        ArgumentError: `donate_argnums` names an argument that the call does not have.
    """
    if not donate_argnums:
        return []
    count = len(dynamic)
    for number in sorted(set(static_argnums)):
        count += number <= count  # one further back was left to its default
    static = {number % count for number in static_argnums if number < count}
    donate = argument_indices(f"jit({name}): donate_argnums", tuple(donate_argnums), count)
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


def concrete_buffers(name: str, leaves: Sequence[Array], runtime: Runtime) -> list[Any]:
    """Compute lazy arguments in one request and return all buffers; literals are uploaded.

    Raises:
        TraceError: an argument depends on a placeholder.
        InvalidHandleError: one was deleted or donated. ForeignHandleError: one lives elsewhere.
    """
    for leaf in leaves:
        if leaf.flags & DEAD_FLAG:
            raise deleted_error(leaf, name)
    compute_arrays([a for a in leaves if a.buf is None and a.op is not LITERAL])
    buffers: list[Any] = []
    for leaf in leaves:
        if leaf.buf is None:
            buffers.append(runtime.upload(np.asarray(leaf.params)))
        elif leaf.flags >> RUNTIME_SHIFT == runtime.mask:
            buffers.append(leaf.buf)
        else:
            raise ForeignHandleError(
                f"{name}: an argument lives on another runtime than {runtime!r}",
                "move it with x.to(runtime)",
                operation=name,
            )
    return buffers
