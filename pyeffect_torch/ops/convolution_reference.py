"""The op `convolution` in NumPy with float64 inside, and the inputs that tests draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Sample, Shape
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.convolution_body import output_shape, spread_extent
from pyeffect_torch.ops.parameters import ConvolutionParams


def convolution_reference(attributes: Any, x: Any, w: Any) -> Any:
    """The padded field element by element, then one product for each element of the kernel."""
    params = ConvolutionParams(**attributes)
    wide, kernel = domains.wide(x), domains.wide(w)
    outputs = output_shape(x.shape, w.shape, params)
    extents = [
        max(spread_extent(n, gap) + low + high, 0)
        for n, low, high, gap in zip(
            x.shape[2:], params.low, params.high, params.interior, strict=True
        )
    ]
    field = np.zeros((*x.shape[:2], *extents))
    for place in np.ndindex(*x.shape[2:]):
        to = [
            k * (gap + 1) + low
            for k, gap, low in zip(place, params.interior, params.low, strict=True)
        ]
        if all(0 <= t < n for t, n in zip(to, extents, strict=True)):
            field[(..., *to)] = wide[(..., *place)]
    out = np.zeros((x.shape[0], w.shape[0], *outputs))
    if out.size == 0 or w.size == 0:
        return out
    grouped = field.reshape((x.shape[0], params.groups, w.shape[1], *extents))
    kernel = kernel.reshape((params.groups, -1, *w.shape[1:]))
    for place in np.ndindex(*w.shape[2:]):
        index = tuple(
            slice(k * d, k * d + (n - 1) * s + 1, s)
            for k, d, n, s in zip(place, params.dilations, outputs, params.strides, strict=True)
        )
        met = grouped[(..., *index)]
        out += np.einsum("ngc...,goc->ngo...", met, kernel[(..., *place)]).reshape(out.shape)
    return out


_CASES: Final[tuple[tuple[Shape, Shape, Shape, Shape, Shape, Shape, Shape, int], ...]] = (
    ((2, 3, 7), (4, 3, 3), (1,), (0,), (0,), (0,), (1,), 1),
    ((2, 3, 7), (4, 3, 3), (2,), (1,), (1,), (0,), (1,), 1),
    ((1, 2, 7), (4, 1, 2), (1,), (2,), (0,), (0,), (3,), 2),
    ((2, 4, 6), (4, 1, 3), (1,), (2,), (0,), (0,), (1,), 4),
    ((2, 2, 6), (4, 1, 3), (2,), (1,), (1,), (0,), (1,), 2),
    ((1, 2, 4), (3, 2, 3), (1,), (2,), (2,), (1,), (1,), 1),
    ((2, 2, 3), (2, 1, 2), (1,), (1,), (2,), (2,), (2,), 2),
    ((1, 1, 5), (1, 1, 3), (1,), (-1,), (2,), (0,), (1,), 1),
    ((1, 2, 4), (2, 2, 2), (1,), (-2,), (-1,), (1,), (1,), 1),
    ((2, 1, 5), (2, 1, 2), (2,), (0,), (1,), (1,), (1,), 1),
    ((0, 2, 5), (3, 2, 3), (1,), (1,), (1,), (0,), (1,), 1),
    ((2, 0, 5), (3, 0, 3), (1,), (1,), (1,), (0,), (1,), 1),
    ((2, 2, 5), (0, 2, 3), (1,), (1,), (1,), (0,), (1,), 1),
    ((2, 2, 0), (3, 2, 3), (1,), (2,), (1,), (0,), (1,), 1),
    ((2, 2, 2), (3, 2, 3), (2,), (0,), (0,), (0,), (1,), 1),
    ((1, 2, 5, 6), (3, 2, 3, 3), (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 2, 5, 4), (2, 2, 2, 3), (2, 1), (0, 1), (1, 2), (0, 0), (1, 1), 1),
    ((2, 4, 4, 5), (4, 2, 2, 2), (1, 2), (1, 0), (0, 0), (0, 0), (2, 1), 2),
    ((2, 3, 4, 4), (3, 1, 3, 2), (1, 2), (1, 1), (1, 0), (0, 0), (1, 1), 3),
    ((1, 2, 3, 3), (2, 2, 3, 2), (1, 1), (1, 2), (2, 1), (1, 2), (1, 1), 1),
    ((1, 1, 24, 25), (2, 1, 1, 2), (1, 1), (0, 0), (0, 0), (0, 0), (1, 1), 1),
    ((2, 1, 23, 24), (2, 1, 2, 1), (1, 1), (0, 0), (0, 0), (0, 0), (1, 1), 1),
    ((1, 4, 23, 23), (2, 2, 1, 2), (1, 1), (0, 0), (0, 0), (0, 0), (1, 1), 2),
    ((2, 3), (4, 3), (), (), (), (), (), 1),
)  # fmt: skip
"""Shapes of x and of the weights, and the params."""


def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    """Draw one sample for each case: the domain of the op."""
    return [
        Sample(
            (domains.draw(rng, x, dtype), domains.draw(rng, w, dtype)),
            ConvolutionParams(strides, low, high, interior, dilations, groups),
        )
        for x, w, strides, low, high, interior, dilations, groups in _CASES
    ]


def roundings(sample: Sample) -> float:
    """Count a sum of products, one for each channel of a group and element of the kernel."""
    return 2.0 * max(math.prod(sample.inputs[1].shape[1:]), 1)
