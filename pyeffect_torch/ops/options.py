"""Checks of the options of array functions: Python numbers and sequences, never arrays.

What is wrong is named where it is passed; without that, it would fail in arithmetic of ours or, if
the option is an attribute of a node, when that is encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, EffectTorchError


def require_int(name: str, value: Any, role: str) -> int:
    """Return `value` as an int, or raise `ArgumentError` naming its role."""
    try:
        return value.__index__()
    except EffectTorchError:
        raise  # an array that is no int, or has no value: it says so
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"{name}: {role} must be an int, got {type(value).__name__}", "pass an int"
        ) from None


def require_number(name: str, value: Any, role: str) -> float:
    """Return `value` as a float, or raise `ArgumentError` naming its role."""
    if not isinstance(value, str):
        try:
            return float(value)
        except EffectTorchError:
            raise  # an array that has no value: it says so
        except (TypeError, ValueError, OverflowError):
            pass
    raise ArgumentError(
        f"{name}: {role} must be a number, got {type(value).__name__}", "pass a Python number"
    )


def require_sequence(name: str, value: Any, role: str) -> Sequence[Any]:
    """Return the elements of `value` (an array has its rows), or raise `ArgumentError`."""
    if isinstance(value, Array) and value.shape:
        return [value[k] for k in range(value.shape[0])]
    try:
        return list(value)
    except EffectTorchError:
        raise  # an array without axes: it says so
    except TypeError:
        raise ArgumentError(
            f"{name}: {role} must be a sequence, got {type(value).__name__}",
            "pass a list or a tuple",
        ) from None
