"""Why a compiled function was traced again: how two signatures differ, by path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from pyeffect_torch.api.constants import Constant
from pyeffect_torch.transforms.arguments import argument_paths, parameter_names

_SHOWN_MAX: Final = 4


def signature_paths(f: Callable[..., Any], key: tuple[Any, ...]) -> list[str]:
    """How the dynamic leaves of a signature (`signatures.key_of`) are written: `params['w']`."""
    _, structure, has_kwargs, statics = key[:4]
    args, kwargs = structure.children() if has_kwargs else (structure, None)
    static = [name for name, _, _ in statics if isinstance(name, int)]
    return argument_paths(f, args, kwargs, static=static)


def difference(f: Callable[..., Any], key: tuple[Any, ...], last: tuple[Any, ...] | None) -> str:
    """Say how a signature differs from the one that was used before it.

    It names the runtime, the static value, what is new or missing in the tree, or the leaves whose
    shape or dtype changed.
    """
    if last is None:
        return "the first call"
    if key[0] != last[0]:
        return "another runtime"
    found = [*_statics(f, key[3], last[3])]
    if key[1] != last[1] or key[2] != last[2]:
        found.extend(_trees(f, key, last))
    else:
        found.extend(_leaves(f, key, last))
    if not found:
        return "the trace was not cached"
    more = len(found) - _SHOWN_MAX
    return "; ".join(found[:_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")


def _statics(f: Callable[..., Any], new: Any, old: Any) -> Iterator[str]:
    before = {name: value for name, _, value in old}
    names = parameter_names(f, 1 + max((n for n, _, _ in new if isinstance(n, int)), default=-1))
    for name, kind, value in new:
        shown = names[name] if isinstance(name, int) else name
        if name not in before:
            yield f"{shown}: static value {value!r} is new"
        elif isinstance(value, Constant) and before[name] != value:
            yield f"{shown}: another constant"
        elif type(before[name]) is not kind or before[name] != value:
            yield f"{shown}: static value {value!r} instead of {before[name]!r}"
    for name in before.keys() - {name for name, _, _ in new}:
        yield f"static argument {name!r} is gone"


def _trees(f: Callable[..., Any], key: tuple[Any, ...], last: tuple[Any, ...]) -> Iterator[str]:
    new, old = signature_paths(f, key), signature_paths(f, last)
    for path in sorted(set(new) - set(old)):
        yield f"tree: {path} is new"
    for path in sorted(set(old) - set(new)):
        yield f"tree: {path} is gone"
    if new == old:  # a tuple for a list, an ordered dict, static fields of a dataclass
        yield f"tree: {key[1]} instead of {last[1]}"


def _leaves(f: Callable[..., Any], key: tuple[Any, ...], last: tuple[Any, ...]) -> Iterator[str]:
    paths = signature_paths(f, key)
    rows = zip(paths, key[4::2], key[5::2], last[4::2], last[5::2], strict=True)
    for path, shape, dtype, old_shape, old_dtype in rows:
        if shape != old_shape:
            yield f"{path}: shape {list(shape)} instead of {list(old_shape)}"
        if dtype is not old_dtype:
            yield f"{path}: dtype {dtype.name} instead of {old_dtype.name}"
