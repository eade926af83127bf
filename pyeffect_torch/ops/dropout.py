"""Dropout with an explicit key."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.ops import discrete
from pyeffect_torch.ops.base import operand, require_float
from pyeffect_torch.ops.options import require_number

__all__ = ["dropout"]

_f: Any = late.functions


def dropout(key: Any, x: Any, rate: float) -> Array:
    """Return `x` with each element dropped (0) with probability `rate`, else `x / (1 - rate)`.

    Args:
        key: uint32 [2]; the same key drops the same elements.
        x: floating.
        rate: a Python number in [0, 1]; 0 returns `x`, 1 drops everything.

    Raises:
        ArgumentError: `rate` outside [0, 1].
    """
    x = operand("dropout", x)
    require_float("dropout", x)
    rate = require_number("dropout", rate, "rate")
    if not 0 <= rate <= 1:
        raise ArgumentError(f"dropout: rate is {rate}", "use a rate from 0 to 1")
    if rate == 0:
        return x
    if rate == 1:
        return _f.zeros_like(x)
    keep = discrete.bernoulli(key, 1.0 - rate, x.shape)
    return _f.where(keep, _f.multiply(x, 1.0 / (1.0 - rate)), literal(0, x.dtype))
