"""`scan` and `map`: a loop over the leading axis whose body is traced once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.control.loops import is_int
from pyeffect_torch.control.scan_op import ScanRules
from pyeffect_torch.control.signature import require_same_carry
from pyeffect_torch.control.unroll import unrolled
from pyeffect_torch.core import dtypes, late, tree
from pyeffect_torch.core.array import Array, placeholder
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import Type
from pyeffect_torch.core.trace import Frame, close, placeholders, run, uses
from pyeffect_torch.ops.base import describe
from pyeffect_torch.transforms.arguments import flat_arrays, require_callable
from pyeffect_torch.transforms.effects import happened
from pyeffect_torch.transforms.regions import types_of

_f: Any = late.functions


def scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Return the last carry and the stacked results of `carry, y = f(carry, x)` over `xs`.

    Args:
        f: a pure function of pytrees; it is called once, on placeholders.
        init: the first carry, a tree; `f` returns the carry with the same tree and types.
        xs: a tree of arrays with one leading extent; step t gets `x[t]` of each. None: no xs.
        length: the number of steps; needed where `xs` has no leaves.
        reverse: go from the last x to the first; y[t] still stands at t.
        unroll: how many steps one pass of the compiled loop makes; True: all of them.

    Returns:
        `(carry, ys)`: ys is the tree of `y` with the steps in front, [length, ..].

    Raises:
        TreeError: the carry changes its tree or types. ShapeError: leading extents that differ.
        ArgumentError: no length, or `f` returns no pair.
    """
    return scan_steps("scan", f, init, xs, length, reverse, unroll)


def map_(f: Callable[[Any], Any], xs: Any) -> Any:
    """Return the stacked results of `f(x)` for each slice of `xs` along the leading axis.

    One slice after the other, in the memory of one; `vmap` computes all at once. (`et.tree.map` is
    the one over the leaves of trees.)

    Raises:
        ShapeError, ArgumentError: as `scan`.
    """
    require_callable("map", f)
    return scan_steps("map", lambda _, x: (None, f(x)), None, xs)[1]


def scan_steps(
    what: str,
    f: Callable[..., Any],
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """`scan`, for messages under another name."""
    require_callable(what, f)
    carry, carry_structure = flat_arrays(what, init)
    rows, structure = flat_arrays(what, xs)
    steps = _length(what, rows, structure, length)
    together = _unrolled(what, unroll, steps)
    types = types_of(carry)

    def call(arguments: Sequence[Array]) -> tuple[Sequence[Array], Any]:
        result = f(
            tree.unflatten(carry_structure, arguments[: len(carry)]),
            tree.unflatten(structure, arguments[len(carry) :]),
        )
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentError(
                f"{what}: the body must return a pair (carry, y), got {type(result).__name__}",
                "return (carry, None) where there is nothing to stack",
            )
        after, got = flat_arrays(what, result[0])
        require_same_carry(what, types, carry_structure, after, got)
        ys, out = flat_arrays(what, result[1])
        return [*after, *ys], out

    names = [
        *(f"{path} of {what}" for path in tree.paths(carry_structure, "carry")),
        *(f"{path} of {what}" for path in tree.paths(structure, "x")),
    ]
    slices = tuple((row.shape[1:], row.dtype) for row in rows)
    body, captures, counted, out, effects = _trace(what, call, (*types, *slices), names)
    inputs = [*captures, *carry, *rows]
    if counted:
        inputs.append(_f.counting(steps))
    rules = ScanRules(len(captures), len(carry), steps, bool(reverse))
    outs = unrolled(inputs, body, rules, 1 if effects else together)
    if effects:  # one more y, of which there is one for each step
        happened(outs[-1])
        outs = outs[:-1]
    return (
        tree.unflatten(carry_structure, outs[: len(carry)]),
        tree.unflatten(out, outs[len(carry) :]),
    )


def _trace(
    what: str, call: Any, types: Sequence[Type], names: Sequence[str]
) -> tuple[Body, Sequence[Array], bool, Any, bool]:
    """Trace a body; say whether it has a last formal for the step's number, and effects."""
    step = placeholder((), dtypes.int64, f"the step of {what}")
    arguments = placeholders(types, names)
    frame = Frame("scan", step.serial, row=step)
    roots, out = run(frame, call, arguments)
    roots = [*roots, *frame.effects]
    (body,), captures = close([roots], [*arguments, step], step.serial)
    counted = uses(body, step)
    if not counted:
        body = Body([*captures, *arguments], roots, step.serial)
    return body, captures, counted, out, bool(frame.effects)


def _length(what: str, rows: Sequence[Array], structure: tree.Structure, length: int | None) -> int:
    if length is not None:
        if not is_int(length) or not 0 <= length < 1 << 63:
            raise ArgumentError(
                f"{what}: length is {length!r}", "pass an int, 0 or more and below 2**63"
            )
        length = int(length)
    found: dict[str, int] = {} if length is None else {"length": length}
    for path, row in zip(tree.paths(structure, "xs"), rows, strict=True):
        if not row.shape:
            raise ShapeError(
                f"{what}: {path} is {describe(row)}, which has no leading axis to go along",
                "close over what is the same in every step, or stack the steps into one array",
            )
        found[path] = row.shape[0]
    if not found:
        raise ArgumentError(f"{what}: neither xs nor length is given", "pass length=...")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{name}: {extent}" for name, extent in found.items())
        raise ShapeError(
            f"{what}: the leading extents differ ({listed})",
            "give all xs one leading extent, which is the number of steps",
        )
    return next(iter(found.values()))


def _unrolled(what: str, unroll: int | bool, steps: int) -> int:
    """How many steps one pass makes."""
    if unroll is True:
        return max(steps, 1)
    if not is_int(unroll) or unroll < 1:
        raise ArgumentError(f"{what}: unroll is {unroll!r}", "pass an int, 1 or more, or True")
    return min(int(unroll), max(steps, 1))
