"""`jacfwd`, `jacrev`, `hessian`: whole Jacobians by `vmap` over a basis."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.core import late, tree
from pyeffect_torch.core.array import Array
from pyeffect_torch.transforms.arguments import (
    argument_indices,
    flat_arrays,
    require_callable,
    require_differentiable,
)
from pyeffect_torch.transforms.grad import vjp
from pyeffect_torch.transforms.jvp import jvp
from pyeffect_torch.transforms.vmap import vmap

_f: Any = late.functions


def _basis(like: Sequence[Array]) -> list[Array]:
    """For each array of n_i elements, [n, *shape]: the rows of an identity over all elements."""
    total = sum(array.size for array in like)
    out: list[Array] = []
    start = 0
    for array in like:
        eye = _f.eye(total, dtype=array.dtype)
        columns = eye[:, start : start + array.size]
        out.append(_f.reshape(columns, (total, *array.shape)))
        start += array.size
    return out


def _split(rows: Array, like: Sequence[Array], *, axis: int) -> list[Array]:
    """Cut the axis of all elements into one block per array, unflattened to its shape."""
    out: list[Array] = []
    start = 0
    for array in like:
        index = (slice(None),) * axis + (slice(start, start + array.size),)
        block = rows[index]
        shape = (*rows.shape[:axis], *array.shape, *rows.shape[axis + 1 :])
        out.append(_f.reshape(block, shape))
        start += array.size
    return out


def jacrev(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the Jacobian of `f` by reverse mode: a tree of results over a tree of arguments.

    Each entry has the shape of the result followed by the shape of the argument. With `has_aux`,
    `f` returns `(result, aux)` and the Jacobian comes as `(jacobian, aux)`.
    """
    require_callable("jacrev", f)

    @functools.wraps(f)
    def wrapped(*args: Any) -> Any:
        indices = argument_indices("jacrev", argnums, len(args))

        def partial(*chosen: Any) -> Any:
            call = list(args)
            for index, value in zip(indices, chosen, strict=True):
                call[index] = value
            return f(*call)

        chosen = tuple(args[index] for index in indices)
        for index in indices:
            require_differentiable(
                "jacrev", *flat_arrays("jacrev", args[index]), f"argument {index}"
            )
        out, pullback, *aux = vjp(partial, *chosen, has_aux=has_aux)
        outs, out_structure = flat_arrays("jacrev", out)
        rows = vmap(lambda *cts: pullback(tree.unflatten(out_structure, cts)))(*_basis(outs))

        def blocks(leaf: Array) -> list[Array]:
            return _split(leaf, outs, axis=0)

        per_argument = [[blocks(leaf) for leaf in tree.leaves(row)] for row in rows]
        structures = [tree.structure(row) for row in rows]
        results: list[Any] = []
        for k in range(len(outs)):
            trees = tuple(
                tree.unflatten(structure, [leaf[k] for leaf in leaves])
                for structure, leaves in zip(structures, per_argument, strict=True)
            )
            results.append(trees if isinstance(argnums, (tuple, list)) else trees[0])
        jacobian = tree.unflatten(out_structure, results)
        return (jacobian, aux[0]) if has_aux else jacobian

    return wrapped


def jacfwd(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the Jacobian of `f` by forward mode; the result has the trees of `jacrev`."""
    require_callable("jacfwd", f)

    @functools.wraps(f)
    def wrapped(*args: Any) -> Any:
        indices = argument_indices("jacfwd", argnums, len(args))
        chosen = tuple(args[index] for index in indices)
        for index in indices:
            require_differentiable(
                "jacfwd", *flat_arrays("jacfwd", args[index]), f"argument {index}"
            )
        flat, structure = flat_arrays("jacfwd", chosen)

        def partial(*values: Any) -> Any:
            call = list(args)
            for index, value in zip(indices, values, strict=True):
                call[index] = value
            return f(*call)

        def push(*tangents: Any) -> Any:
            pushed = jvp(partial, chosen, tree.unflatten(structure, tangents), has_aux=has_aux)
            return pushed[1], pushed[2] if has_aux else ()

        pushed, aux = vmap(push, out_axes=(-1, None))(*_basis(flat))
        columns, out_structure = flat_arrays("jacfwd", pushed)
        results: list[Any] = []
        for leaf in columns:
            trees = tree.unflatten(structure, _split(leaf, flat, axis=len(leaf.shape) - 1))
            results.append(trees if isinstance(argnums, (tuple, list)) else trees[0])
        jacobian = tree.unflatten(out_structure, results)
        return (jacobian, aux) if has_aux else jacobian

    return wrapped


def hessian(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the Hessian of a scalar function: forward mode over reverse mode.

    With `has_aux`, `f` returns `(value, aux)` and the Hessian comes as `(hessian, aux)`.
    """
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)
