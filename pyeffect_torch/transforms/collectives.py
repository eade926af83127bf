"""`psum`, `pmean`, `pmax`, `pmin`: reductions over the rows of a named `vmap`.

The node takes the hidden row index of its `vmap` as a second input. The walk of that `vmap` meets
it as batched and reduces over the rows; the walk of any other `vmap` batches the operand alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from pyeffect_torch.core import dtypes, late, source, tree
from pyeffect_torch.core.array import Array, make, outputs
from pyeffect_torch.core.errors import ArgumentError, DTypeError, TraceError
from pyeffect_torch.core.op import MaybeArray, Op, Region, Type, declare
from pyeffect_torch.core.trace import Frame, frames
from pyeffect_torch.ops.base import describe
from pyeffect_torch.transforms.arguments import flat_arrays

_f: Any = late.functions


class _Params(NamedTuple):
    """`kind`: "sum", "max" or "min"; `size`: the number of rows of the axis `name`."""

    kind: str
    name: Any
    size: int
    types: tuple[Type, ...]


def _reduce(kind: str, x: Array, row: Array, name: Any, size: int) -> Array:
    params = _Params(kind, name, size, ((x.shape, x.dtype),))
    return outputs(make(COLLECTIVE, (x, row), params, None, None))[0]


def _again(node: Array, x: Array, row: Array, kind: str) -> Array:
    return _reduce(kind, x, row, node.params.name, node.params.size)


def _shares(node: Array, x: Array, row: Array) -> tuple[Array, Array]:
    """Of a maximum or minimum: the result, and each row's share of its derivative."""
    best = _again(node, x, row, node.params.kind)
    mask = _f.cast(_f.equal(x, best), x.dtype)
    return best, _f.divide(mask, _again(node, mask, row, "sum"))


def _forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    x, row = inputs
    tangent = tangents[0]
    if node.params.kind == "sum":
        out = _again(node, x, row, "sum")
        return [out], [None if tangent is None else _again(node, tangent, row, "sum")]
    out, share = _shares(node, x, row)
    if tangent is None:
        return [out], [None]
    return [out], [_again(node, _f.multiply(tangent, share), row, "sum")]


def _reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    x, row = node.inputs
    (ct,) = cts
    if ct is None or not need[0]:
        return [None, None]
    total = _again(node, ct, row, "sum")
    if node.params.kind != "sum":
        total = _f.multiply(total, _shares(node, x, row)[1])
    return [total, None]


def _batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    x, row = inputs
    kind = node.params.kind
    if not batched[1]:  # the rows of another vmap
        return [(_again(node, x, row, kind), True)]
    if batched[0]:
        return [({"sum": _f.sum, "max": _f.max, "min": _f.min}[kind](x, axis=0), False)]
    return [(_f.multiply(x, size) if kind == "sum" else x, False)]


def _inline(node: Array, inputs: Sequence[Array]) -> NoReturn:
    del inputs
    raise TraceError(
        f"a reduction over the axis {node.params.name!r} leaked out of its vmap",
        "return the value from the mapped function instead of storing it elsewhere",
        node.src,
    )


COLLECTIVE: Op = declare(
    "collective",
    infer=lambda inputs, params: params.types,
    derivative=Region(_forward, _reverse, _inline),
    batch=_batch,
    reference=None,
    domain=None,
    traits=("multi", "region"),
)


def _frame_of(what: str, name: Any) -> Frame:
    """The innermost vmap under way with that axis name."""
    named = [frame for frame in frames() if frame.name is not None]
    for frame in reversed(named):
        if frame.name == name:
            return frame
    known = ", ".join(repr(frame.name) for frame in named) or "none"
    raise ArgumentError(
        f"{what}: no vmap with axis_name={name!r} is under way (known here: {known})",
        f"call it inside et.vmap(f, axis_name={name!r})",
        source.capture_user(),
    )


def _over(what: str, kind: str, value: Any, axis_name: Any) -> Any:
    names = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    flat, structure = flat_arrays(what, value)
    for name in names:
        frame = _frame_of(what, name)
        assert frame.row is not None
        flat = [_reduce(kind, x, frame.row, name, frame.size) for x in flat]
    return tree.unflatten(structure, flat)


def psum(x: Any, axis_name: Any) -> Any:
    """Return the sum over the rows of the enclosing `vmap` that has this `axis_name`.

    Args:
        x: a tree of numeric arrays (bool is counted in int64); every row gets the same sum.
        axis_name: of `et.vmap(f, axis_name=...)`, or a tuple of several.

    Raises:
        ArgumentError: no such `vmap` is under way.
    """
    flat, structure = flat_arrays("psum", x)
    counted = [_f.cast(a, dtypes.int64) if a.dtype is dtypes.bool_ else a for a in flat]
    return _over("psum", "sum", tree.unflatten(structure, counted), axis_name)


def pmean(x: Any, axis_name: Any) -> Any:
    """Return the mean over the rows of a named `vmap`, as `psum`; floating arrays only."""
    flat, structure = flat_arrays("pmean", x)
    for array in flat:
        if not dtypes.is_float(array.dtype):
            raise DTypeError(
                f"pmean: needs floating arrays, got {describe(array)}",
                "cast it first, for example x.astype('float32')",
            )
    total = _over("pmean", "sum", tree.unflatten(structure, flat), axis_name)
    size = axis_size(axis_name)
    return tree.map(lambda a: _f.divide(a, size), total)


def pmax(x: Any, axis_name: Any) -> Any:
    """Return the maximum over the rows of a named `vmap`, as `psum`; ties share the gradient."""
    return _over("pmax", "max", x, axis_name)


def pmin(x: Any, axis_name: Any) -> Any:
    """Return the minimum over the rows of a named `vmap`, as `psum`; ties share the gradient."""
    return _over("pmin", "min", x, axis_name)


def axis_index(axis_name: Any) -> Array:
    """Return this row's number in the named `vmap`, int64 []."""
    row = _frame_of("axis_index", axis_name).row
    assert row is not None
    return row


def axis_size(axis_name: Any) -> int:
    """Return how many rows the named `vmap` has; of several names, the product."""
    names = axis_name if isinstance(axis_name, (tuple, list)) else (axis_name,)
    size = 1
    for name in names:
        size *= _frame_of("axis_size", name).size
    return size
