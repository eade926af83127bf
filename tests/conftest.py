"""What all tests share: a runtime, Hypothesis' profile, and the table of tests that may be skipped.

A skip hides a test, so each one is listed in `tests/skips.txt` with its reason. A run of the whole
suite whose skips and expected failures differ from that table fails, whatever else passed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import pyeffect_torch as et

SKIP_TABLE = Path(__file__).with_name("skips.txt")

# No deadline: the machine may be busy, and a test must not fail for that. Under CI every run draws
# the same examples; elsewhere they are new each time and a failure prints how to draw them again.
hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(params=["cpu", "reference"])
def runtime(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each runtime in turn, which is the current one inside the test."""
    with et.use(getattr(et, request.param)()) as made:
        yield made


def read_skip_table(text: str) -> set[str]:
    """Return the test names of a skip table: a line each, `name | reason`; `#` begins a comment.

    Raises:
        ValueError: a line has no reason, or a name stands twice.
    """
    names: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        name, _, reason = (part.strip() for part in line.partition(" | "))
        if not reason:
            raise ValueError(
                f"skips.txt line {number}: {name} has no reason; write `name | reason`"
            )
        if name in names:
            raise ValueError(f"skips.txt line {number}: {name} is listed twice; delete one")
        names.add(name)
    return names


def compare_skips(listed: set[str], seen: set[str]) -> list[str]:
    """Return a sentence for each difference between the table and what the run skipped."""
    return [
        *(f"skipped but not in tests/skips.txt: {name}" for name in sorted(seen - listed)),
        *(f"in tests/skips.txt but not skipped: {name}" for name in sorted(listed - seen)),
    ]


class SkipTable:
    """Collects what is skipped and compares it at the end of a run of the whole suite."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seen: set[str] = set()
        self.differences: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:  # an expected failure, too
            self.seen.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.seen.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if not finished or not self.is_whole_run():
            return
        self.differences = compare_skips(read_skip_table(SKIP_TABLE.read_text()), self.seen)
        if self.differences:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def is_whole_run(self) -> bool:
        """Say whether nothing narrowed the run: no path, no -k, -m, --lf, --deselect or -x."""
        options = self.config.option
        narrowed = (
            options.keyword,
            options.markexpr,
            options.deselect,
            options.ignore,
            options.ignore_glob,
            options.maxfail,
            options.collectonly,
            getattr(options, "lf", False),
            getattr(options, "stepwise", False),
        )
        source = pytest.Config.ArgsSource
        return not any(narrowed) and self.config.args_source is source.TESTPATHS

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.differences:
            terminalreporter.section("skips differ from the table", red=True)
            for line in self.differences:
                terminalreporter.line(line)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # with xdist the reports of all workers arrive here
        config.pluginmanager.register(SkipTable(config), "skip-table")
