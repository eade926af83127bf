"""What reductions have in common: their axes, their declaration, their test inputs."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Derivative, Domain, Op, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import normalize_axes, operand

_f: Any = late.functions
Axes: TypeAlias = "int | Sequence[int] | None"


@functools.lru_cache(maxsize=4096)
def kept_shape(shape: Shape, axes: Shape) -> Shape:
    """Return `shape` with extent 1 on `axes`."""
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def spread_over(x: Array, shape: Shape, axes: Shape) -> Array:
    """Broadcast a reduced array back to `shape` over the `axes` that the reduction removed."""
    return _f.broadcast_to(_f.reshape(x, kept_shape(shape, axes)), shape)


@functools.lru_cache(maxsize=4096)
def remaining_shape(shape: Shape, axes: Shape) -> Shape:
    """Return `shape` without `axes`."""
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def count_of(shape: Shape, axes: Shape) -> int:
    """Return how many elements a reduction over `axes` takes together."""
    return math.prod(shape[axis] for axis in axes)


def _shift_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    del batched, size
    return bind(node.op, (inputs[0],), tuple(axis + 1 for axis in node.params))


def _subsets(shape: Shape) -> list[Shape]:
    rank = len(shape)
    found = [
        axes for count in range(rank + 1) for axes in itertools.combinations(range(rank), count)
    ]
    return found if len(found) <= 8 else found[::2]


def reduction_samples(low: float, high: float, *, empty: bool) -> Any:
    """Test inputs in [low, high] over many sets of axes, also those without elements if `empty`."""

    def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
        return [
            Sample((domains.draw(rng, shape, dtype, low, high),), axes)
            for shape in domains.SHAPES
            for axes in _subsets(shape)
            if empty or count_of(shape, axes)
        ]

    return samples


def declare_reduction(
    name: str,
    infer: Any,
    derivative: Derivative,
    reference: Callable[[Any, Shape], Any],
    dtypes_: Sequence[DType],
    samples: Any,
    roundings: Callable[[Sample], float],
) -> Op:
    """Declare a reduction whose params are its axes and whose opcode has its name."""
    return declare(
        name,
        infer=infer,
        derivative=derivative,
        batch=_shift_batch,
        reference=lambda attributes, x: reference(domains.wide(x), tuple(attributes["axes"])),
        domain=Domain(tuple(dtypes_), samples, roundings),
        opcode=name,
        attributes=lambda node: {"axes": node.params},
        traits=("reduction",),
    )


def reduce_over(op: Op, name: str, x: Array, axis: Axes, keepdims: bool) -> Array:
    """Reduce `x` over `axis` as users give it, with the axes left at extent 1 if `keepdims`."""
    return reduce_axes(op, x, normalize_axes(name, axis, len(x.shape)), keepdims)


def reduce_axes(op: Op, x: Array, axes: Shape, keepdims: bool) -> Array:
    """As `reduce_over`, with the axes ascending and not negative."""
    reduced = bind(op, (x,), axes)
    return _f.reshape(reduced, kept_shape(x.shape, axes)) if keepdims else reduced


def truth(name: str, x: Any) -> Array:
    """Return an operand as bool: whether it is not 0."""
    array = operand(name, x)
    return array if array.dtype is dtypes.bool_ else _f.not_equal(array, 0)
