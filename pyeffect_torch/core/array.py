"""`Array`: node, tracer and lazy tensor in one class.

An array is *lazy* (an op and its inputs), *concrete* (a buffer), a *placeholder* (an input of a
trace) or *deleted*. This file has the node itself and how it is made; the methods that users see
are in `methods.py`. Walks over nodes are in `graph.py`.

Serials are issued at creation, so inputs always have smaller serials: serial order is
topological order. Nodes are never hashed (equality is elementwise): tables are keyed by serial.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import scopes, source
from pyeffect_torch.core.dtypes import DType, bfloat16
from pyeffect_torch.core.errors import (
    DTypeError,
    EffectTorchError,
    ForeignHandleError,
    InvalidHandleError,
)
from pyeffect_torch.core.methods import Methods
from pyeffect_torch.core.op import (
    Affine,
    Derivative,
    Nondiff,
    Op,
    Shape,
    Type,
    declare,
    no_attributes,
)

PLACEHOLDER_FLAG: Final = 1
"""The array depends on a placeholder: it has no value."""
LEAF_FLAG: Final = 2
"""The array depends on a differentiation leaf, finished or not."""
DEAD_FLAG: Final = 4
"""The array was deleted or donated."""
RUNTIME_SHIFT: Final = 8
"""From this bit on, one bit for each runtime whose buffers the array depends on."""

_serials = itertools.count(1)
_local: Final = source.LOCAL
_capture_user: Final = source.capture_user
_new: Final = object.__new__
_SMALL: Final = 6e4  # every floating dtype has numbers of this size
_BLOCK_MASK: Final = ~63
"""Gives the first serial of a block of 64; a path without an anchor stays in one block."""


class Deleted:
    """What stands in `Array.buf` once the value is gone."""

    __slots__ = ("how", "where")

    def __init__(self, how: str, where: source.Source | None) -> None:
        self.how = how
        self.where = where


class Array(Methods):
    """An immutable n-dimensional array: lazy, concrete, or a placeholder of a trace.

    Build one with `et.array` or by applying a function to arrays; never by this class itself.
    """

    __slots__ = (
        "__weakref__",
        "buf",
        "dtype",
        "flags",
        "inputs",
        "op",
        "params",
        "serial",
        "shape",
        "src",
    )

    op: Op
    inputs: tuple[Array, ...]
    params: Any
    shape: Shape
    dtype: DType
    serial: int
    flags: int
    buf: Any
    src: source.Source | None


class _Drain(threading.local):
    def __init__(self) -> None:
        self.pending: list[Any] = []
        self.running = False


_drain = _Drain()


class _Anchor(Array):
    """A node whose release is iterative.

    It has an input (itself with inputs) in another block of 64 serials, or holds a body; every long
    path crosses such a node, so no recursive release is deeper than 64, whatever the shape of the
    graph.
    """

    __slots__ = ()

    def __del__(self) -> None:
        drain = _drain
        drain.pending.append(self.inputs)
        drain.pending.append(self.params)  # the bodies of a region hold what it captured
        self.inputs = ()
        self.params = None
        if drain.running:
            return
        drain.running = True
        try:
            while drain.pending:
                drain.pending.pop()
        finally:
            drain.running = False


def make(
    op: Op,
    inputs: tuple[Array, ...],
    params: Any,
    shape: Any,
    dtype: Any,
    flags: int = 0,
    src: source.Source | None = None,
) -> Array:
    """Return a node of known type; `flags` are ORed with those of the inputs.

    Raises:
        InvalidHandleError: an input was deleted or donated.
        ForeignHandleError: inputs live on different runtimes.
    """
    serial = next(_serials)
    first = serial & _BLOCK_MASK
    cls: type[Array] = _Anchor if op.multi else Array
    for array in inputs:
        flags |= array.flags
        if array.serial < first and array.inputs:
            cls = _Anchor
    if flags >= DEAD_FLAG:
        runtimes = flags >> RUNTIME_SHIFT
        if flags & DEAD_FLAG or runtimes & (runtimes - 1):
            _refuse(op, inputs)
    node = _new(cls)  # written out: `__init__` would double the cost
    node.op = op
    node.inputs = inputs
    node.params = params
    node.shape = shape
    node.dtype = dtype
    node.serial = serial
    node.flags = flags
    node.buf = None
    node.src = src or _local.override or _capture_user()
    return node


def _refuse(op: Op, inputs: tuple[Array, ...]) -> None:
    for array in inputs:
        if array.flags & DEAD_FLAG:
            raise deleted_error(array, op.name)
    raise ForeignHandleError(
        f"{op.name}: the operands live on different runtimes",
        "move one of them with x.to(runtime)",
        operation=op.name,
        phase="build",
    )


def deleted_error(array: Array, operation: str) -> InvalidHandleError:
    """The error for using `array`, which was deleted or donated."""
    gone = array.buf
    how = gone.how if isinstance(gone, Deleted) else "deleted"
    where = source.describe(gone.where) if isinstance(gone, Deleted) else ""
    place = f" at {where}" if where else ""
    return InvalidHandleError(
        f"{operation}: an array of shape {list(array.shape)} was {how}{place}",
        "keep the result of that call instead, or do not donate the argument",
        operation=operation,
        phase="build",
    )


def bind(op: Op, inputs: tuple[Array, ...], params: Any = None) -> Array:
    """Apply `op`: infer the type and return the node (for a multi-output op: the bundle node)."""
    inferred = op.infer(inputs, params)
    if op.multi:
        return make(op, inputs, params._replace(types=tuple(inferred)), None, None)
    return make(op, inputs, params, inferred[0], inferred[1])


def rebuild(node: Array, inputs: tuple[Array, ...]) -> Array:
    """Return `node` on other inputs of the same types."""
    return make(node.op, inputs, node.params, node.shape, node.dtype, 0, node.src)


def outputs(node: Array) -> tuple[Array, ...]:
    """Return the projections of a multi-output node, in order."""
    return tuple(
        make(OUT, (node,), index, shape, dtype, 0, node.src)
        for index, (shape, dtype) in enumerate(node.params.types)
    )


def from_buffer(buf: Any, shape: Shape, dtype: DType, runtime_bit: int) -> Array:
    """Return a concrete array over `buf` on the runtime with that bit."""
    array = make(CONST, (), None, shape, dtype, runtime_bit << RUNTIME_SHIFT)
    array.buf = buf
    if scopes.count:
        scopes.note((array,))
    return array


def from_buffers(bufs: Sequence[Any], types: Sequence[Type], flags: int) -> list[Array]:
    """Return concrete arrays over the buffers of a call; they carry no source line.

    Written out for the hot path of compiled calls: capturing a line would double the cost.
    """
    out: list[Array] = []
    for buf, (shape, dtype) in zip(bufs, types, strict=True):
        array = _new(Array)
        array.op = CONST
        array.inputs = ()
        array.params = None
        array.shape = shape
        array.dtype = dtype
        array.serial = next(_serials)
        array.flags = flags
        array.buf = buf
        array.src = None
        out.append(array)
    if scopes.count:
        scopes.note(out)
    return out


def literal(value: Any, dtype: DType) -> Array:
    """Return a 0-d constant that is embedded wherever it is met; it belongs to no runtime.

    A number above the largest of a floating dtype is infinite, without a warning.

    Raises:
        DTypeError: `value` is no number, or has no value of `dtype`.
    """
    try:
        if -_SMALL < value < _SMALL:
            return make(LITERAL, (), dtype.type(value), (), dtype)
        with np.errstate(over="ignore"):
            wide = float(value) if dtype is bfloat16 else value  # it takes ints of 64 bits only
            return make(LITERAL, (), dtype.type(wide), (), dtype)
    except EffectTorchError:
        raise  # an array that has no value: it says so
    except (TypeError, ValueError):
        raise _no_value(value, dtype) from None
    except OverflowError:
        if value in (float("inf"), -float("inf")):
            raise _no_value(value, dtype) from None
        bits = int(value).bit_length()
        shown = f"int {value}" if bits <= 64 else f"int of {bits} bits"
        raise DTypeError(
            f"the {shown} does not fit {dtype.name}", "write a float, or use another dtype"
        ) from None


def _no_value(value: Any, dtype: DType) -> DTypeError:
    return DTypeError(f"{value!r} is no value of {dtype.name}", "pass a number that the dtype has")


class ArgumentName:
    """What names a placeholder in errors; how the argument is written is found out for these only.

    Attributes:
        paths: gives how each argument is written.
        index: which of them it is.
        of: the function, in words.
        is_number: whether it was passed as a number, so that errors can say so.
    """

    __slots__ = ("index", "is_number", "of", "paths")

    def __init__(
        self, paths: Callable[[], Sequence[str]], index: int, of: str, is_number: bool = False
    ) -> None:
        self.paths = paths
        self.index = index
        self.of = of
        self.is_number = is_number

    def __str__(self) -> str:
        return f"{self.paths()[self.index]} of {self.of}"


def placeholder(shape: Shape, dtype: DType, what: str | ArgumentName) -> Array:
    """Return an input of a trace; `what` names it in errors (`jit argument x`)."""
    return make(PLACEHOLDER, (), what, shape, dtype, PLACEHOLDER_FLAG)


def state(array: Array) -> str:
    """`"lazy"`, `"concrete"`, `"placeholder"` or `"deleted"`."""
    if array.flags & DEAD_FLAG:
        return "deleted"
    if array.buf is not None:
        return "concrete"
    return "placeholder" if array.flags & PLACEHOLDER_FLAG else "lazy"


def _infer_none(inputs: tuple[Array, ...], params: Any) -> Any:
    raise AssertionError("structural nodes are made with their type")


def _structural(name: str, derivative: Derivative | None = None) -> Op:
    return declare(
        name,
        infer=_infer_none,
        derivative=derivative or Nondiff(),
        batch=None,
        reference=None,
        domain=None,
        attributes=no_attributes,
        traits=("structural",),
    )


CONST: Final = _structural("constant")
LITERAL: Final = _structural("literal")
PLACEHOLDER: Final = _structural("placeholder")
OUT: Final = _structural("output")
START: Final = _structural("start")
"""What stands before the first effect of a function that may be inlined more than once."""
LEAF: Final = _structural("leaf", Affine(lambda node, j, tangent: tangent, lambda node, j, ct: ct))
"""An identity over the argument of a derivative: what the walk of that derivative ends at."""


def leaf(array: Array) -> Array:
    """Return a fresh differentiation leaf over `array`."""
    return make(LEAF, (array,), None, array.shape, array.dtype, LEAF_FLAG)
