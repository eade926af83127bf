"""Random numbers from explicit keys: keys, bits and real distributions, for `et.random`.

A key is uint32 [..., 2] and a value like any other: the same key draws the same numbers. Leading
axes of a key are batch axes of the result. The bits are those of `jax.random` with partitionable
threefry; uniform numbers too, normal ones within 2 units in the last place. Integers and choices
are in `discrete.py`.
"""

from __future__ import annotations

import math
from typing import Any, Final

import ml_dtypes
import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.base import (
    broadcast_shapes,
    describe,
    is_number,
    operand,
    require_integer,
    resolve_dtype,
    shape_of,
)
from pyeffect_torch.ops.erfinv import erfinv
from pyeffect_torch.ops.threefry import (
    FORM_LONG,
    FORM_PAIR,
    FORM_WORD,
    RANDOM_FOLD_IN,
    draw_bits,
)

_f: Any = late.functions

_LOW_WORD: Final = 0xFFFFFFFF
UNSIGNED: Final = {
    8: dtypes.uint8,
    16: dtypes.uint16,
    32: dtypes.uint32,
    64: dtypes.uint64,
}
# For each floating dtype: how many random bits a uniform number takes, how many it keeps.
_MANTISSA: Final = {
    dtypes.float16: (16, 10),
    dtypes.bfloat16: (8, 7),
    dtypes.float32: (32, 23),
    dtypes.float64: (64, 52),
}


def floating(name: str, dtype: DTypeLike) -> DType:
    """Return a dtype argument that must be floating."""
    found = resolve_dtype(name, dtype)
    if not dtypes.is_float(found):
        raise DTypeError(f"{name}: draws floating numbers, not {found.name}", "use randint or bits")
    return found


# --- keys and bits


def key(seed: Any) -> Array:
    """Return the key [2] of a seed: the high and the low word of its 64 bits.

    Args:
        seed: an int that fits 64 bits, or an integer array of shape [].
    """
    if isinstance(seed, (int, np.integer)):
        number = int(seed)
        if not -(1 << 63) <= number < 1 << 64:
            raise ArgumentError(f"key: the seed {number} does not fit 64 bits", "use a smaller one")
        words = (number >> 32) & _LOW_WORD, number & _LOW_WORD
        return _f.array(np.array(words, np.uint32))
    array = operand("key", seed)
    require_integer("key", array, "the seed")
    if array.shape:
        raise ShapeError(f"key: the seed has shape [], got {describe(array)}", "use split or vmap")
    wide = array if array.dtype is dtypes.uint64 else _f.cast(array, dtypes.int64)
    high = _f.cast(_f.bitwise_and(_f.right_shift(wide, 32), _LOW_WORD), dtypes.uint32)
    low = _f.cast(_f.bitwise_and(wide, _LOW_WORD), dtypes.uint32)
    return _f.stack([high, low])


def key_operand(key: Any) -> Array:
    """Return a key argument as an array; forgetting it is the usual mistake."""
    if not isinstance(key, (Array, np.ndarray)):
        raise ArgumentError(
            f"random: the first argument must be a key, got {type(key).__name__}",
            "pass a key first: et.random.normal(et.random.key(0), shape)",
        )
    return operand("random", key)


def split(key: Any, n: Any = 2) -> Array:
    """Return `n` new keys [..., n, 2] for each key; an `n` of several ints gives several axes."""
    return draw_bits(key_operand(key), shape_of("split", n), FORM_PAIR)


def fold_in(key: Any, data: Any) -> Array:
    """Return the key that belongs to a number, another one for each number.

    Args:
        key: uint32 [..., 2].
        data: an int below 2**32, or an integer array that broadcasts with the key's batch axes.
    """
    keys = key_operand(key)
    if isinstance(data, (int, np.integer)):
        if not 0 <= data <= _LOW_WORD:
            raise ArgumentError(f"fold_in: {data} is not in 0 .. 2**32 - 1", "reduce it first")
        values = literal(int(data), dtypes.uint32)
    else:
        values = operand("fold_in", data)
        require_integer("fold_in", values, "the data")
        values = _f.cast(values, dtypes.uint32)
    lead = keys.shape[:-1]
    if values.shape != lead:
        shape = broadcast_shapes("fold_in", lead, values.shape)
        keys = _f.broadcast_to(keys, (*shape, *keys.shape[-1:]))
        values = _f.broadcast_to(values, shape)
    return bind(RANDOM_FOLD_IN, (keys, values))


def bits(key: Any, shape: Any = (), dtype: DTypeLike = "uint32") -> Array:
    """Return random bits of an unsigned dtype, [..., *shape] for keys [..., 2]."""
    found = resolve_dtype("bits", dtype)
    if found not in dtypes.UNSIGNED:
        raise DTypeError(
            f"bits: draws unsigned integers, not {found.name}", "pass dtype='uint32' or so"
        )
    return words(key_operand(key), shape_of("bits", shape), found)


def words(key: Array, shape: Shape, dtype: DType) -> Array:
    """`bits` for what is checked already."""
    drawn = draw_bits(key, shape, FORM_LONG if dtype is dtypes.uint64 else FORM_WORD)
    return _f.cast(drawn, dtype)


# --- real numbers


def uniform(
    key: Any,
    shape: Any = (),
    dtype: DTypeLike = "float32",
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> Array:
    """Return numbers [..., *shape] evenly distributed in [minval, maxval).

    Args:
        key: uint32 [..., 2].
        shape: of the draw of one key.
        dtype: floating; a number has as many random bits as its mantissa stores.
        minval, maxval: numbers, or arrays that broadcast with the result.
    """
    found = floating("uniform", dtype)
    extents = shape_of("uniform", shape)
    drawn, kept = _MANTISSA[found]
    drawn_words = words(key_operand(key), extents, UNSIGNED[drawn])
    fraction = _f.cast(_f.right_shift(drawn_words, drawn - kept), found)
    unit = _f.multiply(fraction, 2.0**-kept)  # exact: the fraction has no more than `kept` bits
    if isinstance(minval, (int, float)) and isinstance(maxval, (int, float)):
        low, high = found.type(minval), found.type(maxval)
        if low == 0 and high == 1:
            return unit
        bottom, span = literal(low, found), literal(high - low, found)
    else:
        bottom, top = _parameter("uniform", minval, found), _parameter("uniform", maxval, found)
        span = _f.subtract(top, bottom)
    value = _f.add(_f.multiply(unit, span), bottom)
    return _f.where(_f.less(value, bottom), bottom, value)


def _parameter(name: str, value: Any, dtype: DType) -> Array:
    if isinstance(value, (int, float)):
        return literal(value, dtype)
    return _f.cast(operand(name, value), dtype)


def _below_one(dtype: DType) -> float:
    """The largest number of `dtype` below 1."""
    return 1.0 - dtypes.epsilon(dtype) / 2


def normal(key: Any, shape: Any = (), dtype: DTypeLike = "float32") -> Array:
    """Return numbers [..., *shape] with the standard normal distribution."""
    found = floating("normal", dtype)
    drawn = uniform(key, shape, found, -_below_one(found), 1.0)
    return _f.multiply(erfinv(drawn), math.sqrt(2))


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: DTypeLike = "float32"
) -> Array:
    """Return standard normal numbers [..., *shape] conditioned on lying in (lower, upper).

    A draw follows the bounds: it has derivatives by them.

    Args:
        key: uint32 [..., 2].
        lower, upper: numbers, or arrays.
        shape: of the draw of one key, that the bounds broadcast to; by default what they make.
        dtype: floating.

    Raises:
        ArgumentError: the bounds are numbers and the interval is empty.
    """
    found = floating("truncated_normal", dtype)
    if is_number(lower) and is_number(upper):
        if not lower < upper:
            raise ArgumentError(
                f"truncated_normal: the interval ({lower}, {upper}) is empty", "pass lower < upper"
            )
        bounds = [found.type(value) for value in (lower, upper)]
        tails: list[Any] = [math.erf(float(bound) * math.sqrt(0.5)) for bound in bounds]
        inside: list[Any] = [float(np.nextafter(a, b)) for a, b in (bounds, bounds[::-1])]
        extents = shape_of("truncated_normal", () if shape is None else shape)
    else:
        low, high = (_parameter("truncated_normal", value, found) for value in (lower, upper))
        tails = [_f.erf(_f.multiply(bound, math.sqrt(0.5))) for bound in (low, high)]
        fixed = [_f.stop_gradient(bound) for bound in (low, high)]
        inside = [_f.nextafter(a, b) for a, b in (fixed, fixed[::-1])]
        common = broadcast_shapes("truncated_normal", low.shape, high.shape)
        extents = common if shape is None else shape_of("truncated_normal", shape)
    drawn = uniform(key, extents, found, *tails)
    value = _f.multiply(erfinv(drawn), math.sqrt(2))
    # Rounding must not reach the bounds themselves.
    return _f.clip(value, *inside)


def exponential(key: Any, shape: Any = (), dtype: DTypeLike = "float32") -> Array:
    """Return numbers [..., *shape] with the exponential distribution of mean 1."""
    found = floating("exponential", dtype)
    return _f.negative(_f.log1p(_f.negative(uniform(key, shape, found))))


def laplace(key: Any, shape: Any = (), dtype: DTypeLike = "float32") -> Array:
    """Return numbers [..., *shape] with the Laplace distribution of mean 0 and scale 1."""
    found = floating("laplace", dtype)
    drawn = uniform(key, shape, found, -_below_one(found), 1.0)
    return _f.multiply(_f.sign(drawn), _f.log1p(_f.negative(_f.abs(drawn))))


def gumbel(key: Any, shape: Any = (), dtype: DTypeLike = "float32") -> Array:
    """Return numbers [..., *shape] with the standard Gumbel distribution."""
    found = floating("gumbel", dtype)
    drawn = uniform(key, shape, found, float(ml_dtypes.finfo(found).tiny), 1.0)
    return _f.negative(_f.log(_f.negative(_f.log(drawn))))


def cauchy(key: Any, shape: Any = (), dtype: DTypeLike = "float32") -> Array:
    """Return numbers [..., *shape] with the standard Cauchy distribution."""
    found = floating("cauchy", dtype)
    drawn = uniform(key, shape, found, dtypes.epsilon(found), 1.0)
    return _f.tan(_f.multiply(_f.subtract(drawn, 0.5), math.pi))


def logistic(key: Any, shape: Any = (), dtype: DTypeLike = "float32") -> Array:
    """Return numbers [..., *shape] with the standard logistic distribution."""
    found = floating("logistic", dtype)
    drawn = uniform(key, shape, found, float(ml_dtypes.finfo(found).tiny), 1.0)
    return _f.subtract(_f.log(drawn), _f.log1p(_f.negative(drawn)))
