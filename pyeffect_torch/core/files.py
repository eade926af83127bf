"""Files are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from pyeffect_torch.core.errors import IoError

CHUNK_BYTES = 1 << 22
"""Bytes written between two looks at Python's signals."""


def write_atomically(path: str | os.PathLike[str], parts: Iterable[bytes]) -> None:
    """Write `parts` to a temporary file beside `path` and rename it over `path`.

    Whatever interrupts the write (an error, Ctrl-C) leaves the old file, if any, untouched.

    Raises:
        IoError: the folder is missing or not writable, or the disk is full.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                view = memoryview(part)
                for start in range(0, len(view), CHUNK_BYTES):
                    file.write(view[start : start + CHUNK_BYTES])
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise IoError(
            f"cannot write {target}: {error.strerror or error}",
            "check that the folder exists, is writable and has space",
            operation="save",
            phase="io",
        ) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file.

    Raises:
        IoError: it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise IoError(
            f"cannot read {os.fspath(path)}: {error.strerror or error}",
            "check the path and its permissions",
            operation="load",
            phase="io",
        ) from None
