"""Feed `et.safetensors.load_archive` damaged files: it refuses each by name, or reads it right.

What it accepts, the format's own library must accept too and read as the same bytes. Anything but a
`FileFormatError` ends the run and prints the case's number and seed.

Usage: python tools/fuzz_safetensors.py [--count 20000] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

import pyeffect_torch as et

EDGES = [-1, 0, 1, 7, 8, 255, 2**31, 2**32 + 3, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30]
TEXTS = ["", "F32", "BOOL", "F8_E4M3", "__metadata__", "a", "dtype", "\u0000", "é", "a.b", "0"]
VALUES: list[Any] = [*EDGES, *TEXTS, None, True, 1.0, 1e300, [], {}, [0, 8], [8, 0], [[]], [1, "2"]]


def valid_file(rng: random.Random, path: Path) -> bytes:
    """Save a small random tree; return the bytes."""
    tree: dict[str, Any] = {}
    for _ in range(rng.randrange(5)):
        shape = tuple(rng.randrange(4) for _ in range(rng.randrange(4)))
        dtype = rng.choice(et.dtypes.ALL)
        values = np.array(rng.choices(range(2), k=int(np.prod(shape)))).reshape(shape)
        tree[rng.choice(TEXTS[5:]) + str(rng.randrange(9))] = values.astype(dtype)
    et.safetensors.save(path, tree, {"k": "v"} if rng.random() < 0.5 else None)
    return path.read_bytes()


def framed(header: bytes, data: bytes) -> bytes:
    """Return a file of this header and data."""
    return struct.pack("<Q", len(header)) + header + data


def damage_value(rng: random.Random, header: bytes, data: bytes) -> bytes:
    """Replace, delete or rename one value of the header."""
    fields = json.loads(header)
    at: Any = fields
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = rng.choice(keys)
        if isinstance(at[key], (dict, list)) and rng.random() < 0.8:
            at = at[key]
            continue
        action = rng.randrange(4)
        if action == 0:
            del at[key]
        elif action == 1 and isinstance(at, dict):
            at[rng.choice(TEXTS)] = at.pop(key)
        elif action == 2 and isinstance(at[key], int):
            at[key] = int(at[key]) + rng.choice([-1, 1, 2, 8])
        else:
            at[key] = rng.choice(VALUES)
        break
    return framed(json.dumps(fields, ensure_ascii=rng.random() < 0.5).encode(), data)


def damage_text(rng: random.Random, header: bytes, data: bytes) -> bytes:
    """Repeat, cut out or overwrite a piece of the header's text; or pad and wrap it."""
    begin, end = sorted(rng.randrange(len(header) + 1) for _ in range(2))
    piece = header[begin:end]
    tokens = [b"", piece * 2, b'"', b",", b"{", b"}", b"[", b"\\ud800", b"\xff", b"NaN", b"1e999"]
    made = header[:begin] + rng.choice(tokens) + header[end:]
    if rng.random() < 0.1:
        made = rng.choice([made + b" " * 9, b" " + made, b"[" * 5000 + made, made + b"}"])
    return framed(made, data)


def damage_bytes(rng: random.Random, whole: bytes) -> bytes:
    """Flip bytes, cut the file, or append to it."""
    made = bytearray(whole)
    for _ in range(rng.randrange(1, 4)):
        made[rng.randrange(len(made))] = rng.randrange(256)
    cut = rng.randrange(len(made) + 1)
    return bytes(rng.choice([made, made, made[:cut], made + b"\0" * rng.randrange(1, 9)]))


def damaged(rng: random.Random, whole: bytes) -> bytes:
    """Return a file that is nearly `whole`."""
    (length,) = struct.unpack_from("<Q", whole)
    header, data = whole[8 : 8 + length], whole[8 + length :]
    kind = rng.randrange(4)
    if kind == 0:
        return damage_value(rng, header, data)
    if kind == 1:
        return damage_text(rng, header, data)
    if kind == 2:
        return damage_bytes(rng, whole)
    lengths = [edge for edge in EDGES if 0 <= edge < 2**64]
    return struct.pack("<Q", rng.choice(lengths)) + whole[8:]


def check(path: Path) -> bool:
    """Load a file; return whether it was accepted.

    Raises:
        AssertionError: it was accepted and read wrongly.
    """
    try:
        archive = et.safetensors.load_archive(path)
    except et.errors.FileFormatError:
        return False
    want = dict(safetensors.deserialize(path.read_bytes()))
    assert archive.tensors.keys() == want.keys()
    for name, array in archive.tensors.items():
        assert list(array.shape) == want[name]["shape"], name
        assert array.numpy().tobytes() == bytes(want[name]["data"]), name
    return True


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"safetensors: {options.count} cases, seed {options.seed}")
    accepted = 0
    with tempfile.TemporaryDirectory() as folder, et.use(et.reference()):
        path = Path(folder) / "case.safetensors"
        for number in range(options.count):
            rng = random.Random(f"{options.seed} {number}")
            path.write_bytes(damaged(rng, valid_file(rng, path)))
            try:
                accepted += check(path)
            except BaseException:
                print(f"case {number} of seed {options.seed}: {path.read_bytes()[:2000]!r}")
                raise
    print(f"safetensors: {options.count - accepted} refused, {accepted} read right")


if __name__ == "__main__":
    main()
