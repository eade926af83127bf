"""`profile`: how long each kernel took, as a table and as a trace for Perfetto or Chrome."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from pyeffect_torch.api.explain import count, kernels_of, shortened, size, table
from pyeffect_torch.core.files import write_atomically
from pyeffect_torch.runtime import profiling
from pyeffect_torch.runtime.profiling import Timed


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel of one program, over all its runs in the block.

    Attributes:
        program, kernel: its number among the programs, and among the kernels of the program.
        family: the family of kernels. operations: what it does; several if it is a fused region.
        block: 0, or k + 1 in body k of a loop or branch, whose time is also part of the kernel
            that runs the body.
        lines: the user's lines, as `train.py:41`.
        calls: how often it ran. seconds: in all.
        flops, bytes: in all; see `Lowered.explain`.
    """

    program: int
    kernel: int
    family: str
    operations: tuple[str, ...]
    block: int
    lines: tuple[str, ...]
    calls: int
    seconds: float
    flops: int
    bytes: int


class Profile:
    """The times of a block; prints as a table with the slowest kernels first."""

    def __init__(self, collector: profiling.Collector) -> None:
        self._collector = collector
        self._programs: dict[bytes, tuple[int, list[dict[str, Any]]]] = {}

    @property
    def runs(self) -> int:
        """How many programs were run to their end."""
        return len(self._collector.runs)

    def rows(self) -> list[Row]:
        """Return one row for each kernel that ran, the slowest first."""
        totals: dict[tuple[int, int], tuple[int, int]] = {}
        kernels: dict[int, list[dict[str, Any]]] = {}
        for run in list(self._collector.runs):
            number, kernels[number] = self._program(run)
            for index, (_, spent, calls) in enumerate(run.records):
                before = totals.get((number, index), (0, 0))
                totals[number, index] = (before[0] + spent, before[1] + calls)
        found = [
            Row(
                number,
                index,
                (row := kernels[number][index])["kernel"],
                tuple(row["operations"]),
                row["block"],
                tuple(row["lines"]),
                calls,
                spent / 1e9,
                row["flops"] * calls,
                row["bytes"] * calls,
            )
            for (number, index), (spent, calls) in totals.items()
            if calls
        ]
        return sorted(found, key=lambda row: (-row.seconds, row.program, row.kernel))

    def _program(self, run: Timed) -> tuple[int, list[dict[str, Any]]]:
        """The number of a program, and its kernels; equal programs are one, with the first's lines.

        Two executables of one program may differ (optimised or not), so both make the key.
        """
        raw = profiling.all_kernels(run.executable.explain())
        key = run.program.digest + len(raw).to_bytes(8, "little")
        found = self._programs.get(key)
        if found is None:
            kernels = kernels_of(raw, run.program)
            found = self._programs[key] = (len(self._programs) + 1, kernels)
        return found

    def __str__(self) -> str:
        rows = self.rows()
        total = sum(row.seconds for row in rows if not row.block)
        lines = [f"{self.runs} runs, {total * 1e3:.3f} ms in kernels"]
        cells = [
            (
                f"{row.seconds * 1e3:.3f}",
                f"{row.seconds / total:.0%}" if total else "",
                f"{row.calls}",
                f"{row.program}.{row.kernel}" + (f" in body {row.block - 1}" if row.block else ""),
                shortened(row.operations),
                _rate(row.flops, row.seconds, count, "op/s"),
                _rate(row.bytes, row.seconds, size, "/s"),
                row.lines[0] if row.lines else "",
            )
            for row in rows
        ]
        head = ("ms", "share", "calls", "kernel", "operations", "", "", "line")
        return "\n".join([*lines, table(head, cells, right=(0, 1, 2, 5, 6))])

    def trace(self) -> dict[str, Any]:
        """Return the block as a trace: an object of the JSON format that Chrome and Perfetto read.

        Times are microseconds since the first kernel. A kernel that runs in the body of a loop is
        part of its loop, which stands in the trace as one event.
        """
        runs = [run for run in list(self._collector.runs) if any(r[2] for r in run.records)]
        zero = min((r[0] for run in runs for r in run.records if r[2]), default=0)
        events: list[dict[str, Any]] = []
        process = os.getpid()
        for run in runs:
            number, kernels = self._program(run)
            common = {"ph": "X", "pid": process, "tid": run.thread}
            shown = [
                (row, record)
                for row, record in zip(kernels, run.records, strict=True)
                if record[2] and not row["block"]
            ]
            first = min(record[0] for _, record in shown)
            last = max(record[0] + record[1] for _, record in shown)
            whole = {"name": f"program {number}", "cat": "run"}
            events.append({**common, **whole, **_span(first - zero, last - first)})
            for row, (start, spent, _) in shown:
                arguments = {name: row[name] for name in ("lines", "flops", "bytes", "operations")}
                name = shortened(row["operations"]) or row["kernel"]
                events.append(
                    {**common, "name": name, "cat": row["kernel"], "args": arguments}
                    | _span(start - zero, spent)
                )
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a file, whole or not at all; open it in Perfetto or chrome://tracing.

        Raises:
            IoError: it cannot be written.
        """
        write_atomically(path, [json.dumps(self.trace()).encode()])


def _span(start_ns: int, spent_ns: int) -> dict[str, float]:
    return {"ts": start_ns / 1e3, "dur": spent_ns / 1e3}


def _rate(amount: int, seconds: float, shown: Any, unit: str) -> str:
    return f"{shown(amount / seconds)}{unit}" if amount and seconds else ""


@contextlib.contextmanager
def profile() -> Generator[Profile, None, None]:
    """Time every kernel that runs inside the block (of this thread or asyncio task).

    Yields:
        A `Profile`: `print` it for a table of the slowest kernels with their lines, operations and
        bytes a second; `save(path)` writes a trace.

    Example:
        >>> with et.debug.profile() as p:
        ...     total = (et.ones((64, 64)) * 2.0).sum().item()
        >>> p.runs, total
        (1, 8192.0)
    """
    collector = profiling.Collector()
    token = profiling.enter(collector)
    try:
        yield Profile(collector)
    finally:
        profiling.leave(token)
