"""Array functions as methods of `Array`, for those that NumPy's arrays have as methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyeffect_torch.core import late

if TYPE_CHECKING:
    from pyeffect_torch.core.array import Array
    from pyeffect_torch.core.dtypes import DTypeLike

_f = late.functions
Axis = int | Sequence[int] | None


class FunctionMethods:
    """Functions as methods of `Array`; the function has the documentation."""

    __slots__ = ()

    def astype(self, dtype: DTypeLike) -> Array:
        """See `et.cast`."""
        return _f.cast(self, dtype)

    def reshape(self, *shape: Any) -> Array:
        """See `et.reshape`; takes one sequence or the extents."""
        return _f.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Array:
        """See `et.transpose`; takes one sequence or the axes."""
        if not axes:
            return _f.transpose(self)
        return _f.transpose(self, axes[0] if len(axes) == 1 else axes)

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        """See `et.swapaxes`."""
        return _f.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Axis = None) -> Array:
        """See `et.squeeze`."""
        return _f.squeeze(self, axis)

    def view(self, dtype: DTypeLike) -> Array:
        """See `et.bitcast_convert_type`."""
        return _f.bitcast_convert_type(self, dtype)

    def ravel(self) -> Array:
        """See `et.ravel`."""
        return _f.ravel(self)

    def flatten(self) -> Array:
        """See `et.ravel`."""
        return _f.ravel(self)

    def sum(
        self, axis: Axis = None, *, keepdims: bool = False, dtype: DTypeLike | None = None
    ) -> Array:
        """See `et.sum`."""
        return _f.sum(self, axis, keepdims=keepdims, dtype=dtype)

    def prod(
        self, axis: Axis = None, *, keepdims: bool = False, dtype: DTypeLike | None = None
    ) -> Array:
        """See `et.prod`."""
        return _f.prod(self, axis, keepdims=keepdims, dtype=dtype)

    def mean(
        self, axis: Axis = None, *, keepdims: bool = False, dtype: DTypeLike | None = None
    ) -> Array:
        """See `et.mean`."""
        return _f.mean(self, axis, keepdims=keepdims, dtype=dtype)

    def var(self, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> Array:
        """See `et.var`."""
        return _f.var(self, axis, correction=correction, keepdims=keepdims)

    def std(self, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> Array:
        """See `et.std`."""
        return _f.std(self, axis, correction=correction, keepdims=keepdims)

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """See `et.max`."""
        return _f.max(self, axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """See `et.min`."""
        return _f.min(self, axis, keepdims=keepdims)

    def ptp(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """See `et.ptp`."""
        return _f.ptp(self, axis, keepdims=keepdims)

    def all(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """See `et.all`."""
        return _f.all(self, axis, keepdims=keepdims)

    def any(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """See `et.any`."""
        return _f.any(self, axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Array:
        """See `et.argmax`."""
        return _f.argmax(self, axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Array:
        """See `et.argmin`."""
        return _f.argmin(self, axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Array:
        """See `et.cumsum`."""
        return _f.cumsum(self, axis, dtype=dtype)

    def cumprod(self, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Array:
        """See `et.cumprod`."""
        return _f.cumprod(self, axis, dtype=dtype)

    def clip(self, minimum: Any = None, maximum: Any = None) -> Array:
        """See `et.clip`."""
        return _f.clip(self, minimum, maximum)

    def round(self) -> Array:
        """See `et.round`."""
        return _f.round(self)

    def dot(self, other: Any) -> Array:
        """See `et.dot`."""
        return _f.dot(self, other)

    def take(self, index: Any, axis: int | None = None) -> Array:
        """See `et.take`."""
        return _f.take(self, index, axis)

    def repeat(self, repeats: int, axis: int | None = None) -> Array:
        """See `et.repeat`."""
        return _f.repeat(self, repeats, axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """See `et.diagonal`."""
        return _f.diagonal(self, offset, axis1, axis2)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """See `et.trace`."""
        return _f.trace(self, offset, axis1, axis2)

    def sort(self, axis: int | None = -1, *, descending: bool = False) -> Array:
        """See `et.sort`; the sorted array is a new one."""
        return _f.sort(self, axis, descending=descending)

    def argsort(self, axis: int | None = -1, *, descending: bool = False) -> Array:
        """See `et.argsort`."""
        return _f.argsort(self, axis, descending=descending)

    def searchsorted(self, values: Any, side: str = "left") -> Array:
        """See `et.searchsorted`."""
        return _f.searchsorted(self, values, side)

    def nonzero(self) -> tuple[Array, ...]:
        """See `et.nonzero`; without its `size` the array must have a value."""
        return _f.nonzero(self)
