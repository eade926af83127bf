"""Write `pyeffect_torch/runtime/native/declarations.py` from the C header.

cffi compiles the declarations to a table once, so that loading the library parses no C: that would
cost more than the rest of the import.

Usage: python tools/generate_declarations.py [OUTPUT]
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "include" / "pyeffect_torch.h"
OUTPUT = ROOT / "pyeffect_torch" / "runtime" / "native" / "declarations.py"


def c_declarations(header: str) -> str:
    """The header without comments, preprocessor lines and C++ guards: what cffi reads."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header, flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return re.sub(r"\bPET_API\b|_Static_assert\([^;]*;", "", "\n".join(lines))


def generate(header: str) -> str:
    """The source of the declarations module."""
    ffi = cffi.FFI()
    ffi.cdef(c_declarations(header))
    ffi.set_source("declarations", None)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "declarations.py"
        ffi.emit_python_code(str(target))
        body = target.read_text()
    first, rest = body.split("\n", 1)
    assert first.startswith("# auto-generated")
    return (
        '"""The C ABI as cffi reads it: made of the header by a tool."""\n'
        "\n# pyright: basic\n" + rest
    )


def main() -> None:
    """Write the module."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    output.write_text(generate(HEADER.read_text()))


if __name__ == "__main__":
    main()
