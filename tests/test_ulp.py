"""The bounds of docs/ulp.md hold and its numbers are those measured now (`tools/ulp_table.py`)."""

from __future__ import annotations

import dataclasses
import importlib.util
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("ulp_table", ROOT / "tools" / "ulp_table.py")
assert _SPEC is not None and _SPEC.loader is not None
ulp_table: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["ulp_table"] = ulp_table
_SPEC.loader.exec_module(ulp_table)

# What semantics promise to 2 ulp, in their words.
WITHIN_TWO = (
    "exp exp2 expm1 log log1p log2 log10 sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh "
    "arccosh arctanh erf erfc sigmoid rsqrt cbrt power arctan2"
)


def test_the_promised_bounds_are_those_of_the_table() -> None:
    bounds = {case.name: case.bound for case in ulp_table.CASES}
    assert {bounds[name] for name in WITHIN_TWO.split()} == {2.0}
    assert bounds["sqrt"] == bounds["divide"] == 0.5
    text = (ROOT / "docs/ulp.md").read_text(encoding="utf-8")
    for name, bound in bounds.items():
        assert f"| `{name}` | {bound:g} |" in text


def test_measured_errors_are_within_the_bounds_and_those_of_the_page() -> None:
    if platform.machine() in ("x86_64", "AMD64"):
        tables = ulp_table.measure_all()
        assert et.cpu().features["isa"].removesuffix("b") in tables
    else:
        tables = {et.cpu().features["isa"]: ulp_table.measure()}
    text = (ROOT / "docs/ulp.md").read_text(encoding="utf-8")
    assert ulp_table.problems(text, tables) == []


def test_errors_are_counted_in_last_places() -> None:
    one = np.float32(1)
    after = np.nextafter(one, np.float32(2))
    largest = np.finfo(np.float32).max
    got = np.array([one, after, 0.0, np.inf, np.inf, np.nan, 1.0, -largest], np.float32)
    want = np.array([1.0, 1.0, 2.0**-149, np.inf, float(largest), np.nan, np.nan, 4e38])
    errors = ulp_table.ulp_errors(got, want, want)
    np.testing.assert_array_equal(errors, [0, 1, 1, 0, 1, 0, np.inf, np.inf])


def test_points_meet_every_exponent_and_both_signs() -> None:
    bits = ulp_table.points(1 << 16).view(np.uint32)
    assert len(np.unique(bits >> 23)) == 512


def test_a_wrong_page_is_found() -> None:
    text = (ROOT / "docs/ulp.md").read_text(encoding="utf-8")
    rows = ulp_table.rows_of(text)
    table = {name: (row["v2"], [0.0]) for name, row in rows.items()}
    assert ulp_table.problems(text, {"v2": table}) == []
    worse = {**table, "exp": (2.5, [1.0])}
    found = ulp_table.problems(text, {"v2": worse})
    assert len(found) == 2 and "promised 2" in found[0] and "docs/ulp.md says" in found[1]
    assert "lists" in ulp_table.problems(text.replace("| `exp` ", "| `oops` "), {})[0]


@pytest.mark.parametrize("name", ["exp", "divide"])
def test_the_sweep_notices_a_wrong_function(name: str) -> None:
    case = next(case for case in ulp_table.CASES if case.name == name)
    wrong = dataclasses.replace(
        case, exact=lambda *xs: case.exact(*xs) * (1 + 2.0**-20), count=1 << 12
    )
    assert ulp_table.worst(dataclasses.replace(case, count=1 << 12))[0] <= case.bound
    assert ulp_table.worst(wrong)[0] > case.bound
