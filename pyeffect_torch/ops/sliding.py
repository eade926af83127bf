"""What convolutions and pooling have in common: options given once or for each axis, and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.core.op import Shape
from pyeffect_torch.ops.base import describe
from pyeffect_torch.ops.shape import reshape

PerAxis: TypeAlias = "int | Sequence[int]"
Padding: TypeAlias = "int | Sequence[int | tuple[int, int]] | Literal['same', 'valid']"
Pairs: TypeAlias = "tuple[tuple[int, int], ...]"


def per_axis(name: str, role: str, value: Any, count: int, least: int) -> Shape:
    """Return an option as one int for each of `count` axes.

    Raises:
        ArgumentError: another number of ints, or one below `least`.
    """
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    try:
        found = tuple(item.__index__() for item in given)
    except (AttributeError, TypeError):
        found = ()
    if len(found) != count or any(item < least for item in found):
        wanted = "an int" if count == 1 else f"an int or {count} ints"
        raise ArgumentError(
            f"{name}: {role} must be {wanted} of at least {least}, got {value!r}",
            "pass one int" if count == 1 else "pass one int, or one for each spatial axis",
        )
    return found


def padding_pairs(name: str, value: Any, count: int) -> Pairs:
    """Return how many elements to add before and after each axis.

    Raises:
        ArgumentError: no int, and not one int or pair of ints for each axis.
    """
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(given) != count:
        raise ArgumentError(
            f"{name}: padding {value!r} has {len(given)} entries for {count} axes",
            "pass one int, or an int or a pair for each spatial axis",
        )
    pairs: list[tuple[int, int]] = []
    for item in given:
        low, high = per_axis(name, "padding", item, 2, 0)
        pairs.append((low, high))
    return tuple(pairs)


def with_batch(name: str, x: Array, count: int) -> tuple[Array, bool]:
    """Return `x` with a batch axis, and whether it had none.

    Raises:
        ShapeError: a rank that is neither.
    """
    rank = len(x.shape)
    if rank == count + 1:
        return reshape(x, (1, *x.shape)), True
    if rank != count + 2:
        raise ShapeError(
            f"{name}: needs [batch, channels and {count} more axes], got {describe(x)}",
            f"use rank {count + 2}, or {count + 1} without a batch axis",
        )
    return x, False


def check_fit(
    name: str, x: Array, kernel: Shape, strides: Shape, pairs: Pairs, dilations: Shape
) -> None:
    """Raise `ShapeError` if a kernel is larger than a padded axis that has elements at all."""
    lists = (x.shape[2:], kernel, strides, pairs, dilations)
    for axis, (n, size, stride, (low, high), dilation) in enumerate(zip(*lists, strict=True)):
        room = n + low + high - dilation * (size - 1) - 1
        if n and room < 0:
            raise ShapeError(
                f"{name}: a kernel of {size} does not fit axis {axis + 2} of {describe(x)}: ({n} + "
                f"{low} + {high} - {dilation} * ({size} - 1) - 1) // {stride} + 1 = "
                f"{room // stride + 1} outputs",
                "add padding, or use a smaller kernel or dilation",
            )
