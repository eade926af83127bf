"""The gated delta rule (Kimi delta attention): linear attention whose state forgets and corrects.

A head keeps a matrix S [key depth, value depth]. Each token lets it decay, row by row, takes out
what the state already says about its key, and writes its value instead:

    S = (I - beta k k^T) diag(exp(log_decay)) S + beta k v^T        out = scale * S^T q

`kda` computes whole sequences in chunks, with matrix products; `kda_step` one token after the
other. Both give the same numbers, up to rounding.

Reference: Kimi Linear, arXiv:2510.26692; the chunks are those of Yang et al., arXiv:2412.06464.
"""

from __future__ import annotations

import math
from typing import Any, Final

from pyeffect_torch.control.scan import scan
from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.base import describe, mixed_dtypes, operand, require_float
from pyeffect_torch.ops.triangular import triangular_solve

_f: Any = late.functions

PIECE: Final = 16
"""Tokens between which decays are multiplied out pair by pair; larger ones meet at a border."""


def kda(
    q: Any,
    k: Any,
    v: Any,
    log_decay: Any,
    beta: Any,
    *,
    scale: float | None = None,
    state: Any = None,
    chunk_size: int = 64,
) -> tuple[Array, Array]:
    """Return the gated delta rule over sequences, and the state after their last token.

    Args:
        q, k: floating [.., length, key depth]; keys are best of norm 1.
        v: [.., length, value depth].
        log_decay: [.., length, key depth], 0 or less: the logarithm of what is kept.
        beta: [.., length], from 0 to 1: how much of the old value is replaced.
        scale: of the result; None: `1 / sqrt(key depth)`.
        state: [.., key depth, value depth] to go on with, of the dtype that is computed in; None:
            zeros.
        chunk_size: tokens that are computed together.

    Returns:
        `(out, state)`: [.., length, value depth] in the dtype of `q`, and the state; half types
        compute in float32, and so is the state.

    Raises:
        ShapeError: shapes that do not fit. DTypeError: other than one floating dtype.
        ArgumentError: a chunk size below 1.
    """
    arrays = _operands("kda", (q, k, v, log_decay, beta), 2)
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise ArgumentError(f"kda: chunk_size is {chunk_size!r}", "pass an int of 1 or more")
    q, k, v, log_decay, beta = arrays
    lead, (length, depth), width = q.shape[:-2], q.shape[-2:], v.shape[-1]
    start = _state("kda", state, q, (*lead, depth, width))
    if length == 0:
        return v, start
    size, piece = _sizes(length, chunk_size)
    count = -(-length // size)
    rows = math.prod(lead)
    parts = _prepare([_chunks(x, len(lead), count, size) for x in arrays], piece)
    initial = _f.reshape(start, (rows, depth, width))
    last, outs = scan(_chunk_step, initial, [_f.moveaxis(part, 1, 0) for part in parts])
    merged = _f.reshape(_f.moveaxis(outs, 0, 1), (rows, count * size, width))[:, :length]
    factor = depth**-0.5 if scale is None else scale
    out = _f.cast(_f.multiply(merged, factor), q.dtype)
    return _f.reshape(out, v.shape), _f.reshape(last, start.shape)


def kda_step(
    q: Any, k: Any, v: Any, log_decay: Any, beta: Any, state: Any, *, scale: float | None = None
) -> tuple[Array, Array]:
    """Return the gated delta rule for one token, and the state after it; see `kda`.

    Args:
        q, k, log_decay: floating [.., key depth]. v: [.., value depth]. beta: [..].
        state: [.., key depth, value depth], in float32 for half types.
        scale: of the result; None: `1 / sqrt(key depth)`.

    Returns:
        `(out, state)`: [.., value depth] in the dtype of `q`, and the state.
    """
    arrays = _operands("kda_step", (q, k, v, log_decay, beta), 1)
    q, depth, width = arrays[0], arrays[0].shape[-1], arrays[2].shape[-1]
    before = _state("kda_step", state, q, (*q.shape[:-1], depth, width))
    query, key, value, decay, share = (_wide(x) for x in arrays)
    kept = _f.multiply(before, _f.expand_dims(_f.exp(decay), -1))
    known = _f.sum(_f.multiply(kept, _f.expand_dims(key, -1)), -2)
    change = _f.multiply(_f.subtract(value, known), _f.expand_dims(share, -1))
    after = _f.add(kept, _f.multiply(_f.expand_dims(key, -1), _f.expand_dims(change, -2)))
    out = _f.sum(_f.multiply(after, _f.expand_dims(query, -1)), -2)
    factor = depth**-0.5 if scale is None else scale
    return _f.cast(_f.multiply(out, factor), q.dtype), after


def _wide(x: Array) -> Array:
    return _f.cast(x, dtypes.accumulator(x.dtype))


def _operands(name: str, given: tuple[Any, ...], token_axes: int) -> list[Array]:
    """Check the shapes; `token_axes` is 2 with a length, 1 for one token."""
    arrays = [operand(name, x) for x in given]
    q, k, v, log_decay, beta = arrays
    require_float(name, q)
    for other in arrays[1:]:
        if other.dtype is not q.dtype:
            raise mixed_dtypes(name, q, other)
    tokens = q.shape[:-1]
    fits = len(q.shape) >= token_axes and k.shape == q.shape == log_decay.shape
    if not fits or not v.shape or v.shape[:-1] != tokens or beta.shape != tokens:
        raise ShapeError(
            f"{name}: q {describe(q)}, k {describe(k)}, v {describe(v)}, log_decay "
            f"{describe(log_decay)} and beta {describe(beta)} do not fit",
            "q, k and log_decay have one shape, v another last axis, beta none",
        )
    return arrays


def _state(name: str, state: Any, q: Array, shape: Shape) -> Array:
    dtype = dtypes.accumulator(q.dtype)
    if state is None:
        return _f.zeros(shape, dtype)
    given = operand(name, state)
    if given.dtype is not dtype:
        raise mixed_dtypes(name, _wide(q), given)
    if given.shape != shape:
        raise ShapeError(
            f"{name}: the state {describe(given)} must have shape {list(shape)}",
            "pass the state that an earlier call returned",
        )
    return given


def _sizes(length: int, chunk_size: int) -> tuple[int, int]:
    """Tokens of a chunk, and of the pieces that it is made of."""
    if min(length, chunk_size) <= PIECE:
        tokens = min(length, chunk_size)
        return tokens, tokens
    size = min(-(-length // PIECE) * PIECE, chunk_size)
    return size, math.gcd(size, PIECE)


def _chunks(x: Array, lead: int, count: int, size: int) -> Array:
    """[rows, chunks, tokens, ..]; tokens that are missing are zeros, which change nothing."""
    rows, length, rest = math.prod(x.shape[:lead]), x.shape[lead], x.shape[lead + 1 :]
    flat = _f.reshape(_wide(x), (rows, length, *rest))
    missing = count * size - length
    padded = _f.pad(flat, ((0, 0), (0, missing), *((0, 0),) * len(rest)))
    return _f.reshape(padded, (rows, count, size, *rest))


def _prepare(chunks: list[Array], piece: int) -> list[Array]:
    """What a step needs of each chunk: all that does not depend on the state.

    With G the sum of log_decay up to a token (in its chunk) and A[i, j] the product of key i and
    key j under the decay between them, the changes U of the state solve the triangular system
    `(I + beta A) U = beta (V - (K exp G) S)`, so `U = Wv - Wk S`.
    """
    q, k, v, log_decay, beta = chunks
    total = _f.cumsum(log_decay, 2)
    last = total[:, :, -1:]
    products = _decayed_products(q, k, total, piece)
    size = q.shape[2]
    queries, keys = products[..., :size, :], products[..., size:, :]
    share = _f.expand_dims(beta, -1)
    grown = _f.exp(total)
    sides = _f.multiply(_f.concatenate([v, _f.multiply(k, grown)], -1), share)
    solved = triangular_solve(_f.multiply(keys, share), sides, lower=True, unit_diagonal=True)
    width = v.shape[-1]
    return [
        solved[..., :width],
        solved[..., width:],
        _f.multiply(q, grown),
        _f.tril(queries),
        _f.multiply(k, _f.exp(_f.subtract(last, total))),
        _f.exp(_f.squeeze(last, 2)),
    ]


def _decayed_products(q: Array, k: Array, total: Array, piece: int) -> Array:
    """Queries by keys over keys by keys, [.., 2 size, size], right on and below the diagonal.

    The decay between two tokens of one piece is `exp` of a difference, pair by pair. Tokens of
    different pieces meet at the border in front of the later one: both exponents are 0 or less
    there, so nothing overflows however strong the decay is.
    """
    size = q.shape[2]
    both = _f.stack([q, k], 2)  # [rows, chunks, 2, size, depth]
    blocks: list[Array] = []
    for start in range(0, size, piece):
        stop = start + piece
        mine, sums = both[:, :, :, start:stop], total[:, :, start:stop]
        between = _f.subtract(_f.expand_dims(sums, 3), _f.expand_dims(sums, 2))
        order = _f.reshape(_f.tri(piece, dtype=dtypes.bool_), (piece, piece, 1))
        decay = _f.exp(_f.where(order, between, 0))
        meeting = _f.multiply(decay, _f.expand_dims(k[:, :, start:stop], 2))
        near = _f.sum(
            _f.multiply(_f.expand_dims(mine, 4), _f.expand_dims(meeting, 2)), -1
        )  # [rows, chunks, 2, piece, piece]
        parts = [near]
        if start:
            border = total[:, :, start - 1 : start]
            left = _f.multiply(mine, _f.expand_dims(_f.exp(_f.subtract(sums, border)), 2))
            right = _f.multiply(k[:, :, :start], _f.exp(_f.subtract(border, total[:, :, :start])))
            parts.insert(0, _f.matmul(left, _f.swapaxes(_f.expand_dims(right, 2), -1, -2)))
        row = _f.concatenate(parts, -1)
        blocks.append(_f.pad(row, ((0, 0),) * 4 + ((0, size - stop),)))
    found = _f.concatenate(blocks, 3)
    return _f.reshape(found, (*found.shape[:2], 2 * size, size))


def _chunk_step(state: Array, parts: list[Array]) -> tuple[Array, Array]:
    values, taken, queries, inside, keys, kept = parts
    changes = _f.subtract(values, _f.matmul(taken, state))
    out = _f.add(_f.matmul(queries, state), _f.matmul(inside, changes))
    added = _f.matmul(_f.swapaxes(keys, -1, -2), changes)
    return _f.add(_f.multiply(state, _f.expand_dims(kept, -1)), added), out
