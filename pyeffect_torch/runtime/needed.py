"""What an encoding visits: the nodes that its roots need, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyeffect_torch.core.array import OUT, Array
from pyeffect_torch.core.graph import in_order
from pyeffect_torch.core.op import Region


def reach_values(roots: Sequence[Array], known: dict[int, Any]) -> list[Array]:
    """Return what `roots` need, ascending: not behind concrete arrays, nor behind `known`."""
    found: dict[int, Array] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        serial = node.serial
        if serial in found or serial in known:
            continue
        found[serial] = node
        if node.buf is None:
            stack += node.inputs
    return in_order(found)


def needed(
    roots: Sequence[Array], nodes: Sequence[Array]
) -> tuple[list[Array], dict[int, list[int]]]:
    """Return those of `nodes` that are needed, and the outputs of regions that are, by serial.

    A region needs an input only if an output that is needed depends on it; one that is inlined, if
    any output does.
    """
    serials = {root.serial for root in roots}
    used: dict[int, list[int]] = {}
    found: list[Array] = []
    for node in reversed(nodes):
        if node.serial not in serials:
            continue
        found.append(node)
        if node.buf is not None:
            continue
        rule = node.op.derivative
        inputs: Sequence[Array] = node.inputs
        if node.op is OUT:
            used.setdefault(inputs[0].serial, []).append(node.params)
        elif isinstance(rule, Region) and rule.depends is not None:
            masks = rule.depends(node, [1 << k for k in range(len(inputs))], False)
            read = 0
            for k in used[node.serial] if rule.slim is not None else range(len(masks)):
                read |= masks[k]
            inputs = [array for k, array in enumerate(inputs) if read >> k & 1]
        serials.update(array.serial for array in inputs)
    found.reverse()
    return found, {serial: sorted(set(outs)) for serial, outs in used.items()}
