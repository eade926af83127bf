"""What ops that hold bodies share: their params, and bodies derived from bodies.

A region's inputs and the formals of its bodies have the same layout, captures first; behind what
only the node itself reads (the index of a switch).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyeffect_torch.core import late
from pyeffect_torch.core.array import LITERAL, Array, make, outputs, placeholder
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import MaybeArray, Op, Slim, Type
from pyeffect_torch.transforms.batch import batch_walk, batched_form
from pyeffect_torch.transforms.forward import forward
from pyeffect_torch.transforms.reverse import reverse


class RegionParams(NamedTuple):
    """The params of a region node.

    Attributes:
        bodies: functions of one list of formals, in the layout of the inputs.
        rules: what is specific to the op (a policy, the user's functions, a number of steps).
        types: of the outputs.
    """

    bodies: tuple[Body, ...]
    rules: Any
    types: tuple[Type, ...]

    @property
    def body(self) -> Body:
        """The only, or the first, body."""
        return self.bodies[0]


def types_of(arrays: Sequence[Array]) -> tuple[Type, ...]:
    """The `(shape, dtype)` of each array."""
    return tuple((array.shape, array.dtype) for array in arrays)


def region(
    op: Op,
    inputs: Sequence[Array],
    bodies: Body | Sequence[Body],
    rules: Any,
    types: Sequence[Type] | None = None,
) -> Array:
    """Return a region node; without `types` its outputs are those of the first body.

    A custom rule that took part in a body may have brought in arrays from outside, which become
    captures of this node: `rules.captures` counts them, if there is such a field.
    """
    given = (bodies,) if isinstance(bodies, Body) else tuple(bodies)
    more = _outside(given)
    if more:
        lead = len(inputs) - len(given[0].formals)
        inputs = [*inputs[:lead], *more, *inputs[lead:]]
        given = tuple(Body([*more, *body.formals], body.roots, body.floor) for body in given)
        if hasattr(rules, "captures"):
            rules = rules._replace(captures=rules.captures + len(more))
    found = types_of(given[0].roots) if types is None else tuple(types)
    return make(op, tuple(inputs), RegionParams(given, rules, found), None, None)


def _outside(bodies: Sequence[Body]) -> list[Array]:
    """The arrays from outside of its trace that a body reads and has no formal for."""
    found: dict[int, Array] = {}
    for body in bodies:
        formals = {formal.serial for formal in body.formals}
        read = (array for node in body.nodes for array in node.inputs)
        for array in (*body.roots, *read):
            serial = array.serial
            if serial < body.floor and serial not in formals and array.op is not LITERAL:
                found[serial] = array
    return list(found.values())


def pruned(inputs: Sequence[Array], bodies: Sequence[Body]) -> tuple[list[Array], tuple[Body, ...]]:
    """Leave out the inputs, and their formals, that none of the bodies uses.

    What only stands beside a result would still count as what it depends on: a tangent, say, of
    which the backward pass of a joint body needs nothing.
    """
    formals = bodies[0].formals
    read = 0
    for body in bodies:
        for mask in body.deps():
            read |= mask
    keep = [k for k in range(len(formals)) if read >> k & 1]
    if len(keep) == len(formals):
        return list(inputs), tuple(bodies)
    chosen = [formals[k] for k in keep]
    return [inputs[k] for k in keep], tuple(Body(chosen, b.roots, b.floor) for b in bodies)


def on_inputs(node: Array, inputs: Sequence[Array]) -> Array:
    """Return the region on other inputs of the same types (itself if they are the same)."""
    if all(a is b for a, b in zip(node.inputs, inputs, strict=True)):
        return node
    return make(node.op, tuple(inputs), node.params, None, None, 0, node.src)


# --- forward


def fresh_tangents(formals: Sequence[Array], active: Sequence[bool]) -> list[MaybeArray]:
    """Return a tangent placeholder for each active formal, None for the others."""
    return [
        placeholder(formal.shape, formal.dtype, "a tangent") if is_active else None
        for formal, is_active in zip(formals, active, strict=True)
    ]


def tangent_walk(
    body: Body, tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    """Return the roots of a body and their tangents, from those of the formals (None: zero)."""
    table: dict[int, Any] = {
        formal.serial: tangent
        for formal, tangent in zip(body.formals, tangents, strict=True)
        if tangent is not None
    }
    primals: dict[int, Array] = {}
    forward(body.nodes, primals, table)
    roots = [primals.get(root.serial, root) for root in body.roots]
    return roots, [table.get(root.serial) for root in body.roots]


def joint_outputs(
    op: Op, body: Body, rules: Any, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    """Build the joint region of a body and split its outputs into primals and tangents.

    Its formals are those of `body` followed by the tangents that are not zero; likewise its roots.
    """
    fresh = fresh_tangents(body.formals, [t is not None for t in tangents])
    roots, tans = tangent_walk(body, fresh)
    joint = Body((*body.formals, *present(fresh)), (*roots, *present(tans)), body.floor)
    outs = outputs(region(op, [*inputs, *present(tangents)], joint, rules))
    return list(outs[: len(roots)]), spread(outs[len(roots) :], tans)


def present(values: Sequence[MaybeArray]) -> list[Array]:
    """The arrays among `values`."""
    return [value for value in values if value is not None]


def spread(arrays: Sequence[Array], like: Sequence[Any]) -> list[MaybeArray]:
    """Put `arrays` where `like` is not None; the inverse of `present`."""
    given = iter(arrays)
    return [None if value is None else next(given) for value in like]


# --- reverse


def fresh_cotangents(cts: Sequence[MaybeArray]) -> list[MaybeArray]:
    """Return a cotangent placeholder for each of `cts` that is not None."""
    return [None if ct is None else placeholder(ct.shape, ct.dtype, "a cotangent") for ct in cts]


def cotangent_walk(
    roots: Sequence[Array],
    seeds: Sequence[MaybeArray],
    formals: Sequence[Array],
    need: Sequence[bool],
) -> list[MaybeArray]:
    """Return the cotangent of each needed formal (None: zero, or not needed)."""
    ends = {formal.serial: formal for formal, needed in zip(formals, need, strict=True) if needed}
    others = [formal for formal in formals if formal.serial not in ends]
    got = dict(zip(ends, reverse(roots, seeds, list(ends.values()), others), strict=True))
    return [got.get(formal.serial) for formal in formals]


# --- batch


def batched_bodies(
    bodies: Sequence[Body],
    batched: Sequence[bool],
    size: int,
    force: Sequence[Sequence[bool] | bool],
) -> list[tuple[Body, list[bool]]]:
    """Return each body over common batched formals, and which of its outputs are batched.

    Outputs of which `force` is set always are (broadcast if they do not depend on the rows).
    """
    env: dict[int, Any] = {}
    formals: list[Array] = []
    for formal, is_batched in zip(bodies[0].formals, batched, strict=True):
        if is_batched:
            fresh = placeholder((size, *formal.shape), formal.dtype, "a batch")
            env[formal.serial] = fresh
            formals.append(fresh)
        else:
            formals.append(formal)
    made: list[tuple[Body, list[bool]]] = []
    for body, forced in zip(bodies, force, strict=True):
        roots, flags = batched_roots(body, dict(env), size, forced)
        made.append((Body(formals, roots, body.floor), flags))
    return made


def batched_body(
    body: Body, batched: Sequence[bool], size: int, force: Sequence[bool] | bool = False
) -> tuple[Body, list[bool]]:
    """Return the body over batched formals and which outputs are batched, as above."""
    (made,) = batched_bodies([body], batched, size, [force])
    return made


def batched_roots(
    body: Body, env: dict[int, Any], size: int, force: Sequence[bool] | bool = False
) -> tuple[list[Array], list[bool]]:
    """Walk a body from the formals in `env` (see `batch_walk`); return its roots, as above."""
    batch_walk(body.nodes, env, size)
    forced = [force] * len(body.roots) if isinstance(force, bool) else force
    roots: list[Array] = []
    flags: list[bool] = []
    for root, is_forced in zip(body.roots, forced, strict=True):
        array, is_batched = batched_form(root, env)
        if is_forced and not is_batched:
            array, is_batched = late.functions.broadcast_to(array, (size, *array.shape)), True
        roots.append(array)
        flags.append(is_batched)
    return roots, flags


# --- bodies as they are


def inline_body(node: Array, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a region as ordinary nodes on `inputs`."""
    body: Body = node.params.body
    return body.inline(inputs)


def slim_body(node: Array, used: Sequence[int]) -> Slim:
    """What is inlined of a region that runs its body once (see `Region.slim`)."""
    body: Body = node.params.body
    roots = [body.roots[k] for k in used]
    inputs, bodies = pruned(node.inputs, [Body(body.formals, roots, body.floor)])
    return Slim(inputs, bodies, {}, used)


def body_depends(node: Array, masks: Sequence[int], differentiable: bool) -> list[int]:
    """What each output of a region that runs its body once depends on (see `Region.depends`)."""
    body: Body = node.params.body
    return [through(mask, masks) for mask in body.deps(differentiable)]


def through(mask: int, masks: Sequence[int]) -> int:
    """The union of `masks[k]` over the bits k of `mask`."""
    total = 0
    while mask:
        low = mask & -mask
        total |= masks[low.bit_length() - 1]
        mask ^= low
    return total
