"""Random integers, choices and permutations from explicit keys; the functions of `et.random`."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.base import (
    describe,
    is_number,
    normalize_axis,
    operand,
    require_float,
    require_integer,
    resolve_dtype,
    shape_of,
)
from pyeffect_torch.ops.random import UNSIGNED, gumbel, key_operand, split, uniform, words

_f: Any = late.functions


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: DTypeLike = "int64") -> Array:
    """Return integers [..., *shape] in [minval, maxval); `minval` where that is empty.

    They are remainders of 64 random bits (128 for 64-bit dtypes), evenly distributed but for that.

    Args:
        key: uint32 [..., 2].
        shape: of the draw of one key.
        minval, maxval: ints, or integer arrays that broadcast with the result. `maxval` may be one
            above the largest number of `dtype`.
        dtype: an integer dtype.
    """
    found = resolve_dtype("randint", dtype)
    if found not in dtypes.INTEGERS:
        raise DTypeError(f"randint: draws integers, not {found.name}", "use uniform")
    drawn = found if found.itemsize >= 4 else dtypes.int32
    extents = shape_of("randint", shape)
    pair = split(key)
    width = drawn.itemsize * 8
    unsigned = UNSIGNED[width]
    lower = words(pair[..., 1, :], extents, unsigned)
    if isinstance(minval, (int, np.integer)) and isinstance(maxval, (int, np.integer)):
        low, span = _static_range(int(minval), int(maxval), found)
        factor = (1 << (width // 2)) % span if span else 0
        factor = (factor * factor % (1 << width)) % span if span else 0
        offset = _f.remainder(lower, span) if span else lower
        if factor:
            higher = words(pair[..., 0, :], extents, unsigned)
            high_part = _f.multiply(_f.remainder(higher, span), factor)
            offset = _f.remainder(_f.add(high_part, offset), span)
        return _f.cast(_f.add(_f.cast(offset, drawn), low), found)
    higher = words(pair[..., 0, :], extents, unsigned)
    bottom, top = _limit(minval, drawn), _limit(maxval, drawn)
    span = _f.cast(_f.subtract(top, bottom), unsigned)
    span = _f.where(_f.less_equal(top, bottom), literal(1, unsigned), span)
    factor = _f.remainder(literal(1 << (width // 2), unsigned), span)
    factor = _f.remainder(_f.square(factor), span)
    high_part = _f.multiply(_f.remainder(higher, span), factor)
    offset = _f.remainder(_f.add(high_part, _f.remainder(lower, span)), span)
    return _f.cast(_f.add(_f.cast(offset, drawn), bottom), found)


def _static_range(low: int, high: int, dtype: DType) -> tuple[int, int]:
    """The first number and how many there are; 0 stands for all of the dtype's 2**width."""
    info = np.iinfo(dtype)
    if not (info.min <= low <= info.max and info.min <= high <= info.max + 1):
        raise ArgumentError(
            f"randint: [{low}, {high}) does not fit {dtype.name}", "pass a wider dtype"
        )
    width = max(32, dtype.itemsize * 8)
    return low, (high - low) % (1 << width) if high > low else 1


def _limit(value: Any, dtype: DType) -> Array:
    if isinstance(value, (int, np.integer)):
        return literal(int(value), dtype)
    array = operand("randint", value)
    require_integer("randint", array, "a bound")
    return _f.cast(array, dtype)


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Array:
    """Return bools that are True with probability `p`.

    Args:
        key: uint32 [..., 2].
        p: a number, or a floating array.
        shape: of the draw of one key, that `p` broadcasts to; by default that of `p`.
    """
    chance = operand("bernoulli", float(p) if is_number(p) else p)
    require_float("bernoulli", chance)
    extents = chance.shape if shape is None else shape_of("bernoulli", shape)
    return _f.less(uniform(key, extents, chance.dtype), chance)


def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None) -> Array:
    """Return positions along `axis` drawn with probabilities `softmax(logits)`, as int64.

    Args:
        key: uint32 [2].
        logits: floating; log-probabilities but for a constant.
        axis: the axis of the categories, which the result does not have.
        shape: of the result: leading axes of independent draws, then the other axes of `logits`.

    Reference: the Gumbel-max trick; Maddison, Tarlow, Minka, "A* Sampling", 2014, section 2.
    """
    array = operand("categorical", logits)
    require_float("categorical", array)
    index = normalize_axis("categorical", axis, len(array.shape))
    rest = (*array.shape[:index], *array.shape[index + 1 :])
    wanted = rest if shape is None else shape_of("categorical", shape)
    lead = wanted[: len(wanted) - len(rest)]
    if len(wanted) < len(rest) or wanted[len(lead) :] != rest:
        raise ShapeError(
            f"categorical: shape {list(wanted)} does not end with {list(rest)}",
            "put the independent draws on leading axes",
        )
    noise = gumbel(key, (*lead, *array.shape), array.dtype)
    return _f.argmax(_f.add(noise, array), index - len(array.shape))


# --- order and choice

_SHUFFLE_EXPONENT: Final = 3
"""Of n elements, two share all their sort keys with a probability of about `n**2 / n**(2 * 3)`."""


def _shuffle(key: Array, x: Array, axis: int) -> Array:
    """Sort `x` [lead.., ...] by random words along `axis`, as often as ties make it needful."""
    lead = len(key.shape) - 1
    shape = x.shape[lead:]
    size = max(1, math.prod(shape))
    for _ in range(math.ceil(_SHUFFLE_EXPONENT * math.log(size) / math.log(2**32 - 1))):
        pair = split(key)
        key = pair[..., 0, :]
        order = _f.argsort(words(pair[..., 1, :], shape, dtypes.uint32), axis)
        x = _f.take_along_axis(x, order, axis)
    return x


def _shuffled(key: Array, count: int) -> Array:
    """Return the numbers below `count` in random order, int64 [lead.., count]."""
    lead = key.shape[:-1]
    return _shuffle(key, _f.broadcast_to(_f.arange(count), (*lead, count)), len(lead))


def _pick(x: Array, index: Array, axis: int, lead: int) -> Array:
    """Take `x[.., index, ..]` along `axis`; the leading axes of `index` lead the result."""
    taken = _f.take(x, index, axis)
    for place in range(lead):
        taken = _f.moveaxis(taken, axis + place, place)
    return taken


def permutation(key: Any, x: Any, axis: int = 0, *, independent: bool = False) -> Array:
    """Return `x` in random order along `axis`; for an int the numbers below it, as int64.

    Args:
        key: uint32 [..., 2].
        x: an int, or an array.
        axis: the axis to permute.
        independent: permute each line along the axis by itself, not all alike.

    Returns:
        An array [..., *x.shape].
    """
    keys = key_operand(key)
    lead = keys.shape[:-1]
    if isinstance(x, (int, np.integer)):
        if x < 0:
            raise ArgumentError(f"permutation: cannot order {x} numbers", "pass an int >= 0")
        return _shuffled(keys, int(x))
    array = operand("permutation", x)
    if not array.shape:
        raise ShapeError(
            f"permutation: {describe(array)} has no axis to permute", "pass an int, or an array"
        )
    place = normalize_axis("permutation", axis, len(array.shape))
    if independent:
        return _shuffle(keys, _f.broadcast_to(array, (*lead, *array.shape)), place + len(lead))
    return _pick(array, _shuffled(keys, array.shape[place]), place, len(lead))


def choice(
    key: Any, a: Any, shape: Any = (), *, replace: bool = True, p: Any = None, axis: int = 0
) -> Array:
    """Return elements of `a` drawn along `axis`; for an int numbers below it, as int64.

    Args:
        key: uint32 [..., 2].
        a: an int, or an array.
        shape: of the draw of one key, which stands in the result in place of the axis.
        replace: whether an element may be drawn more than once.
        p: floating [n]: a probability for each of the n elements; by default all are alike.
        axis: of the array `a`.

    Raises:
        ArgumentError: nothing to draw from, or fewer elements than draws without replacement.
        ShapeError: `p` has another shape.

    Reference: without replacement by `p`, the Gumbel top-k trick: Kool, van Hoof, Welling,
    "Stochastic Beams and Where to Find Them", 2019, section 2.3.
    """
    keys = key_operand(key)
    extents = shape_of("choice", shape)
    array = None if isinstance(a, (int, np.integer)) else operand("choice", a)
    place = 0
    if array is None:
        count = int(a)
    else:
        place = normalize_axis("choice", axis, len(array.shape))
        count = array.shape[place]
    draws = math.prod(extents)
    if draws and count <= 0:
        raise ArgumentError("choice: there is nothing to draw from", "pass at least one element")
    if not replace and draws > count:
        raise ArgumentError(
            f"choice: {draws} draws without replacement from {count} elements",
            "draw fewer, or pass replace=True",
        )
    index = _chosen(keys, count, extents, replace, p)
    return index if array is None else _pick(array, index, place, len(keys.shape) - 1)


def _chosen(key: Array, count: int, shape: Shape, replace: bool, p: Any) -> Array:
    """Return the positions that `choice` draws, int64 [lead.., *shape]."""
    lead = key.shape[:-1]
    draws = math.prod(shape)
    if p is None:
        if replace:
            return randint(key, shape, 0, max(count, 1))
        return _f.reshape(_shuffled(key, count)[..., :draws], (*lead, *shape))
    chance = operand("choice", p)
    require_float("choice", chance)
    if chance.shape != (count,):
        raise ShapeError(
            f"choice: p must have the shape [{count}], got {describe(chance)}",
            "pass one probability for each element",
        )
    if replace:
        total = _f.cumsum(chance)
        drawn = _f.multiply(total[-1], _f.subtract(1, uniform(key, shape, chance.dtype)))
        return _f.searchsorted(total, drawn)
    noisy = _f.add(gumbel(key, (count,), chance.dtype), _f.log(chance))
    return _f.reshape(_f.top_k(noisy, draws)[1], (*lead, *shape))
