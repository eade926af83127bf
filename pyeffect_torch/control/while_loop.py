"""`while_loop` and `fori_loop`: steps whose number is known when they are run.

Inputs of the node are `captures | carries`; the condition maps them to one bool and the body to the
carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.control.guard import guarded, may_fail
from pyeffect_torch.control.loops import Closure, bit, chosen, is_int, mask_of
from pyeffect_torch.control.scan import scan_steps
from pyeffect_torch.control.signature import require_predicate, require_same_carry
from pyeffect_torch.core import dtypes, late, tree
from pyeffect_torch.core.array import Array, outputs, placeholder
from pyeffect_torch.core.errors import DTypeError, ShapeError, TraceError, TreeError
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import MaybeArray, Op, Region, Slim, declare
from pyeffect_torch.core.trace import Frame, close, placeholders, run
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand
from pyeffect_torch.transforms import regions
from pyeffect_torch.transforms.arguments import flat_arrays, require_callable, zeros
from pyeffect_torch.transforms.effects import happened, no_token
from pyeffect_torch.transforms.regions import RegionParams, present, spread

_f: Any = late.functions


class WhileRules(NamedTuple):
    """`captures`: how many inputs come before the carries."""

    captures: int


def _node(inputs: Sequence[Array], condition: Body, body: Body, captures: int) -> Array:
    types = regions.types_of(body.roots)
    return regions.region(WHILE, inputs, [condition, body], WhileRules(captures), types)


def _closure(params: RegionParams, differentiable: bool) -> Closure:
    body, captures = params.bodies[1], params.rules.captures
    return Closure(body, captures, len(body.roots), differentiable)


def _read_by_condition(params: RegionParams, closure: Closure) -> int:
    """What decides how many steps there are."""
    return closure.close(params.bodies[0].deps()[0])


def _depends(node: Array, masks: Sequence[int], differentiable: bool) -> list[int]:
    closure = _closure(node.params, differentiable)
    decides = 0 if differentiable else _read_by_condition(node.params, closure)
    return [regions.through(mask | decides, masks) for mask in closure.masks]


# --- derivatives


def _forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    params: RegionParams = node.params
    condition, body = params.bodies
    captures = params.rules.captures
    active = _closure(params, True).active(mask_of([t is not None for t in tangents]))
    started = [
        (zeros(array) if tangent is None else tangent) if on else None
        for tangent, array, on in zip(tangents[captures:], inputs[captures:], active, strict=True)
    ]
    flat = [*tangents[:captures], *started]
    fresh = regions.fresh_tangents(body.formals, [t is not None for t in flat])
    roots, tans = regions.tangent_walk(body, fresh)
    after = [
        (zeros(root) if tangent is None else tangent) if on else None
        for tangent, root, on in zip(tans, roots, active, strict=True)
    ]
    formals = _joined(body.formals, fresh, captures)
    made = _node(
        _joined(inputs, flat, captures),
        Body(formals, condition.roots, condition.floor),
        Body(formals, [*roots, *present(after)], body.floor),
        captures + len(present(flat[:captures])),
    )
    outs = outputs(made)
    return list(outs[: len(roots)]), spread(outs[len(roots) :], after)


def _joined(values: Sequence[Array], tangents: Sequence[MaybeArray], captures: int) -> list[Array]:
    """The captures and their tangents, then the carries and theirs."""
    return [
        *values[:captures],
        *present(tangents[:captures]),
        *values[captures:],
        *present(tangents[captures:]),
    ]


def _reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    active = _closure(node.params, True).active(mask_of(need))
    if any(on and ct is not None for on, ct in zip(active, cts, strict=True)):
        raise TraceError(
            "while_loop: reverse mode through it would need the values of every step, and how many "
            "there are is not known",
            "use et.scan, or et.fori_loop with bounds that are Python ints; or forward mode",
            node.src,
        )
    return [None] * len(need)


# --- batch


def _batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    params: RegionParams = node.params
    captures = params.rules.captures
    mask = mask_of(batched)
    closure = _closure(params, False)
    differs = bool(_read_by_condition(params, closure) & mask)
    active = [True] * len(params.types) if differs else closure.active(mask)
    flags = [*batched[:captures], *active]
    carries = [
        _f.broadcast_to(array, (size, *array.shape)) if on and not is_batched else array
        for array, on, is_batched in zip(inputs[captures:], active, batched[captures:], strict=True)
    ]
    if differs:
        holds, step = _row_by_row(params, flags, size)
    else:
        both = regions.batched_bodies(params.bodies, flags, size, [False, active])
        (holds, _), (step, _) = both
    made = _node([*inputs[:captures], *carries], holds, step, captures)
    return list(zip(outputs(made), active, strict=True))


def _row_by_row(params: RegionParams, flags: Sequence[bool], size: int) -> tuple[Body, Body]:
    """The loop that runs while the condition holds for any row; the others keep their carries."""
    condition, body = params.bodies
    holds, _ = regions.batched_body(condition, flags, size, force=True)
    formals = holds.formals
    going = holds.roots[0]
    env: dict[int, Any] = {}
    step = body
    if may_fail(body):
        mask = placeholder((), dtypes.bool_, "whether a row goes on")
        step = guarded(body, mask)
        env[mask.serial] = going
    for formal, array, is_batched in zip(body.formals, formals, flags, strict=True):
        env[formal.serial if is_batched else -formal.serial] = array
    after, _ = regions.batched_roots(step, env, size, force=True)
    carries = [
        _f.where(_f.reshape(going, (size, *[1] * (len(new.shape) - 1))), new, old)
        for new, old in zip(after, formals[params.rules.captures :], strict=True)
    ]
    anywhere = Body(formals, [_f.any(going)], condition.floor)
    return anywhere, Body(formals, carries, body.floor)


# --- encoding


def _slim(node: Array, used: Sequence[int]) -> Slim:
    params: RegionParams = node.params
    condition, body = params.bodies
    captures = params.rules.captures
    closure = _closure(params, False)
    live = closure.union(used) | _read_by_condition(params, closure)
    keep = [bit(live, k) for k in range(len(body.formals))]
    roots = [k for k, on in enumerate(keep[captures:]) if on]
    formals = chosen(body.formals, keep)
    slim = [
        Body(formals, condition.roots, condition.floor),
        Body(formals, [body.roots[k] for k in roots], body.floor),
    ]
    attributes = {"condition": slim[0], "body": slim[1], "captures": sum(keep[:captures])}
    return Slim(chosen(node.inputs, keep), slim, attributes, roots)


def _reference(attributes: Mapping[str, Any], *arrays: Any) -> list[Any]:
    captures, carry = arrays[: attributes["captures"]], arrays[attributes["captures"] :]
    while attributes["condition"]([*captures, *carry])[0]:
        carry = attributes["body"]([*captures, *carry])
    return list(carry)


WHILE: Final[Op] = declare(
    "while_loop",
    infer=lambda inputs, params: params.types,
    derivative=Region(_forward, _reverse, None, _depends, _slim, ("condition", "body")),
    batch=_batch,
    reference=_reference,
    domain=None,
    opcode="while",
    attributes=lambda node: node.params.rules._asdict(),
    traits=("multi", "region"),
)


# --- the functions


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any) -> Any:
    """Return the carry after `carry = body_fun(carry)` as long as `cond_fun(carry)` holds.

    Forward mode and `vmap` work; reverse mode does not, since the number of steps is not known.

    Args:
        cond_fun: a pure function from the carry to one bool.
        body_fun: a pure function from the carry to a carry of the same tree and types.
        init: the first carry, a tree.

    Raises:
        TreeError: the carry changes its tree or types. DTypeError, ShapeError: the condition is not
        one bool. TraceError: reverse mode through a loop that the result depends on.
    """
    return _while("while_loop", cond_fun, body_fun, init)


def _while(
    what: str, cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any
) -> Any:
    require_callable(what, cond_fun, body_fun)
    flat, structure = flat_arrays(what, init)
    types = regions.types_of(flat)
    marker = placeholder((), dtypes.bool_, what)
    names = [f"{path} of {what}" for path in tree.paths(structure, "carry")]
    formals = placeholders(types, names)

    def call_condition(arguments: Sequence[Array]) -> tuple[Sequence[Array], Any]:
        value = cond_fun(tree.unflatten(structure, arguments))
        leaves, out = flat_arrays(what, value)
        if len(leaves) != 1 or not out.is_leaf():
            raise TreeError(
                f"{what}: the condition must return one bool, got a tree {out}",
                "combine its parts with & and |",
            )
        require_predicate(f"{what}: the condition", leaves[0])
        return leaves, None

    def call_body(arguments: Sequence[Array]) -> tuple[Sequence[Array], Any]:
        after, got = flat_arrays(what, body_fun(tree.unflatten(structure, arguments)))
        require_same_carry(what, types, structure, after, got)
        return after, None

    frames = [Frame("while", marker.serial) for _ in range(2)]
    condition, _ = run(frames[0], call_condition, formals)
    body, _ = run(frames[1], call_body, formals)
    for token in frames[0].effects:  # the condition has no output but one: it stands for both
        condition = [_f.logical_or(condition[0], token)]
    effects = frames[0].effects or frames[1].effects
    if effects:  # one more carry, so that the loop has a token
        flat = [*flat, no_token()]
        formals = [*formals, placeholder((), dtypes.bool_, f"the order of effects in {what}")]
        body = [*body, *(frames[1].effects or formals[-1:])]
    (holds, step), captures = close([condition, body], formals, marker.serial)
    outs = outputs(_node([*captures, *flat], holds, step, len(captures)))
    if effects:
        happened(outs[-1])
        outs = outs[:-1]
    return tree.unflatten(structure, outs)


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init: Any) -> Any:
    """Return the carry after `carry = body_fun(i, carry)` for i from `lower` to `upper` - 1.

    With bounds that are Python ints it is a `scan`, differentiable in both modes; with arrays a
    `while_loop`, with what that cannot do.

    Args:
        lower, upper: ints, or integer arrays [] of one dtype.
        body_fun: a pure function from i (int64 for Python ints) and the carry to the carry.
        init: the first carry, a tree.

    Raises:
        TreeError: the carry changes its tree or types. DTypeError, ShapeError: a bound is not one
        integer.
    """
    require_callable("fori_loop", body_fun)
    if is_int(lower) and is_int(upper):
        length = max(int(upper) - int(lower), 0)
        steps = _f.counting(length)
        if int(lower):
            steps = _f.add(steps, int(lower))
        return scan_steps("fori_loop", lambda carry, i: (body_fun(i, carry), None), init, steps)[0]
    low, high = _bounds(lower, upper)
    flat, structure = flat_arrays("fori_loop", init)

    def step(carry: tuple[Array, Any]) -> tuple[Array, Any]:
        after = body_fun(*carry)
        leaves, got = flat_arrays("fori_loop", after)
        require_same_carry("fori_loop", regions.types_of(flat), structure, leaves, got)
        return carry[0] + 1, after

    return _while("fori_loop", lambda carry: carry[0] < high, step, (low, init))[1]


def _bounds(lower: Any, upper: Any) -> tuple[Array, Array]:
    found: list[Array] = []
    for value, other in ((lower, upper), (upper, lower)):
        array = operand("fori_loop", value)
        if isinstance(value, int) and isinstance(other, (Array, np.ndarray)):
            array = _f.full((), value, other.dtype)  # a number takes the other bound's dtype
        if array.dtype.kind not in "iu":
            raise DTypeError(
                f"fori_loop: a bound must be an integer, got {describe(array)}", "cast it to int64"
            )
        if array.shape:
            raise ShapeError(
                f"fori_loop: a bound must be one integer, got {describe(array)}", "index it"
            )
        found.append(array)
    if found[0].dtype is not found[1].dtype:
        raise mixed_dtypes("fori_loop", *found)
    return found[0], found[1]
