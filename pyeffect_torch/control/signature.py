"""Checks of what the functions given to control flow return, with messages that name the leaf."""

from __future__ import annotations

from collections.abc import Sequence

from pyeffect_torch.core import dtypes, source, tree
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import DTypeError, ShapeError, TreeError
from pyeffect_torch.core.op import Type
from pyeffect_torch.ops.base import describe


def require_same_carry(
    what: str,
    before: Sequence[Type],
    structure: tree.Structure,
    after: Sequence[Array],
    got: tree.Structure,
    noun: str = "carry",
) -> None:
    """Check that a step returns the carry with the tree and the types it came in.

    Raises:
        TreeError: it does not; prints both trees, or each leaf that differs.
    """
    if got != structure:
        raise tree.mismatch(f"{what}: the {noun} of a step", structure, got, noun)
    lines = [
        f"    {path} is {_type(kind)} before the step and {describe(leaf)} after it{_made(leaf)}"
        for path, kind, leaf in zip(tree.paths(structure, noun), before, after, strict=True)
        if (leaf.shape, leaf.dtype) != kind
    ]
    if lines:
        raise TreeError(
            "\n".join([f"{what}: a step must return the {noun} as it came in", *lines]),
            "return each leaf with its shape and dtype, or start from an init that has those",
        )


def require_same_outputs(
    what: str,
    names: Sequence[str],
    outs: Sequence[Sequence[Array]],
    structures: Sequence[tree.Structure],
) -> None:
    """Check that all branches return one tree of equal types.

    Raises:
        TreeError: they do not; prints both trees, or each leaf that differs.
    """
    first, structure = outs[0], structures[0]
    for name, leaves, got in zip(names[1:], outs[1:], structures[1:], strict=True):
        if got != structure:
            raise TreeError(
                f"{what}: the branches return different trees\n"
                f"    {names[0]} returns {structure}\n"
                f"    {name} returns {got}",
                "return the same keys, lengths and None entries from every branch",
            )
        lines = [
            f"    {path} is {describe(a)} from {names[0]}{_made(a)} and {describe(b)} from {name}"
            f"{_made(b)}"
            for path, a, b in zip(tree.paths(structure, "result"), first, leaves, strict=True)
            if a.shape != b.shape or a.dtype is not b.dtype
        ]
        if lines:
            raise TreeError(
                "\n".join([f"{what}: the branches return different types", *lines]),
                "cast or reshape the results so that all branches agree",
            )


def require_predicate(what: str, value: Array) -> None:
    """Check that a condition is one bool.

    Raises:
        DTypeError: another dtype. ShapeError: an array of them.
    """
    if value.dtype is not dtypes.bool_:
        raise DTypeError(
            f"{what} must be bool[], got {describe(value)}{_made(value)}",
            "compare it with something, for example x > 0",
        )
    if value.shape:
        raise ShapeError(
            f"{what} must be one bool, got {describe(value)}{_made(value)}",
            "reduce it with .any() or .all(), select elements with et.where, or use et.vmap",
        )


def _type(kind: Type) -> str:
    shape, dtype = kind
    return f"{dtype.name}{list(shape)}"


def _made(leaf: Array) -> str:
    """Where a leaf was made, for a message."""
    place = source.describe(leaf.src)
    return f" (made at {place})" if place else ""
