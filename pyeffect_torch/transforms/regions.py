"""What ops that hold bodies share: their params, joint bodies, and batched bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, make, outputs, placeholder
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import MaybeArray, Op, Type
from pyeffect_torch.transforms.batch import batch_walk, batched_form
from pyeffect_torch.transforms.forward import forward
from pyeffect_torch.transforms.reverse import reverse


class RegionParams(NamedTuple):
    """The params of a region node.

    Attributes:
        body: formals in the layout of the inputs.
        rules: what is specific to the op (a policy, the user's functions).
        types: of the outputs.
    """

    body: Body
    rules: Any
    types: tuple[Type, ...]


def types_of(arrays: Sequence[Array]) -> tuple[Type, ...]:
    """The `(shape, dtype)` of each array."""
    return tuple((array.shape, array.dtype) for array in arrays)


def region(op: Op, inputs: Sequence[Array], body: Body, rules: Any) -> Array:
    """Return a region node over `body`."""
    return make(op, tuple(inputs), RegionParams(body, rules, types_of(body.roots)), None, None)


def on_inputs(node: Array, inputs: Sequence[Array]) -> Array:
    """Return the region on other inputs of the same types (itself if they are the same)."""
    if all(a is b for a, b in zip(node.inputs, inputs, strict=True)):
        return node
    return make(node.op, tuple(inputs), node.params, None, None, 0, node.src)


def tangent_body(body: Body, active: Sequence[bool]) -> tuple[Body, list[bool]]:
    """Return the joint body and which outputs have a tangent.

    Its formals are those of `body` followed by a tangent for each active one; its roots the
    primals followed by the tangents that are not zero.
    """
    tangents = [
        placeholder(formal.shape, formal.dtype, "a tangent")
        for formal, is_active in zip(body.formals, active, strict=True)
        if is_active
    ]
    table: dict[int, Any] = {}
    fresh = iter(tangents)
    for formal, is_active in zip(body.formals, active, strict=True):
        if is_active:
            table[formal.serial] = next(fresh)
    primals: dict[int, Array] = {}
    forward(body.nodes, primals, table)
    roots = [primals.get(root.serial, root) for root in body.roots]
    tans = [table.get(root.serial) for root in body.roots]
    joint = Body((*body.formals, *tangents), (*roots, *(t for t in tans if t is not None)))
    return joint, [t is not None for t in tans]


def cotangent_body(
    body: Body, cts: Sequence[MaybeArray], need: Sequence[bool], kept: Sequence[Array] = ()
) -> tuple[Body, list[bool]]:
    """Return the body of the backward pass and which needed inputs have a cotangent.

    Its formals are those of `body`, then `kept` (inner nodes whose values are handed in), then
    one cotangent for each of `cts` that is not None; its roots the cotangents that are not zero.
    """
    seeds = [None if ct is None else placeholder(ct.shape, ct.dtype, "a cotangent") for ct in cts]
    ends: dict[int, Array] = {}
    for formal, needed in zip(body.formals, need, strict=True):
        if needed:
            ends[formal.serial] = formal
    others = [formal for formal in body.formals if formal.serial not in ends]
    got = reverse(body.roots, seeds, list(ends.values()), others)
    by_serial = dict(zip(ends, got, strict=True))
    results = [by_serial.get(formal.serial) for formal in body.formals]
    formals = (*body.formals, *kept, *(seed for seed in seeds if seed is not None))
    found = [result for result in results if result is not None]
    return Body(formals, found), [result is not None for result in results]


def batched_body(
    body: Body, batched: Sequence[bool], size: int, *, force: bool = False
) -> tuple[Body, list[bool]]:
    """Return the body over batched formals and which outputs are batched.

    With `force`, every output is (broadcast where it does not depend on the rows).
    """
    env: dict[int, Any] = {}
    formals: list[Array] = []
    for formal, is_batched in zip(body.formals, batched, strict=True):
        if is_batched:
            fresh = placeholder((size, *formal.shape), formal.dtype, "a batch")
            env[formal.serial] = fresh
            formals.append(fresh)
        else:
            formals.append(formal)
    batch_walk(body.nodes, env, size)
    roots: list[Array] = []
    flags: list[bool] = []
    for root in body.roots:
        array, is_batched = batched_form(root, env)
        if force and not is_batched:
            array, is_batched = late.functions.broadcast_to(array, (size, *array.shape)), True
        roots.append(array)
        flags.append(is_batched)
    return Body(formals, roots), flags


def joint_outputs(
    op: Op,
    body: Body,
    rules: Any,
    inputs: Sequence[Array],
    tangents: Sequence[MaybeArray],
    build: Callable[[Op, Sequence[Array], Body, Any], Array] = region,
) -> tuple[list[Array], list[MaybeArray]]:
    """Build the joint region and split its outputs into primals and tangents."""
    joint, has = tangent_body(body, [t is not None for t in tangents])
    node = build(op, [*inputs, *(t for t in tangents if t is not None)], joint, rules)
    outs = outputs(node)
    count = len(body.roots)
    rest = iter(outs[count:])
    return list(outs[:count]), [next(rest) if tangent else None for tangent in has]


def inline_body(node: Array, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a region as ordinary nodes on `inputs`."""
    body: Body = node.params.body
    return body.inline(inputs)
