"""`associative_scan`: all running results of an associative function, in a logarithm of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.control.signature import require_same_carry
from pyeffect_torch.core import late, tree
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.ops.base import describe
from pyeffect_torch.ops.options import require_int
from pyeffect_torch.transforms.arguments import flat_arrays, require_callable
from pyeffect_torch.transforms.regions import types_of

_f: Any = late.functions


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Return `fn(... fn(fn(e[0], e[1]), e[2]) ..., e[i])` for every i along an axis.

    It applies `fn` to about 2 log2(n) whole slices, which is why it must be associative; `et.scan`
    takes n steps and any function.

    Args:
        fn: an associative function of two trees like `elems`, elementwise along `axis`.
        elems: a tree of arrays with one extent along `axis`.
        reverse: start from the last element: `fn(e[n-1], e[n-2])` and so on.
        axis: the axis that is scanned.

    Returns:
        A tree like `elems`.

    Raises:
        ShapeError: extents that differ. TreeError: `fn` returns another tree or other types.
        ArgumentError: no arrays.

    Reference:
        G. Blelloch, "Prefix Sums and Their Applications" (1990), section 1.3.
    """
    require_callable("associative_scan", fn)
    flat, structure = flat_arrays("associative_scan", elems)
    rows = _fronts(flat, structure, axis)
    if reverse:
        rows = [_f.flip(row, 0) for row in rows]

    def combine(a: Sequence[Array], b: Sequence[Array]) -> list[Array]:
        left, right = ([_f.moveaxis(x, 0, axis) for x in side] for side in (a, b))
        result = fn(tree.unflatten(structure, left), tree.unflatten(structure, right))
        leaves, got = flat_arrays("associative_scan", result)
        require_same_carry("associative_scan", types_of(left), structure, leaves, got, "elems")
        return [_f.moveaxis(x, axis, 0) for x in leaves]

    found = _running(combine, rows)
    if reverse:
        found = [_f.flip(row, 0) for row in found]
    return tree.unflatten(structure, [_f.moveaxis(row, 0, axis) for row in found])


def _fronts(flat: Sequence[Array], structure: tree.Structure, axis: int) -> list[Array]:
    """The elements with the scanned axis in front."""
    if not flat:
        raise ArgumentError("associative_scan: there are no arrays", "pass a tree of arrays")
    extents: dict[str, int] = {}
    for path, array in zip(tree.paths(structure, "elems"), flat, strict=True):
        rank = len(array.shape)
        axis = require_int("associative_scan", axis, "axis")
        if not -rank <= axis < rank:
            raise ShapeError(
                f"associative_scan: {path} is {describe(array)}, which has no axis {axis}",
                "use an axis of every array",
            )
        extents[path] = array.shape[axis]
    if len(set(extents.values())) > 1:
        listed = ", ".join(f"{path}: {extent}" for path, extent in extents.items())
        raise ShapeError(
            f"associative_scan: the extents along axis {axis} differ ({listed})",
            "give all arrays one extent along the axis",
        )
    return [_f.moveaxis(array, axis, 0) for array in flat]


def _running(
    combine: Callable[[Sequence[Array], Sequence[Array]], list[Array]], rows: Sequence[Array]
) -> list[Array]:
    """The running results of rows along their first axis.

    Neighbours are joined in pairs; the running results of the pairs are the ones at odd places, and
    one more application each gives those at even places.
    """
    count = rows[0].shape[0]
    if count < 2:
        return list(rows)
    pairs = combine([row[: count - 1 : 2] for row in rows], [row[1::2] for row in rows])
    odd = _running(combine, pairs)
    before = odd if count % 2 else [row[: count // 2 - 1] for row in odd]
    even = [row[:1] for row in rows]
    if count > 2:
        later = combine(before, [row[2::2] for row in rows])
        even = [_f.concatenate([a, b]) for a, b in zip(even, later, strict=True)]
    return [_woven(a, b, count) for a, b in zip(even, odd, strict=True)]


def _woven(even: Array, odd: Array, count: int) -> Array:
    """Rows of two arrays by turns, `count` in all; the first has as many, or one more."""
    half = count // 2
    both = _f.reshape(_f.stack([even[:half], odd], 1), (2 * half, *even.shape[1:]))
    return _f.concatenate([both, even[half:]]) if count % 2 else both
