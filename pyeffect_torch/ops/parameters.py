"""The static parameters of shape, indexing, contraction and neural ops, as immutable tuples.

They live apart from the families so that `ops/__init__.py` does not take them for functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyeffect_torch.core.op import Shape, Type

MODE_ERROR: Final = 0
"""An index out of range is an error; a negative one counts from the end."""
MODE_CLIP: Final = 1
"""An index out of range becomes the nearest one; a negative one becomes 0."""
MODE_FILL: Final = 2
"""Take: 0, or NaN for floats, in place of what is out of range; scatter: it is dropped."""
MODE_STRICT: Final = 3
"""An index out of range is an error, and so is a negative one; users have no name for it."""
MODES: Final[dict[str, int]] = {"error": MODE_ERROR, "clip": MODE_CLIP, "fill": MODE_FILL}

KIND_ADD: Final = 0
KIND_SET: Final = 1
KIND_MAX: Final = 2
KIND_MIN: Final = 3
KIND_MULTIPLY: Final = 4
KINDS: Final[dict[str, int]] = {
    "add": KIND_ADD,
    "set": KIND_SET,
    "max": KIND_MAX,
    "min": KIND_MIN,
    "multiply": KIND_MULTIPLY,
}


class SliceParams(NamedTuple):
    """Element i of an axis is `start + i * step`; steps of either sign."""

    starts: Shape
    sizes: Shape
    steps: tuple[int, ...]


class PadParams(NamedTuple):
    """How many elements to add before, after and between; all non-negative."""

    low: Shape
    high: Shape
    interior: Shape


class WindowParams(NamedTuple):
    """Windows on some axes, whose offsets become new axes at the end; all lists of one length."""

    axes: Shape
    sizes: Shape
    strides: Shape
    dilations: Shape


class WindowSumParams(NamedTuple):
    """Of `window_sum`: the windows, and the extents of the listed axes that they lie on."""

    axes: Shape
    sizes: Shape
    strides: Shape
    dilations: Shape
    extents: Shape


class ConvolutionParams(NamedTuple):
    """Of `convolution`: one entry for each spatial axis, and the number of groups of channels.

    x is spread by `interior` zeros between its elements, then `low` and `high` zeros are added
    around it (negative: elements removed); `dilations` spread the kernel.
    """

    strides: Shape
    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: Shape
    dilations: Shape
    groups: int


class BarrierParams(NamedTuple):
    """A barrier's result types are those of its operands."""

    types: tuple[Type, ...] = ()


class TakeParams(NamedTuple):
    """Of `take`: `axis` counts in the array, behind `batch_dims` shared leading axes."""

    axis: int
    batch_dims: int = 0
    mode: int = MODE_ERROR


class ScatterParams(NamedTuple):
    """Of `scatter`: as for `take`, and how updates are combined."""

    axis: int
    batch_dims: int = 0
    mode: int = MODE_ERROR
    kind: int = KIND_ADD


class AlongParams(NamedTuple):
    """Of `take_along_axis`."""

    axis: int
    mode: int = MODE_ERROR


class ScatterAlongParams(NamedTuple):
    """Of `scatter_along_axis`."""

    axis: int
    mode: int = MODE_ERROR
    kind: int = KIND_ADD


class CheckIndexParams(NamedTuple):
    """Of `check_index`: the extent to check against, and the axis that errors name."""

    extent: int
    axis: int
    mode: int = MODE_ERROR


class DotParams(NamedTuple):
    """Of `dot_general`: contracted and batch axes of both operands, pairwise."""

    lhs_contract: Shape
    rhs_contract: Shape
    lhs_batch: Shape
    rhs_batch: Shape


class AttentionParams(NamedTuple):
    """Of `attention` and `attention_grad`; window 0 is none."""

    scale: float
    causal: bool
    window: int
    types: tuple[Type, ...] = ()


class SortParams(NamedTuple):
    """Of `sort`: `kept` of the first sorted elements are kept along the axis."""

    axis: int
    descending: bool
    kept: int
    types: tuple[Type, ...] = ()


class SearchParams(NamedTuple):
    """Of `searchsorted`: whether elements equal to a value come before it."""

    right: bool


class FactorParams(NamedTuple):
    """Of `lu`, `eigh`, `svd`, `det` and `logabsdet`, which have no attributes."""

    types: tuple[Type, ...] = ()


class TriangularParams(NamedTuple):
    """Of `triangular_solve`: which triangle, transposed first or not, with a diagonal of ones."""

    lower: bool
    transpose: bool
    unit_diagonal: bool
    types: tuple[Type, ...] = ()


class SolveParams(NamedTuple):
    """Of `solve`: whether the matrix is transposed first."""

    transpose: bool
    types: tuple[Type, ...] = ()


class QrParams(NamedTuple):
    """Of `qr`: whether Q is square."""

    complete: bool
    types: tuple[Type, ...] = ()


class PinvParams(NamedTuple):
    """Of `pinv`: what is 0 among singular values, in units of the largest."""

    rtol: float
    types: tuple[Type, ...] = ()
