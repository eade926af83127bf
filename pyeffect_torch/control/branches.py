"""`cond` and `switch`: branches of which one runs.

Inputs are the index, then `captures | operands`; every branch maps `captures | operands` to the
results. The reverse rule runs the taken branch again, and stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyeffect_torch.control.guard import guarded, may_fail
from pyeffect_torch.control.loops import mask_of
from pyeffect_torch.control.signature import require_predicate, require_same_outputs
from pyeffect_torch.core import dtypes, late, tree
from pyeffect_torch.core.array import Array, outputs, placeholder
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import MaybeArray, Op, Region, Slim, declare
from pyeffect_torch.core.trace import Frame, close, placeholders, run
from pyeffect_torch.ops.base import describe, operand
from pyeffect_torch.ops.options import require_sequence
from pyeffect_torch.transforms import regions
from pyeffect_torch.transforms.arguments import flat_arrays, require_callable, zeros
from pyeffect_torch.transforms.effects import happened, tokens_of
from pyeffect_torch.transforms.regions import present, spread

_f: Any = late.functions


def _node(inputs: Sequence[Array], bodies: Sequence[Body]) -> Array:
    return regions.region(SWITCH, inputs, bodies, None)


def _depends(node: Array, masks: Sequence[int], differentiable: bool) -> list[int]:
    out = [0 if differentiable else masks[0]] * len(node.params.types)
    for body in node.params.bodies:
        for k, mask in enumerate(body.deps(differentiable)):
            out[k] |= regions.through(mask, masks[1:])
    return out


# --- derivatives


def _everywhere(
    rows: Sequence[Sequence[MaybeArray]], like: Sequence[Array]
) -> tuple[list[list[Array]], list[bool]]:
    """Fill with zeros what only some branches have; say what any has."""
    has = [any(value is not None for value in column) for column in zip(*rows, strict=True)]
    filled = [
        [
            zeros(array) if value is None else value
            for value, array, on in zip(row, like, has, strict=True)
            if on
        ]
        for row in rows
    ]
    return filled, has


def _forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    bodies: tuple[Body, ...] = node.params.bodies
    formals = bodies[0].formals
    fresh = regions.fresh_tangents(formals, [t is not None for t in tangents[1:]])
    walks = [regions.tangent_walk(body, fresh) for body in bodies]
    filled, has = _everywhere([tans for _, tans in walks], walks[0][0])
    joint = [
        Body([*formals, *present(fresh)], [*roots, *tans], body.floor)
        for body, (roots, _), tans in zip(bodies, walks, filled, strict=True)
    ]
    outs = outputs(_node([*inputs, *present(tangents)], joint))
    count = len(has)
    return list(outs[:count]), spread(outs[count:], [on or None for on in has])


def _reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    bodies: tuple[Body, ...] = node.params.bodies
    formals = bodies[0].formals
    seeds = regions.fresh_cotangents(cts)
    walks = [regions.cotangent_walk(b.roots, seeds, formals, need[1:]) for b in bodies]
    filled, has = _everywhere(walks, formals)
    if not any(has):
        return [None] * len(need)
    backward = [
        Body([*formals, *present(seeds)], found, body.floor)
        for body, found in zip(bodies, filled, strict=True)
    ]
    outs = outputs(_node([*node.inputs, *present(cts)], backward))
    return [None, *spread(outs, [on or None for on in has])]


# --- batch


def _batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    bodies: tuple[Body, ...] = node.params.bodies
    if batched[0]:
        return _selected(bodies, inputs, batched, size)
    mask = mask_of(batched[1:])
    flags = [
        any(deps & mask for deps in column) for column in zip(*map(Body.deps, bodies), strict=True)
    ]
    made = regions.batched_bodies(bodies, batched[1:], size, [flags] * len(bodies))
    outs = outputs(_node(inputs, [body for body, _ in made]))
    return list(zip(outs, flags, strict=True))


def _selected(
    bodies: Sequence[Body], inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    """All branches, of which `where` selects: the rows do not take the same one."""
    index = _f.clip(inputs[0], 0, len(bodies) - 1)
    results: list[Array] = []
    for k, body in enumerate(bodies):
        taken = _f.equal(index, k)
        env: dict[int, Any] = {}
        if may_fail(body):
            mask = placeholder((), dtypes.bool_, "whether a row takes a branch")
            body = guarded(body, mask)
            env[mask.serial] = taken
            formals = body.formals[1:]
        else:
            formals = body.formals
        for formal, array, is_batched in zip(formals, inputs[1:], batched[1:], strict=True):
            env[formal.serial if is_batched else -formal.serial] = array
        roots, _ = regions.batched_roots(body, env, size, force=True)
        if k == 0:
            results = roots
            continue
        results = [
            _f.where(_f.reshape(taken, (size, *[1] * (len(root.shape) - 1))), root, result)
            for root, result in zip(roots, results, strict=True)
        ]
    return [(result, True) for result in results]


# --- encoding


def _slim(node: Array, used: Sequence[int]) -> Slim:
    bodies: tuple[Body, ...] = node.params.bodies
    short = [Body(body.formals, [body.roots[k] for k in used], body.floor) for body in bodies]
    operands, slim = regions.pruned(node.inputs[1:], short)
    return Slim([node.inputs[0], *operands], slim, {"blocks": slim}, used)


def _reference(attributes: Mapping[str, Any], index: Any, *arrays: Any) -> list[Any]:
    blocks = attributes["blocks"]
    return blocks[min(max(int(index), 0), len(blocks) - 1)](arrays)


SWITCH: Final[Op] = declare(
    "switch",
    infer=lambda inputs, params: params.types,
    derivative=Region(_forward, _reverse, None, _depends, _slim, ("blocks",)),
    batch=_batch,
    reference=_reference,
    domain=None,
    opcode="switch",
    traits=("multi", "region"),
)


# --- the functions


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """Return `true_fun(*operands)` if `pred` holds, else `false_fun(*operands)`; one of them runs.

    Under `vmap` with a predicate that differs from row to row both run, and `where` selects.

    Args:
        pred: one bool, an array of shape [] or a Python bool.
        true_fun, false_fun: pure functions that return the same tree of types; both are traced.
        operands: trees.

    Raises:
        DTypeError, ShapeError: `pred` is not one bool. TreeError: the branches return different
        trees or types.
    """
    condition = operand("cond", pred)
    require_predicate("cond: the predicate", condition)
    names = ["false_fun", "true_fun"]
    return _branch("cond", _f.cast(condition, dtypes.int64), [false_fun, true_fun], names, operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Return `branches[index](*operands)`; the others do not run.

    Args:
        index: one integer; outside of 0..len(branches)-1 the nearest branch is taken.
        branches: pure functions that return the same tree of types; all are traced.
        operands: trees.

    Raises:
        DTypeError, ShapeError: `index` is not one integer. TreeError: the branches return different
        trees or types. ArgumentError: no branch.
    """
    branches = require_sequence("switch", branches, "branches")
    if not branches:
        raise ArgumentError("switch: there are no branches", "pass one function or more")
    number = operand("switch", index)
    if number.dtype.kind not in "iu":
        raise DTypeError(
            f"switch: the index must be an integer, got {describe(number)}",
            "cast it to int64; for a bool use et.cond",
        )
    if number.shape:
        raise ShapeError(
            f"switch: the index must be one integer, got {describe(number)}",
            "index it, or use et.vmap",
        )
    if number.dtype is dtypes.uint64:  # what does not fit int64 is too large, not negative
        number = _f.minimum(number, len(branches) - 1)
    names = [f"branch {k}" for k in range(len(branches))]
    return _branch("switch", _f.cast(number, dtypes.int64), branches, names, operands)


def _branch(
    what: str,
    index: Array,
    branches: Sequence[Callable[..., Any]],
    names: Sequence[str],
    operands: tuple[Any, ...],
) -> Any:
    require_callable(what, *branches)
    flat, structure = flat_arrays(what, operands)
    marker = placeholder((), dtypes.bool_, what)
    paths = [f"{path} of {what}" for path in tree.paths(structure, "operands")]
    formals = placeholders(regions.types_of(flat), paths)
    results: list[Sequence[Array]] = []
    structures: list[tree.Structure] = []
    traced = [Frame(what, marker.serial) for _ in branches]
    for frame, branch in zip(traced, branches, strict=True):

        def call(arguments: Sequence[Array], branch: Any = branch) -> tuple[Sequence[Array], Any]:
            return flat_arrays(what, branch(*tree.unflatten(structure, arguments)))

        roots, out = run(frame, call, formals)
        results.append(roots)
        structures.append(out)
    require_same_outputs(what, names, results, structures)
    tokens = tokens_of(traced)
    if tokens is not None:
        results = [[*roots, token] for roots, token in zip(results, tokens, strict=True)]
    bodies, captures = close(results, formals, marker.serial)
    outs = outputs(_node([index, *captures, *flat], bodies))
    if tokens is not None:
        happened(outs[-1])
        outs = outs[:-1]
    return tree.unflatten(structures[0], outs)
