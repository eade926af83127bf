"""`grad`, `value_and_grad`, `vjp`: reverse mode over pytrees."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.core import dtypes, tree
from pyeffect_torch.core.array import Array, leaf, literal, placeholder
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import ArgumentError, DTypeError
from pyeffect_torch.core.graph import Body, begin_derivative, end_derivative
from pyeffect_torch.core.op import Shape
from pyeffect_torch.core.trace import trace
from pyeffect_torch.ops.base import describe, operand
from pyeffect_torch.transforms.arguments import (
    argument_indices,
    flat_arrays,
    instantiate,
    matching,
    require_callable,
    require_differentiable,
    split_aux,
    zeros,
)
from pyeffect_torch.transforms.reverse import reverse, without_tangents


def _scalar_loss(what: str, value: Any) -> Array:
    if not isinstance(value, (Array, bool, int, float)):
        raise ArgumentError(
            f"{what}: the function must return one scalar, got {type(value).__name__}",
            "return the loss; with has_aux=True, return (loss, aux)",
        )
    loss = operand(what, value)
    if loss.shape != ():
        raise ArgumentError(
            f"{what}: the function must return a scalar, got {describe(loss)}",
            "reduce the result, for example with .sum() or .mean(), or use et.vjp or et.jacrev",
        )
    if not dtypes.is_float(loss.dtype):
        raise DTypeError(
            f"{what}: the function must return a floating scalar, got {describe(loss)}",
            "cast the loss to a floating dtype",
        )
    return loss


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that gives `(f(*args), gradient)`.

    Args:
        f: returns a floating scalar, or `(scalar, aux)` with `has_aux`.
        argnums: positions of the arguments (pytrees of floating arrays) to differentiate.

    Returns:
        A function of the same arguments. Its gradient has the tree of the argument, or is a tuple
        for several `argnums`; with `has_aux` the value is `(value, aux)`.

    Raises:
        DTypeError: an integer or bool leaf. ArgumentError: a result that is no scalar.
    """
    require_callable("value_and_grad", f)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return _value_and_grad("grad", f, argnums, has_aux, args, kwargs)

    return wrapped


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the gradient function of `f`, as in `value_and_grad`; with aux, a pair."""
    require_callable("grad", f)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = _value_and_grad("grad", f, argnums, has_aux, args, kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def _value_and_grad(
    what: str,
    f: Callable[..., Any],
    argnums: int | Sequence[int],
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    indices = argument_indices(what, argnums, len(args))
    call = list(args)
    leaves: list[Array] = []
    structures: list[tree.Structure] = []
    for index in indices:
        arrays, structure = flat_arrays(what, args[index])
        require_differentiable(what, arrays, structure, f"argument {index}")
        fresh = [leaf(array) for array in arrays]
        call[index] = tree.unflatten(structure, fresh)
        leaves.extend(fresh)
        structures.append(structure)
    token = begin_derivative(leaves)
    try:
        result, aux = split_aux(what, f(*call, **kwargs), has_aux)
        loss = _scalar_loss(what, result)
        seed = literal(1, loss.dtype)
        floor = leaves[0].serial if leaves else 0
        cts = instantiate(reverse([loss], [seed], leaves, (), floor), leaves)
    finally:
        end_derivative(token)
    gradients: list[Any] = []
    start = 0
    for structure in structures:
        stop = start + structure.num_leaves
        gradients.append(tree.unflatten(structure, cts[start:stop]))
        start = stop
    gradient = tuple(gradients) if isinstance(argnums, (tuple, list)) else gradients[0]
    return ((loss, aux) if has_aux else loss), gradient


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return `(f(*primals), vjp_fn)`, or `(out, vjp_fn, aux)` with `has_aux`.

    `vjp_fn(ct)` takes a tree like the result and returns a tuple with one cotangent tree per
    primal; it may be called any number of times. Integer and bool leaves have zero cotangents of
    their own dtype, and what is passed for integer results is ignored.
    """
    require_callable("vjp", f)
    flat, structure = flat_arrays("vjp", primals)
    leaves = [leaf(a) if dtypes.is_float(a.dtype) else a for a in flat]
    fresh = [a for a in leaves if dtypes.is_float(a.dtype)]
    token = begin_derivative(fresh)
    try:
        result, aux = split_aux("vjp", f(*tree.unflatten(structure, leaves)), has_aux)
        outs, out_structure = flat_arrays("vjp", result)
        seeds = [
            placeholder(out.shape, out.dtype, "a cotangent of vjp")
            if dtypes.is_float(out.dtype)
            else None
            for out in outs
        ]
        floor = fresh[0].serial if fresh else 0
        cts = reverse(outs, seeds, fresh, (), floor)
    finally:
        end_derivative(token)
    formals = [seed for seed in seeds if seed is not None]
    known = [ct for ct in cts if ct is not None]
    body = Body(formals, known, floor=formals[0].serial if formals else 0)
    specs = [(a.shape, a.dtype) for a in flat]

    def vjp_fn(ct: Any) -> Any:
        given = matching("vjp", ct, out_structure, outs, "cotangent")
        values = iter(body.inline([value for value in given if value is not None]))
        results = iter([None if ct is None else next(values) for ct in cts])
        grads: list[Array] = []
        for array, (shape, dtype) in zip(leaves, specs, strict=True):
            value = next(results) if dtypes.is_float(dtype) else None
            assert array.shape == shape
            grads.append(zeros(array) if value is None else value)
        return tree.unflatten(structure, grads)

    return (result, vjp_fn, aux) if has_aux else (result, vjp_fn)


def linear_transpose(f: Callable[..., Any], *primals: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Return the transpose of `f`, which must be linear in its arguments.

    Args:
        f: a function of trees; Python control flow on values is refused inside.
        primals: trees of floating arrays, or of `et.spec`s: only shapes and dtypes matter.

    Returns:
        `transposed(ct)`: takes a tree like the result of `f`, returns a tuple with one tree for
        each primal.

    Raises:
        DTypeError: an integer or bool leaf. TraceError: `f` is not linear.
    """
    require_callable("linear_transpose", f)
    name = getattr(f, "__name__", "f")
    leaves, structure = tree.flatten(primals)
    types = [_type_of("linear_transpose", value) for value in leaves]
    for index, (_, dtype) in enumerate(types):
        if not dtypes.is_float(dtype):
            path = tree.paths(structure, "primals")[index]
            raise DTypeError(
                f"linear_transpose: {path} has dtype {dtype.name}, which has no derivative",
                "close over integer arrays instead of passing them",
            )
    names = [f"{path} of linear_transpose({name})" for path in tree.paths(structure, "primals")]

    def call(arguments: Sequence[Array]) -> tuple[Sequence[Array], Any]:
        return flat_arrays("linear_transpose", f(*tree.unflatten(structure, arguments)))

    traced = trace("linear_transpose", call, types, names)
    arguments, outs = traced.arguments, traced.roots
    seeds = [placeholder(o.shape, o.dtype, "a cotangent of linear_transpose") for o in outs]
    captures = list(traced.captures)
    cts = reverse(outs, seeds, arguments, captures)
    complaint = "the function is not linear in its arguments", "use et.vjp, or et.linearize first"
    cts = without_tangents(f"linear_transpose of {name}", cts, arguments, None, complaint)
    body = Body([*captures, *seeds], [ct for ct in cts if ct is not None])

    def transposed(ct: Any) -> tuple[Any, ...]:
        given = matching("linear_transpose", ct, traced.out, outs, "cotangent")
        if any(value is None for value in given):
            raise DTypeError(
                "linear_transpose: a result is no floating array", "return floating arrays only"
            )
        values = iter(body.inline([*captures, *(value for value in given if value is not None)]))
        found = [None if ct is None else next(values) for ct in cts]
        return tree.unflatten(structure, instantiate(found, arguments))

    return transposed


def _type_of(what: str, value: Any) -> tuple[Shape, DType]:
    """The type of an array, a number, or anything else with a shape and a dtype."""
    if not isinstance(value, Array) and hasattr(value, "shape") and hasattr(value, "dtype"):
        return tuple(value.shape), value.dtype
    array = operand(what, value)
    return array.shape, array.dtype
