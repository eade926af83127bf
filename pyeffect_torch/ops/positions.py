"""Positions in a sequence: rotary embedding, and a table of learned ones."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.ops.base import describe, operand, require_float, require_integer
from pyeffect_torch.ops.options import require_int
from pyeffect_torch.ops.shape import expand_dims, reshape

__all__ = ["position_embedding", "rotary_embedding"]

_f: Any = late.functions


def rotary_embedding(
    x: Any, positions: Any = None, *, base: float = 10000.0, interleaved: bool = False
) -> Array:
    """Return `x` with pairs of its elements rotated by angles that grow with their position.

    Pair j of a row at position p is rotated by `p * base ** (-2 j / depth)`. As models trained
    elsewhere expect, the frequency and the angle are each rounded to float32; half types are
    rotated in float32.

    Args:
        x: floating [.., length, depth], the depth even.
        positions: integers of a shape that broadcasts to `[.., length]`; None: 0, 1, 2, ..
        base: the ratio between the fastest and the slowest frequency, about.
        interleaved: pairs are neighbours (2 j, 2 j + 1), instead of (j, j + depth / 2).

    Raises:
        ShapeError: an odd depth, fewer than two axes, or positions that do not fit.
        DTypeError: `x` is not floating, or the positions not integers.

    Reference: Su et al., RoFormer, arXiv:2104.09864, equation 34.
    """
    x = operand("rotary_embedding", x)
    require_float("rotary_embedding", x)
    if len(x.shape) < 2 or x.shape[-1] % 2:
        raise ShapeError(
            f"rotary_embedding: needs [.., length, even depth], got {describe(x)}",
            "split heads first, so that the last axis is the depth of one head",
        )
    half = x.shape[-1] // 2
    pair_axis = -1 if interleaved else -2
    pairs = reshape(x, (*x.shape[:-1], *((half, 2) if interleaved else (2, half))))
    wide = _f.cast(pairs, dtypes.accumulator(x.dtype))
    angles = expand_dims(_angles(x, positions, half, base), pair_axis)
    angles = _f.cast(angles, wide.dtype)
    # (a, b) becomes (a cos - b sin, b cos + a sin): the other one of the pair is a view.
    sign = _f.subtract(_f.multiply(_f.iota((2,), wide.dtype), 2), 1)
    sign = reshape(sign, (1, 2) if interleaved else (2, 1))
    turned = _f.multiply(_f.flip(wide, pair_axis), _f.multiply(_f.sin(angles), sign))
    rotated = _f.add(_f.multiply(wide, _f.cos(angles)), turned)
    return reshape(_f.cast(rotated, x.dtype), x.shape)


def _angles(x: Array, positions: Any, half: int, base: float) -> Array:
    """Angles [.., length, half] in float32, from frequencies that were rounded to it."""
    if positions is None:
        at = _f.iota((x.shape[-2],))
    else:
        at = operand("rotary_embedding", positions)
        require_integer("rotary_embedding", at, "positions")
        rows = x.shape[:-1]
        shown = (1,) * (len(rows) - len(at.shape)) + at.shape
        if len(at.shape) > len(rows) or any(
            n not in (1, m) for n, m in zip(shown, rows, strict=True)
        ):
            raise ShapeError(
                f"rotary_embedding: positions {describe(at)} do not fit {describe(x)}",
                "give one for each row, [length] or a shape that broadcasts to [.., length]",
            )
    exponents = _f.multiply(_f.iota((half,), dtypes.float64), -1.0 / max(half, 1))
    frequencies = _f.cast(_f.power(literal(base, dtypes.float64), exponents), dtypes.float32)
    return _f.multiply(expand_dims(_f.cast(at, dtypes.float32), -1), frequencies)


def position_embedding(table: Any, length: int, *, offset: Any = 0) -> Array:
    """Return the rows of a table of learned positions for a sequence.

    Args:
        table: [positions, depth], any dtype.
        length: of the sequence.
        offset: the position of its first element: an int, or integers of any shape (a cursor for
            each sequence of a batch).

    Returns:
        [length, depth], or [.., length, depth] for offsets of shape [..].

    Raises:
        ShapeError: no matrix, or positions beyond the table. IndexOutOfBoundsError: positions that
            are computed lie beyond it. DTypeError: offsets that are no integers.
    """
    table = operand("position_embedding", table)
    if len(table.shape) != 2:
        raise ShapeError(
            f"position_embedding: needs a table [positions, depth], got {describe(table)}",
            "give one row for each position",
        )
    rows = require_int("position_embedding", length, "length")
    if isinstance(offset, (int, bool)):
        if offset < 0 or rows < 0 or offset + rows > table.shape[0]:
            raise ShapeError(
                f"position_embedding: positions {offset} to {offset + rows} do not lie in the "
                f"{table.shape[0]} rows of {describe(table)}",
                "use a shorter sequence or a longer table",
            )
        return table[offset : offset + rows]
    first = operand("position_embedding", offset)
    require_integer("position_embedding", first, "the offset")
    return _f.embedding(_f.add(expand_dims(first, -1), _f.iota((rows,), first.dtype)), table)
