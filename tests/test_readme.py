"""The README is true: its program runs and prints what it says, and what is missing is missing."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pyeffect_torch as et

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SECONDS_MAX = 120
LINES_MAX = 24
LEARNED_WITHIN = 0.08


def program() -> str:
    """The one Python program of the README."""
    (text,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return text


def is_there(name: str) -> bool:
    """Say whether `et.<name>` can be had; a lazy module may be named and not exist."""
    try:
        return hasattr(et, name)
    except ImportError:
        return False


def test_the_example_prints_what_the_text_says() -> None:
    (promised,) = re.findall(r"It prints `([^`]*)`", TEXT)
    done = subprocess.run(
        [sys.executable, "-c", program()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    number = r"-?\d+\.\d+"
    printed, shown = (re.findall(number, text) for text in (done.stdout, promised))
    words = [re.sub(number, "0", text).split() for text in (done.stdout, promised)]
    assert words[0] == words[1]
    loss, *slopes = map(float, printed)
    assert loss == float(shown[0])
    # What is learned is near the truth; the last digits depend on the vector width.
    for at, slope, said in zip((0.0, 1.0, 2.0), slopes, shown[1:], strict=True):
        assert abs(slope - math.cos(at)) < LEARNED_WITHIN
        assert abs(float(said) - math.cos(at)) < LEARNED_WITHIN


def test_the_example_is_short() -> None:
    assert len([line for line in program().splitlines() if line.strip()]) <= LINES_MAX


def test_what_is_said_to_be_missing_is_missing() -> None:
    (missing,) = re.findall(r"^Not there yet: (.*?)\.\s", TEXT, re.DOTALL | re.MULTILINE)
    names = re.findall(r"`(\w+)`", missing)
    assert names
    assert [name for name in names if is_there(name)] == [], "the README can promise more now"


def test_what_is_said_to_work_is_there() -> None:
    (works,) = re.findall(r"^Alpha\. (.*?)\n\n", TEXT, re.DOTALL | re.MULTILINE)
    names = " ".join(re.findall(r"`([^`]*)`", works)).split()
    assert len(names) > 5
    assert [name for name in names if not is_there(name)] == []


def test_the_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    named = set(re.findall(r"\bmake ([a-z-]+)", TEXT))
    assert {"demo", "test"} <= named
    assert named <= set(targets)
