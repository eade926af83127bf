"""`einsum`: sums of products named by letters, as pairwise `dot_general` along a greedy path.

Steps: parse; take diagonals of letters repeated in one operand; sum out letters that only one
operand has; contract the pair that grows memory least until one operand is left; put its axes in
order. An ellipsis stands for axes that broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand
from pyeffect_torch.ops.contraction import dot_general
from pyeffect_torch.ops.parameters import DotParams
from pyeffect_torch.ops.shape import broadcast_to, reshape, transpose

__all__ = ["einsum"]

_f: Any = late.functions
Label: TypeAlias = "str | int"
"""A letter, or k: the ellipsis axis that is k-th from the right."""


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand and the label of each of its axes, all different."""

    array: Array
    labels: tuple[Label, ...]


def einsum(subscripts: str, *operands: Any) -> Array:
    """Return the sum of products that `subscripts` names, as NumPy's `einsum`.

    Args:
        subscripts: a letter for each axis, operands separated by commas, the result's letters
            behind `->` (by default those that appear once, sorted, behind the ellipsis axes). A
            letter twice in one operand is its diagonal; `...` are axes that broadcast.
        operands: one or more arrays of one numeric dtype.

    Raises:
        ArgumentError: subscripts that cannot be read. ShapeError: extents of a letter differ.
        DTypeError: mixed dtypes, or bool.

    Example:
        >>> einsum("bhld,bhsd->bhls", q, k)  # doctest: +SKIP
    """
    arrays = [operand("einsum", array) for array in operands]
    names, result = _parse(subscripts, arrays)
    _check_dtypes(arrays)
    extents = _extents(subscripts, names, arrays)
    terms = [_distinct(array, labels, extents) for array, labels in zip(arrays, names, strict=True)]
    while len(terms) > 1:
        i, j = _cheapest(terms, result, extents)
        others = [term for k, term in enumerate(terms) if k not in (i, j)]
        terms = [*others, _contract(terms[i], terms[j], _kept(others, result))]
    return _arrange(_sum_out(terms[0], set(result)), result, extents)


def _check_dtypes(arrays: Sequence[Array]) -> None:
    for array in arrays:
        if array.dtype is not arrays[0].dtype:
            raise mixed_dtypes("einsum", arrays[0], array)
        if array.dtype is dtypes.bool_:
            raise DTypeError(
                f"einsum: has no meaning for {describe(array)}", "cast it to a numeric dtype first"
            )


def _bad(subscripts: str, why: str, mend: str) -> ArgumentError:
    return ArgumentError(f"einsum: {subscripts!r}: {why}", mend)


def _parse(
    subscripts: str, arrays: Sequence[Array]
) -> tuple[list[tuple[Label, ...]], tuple[Label, ...]]:
    """Return the labels of each operand's axes and of the result."""
    if not isinstance(subscripts, str):
        raise ArgumentError(
            f"einsum: the subscripts must be a string, got {type(subscripts).__name__}",
            "write them first, for example 'ij,jk->ik'",
        )
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(arrays):
        raise _bad(
            subscripts,
            f"names {len(parts)} operands, but {len(arrays)} were given",
            "separate the operands' letters by commas",
        )
    names: list[tuple[Label, ...]] = []
    width = 0
    for part, array in zip(parts, arrays, strict=True):
        letters = part.replace("...", "", 1)
        rest = len(array.shape) - len(letters)
        has_ellipsis = "..." in part
        if rest < 0 or (rest and not has_ellipsis):
            raise ShapeError(
                f"einsum: {part!r} does not name the axes of {describe(array)}",
                "write one letter for each axis, or an ellipsis",
            )
        names.append(_labels(subscripts, part, rest))
        width = max(width, rest if has_ellipsis else 0)
    counts: dict[Label, int] = {}
    for labels in names:
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
    if not arrow:
        once = sorted(k for k, count in counts.items() if isinstance(k, str) and count == 1)
        return names, (*range(width - 1, -1, -1), *once)
    result = _labels(subscripts, right, width)
    if len(set(result)) != len(result):
        raise _bad(subscripts, "the result names a letter twice", "name each letter once")
    for label in result:
        if label not in counts:
            raise _bad(subscripts, f"no operand has {label!r}", "use letters of the operands")
    return names, result


def _labels(subscripts: str, part: str, rest: int) -> tuple[Label, ...]:
    before, dots, after = part.partition("...")
    if not all(letter.isalpha() for letter in before + after):
        raise _bad(subscripts, f"{part!r} is not made of letters", "use letters and one ellipsis")
    middle: tuple[Label, ...] = tuple(range(rest - 1, -1, -1)) if dots else ()
    return (*before, *middle, *after)


def _extents(
    subscripts: str, names: Sequence[tuple[Label, ...]], arrays: Sequence[Array]
) -> dict[Label, int]:
    extents: dict[Label, int] = {}
    for labels, array in zip(names, arrays, strict=True):
        for axis, (label, extent) in enumerate(zip(labels, array.shape, strict=True)):
            known = extents.setdefault(label, extent)
            if known == extent or (isinstance(label, int) and extent == 1):
                continue
            if isinstance(label, int) and known == 1:
                extents[label] = extent
                continue
            what = f"{label!r}" if isinstance(label, str) else "an ellipsis axis"
            raise ShapeError(
                f"einsum: {subscripts!r}: {what} has extent {known} and, as axis {axis} of "
                f"{describe(array)}, {extent}",
                "use one extent for each letter",
            )
    return extents


def _distinct(array: Array, labels: tuple[Label, ...], extents: Mapping[Label, int]) -> _Term:
    """Drop broadcast ellipsis axes of extent 1 and replace repeated letters by diagonals."""
    kept = [
        axis
        for axis, label in enumerate(labels)
        if not (isinstance(label, int) and array.shape[axis] == 1 != extents[label])
    ]
    array = reshape(array, [array.shape[axis] for axis in kept])
    names = [labels[axis] for axis in kept]
    for label in list(dict.fromkeys(names)):
        while names.count(label) > 1:
            first = names.index(label)
            second = names.index(label, first + 1)
            array = _f.diagonal(array, 0, first, second)
            names = [name for k, name in enumerate(names) if k not in (first, second)]
            names.append(label)
    return _Term(array, tuple(names))


def _kept(others: Sequence[_Term], result: Sequence[Label]) -> set[Label]:
    kept = set(result)
    for term in others:
        kept.update(term.labels)
    return kept


def _cheapest(
    terms: Sequence[_Term], result: Sequence[Label], extents: Mapping[Label, int]
) -> tuple[int, int]:
    """Return the pair whose product grows memory least; ties go to fewer multiplications."""
    if len(terms) == 2:
        return 0, 1
    best: tuple[int, int, int, int] | None = None
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            a, b = terms[i], terms[j]
            others = [term for k, term in enumerate(terms) if k not in (i, j)]
            union = {*a.labels, *b.labels}
            size = math.prod(extents[label] for label in union & _kept(others, result))
            work = math.prod(extents[label] for label in union)
            cost = (size - a.array.size - b.array.size, work, i, j)
            if best is None or cost < best:
                best = cost
    assert best is not None
    return best[2], best[3]


def _sum_out(term: _Term, kept: set[Label]) -> _Term:
    axes = [axis for axis, label in enumerate(term.labels) if label not in kept]
    if not axes:
        return term
    labels = tuple(label for label in term.labels if label in kept)
    return _Term(_f.sum(term.array, axes), labels)


def _contract(a: _Term, b: _Term, kept: set[Label]) -> _Term:
    """Multiply two terms and sum over the labels that nothing else needs."""
    a = _sum_out(a, kept | set(b.labels))
    b = _sum_out(b, kept | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    contracted = [label for label in shared if label not in kept]
    batch = [label for label in shared if label in kept]
    a_free = [label for label in a.labels if label not in shared]
    b_free = [label for label in b.labels if label not in shared]
    labels = (*batch, *a_free, *b_free)
    if not contracted:
        product = _f.multiply(_aligned(a, labels), _aligned(b, labels))
        return _Term(product, labels)
    params = DotParams(
        tuple(a.labels.index(label) for label in contracted),
        tuple(b.labels.index(label) for label in contracted),
        tuple(a.labels.index(label) for label in batch),
        tuple(b.labels.index(label) for label in batch),
    )
    return _Term(dot_general(a.array, b.array, params), labels)


def _aligned(term: _Term, labels: Sequence[Label]) -> Array:
    """Return a term's array with its axes in the order of `labels`, 1 where it has none."""
    present = [label for label in labels if label in term.labels]
    array = transpose(term.array, [term.labels.index(label) for label in present])
    extents = dict(zip(present, array.shape, strict=True))
    return reshape(array, [extents.get(label, 1) for label in labels])


def _arrange(term: _Term, result: Sequence[Label], extents: Mapping[Label, int]) -> Array:
    return broadcast_to(_aligned(term, result), [extents[label] for label in result])
