"""Frames of traces and transforms, and how a function is traced into a body.

*Inside* a trace is what was created during it (`serial >= first`); an older node that an inside
node uses is a *capture*. Dependency alone would be the wrong rule: a branch that only closes over
values depends on no placeholder and would always run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyeffect_torch.core import dtypes, source
from pyeffect_torch.core.array import (
    LITERAL,
    OUT,
    PLACEHOLDER,
    PLACEHOLDER_FLAG,
    START,
    ArgumentName,
    Array,
    make,
    placeholder,
)
from pyeffect_torch.core.collector import collector_paused
from pyeffect_torch.core.errors import TraceError
from pyeffect_torch.core.graph import Body, buf_of, in_order, op_of, reach, settle
from pyeffect_torch.core.op import Type


@dataclass(slots=True, eq=False)
class Frame:
    """One trace or transform under way on this thread.

    Attributes:
        kind: "jit", "vmap", "checkpoint", "custom_vjp", ...
        first: the serial from which on nodes are inside.
        key: jit: the hidden placeholder that implicit randomness starts from.
        row: vmap: the hidden batched row index, int64 [].
        draws: how many implicit draws were made in this frame.
        name, size: vmap: the name of its axis, or None, and the number of rows.
        token, before: the last token of the effects in this frame, and the one it began with
            (`transforms/effects.py`).
    """

    kind: str
    first: int
    key: Array | None = None
    row: Array | None = None
    draws: int = 0
    name: Any = None
    size: int = 0
    token: Array | None = None
    before: Array | None = None

    @property
    def effects(self) -> tuple[Array, ...]:
        """The last token, if there was an effect."""
        return () if self.token is None or self.token is self.before else (self.token,)


class _Frames(threading.local):
    def __init__(self) -> None:
        self.stack: list[Frame] = []


_frames = _Frames()


def frames() -> list[Frame]:
    """The frames of this thread, outermost first."""
    return _frames.stack


def push(frame: Frame) -> None:
    """Enter a frame; its effects follow those of the frame around it, unless it begins anew."""
    stack = _frames.stack
    if frame.before is None and stack:
        frame.before = stack[-1].token
    frame.token = frame.before
    stack.append(frame)


def pop(frame: Frame) -> None:
    """Leave a frame, which must be the innermost."""
    last = _frames.stack.pop()
    assert last is frame


@dataclass(slots=True, eq=False)
class Trace:
    """What tracing a function gave.

    Attributes:
        body: formals are `captures + arguments` (with the hidden key first among the arguments
            when one was asked for); roots are the flat results.
        captures: older nodes that inside nodes use, in order of first creation, and arrays that
            were made concrete inside.
        arguments: the placeholders, with the hidden key first when one was asked for.
        out: whatever the function returned beside the flat roots (its tree).
        visible: how many roots the function returned; the last token of its effects follows.
        start: with a hidden key: what stands before the first effect.
    """

    body: Body
    captures: tuple[Array, ...]
    arguments: tuple[Array, ...]
    out: Any
    visible: int
    start: Array | None

    @property
    def roots(self) -> tuple[Array, ...]:
        """What the function returned."""
        return self.body.roots[: self.visible]

    @property
    def effects(self) -> tuple[Array, ...]:
        """The last token of its effects, if there are any."""
        return self.body.roots[self.visible :]

    def uses_key(self) -> bool:
        """Whether the hidden key, the first argument of a trace `with_key`, is used."""
        return uses(self.body, self.arguments[0])


Call = Callable[[Sequence[Array]], tuple[Sequence[Array], Any]]
"""A function to trace: from placeholders to flat arrays and their tree."""


def trace(
    kind: str,
    call: Call,
    types: Sequence[Type],
    names: Sequence[str | ArgumentName],
    *,
    with_key: bool = False,
) -> Trace:
    """Trace `call(placeholders) -> (flat arrays, tree)` into a body with explicit captures.

    Args:
        kind: the frame's kind.
        types, names: of the arguments; the names appear in errors.
        with_key: prepend a hidden uint32 [2] key argument for implicit randomness, and begin a
            new order of effects: a function that may be inlined anywhere.
    """
    key = placeholder((2,), dtypes.uint32, f"the random key of {kind}") if with_key else None
    arguments = placeholders(types, names)
    formals = arguments if key is None else [key, *arguments]
    marker = formals[0] if formals else placeholder((), dtypes.bool_, kind)
    start = make(START, (), None, (), dtypes.bool_, PLACEHOLDER_FLAG) if with_key else None
    frame = Frame(kind, marker.serial, key=key, before=start)
    roots, out = run(frame, call, arguments)
    bodies, captures = close([[*roots, *frame.effects]], formals, marker.serial)
    return Trace(bodies[0], captures, tuple(formals), out, len(roots), start)


def placeholders(types: Sequence[Type], names: Sequence[str | ArgumentName]) -> list[Array]:
    """Return a placeholder for each argument of a trace."""
    return [
        placeholder(shape, dtype, name) for (shape, dtype), name in zip(types, names, strict=True)
    ]


def run(frame: Frame, call: Call, arguments: Sequence[Array]) -> tuple[Sequence[Array], Any]:
    """Call a function on placeholders inside a frame."""
    push(frame)
    try:
        with collector_paused():
            return call(arguments)
    finally:
        pop(frame)


def close(
    results: Sequence[Sequence[Array]], formals: Sequence[Array], first: int
) -> tuple[list[Body], tuple[Array, ...]]:
    """Return a body for each list of roots, and the captures of all, their first formals.

    Args:
        results: the roots of functions that were traced on the same placeholders.
        formals: these placeholders.
        first: the serial from which on nodes are inside.
    """
    stop = {formal.serial for formal in formals}
    older: dict[int, Array] = {}
    walks = [reach(roots, stop, first, older) for roots in results]
    captures = captures_of(older, walks)
    computed = {array.serial for array in captures if array.serial >= first}
    if computed:  # which may have inputs yet
        walks = [reach(roots, stop | computed, first) for roots in results]
    bodies = [
        Body([*captures, *formals], roots, first, nodes)
        for roots, nodes in zip(results, walks, strict=True)
    ]
    for body in bodies:
        check_leaks(body)
    return bodies, tuple(captures)


def uses(body: Body, formal: Array) -> bool:
    """Whether a node or a root of `body` is, or reads, `formal` itself."""
    used = (array for node in body.nodes for array in node.inputs)
    return any(array.serial == formal.serial for array in (*body.roots, *used))


def captures_of(older: Mapping[int, Array], walks: Sequence[Sequence[Array]]) -> list[Array]:
    """Return the arrays that bodies use and that stand for themselves, by serial.

    They are the `older` ones, and those of the nodes inside that were made concrete: a nested
    program holds no arrays. 0-d literals are embedded, never captured.
    """
    found = {serial: array for serial, array in older.items() if array.op is not LITERAL}
    for nodes in walks:
        for node in nodes:
            if node.op is OUT:
                settle(node)
        for node in filter(buf_of, nodes):
            if node.op is not LITERAL and node.shape is not None:
                found[node.serial] = node
    return in_order(found)


def check_leaks(body: Body) -> None:
    """Raise `TraceError` if a placeholder of another, finished trace is used inside a body."""
    if PLACEHOLDER in map(op_of, body.nodes):
        raise leak_error(next(node for node in body.nodes if node.op is PLACEHOLDER))


def leak_error(node: Array) -> TraceError:
    """The error for a placeholder met outside its trace."""
    return TraceError(
        f"{node.params} leaked out of its trace, where it was made at "
        f"{source.describe(node.src) or 'an unknown place'}",
        "return the value from the traced function instead of storing it elsewhere",
    )


def read_error(array: Array, cause: Array | None) -> TraceError:
    """The error for reading the value of something that depends on a placeholder."""
    because = f" it depends on {cause.params}" if cause is not None else ""
    made = source.describe(array.src)
    return TraceError(
        f"an array of shape {list(array.shape)} and dtype {array.dtype.name} has no value while it "
        f"is traced:{because}" + (f"; it was made at {made}" if made else ""),
        "select with et.where, pass it as a static argument, "
        "or move the read out of the traced function",
    )
