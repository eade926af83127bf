"""What the backward pass of a `scan` needs of the forward one.

Where the backward body first touches the forward pass there is a *residual*: a capture or an x is
passed again; a carry, or an inner value that depends on a carry or an x, is stacked over the steps
by the forward scan itself, as one more output. So the forward pass runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyeffect_torch.control.loops import groups
from pyeffect_torch.core import forks
from pyeffect_torch.core.array import OUT, Array, make
from pyeffect_torch.core.dependence import masks_of
from pyeffect_torch.core.graph import Body, by_serial
from pyeffect_torch.core.op import Type

_APPEND: Final = forks.lock()


class Residuals:
    """What a backward body reads of the body of a scan.

    Attributes:
        captures, xs: formals that are passed again.
        stacked: the values of each step that the forward scan keeps.
    """

    def __init__(self, body: Body, captures: int, carries: int) -> None:
        self.body = body
        self.formals = groups(body.formals, captures, carries)
        steady = (1 << captures) - 1
        self.moving = ((1 << len(body.formals)) - 1) & ~steady
        self.captures: list[Array] = []
        self.xs: list[Array] = []
        self.stacked: list[Array] = []

    def collect(self, results: Sequence[Array], known: Sequence[Array]) -> None:
        """Find the residuals of `results`; `known` are the backward body's own formals."""
        masks = masks_of(self.body.nodes, self.body.formals, False)
        kinds: dict[int, list[Array] | None] = {array.serial: None for array in known}
        places = (self.captures, self.stacked, self.xs)
        for formals, place in zip(self.formals, places, strict=True):
            kinds.update((formal.serial, place) for formal in formals)
        seen: set[int] = set()
        stack = list(results)
        while stack:
            node = stack.pop()
            if node.serial in seen:
                continue
            seen.add(node.serial)
            if node.serial in kinds:
                place = kinds[node.serial]
                if place is not None:
                    place.append(node)
            elif self._is_moving(node, masks) and not _is_cheap(node):
                self.stacked.append(node)
            else:
                stack.extend(node.inputs)
        for place in places:
            place.sort(key=by_serial)

    def _is_moving(self, node: Array, masks: dict[int, Any]) -> bool:
        """Whether a node belongs to the forward body and may differ from step to step."""
        if node.op is OUT and node.serial not in masks:  # made by a rule, of a node of the body
            parts = masks.get(node.inputs[0].serial, [])
            return any(mask & self.moving for mask in parts)
        if node.shape is None:  # it is read for the sake of a result that does not move
            return False
        return bool(masks.get(node.serial, 0) & self.moving)


def _is_cheap(node: Array) -> bool:
    """Whether to keep the operand instead: a view of something that is no larger."""
    return "view" in node.op.traits and node.inputs[0].size <= node.size


def keep(node: Array, values: Sequence[Array], carries: int, length: int) -> list[Array]:
    """Return the stacked `values` of the steps of a scan, which become outputs of it.

    Outputs that it has already keep their numbers and are used again. Of a scan that was computed
    already (a value was read on the way) a copy has them.
    """
    with _APPEND:
        params = node.params
        body: Body = params.body
        known = {
            _key(root): k for k, root in enumerate(body.roots) if k >= carries
        }  # a carry's output is its last value only
        roots = list(body.roots)
        types: list[Type] = list(params.types)
        for value in values:
            if known.setdefault(_key(value), len(roots)) == len(roots):
                roots.append(value)
                types.append(((length, *value.shape), value.dtype))
        if len(roots) > len(body.roots):
            params = params._replace(
                bodies=(Body(body.formals, roots, body.floor),), types=tuple(types)
            )
            if node.buf is None:
                node.params = params
            else:
                node = make(node.op, node.inputs, params, None, None, 0, node.src)
    out: list[Array] = []
    for value in values:
        k = known[_key(value)]
        out.append(make(OUT, (node,), k, *types[k], 0, node.src))
    return out


def _key(value: Array) -> tuple[int, int]:
    """What tells values apart: projections are made anew each time they are asked for."""
    return (value.inputs[0].serial, value.params) if value.op is OUT else (value.serial, -1)
