"""Scatters: writing into a copy of an array at the positions of an index array.

`scatter` is to `take` what `scatter_along_axis` is to `take_along_axis`. Adding and setting are
linear (ops of one statement); maximum, minimum and product have a tangent rule (`*_reduce` ops of
the same opcodes). Duplicates are combined in row-major order of the index; of several sets the
last one stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import DTypeError, ShapeError
from pyeffect_torch.core.op import (
    Affine,
    Derivative,
    Domain,
    JvpRule,
    MaybeArray,
    Op,
    Sample,
    declare,
)
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, mixed_dtypes
from pyeffect_torch.ops.group_products import other_updates
from pyeffect_torch.ops.index_base import (
    all_batched,
    draw_index,
    resolve_positions,
    zeros_of,
)
from pyeffect_torch.ops.indexing import (
    ALONG_CASES,
    TAKE_CASES,
    along_index,
    along_zero,
    check_along,
    check_take,
    take_shape,
    take_zero,
)
from pyeffect_torch.ops.parameters import (
    KIND_ADD,
    KIND_MAX,
    KIND_MIN,
    KIND_MULTIPLY,
    KIND_SET,
    MODE_CLIP,
    MODE_ERROR,
    MODE_FILL,
    MODE_STRICT,
    ScatterAlongParams,
    ScatterParams,
)
from pyeffect_torch.ops.shape import broadcast_to, moveaxis, reshape

__all__ = []

_f: Any = late.functions
_UFUNCS: Final[dict[int, Any]] = {
    KIND_ADD: np.add,
    KIND_MAX: np.maximum,
    KIND_MIN: np.minimum,
    KIND_MULTIPLY: np.multiply,
}


def _check_updates(name: str, x: Array, updates: Array, shape: Any, kind: int) -> None:
    if x.dtype is not updates.dtype:
        raise mixed_dtypes(name, x, updates)
    if updates.shape != shape:
        raise ShapeError(
            f"{name}: the updates {describe(updates)} for {describe(x)} must have shape "
            f"{list(shape)}",
            "broadcast or reshape them",
        )
    if x.dtype is dtypes.bool_ and kind in (KIND_ADD, KIND_MULTIPLY):
        raise DTypeError(
            f"{name}: cannot add or multiply {describe(x)}", "use max or min for or and and"
        )


def _scatter_infer(inputs: tuple[Array, ...], params: ScatterParams) -> Any:
    x, index, updates = inputs
    check_take("scatter", x, index, params.axis, params.batch_dims, params.mode)
    shape = take_shape(x, index, params.axis, params.batch_dims)
    _check_updates("scatter", x, updates, shape, params.kind)
    return x.shape, x.dtype


def _along_infer(inputs: tuple[Array, ...], params: ScatterAlongParams) -> Any:
    x, index, updates = inputs
    check_along("scatter_along_axis", x, index, params.axis, params.mode)
    _check_updates("scatter_along_axis", x, updates, index.shape, params.kind)
    return x.shape, x.dtype


# --- the two layouts behind one set of rules


def _is_along(node: Array) -> bool:
    return isinstance(node.params, ScatterAlongParams)


def _write(node: Array, x: Array, updates: Array, kind: int) -> Array:
    """Scatter with the index of `node` but other operands and kind."""
    params = node.params._replace(kind=kind)
    if _is_along(node):
        return scatter_along_general(x, node.inputs[1], updates, params)
    return scatter_general(x, node.inputs[1], updates, params)


def _read(node: Array, x: Array) -> Array:
    """Gather from an array like operand 0 what each update of `node` meets; 0 if dropped."""
    index = node.inputs[1]
    if _is_along(node):
        return along_zero(x, index, node.params.axis, node.params.mode)
    return take_zero(x, index, node.params.axis, node.params.batch_dims, node.params.mode)


def scatter_general(x: Array, index: Array, updates: Array, params: ScatterParams) -> Array:
    """Return `x` with updates combined at `index`; the inverse layout of `take`."""
    op = SCATTER if params.kind in (KIND_ADD, KIND_SET) else SCATTER_REDUCE
    return bind(op, (x, index, updates), params)


def scatter_along_general(
    x: Array, index: Array, updates: Array, params: ScatterAlongParams
) -> Array:
    """Return `x` with updates combined at `index` along an axis, ranks equal."""
    op = SCATTER_ALONG_AXIS if params.kind in (KIND_ADD, KIND_SET) else SCATTER_ALONG_AXIS_REDUCE
    return bind(op, (x, index, updates), params)


# --- derivatives


def _linear_forward(node: Array, j: int, tangent: Array) -> Array:
    x, _, updates = node.inputs
    kind = node.params.kind
    if j == 0:
        return tangent if kind == KIND_ADD else _write(node, tangent, zeros_of(updates), kind)
    return _write(node, zeros_of(x), tangent, kind)


def _linear_transpose(node: Array, j: int, ct: Array) -> Array:
    kind = node.params.kind
    if j == 0:
        return ct if kind == KIND_ADD else _write(node, ct, zeros_of(node.inputs[2]), kind)
    read = _read(node, ct)
    if kind == KIND_ADD:
        return read
    wins = _wins(node)
    return read if wins is None else _f.where(wins, read, literal(0, ct.dtype))


def _wins(node: Array) -> MaybeArray:
    """Which updates of a set were not overwritten by a later one; None: there is one each."""
    x, index, _ = node.inputs
    along = _is_along(node)
    params = node.params
    if along:
        count = index.shape[params.axis]
        shape = [1] * len(index.shape)
        shape[params.axis] = count
        slots = broadcast_to(literal(0, dtypes.int64), x.shape)
    else:
        inner = index.shape[params.batch_dims :]
        count = math.prod(inner)
        shape = [*(1,) * params.batch_dims, *inner]
        slots = broadcast_to(
            literal(0, dtypes.int64), (*index.shape[: params.batch_dims], x.shape[params.axis])
        )
    if count <= 1:
        return None
    numbers = broadcast_to(reshape(_f.arange(count), shape), index.shape)
    if along:
        written = scatter_along_general(slots, index, numbers, params)
        return _f.equal(along_zero(written, index, params.axis, params.mode), numbers)
    shared = params.batch_dims
    written = scatter_general(slots, index, numbers, params._replace(axis=shared))
    wins = _f.equal(take_zero(written, index, shared, shared, params.mode), numbers)
    before, after = params.axis - shared, len(x.shape) - params.axis - 1
    lead = index.shape[:shared]
    return reshape(wins, (*lead, *(1,) * before, *index.shape[shared:], *(1,) * after))


def _reduce_rule(node: Array, tangents: Sequence[MaybeArray]) -> MaybeArray:
    x_tangent, _, update_tangent = tangents
    rule = _product_tangent if node.params.kind == KIND_MULTIPLY else _extremum_tangent
    return rule(node, x_tangent, update_tangent)


def _sum_of(node: Array, a: MaybeArray, b: MaybeArray) -> MaybeArray:
    """`a` of operand 0's shape plus the scattered sum of `b` of the updates' shape."""
    if b is None:
        return a
    return _write(node, zeros_of(node) if a is None else a, b, KIND_ADD)


def _extremum_tangent(node: Array, x_tangent: MaybeArray, update_tangent: MaybeArray) -> MaybeArray:
    """Ties share the tangent evenly."""
    x, _, updates = node.inputs
    mine = _f.cast(_f.equal(x, node), node.dtype)
    theirs = _f.cast(_f.equal(updates, _read(node, node)), node.dtype)
    total = _sum_of(
        node,
        None if x_tangent is None else _f.multiply(mine, x_tangent),
        None if update_tangent is None else _f.multiply(theirs, update_tangent),
    )
    if total is None:
        return None
    count = _write(node, mine, theirs, KIND_ADD)
    return _f.divide(total, _f.maximum(count, literal(1, node.dtype)))


def _product_tangent(node: Array, x_tangent: MaybeArray, update_tangent: MaybeArray) -> MaybeArray:
    """Each factor's tangent times the product of the others, right also when factors are 0."""
    x, _, updates = node.inputs
    one = literal(1, node.dtype)
    first = second = None
    if x_tangent is not None:
        others = _write(node, broadcast_to(one, x.shape), updates, KIND_MULTIPLY)
        first = _f.multiply(x_tangent, others)
    if update_tangent is not None:
        others = other_updates(x.shape, node.inputs[1], updates, node.params)
        others = _f.multiply(others, _read(node, x))
        second = _f.multiply(update_tangent, others)
    return _sum_of(node, first, second)


# --- batching


def _scatter_batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> Array:
    params: ScatterParams = node.params
    shared = params.batch_dims
    if batched[1]:
        moved = params._replace(axis=params.axis + 1, batch_dims=shared + 1)
        return bind(node.op, all_batched(inputs, batched, size), moved)
    x, updates = all_batched((inputs[0], inputs[2]), (batched[0], batched[2]), size)
    operands_ = (moveaxis(x, 0, shared), inputs[1], moveaxis(updates, 0, shared))
    return moveaxis(bind(node.op, operands_, params._replace(axis=params.axis + 1)), shared, 0)


def _along_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    params = node.params._replace(axis=node.params.axis + 1)
    return bind(node.op, all_batched(inputs, batched, size), params)


# --- references


def _combine(out: Any, position: Any, updates: Any, kind: int) -> None:
    if kind == KIND_SET:
        out[position] = updates
    else:
        _UFUNCS[kind].at(out, position, updates)


def _scatter_reference(attributes: Any, x: Any, index: Any, updates: Any) -> Any:
    axis, shared = attributes["axis"], attributes["batch_dims"]
    position, valid = resolve_positions("scatter", index, x.shape[axis], axis, attributes["mode"])
    rows = math.prod(x.shape[:shared])
    out = domains.wide(x).copy().reshape((rows, *x.shape[shared:]))
    flat_updates = domains.wide(updates).reshape((rows, *updates.shape[shared:]))
    where = position.reshape((rows, *index.shape[shared:]))
    kept = valid.reshape(where.shape)
    count = where.ndim - 1
    axes = range(axis - shared, axis - shared + count)
    for row in range(rows):
        if x.shape[axis] and where[row].size:
            target = np.moveaxis(out[row], axis - shared, 0)
            values = np.moveaxis(flat_updates[row], axes, range(count))
            keep = kept[row]
            _combine(target, where[row][keep], values[keep], attributes["kind"])
    return out.reshape(x.shape)


def _along_reference(attributes: Any, x: Any, index: Any, updates: Any) -> Any:
    axis = attributes["axis"]
    position, valid = resolve_positions(
        "scatter_along_axis", index, x.shape[axis], axis, attributes["mode"]
    )
    out = domains.wide(x).copy()
    if x.shape[axis] == 0 or index.size == 0:
        return out
    grid = list(np.indices(index.shape))
    grid[axis] = position
    where = tuple(part[valid] for part in grid)
    _combine(out, where, domains.wide(updates)[valid], attributes["kind"])
    return out


# --- declarations


_MODES: Final = (MODE_ERROR, MODE_CLIP, MODE_FILL, MODE_STRICT)


def _scatter_samples(kinds: Sequence[int]) -> Callable[..., Sequence[Sample]]:
    def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
        out: list[Sample] = []
        for k, (shape, index_shape, axis, shared) in enumerate(TAKE_CASES):
            for kind in _legal(kinds, dtype):
                mode = _MODES[(k + kind) % 4]
                x = domains.draw(rng, shape, dtype)
                index = draw_index(rng, index_shape, shape[axis], mode, k)
                full = (*shape[:axis], *index_shape[shared:], *shape[axis + 1 :])
                updates = domains.draw(rng, full, dtype)
                params = ScatterParams(axis, shared, mode, kind)
                if shape[axis] or not index.size or mode == MODE_FILL:
                    out.append(Sample((x, index, updates), params))
        return out

    return samples


def _along_samples(kinds: Sequence[int]) -> Callable[..., Sequence[Sample]]:
    def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
        out: list[Sample] = []
        for k, case in enumerate(ALONG_CASES):
            for kind in _legal(kinds, dtype):
                mode = _MODES[(k + kind) % 4]
                x = domains.draw(rng, case[0], dtype)
                index = along_index(rng, case, mode, k)
                updates = domains.draw(rng, index.shape, dtype)
                params = ScatterAlongParams(case[1], mode, kind)
                out.append(Sample((x, index, updates), params))
        return out

    return samples


def _legal(kinds: Sequence[int], dtype: DType) -> list[int]:
    illegal = (KIND_ADD, KIND_MULTIPLY) if dtype is dtypes.bool_ else ()
    return [kind for kind in kinds if kind not in illegal]


def _roundings(sample: Sample) -> float:
    """One rounding for each combined update; those of a product are relative to the product."""
    kind = sample.params.kind
    if kind in (KIND_SET, KIND_MAX, KIND_MIN):
        return 0.0
    return 1.0 + float(sample.inputs[1].size)


def _scatter_op(name: str, opcode: str, along: bool, derivative: Derivative, kinds: Any) -> Op:
    return declare(
        name,
        infer=_along_infer if along else _scatter_infer,
        derivative=derivative,
        batch=_along_batch if along else _scatter_batch,
        reference=_along_reference if along else _scatter_reference,
        domain=Domain(
            domains.EVERY, (_along_samples if along else _scatter_samples)(kinds), _roundings
        ),
        opcode=opcode,
        attributes=lambda node: node.params._asdict(),
        traits=("may_fail",),
        unsafe=(1,),
    )


_LINEAR_KINDS = (KIND_ADD, KIND_SET)
_REDUCE_KINDS = (KIND_MAX, KIND_MIN, KIND_MULTIPLY)
_LINEAR = Affine(_linear_forward, _linear_transpose)
SCATTER: Final = _scatter_op("scatter", "scatter", False, _LINEAR, _LINEAR_KINDS)
SCATTER_REDUCE: Final = _scatter_op(
    "scatter_reduce", "scatter", False, JvpRule(_reduce_rule), _REDUCE_KINDS
)
SCATTER_ALONG_AXIS: Final = _scatter_op(
    "scatter_along_axis", "scatter_along_axis", True, _LINEAR, _LINEAR_KINDS
)
SCATTER_ALONG_AXIS_REDUCE: Final = _scatter_op(
    "scatter_along_axis_reduce",
    "scatter_along_axis",
    True,
    JvpRule(_reduce_rule),
    _REDUCE_KINDS,
)
