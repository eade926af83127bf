"""Making lazy arrays concrete: one multi-root request, and which values are kept on the way.

A node that something outside the computation still refers to becomes concrete too, so nothing is
computed twice. Reference counts decide; a wrong count costs time, never a value.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyeffect_torch.core import late, tree
from pyeffect_torch.core.array import (
    DEAD_FLAG,
    LITERAL,
    OUT,
    PLACEHOLDER_FLAG,
    RUNTIME_SHIFT,
    Array,
    deleted_error,
    literal,
    outputs,
)
from pyeffect_torch.core.dtypes import float32
from pyeffect_torch.core.errors import ForeignHandleError
from pyeffect_torch.core.graph import Body, placeholders_of, settle, store
from pyeffect_torch.core.trace import read_error
from pyeffect_torch.ops.base import operand
from pyeffect_torch.runtime import finite
from pyeffect_torch.runtime.base import REGISTERED, Runtime
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.runtime.needed import reach_values
from pyeffect_torch.runtime.registry import current


def _external(nodes: Sequence[Array], base: int) -> list[Array]:
    """Return the nodes with references from outside the walk; `base` are the walk's own."""
    edges = _edges(nodes)  # a function of its own: its loop variables must not count
    count = sys.getrefcount
    get = edges.get
    return [node for node in nodes if count(node) - base > get(node.serial, 0)]


def _edges(nodes: Sequence[Array]) -> dict[int, int]:
    """Return how often each node is an input inside the walk, by serial."""
    edges: dict[int, int] = {}
    bodies: dict[int, Body] = {}
    for node in nodes:
        if node.buf is None:
            for array in node.inputs:
                serial = array.serial
                edges[serial] = edges.get(serial, 0) + 1
            if node.op.multi:
                _collect_bodies(node, bodies)
    for body in bodies.values():  # what they capture they refer to as well
        inside = (array for node in body.nodes for array in node.inputs)
        for array in (*body.formals, *body.roots, *inside):
            serial = array.serial
            edges[serial] = edges.get(serial, 0) + 1
    return edges


def _collect_bodies(node: Array, found: dict[int, Body]) -> None:
    """Add the bodies of a region, and of regions in them; each once, however many share it."""
    for body in getattr(node.params, "bodies", ()):
        if id(body) not in found:
            found[id(body)] = body
            for inner in body.nodes:
                if inner.op.multi:
                    _collect_bodies(inner, found)


def _calibrate() -> int:
    """References that `_external` itself holds: the largest base that still finds a held node."""
    probe = [literal(0, float32)]
    base = 0
    while _external(probe, base):
        base += 1
    return base


_BASE = _calibrate()


def compute_arrays(arrays: Sequence[Array]) -> None:
    """Make every array concrete; shared nodes run once.

    Raises:
        TraceError: one of them depends on a placeholder. InvalidHandleError: one was deleted.
        ForeignHandleError: one depends on values of two runtimes.
    """
    by_runtime: dict[int, dict[int, Array]] = {}
    for array in arrays:
        if array.flags & DEAD_FLAG:
            raise deleted_error(array, "compute")
        if array.op is OUT:
            settle(array)
        if array.buf is not None:
            continue
        if array.flags & PLACEHOLDER_FLAG:
            raise read_error(array, next(iter(placeholders_of(array)), None))
        by_runtime.setdefault(array.flags >> RUNTIME_SHIFT, {})[array.serial] = array
    for mask, roots in by_runtime.items():
        _compute(mask, list(roots.values()))


def _placement(mask: int, nodes: Sequence[Array]) -> Runtime:
    """Return the runtime of `mask` and of the values that `nodes` start from; else the current one.

    What belonged to no runtime when it was used may have been computed on one since.
    """
    for node in nodes:
        if node.buf is not None:
            mask |= node.flags >> RUNTIME_SHIFT
    if mask & (mask - 1):
        raise ForeignHandleError(
            "compute: the arrays that a value depends on live on different runtimes",
            "move one of them with x.to(runtime)",
            operation="compute",
            phase="compile",
        )
    return REGISTERED[mask] if mask else current()


def _compute(mask: int, roots: list[Array]) -> None:
    nodes = reach_values(roots, {})
    runtime = _placement(mask, nodes)
    wanted = {root.serial for root in roots}
    kept: list[Array] = []
    bundles: list[Array] = []
    for node in _external(nodes, _BASE):
        if node.buf is not None or node.op is LITERAL or node.serial in wanted:
            continue
        (bundles if node.op.multi else kept).append(node)
    targets = [*roots, *kept]
    parts = _parts(bundles, targets)
    nodes.extend(targets[len(roots) + len(kept) :])
    checks = finite.current()
    program = encode(targets, (), runtime.has, scalar_slots=True, nodes=nodes, checks=checks)
    del nodes
    inputs: list[Any] = [array.buf for array in program.captured]
    inputs.extend(runtime.upload(np.asarray(value)) for value in program.scalars)
    buffers = runtime.executable(program, checks is None).run(inputs, program)
    for node, buf in zip(targets, buffers, strict=True):
        store(node, buf)
        node.flags |= runtime.flags
    for bundle, places in zip(bundles, parts, strict=True):
        store(bundle, tuple(buffers[place] for place in places))
        bundle.flags |= runtime.flags


def _parts(bundles: Sequence[Array], targets: list[Array]) -> list[list[int]]:
    """Where among `targets` all results of the given nodes are; missing ones are appended.

    What refers to such a node from outside is a projection of it that this request does not need;
    it would run again for that one.
    """
    places = {
        (target.inputs[0].serial, target.params): place
        for place, target in enumerate(targets)
        if target.op is OUT
    }
    found: list[list[int]] = []
    for bundle in bundles:
        row: list[int] = []
        for part in outputs(bundle):
            place = places.get((bundle.serial, part.params))
            if place is None:
                place = len(targets)
                targets.append(part)
            row.append(place)
        found.append(row)
    return found


def compute(value: Any) -> Any:
    """Return the tree with every array concrete, in one request."""
    leaves, structure = tree.flatten(value)
    arrays = [operand("compute", leaf) for leaf in leaves]
    compute_arrays(arrays)
    return tree.unflatten(structure, arrays)


late.compute = compute_arrays
