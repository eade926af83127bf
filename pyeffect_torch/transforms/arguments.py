"""What the transforms share: argnums, leaves of argument trees, results as flat arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import CO_VARARGS
from typing import Any

from pyeffect_torch.core import dtypes, late, tree
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, DTypeError, TreeError
from pyeffect_torch.ops.base import describe, is_number, operand


def argument_indices(what: str, argnums: Any, count: int) -> tuple[int, ...]:
    """Return `argnums` (an int or a sequence) as non-negative positions.

    Raises:
        ArgumentError: not ints, out of range, or one twice.
    """
    numbers = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in numbers):
        raise ArgumentError(
            f"{what}: argnums must be an int or a sequence of ints, got {argnums!r}",
            "name positional arguments by their position",
        )
    for n in numbers:
        if not -count <= n < count:
            raise ArgumentError(
                f"{what}: argnums {n} is out of range for {count} positional arguments",
                "pass that argument by position, or correct argnums",
            )
    found = tuple(n % count for n in numbers)
    if len(set(found)) != len(found):
        raise ArgumentError(f"{what}: argnums {argnums!r} names an argument twice", "name it once")
    return found


def parameter_names(f: Callable[..., Any], count: int) -> list[str]:
    """Return what `f` calls its first positional arguments; `arguments[0]` where that is unknown.

    From the code object: `inspect.signature` takes longer than a small transform.
    """
    inner: Any = f
    while hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    bound = hasattr(inner, "__self__") and hasattr(inner, "__func__")
    code = getattr(inner.__func__ if bound else inner, "__code__", None)
    if code is None:
        return [f"arguments[{index}]" for index in range(count)]
    names = list(code.co_varnames[int(bound) : code.co_argcount])
    if code.co_flags & CO_VARARGS:
        rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        names.extend(f"{rest}[{index}]" for index in range(count - len(names)))
    names.extend(f"arguments[{index}]" for index in range(len(names), count))
    return names[:count]


def argument_paths(
    f: Callable[..., Any],
    args: tree.Structure,
    kwargs: tree.Structure | None = None,
    *,
    static: Sequence[int] = (),
) -> list[str]:
    """Return each leaf of a call as `f` sees it: `params['layer3']['w']`.

    Args:
        f: the function that is called.
        args, kwargs: the structures of its dynamic arguments.
        static: positions that `args` leaves out.
    """
    count = args.num_children
    named = parameter_names(f, count + len(static))
    names = [name for index, name in enumerate(named) if index not in static]
    paths = [entries[1:].codify(names[entries[0].entry]) for entries in args.accessors()]
    if kwargs is not None:
        paths.extend(entries[1:].codify(str(entries[0].entry)) for entries in kwargs.accessors())
    return paths


def require_callable(what: str, *functions: Any) -> None:
    """Raise `ArgumentError` unless all are functions."""
    for f in functions:
        if not callable(f):
            raise ArgumentError(
                f"{what}: expected a function, got {type(f).__name__}", "pass the function itself"
            )


def flat_arrays(what: str, value: Any) -> tuple[list[Array], tree.Structure]:
    """Return the leaves of a tree as arrays, and its structure."""
    leaves, structure = tree.flatten(value)
    return [operand(what, leaf) for leaf in leaves], structure


def split_aux(what: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return `(value, aux)` of a function's result; without `has_aux`, aux is None.

    Raises:
        ArgumentError: `has_aux` is set and `result` is not a pair.
    """
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(
            f"{what}: with has_aux=True the function must return a pair (value, aux), "
            f"got {type(result).__name__}",
            "return (value, aux), or drop has_aux",
        )
    return result


def require_differentiable(
    what: str, arrays: Sequence[Array], structure: tree.Structure, root: str
) -> None:
    """Raise `DTypeError` naming the first leaf that is not floating."""
    for index, array in enumerate(arrays):
        if not dtypes.is_float(array.dtype):
            path = tree.paths(structure, root)[index]
            raise DTypeError(
                f"{what}: {path} has dtype {array.dtype.name}, which has no derivative",
                "differentiate with respect to floating arrays, or cast it first",
            )


def zeros(array: Array) -> Array:
    """Zeros of the type of `array`: the materialised zero tangent or cotangent."""
    return late.functions.zeros_like(array)


def instantiate(values: Sequence[Array | None], like: Sequence[Array]) -> list[Array]:
    """Replace missing (co)tangents by zeros of the types of `like`."""
    return [
        zeros(array) if value is None else value for value, array in zip(values, like, strict=True)
    ]


def matching(
    what: str, value: Any, structure: tree.Structure, like: Sequence[Array], role: str
) -> list[Array | None]:
    """Return the leaves of a (co)tangent tree that must match `like`; None for integer leaves.

    Raises:
        TreeError: another structure. DTypeError, ShapeError: a leaf of another type.
    """
    leaves, got = tree.flatten(value)
    if got != structure:
        raise tree.mismatch(f"{what}: {role}s", structure, got, role)
    out: list[Array | None] = []
    for index, (leaf, array) in enumerate(zip(leaves, like, strict=True)):
        if not dtypes.is_float(array.dtype):
            out.append(None)
            continue
        if is_number(leaf):
            leaf = late.functions.full_like(array, leaf) if array.shape == () else leaf
        given = operand(what, leaf)
        if given.shape != array.shape or given.dtype is not array.dtype:
            path = tree.paths(structure, role)[index]
            raise TreeError(
                f"{what}: {path} is {describe(given)}, but its value is {describe(array)}",
                f"give each {role} the shape and dtype of its value",
            )
        out.append(given)
    return out
