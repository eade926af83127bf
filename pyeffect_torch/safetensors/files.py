"""`save`, `load` and `load_archive`: values between arrays and the data of a file.

A value is read by position, straight into the memory of its array: only what is asked for, without
a second copy. (A mapping of the file would end the process when another one truncates it.)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError, FileFormatError
from pyeffect_torch.core.files import CHUNK_BYTES, opened, path_text, read_into, write_atomically
from pyeffect_torch.ops.base import operand
from pyeffect_torch.runtime.cancel import check_cancelled
from pyeffect_torch.runtime.compute import compute
from pyeffect_torch.runtime.registry import current
from pyeffect_torch.safetensors import header, names
from pyeffect_torch.safetensors.header import HEADER_BYTES_MAX, LENGTH, Entry, Header


@dataclass(frozen=True, slots=True)
class Archive:
    """A whole file.

    Attributes:
        tensors: concrete arrays by dotted name, in the order of the file's header.
        metadata: the strings about the file.
    """

    tensors: dict[str, Array]
    metadata: dict[str, str]

    def tree(self) -> Any:
        """Return the arrays as nested dicts and lists: `block.0.w` is `tree["block"][0]["w"]`.

        A level whose keys are exactly 0 to n-1 is a list, any other one a dict; tuples come back
        as lists, namedtuples and dataclasses as dicts.

        Raises:
            TreeError: a name is a leaf as well as a level (`a` beside `a.b`).
        """
        return names.nest(self.tensors)


def save(
    path: str | os.PathLike[str], tree: Any, metadata: Mapping[str, str] | None = None
) -> None:
    """Write the arrays of a tree to one `.safetensors` file; whole or not at all.

    Lazy arrays are computed in one request. The old file stays until the new one is complete and
    on the disk, also if the save is interrupted or cancelled.

    Args:
        path: of the file.
        tree: dicts, lists, tuples, namedtuples and dataclasses of arrays of any shape and dtype.
            A leaf's name is the way to it joined by dots: `{"block": [{"w": x}]}` has the name
            `block.0.w`.
        metadata: strings about the file.

    Raises:
        ArgumentError: a leaf is no array, two leaves have one name, a key is no name, or metadata
            is not str to str.
        TraceError: a leaf is traced. IoError: the file cannot be written.
        CancelledError: by its `cancel_scope`.

    Reference: https://github.com/huggingface/safetensors (README, "Format")
    """
    named = names.flatten(tree)
    strings = _metadata(metadata)
    arrays = {name: operand(f"safetensors.save: {name}", leaf) for name, leaf in named.items()}
    values: dict[str, Array] = dict(zip(arrays, compute(list(arrays.values())), strict=True))
    types = {name: (array.shape, array.dtype) for name, array in values.items()}
    order = header.layout(types)
    head = header.build(types, order, strings)
    if len(head) > HEADER_BYTES_MAX:
        raise ArgumentError(
            f"safetensors.save: a header of {len(head)} bytes, at most {HEADER_BYTES_MAX} can be "
            "read again",
            "shorten the metadata, or write several files",
        )

    def parts() -> Iterator[bytes | memoryview]:
        yield head
        for name in order:
            yield values[name].numpy().reshape(-1).view(np.uint8).data

    write_atomically(path, parts(), check_cancelled)


def _metadata(metadata: Any) -> dict[str, str]:
    given = {} if metadata is None else metadata
    if not isinstance(given, Mapping) or not all(
        isinstance(item, str) for pair in given.items() for item in pair
    ):
        raise ArgumentError(
            "safetensors.save: metadata must map strings to strings", "convert what it holds by str"
        )
    try:
        "".join(item for pair in given.items() for item in pair).encode()
    except UnicodeEncodeError:
        raise ArgumentError(
            "safetensors.save: metadata holds what is not Unicode text", "encode it, as base64 say"
        ) from None
    return dict(given)


def load(path: str | os.PathLike[str], names: Iterable[str] | None = None) -> dict[str, Array]:
    """Return the arrays of a `.safetensors` file by dotted name, on the current runtime.

    Args:
        path: of the file.
        names: which ones, in which order; nothing else is read. By default all of them, in the
            order of the header.

    Raises:
        FileFormatError: the file is malformed; the message names the key or the offset.
        ArgumentError: there is no array of such a name.
        IoError: the file cannot be read. CancelledError: by its `cancel_scope`.
    """
    return _read(path, names).tensors


def load_archive(path: str | os.PathLike[str]) -> Archive:
    """Return a whole `.safetensors` file: its arrays by dotted name or as a tree, its metadata.

    Raises:
        FileFormatError: the file is malformed; the message names the key or the offset.
        IoError: the file cannot be read. CancelledError: by its `cancel_scope`.
    """
    return _read(path, None)


def _read(path: str | os.PathLike[str], wanted: Iterable[str] | None) -> Archive:
    label = os.path.basename(path_text(path))
    if isinstance(wanted, str):
        raise ArgumentError(
            f"safetensors.load: names is the string {wanted!r}", "pass a list of names"
        )
    with opened(path) as file:
        found = _header(label, file)
        chosen = list(found.entries) if wanted is None else list(dict.fromkeys(wanted))
        for name in chosen:
            if name not in found.entries:
                some = ", ".join(map(repr, list(found.entries)[:8])) or "nothing"
                raise ArgumentError(
                    f"safetensors.load: {label} has no {name!r}", f"it has {some}, ..."
                )
        in_order = sorted(chosen, key=lambda name: found.entries[name].start)
        tensors = {name: _value(label, file, name, found.entries[name]) for name in in_order}
    return Archive({name: tensors[name] for name in chosen}, found.metadata)


def _header(label: str, file: FileIO) -> Header:
    file_bytes = os.fstat(file.fileno()).st_size
    first = bytearray(LENGTH.size + 1)
    count = read_into(file, 0, memoryview(first))
    length = header.length_of(label, bytes(first[:count]), file_bytes)
    text = bytearray(length)
    if read_into(file, LENGTH.size, memoryview(text), check_cancelled) != length:
        raise _truncated(label, "the header")
    return header.parse(label, bytes(text), file_bytes)


def _value(label: str, file: FileIO, name: str, entry: Entry) -> Array:
    def fill(target: memoryview) -> None:
        count = read_into(file, entry.start, target, check_cancelled)
        if count != target.nbytes:
            raise _truncated(label, f"key {name!r}")
        if entry.dtype is dtypes.bool_:
            _check_booleans(label, name, entry, target)

    return current().receive(entry.shape, entry.dtype, fill)


def _check_booleans(label: str, name: str, entry: Entry, target: memoryview) -> None:
    for at in range(0, target.nbytes, CHUNK_BYTES):
        wrong = np.frombuffer(target[at : at + CHUNK_BYTES], np.uint8) > 1
        if wrong.any():
            offset = entry.start + at + int(wrong.argmax())
            raise FileFormatError(
                f"safetensors: {label}: key {name!r}: offset {offset}: a BOOL is neither 0 nor 1",
                "write the file again; it is malformed or damaged",
            )


def _truncated(label: str, what: str) -> FileFormatError:
    return FileFormatError(
        f"safetensors: {label}: {what}: the file was truncated while it was read",
        "load it again once it is complete",
    )
