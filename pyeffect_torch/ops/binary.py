"""How elementwise ops of two operands are declared; `arithmetic.py` and `comparison.py` do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, bind, make
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import DTypeError
from pyeffect_torch.core.op import Derivative, Domain, Op, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import (
    broadcast_shapes,
    describe,
    elementwise_batch,
    float_literal,
    mixed_dtypes,
    operands,
)


def _infer(name: str, allowed: frozenset[DType], result: DType | None) -> Any:
    def infer(inputs: tuple[Array, ...], params: Any) -> Any:
        del params
        a, b = inputs
        dtype = a.dtype
        if dtype is not b.dtype:
            raise mixed_dtypes(name, a, b)
        if dtype not in allowed:
            raise DTypeError(
                f"{name}: has no meaning for {describe(a)} and {describe(b)}",
                _cure(dtype, allowed),
            )
        shape = a.shape
        if shape != b.shape and b.shape:  # most second operands are alike or numbers
            shape = broadcast_shapes(name, shape, b.shape) if shape else b.shape
        return shape, result or dtype

    return infer


def _cure(dtype: DType, allowed: frozenset[DType]) -> str:
    if dtype is dtypes.bool_:
        return "use & | ^ on bool arrays, or cast them first"
    if allowed <= dtypes.FLOATS:
        return "cast the operands to a floating dtype, or use // for integers"
    return "cast the operands to " + ("an integer dtype" if dtypes.int64 in allowed else "bool")


def binary_op(
    name: str,
    allowed: Sequence[DType],
    derivative: Derivative,
    reference: Callable[..., Any],
    domain: Domain,
    *,
    result: DType | None = None,
    commutative: bool = False,
) -> Op:
    """Declare an elementwise op of two operands; `result` is its dtype if not the operands'."""
    op = declare(
        name,
        infer=_infer(name, frozenset(allowed), result),
        derivative=derivative,
        batch=elementwise_batch,
        reference=domains.widened(reference),
        domain=domain,
        opcode=name,
        traits=("elementwise", "commutative") if commutative else ("elementwise",),
    )
    _results[op] = {dtype: result or dtype for dtype in allowed}
    return op


_results: dict[Op, dict[DType, DType]] = {}


def apply(op: Op, x: Any, y: Any) -> Array:
    """Apply an op of this kind to what a user gave; the functions of two operands call it.

    Most operands are alike, or one is a number: their type is known without a rule.
    """
    if isinstance(x, Array):
        dtype = x.dtype
        if type(y) is float:
            y = float_literal(op.name, y, dtype)
        if isinstance(y, Array) and y.dtype is dtype:
            shape = x.shape
            result = _results[op].get(dtype)
            if result is not None and (shape == y.shape or not y.shape):
                return make(op, (x, y), None, shape, result)
    elif type(x) is float and isinstance(y, Array):
        result = _results[op].get(y.dtype)
        if result is not None:
            return make(op, (float_literal(op.name, x, y.dtype), y), None, y.shape, result)
    return bind(op, operands(op.name, x, y))
