"""The Python array API standard, version 2024.12: what `x.__array_namespace__()` returns.

The functions of the package under the standard's names and with its keywords. The rules for dtypes
stay ours: nothing is promoted. `docs/array-api.md` lists every difference. A name that shadows a
builtin is declared with a trailing underscore, which the namespace drops.

Reference: https://data-apis.org/array-api/2024.12
"""

from __future__ import annotations

import math
import sys
from types import FunctionType, ModuleType
from typing import Any, Final

import pyeffect_torch.ops as _ops
from pyeffect_torch.array_api import creation as _creation
from pyeffect_torch.array_api import functions as _functions
from pyeffect_torch.array_api.inspection import STANDARD_DTYPES as _DTYPES
from pyeffect_torch.array_api.inspection import Info as _Info
from pyeffect_torch.core.errors import ArgumentError

__array_api_version__: Final = "2024.12"

_UNCHANGED: Final = (
    "abs add argmax argmin bitwise_and bitwise_or bitwise_xor broadcast_arrays "
    "broadcast_to can_cast ceil copysign cos cosh count_nonzero diff divide equal exp expm1 "
    "finfo flip floor floor_divide greater greater_equal hypot iinfo isdtype isfinite isinf "
    "isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or "
    "logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis "
    "multiply negative nextafter nonzero not_equal permute_dims reciprocal remainder repeat "
    "result_type roll round sign signbit sin sinh sqrt square squeeze stack "
    "std subtract tan tanh tensordot tile trunc "
    "unstack var vecdot where"
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


def _names() -> dict[str, Any]:
    table = {name: name for name in _SAME} | _RENAMED
    ours = {name: _ops.FUNCTIONS[own] for name, own in table.items() if own in _ops.FUNCTIONS}
    wrapped = {
        name.rstrip("_"): value
        for module in (_creation, _functions)
        for name, value in vars(module).items()
        if isinstance(value, FunctionType)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }
    constants = {"e": math.e, "inf": math.inf, "nan": math.nan, "newaxis": None, "pi": math.pi}
    kinds = {dtype.name: dtype for dtype in _DTYPES}
    return {**ours, **wrapped, **constants, **kinds}


_found: Final = _names()
MISSING: Final = tuple(sorted({*_SAME, *_RENAMED, *_COMPLEX} - set(_found)))
"""Names of the standard that are not there."""

_dunders: Final = ("__array_api_version__", "__array_namespace_info__")
globals().update({**_found, "__all__": sorted({*_found, *_dunders})})
