"""The Python array API standard, version 2024.12: what `x.__array_namespace__()` returns.

The functions of the package under the standard's names and with its keywords. The rules for dtypes
stay ours: nothing is promoted. `docs/array-api.md` lists every difference. A name that shadows a
builtin is declared with a trailing underscore, which the namespace drops.

Reference: https://data-apis.org/array-api/2024.12
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import pyeffect_torch.ops as _ops
from pyeffect_torch.core import dtypes as _dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.runtime.base import Runtime
from pyeffect_torch.runtime.dlpack import from_dlpack as _from_dlpack
from pyeffect_torch.runtime.registry import cpu, current, reference, use

__array_api_version__: Final = "2024.12"

_f: Final[dict[str, Callable[..., Any]]] = _ops.FUNCTIONS

_UNCHANGED: Final = (
    "abs add argmax argmin argsort bitwise_and bitwise_or bitwise_xor broadcast_arrays "
    "broadcast_to can_cast ceil copysign cos cosh count_nonzero diff divide equal exp expm1 "
    "finfo flip floor floor_divide greater greater_equal hypot iinfo isdtype isfinite isinf "
    "isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or "
    "logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis "
    "multiply negative nextafter nonzero not_equal permute_dims reciprocal remainder repeat "
    "result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack "
    "std subtract tan tanh tensordot tile trunc unique_all unique_counts unique_inverse "
    "unique_values unstack var vecdot where"
)
_SAME: Final = _UNCHANGED.split()
_RENAMED: Final = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "bitwise_invert": "bitwise_not",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "concat": "concatenate",
    "pow": "power",
}
_COMPLEX: Final = ("complex64", "complex128", "conj", "imag", "real")
"""Names of the standard for complex numbers, which are not there."""


# --- creation; a `device` is a runtime


def _placed(array: Array, device: Runtime | None) -> Array:
    return array if device is None else array.to(device)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Runtime | None = None, copy: bool | None = None
) -> Array:
    """Return `obj` as an array; host data is always copied.

    Raises:
        ValueError: `copy=False` for what is not an array of the dtype and the device already.
    """
    if isinstance(obj, Array):
        made = _placed(obj if dtype is None else _f["cast"](obj, dtype), device)
        if copy is False and made is not obj:
            raise ValueError("asarray: another dtype or device needs a copy")
        return made.copy() if copy else made
    if copy is False:
        raise ValueError(f"asarray: {type(obj).__name__} is always copied")
    with use(device or current()):
        return _f["array"](obj, dtype)


def from_dlpack(x: Any, /, *, device: Runtime | None = None, copy: bool | None = None) -> Array:
    """See `et.from_dlpack`."""
    return _from_dlpack(x, device=device, copy=copy)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Runtime | None = None,
) -> Array:
    """See `et.arange`."""
    return _placed(_f["arange"](start, stop, step, dtype), device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Runtime | None = None,
    endpoint: bool = True,
) -> Array:
    """See `et.linspace`."""
    made = _f["linspace"](start, stop, num, endpoint=endpoint, dtype=dtype or _dtypes.float32)
    return _placed(made, device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Runtime | None = None,
) -> Array:
    """See `et.eye`."""
    return _placed(_f["eye"](n_rows, n_cols, k, dtype or _dtypes.float32), device)


def zeros(shape: Any, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.zeros`."""
    return _placed(_f["zeros"](shape, dtype or _dtypes.float32), device)


def ones(shape: Any, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.ones`."""
    return _placed(_f["ones"](shape, dtype or _dtypes.float32), device)


def empty(shape: Any, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.empty`."""
    return zeros(shape, dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.full`."""
    return _placed(_f["full"](shape, fill_value, dtype), device)


def zeros_like(x: Array, /, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.zeros_like`."""
    return _placed(_f["zeros_like"](x, dtype), device)


def ones_like(x: Array, /, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.ones_like`."""
    return _placed(_f["ones_like"](x, dtype), device)


def empty_like(x: Array, /, *, dtype: Any = None, device: Runtime | None = None) -> Array:
    """See `et.empty_like`."""
    return zeros_like(x, dtype=dtype, device=device)


def full_like(
    x: Array, /, fill_value: Any, *, dtype: Any = None, device: Runtime | None = None
) -> Array:
    """See `et.full_like`."""
    return _placed(_f["full_like"](x, fill_value, dtype), device)


def tril(x: Array, /, *, k: int = 0) -> Array:
    """See `et.tril`."""
    return _f["tril"](x, k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """See `et.triu`."""
    return _f["triu"](x, k)


def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Runtime | None = None) -> Array:
    """See `et.cast`; an array is immutable, so `copy` says nothing."""
    del copy
    return _placed(_f["cast"](x, dtype), device)


# --- functions whose keywords or defaults differ from ours


def positive(x: Array, /) -> Array:
    """Return `x`."""
    return +x


def clip(x: Array, /, min: Any = None, max: Any = None) -> Array:
    """See `et.clip`."""
    return _f["clip"](x, min, max)


def reshape(x: Array, /, shape: Any, *, copy: bool | None = None) -> Array:
    """See `et.reshape`; an array is immutable, so `copy` says nothing."""
    del copy
    return _f["reshape"](x, shape)


def expand_dims(x: Array, /, *, axis: int = 0) -> Array:
    """See `et.expand_dims`."""
    return _f["expand_dims"](x, axis)


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """See `et.take`."""
    return _f["take"](x, indices, axis)


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """See `et.take_along_axis`."""
    return _f["take_along_axis"](x, indices, axis)


def all_(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """See `et.all`; what is not 0 counts as True."""
    return _f["all"](_truth(x), axis, keepdims=keepdims)


def any_(x: Array, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """See `et.any`; what is not 0 counts as True."""
    return _f["any"](_truth(x), axis, keepdims=keepdims)


def _truth(x: Array) -> Array:
    return x if x.dtype is _dtypes.bool_ else _f["not_equal"](x, 0)


def sum_(x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """See `et.sum`; integers are summed in 64 bits."""
    return _f["sum"](_widened(x, dtype), axis, keepdims=keepdims)


def prod(x: Array, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """See `et.prod`; integers are multiplied in 64 bits."""
    return _f["prod"](_widened(x, dtype), axis, keepdims=keepdims)


def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """See `et.cumsum`; integers are summed in 64 bits.

    Args:
        x: an array; of one axis if `axis` is None.
        axis: the axis to sum along.
        dtype: of the result.
        include_initial: begin with a 0, so that the axis has one element more.
    """
    return _cumulative("cumsum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """See `et.cumprod`; as `cumulative_sum`, beginning with a 1."""
    return _cumulative("cumprod", x, axis, dtype, 1 if include_initial else None)


def _cumulative(name: str, x: Array, axis: int | None, dtype: Any, first: int | None) -> Array:
    if axis is None:
        if x.ndim != 1:
            raise ArgumentError(f"{name}: an array of {x.ndim} axes needs an axis", "pass axis=")
        axis = 0
    wide = _widened(x, dtype)
    if first is not None:
        shape = list(x.shape)
        shape[axis] = 1
        wide = _f["concatenate"]([_f["full"](shape, first, wide.dtype), wide], axis)
    return _f[name](wide, axis)


def _widened(x: Array, dtype: Any) -> Array:
    """Cast to `dtype`, by default 64 bits for integers."""
    if dtype is None and x.dtype in _dtypes.INTEGERS:
        dtype = _dtypes.uint64 if x.dtype in _dtypes.UNSIGNED else _dtypes.int64
    return x if dtype is None else _f["cast"](x, dtype)


# --- inspection


class _Info:
    """What `__array_namespace_info__` returns."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean masks index arrays with a value; no shape depends on data inside a trace."""
        return {"boolean indexing": True, "data-dependent shapes": False, "max dimensions": 16}

    def default_device(self) -> Runtime:
        """The runtime that new arrays are placed on."""
        return current()

    def devices(self) -> list[Runtime]:
        """The runtimes that can be had here."""
        return [make() for make in (cpu, reference) if make.is_available()]

    def default_dtypes(self, *, device: Runtime | None = None) -> dict[str, DType]:
        """The dtypes of Python numbers and of positions."""
        del device
        return {
            "real floating": _dtypes.float32,
            "integral": _dtypes.int64,
            "indexing": _dtypes.int64,
        }

    def dtypes(self, *, device: Runtime | None = None, kind: Any = None) -> dict[str, DType]:
        """The dtypes of a kind, or of a tuple of kinds, by the standard's names."""
        del device
        kinds = (kind,) if isinstance(kind, str) else kind
        named = {dtype.name: dtype for dtype in _STANDARD_DTYPES}
        if kinds is None:
            return named
        wanted = {dtype for one in kinds for dtype in _KINDS[one]}
        return {name: dtype for name, dtype in named.items() if dtype in wanted}


_REAL: Final = frozenset({_dtypes.float32, _dtypes.float64})
_KINDS: Final[dict[str, frozenset[DType]]] = {
    "bool": frozenset({_dtypes.bool_}),
    "signed integer": _dtypes.SIGNED,
    "unsigned integer": _dtypes.UNSIGNED,
    "integral": _dtypes.INTEGERS,
    "real floating": _REAL,
    "complex floating": frozenset(),
    "numeric": _dtypes.INTEGERS | _REAL,
}
_STANDARD_DTYPES: Final = [dtype for dtype in _dtypes.ALL if dtype not in _dtypes.HALVES]


def __array_namespace_info__() -> _Info:
    """Return what this namespace can do."""
    return _Info()


def namespace(api_version: str | None = None) -> ModuleType:
    """Return this module, for `x.__array_namespace__()`.

    Raises:
        ArgumentError: a version of the standard newer than the one that is there.
    """
    if api_version is not None and api_version > __array_api_version__:
        raise ArgumentError(
            f"__array_namespace__: version {api_version} of the array API is not there",
            f"ask for {__array_api_version__} or before",
        )
    return sys.modules[__name__]


# --- the names


def _names() -> dict[str, Any]:
    here = {
        name.rstrip("_"): value
        for name, value in globals().items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == __name__
        and name != "namespace"
    }
    table = {name: name for name in _SAME} | _RENAMED
    ours = {name: _f[own] for name, own in table.items() if own in _f}
    constants = {
        "e": math.e,
        "inf": math.inf,
        "nan": math.nan,
        "newaxis": None,
        "pi": math.pi,
    }
    kinds = {dtype.name: dtype for dtype in _STANDARD_DTYPES}
    return {**ours, **here, **constants, **kinds}


_found: Final = _names()
MISSING: Final = tuple(sorted({*_SAME, *_RENAMED, *_COMPLEX} - set(_found)))
"""Names of the standard that are not there."""

_dunders: Final = ("__array_api_version__", "__array_namespace_info__")
globals().update({**_found, "__all__": sorted({*_found, *_dunders})})
