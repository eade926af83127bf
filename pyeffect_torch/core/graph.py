"""Walks over nodes: reaching, sorting, bodies, inlining, and what a finished derivative cuts.

Every walk collects nodes with an explicit stack and sorts them by serial, so a chain of 100,000
nodes needs no recursion. Tables are keyed by serial.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from pyeffect_torch.core import forks, scopes
from pyeffect_torch.core.array import (
    DEAD_FLAG,
    LEAF,
    LEAF_FLAG,
    PLACEHOLDER,
    PLACEHOLDER_FLAG,
    Array,
    rebuild,
)
from pyeffect_torch.core.dependence import masks_of

by_serial: Final = attrgetter("serial")
op_of: Final = attrgetter("op")  # mapped over many nodes, they are read without a loop in Python
buf_of: Final = attrgetter("buf")


def reach(
    roots: Iterable[Array],
    stop: Mapping[int, Any] | set[int],
    floor: int = 0,
    older: dict[int, Array] | None = None,
) -> list[Array]:
    """Return the nodes that `roots` depend on, by ascending serial.

    Nodes whose serial is in `stop`, or below `floor`, are neither returned nor entered; of these,
    `older` collects the second. Nothing older than a leaf can depend on it, so a walk for fresh
    leaves passes their oldest serial.
    """
    found: dict[int, Array] = {}
    stack: list[Array] = list(roots)
    pop = stack.pop
    while stack:
        node = pop()
        serial = node.serial
        if serial in found or serial in stop:
            continue
        if serial < floor:
            if older is not None:
                older[serial] = node
            continue
        found[serial] = node
        stack += node.inputs
    return in_order(found)


def in_order(nodes: Mapping[int, Array]) -> list[Array]:
    """Return nodes that are keyed by serial, ascending."""
    return list(map(nodes.__getitem__, sorted(nodes)))


class Body:
    """A closed sub-graph: `roots` as a function of `formals`.

    Any node can be a formal: walks look formals up first and never look behind them, so a captured
    outer node is itself the formal that stands for it. Nodes older than `floor` are never entered:
    it may be the serial of the oldest formal when all formals are fresh, or of the first node
    inside a trace whose captures are formals. `nodes`, if the caller has walked already, are the
    nodes between them, ascending; literals may be missing.
    """

    __slots__ = ("_deps", "_nodes", "floor", "formals", "roots")

    def __init__(
        self,
        formals: Sequence[Array],
        roots: Sequence[Array],
        floor: int = 0,
        nodes: list[Array] | None = None,
    ) -> None:
        self.formals = tuple(formals)
        self.roots = tuple(roots)
        self.floor = floor
        self._nodes = nodes
        self._deps: dict[bool, list[int]] = {}

    @property
    def nodes(self) -> list[Array]:
        """The nodes between formals and roots, ascending."""
        if self._nodes is None:
            stop = {formal.serial for formal in self.formals}
            self._nodes = reach(self.roots, stop, self.floor)
        return self._nodes

    def deps(self, differentiable: bool = False) -> list[int]:
        """Return for each root which formals it depends on, as a bit mask.

        With `differentiable`, only what a derivative passes through counts: no integers, no op
        without a derivative.
        """
        found = self._deps.get(differentiable)
        if found is None:
            masks = masks_of(self.nodes, self.formals, differentiable)
            found = self._deps[differentiable] = [masks.get(r.serial, 0) for r in self.roots]
        return found

    def inline(
        self, actuals: Sequence[Array], replaced: Mapping[int, Array] | None = None
    ) -> list[Array]:
        """Return the roots on other inputs; nodes that depend on no formal are shared.

        Nodes in `replaced`, by serial, are replaced too.
        """
        env = dict(replaced or {})
        env.update((f.serial, actual) for f, actual in zip(self.formals, actuals, strict=True))
        return substitute(self.nodes, self.roots, env)


def substitute(
    nodes: Sequence[Array], roots: Sequence[Array], env: dict[int, Array]
) -> list[Array]:
    """Rebuild those of `nodes` (ascending) whose inputs `env` replaces; return the new roots."""
    get = env.get
    for node in nodes:
        serial = node.serial
        if serial in env:
            continue
        changed = False
        inputs: list[Array] = []
        for array in node.inputs:
            replaced = get(array.serial)
            if replaced is None:
                inputs.append(array)
            else:
                inputs.append(replaced)
                changed = True
        if changed:
            env[serial] = inputs[0] if node.op is LEAF else rebuild(node, tuple(inputs))
    return [env.get(root.serial, root) for root in roots]


def placeholders_of(array: Array) -> list[Array]:
    """Return the placeholders that `array` depends on (for messages)."""
    return [node for node in reach([array], set()) if node.op is PLACEHOLDER]


class _Tokens:
    """Derivatives under way, and values whose inputs are kept only for them.

    A value read inside `grad(f)` must not cut the path to the leaf: while any token is live, a
    computed node that depends on a leaf and is newer than the oldest token keeps its inputs and
    waits, by weak reference, on `pending`.
    """

    def __init__(self) -> None:
        self.lock = forks.lock()
        self.live: dict[int, frozenset[int]] = {}
        self.threads: dict[int, int] = {}
        self.pending: list[weakref.ref[Array]] = []
        self.count = 0

    def oldest(self) -> int | None:
        """The serial of the oldest live leaf, or None."""
        if not self.live:
            return None
        with self.lock:
            return self.oldest_locked()

    def oldest_locked(self) -> int | None:
        """`oldest`, for whoever holds the lock."""
        return min((min(leaves) for leaves in self.live.values()), default=None)


TOKENS: Final = _Tokens()


def begin_derivative(leaves: Sequence[Array]) -> int:
    """Register a derivative with respect to `leaves`; return its token."""
    serials = frozenset(leaf.serial for leaf in leaves)
    with TOKENS.lock:
        TOKENS.count += 1
        token = TOKENS.count
        if serials:
            TOKENS.live[token] = serials
            TOKENS.threads[token] = threading.get_ident()
    return token


def end_derivative(token: int) -> None:
    """Finish a derivative: cut the computed nodes that no live token needs."""
    cut_now: list[Array] = []
    with TOKENS.lock:
        TOKENS.live.pop(token, None)
        TOKENS.threads.pop(token, None)
        if not TOKENS.pending:
            return
        oldest = TOKENS.oldest_locked()
        pending, TOKENS.pending = TOKENS.pending, []
        for reference in pending:
            node = reference()
            if node is None:
                continue
            if oldest is not None and node.serial >= oldest:
                TOKENS.pending.append(reference)
            else:
                cut_now.append(node)
    for node in cut_now:
        cut(node)


def _end_derivatives_of_others(thread: int) -> None:
    for token, owner in list(TOKENS.threads.items()):
        if owner != thread:
            end_derivative(token)


forks.in_child(_end_derivatives_of_others)


def store(node: Array, buf: Any) -> None:
    """Make a lazy node concrete; it drops its inputs unless a live derivative needs them."""
    node.buf = buf
    if scopes.count and node.shape is not None:
        scopes.note((node,))
    if node.flags & LEAF_FLAG and TOKENS.live:
        with TOKENS.lock:  # looked up and noted in one step: no derivative ends in between
            oldest = TOKENS.oldest_locked()
            if oldest is not None and node.serial >= oldest:
                TOKENS.pending.append(weakref.ref(node))
                return
    cut(node)


def settle(node: Array) -> None:
    """Make a projection concrete if the node that it is a result of was computed."""
    number = node.params  # before the inputs: another thread may cut the node, those first
    for bundle in node.inputs:
        if bundle.buf is not None:
            store(node, bundle.buf[number])
            node.flags |= bundle.flags & ~(DEAD_FLAG | LEAF_FLAG | PLACEHOLDER_FLAG)


ENCODING: Final = forks.reentrant_lock()
"""Held while a graph is encoded and while a node is cut.

An encoder reads the inputs and then the params of a node; one that another thread computed and cut
in between would be encoded without operands.
"""


def cut(node: Array) -> None:
    """Drop what a concrete node came from; its value is there already."""
    with ENCODING:
        node.inputs = ()
        node.flags &= ~(LEAF_FLAG | PLACEHOLDER_FLAG)
        node.params = None


def live_leaf(array: Array) -> bool:
    """Whether `array` depends on a leaf of a derivative that is under way."""
    if not array.flags & LEAF_FLAG:
        return False
    oldest = TOKENS.oldest()
    if oldest is None or array.serial < oldest:
        return False
    with TOKENS.lock:
        live = frozenset[int]().union(*TOKENS.live.values())
    return any(node.serial in live for node in reach([array], set(), oldest))
