"""The reverse walk: from cotangents of roots to cotangents of leaves.

Only ordinary nodes are emitted, so the result can be differentiated again. A missing entry is a
zero; branches without a cotangent emit nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyeffect_torch.core import late, source
from pyeffect_torch.core.array import OUT, Array, placeholder
from pyeffect_torch.core.dependence import masks_of
from pyeffect_torch.core.dtypes import FLOATS
from pyeffect_torch.core.errors import TraceError
from pyeffect_torch.core.graph import reach, substitute
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


def reverse(
    roots: Sequence[Array],
    cts: Sequence[MaybeArray],
    leaves: Sequence[Array],
    stop: Sequence[Array] = (),
    floor: int = 0,
) -> list[MaybeArray]:
    """Return the cotangent of each leaf (None: zero).

    Args:
        roots: the results; a root may repeat, be a leaf, or not depend on any.
        cts: their cotangents, None for zero.
        leaves: where the walk ends; distinct nodes.
        stop: other nodes that it does not look behind.
        floor: the oldest serial to enter (fresh leaves: their oldest).
    """
    table: dict[int, Any] = {}
    for root, ct in zip(roots, cts, strict=True):
        if ct is not None:
            _accumulate(table, root, ct)
    ends = {leaf.serial for leaf in leaves}
    nodes = reach(roots, ends.union(node.serial for node in stop), floor)
    depends = dependents(nodes, ends)
    before = source.set_override(None)
    try:
        for node in reversed(nodes):
            serial = node.serial
            if serial not in depends:
                continue
            ct = table.pop(serial, None)
            if ct is not None:
                source.set_override(node.src)
                _apply(node, ct, depends, table)
    finally:
        source.set_override(before)
    return [table.get(leaf.serial) for leaf in leaves]


def dependents(nodes: Sequence[Array], ends: set[int]) -> set[int]:
    """Return the serials of `ends` and of the differentiable nodes that depend on them."""
    depends = set(ends)
    outputs: dict[int, Sequence[int]] = {}  # of regions that tell theirs apart: which depend
    for node in nodes:
        dtype = node.dtype
        if dtype is not None and dtype not in FLOATS:
            continue
        rule = node.op.derivative
        if type(rule) is Nondiff and node.op is not OUT:
            continue
        for array in node.inputs:
            if array.serial in depends:
                break
        else:
            continue
        if type(rule) is Region and rule.depends is not None:
            given = [int(array.serial in depends) for array in node.inputs]
            outputs[node.serial] = rule.depends(node, given, True)
        elif node.op is OUT:
            known = outputs.get(node.inputs[0].serial)
            if known is not None and not known[node.params]:
                continue
        depends.add(node.serial)
    return depends


def _accumulate(table: dict[int, Any], array: Array, ct: Array) -> None:
    serial = array.serial
    have = table.get(serial)
    table[serial] = ct if have is None else _f.add(have, ct)


def _apply(node: Array, ct: Any, depends: set[int], table: dict[int, Any]) -> None:
    """Add what `node` with cotangent `ct` contributes to its inputs."""
    rule = node.op.derivative
    inputs = node.inputs
    if node.op is OUT:
        bundle = inputs[0]
        cts = table.setdefault(bundle.serial, [None] * len(bundle.params.types))
        have = cts[node.params]
        cts[node.params] = ct if have is None else _f.add(have, ct)
    elif isinstance(rule, Smooth):
        for array, partial in zip(inputs, rule.partials, strict=True):
            if partial is not None and array.serial in depends:
                product = _f.multiply(ct, partial(node))
                if product.shape != array.shape:
                    product = _f.unbroadcast(product, array.shape)
                _accumulate(table, array, product)
    elif isinstance(rule, (Multilinear, Affine)):
        operands = rule.operands if isinstance(rule, Multilinear) else range(len(inputs))
        for j in operands:
            array = inputs[j]
            if array.serial in depends:
                _accumulate(table, array, rule.transpose(node, j, ct))
    elif isinstance(rule, Linear):
        if inputs[0].serial in depends:
            _accumulate(table, inputs[0], rule.transpose(node, ct))
    else:
        cts = ct if node.op.multi else [ct]
        need = [array.serial in depends for array in inputs]
        for array, got in zip(inputs, _general(node, cts, need), strict=True):
            if got is not None and array.serial in depends:
                _accumulate(table, array, got)


def _general(node: Array, cts: list[Any], need: list[bool]) -> Sequence[MaybeArray]:
    """Cotangents of the inputs of a composite, a region, or an op with a jvp rule."""
    rule = node.op.derivative
    if isinstance(rule, Region):
        return rule.reverse(node, cts, need)
    if isinstance(rule, Composite):
        if rule.vjp is not None:
            return rule.vjp(node, cts, need)
        outs = rule.body(node.params, *node.inputs)
        return reverse_through(outs if node.op.multi else [outs], cts, node.inputs, need)
    assert isinstance(rule, JvpRule)
    return _through_tangents(node, rule, cts, need)


def reverse_through(
    outs: Sequence[Array],
    cts: Sequence[MaybeArray],
    inputs: Sequence[Array],
    need: Sequence[bool],
    floor: int = 0,
) -> list[MaybeArray]:
    """Walk back from `outs` to `inputs`, which may repeat; the first of equals gets the sum."""
    wanted = {a.serial: a for a, needed in zip(inputs, need, strict=True) if needed}
    others = [a for a in inputs if a.serial not in wanted]
    ends = list(wanted.values())
    got = dict(zip(wanted, reverse(outs, cts, ends, others, floor), strict=True))
    return [got.pop(array.serial, None) for array in inputs]


def _through_tangents(
    node: Array, rule: JvpRule, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> list[MaybeArray]:
    """Transpose a jvp rule: walk back through what it emits for placeholder tangents."""
    tangents = [
        placeholder(array.shape, array.dtype, f"a tangent of {node.op.name}") if needed else None
        for array, needed in zip(node.inputs, need, strict=True)
    ]
    fresh = [tangent for tangent in tangents if tangent is not None]
    emitted = rule.rule(node, tangents)
    several = emitted if isinstance(emitted, Sequence) else [emitted]
    both = zip(several, cts, strict=True)
    pairs = [(out, ct) for out, ct in both if out is not None and ct is not None]
    if not pairs:
        return [None] * len(tangents)
    floor = fresh[0].serial
    outs, their_cts = [out for out, _ in pairs], [ct for _, ct in pairs]
    got = iter(reverse(outs, their_cts, fresh, (), floor))
    results = [next(got) if tangent is not None else None for tangent in tangents]
    return without_tangents(node.op.name, results, fresh)


def without_tangents(
    what: str,
    results: Sequence[MaybeArray],
    tangents: Sequence[Array],
    where: source.Source | None = None,
    complaint: tuple[str, str] = (
        "its jvp rule is not linear in the tangents",
        "write the rule with operations that are linear in the tangent",
    ),
) -> list[MaybeArray]:
    """Check the cotangents from walking back to fresh placeholders through what must be linear.

    A region that computes primals and tangents together is named by a cotangent that reads only a
    primal of it. No such result depends on the tangents, so there they are zero.

    Raises:
        TraceError: a result depends on one; it says the `complaint` (what, and the cure).
    """
    found = [result for result in results if result is not None]
    serials = {tangent.serial for tangent in tangents}
    nodes = reach(found, serials, min(serials, default=0))
    if not any(
        array.serial in serials for node in (*nodes, *found) for array in (node, *node.inputs)
    ):
        return list(results)
    masks = masks_of(nodes, tangents, False)
    if any(masks.get(result.serial) for result in found):
        raise TraceError(f"{what}: {complaint[0]}", complaint[1], where)
    zeros: dict[int, Array] = {t.serial: _f.zeros_like(t) for t in tangents}
    rebuilt = iter(substitute(nodes, found, zeros))
    return [None if result is None else next(rebuilt) for result in results]
