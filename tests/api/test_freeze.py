"""`freeze`: saved programs give the same bits, and every damaged file is refused by name."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et


def program() -> Any:
    weights = {"w": et.array(np.arange(6, dtype=np.float32).reshape(3, 2)), "b": et.ones(2)}
    f = lambda p, x: {"y": et.tanh(x @ p["w"] + p["b"]), "parts": (x.sum(), [x])}
    return et.freeze(f, et.spec((4, 3), "float32"), constants=weights)


def test_save_and_load_give_equal_bits(tmp_path: Path) -> None:
    frozen = program()
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    want = frozen(x)
    assert np.allclose(want["y"].numpy(), np.tanh(x @ np.arange(6).reshape(3, 2) + 1), atol=1e-6)
    frozen.save(tmp_path / "f.pet")
    loaded = et.load_program(tmp_path / "f.pet")
    got = loaded(x)
    assert np.array_equal(got["y"].numpy(), want["y"].numpy())
    assert isinstance(got["parts"], tuple)
    assert isinstance(got["parts"][1], list)
    assert loaded.inputs == frozen.inputs
    with et.use(et.reference()):
        again = et.load_program(tmp_path / "f.pet")(x)
    assert np.allclose(again["y"].numpy(), want["y"].numpy(), atol=1e-6)


def test_wrong_arguments_are_named() -> None:
    frozen = program()
    with pytest.raises(et.errors.ShapeError, match=r"args\[0\] is float32\[3, 3\]"):
        frozen(np.zeros((3, 3), np.float32))
    with pytest.raises(et.errors.TreeError, match="do not match"):
        frozen(np.zeros((4, 3), np.float32), 1.0)


def test_a_program_that_draws_draws_anew_each_call(tmp_path: Path) -> None:
    frozen = et.freeze(lambda x: x + et.rand((3,)), et.spec((3,), "float32"))
    frozen.save(tmp_path / "r.pet")
    loaded = et.load_program(tmp_path / "r.pet")
    x = np.zeros(3, np.float32)
    assert loaded(x).tolist() != loaded(x).tolist()


def damaged(blob: bytes, kind: str) -> bytes:
    if kind == "empty":
        return b""
    if kind == "text":
        return b"not a program".ljust(80, b" ")
    if kind == "truncated":
        return blob[:-8]
    if kind == "longer":
        return blob + b"\0" * 8
    if kind == "version":
        return blob[:4] + struct.pack("<H", 9) + blob[6:]
    at = 100 if kind == "flipped" else 40
    return blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "0 bytes are shorter than the header"),
        ("text", "offset 0: not a frozen program"),
        ("truncated", "offset 8: the header says"),
        ("longer", "offset 8: the header says"),
        ("version", "offset 4: format version 9"),
        ("flipped", "offset 16: the digest does not match"),
        ("counts", "offset 16: the digest does not match"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "f.pet"
    program().save(path)
    path.write_bytes(damaged(path.read_bytes(), kind))
    with pytest.raises(et.errors.FileFormatError, match=message):
        et.load_program(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"inputs": [{"name": "args[0]", "shape": [3]', "[2]", "its inputs are not those"),
        ('"outputs": [{"name": "out", "shape": [3]', "[2]", "its outputs are not those"),
        ('"in_tree": ["tuple", [0', "[ ", "its tree of inputs has 0 leaves"),
    ],
)
def test_names_and_trees_that_are_not_the_programs_are_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "f.pet"
    et.freeze(lambda x: x * 2, et.spec((3,), "float32")).save(path)
    blob = path.read_bytes()
    at = blob.index(old.encode()) + len(old) - len(new)
    path.write_bytes(blob[:at] + new.encode() + blob[at + len(new) :])
    with pytest.raises(et.errors.FileFormatError, match=message):
        et.load_program(path)


def test_an_error_in_a_loop_of_a_loaded_program_names_the_operation(tmp_path: Path) -> None:
    table, steps = et.ones(3), et.spec((2,), "int64")

    def nested(i: Any) -> Any:
        return et.cond(i < 9, lambda: et.scan(lambda c, _: (c, table[i]), 0, None, 1)[1][0], zero)

    def zero() -> Any:
        return et.zeros(())

    path = tmp_path / "loop.pet"
    et.freeze(lambda i: et.map(nested, i), steps).save(path)
    loaded = et.load_program(path)
    assert loaded.call(et.array([1, 9])).tolist() == [1, 0]
    with pytest.raises(et.errors.IndexOutOfBoundsError, match=r"^take: index 5 is out of bounds"):
        et.compute(loaded.call(et.array([1, 5])))


def test_a_missing_file_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot read"):
        et.load_program(tmp_path / "none.pet")
    with pytest.raises(et.errors.IoError, match="cannot write"):
        program().save(tmp_path / "no" / "such" / "folder.pet")


def test_a_frozen_program_is_not_traced() -> None:
    frozen = et.freeze(lambda x: x + 1, et.spec((3,), "float32"))
    for traced, x in ((et.jit(frozen.call), et.ones(3)), (et.vmap(frozen.call), et.ones((2, 3)))):
        with pytest.raises(et.errors.TraceError, match="has no value while it is traced"):
            traced(x)


def test_arguments_that_are_gone_or_elsewhere_are_refused() -> None:
    frozen = et.freeze(lambda x: x + 1, et.spec((3,), "float32"))
    gone = et.array([1.0, 2.0, 3.0])
    gone.delete()
    with pytest.raises(et.errors.InvalidHandleError, match="was deleted"):
        frozen(gone)
    with et.use(et.reference(without=["sin"])):
        elsewhere = et.array([1.0, 2.0, 3.0])
    with pytest.raises(et.errors.ForeignHandleError, match="another runtime"):
        frozen(elsewhere)


def test_lazy_arguments_without_inputs_are_computed() -> None:
    frozen = et.freeze(lambda x: x + 1, et.spec((3,), "int64"))
    assert np.array_equal(frozen(et.arange(3)).numpy(), [1, 2, 3])
