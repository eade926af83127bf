"""Right-hand sides as users give them: vectors, matrices, and leading axes that broadcast."""

from __future__ import annotations

import math
from collections.abc import Callable

from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ShapeError
from pyeffect_torch.ops.base import broadcast_shapes, describe
from pyeffect_torch.ops.matrices import column
from pyeffect_torch.ops.shape import broadcast_to, moveaxis, reshape

__all__: list[str] = []


def with_stacks(
    name: str,
    function: Callable[[Array, Array], Array],
    a: Array,
    b: Array,
    left_side: bool = True,
) -> Array:
    """Call a function of matrices and right-hand sides that have the same leading axes.

    Args:
        name: for messages.
        function: takes `[.., n, n]` and `[.., n, k]` (`[.., k, n]` unless `left_side`).
        a: `[.., n, n]`.
        b: as for `function`, with leading axes that broadcast against those of `a`; or `[n]`.
        left_side: which axis of `b` is the one of length n.

    Raises:
        ShapeError: extents do not fit.
    """
    n = a.shape[-1]
    if len(b.shape) == 1 and left_side:
        if b.shape[0] != n:
            raise _misfit(name, a, b, -1)
        x = with_stacks(name, function, a, column(b))
        return reshape(x, x.shape[:-1])
    axis = -2 if left_side else -1
    if len(b.shape) < 2 or b.shape[axis] != n:
        raise _misfit(name, a, b, axis)
    lead = broadcast_shapes(name, a.shape[:-2], b.shape[:-2])
    if len(a.shape) == 2 and left_side:
        # One matrix: it is factored once, whatever stack of right-hand sides there is.
        rest = (*b.shape[:-2], b.shape[-1])
        columns = reshape(moveaxis(b, -2, 0), (n, math.prod(rest)))
        return moveaxis(reshape(function(a, columns), (n, *rest)), 0, -2)
    matrices = broadcast_to(a, (*lead, n, n))
    return function(matrices, broadcast_to(b, (*lead, *b.shape[-2:])))


def _misfit(name: str, a: Array, b: Array, axis: int) -> ShapeError:
    return ShapeError(
        f"{name}: the right-hand sides {describe(b)} do not fit the matrices {describe(a)}",
        f"give axis {axis} of the right-hand sides the extent {a.shape[-1]}",
    )
