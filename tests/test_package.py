"""Packaging: the wheel's contents and tag, pinned versions, generated files, import layers."""

from __future__ import annotations

import importlib.util
import re
import struct
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
WHEEL_BYTES_MAX = 4_000_000
# Imported when used: a bare `import pyeffect_torch` stays quick and opens no library.
LAZY_MODULES = {"cffi", "safetensors", "tokenizers", "rich", "matplotlib", "pyarrow", "jinja2"}


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps"]
    subprocess.run(
        [*command, "--wheel-dir", folder, "."], cwd=ROOT, check=True, capture_output=True
    )
    (path,) = folder.iterdir()
    return path


def exported_names(library: bytes) -> set[str]:
    """Return the names that a little-endian 64-bit ELF library defines in its dynamic table."""
    assert library[:6] == b"\x7fELF\x02\x01"
    (table_offset,) = struct.unpack_from("<Q", library, 0x28)
    entry_bytes, entry_count = struct.unpack_from("<HH", library, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", library, table_offset + index * entry_bytes)
        for index in range(entry_count)
    ]
    names = set()
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind != 11:  # SHT_DYNSYM
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, 24):
            name, _, _, section_index = struct.unpack_from("<IBBH", library, at)
            if section_index != 0:  # 0: undefined here, wanted from another library
                end = library.index(b"\0", strings + name)
                names.add(library[strings + name : end].decode())
    return names


@pytest.mark.timeout(900)
def test_wheel_holds_exactly_the_package(wheel: Path, hook: ModuleType) -> None:
    tag = hook.host_platform()
    library = f"{hook.LIBRARY_FOLDER}/{hook.PLATFORMS[tag].library}"
    header = f"{hook.HEADER_FOLDER}/{hook.HEADER}"
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / hook.PACKAGE).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert archive.read(header) == (ROOT / "include" / hook.HEADER).read_bytes()
        (metadata,) = (name for name in archive.namelist() if name.endswith("/WHEEL"))
        assert f"Tag: py3-none-{tag}\n" in archive.read(metadata).decode()
    assert held == sources | {library, header, f"{hook.PACKAGE}/py.typed"}
    assert wheel.name.endswith(f"-py3-none-{tag}.whl")
    assert wheel.stat().st_size < WHEEL_BYTES_MAX


@pytest.mark.timeout(900)
def test_library_exports_the_header_and_needs_an_old_libc(wheel: Path, hook: ModuleType) -> None:
    chosen = hook.PLATFORMS[hook.host_platform()]
    if not chosen.library.endswith(".so"):
        pytest.skip("reads ELF only")
    header = (ROOT / "include" / hook.HEADER).read_text()
    declared = set(re.findall(r"\b(pet_\w+)\(", header))
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read(f"{hook.LIBRARY_FOLDER}/{chosen.library}")
    assert declared
    assert exported_names(library) == declared
    versions = {(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", library)}
    assert max(versions, default=(0, 0)) <= (2, 17)


def test_zig_is_pinned_once_and_for_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (built_with,) = re.findall(r'zig_version = "([\d.]+)"', (ROOT / "build.zig").read_text())
    pin = f"ziglang=={built_with}"
    assert pin in project["build-system"]["requires"]
    assert pin in project["project"]["optional-dependencies"]["dev"]


def test_development_tools_are_pinned_exactly() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    tools = [*extras["dev"], *extras["interop"]]
    assert [tool for tool in tools if not re.fullmatch(r"[\w-]+==[\d.]+", tool)] == []
    names = [tool.partition("==")[0] for tool in set(tools)]
    assert len(set(names)) == len(names), "one version of a tool in both"


def test_generated_files_are_fresh(tmp_path: Path) -> None:
    command = ["-m", "ziglang", "build", "gen-fresh", "--prefix", tmp_path]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    fresh = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(fresh) == 2
    for path in fresh:
        committed = ROOT / path.relative_to(tmp_path)
        assert committed.read_bytes() == path.read_bytes(), f"stale {committed}: `zig build gen`"


def test_unknown_platform_is_refused(hook: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="unknown platform 'amiga'; set PYEFFECT_PLATFORM to"):
        hook.zig_build(ROOT, "amiga")


def test_imports_point_down_only() -> None:
    program = "from importlinter.cli import lint_imports_command as c; c(['--no-cache'])"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_import_is_light() -> None:
    program = f"import sys, pyeffect_torch; print({LAZY_MODULES!r} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"
