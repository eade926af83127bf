"""The op behind `scan`: a body that runs `length` times, and its rules but the reverse one.

Inputs are `captures | carries | xs`, results `carries | ys`; the body maps
`captures | carries | a slice of each x` to `carries | a slice of each y`. Derived loops are scans
again, so all transforms nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyeffect_torch.control.loops import Closure, bit, chosen, groups, mask_of
from pyeffect_torch.control.scan_reverse import backward
from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, outputs
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import MaybeArray, Op, Region, Slim, Type, declare
from pyeffect_torch.transforms import regions
from pyeffect_torch.transforms.arguments import zeros
from pyeffect_torch.transforms.regions import RegionParams, present, spread

_f: Any = late.functions


class ScanRules(NamedTuple):
    """The counts of the layout; the number of steps; whether they go from the last x to the first.

    A step's y stands where its x stands, also in reverse.
    """

    captures: int
    carries: int
    length: int
    reverse: bool


def stacked_types(body: Body, rules: ScanRules) -> tuple[Type, ...]:
    """The types of the results of a scan over `body`."""
    return tuple(
        (root.shape if k < rules.carries else (rules.length, *root.shape), root.dtype)
        for k, root in enumerate(body.roots)
    )


def scan_node(inputs: Sequence[Array], body: Body, rules: ScanRules) -> Array:
    """Return a scan node."""
    return regions.region(SCAN, inputs, body, rules, stacked_types(body, rules))


def _closure(params: RegionParams, differentiable: bool) -> Closure:
    rules: ScanRules = params.rules
    return Closure(params.body, rules.captures, rules.carries, differentiable)


def _depends(node: Array, masks: Sequence[int], differentiable: bool) -> list[int]:
    return [regions.through(m, masks) for m in _closure(node.params, differentiable).masks]


# --- forward


def _forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    params: RegionParams = node.params  # once: another thread may append outputs
    body, rules = params.body, params.rules
    given = groups(tangents, rules.captures, rules.carries)
    active = _closure(params, True).active(mask_of([t is not None for t in tangents]))
    first = groups(inputs, rules.captures, rules.carries).carries
    flat = [*given.captures, *_started(given.carries, first, active), *given.xs]
    fresh = regions.fresh_tangents(body.formals, [t is not None for t in flat])
    roots, tans = regions.tangent_walk(body, fresh)
    tans[: rules.carries] = _started(tans[: rules.carries], roots[: rules.carries], active)
    joint_rules = rules._replace(
        captures=rules.captures + len(present(given.captures)),
        carries=rules.carries + sum(active),
    )
    joint = Body(
        _joined(body.formals, fresh, rules),
        _joined(roots, tans, rules._replace(captures=0)),
        body.floor,
    )
    outs = outputs(scan_node(_joined(inputs, flat, rules), joint, joint_rules))
    found = groups(outs, 0, joint_rules.carries)
    count = rules.carries
    ys = len(roots) - count
    primals = [*found.carries[:count], *found.xs[:ys]]
    return primals, spread([*found.carries[count:], *found.xs[ys:]], tans)


def _started(
    tangents: Sequence[MaybeArray], values: Sequence[Array], active: Sequence[bool]
) -> list[MaybeArray]:
    """The tangents of carries: zeros where an active one has none."""
    return [
        (zeros(value) if tangent is None else tangent) if on else None
        for tangent, value, on in zip(tangents, values, active, strict=True)
    ]


def _joined(
    values: Sequence[Array], tangents: Sequence[MaybeArray], rules: ScanRules
) -> list[Array]:
    """Each group followed by its tangents."""
    pairs = zip(
        groups(values, rules.captures, rules.carries),
        groups(tangents, rules.captures, rules.carries),
        strict=True,
    )
    return [array for one, two in pairs for array in (*one, *present(two))]


# --- reverse


def _reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    params: RegionParams = node.params
    return backward(node, params, cts, need, _closure(params, True), scan_node)


# --- batch


def _batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    params: RegionParams = node.params  # once: another thread may append outputs
    body, rules = params.body, params.rules
    flags = groups(batched, rules.captures, rules.carries)
    active = _closure(params, False).active(mask_of(batched))
    arrays = groups(inputs, rules.captures, rules.carries)
    carries = [
        _f.broadcast_to(array, (size, *array.shape)) if on and not is_batched else array
        for array, on, is_batched in zip(arrays.carries, active, flags.carries, strict=True)
    ]
    xs = [
        _f.moveaxis(array, 0, 1) if is_batched else array
        for array, is_batched in zip(arrays.xs, flags.xs, strict=True)
    ]
    force = [*active, *[False] * (len(body.roots) - rules.carries)]
    made, out_flags = regions.batched_body(body, [*flags.captures, *active, *flags.xs], size, force)
    assert out_flags[: rules.carries] == active
    outs = outputs(scan_node([*arrays.captures, *carries, *xs], made, rules))
    return [
        (_f.moveaxis(out, 1, 0) if flag and k >= rules.carries else out, flag)
        for k, (out, flag) in enumerate(zip(outs, out_flags, strict=True))
    ]


# --- encoding


def _slim(node: Array, used: Sequence[int]) -> Slim:
    params: RegionParams = node.params  # once: another thread may append outputs
    body, rules = params.body, params.rules
    live = _closure(params, False).union(used)
    keep = [bit(live, k) for k in range(len(body.formals))]
    kept = groups(keep, rules.captures, rules.carries)
    roots = [
        k for k in range(len(body.roots)) if (kept.carries[k] if k < rules.carries else k in used)
    ]
    slim = Body(chosen(body.formals, keep), [body.roots[k] for k in roots], body.floor)
    counts = rules._replace(captures=sum(kept.captures), carries=sum(kept.carries))
    return Slim(chosen(node.inputs, keep), [slim], {"body": slim, **counts._asdict()}, roots)


def _attributes(node: Array) -> Mapping[str, Any]:
    return node.params.rules._asdict()


def _reference(attributes: Mapping[str, Any], *arrays: Any) -> list[Any]:
    given = groups(arrays, attributes["captures"], attributes["carries"])
    carry: list[Any] = given.carries
    types: Sequence[Type] = attributes["types"][len(carry) :]
    ys = [np.empty(shape, dtype) for shape, dtype in types]
    steps = range(attributes["length"])
    for t in reversed(steps) if attributes["reverse"] else steps:
        outs = attributes["body"]([*given.captures, *carry, *(x[t] for x in given.xs)])
        carry = outs[: len(carry)]
        for y, out in zip(ys, outs[len(carry) :], strict=True):
            y[t] = out
    return [*carry, *ys]


SCAN: Op = declare(
    "scan",
    infer=lambda inputs, params: params.types,
    derivative=Region(_forward, _reverse, None, _depends, _slim, ("body",)),
    batch=_batch,
    reference=_reference,
    domain=None,
    opcode="scan",
    attributes=_attributes,
    traits=("multi", "region"),
)
