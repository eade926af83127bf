"""The ops `window` and `window_sum`, each other's transposes: what convolutions are made of.

`window` slides a window along some axes. Nothing is copied: overlapping windows are a view of the
same memory. Users meet it as convolutions and pooling (`convolution.py`, `pooling.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import DTypeError, ShapeError
from pyeffect_torch.core.op import Domain, Linear, Sample, Shape, declare
from pyeffect_torch.ops import base, domains
from pyeffect_torch.ops.base import describe
from pyeffect_torch.ops.parameters import WindowParams, WindowSumParams

__all__: list[str] = []


def window_count(extent: int, size: int, stride: int, dilation: int) -> int:
    """Return how many windows fit into an axis: `(n - (size-1)*dilation - 1) // stride + 1`."""
    return max((extent - (size - 1) * dilation - 1) // stride + 1, 0)


def _infer_window(inputs: tuple[Array, ...], params: WindowParams) -> Any:
    (x,) = inputs
    shape = list(x.shape)
    for axis, size, stride, dilation in zip(*params, strict=True):
        shape[axis] = window_count(shape[axis], size, stride, dilation)
    result = (*shape, *params.sizes)
    base.check_size("window", result)
    return result, x.dtype


def _infer_window_sum(inputs: tuple[Array, ...], params: WindowSumParams) -> Any:
    (x,) = inputs
    if x.dtype is dtypes.bool_:
        raise DTypeError(
            f"window_sum: has no meaning for {describe(x)}", "cast it to a numeric dtype first"
        )
    rank = len(x.shape) - len(params.axes)
    shape = list(x.shape[:rank])
    for axis, size, stride, dilation, extent in zip(*params, strict=True):
        if shape[axis] != window_count(extent, size, stride, dilation):
            raise ShapeError(
                f"window_sum: axis {axis} of {describe(x)} has {shape[axis]} windows, extent "
                f"{extent} has {window_count(extent, size, stride, dilation)}",
                "use the extent that the windows were taken from",
            )
        shape[axis] = extent
    if x.shape[rank:] != params.sizes:
        raise ShapeError(
            f"window_sum: the last axes of {describe(x)} are not the sizes {list(params.sizes)}",
            "use the sizes that the windows were taken with",
        )
    return tuple(shape), x.dtype


def _places(size: int, stride: int, dilation: int, count: int) -> Any:
    """The position of each offset (columns) of each window (rows) along an axis."""
    return np.arange(count)[:, None] * stride + np.arange(size) * dilation


def _window_reference(attributes: Any, x: Any) -> Any:
    rank = x.ndim
    for axis, size, stride, dilation in zip(
        *(attributes[name] for name in WindowParams._fields), strict=True
    ):
        count = window_count(x.shape[axis], size, stride, dilation)
        x = np.moveaxis(np.take(x, _places(size, stride, dilation, count), axis), axis + 1, rank)
        rank += 1
    return x


def _window_sum_reference(attributes: Any, x: Any) -> Any:
    lists = [attributes[name] for name in WindowSumParams._fields]
    wide = domains.wide(x)
    shape = list(x.shape[: x.ndim - len(lists[0])])
    counts = list(shape)
    for axis, extent in zip(lists[0], lists[4], strict=True):
        shape[axis] = extent
    out = np.zeros(shape, wide.dtype)
    if x.size == 0:
        return out
    for offsets in itertools.product(*(range(size) for size in lists[1])):
        index: list[slice] = [slice(None)] * len(shape)
        for axis, _, stride, dilation, _, offset in zip(*lists, offsets, strict=True):
            first = offset * dilation
            index[axis] = slice(first, first + (counts[axis] - 1) * stride + 1, stride)
        out[tuple(index)] += wide[(..., *offsets)]
    return out


_CASES: Final[tuple[tuple[Shape, Shape, Shape, Shape, Shape], ...]] = (
    ((), (), (), (), ()), ((5,), (), (), (), ()), ((5,), (0,), (1,), (1,), (1,)),
    ((5,), (0,), (3,), (1,), (1,)), ((5,), (0,), (2,), (2,), (1,)), ((6,), (0,), (2,), (1,), (3,)),
    ((6,), (0,), (2,), (3,), (1,)), ((3,), (0,), (5,), (1,), (1,)), ((0,), (0,), (2,), (1,), (1,)),
    ((0,), (0,), (1,), (1,), (1,)), ((7,), (0,), (1,), (3,), (2,)),
    ((2, 5), (1,), (3,), (1,), (1,)), ((5, 2), (0,), (2,), (2,), (2,)),
    ((4, 5), (0, 1), (2, 3), (1, 1), (1, 1)), ((4, 5), (1, 0), (2, 2), (2, 1), (1, 2)),
    ((2, 3, 6), (2,), (4,), (1,), (1,)),
    ((2, 0, 6), (2,), (4,), (2,), (1,)), ((2, 2, 5, 6), (2, 3), (3, 3), (1, 1), (1, 1)),
    ((1, 2, 6, 5), (2, 3), (2, 3), (2, 2), (1, 2)), ((3, 7, 2), (1,), (3,), (2,), (1,)),
    ((33, 5), (0,), (4,), (3,), (2,)), ((40,), (0,), (7,), (1,), (2,)),
)  # fmt: skip
"""Shape, axes, sizes, strides, dilations."""


def _window_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample(
            (domains.draw(rng, shape, dtype, -9.0, 9.0),),
            WindowParams(axes, sizes, strides, dilations),
        )
        for shape, axes, sizes, strides, dilations in _CASES
    ]


def _window_sum_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    found: list[Sample] = []
    for shape, axes, sizes, strides, dilations in _CASES:
        extents = tuple(shape[axis] for axis in axes)
        params = WindowSumParams(axes, sizes, strides, dilations, extents)
        windows: list[Any] = list(shape)
        for axis, size, stride, dilation, extent in zip(*params, strict=True):
            windows[axis] = window_count(extent, size, stride, dilation)
        found.append(Sample((domains.draw(rng, (*windows, *sizes), dtype),), params))
    return found


def _window_sum_roundings(sample: Sample) -> float:
    """At most one term for each offset, added in order: partial sums of up to so many terms."""
    terms = math.prod(sample.params.sizes)
    return 1.0 + terms * (terms - 1) / 2.0


def _shifted(params: Any) -> Any:
    return params._replace(axes=tuple(axis + 1 for axis in params.axes))


WINDOW: Final = declare(
    "window",
    infer=_infer_window,
    derivative=Linear(
        lambda node, ct: window_sum(ct, node.params, node.inputs[0].shape),
    ),
    batch=lambda node, inputs, batched, size: bind(WINDOW, (inputs[0],), _shifted(node.params)),
    reference=_window_reference,
    domain=Domain(domains.EVERY, _window_samples, lambda sample: 0.0),
    opcode="window",
    attributes=lambda node: node.params._asdict(),
    traits=("view",),
)
WINDOW_SUM: Final = declare(
    "window_sum",
    infer=_infer_window_sum,
    derivative=Linear(lambda node, ct: bind(WINDOW, (ct,), WindowParams(*node.params[:4]))),
    batch=lambda node, inputs, batched, size: bind(WINDOW_SUM, (inputs[0],), _shifted(node.params)),
    reference=_window_sum_reference,
    domain=Domain(domains.NUMERIC, _window_sum_samples, _window_sum_roundings),
    opcode="window_sum",
    attributes=lambda node: node.params._asdict(),
)


def window(
    x: Array,
    axes: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Array:
    """Return the windows of `x`: a listed axis counts them, offsets are new axes at the end."""
    params = WindowParams(tuple(axes), tuple(sizes), tuple(strides), tuple(dilations))
    return bind(WINDOW, (x,), params)


def window_sum(x: Array, params: WindowParams, shape: Shape) -> Array:
    """Return an array of `shape` in which each element sums what windows of it hold in `x`."""
    extents = tuple(shape[axis] for axis in params.axes)
    return bind(WINDOW_SUM, (x,), WindowSumParams(*params, extents))
