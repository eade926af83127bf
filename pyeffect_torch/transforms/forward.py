"""The forward walk: from tangents of leaves to tangents of roots.

A missing tangent is zero. Regions return one joint node (primal and tangent together), and the
primals downstream are rebuilt on it, so a loop's body runs once under `jvp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyeffect_torch.core import late, source
from pyeffect_torch.core.array import LEAF, OUT, Array, make, rebuild
from pyeffect_torch.core.dtypes import FLOATS
from pyeffect_torch.core.graph import reach
from pyeffect_torch.core.op import (
    Affine,
    Composite,
    JvpRule,
    Linear,
    MaybeArray,
    Multilinear,
    Nondiff,
    Region,
    Smooth,
)

_f: Any = late.functions


def forward(nodes: Sequence[Array], primals: dict[int, Array], tangents: dict[int, Any]) -> None:
    """Extend `primals` (replacements) and `tangents`, keyed by serial, over ascending `nodes`.

    A multi-output node has a list of tangents, one per output; its projections read it.
    """
    before = source.set_override(None)
    replaced, tangent_of = primals.get, tangents.get
    try:
        for node in nodes:
            if node.serial in tangents:
                continue
            changed = active = False
            for array in node.inputs:
                changed = changed or array.serial in primals
                active = active or array.serial in tangents
            if not (changed or active):
                continue
            source.set_override(node.src)
            inputs = tuple(replaced(array.serial, array) for array in node.inputs)
            if node.op is OUT and _projection(node, primals, tangents):
                continue
            if node.op is LEAF:
                primals[node.serial] = inputs[0]
                if active:
                    tangents[node.serial] = tangents[node.inputs[0].serial]
                continue
            if active and isinstance(node.op.derivative, Region):
                given = [tangent_of(array.serial) for array in node.inputs]
                outs, tans = node.op.derivative.forward(node, inputs, given)
                primals[node.serial] = node
                tangents[node.serial] = (outs, tans)
                continue
            if changed:
                primals[node.serial] = rebuild(node, inputs)
            dtype = node.dtype
            if not active or (dtype is not None and dtype not in FLOATS):
                continue
            tangent = _tangent(
                replaced(node.serial, node), [tangent_of(array.serial) for array in node.inputs]
            )
            if tangent is not None:
                tangents[node.serial] = tangent
    finally:
        source.set_override(before)


def _projection(node: Array, primals: dict[int, Array], tangents: dict[int, Any]) -> bool:
    """Handle a projection of a node with tangents per output; False: treat as an ordinary node."""
    given = tangents.get(node.inputs[0].serial)
    if given is None:
        return False
    outs, tans = given
    if outs is not None:
        primals[node.serial] = outs[node.params]
    elif node.inputs[0].serial in primals:
        primals[node.serial] = rebuild(node, (primals[node.inputs[0].serial],))
    if tans[node.params] is not None:
        tangents[node.serial] = tans[node.params]
    return True


def _tangent(node: Array, tangents: Sequence[MaybeArray]) -> Any:
    """The tangent of `node`; of a multi-output node, `(None, tangents)`."""
    rule = node.op.derivative
    if isinstance(rule, Nondiff):
        return None
    if isinstance(rule, JvpRule):
        got = rule.rule(node, tangents)
        return (None, got) if node.op.multi else got
    if isinstance(rule, Composite):
        outs = rule.body(node.params, *node.inputs)
        flat = list(outs) if node.op.multi else [outs]
        inner = {
            array.serial: tangent
            for array, tangent in zip(node.inputs, tangents, strict=True)
            if tangent is not None
        }
        stop = {array.serial for array in node.inputs}
        forward(reach(flat, stop), {}, inner)
        got = [inner.get(out.serial) for out in flat]
        return (None, got) if node.op.multi else got[0]
    if isinstance(rule, Linear):
        if tangents[0] is None:
            return None
        return make(node.op, (tangents[0], *node.inputs[1:]), node.params, node.shape, node.dtype)
    total: MaybeArray = None
    for j, tangent in enumerate(tangents):
        if tangent is None:
            continue
        term = _term(node, rule, j, tangent)
        if term is not None:
            total = term if total is None else _f.add(total, term)
    return total


def _term(
    node: Array, rule: Affine | Multilinear | Smooth | Any, j: int, tangent: Array
) -> MaybeArray:
    """What operand j contributes to the tangent of `node`."""
    if isinstance(rule, Affine):
        return rule.forward(node, j, tangent)
    if isinstance(rule, Multilinear):
        if j not in rule.operands:
            return None
        inputs = (*node.inputs[:j], tangent, *node.inputs[j + 1 :])
        return make(node.op, inputs, node.params, node.shape, node.dtype)
    assert isinstance(rule, Smooth)
    partial = rule.partials[j]
    if partial is None:
        return None
    term = _f.multiply(partial(node), tangent)
    return term if term.shape == node.shape else _f.broadcast_to(term, node.shape)
