"""Ops that change no bit: `barrier`, and `bitcast`, which reads them as another dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, bind, outputs
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import DTypeError
from pyeffect_torch.core.op import Composite, Domain, MaybeArray, Nondiff, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, operand, resolve_dtype
from pyeffect_torch.ops.parameters import BarrierParams

__all__ = ["barrier", "bitcast_convert_type"]


def _exact(sample: Sample) -> float:
    del sample
    return 0.0


def _draw(rng: np.random.Generator, shape: Shape, dtype: DType) -> Any:
    return domains.draw(rng, shape, dtype, -9.0, 9.0)


def _barrier_vjp(
    node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]
) -> Sequence[MaybeArray]:
    del node
    return [ct if needed else None for ct, needed in zip(cts, need, strict=True)]


def _barrier_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Any:
    del node, size
    return list(zip(barrier(*inputs), batched, strict=True))


def _barrier_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    shapes = domains.SHAPES
    return [
        Sample(tuple(_draw(rng, shape, dtype) for shape in group), BarrierParams())
        for k in range(len(shapes))
        for group in ((shapes[k],), (shapes[k], shapes[k - 1]))
    ]


BARRIER: Final = declare(
    "barrier",
    infer=lambda inputs, params: tuple((x.shape, x.dtype) for x in inputs),
    derivative=Composite(lambda params, *inputs: tuple(inputs), _barrier_vjp),
    batch=_barrier_batch,
    reference=lambda attributes, *arrays: tuple(arrays),
    domain=Domain(domains.EVERY, _barrier_samples, _exact),
    opcode="barrier",
    traits=("multi",),
)


def barrier(*arrays: Any) -> tuple[Array, ...]:
    """Return the arrays themselves, as values that no optimisation moves or merges across.

    None of the results exists before all of the arguments do.
    """
    inputs = tuple(operand("barrier", array) for array in arrays)
    if not inputs:
        return ()
    return outputs(bind(BARRIER, inputs, BarrierParams()))


def _bitcast_infer(inputs: tuple[Array, ...], params: DType) -> Any:
    x = inputs[0]
    if dtypes.bool_ in (x.dtype, params) or x.dtype.itemsize != params.itemsize:
        raise DTypeError(
            f"bitcast_convert_type: {describe(x)} has no bits of dtype {params.name}",
            "use a dtype of the same width, other than bool",
        )
    return x.shape, params


def _bitcast_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    targets = [
        target
        for target in domains.NUMERIC
        if target.itemsize == dtype.itemsize and (target.kind in "iu" or dtype.kind in "iu")
    ]
    return [
        Sample((np.abs(_draw(rng, shape, dtype)),), target)
        for shape in domains.SHAPES
        for target in targets
    ]


BITCAST: Final = declare(
    "bitcast",
    infer=_bitcast_infer,
    derivative=Nondiff(),
    batch=lambda node, inputs, batched, size: bind(BITCAST, tuple(inputs), node.params),
    reference=lambda attributes, x: (
        np.ascontiguousarray(x).reshape(x.shape).view(attributes["dtype"])
    ),
    domain=Domain(domains.NUMERIC, _bitcast_samples, _exact),
    opcode="bitcast",
    attributes=lambda node: {"dtype": node.params},
    traits=("view",),
)


def bitcast_convert_type(x: Any, dtype: DTypeLike) -> Array:
    """Return the bits of `x` read as another dtype of the same width; no gradient.

    Raises:
        DTypeError: the widths differ, or bool is involved.
    """
    x = operand("bitcast_convert_type", x)
    target = resolve_dtype("bitcast_convert_type", dtype)
    return x if x.dtype is target else bind(BITCAST, (x,), target)
