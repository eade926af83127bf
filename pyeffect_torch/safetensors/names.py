"""Trees and dotted names.

A leaf's name is the way to it, joined by dots: the key of a dict (a string, or an int in decimal),
the index in a list or tuple, the field of a namedtuple or dataclass. `{"block": [{"w": x}]}` has
the name `block.0.w`, and so has `{"block.0.w": x}`: keys may hold dots. None has no name.
Back from names, each dot is a level; a level whose keys are exactly 0, 1, ..., n-1 is a list, any
other one a dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optree

from pyeffect_torch.core import tree
from pyeffect_torch.core.errors import ArgumentError, TreeError

RESERVED = "__metadata__"
"""The header's key for strings about the file; no tensor may have this name."""


def flatten(value: Any) -> dict[str, Any]:
    """Return the leaves of a tree by dotted name.

    Raises:
        ArgumentError: a bare leaf, a key that is no name, a reserved name, or one name twice.
    """
    leaves, structure = tree.flatten(value)
    paths = tree.paths(structure, "tree")
    named: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for leaf, path, accessor in zip(leaves, paths, structure.accessors(), strict=True):
        name = ".".join(_segment(path, entry) for entry in accessor)
        if not accessor or name == RESERVED:
            found = f"the reserved name {name}" if name else "no name"
            raise ArgumentError(
                f"safetensors.save: {path} has {found}",
                "put it into a dict, under a name of its own",
            )
        if name in named:
            raise ArgumentError(
                f"safetensors.save: {origins[name]} and {path} both have the name {name!r}",
                "rename one of them",
            )
        named[name], origins[name] = leaf, path
    return named


def _segment(path: str, entry: optree.PyTreeEntry) -> str:
    key = entry.field if isinstance(entry, optree.NamedTupleEntry) else entry.entry
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if not isinstance(key, str) or not key:
        raise ArgumentError(
            f"safetensors.save: the key {key!r} in {path} is no name",
            "use ints and strings that are not empty as keys",
        )
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ArgumentError(
            f"safetensors.save: the key {key!r} in {path} is not Unicode text", "rename it"
        ) from None
    return key


def nest(named: Mapping[str, Any]) -> Any:
    """Return the tree of dicts and lists that dotted names stand for.

    Raises:
        TreeError: a name goes on behind the name of a leaf (`a` and `a.b`).
    """
    root = _Level()
    made: list[tuple[_Level, str, _Level]] = []  # parents before children
    for name, value in named.items():
        *way, last = name.split(".")
        at = root
        for key in way:
            below = at.get(key)
            if below is None:
                below = at[key] = _Level()
                made.append((at, key, below))
            elif not isinstance(below, _Level):
                raise _clash(name)
            at = below
        if last in at:
            raise _clash(name)
        at[last] = value
    for parent, key, level in reversed(made):
        parent[key] = _finished(level)
    return _finished(root)


class _Level(dict[str, Any]):
    """A level under construction; a leaf may be a dict of another kind."""


def _clash(name: str) -> TreeError:
    return TreeError(
        f"safetensors: the name {name!r} is a leaf as well as a level of the tree",
        "use the flat names instead",
    )


def _finished(level: _Level) -> Any:
    count = len(level)
    if count and all(str(index) in level for index in range(count)):
        return [level[str(index)] for index in range(count)]
    return dict(level)
