"""Loads the native library: one exact file, no search path, on first use and never at import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final, cast

from pyeffect_torch.core import forks
from pyeffect_torch.core.errors import NativeLibraryError
from pyeffect_torch.runtime.native.opcodes import ABI_VERSION, TABLE_DIGEST

_NAMES: Final = {"darwin": "libpet_cpu.dylib", "win32": "pet_cpu.dll"}
PATH: Final = Path(__file__).parent / "lib" / _NAMES.get(sys.platform, "libpet_cpu.so")

_lock = forks.lock()
_loaded: list[tuple[Any, Any]] = []


def is_available() -> bool:
    """Whether the library is there and fits this package; never raises."""
    try:
        load()
    except NativeLibraryError:
        return False
    return True


def load(path: Path = PATH) -> tuple[Any, Any]:
    """Return `(ffi, lib)`, loading and checking the library the first time.

    Raises:
        NativeLibraryError: no such file, not loadable here, or built from another opcode table.
    """
    if _loaded:
        return _loaded[0]
    with _lock:
        if not _loaded:
            _loaded.append(open_library(path))
    return _loaded[0]


def open_library(path: Path) -> tuple[Any, Any]:
    """Open one library file and compare its tables with this package's."""
    from pyeffect_torch.runtime.native import declarations

    # What cffi reads from the declarations has no static types.
    ffi = cast("Any", declarations.ffi)

    if not path.exists():
        raise NativeLibraryError(
            f"the native library {path.name} is not installed (looked for {path})",
            "install the wheel for this platform, or run `pip install -e .` in a checkout",
        )
    try:
        # Never unloaded: a job may still run on a thread of the library when the process ends.
        lib = ffi.dlopen(str(path), ffi.RTLD_NOW | getattr(ffi, "RTLD_NODELETE", 0))
    except OSError as error:
        raise NativeLibraryError(
            f"the native library {path.name} cannot be loaded: {error}",
            "install the wheel for this platform and C library",
        ) from None
    info = ffi.new("pet_library_info_t *")
    lib.pet_library_info(info)
    if info.abi_version != ABI_VERSION or info.opcode_digest != TABLE_DIGEST:
        raise NativeLibraryError(
            f"the native library {path.name} does not match this package: ABI {info.abi_version}, "
            f"opcode table {info.opcode_digest:016x}, expected ABI {ABI_VERSION}, "
            f"table {TABLE_DIGEST:016x}",
            "build it again with `pip install -e .`, or reinstall the wheel",
        )
    return ffi, lib
