"""Losses: functions of predictions and targets that end in a number.

Every loss takes `reduction="mean" | "sum" | "none"`; "none" gives the unreduced array. Arrays of a
loss have one floating dtype and broadcast. `cross_entropy` is backed by a fused op.
"""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.ops.base import (
    describe,
    operand,
    operands,
    require_float,
    require_integer,
)
from pyeffect_torch.ops.checks import NO_LABEL
from pyeffect_torch.ops.index_base import index_operand
from pyeffect_torch.ops.indexing import TAKE_ALONG_AXIS
from pyeffect_torch.ops.normalization import widen
from pyeffect_torch.ops.options import require_int, require_number
from pyeffect_torch.ops.parameters import MODE_STRICT, AlongParams

__all__ = [
    "binary_cross_entropy",
    "cosine_embedding",
    "cross_entropy",
    "hinge",
    "huber",
    "kl_div",
    "l1",
    "mse",
    "nll",
]

_f: Any = late.functions


def _pair(name: str, a: Any, b: Any) -> tuple[Array, Array]:
    x, y = operands(name, a, b)
    require_float(name, x)
    require_float(name, y)
    return x, y


def _check_reduction(name: str, reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(
            f"{name}: unknown reduction {reduction!r}", "use 'mean', 'sum' or 'none'"
        )


def _reduce(name: str, losses: Array, reduction: str) -> Array:
    _check_reduction(name, reduction)
    if reduction == "mean":
        return _f.mean(losses)
    return _f.sum(losses) if reduction == "sum" else losses


def mse(predictions: Any, targets: Any, *, reduction: str = "mean") -> Array:
    """Return the squared differences, reduced."""
    x, y = _pair("mse", predictions, targets)
    return _reduce("mse", _f.square(_f.subtract(x, y)), reduction)


def l1(predictions: Any, targets: Any, *, reduction: str = "mean") -> Array:
    """Return the absolute differences, reduced; the gradient at 0 is 0."""
    x, y = _pair("l1", predictions, targets)
    return _reduce("l1", _f.abs(_f.subtract(x, y)), reduction)


def huber(predictions: Any, targets: Any, *, delta: float = 1.0, reduction: str = "mean") -> Array:
    """Return `e*e/2` where `|e| <= delta`, else `delta * (|e| - delta/2)`, reduced.

    Raises:
        ArgumentError: `delta` is not positive.
    """
    delta = require_number("huber", delta, "delta")
    if not delta > 0:
        raise ArgumentError(f"huber: delta is {delta}", "use a positive delta")
    x, y = _pair("huber", predictions, targets)
    error = _f.subtract(x, y)
    size = _f.abs(error)
    inner = _f.multiply(_f.square(error), 0.5)
    outer = _f.multiply(_f.subtract(size, 0.5 * delta), float(delta))
    return _reduce("huber", _f.where(_f.less_equal(size, float(delta)), inner, outer), reduction)


def binary_cross_entropy(
    predictions: Any, targets: Any, *, from_logits: bool = False, reduction: str = "mean"
) -> Array:
    """Return `-(t log p + (1-t) log(1-p))`, reduced; finite for every p in [0, 1].

    Args:
        predictions: probabilities, or logits with `from_logits`.
        targets: in [0, 1].
    """
    x, t = _pair("binary_cross_entropy", predictions, targets)
    if from_logits:
        # max(x, 0) - x t + log1p(exp(-|x|)) never overflows
        soft = _f.log1p(_f.exp(_f.negative(_f.abs(x))))
        losses = _f.add(_f.subtract(_f.maximum(x, 0.0), _f.multiply(x, t)), soft)
    else:
        losses = _probability_loss(x, t)
    return _reduce("binary_cross_entropy", losses, reduction)


def _probability_loss(p: Array, t: Array) -> Array:
    """Logarithms are taken no lower than at the smallest normal number of float32 (or float16)."""
    tiny = 2.0**-14 if p.dtype is dtypes.float16 else 2.0**-126
    floor = literal(tiny, p.dtype)
    log_p = _f.log(_f.maximum(p, floor))
    log_q = _f.log(_f.maximum(_f.subtract(1.0, p), floor))
    one_minus_t = _f.subtract(1.0, t)
    return _f.negative(_f.add(_f.multiply(t, log_p), _f.multiply(one_minus_t, log_q)))


def cross_entropy(
    logits: Any, labels: Any, *, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Return the negative log likelihood of integer labels under `softmax(logits)`.

    Args:
        logits: floating `[.., classes]`; half types compute in float32.
        labels: integers `[..]` in 0..classes-1, or `ignore_index` where the row does not count.
        reduction: "mean" over the active rows, "sum", or "none" (`[..]`, 0 where ignored).

    Raises:
        IndexOutOfBoundsError: at run time, any other label.
        ExecutionError: at run time, a mean without an active label.
    """
    _check_reduction("cross_entropy", reduction)
    logits = operand("cross_entropy", logits)
    labels = index_operand("cross_entropy", labels)
    losses = _f.cross_entropy_rows(
        logits, labels, require_int("cross_entropy", ignore_index, "ignore_index")
    )
    if reduction != "mean":
        return _reduce("cross_entropy", losses, reduction)
    return _mean_of_active(losses, labels, ignore_index)


def _mean_of_active(losses: Array, labels: Array, ignore_index: int) -> Array:
    active = _f.not_equal(_f.cast(labels, dtypes.int64), ignore_index)
    count = _f.sum(_f.cast(active, dtypes.int64))
    total = _f.sum(widen(losses))
    mean = _f.divide(total, _f.cast(_f.maximum(count, 1), total.dtype))
    return _f.cast(_f.check(mean, _f.greater(count, 0), NO_LABEL), losses.dtype)


def nll(
    log_probabilities: Any, labels: Any, *, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Return minus the log probability of each label, reduced as in `cross_entropy`.

    Args:
        log_probabilities: floating `[.., classes]`. labels: integers `[..]`.

    Raises:
        ShapeError: the labels do not have the shape `[..]`. At run time as `cross_entropy`.
    """
    _check_reduction("nll", reduction)
    x = operand("nll", log_probabilities)
    labels = index_operand("nll", labels)
    require_float("nll", x)
    require_integer("nll", labels, "labels")
    if not x.shape or x.shape[:-1] != labels.shape:
        raise ShapeError(
            f"nll: labels {describe(labels)} do not fit log probabilities {describe(x)}",
            "labels have the shape of the log probabilities without the last axis",
        )
    wide = _f.cast(labels, dtypes.int64)
    active = _f.not_equal(wide, ignore_index)
    safe = _f.expand_dims(_f.where(active, wide, 0), -1)
    picked = bind(TAKE_ALONG_AXIS, (x, safe), AlongParams(len(x.shape) - 1, MODE_STRICT))
    row = _f.negative(_f.reshape(picked, labels.shape))
    losses = _f.where(active, row, literal(0, x.dtype))
    if reduction != "mean":
        return _reduce("nll", losses, reduction)
    return _mean_of_active(losses, labels, ignore_index)


def kl_div(log_predictions: Any, targets: Any, *, reduction: str = "mean") -> Array:
    """Return `t * (log t - log_prediction)`, 0 where `t <= 0`, reduced over all elements."""
    x, t = _pair("kl_div", log_predictions, targets)
    positive = _f.greater(t, 0.0)
    safe = _f.where(positive, t, literal(1, t.dtype))
    losses = _f.multiply(safe, _f.subtract(_f.log(safe), x))
    return _reduce("kl_div", _f.where(positive, losses, literal(0, t.dtype)), reduction)


def hinge(predictions: Any, targets: Any, *, reduction: str = "mean") -> Array:
    """Return `max(0, 1 - t * p)`, reduced; targets are -1 or 1."""
    x, t = _pair("hinge", predictions, targets)
    return _reduce("hinge", _f.maximum(_f.subtract(1.0, _f.multiply(t, x)), 0.0), reduction)


def cosine_embedding(
    a: Any, b: Any, targets: Any, *, margin: float = 0.0, reduction: str = "mean"
) -> Array:
    """Return `1 - cos(a, b)` where the target is positive, else `max(0, cos(a, b) - margin)`.

    Args:
        a, b: floating `[.., width]`; the cosine is over the last axis and 0 for a zero vector.
        targets: 1 or -1, `[..]`, floating or integer.
    """
    x, y = _pair("cosine_embedding", a, b)
    t = operand("cosine_embedding", targets)
    dot = _f.sum(_f.multiply(x, y), -1)
    squares = _f.multiply(_f.sum(_f.square(x), -1), _f.sum(_f.square(y), -1))
    safe = _f.greater(squares, 0.0)
    root = _f.sqrt(_f.where(safe, squares, literal(1, squares.dtype)))
    cosine = _f.where(safe, _f.divide(dot, root), literal(0, dot.dtype))
    apart = _f.maximum(
        _f.subtract(cosine, require_number("cosine_embedding", margin, "margin")), 0.0
    )
    losses = _f.where(_f.greater(t, 0), _f.subtract(1.0, cosine), apart)
    return _reduce("cosine_embedding", losses, reduction)
