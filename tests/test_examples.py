"""The examples run in processes of their own and reach what they promise (exit status 0)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_SECONDS = 180  # of a busy machine; each needs a few


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example; its output is text."""
    command = [sys.executable, f"examples/{name}", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )


def test_xor_learns() -> None:
    done = run("xor.py")
    assert done.returncode == 0, done.stdout + done.stderr
    answers = re.findall(r"(\d) xor (\d) = ([\d.]+)", done.stdout)
    assert [(a, b, round(float(answer))) for a, b, answer in answers] == [
        ("0", "0", 0),
        ("0", "1", 1),
        ("1", "0", 1),
        ("1", "1", 0),
    ]


def test_xor_says_when_it_has_not_learned() -> None:
    done = run("xor.py", "--steps", "3")
    assert done.returncode == 1, done.stdout + done.stderr


def test_digits_are_read() -> None:
    done = run("digits.py")
    assert done.returncode == 0, done.stdout + done.stderr
    (accuracy,) = re.findall(r"([\d.]+)% of 450 held-out digits", done.stdout)
    assert float(accuracy) >= 97.0


def test_micro_draws_the_boundary() -> None:
    done = run("micro.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "f'(2) = 10.0" in done.stdout
    assert "f''(2) = 12.0" in done.stdout
    rows = [line for line in done.stdout.splitlines() if re.fullmatch(r"[#.]{48}", line)]
    assert len(rows) == 16
    assert len(set(rows)) > 4  # a boundary, not one colour
