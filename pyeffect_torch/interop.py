"""Makes einops know arrays: a backend of it, defined at the moment that einops is imported.

einops finds the library of a tensor among the subclasses of its `AbstractBackend`. Importing it
here would cost every user its time, so a finder waits for the import, wherever it happens, and
leaves afterwards. jaxtyping needs nothing: dtypes are NumPy's.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array

_BACKENDS: Final = "einops._backends"
_f: Any = late.functions
_defined: list[type] = []  # a class lists its subclasses by weak references


def _define(module: ModuleType) -> None:
    """Define the backend; being a subclass is all that einops needs."""

    class PyeffectBackend(module.AbstractBackend):
        """How einops works on arrays, concrete or traced."""

        framework_name = "pyeffect_torch"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, Array)

        def from_numpy(self, x: Any) -> Array:
            return _f.array(x)

        def to_numpy(self, x: Array) -> Any:
            return x.numpy()

        def arange(self, start: int, stop: int) -> Array:
            return _f.arange(start, stop)

        def stack_on_zeroth_dimension(self, tensors: list[Array]) -> Array:
            return _f.stack(tensors)

        def add_axis(self, x: Array, new_position: int) -> Array:
            return _f.expand_dims(x, new_position)

        def tile(self, x: Array, repeats: Sequence[int]) -> Array:
            return _f.tile(x, repeats)

        def concat(self, tensors: Sequence[Array], axis: int) -> Array:
            return _f.concatenate(tensors, axis)

        def is_float_type(self, x: Array) -> bool:
            return x.dtype.name in ("float16", "bfloat16", "float32", "float64")

        def einsum(self, pattern: str, *x: Array) -> Array:
            return _f.einsum(pattern, *x)

    _defined.append(PyeffectBackend)


class _Loader(importlib.abc.Loader):
    """Runs a module by its own loader, then defines the backend."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _define(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for einops to be imported."""

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _BACKENDS:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        found = importlib.util.find_spec(fullname)
        if found is not None and found.loader is not None:
            found.loader = _Loader(found.loader)
        return found


def register() -> None:
    """Define the einops backend now if einops is there already, else when it is imported."""
    module = sys.modules.get(_BACKENDS)
    if module is not None:
        _define(module)
    else:
        sys.meta_path.insert(0, _Finder())
