"""`vmap`: a function of one example becomes a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pyeffect_torch.core import dtypes, late, tree
from pyeffect_torch.core.array import Array, placeholder
from pyeffect_torch.core.errors import ArgumentError, ShapeError, TraceError, TreeError
from pyeffect_torch.core.graph import reach
from pyeffect_torch.core.trace import Frame, pop, push
from pyeffect_torch.ops.base import describe, operand
from pyeffect_torch.ops.options import require_int
from pyeffect_torch.transforms.arguments import argument_paths, flat_arrays, require_callable
from pyeffect_torch.transforms.batch import batch_walk, batched_form
from pyeffect_torch.transforms.effects import happened

_f: Any = late.functions


def axes_of_leaves(what: str, axes: Any, value: Any) -> list[int | None]:
    """Return the axis of each leaf of `value`, by a tree prefix of ints and Nones.

    Raises:
        TreeError: `axes` is no prefix of the tree.
    """
    try:
        spread, leaves = tree.broadcast_prefix(axes, value)
    except ValueError as error:
        raise TreeError(
            f"vmap: {what} is not a prefix of the tree it describes: {error}",
            "give an int, None, or a tree of them with the same keys",
        ) from None
    found: list[int | None] = []
    for axis, leaf in zip(spread, leaves, strict=True):
        if leaf is None:
            continue
        if axis is not None and (not isinstance(axis, int) or isinstance(axis, bool)):
            raise ArgumentError(
                f"vmap: {what} must be ints or None, got {axis!r}", "use an axis number or None"
            )
        found.append(axis)
    return found


def _front(array: Array, axis: int, path: str) -> Array:
    rank = len(array.shape)
    if not -rank <= axis < rank:
        raise ShapeError(
            f"vmap: in_axes {axis} is out of range for {path}, {describe(array)}",
            "use an axis of that array, or None to share it",
        )
    return array if axis % rank == 0 else _f.moveaxis(array, axis, 0)


def _batch_size(fronts: list[Array | None], paths: list[str], axis_size: int | None) -> int:
    sizes = {path: a.shape[0] for path, a in zip(paths, fronts, strict=True) if a is not None}
    if axis_size is not None:
        sizes["axis_size"] = require_int("vmap", axis_size, "axis_size")
    if not sizes:
        raise ArgumentError(
            "vmap: no argument has a batch axis", "give in_axes for one of them, or axis_size"
        )
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{path}: {size}" for path, size in sizes.items())
        raise ShapeError(
            f"vmap: the batch axes have different extents ({listed})",
            "give all batched arguments one extent, or in_axes=None to share one",
        )
    return next(iter(sizes.values()))


def vmap(
    f: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    axis_name: Any = None,
) -> Callable[..., Any]:
    """Return `f` applied to each row of its batched arguments, without a loop.

    Args:
        f: a function of pytrees.
        in_axes: an axis for all arguments, or a tuple with one entry per positional argument;
            each an int, None (shared by all rows), or a tree prefix of them. Keyword arguments
            are batched along axis 0.
        out_axes: likewise for the result; None only for what does not depend on the batch.
        axis_size: the number of rows where no argument is batched.
        axis_name: a hashable name under which `psum` and the like, called in `f`, find the rows.

    Raises:
        ShapeError: batch axes of different extents, or out of range. TreeError, ArgumentError:
        axes that do not fit the trees.
    """
    require_callable("vmap", f)

    @functools.wraps(f)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(args):
            raise ArgumentError(
                f"vmap: in_axes has {len(in_axes)} entries for {len(args)} positional arguments",
                "give one entry per argument, or a single int for all",
            )
        prefix = tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        flat, structure = flat_arrays("vmap", (args, kwargs))
        axes = (
            axes_of_leaves("in_axes", (prefix, 0), (args, kwargs))
            if kwargs
            else axes_of_leaves("in_axes", prefix, args)
        )
        paths = argument_paths(f, *structure.children())
        fronts = [
            None if axis is None else _front(array, axis, path)
            for array, axis, path in zip(flat, axes, paths, strict=True)
        ]
        size = _batch_size(fronts, paths, axis_size)
        result, env = _run(f, flat, fronts, paths, structure, size, axis_name)
        return _collect(result, env, size, out_axes)

    return wrapped


def _run(
    f: Callable[..., Any],
    flat: list[Array],
    fronts: list[Array | None],
    paths: list[str],
    structure: tree.Structure,
    size: int,
    name: Any,
) -> tuple[Any, dict[int, Any]]:
    row = placeholder((), dtypes.int64, "the row index of vmap")
    env: dict[int, Any] = {}
    leaves: list[Array] = []
    for array, front, path in zip(flat, fronts, paths, strict=True):
        if front is None:
            leaves.append(array)
            continue
        leaf = placeholder(front.shape[1:], array.dtype, f"{path} of vmap")
        env[leaf.serial] = front
        leaves.append(leaf)
    frame = Frame("vmap", row.serial, row=row, name=name, size=size)
    push(frame)
    try:
        args, kwargs = tree.unflatten(structure, leaves)
        result = f(*args, **kwargs)
    finally:
        pop(frame)
    outs, _ = flat_arrays("vmap", result)
    outs.extend(frame.effects)
    nodes = reach(outs, set(env) | {row.serial}, row.serial)
    used = (array for node in nodes for array in node.inputs)
    if any(array.serial == row.serial for array in (*outs, *used)):
        env[row.serial] = _f.arange(size)
    batch_walk(nodes, env, size)
    for token in frame.effects:
        happened(batched_form(token, env)[0])
    return result, env


def _collect(result: Any, env: dict[int, Any], size: int, out_axes: Any) -> Any:
    leaves, structure = tree.flatten(result)
    axes = axes_of_leaves("out_axes", out_axes, result)
    outs: list[Array] = []
    for index, (leaf, axis) in enumerate(zip(leaves, axes, strict=True)):
        array, is_batched = batched_form(operand("vmap", leaf), env)
        if axis is None:
            if is_batched:
                path = tree.paths(structure, "result")[index]
                raise TraceError(
                    f"vmap: out_axes is None, but {path} depends on the batch",
                    "give it an axis, or reduce over the rows outside",
                )
            outs.append(array)
            continue
        if not is_batched:
            array = _f.broadcast_to(array, (size, *array.shape))
        rank = len(array.shape)
        if not -rank <= axis < rank:
            raise ShapeError(
                f"vmap: out_axes {axis} is out of range for a result of rank {rank}",
                f"use an axis from {-rank} to {rank - 1}",
            )
        outs.append(array if axis % rank == 0 else _f.moveaxis(array, 0, axis))
    return tree.unflatten(structure, outs)
