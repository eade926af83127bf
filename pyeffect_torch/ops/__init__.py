"""Every op, declared once, by family, and the array functions over them.

`FUNCTIONS` has the public array functions by name. A module whose function would shadow a builtin
declares it with a trailing underscore (`abs_`), which the public name drops. A module with an
`__all__` makes only those names public; rules reach the rest through `late.functions`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pyeffect_torch.core import late

_FAMILIES = (
    "activations",
    "arithmetic",
    "at",
    "attention",
    "barrier",
    "batch_norm",
    "choice",
    "cholesky",
    "closeness",
    "comparison",
    "constructors",
    "contraction",
    "convolution",
    "counting",
    "cross_entropy",
    "cumulative",
    "decompositions",
    "dropout",
    "dynamic",
    "eigh",
    "einsum",
    "embedding",
    "extremum",
    "getitem",
    "grids",
    "implicit",
    "indexing",
    "iota",
    "lu",
    "nan_reductions",
    "normalization",
    "numbers",
    "order",
    "padding",
    "pieces",
    "pooling",
    "positions",
    "products",
    "qr",
    "quantiles",
    "reduction",
    "scatter",
    "search",
    "segments",
    "selection",
    "shape",
    "shape_extra",
    "short_convolution",
    "special",
    "statistics",
    "stop_gradient",
    "svd",
    "transcendental",
    "triangular",
    "types",
    "unary",
    "upsampling",
    "values",
    "windows",
)

FUNCTIONS: dict[str, Callable[..., Any]] = {}

for _family in (import_module(f"{__name__}.{name}") for name in _FAMILIES):
    for _name, _value in vars(_family).items():
        if (
            callable(_value)
            and not _name.startswith("_")
            and getattr(_value, "__module__", None) == _family.__name__
        ):
            _public = _name.rstrip("_")
            if _public != _name:  # a builtin's name; Python's own messages show the public one
                _value.__name__ = _value.__qualname__ = _public
                _value.__module__ = "pyeffect_torch"
            setattr(late.functions, _public, _value)
            if _name in getattr(_family, "__all__", (_name,)):
                FUNCTIONS[_public] = _value

ALIASES = {
    "astype": "cast",
    "div": "divide",
    "mul": "multiply",
    "sub": "subtract",
    "variance": "var",
}
"""Short, NumPy- or array-API-named twins; they have no documentation of their own."""

FUNCTIONS.update({alias: FUNCTIONS[name] for alias, name in ALIASES.items()})
for _hidden in ("counting", "integer_power", "iota", "unbroadcast"):
    del FUNCTIONS[_hidden]  # what rules call, and users reach by another name
