"""`iota`: positions along an axis, from which every counted array and every mask is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, make
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import DTypeError
from pyeffect_torch.core.op import Domain, Nondiff, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import normalize_axis, resolve_dtype, shape_of

_f: Any = late.functions


class _Iota(NamedTuple):
    """The params of `iota`."""

    shape: Shape
    dtype: DType
    axis: int


def _infer_iota(inputs: tuple[Array, ...], params: _Iota) -> Any:
    del inputs
    if params.dtype is dtypes.bool_:
        raise DTypeError("iota: has no meaning for bool", "count in int64 and compare")
    return params.shape, params.dtype


def _iota_reference(attributes: Any) -> Any:
    shape, axis = tuple(attributes["shape"]), attributes["axis"]
    along = [1] * len(shape)
    along[axis] = shape[axis]
    counts = np.arange(shape[axis], dtype=np.int64).reshape(along)
    return np.broadcast_to(counts, shape).astype(attributes["dtype"])


def _iota_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    del rng
    # No more than 127 along the axis: int8 counts no further.
    return [
        Sample((), _Iota(shape, dtype, axis))
        for shape in (*domains.SHAPES, (127,))
        for axis in range(len(shape))
    ]


IOTA: Final = declare(
    "iota",
    infer=_infer_iota,
    derivative=Nondiff(),
    batch=None,
    reference=_iota_reference,
    domain=Domain(domains.NUMERIC, _iota_samples, lambda sample: 0.0),
    opcode="iota",
    attributes=lambda node: node.params._asdict(),
)


def iota(shape: Any, dtype: DTypeLike = "int64", axis: int = 0) -> Array:
    """Return the position of each element along `axis`, in a shape of at least one axis."""
    extents = shape_of("iota", shape)
    found = resolve_dtype("iota", dtype)
    params = _Iota(extents, found, normalize_axis("iota", axis, len(extents)))
    inferred = _infer_iota((), params)
    return make(IOTA, (), params, *inferred, flags=_f.current_flags())


def counting(count: int) -> Array:
    """Return 0, 1, .. as int64 [count], of no runtime: it goes where its other operands are."""
    params = _Iota((count,), dtypes.int64, 0)
    return make(IOTA, (), params, *_infer_iota((), params))
