"""`.safetensors` files: trees and names, other programs' files, bad files, saves cut short."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import pyeffect_torch as et

ROOT = Path(__file__).parents[1]
Point = collections.namedtuple("Point", "x y")


@et.tree.register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def sample(dtype: Any) -> np.ndarray[Any, Any]:
    """Values whose every byte matters: extremes, and for floats NaN, -0 and a subnormal."""
    if dtype is et.dtypes.bool_:
        return np.array([[True, False, True]])
    if dtype in et.dtypes.FLOATS:
        info = ml_dtypes.finfo(dtype)
        values = [0.0, -0.0, np.nan, np.inf, float(info.max), float(info.smallest_subnormal), -1.5]
        return np.array(values, np.float64).astype(dtype)
    return np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 1], dtype)


def everything() -> dict[str, np.ndarray[Any, Any]]:
    named = {dtype.name: sample(dtype) for dtype in et.dtypes.ALL}
    named["scalar"] = np.array(2.5, np.float32)
    named["empty"] = np.zeros((3, 0, 2), np.int16)
    named['quoted " \\ \n é 漢 \U0001f600'] = np.arange(6, dtype=np.uint16).reshape(2, 3)
    return named


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# --- round trips, and other programs' files


@pytest.mark.parametrize("runtime", ["cpu", "reference"])
def test_every_dtype_comes_back_bit_by_bit(path: Path, runtime: str) -> None:
    with et.use(getattr(et, runtime)()):
        et.safetensors.save(path, everything(), {"format": "pt", "é": ""})
        archive = et.safetensors.load_archive(path)
        assert archive.metadata == {"format": "pt", "é": ""}
        assert archive.tensors.keys() == everything().keys()
        for name, want in everything().items():
            assert archive.tensors[name].placement is et.current()
            assert same(archive.tensors[name].numpy(), want), name


def test_our_files_are_those_of_the_format_s_library(path: Path) -> None:
    et.safetensors.save(path, everything(), {"format": "pt"})
    assert path.read_bytes() == safetensors.numpy.save(everything(), {"format": "pt"})


def test_the_format_s_library_reads_our_files(path: Path) -> None:
    et.safetensors.save(path, everything())
    with safetensors.safe_open(path, framework="np") as file:
        assert set(file.keys()) == everything().keys()
        assert all(same(file.get_tensor(name), value) for name, value in everything().items())


def test_files_of_the_format_s_library_are_read(path: Path) -> None:
    safetensors.numpy.save_file(everything(), path, {"a": "b"})
    archive = et.safetensors.load_archive(path)
    assert archive.metadata == {"a": "b"}
    assert all(same(archive.tensors[name].numpy(), v) for name, v in everything().items())


def test_both_modules_of_the_name_can_be_imported() -> None:
    program = (
        "import pyeffect_torch.safetensors as ours, safetensors.numpy as theirs, safetensors\n"
        "import pyeffect_torch as et\n"
        "assert ours is et.safetensors and not hasattr(safetensors, 'load_archive')\n"
        "assert ours.save is not theirs.save_file and theirs.load_file\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


# --- trees and names


def test_a_tree_becomes_dotted_names_and_comes_back(path: Path) -> None:
    x = np.arange(3.0)
    tree = {
        "block": [{"w": x, "b": x + 1}, {"w": x + 2}],
        "pair": (x + 3, Point(x + 4, y=x + 5)),
        "layer": Layer(w=x + 6, b=None),
        7: x + 7,
        "flat.name": x + 8,
    }
    et.safetensors.save(path, tree)
    archive = et.safetensors.load_archive(path)
    names = "block.0.b block.0.w block.1.w pair.0 pair.1.x pair.1.y layer.w 7 flat.name"
    assert sorted(archive.tensors) == sorted(names.split())
    back = et.tree.map(lambda leaf: leaf.tolist(), archive.tree())
    assert back == {
        "block": [{"w": [0, 1, 2], "b": [1, 2, 3]}, {"w": [2, 3, 4]}],
        "pair": [[3, 4, 5], {"x": [4, 5, 6], "y": [5, 6, 7]}],
        "layer": {"w": [6, 7, 8]},
        "7": [7, 8, 9],
        "flat": {"name": [8, 9, 10]},
    }


def test_only_complete_counts_from_zero_are_lists(path: Path) -> None:
    x = np.zeros(1)
    et.safetensors.save(path, {"a.1": x, "a.2": x, "b.0": x, "c.00": x, "d.0.0": x})
    tree = et.safetensors.load_archive(path).tree()
    assert et.tree.map(lambda leaf: 0, tree) == {
        "a": {"1": 0, "2": 0},
        "b": [0],
        "c": {"00": 0},
        "d": [[0]],
    }


def test_a_flat_dict_is_loaded_as_it_was_saved(path: Path) -> None:
    params = {"block0.qkv.weight": et.ones((6, 2)), "norm.weight": et.zeros(2)}
    et.safetensors.save(path, params)
    loaded = et.safetensors.load(path)
    assert loaded.keys() == params.keys()
    assert loaded["block0.qkv.weight"].tolist() == [[1.0, 1.0]] * 6


def test_a_very_deep_name_is_no_recursion(path: Path) -> None:
    name = ".".join("a" * 50_000)
    et.safetensors.save(path, {name: np.zeros(1)})
    tree = et.safetensors.load_archive(path).tree()
    for _ in range(50_000):
        (tree,) = tree.values()
    assert tree.tolist() == [0.0]


def test_an_empty_tree_is_an_empty_file(path: Path) -> None:
    et.safetensors.save(path, {"nothing": None})
    archive = et.safetensors.load_archive(path)
    assert (archive.tensors, archive.metadata, archive.tree()) == ({}, {}, {})


def test_a_leaf_that_is_a_level_too_has_no_tree(path: Path) -> None:
    et.safetensors.save(path, {"a": np.zeros(1), "a.b": np.zeros(1)})
    archive = et.safetensors.load_archive(path)
    assert sorted(archive.tensors) == ["a", "a.b"]
    with pytest.raises(et.errors.TreeError, match=r"'a\.b' is a leaf as well as a level"):
        archive.tree()


@pytest.mark.parametrize(
    ("tree", "metadata", "message"),
    [
        (np.zeros(2), None, "tree has no name"),
        ({"__metadata__": np.zeros(2)}, None, "reserved name __metadata__"),
        ({"a": {"b": 1.0}, "a.b": 2.0}, None, r"tree\['a'\]\['b'\] and .* the name 'a\.b'"),
        ({"": 1.0}, None, "the key '' in"),
        ({True: 1.0}, None, "the key True in"),
        ({(1, 2): 1.0}, None, r"the key \(1, 2\) in"),
        ({"\ud800": 1.0}, None, "is not Unicode text"),
        ({"a": "text"}, None, "save: a: expected an array or a number, got str"),
        ({"a": 1.0}, {"n": 1}, "metadata must map strings to strings"),
        ({"a": 1.0}, {"n": "\ud800"}, "metadata holds what is not Unicode"),
        ({"a": 1.0}, {"n": "x" * 100_000_001}, "a header of 100000"),
    ],
)
def test_what_cannot_be_saved_is_refused_and_writes_nothing(
    path: Path, tree: Any, metadata: Any, message: str
) -> None:
    with pytest.raises(et.errors.ArgumentError, match=message):
        et.safetensors.save(path, tree, metadata)
    assert os.listdir(path.parent) == []


# --- lazy values, and reading a part


def test_lazy_leaves_are_computed_in_one_request(path: Path) -> None:
    x = et.compute(et.ones(8) * 1.0)
    shared = et.sin(x)
    tree = {"a": shared * 2.0, "b": shared + 1.0, "c": x}
    before = et.cpu().memory_stats()["runs"]
    et.safetensors.save(path, tree)
    assert et.cpu().memory_stats()["runs"] == before + 1
    assert np.allclose(et.safetensors.load(path, ["a"])["a"].numpy(), 2 * np.sin(1.0))


def test_a_traced_leaf_is_an_error(path: Path) -> None:
    with pytest.raises(et.errors.TraceError, match="has no value while it is traced"):
        et.jit(lambda x: et.safetensors.save(path, {"x": x}))(et.ones(2))
    assert not path.exists()


def test_views_are_saved_as_they_read(path: Path) -> None:
    x = np.arange(12.0).reshape(3, 4)
    et.safetensors.save(path, {"t": x.T, "s": et.array(x)[:, ::-2]})
    loaded = et.safetensors.load(path)
    assert np.array_equal(loaded["t"].numpy(), x.T)
    assert np.array_equal(loaded["s"].numpy(), x[:, ::-2])


def test_names_choose_and_order_what_is_read(path: Path) -> None:
    et.safetensors.save(path, {"a": np.zeros(1), "b": np.ones(1), "c": np.ones(2)})
    assert list(et.safetensors.load(path, names=["c", "a", "c"])) == ["c", "a"]
    assert et.safetensors.load(path, names=[]) == {}
    with pytest.raises(et.errors.ArgumentError, match=r"model\.safetensors has no 'd'"):
        et.safetensors.load(path, names=["a", "d"])
    with pytest.raises(et.errors.ArgumentError, match="names is the string 'a'"):
        et.safetensors.load(path, names="a")


def test_only_what_is_asked_for_is_read_past_four_gibibytes(path: Path) -> None:
    size = (5 << 30) + 3
    fields = {
        "big": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
        "tail": {"dtype": "I32", "shape": [2], "data_offsets": [size, size + 8]},
    }
    head = json.dumps(fields).encode()
    with open(path, "wb") as file:  # sparse: takes a few blocks of the disk
        file.write(struct.pack("<Q", len(head)) + head)
        file.seek(size, os.SEEK_CUR)
        file.write(struct.pack("<2i", 7, -9))
    before = et.cpu().memory_stats()["bytes_live"]
    assert et.safetensors.load(path, ["tail"])["tail"].tolist() == [7, -9]
    assert et.cpu().memory_stats()["bytes_live"] < before + (1 << 20)


def test_arrays_of_other_runtimes_are_saved_too(path: Path) -> None:
    with et.use(et.reference()):
        x = et.array([1.0, 2.0])
    et.safetensors.save(path, {"x": x, "y": et.array([3.0]) * 2.0})
    assert et.safetensors.load(path)["y"].tolist() == [6.0]


# --- malformed files


def file_of(header: bytes | dict[str, Any], data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any = "U8", shape: Any = (2,), offsets: Any = (0, 2), **more: Any) -> Any:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}}


ROW = b'{"dtype":"U8","shape":[],"data_offsets":[%d,%d]}'
MALFORMED = {
    "empty": (b"", "offset 0: 0 bytes are shorter"),
    "seven bytes": (b"\1" * 7, "offset 0: 7 bytes are shorter"),
    "header of no length": (file_of(b""), "offset 8: the header does not begin"),
    "huge header": (struct.pack("<Q", 2**64 - 1), "offset 0: a header of 18446744073709551615"),
    "limit of headers": (struct.pack("<Q", 100_000_001), "at most 100000000 are read"),
    "short header": (
        struct.pack("<Q", 9) + b"{",
        "offset 0: the header ends at 17, the file has 9",
    ),
    "list": (file_of(b"[]"), "offset 8: the header does not begin with {"),
    "space first": (file_of(b" {}"), "offset 8: the header does not begin with {"),
    "no JSON": (file_of(b'{"a" 1}'), "offset 13: the header is not JSON"),
    "two values": (file_of(b"{}{}"), "offset 10: the header is not JSON"),
    "cut JSON": (file_of(b'{"a":{"dtype'), "the header is not JSON"),
    "deep JSON": (file_of(b'{"a":' + b"[" * 200_000), "offset 8: the header is not JSON"),
    "no UTF-8": (file_of(b'{"a\xff":1}'), "offset 11: the header is not UTF-8"),
    "surrogate": (file_of(b'{"\\ud800":1}'), r"'\\ud800': it is not Unicode text"),
    "surrogate key": (file_of(b'{"__metadata__":{"\\ud800":"v"}}'), "it is not Unicode text"),
    "surrogate value": (file_of(b'{"__metadata__":{"k":"\\udfff"}}'), "it is not Unicode text"),
    "NaN": (file_of(b'{"a":NaN}'), "NaN is no JSON"),
    "long number": (file_of(b'{"a":' + b"9" * 5000 + b"}"), "offset 8: the header is not JSON"),
    "twice": (file_of(b'{"a":%b,"a":%b}' % (ROW % (0, 1), ROW % (1, 2)), b"ab"), "key 'a': it app"),
    "field twice": (file_of(b'{"a":{"dtype":"U8","dtype":"I8"}}'), "key 'dtype': it appears twice"),
    "metadata twice": (file_of(b'{"__metadata__":{"k":"1","k":"2"}}'), "key 'k': it appears twice"),
    "metadata number": (file_of({"__metadata__": {"k": 1}}), "key '__metadata__': it must map"),
    "metadata list": (file_of({"__metadata__": ["k"]}), "key '__metadata__': it must map"),
    "no object": (file_of({"a": 1}), "key 'a': expected an object"),
    "missing field": (file_of({"a": {"dtype": "U8", "shape": []}}), "key 'a': expected an object"),
    "more fields": (file_of(entry(extra=1), b"ab"), "key 'a': expected an object"),
    "unknown dtype": (file_of(entry("F8_E4M3"), b"ab"), "key 'a': unknown dtype 'F8_E4M3'"),
    "dtype of no name": (file_of(entry(["U8"]), b"ab"), r"key 'a': unknown dtype \['U8'\]"),
    "negative extent": (file_of(entry(shape=[-2]), b"ab"), r"key 'a': shape \[-2\]"),
    "float extent": (file_of(entry(shape=[2.0]), b"ab"), r"key 'a': shape \[2.0\]"),
    "bool extent": (file_of(entry(shape=[True, 2]), b"ab"), r"key 'a': shape \[True, 2\]"),
    "no shape": (file_of(entry(shape=2), b"ab"), "key 'a': shape 2 is no list"),
    "many axes": (file_of(entry(shape=[1] * 17), b"a"), "key 'a': shape .* at most 16"),
    "overflow": (file_of(entry(shape=[2**32, 2**32]), b"ab"), "key 'a': .* more than 2"),
    "overflow of nothing": (file_of(entry(shape=[0, 2**63], offsets=[0, 0])), "more than 2"),
    "one offset": (file_of(entry(offsets=[2]), b"ab"), r"key 'a': data_offsets \[2\]"),
    "negative offset": (file_of(entry(offsets=[-2, 0]), b"ab"), r"data_offsets \[-2, 0\]"),
    "backwards": (file_of(entry(offsets=[2, 0]), b"ab"), r"data_offsets \[2, 0\]"),
    "wrong size": (file_of(entry("F32"), b"ab"), r"key 'a': float32\[2\] has 8 bytes, .* have 2"),
    "past the end": (file_of(entry(), b"a"), "offset .*: the tensors end here, the file has"),
    "tail": (file_of(entry(), b"abc"), "offset .*: the tensors end here, the file has"),
    "gap at first": (file_of(entry(offsets=[1, 3]), b"abc"), "key 'a': .* 1 instead of 0: it lea"),
    "gap": (
        file_of(b'{"a":%b,"b":%b}' % (ROW % (0, 1), ROW % (2, 3)), b"abc"),
        "key 'b': data_offsets begin at 2 instead of 1: it leaves a gap",
    ),
    "overlap": (
        file_of(b'{"b":%b,"a":%b}' % (ROW % (0, 1), ROW % (0, 1)), b"a"),
        "key 'a': data_offsets begin at 0 instead of 1: it overlaps",
    ),
    "bool of two": (
        file_of(entry("BOOL"), b"\1\2"),
        "key 'a': offset .*: a BOOL is neither 0 nor 1",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_by_key_or_offset(path: Path, name: str) -> None:
    content, message = MALFORMED[name]
    path.write_bytes(content)
    with pytest.raises(et.errors.FileFormatError, match=message) as caught:
        et.safetensors.load_archive(path)
    assert "model.safetensors" in str(caught.value)


def test_a_huge_claim_takes_no_memory(path: Path) -> None:
    size = 1 << 45
    fields = entry(shape=[size], offsets=[0, size])
    path.write_bytes(file_of(fields, b"ab"))
    before = et.cpu().memory_stats()["output_allocations"]
    with pytest.raises(et.errors.FileFormatError, match="the tensors end here"):
        et.safetensors.load(path)
    assert et.cpu().memory_stats()["output_allocations"] == before


def test_a_file_cut_while_it_is_read_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    et.safetensors.save(path, {"a": np.zeros(100)})
    reserve = type(et.current()).reserve

    def cut_then_reserve(self: Any, shape: Any, dtype: Any) -> Any:
        os.truncate(path, path.stat().st_size - 8)
        return reserve(self, shape, dtype)

    monkeypatch.setattr(type(et.current()), "reserve", cut_then_reserve)
    with pytest.raises(et.errors.FileFormatError, match="key 'a': the file was truncated while"):
        et.safetensors.load(path)


def test_what_the_system_refuses_is_an_io_error(path: Path) -> None:
    with pytest.raises(et.errors.IoError, match=r"cannot read .*: No such file"):
        et.safetensors.load(path)
    with pytest.raises(et.errors.IoError, match=r"cannot read .*: Is a directory"):
        et.safetensors.load(path.parent)
    with pytest.raises(et.errors.IoError, match=r"cannot write .*: No such file"):
        et.safetensors.save(path / "below", {"a": 1.0})


def test_damaged_files_are_refused_or_read_right() -> None:
    command = [sys.executable, ROOT / "tools/fuzz_safetensors.py", "--count", "500"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused" in done.stdout


# --- saves cut short


def test_a_failed_save_leaves_the_old_file(path: Path) -> None:
    et.safetensors.save(path, {"a": np.ones(4)})
    old = path.read_bytes()
    with pytest.raises(et.errors.CancelledError), et.cancel_scope() as scope:
        big = et.compute(et.zeros(3 << 20) + 1.0)
        scope.cancel()
        et.safetensors.save(path, {"a": big})
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]


def test_a_save_goes_through_a_symbolic_link(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    et.safetensors.save(link, {"a": np.ones(4)})
    assert link.is_symlink()
    assert et.safetensors.load(path)["a"].tolist() == [1.0] * 4
