"""What `jit` remembers of a signature, how it compares signatures, and its counters."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyeffect_torch.api.constants import Constant
from pyeffect_torch.core import forks, tree
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.core.flattener import Flattener
from pyeffect_torch.core.trace import Trace
from pyeffect_torch.runtime.base import Executable, Runtime
from pyeffect_torch.runtime.finite import Mode
from pyeffect_torch.runtime.wire import Program

_EITHER: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(slots=True, eq=False)
class Entry:
    """One signature: its trace and, once it was executed, its executable."""

    traced: Trace
    structure: tree.Structure
    uses_key: bool
    live: bool
    program: Program | None = None
    executable: Executable | None = None
    flatten: Flattener | None = None
    lock: threading.Lock = field(default_factory=forks.lock)
    checks: Mode | None = None
    checked: dict[Mode, Entry] = field(default_factory=dict)

    def looking_for(self, checks: Mode) -> Entry:
        """Return the same trace, to be compiled with checks."""
        with self.lock:
            found = self.checked.get(checks)
            if found is None:
                found = Entry(self.traced, self.structure, self.uses_key, self.live, checks=checks)
                self.checked[checks] = found
            return found


@dataclass(slots=True, eq=False)
class Last:
    """What the hot path compares a call with."""

    key: Any
    entry: Entry
    flatten: Flattener
    flags: int
    shapes: list[Any]
    dtypes: list[Any]
    runtime: Runtime

    def matches(self, leaves: list[Any]) -> bool:
        """Whether a call with these leaves, which may be anything, has this signature."""
        flags = 0
        try:
            for leaf in leaves:
                flags |= leaf.flags
            return (
                flags == self.flags
                and [leaf.shape for leaf in leaves] == self.shapes
                and [leaf.dtype for leaf in leaves] == self.dtypes
            )
        except (AttributeError, TypeError):
            return False  # not all are our arrays: the general path converts or refuses them


@dataclass(slots=True)
class Stats:
    """Counters of a compiled function.

    Attributes:
        programs: signatures in the cache. traces: Python runs of the function. hits: calls served
            without a trace. evictions: signatures dropped. bytes: memory of the executables.
        trace_seconds, encode_seconds, compile_seconds: time spent so far.
    """

    programs: int = 0
    traces: int = 0
    hits: int = 0
    evictions: int = 0
    bytes: int = 0
    trace_seconds: float = 0.0
    encode_seconds: float = 0.0
    compile_seconds: float = 0.0


def key_of(
    runtime: Runtime, structure: tree.Structure, has_kwargs: bool, statics: Any, types: list[Any]
) -> tuple[Any, ...]:
    """The signature of a call; `types` alternates shapes and dtypes."""
    return (runtime.mask, structure, has_kwargs, statics, *types)


def split_statics(
    name_of_function: str,
    argnums: tuple[int, ...],
    argnames: tuple[str, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    constants: frozenset[int | str] = frozenset(),
) -> tuple[Any, Any, Any]:
    """Separate static arguments, which must be hashable, from dynamic ones.

    Those of them that `constants` names, by position or keyword, are wrapped as `Constant`.
    """
    if constants:
        what = f"jit({name_of_function})"
        chosen = {n % len(args) for n in constants if isinstance(n, int) and args}
        args = tuple(Constant(what, a) if n in chosen else a for n, a in enumerate(args))
        kwargs = {k: Constant(what, v) if k in constants else v for k, v in kwargs.items()}
    numbers = {n % len(args) for n in argnums if -len(args) <= n < len(args)}
    static_args = tuple((n, args[n]) for n in sorted(numbers))
    static_kwargs = tuple((k, kwargs[k]) for k in argnames if k in kwargs)
    for name, value in (*static_args, *static_kwargs):
        try:
            hash(value)
        except TypeError:
            raise ArgumentError(
                f"jit({name_of_function}): static argument {name!r} of type {type(value).__name__} "
                "is not hashable",
                "pass a hashable value (a tuple instead of a list), or make it dynamic",
            ) from None
    # bool, int and float that compare equal are different values of a static argument.
    typed = tuple((name, type(value), value) for name, value in (*static_args, *static_kwargs))
    dynamic = tuple(arg for index, arg in enumerate(args) if index not in numbers)
    rest = {k: v for k, v in kwargs.items() if k not in argnames}
    return dynamic, rest, typed


def call_with_statics(
    f: Callable[..., Any], statics: Any, dynamic: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Call `f` with the arguments that `split_statics` separated."""
    if not statics:
        return f(*dynamic, **kwargs)
    plain = {n: v.value if isinstance(v, Constant) else v for n, _, v in statics}
    by_position = {name: value for name, value in plain.items() if isinstance(name, int)}
    named = {name: value for name, value in plain.items() if isinstance(name, str)}
    rest = iter(dynamic)
    count = len(by_position) + len(dynamic)
    args = [by_position[i] if i in by_position else next(rest) for i in range(count)]
    return f(*args, **named, **kwargs)


def numbers(what: str, value: Any) -> tuple[int, ...]:
    """Return an argument of `jit` that lists positions as a tuple of ints."""
    found = value if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in found):
        raise ArgumentError(f"jit: {what} must be ints, got {value!r}", "pass positions")
    return tuple(found)


def capacity(value: Any) -> int:
    """Return the `cache_capacity` of `jit`, which is 1 or more."""
    if not isinstance(value, int) or value < 1:
        raise ArgumentError(f"jit: cache_capacity is {value!r}", "keep one signature at least")
    return value


def static_parameters(
    f: Callable[..., Any], argnums: Any, argnames: Any, what: str = "static_argnums"
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return positions and names of static parameters, each completed by the other.

    So a parameter is static whether it is passed by position or by keyword. Without a signature
    (some builtins) they stay as they are.

    Raises:
        ArgumentError: a position or a name that `f` does not have.
    """
    given = numbers(what, argnums)
    names = [argnames] if isinstance(argnames, str) else list(argnames)
    if not given and not names:
        return (), ()
    try:
        parameters = inspect.signature(f).parameters
    except (TypeError, ValueError):
        return given, tuple(names)
    kinds = {parameter.kind for parameter in parameters.values()}
    open_names = inspect.Parameter.VAR_KEYWORD in kinds
    placed = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, _EITHER)]
    label = getattr(f, "__name__", "f")
    found: list[int] = []
    for number in given:
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            if not -len(placed) <= number < len(placed):
                raise ArgumentError(
                    f"jit({label}): {what} {number} is out of range for its {len(placed)} "
                    "positional parameters",
                    "correct the position",
                )
            number %= len(placed)
        found.append(number)
        if 0 <= number < len(placed) and parameters[placed[number]].kind is _EITHER:
            names.append(placed[number])
    for name in names:
        if name not in parameters and not open_names:
            raise ArgumentError(
                f"jit({label}): static_argnames {name!r} is no parameter",
                f"use one of {list(parameters)}",
            )
        if name in placed:
            found.append(placed.index(name))
    return tuple(dict.fromkeys(found)), tuple(dict.fromkeys(names))
