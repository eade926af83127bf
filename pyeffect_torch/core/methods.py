"""What an `Array` is and how it is read, indexed and released; the rest of its methods by base.

`operators.py` has the operators, `function_methods.py` the array functions as methods, and
`interchange.py` what NumPy, DLPack, pickle and copy ask for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from pyeffect_torch.core import late
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.core.function_methods import FunctionMethods
from pyeffect_torch.core.interchange import Interchange
from pyeffect_torch.core.operators import Operators

if TYPE_CHECKING:
    from pyeffect_torch.core.array import Array
    from pyeffect_torch.core.dtypes import DType
    from pyeffect_torch.core.op import Shape

_f = late.functions


class Methods(Operators, FunctionMethods, Interchange):
    """Everything that users call on an `Array`."""

    __slots__ = ()

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
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

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
        return late.placement(cast("Array", self))

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

    def tobytes(self) -> bytes:
        """Return the bytes of the value, in row-major order."""
        return self.numpy().tobytes()

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

    def __contains__(self, value: Any) -> bool:
        return bool(_f.any(_f.equal(self, value)))

    def __repr__(self) -> str:
        return _f.represent(self)

    def __hash__(self) -> NoReturn:
        raise ArgumentError(
            "an Array is not hashable: equality is elementwise",
            "use id(x) as a key, or a Python number as a static argument",
        )

    # --- lifetime

    def delete(self) -> None:
        """Release the buffer now; using the array afterwards is an `InvalidHandleError`."""
        _f.delete(self)

    def is_deleted(self) -> bool:
        """Whether the array was deleted or donated."""
        return self.state == "deleted"

    def to(self, runtime: Any) -> Array:
        """Copy to another runtime (the only transfer there is)."""
        return late.move(cast("Array", self), runtime)

    def __getitem__(self, index: Any) -> Array:
        return _f.getitem(self, index)

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise ArgumentError(
            "arrays are immutable: an element cannot be assigned",
            "write x = x.at[index].set(value)",
        )
