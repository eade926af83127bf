"""Read a program back in Python: for the reference runtime, for files, and for round-trip tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import FileFormatError
from pyeffect_torch.core.files import digest_of
from pyeffect_torch.core.op import Type
from pyeffect_torch.runtime.native.opcodes import (
    INPUT_FLAGS,
    OPCODES,
    SECTIONS,
    WIRE_MAGIC,
    WIRE_VERSION,
)

_NOT_PASSED = INPUT_FLAGS["scalar_slot"] | INPUT_FLAGS["constant"]
_NAMES = {row.number: name for name, row in OPCODES.items()}
_SECTION_NAMES = {number: name for name, number in SECTIONS.items()}


@dataclass(frozen=True, slots=True)
class Decoded:
    """A program as Python values.

    Attributes:
        instructions: `(opcode name, operand ids, attributes, result types)` each.
        input_types, input_flags: of all inputs; constants have their value in `constants`.
        formal_count: inputs that a caller passes: neither constants nor scalar slots.
        outputs: `(value id, alias)` each; `output_types` beside them.
        blocks: the nested programs, by the number that instructions name them with.
    """

    instructions: list[tuple[str, list[int], dict[str, Any], list[Type]]]
    input_types: list[Type]
    input_flags: list[int]
    formal_count: int
    constants: dict[int, np.ndarray[Any, Any]]
    literals: list[np.ndarray[Any, Any]]
    outputs: list[tuple[int, int]]
    output_types: list[Type]
    meta: bytes
    blocks: list[Decoded]

    def formal_types(self) -> list[Type]:
        """The types of the inputs that a caller passes, in order."""
        return [
            kind
            for kind, flag in zip(self.input_types, self.input_flags, strict=True)
            if not flag & _NOT_PASSED
        ]


def decode(blob: bytes) -> Decoded:
    """Decode a whole program.

    Raises:
        FileFormatError: not a program, another version, truncated, or a wrong digest.
    """
    sections, counts = read_sections(blob)
    try:
        return _decode(sections, counts)
    except (IndexError, ValueError, KeyError, struct.error) as error:
        raise FileFormatError(
            f"program: a section is inconsistent ({error})", "write the file again"
        ) from None


def read_sections(blob: bytes) -> tuple[dict[str, bytes], tuple[int, ...]]:
    """Check the header and the digest; return the sections by name and the five counts."""
    if len(blob) < 64:
        raise FileFormatError(
            f"program: {len(blob)} bytes are shorter than the header of 64", "write the file again"
        )
    magic, version, count, total = struct.unpack_from("<IHHQ", blob)
    if magic != WIRE_MAGIC:
        raise FileFormatError("program: offset 0: not a frozen program", "pass a saved program")
    if version != WIRE_VERSION:
        raise FileFormatError(
            f"program: offset 4: format version {version}, this package reads {WIRE_VERSION}",
            "freeze the function again with this version",
        )
    if total != len(blob):
        raise FileFormatError(
            f"program: offset 8: the header says {total} bytes, there are {len(blob)}",
            "the file is truncated or has a tail; write it again",
        )
    hashed, *counts = struct.unpack_from("<QIIIII", blob, 32)
    if not 64 <= hashed <= len(blob):
        raise FileFormatError("program: offset 32: bad hashed size", "write the file again")
    if digest_of(memoryview(blob)[32:hashed]) != blob[16:32]:
        raise FileFormatError(
            "program: offset 16: the digest does not match the contents", "the file is corrupted"
        )
    if 64 + 16 * count > len(blob):
        raise FileFormatError(
            f"program: offset 6: {count} sections do not fit {len(blob)} bytes",
            "the file is corrupted",
        )
    sections: dict[str, bytes] = {}
    for index in range(count):
        number, _, offset, size = struct.unpack_from("<IIII", blob, 64 + 16 * index)
        if offset + size > len(blob):
            raise FileFormatError(
                f"program: section {number} ends at {offset + size} of {len(blob)} bytes",
                "the file is corrupted",
            )
        if number in _SECTION_NAMES:
            sections[_SECTION_NAMES[number]] = blob[offset : offset + size]
    return sections, tuple(counts)


def _decode(sections: dict[str, bytes], counts: tuple[int, ...]) -> Decoded:
    value_count, input_count, literal_count, instruction_count, _ = counts
    types = _types(sections)
    value_types = [types[i] for i in _words(sections, "value_types", "<u4")]
    if len(value_types) != value_count:
        raise ValueError(f"{len(value_types)} values instead of {value_count}")
    flags = _words(sections, "inputs", "<u4")[::2]
    literals = _literals(sections, value_types[input_count : input_count + literal_count])
    instructions: list[tuple[str, list[int], dict[str, Any], list[Type]]] = []
    operands, attrs = _words(sections, "operands", "<u4"), _words(sections, "attrs", "<i8")
    at_operand = at_attr = 0
    at_value = input_count + literal_count
    for record in _words(sections, "instructions", "<u8"):
        name = _NAMES[record & 0xFFFF]
        results, arity, words = record >> 16 & 0xFFFF, record >> 32 & 0xFFFF, record >> 48
        instructions.append(
            (
                name,
                operands[at_operand : at_operand + arity],
                _attributes(name, attrs[at_attr : at_attr + words]),
                value_types[at_value : at_value + results],
            )
        )
        at_operand, at_attr, at_value = at_operand + arity, at_attr + words, at_value + results
    if len(instructions) != instruction_count:
        raise ValueError(f"{len(instructions)} instructions instead of {instruction_count}")
    out = _words(sections, "outputs", "<u4")
    outputs = list(zip(out[::2], out[1::2], strict=True))
    return Decoded(
        instructions,
        value_types[:input_count],
        flags,
        sum(1 for flag in flags if not flag & _NOT_PASSED),
        _constants(sections, value_types, flags),
        literals,
        outputs,
        [value_types[index] for index, _ in outputs],
        sections.get("meta", b""),
        [decode(block) for block in _blocks(sections.get("blocks", b""))],
    )


def _blocks(data: bytes) -> list[bytes]:
    """The nested programs: one behind the other, each says how long it is."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        size = max(struct.unpack_from("<Q", data, at + 8)[0], 64)
        found.append(data[at : at + size])
        at += size
    return found


def _words(sections: dict[str, bytes], name: str, dtype: str) -> list[int]:
    return np.frombuffer(sections.get(name, b""), dtype=dtype).tolist()


def _types(sections: dict[str, bytes]) -> list[Type]:
    dims = _words(sections, "dims", "<i8")
    out: list[Type] = []
    for record in _words(sections, "types", "<u8"):
        rank, start = record >> 16 & 0xFFFF, record >> 32
        out.append((tuple(dims[start : start + rank]), dtypes.ALL[record & 0xFF]))
    return out


def _literals(sections: dict[str, bytes], types: list[Type]) -> list[np.ndarray[Any, Any]]:
    data = sections.get("literals", b"")
    out: list[np.ndarray[Any, Any]] = []
    offset = 0
    for shape, dtype in types:
        count = int(np.prod(shape, dtype=np.int64))
        size = count * dtype.itemsize
        out.append(np.frombuffer(data, dtype, count, offset).reshape(shape))
        offset += size + -size % 8
    return out


def _constants(
    sections: dict[str, bytes], types: list[Type], flags: list[int]
) -> dict[int, np.ndarray[Any, Any]]:
    data = sections.get("constants", b"")
    out: dict[int, np.ndarray[Any, Any]] = {}
    offset = 0
    for index, flag in enumerate(flags):
        if flag & INPUT_FLAGS["constant"]:
            shape, dtype = types[index]
            count = int(np.prod(shape, dtype=np.int64))
            size = count * dtype.itemsize
            out[index] = np.frombuffer(data, dtype, count, offset).reshape(shape)
            offset += size + -size % 64
    return out


def _attributes(name: str, words: list[int]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    at = 0
    for attribute, kind in OPCODES[name].attributes:
        if kind == "ints":
            size = words[at]
            out[attribute] = tuple(words[at + 1 : at + 1 + size])
            at += 1 + size
            continue
        value: Any = words[at]
        at += 1
        if kind == "float":
            value = struct.unpack("<d", struct.pack("<q", value))[0]
        elif kind == "dtype":
            value = dtypes.ALL[value]
        elif kind == "bool":
            value = bool(value)
        out[attribute] = value
    return out
