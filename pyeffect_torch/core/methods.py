"""The methods and operators of `Array`. Each is one line over an array function of `ops`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from pyeffect_torch.core.array import Array
    from pyeffect_torch.core.dtypes import DType, DTypeLike
    from pyeffect_torch.core.op import Shape

_f = late.functions
Axis = int | Sequence[int] | None


class Methods:
    """Methods of `Array`; see the array function of the same name for the meaning."""

    __slots__ = ()
    __array_ufunc__ = None  # NumPy scalars and arrays defer to our operators
    __array_priority__ = 1000

    if TYPE_CHECKING:
        shape: Shape
        dtype: DType

    # --- what it is

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """The size of the value in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def state(self) -> str:
        """`"lazy"`, `"concrete"`, `"placeholder"` or `"deleted"`."""
        return _f.state(self)

    @property
    def placement(self) -> Any:
        """The runtime this array lives on."""
        return late.placement(self)  # type: ignore[arg-type]  # Methods is only a base of Array

    @property
    def device(self) -> Any:
        """The same as `placement`."""
        return self.placement

    @property
    def T(self) -> Array:
        """The array with its axes reversed."""
        return _f.transpose(self)

    @property
    def mT(self) -> Array:
        """The array with its last two axes swapped."""
        return _f.matrix_transpose(self)

    @property
    def at(self) -> Any:
        """Functional updates: `x.at[index].set(v)`, `add`, `multiply`, `min`, `max`, `get`."""
        return _f.At(self)

    # --- reading

    def numpy(self) -> np.ndarray[Any, Any]:
        """Compute if need be and return the value as a read-only NumPy array."""
        return _f.read(self)

    def item(self) -> Any:
        """Return the only element as a Python number."""
        if self.size != 1:
            raise ShapeError(
                f"item: an array of shape {list(self.shape)} has {self.size} elements",
                "index it first, or use x.numpy()",
            )
        return self.numpy().reshape(()).item()

    def tolist(self) -> Any:
        """Return the value as nested lists of Python numbers."""
        return self.numpy().tolist()

    def _scalar(self, what: str) -> Any:
        if self.shape != ():
            raise ShapeError(
                f"{what}: only an array of shape [] has a Python value, this is {list(self.shape)}",
                "reduce or index it to one element first",
            )
        return self.numpy()[()]

    def __bool__(self) -> bool:
        return bool(self._scalar("bool"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __format__(self, spec: str) -> str:
        """The text of the array; with a format, of its one value, which is computed."""
        return format(self._scalar("format"), spec) if spec else str(self)

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise ArgumentError(
                f"an array of dtype {self.dtype.name} is no index", "cast it to an integer dtype"
            )
        return int(self._scalar("index"))

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len: an array of shape [] has no length", "use x.item()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        for row in range(len(self)):
            yield self[row]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        value = self.numpy()
        if dtype is not None and np.dtype(dtype) != value.dtype:
            return value.astype(dtype)
        return value.copy() if copy else value

    def __repr__(self) -> str:
        return _f.represent(self)

    def __hash__(self) -> NoReturn:
        raise ArgumentError(
            "an Array is not hashable: equality is elementwise",
            "use id(x) as a key, or a Python number as a static argument",
        )

    def __copy__(self) -> Array:
        return self  # type: ignore[return-value]  # immutable; Methods is only a base of Array

    def __deepcopy__(self, memo: Any) -> Array:
        return self  # type: ignore[return-value]  # as above

    def __reduce__(self) -> Any:
        return (_f.array, (np.array(self.numpy()),))

    # --- lifetime

    def delete(self) -> None:
        """Release the buffer now; using the array afterwards is an `InvalidHandleError`."""
        _f.delete(self)

    def is_deleted(self) -> bool:
        """Whether the array was deleted or donated."""
        return self.state == "deleted"

    def to(self, runtime: Any) -> Array:
        """Copy to another runtime (the only transfer there is)."""
        return late.move(self, runtime)  # type: ignore[arg-type]  # Methods is a base of Array

    # --- operators

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
        return self  # type: ignore[return-value]  # Methods is only a base of Array

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

    def __getitem__(self, index: Any) -> Array:
        return _f.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise ArgumentError(
            "arrays are immutable: an element cannot be assigned",
            "write x = x.at[index].set(value)",
        )

    # --- functions as methods

    def astype(self, dtype: DTypeLike) -> Array:
        """See `et.cast`."""
        return _f.cast(self, dtype)

    def reshape(self, *shape: Any) -> Array:
        """See `et.reshape`; takes one sequence or the extents."""
        return _f.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Array:
        """See `et.transpose`; takes one sequence or the axes."""
        return _f.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        """See `et.swapaxes`."""
        return _f.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Axis = None) -> Array:
        """See `et.squeeze`."""
        return _f.squeeze(self, axis)

    def ravel(self) -> Array:
        """See `et.ravel`."""
        return _f.ravel(self)

    def flatten(self) -> Array:
        """See `et.ravel`."""
        return _f.ravel(self)

    def sum(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """See `et.sum`."""
        return _f.sum(self, axis, keepdims=keepdims)

    def prod(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """See `et.prod`."""
        return _f.prod(self, axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Array:
        """See `et.mean`."""
        return _f.mean(self, axis, keepdims=keepdims)

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

    def cumsum(self, axis: int | None = None) -> Array:
        """See `et.cumsum`."""
        return _f.cumsum(self, axis)

    def cumprod(self, axis: int | None = None) -> Array:
        """See `et.cumprod`."""
        return _f.cumprod(self, axis)

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
