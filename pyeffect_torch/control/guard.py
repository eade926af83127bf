"""Bodies that do not fail where a condition does not hold.

When a condition is batched, all rows run what only some of them should. The checks of indices and
labels are then masked: in a row where the condition does not hold they see an index that is safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyeffect_torch.core import dtypes, late, source
from pyeffect_torch.core.array import Array, make, placeholder, rebuild
from pyeffect_torch.core.graph import Body
from pyeffect_torch.transforms.regions import RegionParams

_f: Any = late.functions


def guarded(body: Body, mask: Array) -> Body:
    """Return `body` as a function of `mask`, a bool [], and its formals."""
    return Body([mask, *body.formals], _guarded_roots(body, mask), body.floor)


def _guarded_roots(body: Body, mask: Array) -> list[Array]:
    env: dict[int, Array] = {}
    before = source.set_override(None)
    try:
        for node in body.nodes:
            inputs = tuple(env.get(array.serial, array) for array in node.inputs)
            source.set_override(node.src)
            made = _guarded_node(node, inputs, mask)
            if made is not node:
                env[node.serial] = made
    finally:
        source.set_override(before)
    return [env.get(root.serial, root) for root in body.roots]


def _guarded_node(node: Array, inputs: tuple[Array, ...], mask: Array) -> Array:
    if node.op.unsafe:
        inputs = tuple(
            _safe(array, mask) if k in node.op.unsafe else array for k, array in enumerate(inputs)
        )
    elif isinstance(node.params, RegionParams) and any(map(may_fail, node.params.bodies)):
        return _guarded_region(node, inputs, mask)
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return node
    return rebuild(node, inputs)


def _safe(array: Array, mask: Array) -> Array:
    return _f.where(mask, array, array.dtype is dtypes.bool_ or 0)


def _guarded_region(node: Array, inputs: Sequence[Array], mask: Array) -> Array:
    params: RegionParams = node.params
    inner = placeholder((), dtypes.bool_, "a condition")
    lead = len(inputs) - len(params.body.formals)
    rules = params.rules
    if hasattr(rules, "captures"):
        rules = rules._replace(captures=rules.captures + 1)
    bodies = tuple(guarded(body, inner) for body in params.bodies)
    return make(
        node.op,
        (*inputs[:lead], mask, *inputs[lead:]),
        RegionParams(bodies, rules, params.types),
        None,
        None,
        0,
        node.src,
    )


def may_fail(body: Body) -> bool:
    """Whether some node of a body may fail, at any depth."""
    for node in body.nodes:
        if node.op.unsafe:
            return True
        if isinstance(node.params, RegionParams) and any(map(may_fail, node.params.bodies)):
            return True
    return False
