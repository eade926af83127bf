"""The C example: a saved program runs without Python and gives the same numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyeffect_torch.runtime.native.loader import PATH

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "c"


def run(*command: str | Path) -> str:
    """Run a command, which must succeed, and return what it prints."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_saved_program_runs_from_c(tmp_path: Path) -> None:
    program, binary = tmp_path / "model.pet", tmp_path / "run_program"
    printed = run(sys.executable, EXAMPLE / "freeze_model.py", program)
    compiler = (sys.executable, "-m", "ziglang", "cc", "-Wall", "-Wextra", "-Werror")
    source = EXAMPLE / "run_program.c"
    run(*compiler, f"-I{ROOT / 'include'}", source, PATH, f"-Wl,-rpath,{PATH.parent}", "-o", binary)
    got = run(binary, program, "0.1", "0.2", "0.3", "0.4")
    assert got == printed

    damaged = tmp_path / "damaged.pet"
    blob = bytearray(program.read_bytes())
    blob[100] ^= 1
    damaged.write_bytes(blob)
    done = subprocess.run(
        [str(binary), str(damaged), "1"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.startswith("compile: status 4: section header, byte 96")
