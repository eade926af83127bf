"""The header of a `.safetensors` file: 8 bytes with its length, then JSON about each tensor.

Nothing in a header is trusted. Every check is made on numbers of the header and the size of the
file, before memory is taken for a value; each message names the key or the offset.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import FileFormatError
from pyeffect_torch.core.op import Shape, Type
from pyeffect_torch.ops.base import ELEMENTS_MAX, RANK_MAX
from pyeffect_torch.safetensors.names import RESERVED

LENGTH: Final = struct.Struct("<Q")
HEADER_BYTES_MAX: Final = 100_000_000
"""The format's own limit."""

# In the order in which the format's library lays tensors out: wide elements first, so that each
# starts at a multiple of its size.
_NAMES: Final[dict[str, DType]] = {
    "U64": dtypes.uint64,
    "I64": dtypes.int64,
    "F64": dtypes.float64,
    "F32": dtypes.float32,
    "U32": dtypes.uint32,
    "I32": dtypes.int32,
    "BF16": dtypes.bfloat16,
    "F16": dtypes.float16,
    "U16": dtypes.uint16,
    "I16": dtypes.int16,
    "I8": dtypes.int8,
    "U8": dtypes.uint8,
    "BOOL": dtypes.bool_,
}
_ORDER: Final = {dtype: (number, name) for number, (name, dtype) in enumerate(_NAMES.items())}
_KEYS: Final = frozenset({"dtype", "shape", "data_offsets"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file: its type, and the bytes of the file that hold it."""

    shape: Shape
    dtype: DType
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says: entries by name in the file's order, and the strings about the file."""

    entries: dict[str, Entry]
    metadata: dict[str, str]


class _Duplicate(Exception):
    """A key that appears twice in one object."""


def length_of(file: str, first: bytes, file_bytes: int) -> int:
    """Return the length of the header, from the file's first 9 bytes and its size."""
    if len(first) < LENGTH.size:
        _refuse(file, "offset 0", f"{len(first)} bytes are shorter than the length of a header")
    (length,) = LENGTH.unpack(first[: LENGTH.size])
    if length > HEADER_BYTES_MAX:
        _refuse(
            file, "offset 0", f"a header of {length} bytes, at most {HEADER_BYTES_MAX} are read"
        )
    if LENGTH.size + length > file_bytes:
        _refuse(
            file,
            "offset 0",
            f"the header ends at {LENGTH.size + length}, the file has {file_bytes} bytes",
        )
    if first[LENGTH.size :] != b"{":
        _refuse(file, "offset 8", "the header does not begin with {")
    return length


def parse(file: str, text: bytes, file_bytes: int) -> Header:
    """Return the entries of a header, whose tensors fill the rest of the file exactly."""
    fields = _object(file, text)
    metadata = fields.pop(RESERVED, {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        _refuse(file, f"key {RESERVED!r}", "it must map strings to strings")
    for item in (*metadata, *metadata.values()):
        _require_text(file, item)
    begin = LENGTH.size + len(text)
    entries = {name: _entry(file, name, row, begin) for name, row in fields.items()}
    at = begin
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != at:
            kind = "overlaps the tensor before it" if entry.start < at else "leaves a gap before it"
            _refuse(
                file,
                f"key {name!r}",
                f"data_offsets begin at {entry.start - begin} instead of {at - begin}: it {kind}",
            )
        at = entry.stop
    if at != file_bytes:
        _refuse(file, f"offset {at}", f"the tensors end here, the file has {file_bytes} bytes")
    return Header(entries, metadata)


def _object(file: str, text: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(
            text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except UnicodeDecodeError as error:
        _refuse(file, f"offset {LENGTH.size + error.start}", "the header is not UTF-8")
    except _Duplicate as error:
        _refuse(file, f"key {error.args[0]!r}", "it appears twice")
    except json.JSONDecodeError as error:
        at = LENGTH.size + len(error.doc[: error.pos].encode())
        _refuse(file, f"offset {at}", f"the header is not JSON ({error.msg})")
    except (ValueError, RecursionError) as error:
        _refuse(file, "offset 8", f"the header is not JSON of this format ({error})")
    for name in fields:
        _require_text(file, name)
    return fields


def _require_text(file: str, text: str) -> None:
    """Refuse a lone surrogate, which JSON can write and which is no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        _refuse(file, f"key or string {ascii(text)[:80]}", "it is not Unicode text")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Duplicate(key)
            seen.add(key)
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _entry(file: str, name: str, row: Any, begin: int) -> Entry:
    where = f"key {name!r}"
    if not isinstance(row, dict) or row.keys() != _KEYS:
        _refuse(file, where, "expected an object of dtype, shape and data_offsets")
    dtype = _NAMES.get(row["dtype"]) if isinstance(row["dtype"], str) else None
    if dtype is None:
        _refuse(file, where, f"unknown dtype {_shown(row['dtype'])}, known are {', '.join(_NAMES)}")
    shape = row["shape"]
    if not _sizes(shape) or len(shape) > RANK_MAX:
        _refuse(file, where, f"shape {_shown(shape)} is no list of at most {RANK_MAX} extents")
    if math.prod(extent or 1 for extent in shape) > ELEMENTS_MAX:
        _refuse(file, where, f"shape {_shown(shape)} has more than 2**48 elements")
    offsets = row["data_offsets"]
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(file, where, f"data_offsets {_shown(offsets)} are no begin and end")
    nbytes = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != nbytes:
        _refuse(
            file,
            where,
            f"{dtype.name}{shape} has {nbytes} bytes, its data_offsets {_shown(offsets)} have "
            f"{_shown(offsets[1] - offsets[0])}",
        )
    return Entry(tuple(shape), dtype, begin + offsets[0], begin + offsets[1])


def _sizes(value: Any) -> bool:
    """Whether it is a list of ints that are not negative (True and 1.0 are none)."""
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _refuse(file: str, where: str, why: str) -> NoReturn:
    raise FileFormatError(
        f"safetensors: {file}: {where}: {why}", "write the file again; it is malformed or damaged"
    )


def layout(types: Mapping[str, Type]) -> list[str]:
    """Return the names in the order of their data: widest elements first, then by name."""
    return sorted(types, key=lambda name: (_ORDER[types[name][1]][0], name.encode()))


def build(types: Mapping[str, Type], order: Sequence[str], metadata: Mapping[str, str]) -> bytes:
    """Return the length and the JSON of a header, padded so that the data is 8-byte aligned."""
    fields: dict[str, Any] = {}
    if metadata:
        fields[RESERVED] = {key: metadata[key] for key in sorted(metadata)}
    at = 0
    for name in order:
        shape, dtype = types[name]
        end = at + math.prod(shape) * dtype.itemsize
        fields[name] = {
            "dtype": _ORDER[dtype][1],
            "shape": list(shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH.size)
    return LENGTH.pack(len(text)) + text
