"""The operators of `Array`, by the array functions that they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pyeffect_torch.core import late

if TYPE_CHECKING:
    from pyeffect_torch.core.array import Array

_f = late.functions


class Operators:
    """Operators of `Array`; augmented assignment (`x += 1`) binds the name to a new array."""

    __slots__ = ()

    def __add__(self, other: Any) -> Array:
        return _f.add(self, other)

    def __radd__(self, other: Any) -> Array:
        return _f.add(other, self)

    def __sub__(self, other: Any) -> Array:
        return _f.subtract(self, other)

    def __rsub__(self, other: Any) -> Array:
        return _f.subtract(other, self)

    def __mul__(self, other: Any) -> Array:
        return _f.multiply(self, other)

    def __rmul__(self, other: Any) -> Array:
        return _f.multiply(other, self)

    def __truediv__(self, other: Any) -> Array:
        return _f.divide(self, other)

    def __rtruediv__(self, other: Any) -> Array:
        return _f.divide(other, self)

    def __floordiv__(self, other: Any) -> Array:
        return _f.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Array:
        return _f.floor_divide(other, self)

    def __mod__(self, other: Any) -> Array:
        return _f.remainder(self, other)

    def __rmod__(self, other: Any) -> Array:
        return _f.remainder(other, self)

    def __divmod__(self, other: Any) -> tuple[Array, Array]:
        return _f.floor_divide(self, other), _f.remainder(self, other)

    def __rdivmod__(self, other: Any) -> tuple[Array, Array]:
        return _f.floor_divide(other, self), _f.remainder(other, self)

    def __pow__(self, other: Any) -> Array:
        return _f.power(self, other)

    def __rpow__(self, other: Any) -> Array:
        return _f.power(other, self)

    def __matmul__(self, other: Any) -> Array:
        return _f.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Array:
        return _f.matmul(other, self)

    def __and__(self, other: Any) -> Array:
        return _f.bitwise_and(self, other)

    def __rand__(self, other: Any) -> Array:
        return _f.bitwise_and(other, self)

    def __or__(self, other: Any) -> Array:
        return _f.bitwise_or(self, other)

    def __ror__(self, other: Any) -> Array:
        return _f.bitwise_or(other, self)

    def __xor__(self, other: Any) -> Array:
        return _f.bitwise_xor(self, other)

    def __rxor__(self, other: Any) -> Array:
        return _f.bitwise_xor(other, self)

    def __lshift__(self, other: Any) -> Array:
        return _f.left_shift(self, other)

    def __rlshift__(self, other: Any) -> Array:
        return _f.left_shift(other, self)

    def __rshift__(self, other: Any) -> Array:
        return _f.right_shift(self, other)

    def __rrshift__(self, other: Any) -> Array:
        return _f.right_shift(other, self)

    def __invert__(self) -> Array:
        return _f.bitwise_not(self)

    def __neg__(self) -> Array:
        return _f.negative(self)

    def __pos__(self) -> Array:
        return cast("Array", self)

    def __abs__(self) -> Array:
        return _f.abs(self)

    def __eq__(self, other: Any) -> Array:  # type: ignore[override]  # elementwise, as in NumPy
        return _f.equal(self, other)

    def __ne__(self, other: Any) -> Array:  # type: ignore[override]  # elementwise, as in NumPy
        return _f.not_equal(self, other)

    def __lt__(self, other: Any) -> Array:
        return _f.less(self, other)

    def __le__(self, other: Any) -> Array:
        return _f.less_equal(self, other)

    def __gt__(self, other: Any) -> Array:
        return _f.greater(self, other)

    def __ge__(self, other: Any) -> Array:
        return _f.greater_equal(self, other)
