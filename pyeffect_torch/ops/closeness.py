"""Whether arrays are equal, or nearly: none has a derivative."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.ops.base import operands
from pyeffect_torch.ops.options import require_number

__all__ = ["allclose", "array_equal", "isclose"]

_f: Any = late.functions


def isclose(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False
) -> Array:
    """Return elementwise whether `|x - y| <= atol + rtol * |y|`, as bool.

    Args:
        x, y: of one dtype, broadcast together; integers and bools are compared in float64, half
            types in float32. Infinities are close to themselves only.
        equal_nan: whether NaN is close to NaN.
    """
    a, b = operands("isclose", x, y)
    is_float = dtypes.is_float(a.dtype)
    wide = dtypes.accumulator(a.dtype) if is_float else dtypes.float64
    equal = _f.equal(a, b)
    a, b = _f.cast(a, wide), _f.cast(b, wide)
    bound = _f.add(
        _f.multiply(_f.abs(b), require_number("isclose", rtol, "rtol")),
        require_number("isclose", atol, "atol"),
    )
    near = _f.less_equal(_f.abs(_f.subtract(a, b)), bound)
    if not is_float:
        return _f.logical_or(equal, near)
    near = _f.logical_or(equal, _f.logical_and(near, _f.isfinite(b)))
    return _f.logical_or(near, _both_nan(a, b)) if equal_nan else near


def _both_nan(a: Array, b: Array) -> Array:
    return _f.logical_and(_f.isnan(a), _f.isnan(b))


def allclose(
    x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False
) -> Array:
    """Return whether all elements are close, as a bool array `[]`; arguments as for `isclose`."""
    return _f.all(isclose(x, y, rtol, atol, equal_nan=equal_nan))


def array_equal(x: Any, y: Any, *, equal_nan: bool = False) -> Array:
    """Return whether two arrays have one shape and equal elements, as a bool array `[]`.

    Args:
        x, y: of one dtype.
        equal_nan: whether NaN equals NaN.
    """
    a, b = operands("array_equal", x, y, convert_scalars=False)
    if a.shape != b.shape:
        return literal(False, dtypes.bool_)
    same = _f.equal(a, b)
    if equal_nan and dtypes.is_float(a.dtype):
        same = _f.logical_or(same, _both_nan(a, b))
    return _f.all(same)
