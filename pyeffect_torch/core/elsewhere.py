"""What JAX's names that are not here are called here, for the message of a missing attribute."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from pyeffect_torch.core import dtypes

_HERE: Final = "its functions are here: "

MENDS: Final = {
    "pyeffect_torch": {
        "ShapeDtypeStruct": "use et.spec",
        "block_until_ready": "use et.compute, which runs what is lazy",
        "device_get": "use x.numpy()",
        "device_put": "use x.to(runtime)",
        "export": "use et.freeze",
        "lax": f"{_HERE}et.scan, et.while_loop, et.cond, et.top_k, ...",
        "make_jaxpr": "use et.make_ir",
        "numpy": f"{_HERE}et.sin, et.where, et.einsum, ...",
        "tree_map": "use et.tree.map",
        "tree_util": f"{_HERE}et.tree.map, et.tree.leaves, et.tree.flatten, ...",
        **{
            dtype.name: f'use et.dtypes.{dtype.name}, or "{dtype.name}" where a dtype is asked for'
            for dtype in dtypes.ALL
            if dtype is not dtypes.bool_
        },
        "bool_": 'use et.dtypes.bool_, or "bool" where a dtype is asked for',
    },
    "pyeffect_torch.linalg": {
        "cho_factor": "use et.linalg.cholesky",
        "cho_solve": "use et.linalg.triangular_solve twice",
        "solve_triangular": "use et.linalg.triangular_solve",
    },
    "pyeffect_torch.random": {
        "PRNGKey": "use et.random.key",
        "key_data": "a key of et.random.key is an array, uint32[2]",
    },
}
"""By module and name; each `et.` name in a text exists (a test looks)."""


def missing(module: str, name: str) -> AttributeError:
    """Return the error for an attribute that `module` does not have."""
    mend = MENDS.get(module, {}).get(name)
    text = f"module {module!r} has no attribute {name!r}"
    if mend:
        return AttributeError(f"{text}; {mend}")
    return AttributeError(text, name=name, obj=sys.modules[module])  # Python adds a near name


def getter(module: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, which raises what `missing` makes."""

    def absent(name: str) -> Any:
        raise missing(module, name)

    return absent
