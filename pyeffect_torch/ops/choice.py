"""Elementwise choices made of `where`: clip, select, nan_to_num."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, DTypeError
from pyeffect_torch.ops.base import operand, operands
from pyeffect_torch.ops.options import require_sequence

_f: Any = late.functions


def clip(x: Any, minimum: Any = None, maximum: Any = None) -> Array:
    """Return `x` bounded to [minimum, maximum]; NaN propagates, of `x` and of the bounds.

    The gradient passes to `x` inside the bounds, the bounds included, and to the bound outside.

    Args:
        x: of any numeric dtype.
        minimum, maximum: None (no bound), numbers, or arrays that broadcast with `x`.
    """
    array = operand("clip", x)
    if array.dtype is dtypes.bool_:
        raise DTypeError("clip: has no meaning for bool", "use & and | on bool arrays")
    if minimum is not None:
        array = _bound(array, minimum, _f.less)
    if maximum is not None:
        array = _bound(array, maximum, _f.greater)
    return array


def _bound(array: Array, bound: Any, outside: Any) -> Array:
    constant = not isinstance(bound, Array)
    x, limit = operands("clip", array, bound)
    beyond = outside(x, limit)
    if not constant and dtypes.is_float(limit.dtype):
        beyond = _f.logical_or(beyond, _f.isnan(limit))
    return _f.where(beyond, limit, x)


def select(conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Array:
    """Return elementwise the first of `choices` whose condition holds, else `default`.

    Args:
        conditions: bool arrays, at least one.
        choices: one for each condition, of one dtype; all broadcast together.
        default: a number or an array of that dtype.
    """
    conditions = require_sequence("select", conditions, "conditions")
    choices = require_sequence("select", choices, "choices")
    if not conditions or len(conditions) != len(choices):
        raise ArgumentError(
            f"select: {len(conditions)} conditions against {len(choices)} choices",
            "pass one choice for each of at least one condition",
        )
    result = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        result = _f.where(condition, choice, result)
    return result


def nan_to_num(
    x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Array:
    """Return `x` with NaN and the infinities replaced by numbers.

    Args:
        x: any dtype; integers and bools are returned as they are.
        nan: what stands for NaN.
        posinf, neginf: what stands for the infinities; by default the largest and the smallest
            finite number of the dtype.
    """
    array = operand("nan_to_num", x)
    if not dtypes.is_float(array.dtype):
        return array
    limits = ml_dtypes.finfo(array.dtype)
    high = _f.constant_like(array, limits.max if posinf is None else posinf)
    low = _f.constant_like(array, limits.min if neginf is None else neginf)
    infinite = _f.isinf(array)
    bounded = _f.where(
        _f.logical_and(infinite, _f.greater(array, 0)), high, _f.where(infinite, low, array)
    )
    return _f.where(_f.isnan(array), _f.constant_like(array, nan), bounded)
