"""Running sums, products and extrema along one axis, from either end; differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import ArgumentError, DTypeError
from pyeffect_torch.core.op import (
    Derivative,
    Domain,
    JvpRule,
    Linear,
    MaybeArray,
    Op,
    Sample,
    declare,
)
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import (
    describe,
    normalize_axis,
    operand,
    operands,
    require_float,
    resolve_dtype,
)
from pyeffect_torch.ops.options import require_int

_f: Any = late.functions


class _Running(NamedTuple):
    """The params: the axis, and whether to run from its end."""

    axis: int
    reverse: bool


def _infer(name: str, allowed: frozenset[DType]) -> Any:
    def infer(inputs: tuple[Array, ...], params: Any) -> Any:
        del params
        (x,) = inputs
        if x.dtype not in allowed:
            raise DTypeError(f"{name}: has no meaning for {describe(x)}", "cast it first")
        return x.shape, x.dtype

    return infer


def _batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    del batched, size
    params = node.params
    return bind(node.op, (inputs[0],), params._replace(axis=params.axis + 1))


def _samples(low: float, high: float) -> Any:
    def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
        return [
            Sample((domains.draw(rng, shape, dtype, low, high),), _Running(axis, reverse))
            for shape in domains.SHAPES
            for axis in range(len(shape))
            for reverse in (False, True)
        ]

    return samples


def _extent(sample: Sample) -> float:
    return float(1 + sample.inputs[0].shape[sample.params.axis])


def _declare(
    name: str,
    allowed: Sequence[DType],
    derivative: Derivative,
    accumulate: Callable[..., Any],
    between: tuple[float, float],
    roundings: Callable[[Sample], float],
) -> Op:
    def reference(attributes: Any, x: Any) -> Any:
        axis = attributes["axis"]
        wide = domains.wide(x)
        ordered = np.flip(wide, axis) if attributes["reverse"] else wide
        # The dtype is given, or NumPy would sum int8 in int64.
        run = accumulate(ordered, axis, dtype=wide.dtype)
        return np.flip(run, axis) if attributes["reverse"] else run

    return declare(
        name,
        infer=_infer(name, frozenset(allowed)),
        derivative=derivative,
        batch=_batch,
        reference=reference,
        domain=Domain(tuple(allowed), _samples(*between), roundings),
        opcode=name,
        attributes=lambda node: node.params._asdict(),
    )


def _sum_transpose(node: Array, ct: Array) -> Array:
    axis, reverse = node.params
    return bind(CUMSUM, (ct,), _Running(axis, not reverse))


def _shifted(x: Array, params: _Running, by: int, fill: Array) -> Array:
    """`x` moved `by` places along the running direction, `fill` where nothing came from."""
    axis, reverse = params
    rank, extent = len(x.shape), x.shape[axis]
    starts, sizes = [0] * rank, list(x.shape)
    starts[axis], sizes[axis] = (by if reverse else 0), extent - by
    kept = _f.slice(x, tuple(starts), tuple(sizes), (1,) * rank)
    sizes[axis] = by
    start = _f.broadcast_to(fill, tuple(sizes))
    return _f.concatenate([kept, start] if reverse else [start, kept], axis)


def _product_rule(node: Array, tangents: Sequence[MaybeArray]) -> MaybeArray:
    """Scan pairs (product, tangent) by doubling: exact where factors are 0, as nothing divides.

    Two neighbours combine to (p q, t q + p s), which is linear in the tangents t and s.
    """
    x, params, tangent = node.inputs[0], node.params, tangents[0]
    if tangent is None:
        return None
    one, zero = _f.constant_like(x, 1), _f.constant_like(x, 0)
    product, by = x, 1
    while by < x.shape[params.axis]:
        earlier = _shifted(product, params, by, one)
        earlier_tangent = _shifted(tangent, params, by, zero)
        tangent = _f.add(_f.multiply(earlier_tangent, product), _f.multiply(earlier, tangent))
        product = _f.multiply(earlier, product)
        by *= 2
    return tangent


def _extremum_rule(node: Array, tangents: Sequence[MaybeArray]) -> MaybeArray:
    """The tangent of the element that attains the running extremum, the last met on ties."""
    x, params, tangent = node.inputs[0], node.params, tangents[0]
    if tangent is None:
        return None
    axis, reverse = params
    extent = x.shape[axis]
    along = [1] * len(x.shape)
    along[axis] = extent
    places = _f.broadcast_to(_f.iota(tuple(along), "int64", axis), x.shape)
    first = _f.constant_like(places, max(extent - 1, 0) if reverse else 0)
    attained = _f.where(_f.equal(x, node), places, first)
    chosen = bind(CUMMIN if reverse else CUMMAX, (attained,), params)
    return _f.take_along_axis(tangent, chosen, axis)


CUMSUM: Final = _declare(
    "cumsum",
    domains.NUMERIC,
    Linear(_sum_transpose),
    np.cumsum,
    (-2.0, 2.0),
    lambda sample: _extent(sample) ** 2,
)
CUMPROD: Final = _declare(
    "cumprod", domains.NUMERIC, JvpRule(_product_rule), np.cumprod, (0.75, 1.25), _extent
)
CUMMAX: Final = _declare(
    "cummax",
    domains.EVERY,
    JvpRule(_extremum_rule),
    np.maximum.accumulate,
    (-9.0, 9.0),
    lambda sample: 0.0,
)
CUMMIN: Final = _declare(
    "cummin",
    domains.EVERY,
    JvpRule(_extremum_rule),
    np.minimum.accumulate,
    (-9.0, 9.0),
    lambda sample: 0.0,
)


def _run(op: Op, array: Array, axis: int | None, reverse: bool) -> Array:
    if axis is None:
        array, axis = _f.reshape(array, (array.size,)), 0
    return bind(
        op, (array,), _Running(normalize_axis(op.name, axis, len(array.shape)), bool(reverse))
    )


def _summand(name: str, x: Any, dtype: DTypeLike | None) -> Array:
    array = operand(name, x)
    if dtype is not None:
        return _f.cast(array, resolve_dtype(name, dtype))
    return _f.cast(array, dtypes.int64) if array.dtype is dtypes.bool_ else array


def cumsum(
    x: Any, axis: int | None = None, *, reverse: bool = False, dtype: DTypeLike | None = None
) -> Array:
    """Return the running sums of `x` along `axis`, each with its own element.

    Args:
        x: any dtype; bool is counted in int64, other dtypes are kept and integers wrap.
        axis: None: of the flattened array.
        reverse: sum from the end.
        dtype: cast `x` to it first.
    """
    return _run(CUMSUM, _summand("cumsum", x, dtype), axis, reverse)


def cumprod(
    x: Any, axis: int | None = None, *, reverse: bool = False, dtype: DTypeLike | None = None
) -> Array:
    """Return the running products of `x` along `axis`, each with its own element.

    The gradient is right where factors are 0. Arguments as for `cumsum`.
    """
    return _run(CUMPROD, _summand("cumprod", x, dtype), axis, reverse)


def cummax(x: Any, axis: int | None = None, *, reverse: bool = False) -> Array:
    """Return the running maxima of `x` along `axis` (None: of the flattened array).

    NaN propagates; among ties the gradient goes to the element met last.
    """
    return _run(CUMMAX, operand("cummax", x), axis, reverse)


def cummin(x: Any, axis: int | None = None, *, reverse: bool = False) -> Array:
    """Return the running minima of `x` along `axis` (None: of the flattened array).

    NaN propagates; among ties the gradient goes to the element met last.
    """
    return _run(CUMMIN, operand("cummin", x), axis, reverse)


def cumlogsumexp(x: Any, axis: int | None = None, *, reverse: bool = False) -> Array:
    """Return `log(cumsum(exp(x)))` along `axis` (None: of the flattened array) without overflow.

    It is -inf with gradient 0 as long as all elements are -inf.

    Args:
        x: floating; half types are computed in float32.
        axis: None: of the flattened array.
        reverse: run from the end.
    """
    array = operand("cumlogsumexp", x)
    require_float("cumlogsumexp", array)
    if axis is None:
        array, axis = _f.reshape(array, (array.size,)), 0
    params = _Running(normalize_axis("cumlogsumexp", axis, len(array.shape)), bool(reverse))
    run = _f.cast(array, dtypes.accumulator(array.dtype))
    nothing, by = _f.constant_like(run, -math.inf), 1
    # Neighbours join by doubling, so the error grows with the logarithm of the length.
    while by < array.shape[params.axis]:
        run = _f.logaddexp(_shifted(run, params, by, nothing), run)
        by *= 2
    return _f.cast(run, array.dtype)


def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Return the differences of neighbours along `axis`, taken `n` times; of bools, whether any.

    Args:
        x: any dtype; integers wrap.
        n: at least 0; each time the axis gets shorter by one. 0 gives `x` itself.
        prepend, append: a number, or an array of the dtype of `x`, put at the ends first.
    """
    array = operand("diff", x)
    place = normalize_axis("diff", axis, len(array.shape))
    n = require_int("diff", n, "n")
    if n < 0:
        raise ArgumentError(f"diff: n is {n}", "pass 0 or more")
    if n == 0:
        return array
    column = tuple(1 if a == place else extent for a, extent in enumerate(array.shape))
    parts = [array]
    for end, at in ((prepend, 0), (append, 2)):
        if end is not None:
            _, given = operands("diff", array, end, convert_scalars=False)
            parts.insert(at, given if given.shape else _f.broadcast_to(given, column))
    array = _f.concatenate(parts, place) if len(parts) > 1 else array
    change = _f.not_equal if array.dtype is dtypes.bool_ else _f.subtract
    for _ in range(min(n, array.shape[place])):
        shorter = max(array.shape[place] - 1, 0)
        sizes = tuple(shorter if a == place else e for a, e in enumerate(array.shape))
        ones = (1,) * len(sizes)
        start = tuple(min(1, e) if a == place else 0 for a, e in enumerate(array.shape))
        later = _f.slice(array, start, sizes, ones)
        array = change(later, _f.slice(array, (0,) * len(sizes), sizes, ones))
    return array
