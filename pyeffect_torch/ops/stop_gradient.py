"""`stop_gradient`: an identity that no derivative passes, at any order and in either mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.core import tree
from pyeffect_torch.core.array import Array, bind, outputs, rebuild
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import Domain, MaybeArray, Region, Sample, Type, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import operand


class _Kept(NamedTuple):
    """The params: the type of the one output."""

    types: tuple[Type, ...] = ()


def _forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    # Rebuilt, not dropped: an outer derivative must meet it too.
    del tangents
    return list(outputs(rebuild(node, tuple(inputs)))), [None]


def _samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    return [
        Sample((domains.draw(rng, shape, dtype, -9.0, 9.0),), _Kept())
        for shape in domains.SHAPES * 2
    ]


# A region, as it is an identity when encoded and has one rule for all walks; one output of several,
# as that is what a region's tangents are told apart by.
STOP_GRADIENT: Final = declare(
    "stop_gradient",
    infer=lambda inputs, params: tuple((x.shape, x.dtype) for x in inputs),
    derivative=Region(
        forward=_forward,
        reverse=lambda node, cts, need: [None],
        inline=lambda node, inputs: list(inputs),
        depends=lambda node, masks, differentiable: [0] if differentiable else list(masks),
    ),
    batch=lambda node, inputs, batched, size: [(_stop(inputs[0]), True)],
    reference=lambda attributes, x: (x,),
    domain=Domain(domains.EVERY, _samples, lambda sample: 0.0),
    traits=("multi",),
)


def stop_gradient(x: Any) -> Any:
    """Return `x`, an array or a tree, as a constant of every derivative.

    Its tangents and cotangents are zero.
    """
    return tree.map(_stop, x)


def _stop(x: Any) -> Array:
    return outputs(bind(STOP_GRADIENT, (operand("stop_gradient", x),), _Kept()))[0]
