"""The reverse rule of `scan`: a scan the other way.

Its carries are the cotangents of the carries, and a sum for each needed capture; its xs are the
cotangents of the ys, the xs that are read again, and the residuals (`residuals.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.control.loops import Closure, Groups, bit, chosen, groups, mask_of
from pyeffect_torch.control.residuals import Residuals, keep
from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, outputs, placeholder
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import MaybeArray
from pyeffect_torch.transforms import regions
from pyeffect_torch.transforms.arguments import instantiate, zeros
from pyeffect_torch.transforms.regions import RegionParams, present, spread

_f: Any = late.functions


def backward(
    node: Array,
    params: RegionParams,
    cts: Sequence[MaybeArray],
    need: Sequence[bool],
    closure: Closure,
    build: Callable[[Sequence[Array], Body, Any], Array],
) -> list[MaybeArray]:
    """Return the cotangents of the inputs of a scan; `build` makes the new scan."""
    body, rules = params.body, params.rules
    count = rules.carries
    wanted = mask_of(need)
    given = [k for k, ct in enumerate(cts) if ct is not None and closure.masks[k] & wanted]
    if not given:
        return [None] * len(need)
    live = closure.union(given)
    active = [on and bit(live, rules.captures + j) for j, on in enumerate(closure.active(wanted))]
    ends = groups([on and bit(live, k) for k, on in enumerate(need)], rules.captures, count)
    seeds = [
        placeholder(root.shape, root.dtype, "a cotangent") if on else None
        for root, on in zip(
            body.roots, [*active, *(k in given for k in range(count, len(body.roots)))], strict=True
        )
    ]
    walked = regions.cotangent_walk(
        body.roots, seeds, body.formals, [*ends.captures, *active, *ends.xs]
    )
    got = groups(walked, rules.captures, count)
    sums = [None if ct is None else placeholder(ct.shape, ct.dtype, "a sum") for ct in got.captures]
    carried = groups(body.formals, rules.captures, count).carries
    results = Groups(
        [_f.add(a, b) for a, b in zip(present(sums), present(got.captures), strict=True)],
        instantiate(chosen(got.carries, active), chosen(carried, active)),
        present(got.xs),
    )
    found = Residuals(body, rules.captures, count)
    own = [*present(seeds[:count]), *present(sums)]
    found.collect([*results.carries, *results.captures, *results.xs], [*present(seeds), *own])
    formals = [*found.captures, *own, *present(seeds[count:]), *found.xs, *found.stacked]
    new = Body(formals, [*results.carries, *results.captures, *results.xs], body.floor)

    actual = dict(zip((formal.serial for formal in body.formals), node.inputs, strict=True))
    first = groups(node.inputs, rules.captures, count).carries
    inputs = [
        *(actual[formal.serial] for formal in found.captures),
        *instantiate(chosen(cts[:count], active), chosen(first, active)),
        *(zeros(one) for one in present(sums)),
        *(ct for k, ct in enumerate(cts) if k >= count and ct is not None and k in given),
        *(actual[formal.serial] for formal in found.xs),
        *keep(node, found.stacked, count, rules.length),
    ]
    new_rules = rules._replace(
        captures=len(found.captures), carries=len(own), reverse=not rules.reverse
    )
    outs = groups(outputs(build(inputs, new, new_rules)), sum(active), len(present(sums)))
    return [
        *spread(outs.carries, sums),
        *spread(outs.captures, [True if on else None for on in active]),
        *spread(outs.xs, got.xs),
    ]
