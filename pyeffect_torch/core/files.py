"""Files are written whole or not at all, and read and written in pieces.

Between two pieces Python sees its signals, so Ctrl-C need not wait for the end of a large file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Generator, Iterable
from io import FileIO
from pathlib import Path
from typing import Final

from pyeffect_torch.core.errors import ArgumentError, IoError

CHUNK_BYTES: Final = 1 << 22
"""Bytes moved between two looks at Python's signals: some milliseconds on a slow disk."""

_SLICE_SECONDS: Final = 0.02


def _nothing() -> None:
    pass


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text.

    Raises:
        ArgumentError: it is no path, or has a NUL character.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise ArgumentError(
            f"a path must be a string or an os.PathLike, got {type(path).__name__}",
            "pass the name of a file",
        ) from None
    if "\0" in text:
        raise ArgumentError(f"the path {text!r} has a NUL character", "pass the name of a file")
    return text


def write_atomically(
    path: str | os.PathLike[str],
    parts: Iterable[bytes | memoryview],
    poll: Callable[[], None] = _nothing,
) -> None:
    """Write `parts` to a temporary file beside `path` and rename it over `path`.

    Whatever interrupts the write (an error, Ctrl-C, an exception of `poll`, which is called before
    each piece) leaves the old file, if any, untouched. The data is on the disk before the rename.

    Raises:
        IoError: the folder is missing or not writable, or the disk is full.
    """
    target = Path(os.path.realpath(path_text(path)))  # through a symbolic link, not over it
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.partial")
    try:
        with open(temporary, "wb", buffering=0) as file:
            for part in parts:
                view = memoryview(part)
                while view.nbytes:
                    poll()
                    view = view[file.write(view[:CHUNK_BYTES]) :]
            _flush(file.fileno())
            poll()
        os.replace(temporary, target)
        _flush_folder(target.parent)
    except IoError:
        raise
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


def _flush(descriptor: int) -> None:
    """Wait until the data is on the disk; Ctrl-C is seen meanwhile, the flush goes on then."""
    duplicate = os.dup(descriptor)
    failures: list[OSError] = []

    def work() -> None:
        try:
            os.fsync(duplicate)
        except OSError as error:
            failures.append(error)
        finally:
            os.close(duplicate)

    worker = threading.Thread(target=work, name="pyeffect_torch flush", daemon=True)
    try:
        worker.start()
    except RuntimeError:  # no thread starts while the interpreter ends
        work()
    while worker.is_alive():
        worker.join(_SLICE_SECONDS)
    if failures:
        raise failures[0]


def _flush_folder(folder: Path) -> None:
    """Make a rename durable, where a folder can be opened and flushed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Generator[FileIO, None, None]:
    """Open a file for reading; what the system refuses inside the block is an `IoError` too.

    Raises:
        IoError: it cannot be read.
    """
    name = path_text(path)
    try:
        with open(name, "rb", buffering=0) as file:
            yield file
    except IoError:
        raise
    except OSError as error:
        raise IoError(
            f"cannot read {name}: {error.strerror or error}",
            "check the path and its permissions",
            operation="load",
            phase="io",
        ) from None


def read_into(
    file: FileIO,
    offset: int,
    target: memoryview,
    poll: Callable[[], None] = _nothing,
) -> int:
    """Fill `target` with the bytes of `file` from `offset` on; return how many there were.

    `poll` is called before each piece.
    """
    file.seek(offset)
    filled = 0
    while filled < target.nbytes:
        poll()
        count = file.readinto(target[filled : filled + CHUNK_BYTES])
        if not count:
            break
        filled += count
    return filled


def digest_of(*parts: bytes | memoryview) -> bytes:
    """Return 16 bytes of BLAKE2b over `parts`, taken in pieces."""
    made = hashlib.blake2b(digest_size=16)
    for part in parts:
        view = memoryview(part)
        for start in range(0, view.nbytes, CHUNK_BYTES):
            made.update(view[start : start + CHUNK_BYTES])
    return made.digest()


def read_whole(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file.

    Raises:
        IoError: it cannot be read.
    """
    parts: list[bytes] = []
    with opened(path) as file:
        while part := file.read(CHUNK_BYTES):
            parts.append(part)
    return b"".join(parts)
