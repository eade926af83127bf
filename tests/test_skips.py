from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("skip_table", HERE / "conftest.py")
assert SPEC is not None and SPEC.loader is not None
TABLE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(TABLE)


def run_suite(folder: Path, table: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a suite of one passing, one skipped and one failing-as-expected test in `folder`."""
    tests = folder / "tests"
    tests.mkdir()
    shutil.copy(HERE / "conftest.py", tests)
    (tests / "skips.txt").write_text(table)
    (tests / "test_three.py").write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "@pytest.mark.skip(reason='here')\n"
        "def test_skipped(): pass\n"
        "@pytest.mark.xfail(strict=True)\n"
        "def test_fails(): assert False\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


FULL_TABLE = """
tests/test_three.py::test_skipped | a reason  # and a comment
tests/test_three.py::test_fails | another
"""


def test_equal_table_passes_with_workers(tmp_path: Path) -> None:
    result = run_suite(tmp_path, FULL_TABLE, "-n", "2")
    assert result.returncode == 0, result.stdout


def test_both_differences_fail_the_run(tmp_path: Path) -> None:
    table = "tests/test_three.py::test_fails | x\ntests/test_three.py::test_passes | gone\n"
    result = run_suite(tmp_path, table)
    assert result.returncode == 1
    assert "skipped but not in tests/skips.txt: tests/test_three.py::test_skipped" in result.stdout
    assert "in tests/skips.txt but not skipped: tests/test_three.py::test_passes" in result.stdout


def test_narrowed_run_is_not_compared(tmp_path: Path) -> None:
    result = run_suite(tmp_path, "", "tests/test_three.py")
    assert result.returncode == 0, result.stdout


def test_table_is_read_without_comments_and_blank_lines() -> None:
    assert TABLE.read_skip_table("# a\n\na::b | x\na::c[1-2] | y # z\n") == {"a::b", "a::c[1-2]"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a::b", "skips.txt line 1: a::b has no reason"),
        ("a::b |", "skips.txt line 1: a::b | has no reason"),
        ("a::b | x\na::b | y", "skips.txt line 2: a::b is listed twice"),
    ],
)
def test_malformed_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        TABLE.read_skip_table(text)
