"""Pytrees, by optree: dicts, lists, tuples, namedtuples, registered dataclasses; None is empty.

The public name of this module is `pyeffect_torch.tree`.
"""

from __future__ import annotations

import _thread
import atexit
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any, Final, TypeVar, cast

import optree

from pyeffect_torch.core import source
from pyeffect_torch.core.errors import TreeError

NAMESPACE: Final = "pyeffect_torch"
Structure = optree.PyTreeSpec
_T = TypeVar("_T")

# Typed for collections only; any class may be a node.
_register: Final = cast("Callable[..., Any]", optree.register_pytree_node)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of `tree`, depth first with dict keys sorted, and its structure."""
    return optree.tree_flatten(tree, namespace=NAMESPACE)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """Return the tree with that structure and those leaves."""
    return optree.tree_unflatten(structure, leaves)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of `tree`."""
    return optree.tree_leaves(tree, namespace=NAMESPACE)


def structure(tree: Any) -> Structure:
    """Return the structure of `tree`; structures compare with `==`."""
    return optree.tree_structure(tree, namespace=NAMESPACE)


def map(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Return a tree of `function(leaf, *rest_leaves)`.

    Raises:
        TreeError: the trees do not have one structure; prints both.
    """
    flat, spec = flatten(tree)
    others: list[list[Any]] = []
    for other in rest:
        other_flat, other_spec = flatten(other)
        if other_spec != spec:
            raise mismatch("tree.map", spec, other_spec)
        others.append(other_flat)
    return unflatten(spec, [function(*row) for row in zip(flat, *others, strict=True)])


def map_with_path(function: Callable[[str, Any], Any], tree: Any) -> Any:
    """Return a tree of `function(path, leaf)`; a path reads `['layer3']['w']`."""
    flat, spec = flatten(tree)
    return unflatten(spec, [function(p, leaf) for p, leaf in zip(paths(spec), flat, strict=True)])


def paths(spec: Structure, root: str = "") -> list[str]:
    """Return how to write each leaf, in order: `params['layer3']['w']`."""
    return [accessor.codify(root) for accessor in spec.accessors()]


def register_dataclass(
    cls: type[_T] | None = None,
    *,
    data_fields: Sequence[str] = (),
    meta_fields: Sequence[str] = (),
) -> Any:
    """Register a dataclass as a tree node; usable as a decorator.

    Args:
        data_fields: names of the fields that are subtrees (default: all but `meta_fields`).
        meta_fields: names of static fields, compared by equality and hashable.
    """

    def register(cls: type[_T]) -> type[_T]:
        import dataclasses

        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]  # checked there
        data = tuple(data_fields) or tuple(name for name in names if name not in meta_fields)

        def flatten_node(value: Any) -> Any:
            meta = tuple(getattr(value, name) for name in meta_fields)
            return tuple(getattr(value, name) for name in data), meta, data

        def unflatten_node(meta: Any, children: Any) -> Any:
            made = object.__new__(cls)  # __init__ may check or convert: leaves may be anything
            for name, child in zip(data, children, strict=True):
                object.__setattr__(made, name, child)
            for name, value in zip(meta_fields, meta, strict=True):
                object.__setattr__(made, name, value)
            return made

        _register(cls, flatten_node, unflatten_node, namespace=NAMESPACE)
        return cls

    return register if cls is None else register(cls)


def register_node(
    cls: type[_T],
    flatten_node: Callable[[_T], tuple[Iterable[Any], Any]],
    unflatten_node: Callable[[Any, Any], _T],
) -> None:
    """Register a class: how it gives (children, meta), and how it is made of (meta, children)."""
    _register(cls, flatten_node, unflatten_node, namespace=NAMESPACE)


def broadcast_prefix(prefix: Any, tree: Any) -> tuple[list[Any], list[Any]]:
    """Return the entries of a tree prefix, one for each leaf of `tree`, and these leaves.

    None is a leaf in both.

    Raises:
        ValueError: it is no prefix.
    """
    options: dict[str, Any] = {"none_is_leaf": True, "namespace": NAMESPACE}
    return optree.broadcast_prefix(prefix, tree, **options), optree.tree_leaves(tree, **options)


def mismatch(what: str, expected: Structure, got: Structure, name: str = "tree") -> TreeError:
    """The error for trees that should be equal; it prints both."""
    return TreeError(
        f"{what}: the trees do not match\n"
        f"    expected {name} {expected}\n"
        f"    got      {name} {got}",
        "give both the same keys, lengths and None entries",
    )


# --- the end of the process
#
# Until Python 3.14, a thread that asks for the GIL while the interpreter is finalised is ended by
# `pthread_exit`. optree is C++ and gives the GIL up inside its calls: unwinding its frames aborts
# the process. So at exit other threads are kept from calling it, and those inside may leave first.

_EXIT_SECONDS: Final = 0.25


def _stop_here() -> None:
    lock = _thread.allocate_lock()
    lock.acquire()
    lock.acquire()  # for ever: in C, where ending the thread is harmless


class _Gate:
    """Stands for optree while the process ends: other threads than this one stop at it."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() != self._thread:
            _stop_here()
        return getattr(self._module, name)


def _busy() -> bool:
    """Whether another thread is in a call of the package, and so may be inside optree.

    Hashing and comparing structures are calls of optree too, wherever they are written.
    """
    here = threading.get_ident()
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  there is no other way
    for thread, frame in frames.items():
        if thread == here or frame.f_code is _stop_here.__code__:
            continue
        caller: FrameType | None = frame
        while caller is not None:
            if source.is_inside(caller.f_code.co_filename):
                return True
            caller = caller.f_back
    return False


def _close() -> None:
    globals()["optree"] = _Gate(optree)
    deadline = time.monotonic() + _EXIT_SECONDS
    while _busy() and time.monotonic() < deadline:
        time.sleep(0.001)


atexit.register(_close)
