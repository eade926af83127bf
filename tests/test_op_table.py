"""docs/ops.md is what runs now: float32, float64 and a tenth of the rest, another one each day.

The tenth is drawn by the day of the year; `PYEFFECT_TABLE_DAY=n` runs that of another day, and
`make table` everything.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from pyeffect_torch.core import dtypes
from pyeffect_torch.core.op import REGISTRY

ROOT = Path(__file__).parents[1]
_SPEC = importlib.util.spec_from_file_location("op_table", ROOT / "tools" / "op_table.py")
assert _SPEC is not None and _SPEC.loader is not None
op_table: Any = importlib.util.module_from_spec(_SPEC)
sys.modules["op_table"] = op_table
_SPEC.loader.exec_module(op_table)

TEXT = op_table.PAGE.read_text(encoding="utf-8")
TABLE = op_table.table_of(TEXT)
DAY = int(
    os.environ.get("PYEFFECT_TABLE_DAY") or datetime.datetime.now(datetime.UTC).timetuple().tm_yday
)
ALWAYS = (dtypes.float32, dtypes.float64)
DAYS = 10


def is_due(name: str, dtype: Any, day: int = DAY) -> bool:
    return zlib.crc32(f"{name} {dtype.name}".encode()) % DAYS == day % DAYS


def test_the_page_lists_every_op_and_dtype() -> None:
    wanted = {(op.name, dtype.name) for op, dtype in op_table.rows_wanted()}
    assert set(TABLE) == wanted, "run `make table`"
    assert op_table.page(TABLE) == TEXT, "run `make table`"


@pytest.mark.parametrize("op", op_table.ops(), ids=lambda op: op.name)
def test_what_runs_is_what_the_page_says(op: Any) -> None:
    for dtype in dtypes.ALL:
        if dtype in ALWAYS or is_due(op.name, dtype):
            cells = op_table.run(op, dtype)
            assert cells == TABLE[op.name, dtype.name], (
                f"{dtype.name}: PYEFFECT_TABLE_DAY={DAY} draws this; run `make table`"
            )


def test_every_cell_is_yes_or_has_a_reason_that_holds() -> None:
    for (name, dtype), cells in TABLE.items():
        assert set(cells) <= {op_table.YES, *op_table.REASONS}
        kind = dtypes.canonical(dtype)
        assert ("int" in cells) <= (kind not in dtypes.FLOATS), (name, dtype)
        assert ("none" in cells) <= (kind in dtypes.FLOATS), (name, dtype)
        assert cells.count("dtype") in (0, len(cells)), (name, dtype)
        assert all(cell in (op_table.YES, "dtype") for cell in cells[:3]), (name, dtype)


def test_every_row_is_run_within_ten_days() -> None:
    for name, dtype in TABLE:
        kind = dtypes.canonical(dtype)
        assert any(is_due(name, kind, day) for day in range(DAYS))


def test_a_wrong_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(op_table.Mismatch, match="takes int8"):
        op = REGISTRY["add"]
        assert op.domain is not None
        narrow = type(op.domain)(ALWAYS, op.domain.samples, op.domain.roundings)
        op_table.run(_with(op, domain=narrow), dtypes.int8)
    exp = REGISTRY["exp"]
    reference: Any = exp.reference
    wrong = _with(exp, reference=lambda attributes, x: reference(attributes, x) * 1.001)
    monkeypatch.setitem(REGISTRY, "exp", wrong)
    with pytest.raises(op_table.Mismatch, match="exp"):
        op_table.run(wrong, dtypes.float32)


def _with(op: Any, **fields: Any) -> Any:
    given = {name: getattr(op, name) for name in type(op).__slots__}
    return type(op)(**{**given, **fields})


def test_samples_differ_in_params_and_have_elements() -> None:
    chosen = op_table.chosen(REGISTRY["integer_power"], dtypes.float32, 0)
    assert len({sample.params for sample in chosen}) > 1
    for op in op_table.ops():
        drawn = op_table.chosen(op, op.domain.dtypes[-1], 0)
        assert len(drawn) == op_table.SAMPLES
        assert not drawn[0].inputs or any(x.size for s in drawn for x in s.inputs), op.name
