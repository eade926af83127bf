"""Generators of test inputs that op declarations share (`Op.domain`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Domain, Sample, Shape

NumpyArray: TypeAlias = "np.ndarray[Any, Any]"

SHAPES: tuple[Shape, ...] = (
    (),
    (1,),
    (5,),
    (0,),
    (2, 3),
    (3, 1),
    (2, 0, 3),
    (1, 4, 1),
    (2, 3, 4),
    (17,),
    (33, 5),
    (2, 1, 3, 2),
)
PAIRS: tuple[tuple[Shape, Shape], ...] = (
    *((shape, shape) for shape in SHAPES),
    ((), (3,)),
    ((3,), ()),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((2, 1), (1, 3)),
    ((4, 1, 3), (2, 1)),
    ((0, 3), (3,)),
    ((1,), (0,)),
    ((2, 3, 4), (1, 1)),
)


def draw(
    rng: np.random.Generator, shape: Shape, dtype: DType, low: float = -2.0, high: float = 2.0
) -> NumpyArray:
    """Draw values of `dtype` in [low, high]; floats are distinct multiples of an odd step.

    Floats come from a shuffled grid, so that no two are closer than (high - low) / (2 n): maxima
    and sorts have no ties, and finite differences exist.
    """
    size = int(np.prod(shape, dtype=np.int64))
    if dtype is dtypes.bool_:
        return rng.integers(0, 2, size).astype(np.bool_).reshape(shape)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        bottom, top = max(int(np.ceil(low)), info.min), min(int(np.floor(high)), info.max)
        return rng.integers(bottom, top + 1, size).astype(dtype).reshape(shape)
    grid = (np.arange(size) + rng.uniform(0.25, 0.75, size)) / max(size, 1)
    values = low + (high - low) * rng.permutation(grid)
    return np.asarray(values.astype(dtype).reshape(shape))


def unary(
    *,
    dtypes_: Sequence[DType],
    low: float = -2.0,
    high: float = 2.0,
    roundings: float = 1.0,
    params: Sequence[Any] = (None,),
) -> Domain:
    """The domain of an elementwise op of one operand: 12 shapes twice, times `params`."""

    def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
        return [
            Sample((draw(rng, shape, dtype, low, high),), param)
            for shape in SHAPES * 2
            for param in params
        ]

    return Domain(tuple(dtypes_), samples, lambda sample: roundings)


def binary(
    *,
    dtypes_: Sequence[DType],
    first: tuple[float, float] = (-2.0, 2.0),
    second: tuple[float, float] = (-2.0, 2.0),
    roundings: float = 1.0,
    adjust: Callable[[NumpyArray, NumpyArray], tuple[NumpyArray, NumpyArray]] | None = None,
) -> Domain:
    """The domain of an elementwise op of two operands: 21 pairs of broadcasting shapes.

    `adjust` may move the second operand away from ties with the first.
    """

    def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
        out: list[Sample] = []
        for a, b in PAIRS:
            x, y = draw(rng, a, dtype, *first), draw(rng, b, dtype, *second)
            out.append(Sample(adjust(x, y) if adjust else (x, y)))
        return out

    return Domain(tuple(dtypes_), samples, lambda sample: roundings)


def wide(x: NumpyArray) -> NumpyArray:
    """The array in which a reference computes: float64 for floats, unchanged otherwise."""
    return x.astype(np.float64) if dtypes.is_float(x.dtype) else x


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference that applies a NumPy function to widened operands; it ignores attributes."""

    def reference(attributes: Any, *arrays: NumpyArray) -> Any:
        del attributes
        return function(*(wide(array) for array in arrays))

    return reference


NUMERIC: tuple[DType, ...] = tuple(d for d in dtypes.ALL if d is not dtypes.bool_)
FLOATING: tuple[DType, ...] = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
SIGNED_NUMERIC: tuple[DType, ...] = tuple(d for d in NUMERIC if d not in dtypes.UNSIGNED)
INTEGERS: tuple[DType, ...] = tuple(d for d in dtypes.ALL if d in dtypes.INTEGERS)
BITS: tuple[DType, ...] = (dtypes.bool_, *INTEGERS)
EVERY: tuple[DType, ...] = dtypes.ALL
