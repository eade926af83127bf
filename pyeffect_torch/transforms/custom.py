"""`custom_vjp` and `custom_jvp`: a function with a derivative rule of the user's own.

The value, and its derivative at every order, come from the function and its rule, even if `fwd` or
the rule recompute the value by another formula (JAX would take theirs).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pyeffect_torch.core import dtypes, late, source, tree
from pyeffect_torch.core.array import Array, outputs, placeholder
from pyeffect_torch.core.errors import ArgumentError, TraceError, TreeError
from pyeffect_torch.core.op import MaybeArray, Op, Region, declare
from pyeffect_torch.core.trace import Frame, pop, push, trace
from pyeffect_torch.ops.base import describe
from pyeffect_torch.transforms import regions
from pyeffect_torch.transforms.arguments import (
    argument_indices,
    argument_paths,
    flat_arrays,
    instantiate,
    require_callable,
)
from pyeffect_torch.transforms.effects import visible
from pyeffect_torch.transforms.reverse import reverse_through, without_tangents
from pyeffect_torch.transforms.vmap import vmap


class _Rules(NamedTuple):
    """`captures`: how many inputs come before the arguments; `fwd`/`bwd`/`rule` are the user's."""

    name: str
    captures: int
    in_structure: tree.Structure
    out_structure: tree.Structure
    fwd: Callable[..., Any] | None
    bwd: Callable[..., Any] | None
    rule: Callable[..., Any] | None


def _arguments(node: Array) -> list[Array]:
    return list(node.inputs[node.params.rules.captures :])


def _apply(kind: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's rule, which may be handed inputs of a trace that is finished, in a frame."""
    frame = Frame(kind, placeholder((), dtypes.bool_, kind).serial)
    push(frame)
    try:
        return function(*args)
    finally:
        pop(frame)


def _refuse_captures(node: Array, active: Sequence[bool], what: str) -> None:
    rules: _Rules = node.params.rules
    for array, is_active in zip(node.inputs[: rules.captures], active, strict=False):
        if is_active:
            made = source.describe(array.src)
            raise TraceError(
                f"{what} {rules.name}: it closes over a value that is being differentiated"
                + (f", made at {made}" if made else ""),
                "pass that value as an argument",
                node.src,
            )


# --- custom_vjp


def _vjp_forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    del inputs, tangents
    raise TraceError(
        f"custom_vjp {node.params.rules.name}: it has no forward-mode rule",
        "use reverse mode (et.grad, et.vjp), or define the function with et.custom_jvp",
        node.src,
    )


def _vjp_reverse(
    node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> Sequence[MaybeArray]:
    rules: _Rules = node.params.rules
    _refuse_captures(node, need, "custom_vjp")
    assert rules.fwd is not None
    assert rules.bwd is not None
    arguments = _arguments(node)
    answer = _apply("custom_vjp", rules.fwd, *tree.unflatten(rules.in_structure, arguments))
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ArgumentError(
            f"custom_vjp {rules.name}: fwd must return a pair (out, residuals)",
            "return (out, residuals) from fwd",
            node.src,
        )
    count = rules.out_structure.num_leaves  # behind them a token of effects
    seeds = instantiate(cts[:count], outputs(node)[:count])
    cts_tree = tree.unflatten(rules.out_structure, seeds)
    got = _apply("custom_vjp", rules.bwd, answer[1], cts_tree)
    return [None] * rules.captures + _checked_cts(rules, got, arguments, node)


def _checked_cts(
    rules: _Rules, got: Any, arguments: Sequence[Array], node: Array
) -> list[MaybeArray]:
    trees = tree.unflatten(rules.in_structure, arguments)
    if not isinstance(got, (tuple, list)) or len(got) != len(trees):
        raise TreeError(
            f"custom_vjp {rules.name}: bwd must return a tuple of {len(trees)} cotangents",
            "return one cotangent per argument, None for zero",
            node.src,
        )
    out: list[MaybeArray] = []
    for index, (ct, argument) in enumerate(zip(got, trees, strict=True)):
        leaves, structure = tree.flatten(argument)
        if ct is None:
            out.extend([None] * len(leaves))
            continue
        flat, ct_structure = flat_arrays("custom_vjp", ct)
        if ct_structure != structure:
            raise tree.mismatch(
                f"custom_vjp {rules.name}: cotangent {index} of bwd", structure, ct_structure
            )
        for value, leaf in zip(flat, leaves, strict=True):
            if not dtypes.is_float(leaf.dtype):
                out.append(None)
                continue
            if value.shape != leaf.shape or value.dtype is not leaf.dtype:
                raise TreeError(
                    f"custom_vjp {rules.name}: cotangent {index} of bwd is {describe(value)}, "
                    f"but the argument is {describe(leaf)}",
                    "return cotangents of the types of the arguments",
                    node.src,
                )
            out.append(value)
    return out


def _vjp_batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    rules: _Rules = node.params.rules
    body, _ = regions.batched_body(node.params.body, batched, size, force=True)
    flags = list(batched[rules.captures :])
    axes = tree.unflatten(rules.in_structure, [0 if flag else None for flag in flags])
    assert rules.fwd is not None
    assert rules.bwd is not None
    bwd = rules.bwd

    def batched_bwd(residuals: Any, ct: Any) -> Any:
        def one(residual: Any, seed: Any) -> Any:
            template = tree.unflatten(rules.in_structure, _arguments(node))
            got = _checked_cts(rules, bwd(residual, seed), tree.leaves(template), node)
            return instantiate(got, tree.leaves(template))

        rows = vmap(one)(residuals, ct)
        summed = [
            row if flag else late.functions.sum(row, 0)
            for row, flag in zip(rows, flags, strict=True)
        ]
        return tree.unflatten(rules.in_structure, summed)

    fwd = vmap(rules.fwd, in_axes=axes, axis_size=size)
    made = regions.region(CUSTOM_VJP, inputs, body, rules._replace(fwd=fwd, bwd=batched_bwd))
    return [(out, True) for out in outputs(made)]


CUSTOM_VJP: Op = declare(
    "custom_vjp",
    infer=lambda inputs, params: params.types,
    derivative=Region(
        _vjp_forward, _vjp_reverse, regions.inline_body, regions.body_depends, regions.slim_body
    ),
    batch=_vjp_batch,
    reference=None,
    domain=None,
    traits=("multi", "region"),
)


# --- custom_jvp


def _apply_rule(node: Array, arguments: Sequence[Array], tangents: Sequence[Array]) -> list[Array]:
    rules: _Rules = node.params.rules
    assert rules.rule is not None
    answer = _apply(
        "custom_jvp",
        rules.rule,
        tree.unflatten(rules.in_structure, arguments),
        tree.unflatten(rules.in_structure, tangents),
    )
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise ArgumentError(
            f"custom_jvp {rules.name}: the rule must return a pair (out, tangent)",
            "return (out, tangent) from the rule",
            node.src,
        )
    flat, structure = flat_arrays("custom_jvp", answer[1])
    if structure != rules.out_structure:
        raise tree.mismatch(
            f"custom_jvp {rules.name}: the tangent of the rule", rules.out_structure, structure
        )
    for value, (shape, dtype) in zip(flat, node.params.types, strict=False):
        if value.shape != shape or value.dtype is not dtype:
            raise TreeError(
                f"custom_jvp {rules.name}: the rule's tangent is {describe(value)}, but the result "
                f"is {dtype.name}{list(shape)}",
                "return tangents of the types of the results",
                node.src,
            )
    return flat


def _jvp_forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    rules: _Rules = node.params.rules
    _refuse_captures(node, [t is not None for t in tangents], "custom_jvp")
    rebuilt = regions.on_inputs(node, inputs)
    arguments = list(inputs[rules.captures :])
    given = instantiate(tangents[rules.captures :], arguments)
    tans = _apply_rule(node, arguments, given)
    outs = list(outputs(rebuilt))
    found = [t if dtypes.is_float(t.dtype) else None for t in tans]
    return outs, [*found, *[None] * (len(outs) - len(found))]  # a token of effects has none


def _jvp_reverse(
    node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> Sequence[MaybeArray]:
    rules: _Rules = node.params.rules
    _refuse_captures(node, need, "custom_jvp")
    arguments = _arguments(node)
    wanted = list(need[rules.captures :])
    seeds = [
        placeholder(a.shape, a.dtype, f"a tangent of custom_jvp {rules.name}") if needed else None
        for a, needed in zip(arguments, wanted, strict=True)
    ]
    tangents = _apply_rule(node, arguments, instantiate(seeds, arguments))
    fresh = [seed for seed in seeds if seed is not None]
    floor = fresh[0].serial if fresh else 0
    cts = cts[: len(tangents)]
    found = reverse_through(tangents, cts, fresh, [True] * len(fresh), floor)
    got = iter(without_tangents(f"custom_jvp {rules.name}", found, fresh, node.src))
    return [None] * rules.captures + [None if seed is None else next(got) for seed in seeds]


def _jvp_batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    rules: _Rules = node.params.rules
    body, _ = regions.batched_body(node.params.body, batched, size, force=True)
    axes = tree.unflatten(
        rules.in_structure, [0 if flag else None for flag in batched[rules.captures :]]
    )
    assert rules.rule is not None
    user_rule = rules.rule
    rule = vmap(user_rule, in_axes=(axes, axes), axis_size=size)
    made = regions.region(CUSTOM_JVP, inputs, body, rules._replace(rule=rule))
    return [(out, True) for out in outputs(made)]


CUSTOM_JVP: Op = declare(
    "custom_jvp",
    infer=lambda inputs, params: params.types,
    derivative=Region(
        _jvp_forward, _jvp_reverse, regions.inline_body, regions.body_depends, regions.slim_body
    ),
    batch=_jvp_batch,
    reference=None,
    domain=None,
    traits=("multi", "region"),
)


# --- the decorators


class _Custom:
    """A function with its own derivative rule."""

    def __init__(
        self, kind: str, f: Callable[..., Any], nondiff_argnums: Sequence[int] = ()
    ) -> None:
        require_callable(kind, f)
        self.kind = kind
        self.f = f
        self.nondiff_argnums = tuple(nondiff_argnums)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.rule: Callable[..., Any] | None = None
        self.name = getattr(f, "__name__", "f")
        functools.update_wrapper(self, f, updated=())  # attributes of f are not ours

    def __call__(self, *args: Any) -> Any:
        if self.rule is None and self.fwd is None:
            raise ArgumentError(
                f"{self.kind} {self.name}: no rule is defined",
                "call defvjp(fwd, bwd)" if self.kind == "custom_vjp" else "call defjvp(rule)",
            )
        indices = argument_indices(
            f"{self.kind} {self.name}: nondiff_argnums", self.nondiff_argnums, len(args)
        )
        static = {index: args[index] for index in indices}
        rest = tuple(arg for index, arg in enumerate(args) if index not in static)

        def full(*dynamic: Any) -> tuple[Any, ...]:
            values = iter(dynamic)
            return tuple(static[i] if i in static else next(values) for i in range(len(args)))

        flat, structure = flat_arrays(self.kind, rest)

        def call(leaves: Sequence[Array]) -> tuple[Sequence[Array], Any]:
            result = self.f(*full(*tree.unflatten(structure, leaves)))
            return flat_arrays(self.kind, result)

        names = argument_paths(self.f, structure, static=indices)
        traced = trace(
            self.kind,
            call,
            regions.types_of(flat),
            [f"{name} of {self.kind} {self.name}" for name in names],
        )
        rules = _Rules(
            self.name,
            len(traced.captures),
            structure,
            traced.out,
            self._with_static(self.fwd, full),
            self._prefixed(self.bwd, static),
            self._prefixed(self.rule, static),
        )
        op = CUSTOM_VJP if self.kind == "custom_vjp" else CUSTOM_JVP
        node = regions.region(op, (*traced.captures, *flat), traced.body, rules)
        return tree.unflatten(traced.out, visible(traced, outputs(node)))

    @staticmethod
    def _with_static(
        function: Callable[..., Any] | None, full: Callable[..., tuple[Any, ...]]
    ) -> Callable[..., Any] | None:
        if function is None:
            return None
        return lambda *dynamic: function(*full(*dynamic))

    @staticmethod
    def _prefixed(
        function: Callable[..., Any] | None, static: dict[int, Any]
    ) -> Callable[..., Any] | None:
        if function is None or not static:
            return function
        return functools.partial(function, *static.values())


class custom_vjp(_Custom):
    """A function whose reverse-mode rule is the user's.

    `defvjp(fwd, bwd)`: `fwd(*args) -> (out, residuals)`, `bwd(residuals, ct) -> tuple of
    cotangents` (None is zero). Arguments in `nondiff_argnums` are static: `bwd` gets them first.
    Forward mode over it is a `TraceError`.
    """

    def __init__(self, f: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__("custom_vjp", f, nondiff_argnums)

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the rule."""
        self.fwd, self.bwd = fwd, bwd


class custom_jvp(_Custom):
    """A function whose forward-mode rule is the user's; reverse mode transposes the rule.

    `defjvp(rule)`: `rule(primals, tangents) -> (out, tangent)`, linear in the tangents. Arguments
    in `nondiff_argnums` are static: the rule gets them first.
    """

    def __init__(self, f: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        super().__init__("custom_jvp", f, nondiff_argnums)

    def defjvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; usable as a decorator."""
        self.rule = rule
        return rule
