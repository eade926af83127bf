"""Functional transformations over lazy arrays, on a native core.

`import pyeffect_torch as et`. Pure functions over pytrees are traced into one lazy graph; `grad`,
`vjp`, `jvp`, `vmap`, `checkpoint` and `jit` compose over it in any order.
"""

from __future__ import annotations

import builtins
import importlib
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import TYPE_CHECKING, Any

from pyeffect_torch import interop as _interop
from pyeffect_torch.api.frozen import FrozenProgram, freeze, load_program
from pyeffect_torch.api.inspection import eval_shape, make_ir, spec
from pyeffect_torch.api.jit import jit
from pyeffect_torch.control.associative import associative_scan
from pyeffect_torch.control.branches import cond, switch
from pyeffect_torch.control.scan import map_, scan
from pyeffect_torch.control.while_loop import fori_loop, while_loop
from pyeffect_torch.core import dtypes, elsewhere, errors, late, tree
from pyeffect_torch.core.array import Array
from pyeffect_torch.ops import FUNCTIONS as _FUNCTIONS
from pyeffect_torch.runtime.background import compute_async
from pyeffect_torch.runtime.cancel import cancel_scope
from pyeffect_torch.runtime.compute import compute
from pyeffect_torch.runtime.dlpack import from_dlpack
from pyeffect_torch.runtime.registry import cpu, current, reference, set_default, use
from pyeffect_torch.runtime.scope import scope
from pyeffect_torch.runtime.threads import get_num_threads, set_num_threads
from pyeffect_torch.transforms.checkpoint import checkpoint
from pyeffect_torch.transforms.collectives import (
    axis_index,
    axis_size,
    pmax,
    pmean,
    pmin,
    psum,
)
from pyeffect_torch.transforms.custom import custom_jvp, custom_vjp
from pyeffect_torch.transforms.grad import grad, linear_transpose, value_and_grad, vjp
from pyeffect_torch.transforms.jacobian import hessian, jacfwd, jacrev
from pyeffect_torch.transforms.jvp import jvp, linearize
from pyeffect_torch.transforms.vmap import vmap

if TYPE_CHECKING:
    from pyeffect_torch import array_api as array_api
    from pyeffect_torch import debug as debug
    from pyeffect_torch import linalg as linalg
    from pyeffect_torch import losses as losses
    from pyeffect_torch import nn as nn
    from pyeffect_torch import random as random
    from pyeffect_torch import safetensors as safetensors

__version__ = "0.1.0"

globals().update(_FUNCTIONS)
remat = checkpoint
newaxis = None
map = map_  # a builtin's name, so it is not in __all__

_LAZY = ("debug", "array_api", "linalg", "losses", "nn", "random", "safetensors", "testing")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"pyeffect_torch.{name}")
    raise elsewhere.missing(__name__, name)


late.functions.array_namespace = lambda version: __getattr__("array_api").namespace(version)
_interop.register()


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})


__all__ = [
    "Array",
    "FrozenProgram",
    "axis_index",
    "axis_size",
    "associative_scan",
    "cancel_scope",
    "checkpoint",
    "compute",
    "compute_async",
    "cond",
    "cpu",
    "current",
    "custom_jvp",
    "custom_vjp",
    "dtypes",
    "e",
    "errors",
    "eval_shape",
    "fori_loop",
    "freeze",
    "from_dlpack",
    "get_num_threads",
    "grad",
    "hessian",
    "inf",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "linear_transpose",
    "linearize",
    "load_program",
    "make_ir",
    "nan",
    "newaxis",
    "pi",
    "pmax",
    "pmean",
    "pmin",
    "psum",
    "reference",
    "scan",
    "scope",
    "set_default",
    "set_num_threads",
    "spec",
    "switch",
    "tree",
    "use",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
    # pyright: ignore[reportUnsupportedDunderAll]  the registry of ops decides these names
    *(name for name in _FUNCTIONS if not hasattr(builtins, name)),
]
