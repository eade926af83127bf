"""What each op computes, by NumPy's function of its name or written out element by element.

Every entry takes the opcode's attributes and the operands: floats widened to float64, integers and
bools in their own dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

Peer = Callable[..., Any]

OF_BITS = {"bitcast", "random_bits", "random_fold_in"}
"""Ops that look at the bits of their operands, which are therefore not widened."""
FLOAT64_ONLY = {"attention_grad"}
"""Ops whose operands contain results of others, which are rounded in narrower dtypes."""


def numpys(function: Callable[..., Any]) -> Peer:
    """A NumPy function of the operands alone."""
    return lambda attributes, *arrays: function(*arrays)


def each(function: Callable[..., Any], dtype: Any = None) -> Peer:
    """A function of Python numbers, on each element; the result has the first operand's dtype."""

    def peer(attributes: Any, *arrays: Any) -> Any:
        spread = np.broadcast_arrays(*arrays)
        flat = [x.ravel().tolist() for x in spread]
        target = dtype or arrays[0].dtype
        values = [wrapped(function(*row), target) for row in zip(*flat, strict=True)]
        return np.array(values, target).reshape(spread[0].shape)

    return peer


def wrapped(value: Any, dtype: Any) -> Any:
    """A Python number as an integer dtype holds it after overflow; floats as they are."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        return value
    bits = 8 * dtype.itemsize
    value = int(value) % 2**bits
    return value - 2**bits if dtype.kind == "i" and value >= 2 ** (bits - 1) else value


def by_kind(floats: Callable[..., Any], integers: Callable[..., Any]) -> Peer:
    """NumPy's function for floats, Python's arithmetic for integers."""

    def peer(attributes: Any, *arrays: Any) -> Any:
        if arrays[0].dtype.kind == "f":
            return floats(*arrays)
        return each(integers)(attributes, *arrays)

    return peer


def integer_power(x: int, n: int) -> int:
    """x ** n; for a negative n the reciprocal, which is 0 but for 1 and -1."""
    if n >= 0:
        return x**n
    return x**-n if x in (1, -1) else 0


def static_power(attributes: Any, x: Any) -> Any:
    n = attributes["exponent"]
    return by_kind(lambda a: a ** float(n), lambda a: integer_power(a, n))(attributes, x)


def erfinv(y: float) -> float:
    """The root of erf(x) = y by halving an interval."""
    low, high = -6.0, 6.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if math.erf(middle) < y else (low, middle)
    return low


def polygamma(attributes: Any, x: Any) -> Any:
    """A thousand terms of the series, and the rest as integrals by the midpoint rule."""
    n = attributes["order"]
    terms = x[..., None] + np.arange(1000.0)
    z = x + 999.5
    if n == 0:
        return np.log(z) + 1 / (24 * z**2) - (1 / terms).sum(-1)
    total = (terms ** (-n - 1)).sum(-1) + z**-n / n - (n + 1) / 24 * z ** (-n - 2)
    return (-1) ** (n + 1) * math.factorial(n) * total


def bessel_i(attributes: Any, x: Any) -> Any:
    """The power series in exact fractions."""
    n = attributes["order"]

    def value(given: float) -> float:
        half = Fraction(given) / 2
        terms = (half ** (2 * k + n) / (math.factorial(k) * math.factorial(k + n))
                 for k in range(20))  # fmt: skip
        return float(sum(terms))

    return each(value)(attributes, x)


def shift(left: bool) -> Peer:
    def peer(attributes: Any, x: Any, y: Any) -> Any:
        bits = 8 * x.dtype.itemsize
        return each(
            lambda a, n: (a << n if left else a >> n) if 0 <= n < bits else (-1 if a < 0 < 1 - left
                                                                             else 0)
        )(attributes, x, y)  # fmt: skip

    return peer


def cast(attributes: Any, x: Any) -> Any:
    target = np.dtype(attributes["dtype"])

    def convert(value: Any) -> Any:
        if target == np.bool_:
            return value != 0
        if target.kind not in "iu" or x.dtype.kind != "f":
            return value
        info = np.iinfo(target)
        return min(max(math.trunc(value), int(info.min)), int(info.max))

    if target.kind == "f" or target == ml_dtypes.bfloat16:
        return x.astype(np.float64).astype(target)
    return each(convert, target)(attributes, x)


def window(x: Any, starts: Any, sizes: Any) -> Any:
    return tuple(slice(int(s), int(s) + n) for s, n in zip(starts, sizes, strict=True))


def take_slice(attributes: Any, x: Any) -> Any:
    rows = zip(attributes["starts"], attributes["sizes"], attributes["steps"], strict=True)
    for axis, (start, size, step) in enumerate(rows):
        x = np.take(x, [start + k * step for k in range(size)], axis)
    return x


def pad(attributes: Any, x: Any, fill: Any) -> Any:
    low, high, between = (attributes[key] for key in ("low", "high", "interior"))
    for axis in range(x.ndim):
        rows = [np.take(x, [k], axis) for k in range(x.shape[axis])]
        shape = [*x.shape[:axis], 1, *x.shape[axis + 1 :]]
        blank = np.full(shape, fill, x.dtype)
        parts = [blank] * low[axis]
        for k, row in enumerate(rows):
            parts += [*([blank] * between[axis] if k else []), row]
        parts += [blank] * high[axis]
        none = np.full([*x.shape[:axis], 0, *x.shape[axis + 1 :]], fill, x.dtype)
        x = np.concatenate([none, *parts], axis)
    return x


def update(attributes: Any, x: Any, new: Any, starts: Any) -> Any:
    out = x.copy()
    out[window(x, starts, new.shape)] = new
    return out


# --- indices


def position(index: Any, extent: int, mode: int) -> int | None:
    """Where an index points: negative ones count from the end, or are clipped, or are dropped."""
    index = int(index)
    if mode == 0:
        assert -extent <= index < extent
        return index % extent
    if mode == 1:
        return min(max(index, 0), extent - 1)
    assert mode == 2 or 0 <= index < extent
    return index if 0 <= index < extent else None


def blank_of(x: Any) -> Any:
    return np.nan if x.dtype.kind == "f" else 0


def take(attributes: Any, x: Any, index: Any) -> Any:
    axis, shared, mode = attributes["axis"], attributes["batch_dims"], attributes["mode"]
    tail = index.shape[shared:]
    out = np.full((*x.shape[:axis], *tail, *x.shape[axis + 1 :]), blank_of(x), x.dtype)
    for at in np.ndindex(*out.shape):
        lead, rest = at[:axis], at[axis + len(tail) :]
        found = position(index[(*at[:shared], *at[axis : axis + len(tail)])], x.shape[axis], mode)
        if found is not None:
            out[at] = x[(*lead, found, *rest)]
    return out


def take_along_axis(attributes: Any, x: Any, index: Any) -> Any:
    axis, mode = attributes["axis"], attributes["mode"]
    out = np.full(index.shape, blank_of(x), x.dtype)
    for at in np.ndindex(*index.shape):
        found = position(index[at], x.shape[axis], mode)
        if found is not None:
            out[at] = x[(*at[:axis], found, *at[axis + 1 :])]
    return out


COMBINE: tuple[Callable[[Any, Any], Any], ...] = (
    lambda old, new: old + new,
    lambda old, new: new,
    max,
    min,
    lambda old, new: old * new,
)


def combine(out: Any, at: Any, new: Any, kind: int) -> None:
    value = COMBINE[kind](out[at].item(), new.item())
    out[at] = wrapped(value, out.dtype)


def scatter(attributes: Any, x: Any, index: Any, updates: Any) -> Any:
    axis, shared, mode = attributes["axis"], attributes["batch_dims"], attributes["mode"]
    count = index.ndim - shared
    out = x.copy()
    # In the order of the index array, so that of several writes the last stays.
    for at in sorted(np.ndindex(*updates.shape), key=lambda at: at[axis : axis + count]):
        found = position(index[(*at[:shared], *at[axis : axis + count])], x.shape[axis], mode)
        if found is not None:
            combine(out, (*at[:axis], found, *at[axis + count :]), updates[at], attributes["kind"])
    return out


def scatter_along_axis(attributes: Any, x: Any, index: Any, updates: Any) -> Any:
    axis, mode = attributes["axis"], attributes["mode"]
    out = x.copy()
    for at in np.ndindex(*index.shape):
        found = position(index[at], x.shape[axis], mode)
        if found is not None:
            combine(out, (*at[:axis], found, *at[axis + 1 :]), updates[at], attributes["kind"])
    return out


# --- reductions


def reduced(function: Callable[..., Any]) -> Peer:
    def peer(attributes: Any, x: Any) -> Any:
        options = {"dtype": x.dtype} if function in (np.sum, np.prod) else {}
        return function(x, axis=tuple(attributes["axes"]), **options)

    return peer


def running(step: Callable[[Any, Any], Any]) -> Peer:
    def peer(attributes: Any, x: Any) -> Any:
        rows = list(np.moveaxis(x, attributes["axis"], 0))
        if attributes["reverse"]:
            rows.reverse()
        for k in range(1, len(rows)):
            rows[k] = np.asarray(step(rows[k - 1], rows[k])).astype(x.dtype)
        if attributes["reverse"]:
            rows.reverse()
        return np.stack(rows, attributes["axis"]) if rows else x

    return peer


def sort(attributes: Any, x: Any) -> Any:
    axis, count = attributes["axis"], attributes["count"]
    sign = -1 if attributes["descending"] else 1
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    values, positions = np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    for at in np.ndindex(*x.shape[:axis], *x.shape[axis + 1 :]):
        line = np.moveaxis(x, axis, -1)[at]
        pairs = sorted((sign * value, i) for i, value in enumerate(line.tolist()))
        order = [i for _, i in pairs]
        np.moveaxis(values, axis, -1)[at] = line[order[:count]]
        np.moveaxis(positions, axis, -1)[at] = order[:count]
    return values, positions


def searchsorted(attributes: Any, rows: Any, values: Any) -> Any:
    out = np.zeros(values.shape, np.int64)
    for at in np.ndindex(*values.shape):
        row, value = rows[at[: rows.ndim - 1]], values[at]
        out[at] = sum(bool(v < value or (attributes["right"] and v == value)) for v in row)
    return out


def dot_general(attributes: Any, lhs: Any, rhs: Any) -> Any:
    labels = iter(range(1000))
    left = [next(labels) for _ in lhs.shape]
    right = [next(labels) for _ in rhs.shape]
    batch: list[int] = []
    summed: list[int] = []
    for kind, into in (("contract", summed), ("batch", batch)):
        for a, b in zip(attributes[f"lhs_{kind}"], attributes[f"rhs_{kind}"], strict=True):
            right[b] = left[a]
            into.append(left[a])
    done = {*summed, *batch}
    free = [label for label in (*left, *right) if label not in done]
    return np.einsum(lhs, left, rhs, right, [*batch, *free]).astype(lhs.dtype)


# --- normalisation, losses, attention


def softmax(attributes: Any, x: Any) -> Any:
    powers = np.exp(x)
    return powers / powers.sum(attributes["axis"], keepdims=True)


def log_softmax(attributes: Any, x: Any) -> Any:
    return x - np.log(np.exp(x).sum(attributes["axis"], keepdims=True))


def layer_norm(attributes: Any, x: Any, weight: Any, bias: Any) -> Any:
    if x.size == 0:
        return x
    deviation = np.sqrt(np.var(x, -1, keepdims=True) + attributes["eps"])
    return (x - np.mean(x, -1, keepdims=True)) / deviation * weight + bias


def rms_norm(attributes: Any, x: Any, weight: Any) -> Any:
    if x.size == 0:
        return x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + attributes["eps"]) * weight


def cross_entropy(attributes: Any, logits: Any, labels: Any) -> Any:
    out = np.zeros(labels.shape)
    for at in np.ndindex(*labels.shape):
        if labels[at] != attributes["ignore_index"]:
            out[at] = math.log(np.exp(logits[at]).sum()) - logits[at][int(labels[at])]
    return out


def cross_entropy_grad(attributes: Any, logits: Any, labels: Any, ct: Any) -> Any:
    out = np.zeros(logits.shape)
    for at in np.ndindex(*labels.shape):
        if labels[at] != attributes["ignore_index"]:
            row = np.exp(logits[at]) / np.exp(logits[at]).sum()
            row[int(labels[at])] -= 1
            out[at] = row * ct[at]
    return out


def weights_of_row(attributes: Any, q: Any, k: Any, at: Any, mask: Any) -> Any:
    """The weights of one row of attention, and the log of their sum before division."""
    b, h, i = at
    group = q.shape[1] // k.shape[1]
    rows, keys = q.shape[2], k.shape[2]
    weights = np.zeros(keys)
    for j in range(keys):
        behind = i + keys - rows - j
        near = attributes["window"] == 0 or (
            behind < attributes["window"]
            and (attributes["causal"] or behind > -attributes["window"])
        )
        score = float(q[b, h, i] @ k[b, h // group, j]) * attributes["scale"]
        if mask is not None:
            entry = np.broadcast_to(mask, (*q.shape[:3], keys))[b, h, i, j]
            score = score + entry if mask.dtype != np.bool_ else score if entry else -math.inf
        if near and not (attributes["causal"] and behind < 0):
            weights[j] = math.exp(score)
    total = weights.sum()
    return weights / (total or 1.0), math.log(total) if total else -math.inf


def attention(attributes: Any, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    group = q.shape[1] // max(k.shape[1], 1)
    out, lse = np.zeros((*q.shape[:3], v.shape[3])), np.zeros(q.shape[:3])
    for at in np.ndindex(*q.shape[:3]):
        weights, lse[at] = weights_of_row(attributes, q, k, at, mask)
        out[at] = weights @ v[at[0], at[1] // group]
    return out, lse


def attention_grad(
    attributes: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, ct: Any, mask: Any = None
) -> Any:
    """From the weights alone: what was saved of the forward pass must say the same."""
    group = q.shape[1] // max(k.shape[1], 1)
    q_ct, k_ct, v_ct = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for at in np.ndindex(*q.shape[:3]):
        weights, _ = weights_of_row(attributes, q, k, at, mask)
        shared = (at[0], at[1] // group)
        weights_ct = v[shared] @ ct[at]
        scores_ct = weights * (weights_ct - weights @ weights_ct) * attributes["scale"]
        q_ct[at] = scores_ct @ k[shared]
        k_ct[shared] += np.outer(scores_ct, q[at])
        v_ct[shared] += np.outer(weights, ct[at])
    return q_ct, k_ct, v_ct


# --- matrices


def of_each_matrix(function: Callable[..., Any]) -> Peer:
    """A function of attributes and single matrices, on stacks of them."""

    def peer(attributes: Any, *stacks: Any) -> Any:
        lead = stacks[0].shape[:-2]
        rows = [function(attributes, *(x[at] for x in stacks)) for at in np.ndindex(*lead)]
        if not rows:
            rows = [function(attributes, *(np.eye(*x.shape[-2:]) for x in stacks))]
            return tuple(np.zeros((*lead, *np.shape(part)), np.asarray(part).dtype)
                         for part in rows[0])  # fmt: skip
        parts = zip(*rows, strict=True)
        return tuple(np.stack(part).reshape((*lead, *np.shape(part[0]))) for part in parts)

    return peer


def lu(attributes: Any, a: Any) -> Any:
    """Column after column, the pivot among what is left of it."""
    n = len(a)
    order = list(range(n))
    rows = [[float(e) for e in line] for line in a]
    for j in range(n):
        for i in range(1, n):
            rows[i][j] -= sum(rows[i][k] * rows[k][j] for k in range(min(i, j)))
        pivot = max(range(j, n), key=lambda i: abs(rows[i][j]))
        rows[j], rows[pivot] = rows[pivot], rows[j]
        order[j], order[pivot] = order[pivot], order[j]
        for i in range(j + 1, n):
            rows[i][j] /= rows[j][j]
    turned = sum(order[i] > order[j] for j in range(n) for i in range(j))
    return np.array(rows).reshape(n, n), np.array(order, np.int64), np.float64((-1) ** turned)


def triangular_solve(attributes: Any, a: Any, b: Any) -> Any:
    t = np.tril(a) if attributes["lower"] else np.triu(a)
    if attributes["unit_diagonal"]:
        t = t - np.diag(np.diag(t)) + np.eye(len(t))
    return (np.linalg.solve(t.T if attributes["transpose"] else t, b),)


def cholesky(attributes: Any, a: Any) -> Any:
    """From the pivots of elimination without exchanges."""
    left, rest = np.zeros(a.shape), np.tril(a) + np.tril(a, -1).T
    for j in range(len(a)):
        left[:, j] = rest[:, j] / math.sqrt(rest[j, j])
        rest = rest - np.outer(left[:, j], left[:, j])
    return (np.tril(left),)


def qr(attributes: Any, a: Any) -> Any:
    """The product of reflections, each written out as a matrix."""
    m, n = a.shape
    q, r = np.eye(m), a.copy()
    for j in range(min(m - 1, n)):
        v = np.zeros(m)
        v[j:] = r[j:, j]
        v[j] += math.copysign(float(np.linalg.norm(v)), v[j])
        reflection = np.eye(m) - 2 * np.outer(v, v) / (v @ v)
        q, r = q @ reflection, reflection @ r
    k = m if attributes["complete"] else min(m, n)
    return q[:, :k], np.triu(r[:k])


def with_signs(vectors: Any, others: Any = None) -> Any:
    """Columns whose element of largest magnitude is positive; others turn with them."""
    others = vectors if others is None else others
    found = others.copy()
    for j in range(vectors.shape[1]):
        if len(vectors) and max(vectors[:, j], key=abs) < 0:
            found[:, j] *= -1
    return found


def eigh(attributes: Any, a: Any) -> Any:
    """By the solver for matrices that need not be symmetric."""
    values, vectors = np.linalg.eig(np.tril(a) + np.tril(a, -1).T)
    order = np.argsort(values)
    return values[order], with_signs(vectors[:, order])


def svd(attributes: Any, a: Any) -> Any:
    """From the eigenvectors of the smaller of the two products of the matrix with itself."""
    if a.shape[0] < a.shape[1]:
        v, s, ut = svd(attributes, a.T)
        u = ut.T
        return with_signs(u), s, with_signs(u, v).T
    squares, v = np.linalg.eigh(a.T @ a)
    s, v = np.sqrt(np.maximum(squares, 0)[::-1]), v[:, ::-1]
    u = a @ v / s
    return with_signs(u), s, with_signs(u, v).T


# --- random bits


def threefry(key: Any, counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011), in Python integers."""
    size = 2**32
    keys = (int(key[0]), int(key[1]), 0x1BD11BDA ^ int(key[0]) ^ int(key[1]))
    x, y = (counter[0] + keys[0]) % size, (counter[1] + keys[1]) % size
    for step in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[step % 2]:
            x = (x + y) % size
            y = ((y << turn | y >> (32 - turn)) % size) ^ x
        x = (x + keys[(step + 1) % 3]) % size
        y = (y + keys[(step + 2) % 3] + step + 1) % size
    return x, y


def random_bits(attributes: Any, key: Any) -> Any:
    shape, form = tuple(attributes["shape"]), attributes["form"]
    lead = key.shape[:-1]
    tail = (2,) if form == 2 else ()
    out = np.zeros((*lead, *shape, *tail), np.uint64 if form == 1 else np.uint32)
    for at in np.ndindex(*lead):
        for number, place in enumerate(np.ndindex(*shape)):
            x, y = threefry(key[at], (number >> 32, number % 2**32))
            out[(*at, *place)] = (x ^ y, x << 32 | y, (x, y))[form]
    return out


def random_fold_in(attributes: Any, key: Any, data: Any) -> Any:
    out = np.zeros_like(key)
    for at in np.ndindex(*data.shape):
        out[at] = threefry(key[at], (0, int(data[at])))
    return out


# --- windows


def place_of(attributes: Any, rank: int, at: tuple[int, ...]) -> tuple[int, ...]:
    """Where the element at this index of the windows lies in the array of that rank."""
    place = list(at[:rank])
    lists = (attributes[name] for name in ("axes", "strides", "dilations"))
    for axis, stride, dilation, offset in zip(*lists, at[rank:], strict=True):
        place[axis] = at[axis] * stride + offset * dilation
    return tuple(place)


def window_shape(attributes: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Windows counted by trying one after the other."""
    out = [*shape, *attributes["sizes"]]
    lists = (attributes[name] for name in ("axes", "sizes", "strides", "dilations"))
    for axis, size, stride, dilation in zip(*lists, strict=True):
        starts = range(0, shape[axis], stride)
        out[axis] = sum(1 for first in starts if first + (size - 1) * dilation < shape[axis])
    return tuple(out)


def windows(attributes: Any, x: Any) -> Any:
    out = np.zeros(window_shape(attributes, x.shape), x.dtype)
    for at in np.ndindex(*out.shape):
        out[at] = x[place_of(attributes, x.ndim, at)]
    return out


def window_sum(attributes: Any, x: Any) -> Any:
    rank = x.ndim - len(attributes["axes"])
    shape = list(x.shape[:rank])
    for axis, extent in zip(attributes["axes"], attributes["extents"], strict=True):
        shape[axis] = extent
    out = np.zeros(shape, x.dtype)
    for at in np.ndindex(*x.shape):
        out[place_of(attributes, rank, at)] += x[at]
    return out


def convolution(attributes: Any, x: Any, w: Any) -> Any:
    """Every product by itself: what element of x an output and an element of the kernel meet."""
    lists = [attributes[k] for k in ("strides", "low", "high", "interior", "dilations")]
    shape = [x.shape[0], w.shape[0]]
    for n, size, stride, low, high, gap, dilation in zip(
        x.shape[2:], w.shape[2:], *lists, strict=True
    ):
        whole = low + high + (n + (n - 1) * gap if n else 0)
        shape.append(len(range(0, max(whole - dilation * (size - 1), 0), stride)))
    out = np.zeros(shape)
    share = w.shape[0] // attributes["groups"]
    for n, o, *at in np.ndindex(*shape):
        first = o // share * w.shape[1]
        for c, *offset in np.ndindex(*w.shape[1:]):
            place = []
            for p, k, extent, stride, low, _, gap, dilation in zip(
                at, offset, x.shape[2:], *lists, strict=True
            ):
                along, between = divmod(p * stride + k * dilation - low, gap + 1)
                place.append(along if between == 0 and 0 <= along < extent else None)
            if None not in place:
                out[(n, o, *at)] += x[(n, first + c, *place)] * w[(o, c, *offset)]
    return out


NAMESAKES = (
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "arcsin",
    "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "sqrt", "cbrt",
    "reciprocal", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite",
)  # fmt: skip
"""Ops of one operand that NumPy has under the same name."""
PEERS: dict[str, Peer] = {
    "add": by_kind(np.add, lambda a, b: a + b),
    "subtract": by_kind(np.subtract, lambda a, b: a - b),
    "multiply": by_kind(np.multiply, lambda a, b: a * b),
    "divide": numpys(np.divide),
    "floor_divide": by_kind(np.floor_divide, lambda a, b: a // b),
    "remainder": by_kind(np.remainder, lambda a, b: a % b),
    "power": by_kind(np.power, integer_power),
    "maximum": numpys(np.maximum),
    "minimum": numpys(np.minimum),
    "arctan2": numpys(np.arctan2),
    "equal": numpys(np.equal),
    "not_equal": numpys(np.not_equal),
    "less": numpys(np.less),
    "less_equal": numpys(np.less_equal),
    "greater": numpys(np.greater),
    "greater_equal": numpys(np.greater_equal),
    "logical_and": numpys(np.logical_and),
    "logical_or": numpys(np.logical_or),
    "logical_xor": numpys(np.logical_xor),
    "bitwise_and": numpys(np.bitwise_and),
    "bitwise_or": numpys(np.bitwise_or),
    "bitwise_xor": numpys(np.bitwise_xor),
    "left_shift": shift(True),
    "right_shift": shift(False),
    "where": numpys(np.where),
    "cast": cast,
    "reshape": lambda attributes, x: np.reshape(x, attributes["shape"]),
    "transpose": lambda attributes, x: np.transpose(x, attributes["axes"]),
    "broadcast_to": lambda attributes, x: np.broadcast_to(x, attributes["shape"]),
    "take": take,
    "take_along_axis": take_along_axis,
    "slice": take_slice,
    "pad": pad,
    "window": windows,
    "convolution": convolution,
    "window_sum": window_sum,
    "concatenate": lambda attributes, *arrays: np.concatenate(arrays, attributes["axis"]),
    "dynamic_slice": lambda attributes, x, starts: x[window(x, starts, attributes["sizes"])],
    "dynamic_update_slice": update,
    "check_index": lambda attributes, index: check_index(attributes, index),
    "check": lambda attributes, x, condition: x,
    "scatter": scatter,
    "scatter_reduce": scatter,
    "scatter_along_axis": scatter_along_axis,
    "scatter_along_axis_reduce": scatter_along_axis,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "attention": attention,
    "attention_grad": attention_grad,
    "barrier": lambda attributes, *arrays: arrays,
    "bitcast": lambda attributes, x: np.frombuffer(x.tobytes(), attributes["dtype"]).reshape(
        x.shape
    ),
    "iota": lambda attributes: np.indices(attributes["shape"])[attributes["axis"]],
    "dot_general": dot_general,
    "cross_entropy": cross_entropy,
    "cross_entropy_grad": cross_entropy_grad,
    "cumsum": running(np.add),
    "cumprod": running(np.multiply),
    "cummax": running(np.maximum),
    "cummin": running(np.minimum),
    "sort": sort,
    "searchsorted": searchsorted,
    "lu": of_each_matrix(lu),
    "triangular_solve": of_each_matrix(triangular_solve),
    "solve": of_each_matrix(
        lambda attributes, a, b: (np.linalg.inv(a.T if attributes["transpose"] else a) @ b,)
    ),
    "det": of_each_matrix(lambda attributes, a: (np.prod(np.linalg.eigvals(a)).real,)),
    "logabsdet": of_each_matrix(
        lambda attributes, a: (np.log(np.linalg.svd(a, compute_uv=False)).sum(),)
    ),
    "cholesky": lambda attributes, a: of_each_matrix(cholesky)(attributes, a)[0],
    "qr": of_each_matrix(qr),
    "eigh": of_each_matrix(eigh),
    "svd": of_each_matrix(svd),
    "pinv": of_each_matrix(
        lambda attributes, a: (
            np.linalg.inv(a.T @ a) @ a.T if len(a) > len(a.T) else a.T @ np.linalg.inv(a @ a.T),
        )
    ),
    "random_bits": random_bits,
    "random_fold_in": random_fold_in,
    "reduce_sum": reduced(np.sum),
    "reduce_prod": reduced(np.prod),
    "reduce_max": reduced(np.max),
    "reduce_min": reduced(np.min),
    "argmax": lambda attributes, x: np.argmax(x, attributes["axis"]),
    "argmin": lambda attributes, x: np.argmin(x, attributes["axis"]),
    "stop_gradient": lambda attributes, *arrays: arrays,
    "sign": numpys(np.sign),
    "abs": numpys(np.abs),
    "negative": by_kind(np.negative, lambda a: -a),
    "square": by_kind(np.square, lambda a: a * a),
    "integer_power": static_power,
    "rsqrt": numpys(lambda x: 1 / np.sqrt(x)),
    "gcd": each(math.gcd),
    "erfinv": each(erfinv),
    "lgamma": each(math.lgamma),
    "polygamma": polygamma,
    "bessel_i": bessel_i,
    "erf": each(math.erf),
    "erfc": each(math.erfc),
    "sigmoid": each(lambda x: 1 / (1 + math.exp(-x))),
    "logical_not": numpys(np.logical_not),
    "bitwise_not": numpys(np.invert),
    **{name: numpys(getattr(np, name)) for name in NAMESAKES},
}


def check_index(attributes: Any, index: Any) -> Any:
    """Positions as int64; what is dropped becomes the extent."""
    out = np.zeros(index.shape, np.int64)
    for at in np.ndindex(*index.shape):
        found = position(index[at], attributes["extent"], attributes["mode"])
        out[at] = attributes["extent"] if found is None else found
    return out
