"""`jvp` and `linearize`: forward mode over pytrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.core import dtypes, tree
from pyeffect_torch.core.array import Array, leaf, placeholder
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.core.graph import Body, begin_derivative, end_derivative, reach
from pyeffect_torch.transforms.arguments import (
    flat_arrays,
    instantiate,
    matching,
    require_callable,
    split_aux,
)
from pyeffect_torch.transforms.forward import forward


def _push(
    f: Callable[..., Any],
    flat: Sequence[Array],
    structure: tree.Structure,
    tangents: Sequence[Array | None],
    has_aux: bool,
    what: str,
) -> tuple[list[Array], list[Array], list[Array | None], tree.Structure, Any]:
    """Run `f` on leaves over `flat`; return its outputs, the joint primals and the tangents."""
    require_callable(what, f)
    leaves = [leaf(a) if dtypes.is_float(a.dtype) else a for a in flat]
    fresh = [a for a in leaves if dtypes.is_float(a.dtype)]
    token = begin_derivative(fresh)
    try:
        result, aux = split_aux(what, f(*tree.unflatten(structure, leaves)), has_aux)
        outs, out_structure = flat_arrays(what, result)
        table: dict[int, Any] = {
            array.serial: tangent
            for array, tangent in zip(leaves, tangents, strict=True)
            if tangent is not None
        }
        floor = fresh[0].serial if fresh else 0
        primals: dict[int, Array] = {}
        forward(reach(outs, {a.serial for a in fresh}, floor), primals, table)
    finally:
        end_derivative(token)
    joint = [primals.get(out.serial, out) for out in outs]
    return outs, joint, [table.get(out.serial) for out in outs], out_structure, aux


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Any:
    """Return `(f(*primals), tangent)`, or `(out, tangent, aux)` with `has_aux`.

    Args:
        primals, tangents: sequences of pytrees of equal structure, shapes and dtypes. Tangents of
            integer leaves are ignored, and integer results have zero tangents of their own dtype.

    Raises:
        ArgumentError: not sequences. TreeError: trees or leaf types that differ.
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise ArgumentError(
            "jvp: primals and tangents must be tuples or lists, one entry per argument",
            "write jvp(f, (x,), (t,))",
        )
    flat, structure = flat_arrays("jvp", tuple(primals))
    given = matching("jvp", tuple(tangents), structure, flat, "tangent")
    _, joint, tans, out_structure, aux = _push(f, flat, structure, given, has_aux, "jvp")
    out = tree.unflatten(out_structure, joint)
    tangent = tree.unflatten(out_structure, instantiate(tans, joint))
    return (out, tangent, aux) if has_aux else (out, tangent)


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return `(f(*primals), f_jvp)`, where `f_jvp(*tangents)` is the tangent of the result.

    The primal part runs once; `f_jvp` may be called any number of times.
    """
    flat, structure = flat_arrays("linearize", primals)
    seeds = [
        placeholder(a.shape, a.dtype, "a tangent of linearize")
        if dtypes.is_float(a.dtype)
        else None
        for a in flat
    ]
    outs, _, tans, out_structure, _ = _push(f, flat, structure, seeds, False, "linearize")
    formals = [seed for seed in seeds if seed is not None]
    known = [tangent for tangent in tans if tangent is not None]
    body = Body(formals, known, floor=formals[0].serial if formals else 0)

    def f_jvp(*tangents: Any) -> Any:
        given = matching("linearize", tangents, structure, flat, "tangent")
        values = iter(body.inline([value for value in given if value is not None]))
        results = [None if tangent is None else next(values) for tangent in tans]
        return tree.unflatten(out_structure, instantiate(results, outs))

    return tree.unflatten(out_structure, outs), f_jvp
