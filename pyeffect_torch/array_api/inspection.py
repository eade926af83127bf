"""What `__array_namespace_info__` of the array API standard returns."""

from __future__ import annotations

from typing import Any, Final

from pyeffect_torch.core import dtypes as _dtypes
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.runtime.base import Runtime
from pyeffect_torch.runtime.registry import cpu, current, reference


class Info:
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
        named = {dtype.name: dtype for dtype in STANDARD_DTYPES}
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
STANDARD_DTYPES: Final = [dtype for dtype in _dtypes.ALL if dtype not in _dtypes.HALVES]
