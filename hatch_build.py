"""The build hook of hatchling: compiles the native library into the wheel, or into the source tree.

`pip install .` and `pip wheel .` call it for this machine; `PYEFFECT_PLATFORM` names another of
`PLATFORMS` and so makes any wheel on any host. For an editable install the library is built into
the source tree, where `python hatch_build.py` refreshes it after a change in `zig/`; further
arguments of that command go to `zig build`, as in `python hatch_build.py test`.

`PYEFFECT_KERNELS=native` compiles the kernels for this machine's best instruction set only:
quicker, and not for shipping.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Platform(NamedTuple):
    """What a wheel's platform tag means to Zig."""

    target: str
    library: str
    cpu: str | None = None


PLATFORMS = {
    "manylinux_2_17_x86_64": Platform("x86_64-linux-gnu.2.17", "libpet_cpu.so", "x86_64_v2"),
    "manylinux_2_17_aarch64": Platform("aarch64-linux-gnu.2.17", "libpet_cpu.so"),
    "musllinux_1_2_x86_64": Platform("x86_64-linux-musl", "libpet_cpu.so", "x86_64_v2"),
    "musllinux_1_2_aarch64": Platform("aarch64-linux-musl", "libpet_cpu.so"),
    "macosx_11_0_arm64": Platform("aarch64-macos.11.0", "libpet_cpu.dylib"),
    "macosx_11_0_x86_64": Platform("x86_64-macos.11.0", "libpet_cpu.dylib", "x86_64_v2"),
    "win_amd64": Platform("x86_64-windows-gnu", "pet_cpu.dll", "x86_64_v2"),
}

PACKAGE = "pyeffect_torch"
LIBRARY_FOLDER = f"{PACKAGE}/runtime/native/lib"
HEADER_FOLDER = f"{PACKAGE}/include"
HEADER = "pyeffect_torch.h"


def host_platform() -> str:
    """Return this machine's platform tag, a key of `PLATFORMS`.

    Raises:
        RuntimeError: there are no kernels for this machine.
    """
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    if sys.platform == "darwin":
        tag = "macosx_11_0_" + ("arm64" if machine == "aarch64" else machine)
    elif sys.platform == "win32":
        tag = "win_amd64" if machine == "x86_64" else f"win_{machine}"
    else:
        libc = "manylinux_2_17" if platform.libc_ver()[0] == "glibc" else "musllinux_1_2"
        tag = f"{libc}_{machine}"
    if tag not in PLATFORMS:
        raise RuntimeError(
            f"pyeffect_torch: no native library for {tag}; there is one for each of "
            f"{', '.join(PLATFORMS)}; name one in PYEFFECT_PLATFORM to build it from here"
        )
    return tag


def zig_build(root: Path, tag: str, *arguments: str) -> None:
    """Run `zig build` for the platform `tag` in the project folder `root`.

    Raises:
        RuntimeError: the tag is unknown, or the build failed (Zig has printed why).
    """
    if tag not in PLATFORMS:
        raise RuntimeError(
            f"pyeffect_torch: unknown platform {tag!r}; set PYEFFECT_PLATFORM to one of "
            f"{', '.join(PLATFORMS)}"
        )
    chosen = PLATFORMS[tag]
    command = [sys.executable, "-m", "ziglang", "build", f"-Dtarget={chosen.target}"]
    if chosen.cpu:
        command.append(f"-Dcpu={chosen.cpu}")
    command.append(f"-Dkernels={os.environ.get('PYEFFECT_KERNELS', 'all')}")
    result = subprocess.run([*command, *arguments], cwd=root, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"pyeffect_torch: zig build failed with status {result.returncode}")


def build_in_place(root: Path) -> None:
    """Build this machine's library and the C header into the package in the source tree."""
    zig_build(
        root,
        host_platform(),
        *("--prefix", str(root / PACKAGE)),
        *("--prefix-lib-dir", str(root / LIBRARY_FOLDER)),
        *("--prefix-include-dir", str(root / HEADER_FOLDER)),
    )


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the native library and the C header to a wheel and tags it for one platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build for the platform asked for; `version` is `editable` for an editable install."""
        root = Path(self.root)
        tag = os.environ.get("PYEFFECT_PLATFORM") or host_platform()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"
        if version == "editable":
            build_in_place(root)
            return
        prefix = root / "build" / tag
        zig_build(root, tag, "--prefix", str(prefix))
        library = PLATFORMS[tag].library
        included = build_data["force_include"]
        included[str(prefix / "lib" / library)] = f"{LIBRARY_FOLDER}/{library}"
        included[str(prefix / "include" / HEADER)] = f"{HEADER_FOLDER}/{HEADER}"


def main() -> None:
    """Refresh the library in the source tree, or pass the arguments to `zig build`."""
    root = Path(__file__).parent
    if len(sys.argv) > 1:
        zig_build(root, host_platform(), *sys.argv[1:])
    else:
        build_in_place(root)


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(str(error))
