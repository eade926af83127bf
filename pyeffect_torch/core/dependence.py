"""Which formals of a body each of its nodes depends on.

A set of formals is an int used as a bit mask: bit k stands for formal k. Loops ask it for what
becomes differentiated or batched, and encoding for what may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyeffect_torch.core.array import OUT, Array
from pyeffect_torch.core.dtypes import FLOATS
from pyeffect_torch.core.op import Nondiff, Region


def masks_of(
    nodes: Sequence[Array], formals: Sequence[Array], differentiable: bool
) -> dict[int, Any]:
    """Return the mask of each formal and of each of `nodes` (ascending), by serial.

    A multi-output node has a list of masks, one per output. With `differentiable`, a dependence
    that no derivative passes through does not count.
    """
    masks: dict[int, Any] = {
        formal.serial: 0 if differentiable and formal.dtype not in FLOATS else 1 << k
        for k, formal in enumerate(formals)
    }
    for node in nodes:
        masks[node.serial] = _mask(node, masks, differentiable)
    return masks


def _mask(node: Array, masks: dict[int, Any], differentiable: bool) -> Any:
    op = node.op
    if op is OUT:
        found = masks.get(node.inputs[0].serial)
        if not found or (differentiable and node.dtype not in FLOATS):
            return 0
        return found[node.params]
    if not node.inputs:
        return 0  # also a multi-output node that was computed and cut
    given = [masks.get(array.serial, 0) for array in node.inputs]
    rule = op.derivative
    if isinstance(rule, Region) and rule.depends is not None:
        return list(rule.depends(node, given, differentiable))
    total = 0
    for mask in given:
        total |= mask
    if differentiable and type(rule) is Nondiff:
        total = 0
    if op.multi:
        return [total] * len(node.params.types)
    return 0 if differentiable and node.dtype not in FLOATS else total
