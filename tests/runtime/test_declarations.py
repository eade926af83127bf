"""The cffi declarations are those of the C header."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_declarations_are_fresh() -> None:
    spec = importlib.util.spec_from_file_location(
        "generate_declarations", ROOT / "tools" / "generate_declarations.py"
    )
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.OUTPUT.read_text() == tool.generate(tool.HEADER.read_text())
