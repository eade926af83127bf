"""The parameters of a distribution: their dtype, and the shape that they broadcast to."""

from __future__ import annotations

from typing import Any

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, literal
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import DTypeError, ShapeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.base import (
    broadcast_shapes,
    describe,
    is_number,
    mixed_dtypes,
    operand,
    shape_of,
)
from pyeffect_torch.ops.random import floating

_f: Any = late.functions


def floating_parameters(name: str, dtype: DTypeLike | None, *values: Any) -> list[Array]:
    """Return parameters as arrays of one floating dtype.

    Without a `dtype` it is that of those that are arrays, else float32.

    Raises:
        DTypeError: they have several dtypes, or one that is not floating.
    """
    arrays = [None if is_number(value) else operand(name, value) for value in values]
    given = [array for array in arrays if array is not None]
    found: DType = dtypes.float32
    if dtype is not None:
        found = floating(name, dtype)
    elif given:
        found = given[0].dtype
        for other in given:
            if other.dtype is not found:
                raise mixed_dtypes(name, given[0], other)
        if not dtypes.is_float(found):
            raise DTypeError(
                f"{name}: a parameter is floating, got {describe(given[0])}",
                "cast it first, for example x.astype('float32'), or pass dtype=",
            )
    return [
        literal(float(value), found) if array is None else _f.cast(array, found)
        for array, value in zip(arrays, values, strict=True)
    ]


def draw_shape(name: str, shape: Any, *shapes: Shape) -> Shape:
    """Return the shape of the draw of one key: `shape`, or what the parameters broadcast to.

    Raises:
        ShapeError: the parameters do not broadcast to it.
    """
    common = broadcast_shapes(name, *shapes)
    if shape is None:
        return common
    wanted = shape_of(name, shape)
    if broadcast_shapes(name, common, wanted) != wanted:
        raise ShapeError(
            f"{name}: parameters of shape {list(common)} do not broadcast to {list(wanted)}",
            "give the draw the shape of the parameters, with more axes in front",
        )
    return wanted
