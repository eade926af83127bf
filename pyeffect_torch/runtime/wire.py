"""The bytes of a frozen program: its sections and how they are laid out (`docs/wire.md`).

`encode.py` fills them from a graph; `decode.py` reads them back.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pyeffect_torch.core import dtypes, source
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.files import digest_of
from pyeffect_torch.core.op import Type
from pyeffect_torch.ops.base import check_size
from pyeffect_torch.runtime.native.opcodes import (
    INPUT_FLAGS,
    OPCODES,
    SECTIONS,
    WIRE_MAGIC,
    WIRE_VERSION,
)

_HEADER = struct.Struct("<IHHQ16sQIIIIII")
_FLOAT_WORD = struct.Struct("<d")
_INT_WORD = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Program:
    """An encoded program and what Python knows about it.

    Attributes:
        blob: the bytes of the format.
        captured: concrete arrays that the graph met; they are the inputs after the formals.
        scalars: values of the scalar slots, the last inputs (only with `scalar_slots`).
        outputs: the types of the results.
        sources, operations: the user's location and the op of each instruction.
        locations: the distinct locations, as the sources section numbers them.
        formal_count: inputs before the captured ones. donated: their donated indices.
        block_sources, block_operations: as `sources` and `operations`, for each nested program.
    """

    blob: bytes
    captured: tuple[Array, ...]
    scalars: tuple[Any, ...]
    outputs: tuple[Type, ...]
    sources: tuple[source.Source | None, ...]
    operations: tuple[str, ...]
    locations: tuple[source.Source, ...]
    formal_count: int
    donated: tuple[int, ...]
    block_sources: tuple[tuple[source.Source | None, ...], ...] = ()
    block_operations: tuple[tuple[str, ...], ...] = ()

    @property
    def digest(self) -> bytes:
        """The structural hash: equal for programs that differ in source lines only.

        The digest in the header seals the file; it covers the sizes of all sections, so it is not
        that.
        """
        hashed, section_count = struct.unpack_from("<Q", self.blob, 32)[0], self.blob[6]
        start = _HEADER.size + 16 * section_count
        rows = b"".join(
            self.blob[at : at + 16]
            for at in range(_HEADER.size, start, 16)
            if self.blob[at] < 64  # the first byte of a section's id
        )
        return digest_of(self.blob[40:60], rows, memoryview(self.blob)[start:hashed])


def input_records(flags: Sequence[int]) -> bytes:
    """Flags and, for a constant, how many constants come before it."""
    rows: list[int] = []
    constants = 0
    for flag in flags:
        is_constant = bool(flag & INPUT_FLAGS["constant"])
        rows.extend((flag, constants if is_constant else 0))
        constants += is_constant
    return np.asarray(rows, dtype="<u4").tobytes()


def constant_bytes(captured: Sequence[Array]) -> bytes:
    """The values of baked arrays, each padded to 64 bytes."""
    parts: list[bytes] = []
    for array in captured:
        data = array.buf.numpy(array.shape, array.dtype).tobytes()
        parts.extend((data, b"\0" * (-len(data) % 64)))
    return b"".join(parts)


def type_records(types: dict[Any, int]) -> tuple[bytes, bytes]:
    """The types and the dims sections."""
    records: list[int] = []
    dims: list[int] = []
    for dtype, shape in types:
        check_size("compute", shape)
        records.append(dtypes.NUMBER[dtype] | len(shape) << 16 | len(dims) << 32)
        dims.extend(shape)
    return np.asarray(records, dtype="<u8").tobytes(), np.asarray(dims, dtype="<i8").tobytes()


_DIGESTS = {row.number: row.digest for row in OPCODES.values()}


def opcode_records(instructions: np.ndarray[Any, Any]) -> bytes:
    """Number and digest of each opcode that instruction words use, ascending."""
    rows = [(number, _DIGESTS[number]) for number in np.unique(instructions & 0xFFFF).tolist()]
    return np.asarray(rows, dtype="<u8").tobytes()


def attribute_words(schema: tuple[tuple[str, str], ...], attributes: Any, out: list[int]) -> int:
    """Append the attribute words by schema; return how many."""
    before = len(out)
    for name, kind in schema:
        value = attributes[name]
        if kind == "ints":
            out.append(len(value))
            out.extend(value)
        elif kind == "float":
            out.append(_INT_WORD.unpack(_FLOAT_WORD.pack(value))[0])
        elif kind == "dtype":
            out.append(dtypes.NUMBER[value])
        else:
            out.append(int(value))
    return len(out) - before


_places: dict[source.Source, tuple[str, str, int]] = {}


def _place(where: source.Source) -> tuple[str, str, int]:
    """The file, function and line of a location; decoded once."""
    found = _places.get(where)
    if found is None:
        code = where[0]
        found = _places[where] = (code.co_filename, code.co_qualname, source.line_of(where))
    return found


class SourceSections(NamedTuple):
    """The sections by name, and the distinct locations as they number them."""

    sections: dict[str, bytes]
    locations: tuple[source.Source, ...]


def source_sections(
    sources: Sequence[source.Source | None],
    block_sources: Sequence[Sequence[source.Source | None]] = (),
) -> SourceSections:
    """The strings and sources sections: each location once, then one index an instruction.

    The indices of the instructions in nested programs have a section of their own.
    """
    wheres = [*itertools.chain(sources, *block_sources)]
    # By identity: hashing a code object walks all of it.
    keys = [where and (id(where[0]), where[1]) for where in wheres]
    found = {None: None, **dict(zip(keys, wheres, strict=True))}
    numbers = {key: number for number, key in enumerate(found)}
    indices = list(map(numbers.__getitem__, keys))
    locations = [where for where in found.values() if where is not None]
    text = bytearray()
    offsets: dict[str, tuple[int, int]] = {}
    records: list[int] = []
    for where in locations:
        file, function, line = _place(where)
        for string in (file, function):
            if string not in offsets:
                raw = string.encode("utf-8", "replace")
                offsets[string] = (len(text), len(raw))
                text.extend(raw)
            records.extend(offsets[string])
        records.extend((line, 0))
    count = len(sources)
    words = [len(locations), 0, *records, *indices[:count]]
    sections = {
        "strings": bytes(text),
        "sources": np.asarray(words, dtype="<u4").tobytes(),
        "block_sources": np.asarray(indices[count:], dtype="<u4").tobytes(),
    }
    return SourceSections(sections, tuple(locations))


Counts: TypeAlias = tuple[int, int, int, int, int]
"""Values, inputs, literals, instructions and outputs of a program."""


def assemble(sections: dict[str, bytes], counts: Counts) -> bytes:
    """Lay out sections (by name, absent when empty) behind header and table; seal the digest."""
    present = sorted((SECTIONS[name], data) for name, data in sections.items() if data)
    offset = _HEADER.size + 16 * len(present)
    table: list[int] = []
    parts: list[bytes] = []
    hashed = 0
    for number, data in present:
        if number >= 64 and not hashed:
            hashed = offset
        table.extend((number, 0, offset, len(data)))
        padding = -len(data) % 8
        parts.append(data)
        if padding:
            parts.append(b"\0" * padding)
        offset += len(data) + padding
    hashed = hashed or offset
    body = b"".join([np.asarray(table, dtype="<u4").tobytes(), *parts])
    tail = struct.pack("<QIIIIII", hashed, *counts, 0)
    start = _HEADER.size
    digest = digest_of(tail, memoryview(body)[: hashed - start])
    head = struct.pack("<IHHQ", WIRE_MAGIC, WIRE_VERSION, len(present), offset)
    return head + digest + tail + body
