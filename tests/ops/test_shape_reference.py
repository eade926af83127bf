"""Shape functions against NumPy, inferred types, and the messages of their errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.array import placeholder
from pyeffect_torch.core.op import Op
from pyeffect_torch.ops.barrier import BARRIER, BITCAST
from pyeffect_torch.ops.pieces import CONCATENATE, PAD, SLICE
from pyeffect_torch.ops.shape import BROADCAST_TO, RESHAPE, TRANSPOSE

pytestmark = pytest.mark.usefixtures("on_reference")
X = np.random.default_rng(0).standard_normal((4, 5, 6))
ROW = X[0, 0]


def same(got: Any, want: Any) -> None:
    if isinstance(got, (tuple, list)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other)
        return
    assert got.shape == np.shape(want)
    assert got.dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize(
    "op",
    [RESHAPE, TRANSPOSE, BROADCAST_TO, SLICE, PAD, CONCATENATE, BARRIER],
    ids=str,
)
def test_types_are_those_of_the_reference(op: Op, check_types: Callable[[Op], None]) -> None:
    check_types(op)


def test_types_of_bitcast(check_types: Callable[[Op], None]) -> None:
    check_types(BITCAST)


CALLS: list[tuple[str, Sequence[Any], dict[str, Any]]] = [
    ("reshape", (X, (20, 6)), {}),
    ("reshape", (X, (2, -1, 3)), {}),
    ("reshape", (X, -1), {}),
    ("ravel", (X,), {}),
    ("transpose", (X,), {}),
    ("transpose", (X, (1, 0, 2)), {}),
    ("permute_dims", (X, (2, 0, 1)), {}),
    ("matrix_transpose", (X,), {}),
    ("swapaxes", (X, 0, -1), {}),
    ("moveaxis", (X, 0, -1), {}),
    ("moveaxis", (X, (0, 1), (2, 0)), {}),
    ("squeeze", (X[:1, :, :1],), {}),
    ("squeeze", (X[:1, :, :1], 0), {}),
    ("expand_dims", (X, (0, 2)), {}),
    ("expand_dims", (X, -1), {}),
    ("broadcast_to", (ROW, (2, 6)), {}),
    ("broadcast_arrays", (X, ROW), {}),
    ("atleast_1d", (np.float64(1.0),), {}),
    ("atleast_2d", (ROW,), {}),
    ("concatenate", ([X, X], -1), {}),
    ("concatenate", ([X, ROW], None), {}),
    ("concat", ([X, X],), {}),
    ("stack", ([X, X], 1), {}),
    ("stack", ([X, X], -1), {}),
    ("unstack", (X,), {}),
    ("unstack", (X,), {"axis": 1}),
    ("hstack", ([X, X],), {}),
    ("hstack", ([ROW, ROW],), {}),
    ("vstack", ([ROW, ROW],), {}),
    ("split", (X, 2), {}),
    ("split", (X, [1, 3]), {}),
    ("split", (X, [3, 1, -1, 9], 1), {}),
    ("tile", (X, 2), {}),
    ("tile", (X, (2, 1, 3)), {}),
    ("tile", (X, (2, 1, 1, 1)), {}),
    ("tile", (X, (0,)), {}),
    ("repeat", (X, 3), {}),
    ("repeat", (X, 3, 1), {}),
    ("repeat", (X, [1, 0, 2, 1], 0), {}),
    ("flip", (X,), {}),
    ("flip", (X, (0, 2)), {}),
    *(("roll", (X, shift, axis), {}) for shift in (1, -2, 13) for axis in (None, 0, -1)),
    ("roll", (X, (1, 2), (0, 1)), {}),
    *(("rot90", (X, k, axes), {}) for k in range(-1, 4) for axes in ((0, 1), (2, 1))),
    *((name, (X, k), {}) for name in ("tril", "triu") for k in (-3, 0, 2)),
    *(
        (name, (X, k, *axes), {})
        for name in ("diagonal", "trace")
        for k in (-2, 0, 1)
        for axes in ((), (2, 0))
    ),
    ("diagonal", (X, 9), {}),
    *(
        ("pad", (X, width), {"mode": mode})
        for mode in ("constant", "edge", "reflect", "symmetric", "wrap")
        for width in (0, 2, (1, 2), ((0, 0), (3, 1), (2, 9)))
    ),
    ("pad", (X, 1), {"constant_values": 3.5}),
    ("pad", (X > 0, 1), {}),
]


@pytest.mark.parametrize(("name", "arguments", "options"), CALLS)
def test_as_numpy(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> None:
    want = getattr(np, name)(*arguments, **options)
    if name == "trace":  # a sum of at most 5 terms of at most 4: 5 roundings
        got = et.trace(*arguments)
        np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=5 * 20 * 2.0**-52)
    else:
        same(getattr(et, name)(*arguments, **options), want)


def test_calls_that_change_nothing_return_their_argument() -> None:
    x = et.array(X)
    assert et.reshape(x, (4, -1, 6)) is x
    assert et.transpose(x, (0, 1, 2)) is x
    assert et.broadcast_to(x, (4, 5, 6)) is x
    assert et.pad(x, 0) is x
    assert et.concatenate([x]) is x
    assert et.roll(x, 4, 0) is x
    assert et.moveaxis(x, 1, 1) is x
    assert x[...] is x
    assert x[:, 0:5, ::1] is x


def test_zero_extents() -> None:
    empty = np.zeros((0, 3), np.float32)
    same(et.reshape(empty, (3, -1)), empty.reshape(3, -1))
    same(et.flip(empty, 0), empty)
    same(et.concatenate([empty, empty], 1), np.zeros((0, 6), np.float32))
    same(et.pad(empty, 1), np.zeros((2, 5), np.float32))
    same(et.tile(empty, (2, 2)), np.zeros((0, 6), np.float32))
    same(et.diagonal(empty), np.zeros(0, np.float32))
    assert [part.shape for part in et.chunk(empty, 3)] == [(0, 3)]


def test_flatten_merges_axes() -> None:
    same(et.flatten(X, 1), X.reshape(4, 30))
    same(et.flatten(X, 0, 1), X.reshape(20, 6))
    same(et.flatten(np.float32(2.0)), np.array([2.0], np.float32))


def test_chunks_are_of_equal_size_but_the_last() -> None:
    assert [part.shape[1] for part in et.chunk(X, 3, 1)] == [2, 2, 1]
    assert [part.shape[1] for part in et.chunk(X, 4, 1)] == [2, 2, 1]
    same(et.concatenate(et.chunk(X, 3, 1), 1), X)


def test_broadcast_shapes() -> None:
    assert et.broadcast_shapes((2, 1), (3,), ()) == (2, 3)
    assert et.broadcast_shapes((0, 1), (1, 3)) == (0, 3)


def test_barrier_and_bits() -> None:
    first, second = et.barrier(et.array(X), et.array(ROW))
    same(first, X)
    same(second, ROW)
    bits = et.bitcast_convert_type(et.array(X), "uint64")
    same(bits, X.view(np.uint64))
    same(et.bitcast_convert_type(bits, "float64"), X)


F = placeholder((2, 3), np.dtype(np.float32), "f")
G = placeholder((4,), np.dtype(np.float64), "g")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: et.reshape(F, (4, 2)), r"reshape: float32\[2, 3\] has 6 elements, shape \[4, 2\]"),
        (lambda: et.reshape(F, (4, -1)), r"does not fit \[4, -1\]: axis 1 would not be whole"),
        (lambda: et.reshape(F, (-1, -1)), r"shape \[-1, -1\] has -1 at 2 axes"),
        (lambda: et.transpose(F, (0, 0)), r"axes \[0, 0\] are no permutation .* float32\[2, 3\]"),
        (lambda: et.transpose(F, (0, 2)), r"transpose: axis 2 is out of range for rank 2"),
        (lambda: et.broadcast_to(F, (2, 4)), r"float32\[2, 3\] does not broadcast to .*\(axis 1\)"),
        (lambda: et.squeeze(F, 1), r"squeeze: axis 1 of float32\[2, 3\] has extent 3"),
        (lambda: et.stack([F, G]), r"stack: float32\[2, 3\] and float64\[4\] differ in shape"),
        (lambda: et.split(F, 2, 1), r"split: axis 1 of float32\[2, 3\] has no 2 equal sections"),
        (lambda: et.concatenate([]), r"concatenate: no array to join"),
        (
            lambda: et.concatenate([F, et.zeros((2, 4))], 0),
            r"float32\[2, 3\] and float32\[2, 4\] differ on an axis other than 0",
        ),
        (lambda: et.pad(F, -1), r"pad: negative widths -1"),
        (lambda: et.pad(F, [(1, 2)] * 3), r"do not fit the 2 axes of float32\[2, 3\]"),
        (lambda: et.pad(et.zeros((0,)), 1, mode="edge"), r"axis 0 of float32\[0\] has no element"),
        (lambda: et.moveaxis(F, (0, 1), 0), r"cannot move axes \[0, 1\] to \[0\]"),
        (lambda: et.diagonal(F, 0, 1, -1), r"diagonal: axes 1 and -1 are one axis"),
        (lambda: et.tril(G), r"tril: needs an array of rank 2 or more, got float64\[4\]"),
    ],
)
def test_shape_errors(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(et.errors.ShapeError, match=message):
        call()


def test_other_errors() -> None:
    with pytest.raises(et.errors.DTypeError, match=r"mixed dtypes, float32\[4\] and float64\[4\]"):
        et.concatenate([et.zeros((4,)), G])
    with pytest.raises(et.errors.ArgumentError, match="pad: unknown mode 'mirror'"):
        et.pad(F, 1, mode="mirror")
    with pytest.raises(et.errors.DTypeError, match=r"float32\[2, 3\] has no bits of dtype int64"):
        et.bitcast_convert_type(F, "int64")
