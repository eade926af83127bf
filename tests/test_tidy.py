"""Lints the repository itself: what neither ruff nor `zig fmt` looks at."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PYTHON_LINES_MAX = 400
ZIG_LINES_MAX = 600
ZIG_FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
SUPPRESSIONS_MAX = 20
FILE_BYTES_MAX = 512 * 1024

# Split so that this file does not contain what it forbids.
UNFINISHED = re.compile("TO" + r"DO\b|FIX" + r"ME\b|XX" + r"X\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|farm)/")
REGISTRIES = re.compile("py" + r"pi\.org|python" + r"hosted|npm" + r"js\.(?:org|com)")
ZIG_BANNED = re.compile(r"\banyerror\b|\bcatch unreachable\b|\busingnamespace\b")
SUPPRESSION = re.compile(r"#\s*(?:noqa|(?:type|pyright|basedpyright):\s*ignore)(.*)$")
# Words must follow the codes, as in `[attr-defined]  cffi has no types`.
CODES = r":?\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|\[[\w, -]+\]"
REASON = re.compile(rf"^(?>(?:{CODES})?)\s*[#-]?\s*[A-Za-z]")
ZIG_FUNCTION = re.compile(
    r"^( *)(?:pub |export |inline |noinline |extern (?:\"c\" )?)*fn ([a-z]\w*)\b(?!.*;$)"
)


def tracked(*suffixes: str) -> list[Path]:
    """Return the repository's files, new ones included, that end so."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths = [ROOT / name for name in listing.split("\0") if name]
    return sorted(p for p in paths if p.is_file() and (not suffixes or p.suffix in suffixes))


def lines_of(*suffixes: str) -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the text of each line of the files that end so."""
    for path in tracked(*suffixes):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            yield f"{path.relative_to(ROOT)}:{number}", line


def zig_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the name and the length in lines of each function of a formatted Zig file.

    A function that returns a type (its name begins with a capital) is a container, not code.
    """
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if match := ZIG_FUNCTION.match(line):
            closing = match.group(1) + "}"
            for end in range(start, len(lines)):
                if lines[end] == closing or (end == start and lines[end].endswith("}")):
                    yield match.group(2), end - start + 1
                    break


@pytest.mark.parametrize(
    ("folder", "suffix", "limit"),
    [("pyeffect_torch", ".py", PYTHON_LINES_MAX), ("zig", ".zig", ZIG_LINES_MAX)],
)
def test_files_are_short(folder: str, suffix: str, limit: int) -> None:
    files = [p for p in tracked(suffix) if p.is_relative_to(ROOT / folder)]
    assert files
    long = {
        str(p.relative_to(ROOT)): count
        for p in files
        if (count := len(p.read_text(encoding="utf-8").splitlines())) > limit
    }
    assert long == {}, f"a file of more than {limit} lines is two files"


def test_zig_functions_are_short() -> None:
    seen = 0
    long = {}
    for path in tracked(".zig"):
        for name, count in zig_functions(path.read_text(encoding="utf-8")):
            seen += 1
            if count > ZIG_FUNCTION_LINES_MAX:
                long[f"{path.relative_to(ROOT)}: {name}"] = count
    assert seen > 0
    assert long == {}, f"a function of more than {ZIG_FUNCTION_LINES_MAX} lines is several"


def test_function_lengths_are_counted() -> None:
    text = """pub fn a() void {
    x();
}
fn b(
    x: u8,
) u8 {
    return x;
}
fn c() void {}
fn Generic(comptime T: type) type {
    return struct { x: T };
}
"""
    assert list(zig_functions(text)) == [("a", 3), ("b", 5), ("c", 1)]


def test_zig_lines_fit() -> None:
    assert [at for at, line in lines_of(".zig") if len(line) > COLUMNS_MAX] == []


def test_zig_does_without_what_hides_errors() -> None:
    assert [at for at, line in lines_of(".zig") if ZIG_BANNED.search(line.split("//")[0])] == []


def test_every_zig_test_is_collected() -> None:
    collected = set(re.findall(r'@import\("(.+?)"\)', (ROOT / "zig/tests.zig").read_text()))
    with_tests = {
        path.relative_to(ROOT / "zig").as_posix()
        for path in tracked(".zig")
        if path.name != "tests.zig" and re.search(r"^test\b", path.read_text(), re.MULTILINE)
    }
    assert collected == with_tests, "list each file with tests in zig/tests.zig"


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (UNFINISHED, "a promise instead of code"),
        (MACHINE_PATHS, "a path of one machine"),
        (REGISTRIES, "the host of a package registry"),
    ],
    ids=["unfinished", "paths", "registries"],
)
def test_text_holds_nothing_forbidden(pattern: re.Pattern[str], what: str) -> None:
    suffixes = (".py", ".zig", ".md", ".toml", ".c", ".h", ".m", ".txt", ".yml", ".yaml", ".json")
    found = [
        at
        for at, line in lines_of(*suffixes)
        if not at.startswith("tests/test_tidy.py") and pattern.search(line)
    ]
    assert found == [], what


def test_suppressions_are_few_and_give_a_reason() -> None:
    found = {
        at: match.group(1)
        for at, line in lines_of(".py")
        if not at.startswith("tests/test_tidy.py") and (match := SUPPRESSION.search(line))
    }
    unexplained = [at for at, rest in found.items() if not REASON.match(rest)]
    assert unexplained == [], "write why after the code: `# noqa: B008  the default is immutable`"
    assert len(found) <= SUPPRESSIONS_MAX, sorted(found)


@pytest.mark.parametrize(
    ("comment", "explained"),
    [
        ("# noqa", False),
        ("# noqa: B008", False),
        ("# noqa: B008, E501", False),
        ("# noqa: B008  the default is immutable", True),
        ("# noqa: B008 - the default is immutable", True),
        ("# pyright: ignore[reportUnknownMemberType]", False),
        ("# pyright: ignore[reportUnknownMemberType]  cffi has no types", True),
        ("# type: ignore[attr-defined]  # cffi has no types", True),
    ],
)
def test_reasons_are_recognised(comment: str, explained: bool) -> None:
    match = SUPPRESSION.search("x = 1  " + comment)
    assert match is not None
    assert (REASON.match(match.group(1)) is not None) == explained


def test_files_are_small() -> None:
    assert [str(p) for p in tracked() if p.stat().st_size > FILE_BYTES_MAX] == []
