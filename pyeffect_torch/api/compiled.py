"""What `jit` returns: a function traced once per signature; later calls only execute.

Inside another trace, or on values under differentiation, the cached trace is inlined into the
surrounding graph instead: a nested jit is neither a call nor a second run of the Python function.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.api.constants import Constant
from pyeffect_torch.api.donation import claim, concrete_buffers, donated_leaves
from pyeffect_torch.api.lowered import Lowered
from pyeffect_torch.api.retrace import difference, signature_paths
from pyeffect_torch.api.signatures import (
    Entry,
    Last,
    Stats,
    call_with_statics,
    key_of,
    split_statics,
)
from pyeffect_torch.core import forks, late, source, tree
from pyeffect_torch.core.array import (
    DEAD_FLAG,
    LEAF_FLAG,
    LITERAL,
    PLACEHOLDER_FLAG,
    RUNTIME_SHIFT,
    ArgumentName,
    Array,
    Deleted,
    deleted_error,
    from_buffers,
)
from pyeffect_torch.core.errors import ForeignHandleError, TraceError
from pyeffect_torch.core.flattener import compile_flattener
from pyeffect_torch.core.graph import live_leaf, placeholders_of
from pyeffect_torch.core.printer import IR
from pyeffect_torch.core.trace import frames, leak_error, trace
from pyeffect_torch.ops.base import operand
from pyeffect_torch.runtime import finite
from pyeffect_torch.runtime.base import REGISTERED, Executable, Runtime
from pyeffect_torch.runtime.compute import compute_arrays
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.runtime.registry import current
from pyeffect_torch.runtime.wire import Program
from pyeffect_torch.transforms.effects import before_effects, visible

_log = logging.getLogger("pyeffect_torch.jit")


class Compiled:
    """A compiled function; see `jit`."""

    def __init__(
        self,
        f: Callable[..., Any],
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        donate_argnums: tuple[int, ...],
        constants: frozenset[int | str],
        cache_capacity: int,
        optimize: bool,
    ) -> None:
        self.f = f
        self.name = getattr(f, "__name__", "f")
        self.static_argnums = static_argnums
        self.static_argnames = static_argnames
        self.donate_argnums = donate_argnums
        self.constants = constants  # among the static ones
        self.cache_capacity = cache_capacity
        self.optimize = optimize
        self._cache: OrderedDict[Any, Entry] = OrderedDict()
        self._lock = forks.lock()
        self._tracing: dict[Any, tuple[int, int, threading.Event]] = {}
        self._stats = Stats()
        self._reason = "it has not been called yet"
        self._last: Last | None = None
        functools.update_wrapper(self, f, updated=())  # attributes of f are not ours

    # --- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `f`; trace and compile first if the signature is new."""
        # The hot path: the signature of the last call again, on concrete arrays of one runtime.
        last = self._last
        if last is not None and not kwargs:
            leaves = last.flatten(args)
            if leaves is not None and last.matches(leaves):
                self._stats.hits += 1
                return self._execute(last.entry, leaves, last.runtime, args)
        key, entry, leaves, runtime, dynamic, flags = self._resolve(args, kwargs)
        if flags & PLACEHOLDER_FLAG or entry.live or (flags & LEAF_FLAG and _any_live(leaves)):
            return self._inline(entry, leaves)
        if not (flags & LEAF_FLAG or self.static_argnums or self.static_argnames or kwargs):
            self._remember(key, entry, leaves, runtime, args, flags)
        return self._execute(entry, leaves, runtime, dynamic)

    def _remember(
        self,
        key: Any,
        entry: Entry,
        leaves: list[Array],
        runtime: Runtime,
        args: tuple[Any, ...],
        flags: int,
    ) -> None:
        """Let the next call of this signature take the hot path."""
        last = self._last
        if flags != runtime.flags or (last is not None and last.entry is entry):
            return
        if entry.flatten is None:
            entry.flatten = compile_flattener(tree.structure(args)) or (lambda args: None)
        self._last = Last(
            key,
            entry,
            entry.flatten,
            flags,
            [leaf.shape for leaf in leaves],
            [leaf.dtype for leaf in leaves],
            runtime,
        )

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Return the traced program of these arguments, to print, compile and explain."""
        _, entry, _, runtime, dynamic, _ = self._resolve(args, kwargs)
        ir = IR(self.name, entry.traced.body, ())

        def prepare() -> tuple[Executable, Program]:
            executable = entry.executable or self._prepare(entry, runtime, dynamic)
            assert entry.program is not None
            return executable, entry.program

        return Lowered(ir, prepare)

    def _resolve(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Entry, list[Array], Runtime, Any, int]:
        """Find or trace the signature of a call."""
        statics: Any = ()
        dynamic: Any = args
        if self.static_argnums or self.static_argnames:
            dynamic, kwargs, statics = split_statics(
                self.name, self.static_argnums, self.static_argnames, args, kwargs, self.constants
            )
        leaves, structure = tree.flatten((dynamic, kwargs) if kwargs else dynamic)
        flags = 0
        for _, _, value in statics:
            if isinstance(value, Constant):
                flags |= value.placement
        types: list[Any] = []
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, Array):
                leaf = leaves[index] = operand(f"jit({self.name})", leaf)
            flags |= leaf.flags
            types.append(leaf.shape)
            types.append(leaf.dtype)
        if flags & DEAD_FLAG:
            raise deleted_error(next(a for a in leaves if a.flags & DEAD_FLAG), self.name)
        mask = flags >> RUNTIME_SHIFT
        if mask & (mask - 1):
            raise ForeignHandleError(
                f"jit({self.name}): the arguments live on different runtimes",
                "move one of them with x.to(runtime)",
                operation=self.name,
                phase="build",
            )
        runtime = REGISTERED[mask] if mask else current()
        key = key_of(runtime, structure, bool(kwargs), statics, types)
        entry = self._touch(key)
        if entry is None:
            entry = self._miss(key, leaves, structure, bool(kwargs), statics)
        else:
            self._stats.hits += 1
        return key, entry, leaves, runtime, dynamic, flags

    def _touch(self, key: Any) -> Entry | None:
        """Return the entry of a signature, which becomes the most recently used."""
        with self._lock:
            entry = self._cache.get(key)
            if entry is not None:
                self._cache.move_to_end(key)
            return entry

    # --- tracing

    def _miss(
        self,
        key: Any,
        leaves: list[Array],
        structure: tree.Structure,
        has_kwargs: bool,
        statics: Any,
    ) -> Entry:
        """Trace, once for all threads that ask for the signature at the same time."""
        while True:
            with self._lock:
                entry = self._cache.get(key)
                if entry is not None:  # another thread has traced it meanwhile
                    self._stats.hits += 1
                    return entry
                under_way = self._tracing.get(key)
                thread, process = threading.get_ident(), os.getpid()
                # In a forked child the thread that began before the fork never ends.
                if under_way is None or (under_way[0] != thread and under_way[1] != process):
                    event = threading.Event()
                    self._tracing[key] = (thread, process, event)
                    break
            if under_way[0] == thread:
                raise TraceError(
                    f"jit({self.name}): it calls itself with the signature that is being traced",
                    "recurse on the plain function, with a static argument that ends it",
                )
            under_way[2].wait()
        try:
            entry, cacheable = self._trace(key, leaves, structure, has_kwargs, statics)
            if cacheable:
                self._store(key, entry)
            return entry
        finally:
            with self._lock:
                del self._tracing[key]
            event.set()

    def _trace(
        self,
        key: Any,
        leaves: list[Array],
        structure: tree.Structure,
        has_kwargs: bool,
        statics: Any,
    ) -> tuple[Entry, bool]:
        started = time.perf_counter()
        self._stats.traces += 1
        out_structure: list[tree.Structure] = []

        def call(arguments: Sequence[Array]) -> tuple[Sequence[Array], Any]:
            value = tree.unflatten(structure, arguments)
            dynamic, kwargs = value if has_kwargs else (value, {})
            result = call_with_statics(self.f, statics, dynamic, kwargs)
            flat, spec = tree.flatten(result)
            out_structure.append(spec)
            return [operand(f"result of jit({self.name})", leaf) for leaf in flat], spec

        paths = functools.cache(functools.partial(signature_paths, self.f, key))
        traced = trace(
            f"jit({self.name})",
            call,
            [(leaf.shape, leaf.dtype) for leaf in leaves],
            [
                # Only numbers are literals: users hold no other ones.
                ArgumentName(paths, index, f"jit({self.name})", leaf.op is LITERAL)
                for index, leaf in enumerate(leaves)
            ],
            with_key=True,
        )
        captured = traced.captures
        placeholders = [a for a in captured if a.flags & PLACEHOLDER_FLAG]
        if placeholders and not frames():
            raise leak_error(placeholders_of(placeholders[0])[0])
        live = bool(placeholders) or any(live_leaf(a) for a in captured)
        entry = Entry(traced, out_structure[0], traced.uses_key(), live)
        self._stats.trace_seconds += time.perf_counter() - started
        return entry, not live

    def _store(self, key: Any, entry: Entry) -> None:
        evictions = 0
        with self._lock:
            last = self._last
            if last is not None and last.key in self._cache:
                self._cache.move_to_end(last.key)  # hits of the hot path do not move it
            before = next(reversed(self._cache), None)
            self._cache[key] = entry
            while len(self._cache) > self.cache_capacity:
                dropped, _ = self._cache.popitem(last=False)
                if last is not None and last.key == dropped:
                    self._last = None
                evictions += 1
            is_first = evictions > 0 and self._stats.evictions == 0
            self._stats.evictions += evictions
        # Outside the lock: a handler of the log, or `==` of a static value, may call us.
        self._reason = reason = difference(self.f, key, before)
        _log.debug("jit(%s) traced: %s", self.name, reason)
        if is_first:
            _log.warning(
                "jit(%s): more than %d signatures; the least recently used is dropped (%s)",
                self.name,
                self.cache_capacity,
                reason,
            )

    def explain_retrace(self) -> str:
        """Return why the last trace happened: which leaf, tree or static value changed, by path.

        The same text goes to the log `pyeffect_torch.jit` at DEBUG.
        """
        return self._reason

    # --- inlining and execution

    def _inline(self, entry: Entry, leaves: Sequence[Array]) -> Any:
        body = entry.traced.body  # donation has no meaning here: the outermost call decides
        traced = entry.traced
        key = late.functions.implicit_key() if entry.uses_key else traced.arguments[0]
        roots = body.inline([*traced.captures, key, *leaves], before_effects(traced))
        return tree.unflatten(entry.structure, visible(traced, roots))

    def _prepare(self, entry: Entry, runtime: Runtime, dynamic: Sequence[Any]) -> Executable:
        """Encode and compile on the first execution of a signature."""
        with entry.lock:
            if entry.executable is not None:
                return entry.executable
            started = time.perf_counter()
            captures = [a for a in entry.traced.captures if a.buf is None]
            if captures:
                compute_arrays(captures)
            arguments = entry.traced.arguments  # the hidden key first
            formals = arguments if entry.uses_key else arguments[1:]
            program = encode(
                entry.traced.roots,
                formals,
                runtime.has,
                donated=donated_leaves(
                    self.name,
                    dynamic,
                    self.donate_argnums,
                    self.static_argnums,
                    int(entry.uses_key),
                ),
                key=0 if entry.uses_key else None,
                nodes=entry.traced.body.nodes,
                effects=entry.traced.effects,
                checks=entry.checks,
            )
            encoded = time.perf_counter()
            optimize = self.optimize and entry.checks is None
            executable = runtime.executable(program, optimize)
            if program.captured:
                executable = executable.bind(
                    [array.buf for array in program.captured], program.formal_count
                )
            self._stats.encode_seconds += encoded - started
            self._stats.compile_seconds += time.perf_counter() - encoded
            entry.program, entry.executable = program, executable
            return executable

    def _execute(
        self, entry: Entry, leaves: list[Array], runtime: Runtime, dynamic: Sequence[Any]
    ) -> Any:
        checks = finite.current()
        if checks is not None:
            entry = entry.looking_for(checks)
        executable = entry.executable or self._prepare(entry, runtime, dynamic)
        program = entry.program
        assert program is not None
        inputs = [leaf.buf for leaf in leaves]
        if None in inputs:
            inputs = concrete_buffers(self.name, leaves, runtime)
        if entry.uses_key:
            inputs.insert(0, runtime.upload(late.functions.fresh_key_bits()))
        donated: list[Array] = []
        if self.donate_argnums:
            numbered = donated_leaves(self.name, dynamic, self.donate_argnums, self.static_argnums)
            donated = claim(self.name, [leaves[index] for index in numbered])
        outputs = executable.run(inputs, program)
        if donated:
            gone = Deleted(f"donated to jit({self.name})", source.capture_user())
            for array in donated:
                array.buf = gone
                array.flags |= DEAD_FLAG
        return entry.structure.unflatten(from_buffers(outputs, program.outputs, runtime.flags))

    # --- inspection

    @property
    def stats(self) -> Stats:
        """Counters, as of now."""
        self._stats.programs = len(self._cache)
        self._stats.bytes = sum(
            entry.executable.nbytes for entry in self._cache.values() if entry.executable
        )
        return self._stats

    def clear(self) -> None:
        """Drop the cached programs; the counts stay."""
        with self._lock:
            self._cache.clear()
            self._last = None


def _any_live(leaves: Sequence[Array]) -> bool:
    return any(leaf.flags & LEAF_FLAG and live_leaf(leaf) for leaf in leaves)
