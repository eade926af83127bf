"""`where`, a true select, and `cast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.errors import DTypeError
from pyeffect_torch.core.op import Affine, Domain, Linear, Sample, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import (
    broadcast_shapes,
    describe,
    elementwise_batch,
    mixed_dtypes,
    operand,
    operands,
    resolve_dtype,
    saturating_cast,
    spread,
    unbroadcast_to,
)

_f: Any = late.functions


def _infer_where(inputs: tuple[Array, ...], params: Any) -> Any:
    del params
    condition, a, b = inputs
    if condition.dtype is not dtypes.bool_:
        raise DTypeError(
            f"where: the condition must be bool, got {describe(condition)}",
            "compare first, for example x != 0",
        )
    if a.dtype is not b.dtype:
        raise mixed_dtypes("where", a, b)
    return broadcast_shapes("where", condition.shape, a.shape, b.shape), a.dtype


def _select(node: Array, j: int, value: Array) -> Array:
    condition = node.inputs[0]
    zero = _f.constant_like(value, 0)
    return where(condition, value, zero) if j == 1 else where(condition, zero, value)


def _where_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    out: list[Sample] = []
    for a, b in domains.PAIRS:
        shape = np.broadcast_shapes(a, b)
        for conditions in (shape, ()):
            condition = domains.draw(rng, conditions, dtypes.bool_)
            out.append(
                Sample((condition, domains.draw(rng, a, dtype), domains.draw(rng, b, dtype)))
            )
    return out


WHERE: Final = declare(
    "where",
    infer=_infer_where,
    derivative=Affine(
        lambda node, j, t: spread(node, _select(node, j, t)),
        lambda node, j, ct: unbroadcast_to(j, node, _select(node, j, ct)),
    ),
    batch=elementwise_batch,
    reference=lambda attributes, condition, a, b: np.where(condition, a, b),
    domain=Domain(domains.EVERY, _where_samples, lambda sample: 0.0),
    opcode="where",
    traits=("elementwise",),
)


def _cast_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample((domains.draw(rng, shape, dtype, -5.5, 120.0),), target)
        for shape in domains.SHAPES[:6]
        for target in dtypes.ALL
    ]


CAST: Final = declare(
    "cast",
    infer=lambda inputs, params: (inputs[0].shape, params),
    derivative=Linear(lambda node, ct: cast(ct, node.inputs[0].dtype)),
    batch=elementwise_batch,
    reference=lambda attributes, x: saturating_cast(x, attributes["dtype"]),
    domain=Domain(domains.EVERY, _cast_samples, lambda sample: 1.0),
    opcode="cast",
    attributes=lambda node: {"dtype": node.params},
    traits=("elementwise",),
)


def cast(x: Any, dtype: DTypeLike) -> Array:
    """Return `x` with its elements converted to `dtype`.

    Floats to integers truncate and saturate, NaN gives 0; float64 to float16 rounds once; to bool
    is `x != 0`. The gradient is cast back.
    """
    x = operand("cast", x)
    if x.dtype is dtype:
        return x
    target = resolve_dtype("cast", dtype)
    return x if x.dtype is target else bind(CAST, (x,), target)


def where(condition: Any, x: Any, y: Any) -> Array:
    """Return `x` where `condition` holds, else `y`: a true select, forward and backward.

    Args:
        condition: bool, broadcast with the others.
        x, y: of one dtype; a Python number takes the other's.
    """
    a, b = operands("where", x, y, convert_scalars=False)
    return bind(WHERE, (operand("where", condition), a, b))
