"""A scan of which each pass makes several steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyeffect_torch.control.loops import groups
from pyeffect_torch.control.scan_op import ScanRules, scan_node
from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, outputs, placeholder
from pyeffect_torch.core.graph import Body

_f: Any = late.functions


def unrolled(
    inputs: Sequence[Array], body: Body, rules: ScanRules, together: int
) -> Sequence[Array]:
    """Return the results of a scan node that makes `together` steps in each pass.

    What is left over is made outside of the loop: the last steps that are made, so the first ones
    of a reversed scan.
    """
    if together == 1 or not rules.length:
        return outputs(scan_node(inputs, body, rules))
    passes = rules.length // together
    looped = passes * together if passes > 1 else 0
    left = rules.length - looped
    start = left if rules.reverse else 0
    given = groups(inputs, rules.captures, rules.carries)
    carry: Sequence[Array] = given.carries
    parts: list[list[Array]] = []
    if looped:
        xs = [
            _f.reshape(x[start : start + looped], (passes, together, *x.shape[1:]))
            for x in given.xs
        ]
        made = _several(body, rules, together)
        node = scan_node([*given.captures, *carry, *xs], made, rules._replace(length=passes))
        found = groups(outputs(node), 0, rules.carries)
        carry = found.carries
        parts.append([_f.reshape(y, (looped, *y.shape[2:])) for y in found.xs])
    if left:
        rest = [x[:left] if rules.reverse else x[looped:] for x in given.xs]
        carry, ys = _inlined(body, rules, [*given.captures, *carry, *rest], left)
        parts.insert(0 if rules.reverse else len(parts), ys)
    stacked = [_f.concatenate(list(pieces)) for pieces in zip(*parts, strict=True)]
    return [*carry, *stacked]


def _several(body: Body, rules: ScanRules, together: int) -> Body:
    """The body of one pass."""
    formals = groups(body.formals, rules.captures, rules.carries)
    carries = [placeholder(a.shape, a.dtype, "a carry of scan") for a in formals.carries]
    xs = [placeholder((together, *a.shape), a.dtype, "the xs of scan") for a in formals.xs]
    inputs = [*formals.captures, *carries, *xs]
    carry, ys = _inlined(body, rules, inputs, together)
    return Body(inputs, [*carry, *ys], body.floor)


def _inlined(
    body: Body, rules: ScanRules, inputs: Sequence[Array], steps: int
) -> tuple[list[Array], list[Array]]:
    """The carry and the stacked ys of some steps, without a loop."""
    given = groups(inputs, rules.captures, rules.carries)
    carry = given.carries
    rows: list[list[Array]] = []
    for t in reversed(range(steps)) if rules.reverse else range(steps):
        outs = body.inline([*given.captures, *carry, *(x[t] for x in given.xs)])
        carry = outs[: rules.carries]
        rows.append(outs[rules.carries :])
    if rules.reverse:
        rows.reverse()
    return carry, [_f.stack(list(column)) for column in zip(*rows, strict=True)]
