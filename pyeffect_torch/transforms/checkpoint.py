"""`checkpoint`: recompute inner values in the backward pass instead of keeping them.

A checkpoint is a region with one body. Its backward is a checkpoint again, so it composes at every
order; at encoding the recomputation stands behind a barrier, which keeps it from being merged with
the forward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyeffect_torch.core import late, tree
from pyeffect_torch.core.array import Array, outputs
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import MaybeArray, Op, Region, declare
from pyeffect_torch.core.trace import trace
from pyeffect_torch.transforms import regions
from pyeffect_torch.transforms.arguments import argument_paths, flat_arrays, require_callable
from pyeffect_torch.transforms.effects import visible

Policy = Callable[[Op], bool]
_DOTS = frozenset({"dot_general", "attention"})
POLICIES: dict[str, Policy] = {
    "nothing": lambda op: False,
    "dots": lambda op: op.name in _DOTS,
    "everything": lambda op: True,
}


class _Rules(NamedTuple):
    """`visible`: how many outputs the user sees, before the kept inner values; -1: none is kept.

    `recompute`: the region is a backward pass.
    """

    visible: int
    recompute: bool


def _forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    body, rules = node.params.body, node.params.rules
    return regions.joint_outputs(node.op, body, _Rules(-1, rules.recompute), inputs, tangents)


def _reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    body, rules = node.params.body, node.params.rules
    kept_roots: list[Array] = []
    kept_values: list[Array] = []
    if rules.visible >= 0:
        outs = outputs(node)
        kept_roots, kept_values = list(body.roots[rules.visible :]), list(outs[rules.visible :])
    seeds = regions.fresh_cotangents(cts)
    got = regions.cotangent_walk(body.roots, seeds, body.formals, need)
    if not regions.present(got):
        return got
    formals = (*body.formals, *kept_roots, *regions.present(seeds))
    backward = Body(formals, regions.present(got), body.floor)
    inputs, (backward,) = regions.pruned(
        [*node.inputs, *kept_values, *regions.present(cts)], [backward]
    )
    made = regions.region(CHECKPOINT, inputs, backward, _Rules(-1, True))
    return regions.spread(outputs(made), got)


def _batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    body, flags = regions.batched_body(node.params.body, batched, size)
    made = regions.region(CHECKPOINT, inputs, body, node.params.rules)
    return list(zip(outputs(made), flags, strict=True))


def _inline(node: Array, inputs: Sequence[Array]) -> Sequence[Array]:
    if node.params.rules.recompute and inputs:
        inputs = late.functions.barrier(*inputs)
    return regions.inline_body(node, inputs)


CHECKPOINT: Op = declare(
    "checkpoint",
    infer=lambda inputs, params: params.types,
    derivative=Region(_forward, _reverse, _inline, regions.body_depends, regions.slim_body),
    batch=_batch,
    reference=None,
    domain=None,
    traits=("multi", "region"),
)


def checkpoint(f: Callable[..., Any], policy: str | Policy | None = None) -> Callable[..., Any]:
    """Return `f`, whose inner values are recomputed in the backward pass.

    Args:
        f: a function of pytrees; Python control flow on values is refused inside.
        policy: which inner values to keep: "nothing" (the default), "dots", "everything", or a
            predicate on ops.

    Raises:
        ArgumentError: an unknown policy.
    """
    require_callable("checkpoint", f)
    named = "nothing" if policy is None else policy
    if not callable(named) and (not isinstance(named, str) or named not in POLICIES):
        raise ArgumentError(
            f"checkpoint: unknown policy {policy!r}", f"use one of {sorted(POLICIES)} or a function"
        )
    keep = named if callable(named) else POLICIES[named]

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        flat, structure = flat_arrays("checkpoint", (args, kwargs))

        def call(leaves: Sequence[Array]) -> tuple[Sequence[Array], Any]:
            call_args, call_kwargs = tree.unflatten(structure, leaves)
            return flat_arrays("checkpoint", f(*call_args, **call_kwargs))

        names = argument_paths(f, *structure.children())
        traced = trace(
            "checkpoint",
            call,
            regions.types_of(flat),
            [f"{name} of checkpoint({getattr(f, '__name__', 'f')})" for name in names],
        )
        body = traced.body
        count = len(body.roots)
        kept = _kept(body, keep)
        body = Body(body.formals, (*body.roots, *kept), body.floor)
        inputs = (*traced.captures, *flat)
        outs = outputs(regions.region(CHECKPOINT, inputs, body, _Rules(count, False)))
        return tree.unflatten(traced.out, visible(traced, outs))

    return wrapped


def _kept(body: Body, keep: Policy) -> list[Array]:
    roots = {root.serial for root in body.roots}
    return [
        node
        for node in body.nodes
        if node.shape is not None and node.serial not in roots and node.inputs and keep(node.op)
    ]
