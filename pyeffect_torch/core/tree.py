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
    """Return the tree with that structure and those leaves.

    Raises:
        TreeError: `structure` is none. ValueError: it has another number of leaves.
    """
    try:
        return optree.tree_unflatten(structure, leaves)
    except AttributeError:
        if isinstance(structure, Structure):
            raise  # of a user's node
        raise TreeError(
            f"tree.unflatten: {type(structure).__name__} is no structure",
            "pass the structure first, then the leaves",
        ) from None


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


def map_with_path(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Return a tree of `function(path, leaf, *rest_leaves)`; a path reads `['layer3']['w']`.

    Raises:
        TreeError: the trees do not have one structure; prints both.
    """
    places = unflatten(structure(tree), paths(structure(tree)))
    return map(function, places, tree, *rest)


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
        cls: a dataclass; it may be frozen and have slots.
        data_fields: names of the fields that are subtrees (default: all but `meta_fields`).
        meta_fields: names of static fields, compared by equality and hashable.

    Raises:
        TreeError: `cls` is no dataclass or is a node already, or the fields named are not its own,
            each in one of the two.
    """

    def register(cls: type[_T]) -> type[_T]:
        names = _field_names(cls)
        meta = tuple(meta_fields)
        data = tuple(data_fields) or tuple(name for name in names if name not in meta)
        named = sorted([*data, *meta])
        if named != sorted(names):
            raise TreeError(
                f"register_dataclass: {cls.__name__} has the fields {names}, but data_fields are "
                f"{list(data)} and meta_fields {list(meta)}",
                "name each field once",
            )

        def flatten_node(value: Any) -> Any:
            statics = tuple(getattr(value, name) for name in meta)
            return tuple(getattr(value, name) for name in data), statics, data

        def unflatten_node(statics: Any, children: Any) -> Any:
            made = object.__new__(cls)  # __init__ may check or convert: leaves may be anything
            for name, child in zip(data, children, strict=True):
                object.__setattr__(made, name, child)
            for name, value in zip(meta, statics, strict=True):
                object.__setattr__(made, name, value)
            return made

        register_node(cls, flatten_node, unflatten_node)
        return cls

    return register if cls is None else register(cls)


def register_node(
    cls: type[_T],
    flatten_node: Callable[[_T], tuple[Iterable[Any], Any]],
    unflatten_node: Callable[[Any, Any], _T],
) -> None:
    """Register a class as a tree node: nothing else about it needs to change.

    Args:
        cls: the class; subclasses are not included.
        flatten_node: gives (children, meta): an iterable of subtrees, and what else a value is made
            of, which is compared by equality and hashable. A third item may name the children.
        unflatten_node: makes a value of (meta, children); children may be anything.

    Raises:
        TreeError: `cls` is a node already, or no class.
    """
    try:
        _register(cls, flatten_node, unflatten_node, namespace=NAMESPACE)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise TreeError(
            f"register_node: cannot register {cls!r}: {reason}", "register each class once"
        ) from None


def _field_names(cls: type[Any]) -> list[str]:
    import dataclasses

    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise TreeError(
            f"register_dataclass: {cls!r} is no dataclass", "put @dataclasses.dataclass below it"
        )
    return [field.name for field in dataclasses.fields(cls)]


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
