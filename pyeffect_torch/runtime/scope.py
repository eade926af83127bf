"""`et.scope`: releases the memory of what was made inside it, at its end."""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any, Self

from pyeffect_torch.core import dtypes, late, scopes, tree
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.runtime.compute import compute


class Scope:
    """A block whose values are deleted at its end, except those that it keeps.

    `with et.scope() as s: y = s.keep(f(x))`. What was made inside and not kept is deleted when the
    block ends, on an exception what was kept as well. Scopes nest: what an inner one keeps was made
    in the outer one. Arrays of other threads, arrays made before the block, and constants of
    functions that were traced inside are left alone.
    """

    __slots__ = ("_kept", "_made")

    def __init__(self) -> None:
        self._made: scopes.Made | None = None
        self._kept: set[int] = set()

    def keep(self, value: Any) -> Any:
        """Compute a tree and keep its arrays beyond the end of the block; return it.

        Raises:
            ArgumentError: the block is not under way.
        """
        if self._made is None:
            raise ArgumentError("scope: keep was called outside its block", "call it inside `with`")
        value = compute(value)
        self._kept.update(array.serial for array in tree.leaves(value))
        return value

    def __enter__(self) -> Self:
        if self._made is not None:
            raise ArgumentError("scope: the block is entered twice", "make another et.scope()")
        self._made = scopes.Made(literal(0, dtypes.bool_).serial)
        self._kept.clear()
        scopes.enter(self._made)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del error, traceback
        made = self._made
        assert made is not None
        self._made = None
        outer = scopes.leave(made)
        for reference in made.values:
            array: Array | None = reference()
            if array is None:
                continue
            if kind is None and array.serial in self._kept:
                if outer is not None:
                    outer.values.append(weakref.ref(array))
            else:
                late.functions.delete(array)


def scope() -> Scope:
    """Return a scope, to use in a `with` statement; see `Scope`."""
    return Scope()
