"""`make_ir` and `eval_shape`: what a function is, without running it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyeffect_torch.core import tree
from pyeffect_torch.core.array import ArgumentName, Array
from pyeffect_torch.core.dtypes import DType, DTypeLike
from pyeffect_torch.core.op import Shape
from pyeffect_torch.core.printer import IR
from pyeffect_torch.core.trace import Trace, trace
from pyeffect_torch.ops.base import operand, resolve_dtype, shape_of
from pyeffect_torch.transforms.arguments import argument_paths, require_callable


@dataclass(frozen=True, slots=True)
class Spec:
    """A shape and a dtype without a value; a leaf of trees (see `spec`)."""

    shape: Shape
    dtype: DType

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


def spec(shape: Any, dtype: DTypeLike) -> Spec:
    """Return a shape and dtype that `lower`, `freeze` and `eval_shape` accept for an array."""
    return Spec(shape_of("spec", shape), resolve_dtype("spec", dtype))


def traced(what: str, f: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Trace, Any, Any]:
    """Trace `f` on arrays or specs; return the trace, the input and the output structure."""
    require_callable(what, f)
    leaves, structure = tree.flatten((args, kwargs))
    types = [
        (leaf.shape, leaf.dtype) if isinstance(leaf, Spec) else _type(operand(what, leaf))
        for leaf in leaves
    ]
    paths = functools.cache(functools.partial(argument_paths, f, *structure.children()))

    def call(arguments: Sequence[Array]) -> tuple[Sequence[Array], Any]:
        call_args, call_kwargs = tree.unflatten(structure, arguments)
        flat, out = tree.flatten(f(*call_args, **call_kwargs))
        return [operand(what, leaf) for leaf in flat], out

    name = getattr(f, "__name__", "f")
    names = [ArgumentName(paths, index, f"{what}({name})") for index in range(len(types))]
    made = trace(what, call, types, names, with_key=True)
    return made, structure, made.out


def _type(array: Array) -> tuple[Shape, DType]:
    return array.shape, array.dtype


def make_ir(f: Callable[..., Any]) -> Callable[..., IR]:
    """Return a function that gives the semantic graph of `f`, as printable text."""
    require_callable("make_ir", f)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> IR:
        made, structure, _ = traced("make_ir", f, args, kwargs)
        captures = [f"capture{i}" for i in range(len(made.captures))]
        names = [path.removeprefix("arguments[0]") for path in tree.paths(structure, "arguments")]
        labels = [*captures, "key", *(f"arg{name}" for name in names)]
        return IR(getattr(f, "__name__", "f"), made.body, labels)

    return wrapped


def eval_shape(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the tree of result types (`Spec`s) of `f(*args)`; nothing is computed."""
    made, _, out = traced("eval_shape", f, args, kwargs)
    return tree.unflatten(out, [Spec(root.shape, root.dtype) for root in made.roots])
