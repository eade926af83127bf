"""The documentation holds together: docstrings, links, programs in the text, lists of files."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyeffect_torch as et

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("changelog.d/*.md")])
SECONDS_MAX = 120
ADR_SECTIONS = ("Context.", "Decision.", "Alternatives.", "Consequences.", "Reverse it if")
ADR_LINES_MAX = 60
# Slots of a node: what they mean is in the class's own text.
SLOTS = frozenset(et.Array.__slots__)
# Values, which hold no text.
CONSTANTS = {"e", "inf", "nan", "newaxis", "pi"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def programs(text: str) -> str:
    """The runnable Python of a page: its ```python blocks, in one program. ```py is a fragment."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def anchor(heading: str) -> str:
    """How a heading is linked to: lower case, spaces as hyphens, punctuation dropped."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def undocumented(owner: Any, names: Any) -> list[str]:
    return [name for name in names if not (inspect.getdoc(getattr(owner, name)) or "").strip()]


def test_public_names_have_docstrings() -> None:
    assert len(et.__all__) > 100
    assert undocumented(et, set(et.__all__) - CONSTANTS) == []


def test_public_methods_of_array_have_docstrings() -> None:
    names = [name for name in dir(et.Array) if not name.startswith("_") and name not in SLOTS]
    assert len(names) > 20
    assert undocumented(et.Array, names) == []


@pytest.mark.parametrize(
    "module",
    [
        "debug",
        "dtypes",
        "errors",
        "linalg",
        "losses",
        "nn",
        "random",
        "safetensors",
        "testing",
        "tree",
    ],
)
def test_names_of_public_modules_have_docstrings(module: str) -> None:
    owner = getattr(et, module)
    names = getattr(owner, "__all__", None) or [
        name
        for name, value in vars(owner).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == owner.__name__
    ]
    named = [name for name in names if callable(getattr(owner, name))]
    assert named
    assert undocumented(owner, named) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken: list[str] = []
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, fragment = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists():
            broken.append(target)
        elif fragment:
            headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            if fragment not in {anchor(heading) for heading in headings}:
                broken.append(target)
    assert broken == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if programs(page.read_text(encoding="utf-8"))], ids=name_of
)
def test_programs_in_the_text_run(page: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", programs(page.read_text(encoding="utf-8"))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    linked = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", index)}
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages - linked == {"index.md"}


def test_every_benchmark_is_described() -> None:
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `(bench/\w+\.py)`", text, re.MULTILINE))
    assert described == {name_of(path) for path in (ROOT / "bench").glob("*.py")}


def test_every_kernel_family_is_described() -> None:
    table = (ROOT / "zig/cpu/kernel_table.zig").read_text()
    (body,) = re.findall(r"pub const Kernel = enum\(u16\) \{(.*?)\n\n", table, re.DOTALL)
    families = set(re.findall(r"^    (\w+),$", body, re.MULTILINE))
    text = (ROOT / "docs/kernels.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Families\n(.*?)^\*\*", text, re.DOTALL | re.MULTILINE)
    rows = re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert families
    assert described == families


def test_every_pass_is_described() -> None:
    text = (ROOT / "docs/adding-a-pass.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert described == {path.stem for path in (ROOT / "zig/pass").glob("*.zig")}


def test_every_error_is_described() -> None:
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    classes = {name for name, value in vars(et.errors).items() if inspect.isclass(value)}
    assert [name for name in sorted(classes) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs/adr").glob("*.md")), ids=name_of)
def test_decisions_are_one_page_of_five_parts(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(rf"# {page.name[:4]}: \S", text)
    places = [text.find(f"**{section}") for section in ADR_SECTIONS]
    assert -1 not in places
    assert places == sorted(places)
    assert len(text.splitlines()) <= ADR_LINES_MAX


def test_files_named_in_the_text_exist() -> None:
    """A path in backquotes that looks like a file of ours is one."""
    folders = (ROOT, ROOT / "pyeffect_torch", ROOT / "zig")
    names = {path.name for folder in folders[1:] for path in folder.rglob("*.*")}
    names |= {path.name for path in ROOT.iterdir()}
    missing: set[str] = set()
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
        for path in re.findall(r"`((?:\w[\w.-]*/)*\w+\.(?:py|zig|h|md|toml|txt))`", text):
            known = path in names or any((folder / path).exists() for folder in folders)
            if not known:
                missing.add(f"{name_of(page)}: {path}")
    # The pass that adding-a-pass.md writes.
    assert missing == {"docs/adding-a-pass.md: zig/pass/strength.zig"}
