"""How an elementwise op of one operand is declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import DTypeError
from pyeffect_torch.core.op import Derivative, Domain, Op, Smooth, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, elementwise_batch

_SIGNED = (-2.0, 2.0)


def _infer_unary(name: str, allowed: frozenset[DType], result: DType | None) -> Any:
    def infer(inputs: tuple[Array, ...], params: Any) -> Any:
        del params
        (x,) = inputs
        if x.dtype not in allowed:
            raise DTypeError(f"{name}: has no meaning for {describe(x)}", _cure(allowed))
        return x.shape, result or x.dtype

    return infer


def _cure(allowed: frozenset[DType]) -> str:
    if allowed <= dtypes.FLOATS:
        return "cast it to a floating dtype first, for example x.astype('float32')"
    if dtypes.bool_ not in allowed:
        return "cast it to a numeric dtype first, for example x.astype('int64')"
    if allowed == {dtypes.bool_}:
        return "compare it first, for example x != 0"
    return "cast it to bool or an integer dtype first"


def declare_unary(
    name: str,
    allowed: Sequence[DType],
    derivative: Derivative,
    reference: Callable[[Any], Any],
    *,
    between: tuple[float, float] = _SIGNED,
    roundings: float = 1.0,
    result: DType | None = None,
) -> Op:
    """Declare an elementwise op of one operand whose opcode has its name.

    Args:
        allowed: the dtypes of the operand.
        reference: on the widened operand.
        between: the interval that test inputs are drawn from.
        result: the dtype of the result, if it is not the operand's.
    """
    low, high = between
    domain: Domain = domains.unary(dtypes_=allowed, low=low, high=high, roundings=roundings)
    return declare(
        name,
        infer=_infer_unary(name, frozenset(allowed), result),
        derivative=derivative,
        batch=elementwise_batch,
        reference=domains.widened(reference),
        domain=domain,
        opcode=name,
        traits=("elementwise",),
    )


def smooth(partial: Callable[[Array], Array]) -> Smooth:
    """The derivative of an elementwise op of one operand, as a function of the node."""
    return Smooth((partial,))
