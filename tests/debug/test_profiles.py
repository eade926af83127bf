"""`et.debug.profile`: a row for each kernel, with lines and costs, and a trace."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et


def work(x: Any) -> Any:
    return et.tanh(x @ x).sum()


def test_each_kernel_has_a_row_with_its_line_and_costs(runtime: Any) -> None:
    g = et.jit(work)
    x = et.compute(et.ones((64, 64)) * 0.01)
    with et.debug.profile() as p:
        for _ in range(3):
            g(x)
    assert p.runs == 3
    rows = {row.operations: row for row in p.rows()}
    product = rows["dot_general",]
    assert product.calls == 3
    assert product.flops == 3 * 2 * 64**3
    assert product.bytes == 3 * 2 * 4 * 64 * 64
    assert product.seconds > 0
    assert product.lines == (f"test_profiles.py:{work.__code__.co_firstlineno + 1}",)
    text = str(p)
    assert text.startswith("3 runs, ")
    assert "tanh" in text
    assert "op/s" in text


def test_only_what_runs_inside_the_block_is_timed(runtime: Any) -> None:
    x = et.compute(et.ones(8) * 2.0)
    (x + 1.0).numpy()
    with et.debug.profile() as outer:
        (x + 1.0).numpy()
        with et.debug.profile() as inner:
            (x * 3.0).numpy()
        (x + 1.0).numpy()
        thread = threading.Thread(target=lambda: (x - 1.0).numpy())
        thread.start()
        thread.join()
    (x + 1.0).numpy()
    assert (outer.runs, inner.runs) == (2, 1)


def test_values_are_the_same_as_without(runtime: Any) -> None:
    x = et.compute(et.linspace(0.1, 0.9, 64).reshape(8, 8))
    want = et.value_and_grad(work)(x)
    with et.debug.profile():
        got = et.value_and_grad(work)(x)
    for a, b in zip(et.tree.leaves(want), et.tree.leaves(got), strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


def test_a_failed_run_is_not_counted(runtime: Any) -> None:
    with et.debug.profile() as p, pytest.raises(et.errors.IndexOutOfBoundsError):
        et.take(et.ones(3), et.array([7])).numpy()
    assert p.runs == 0
    assert str(p).startswith("0 runs, 0.000 ms")
    assert p.trace()["traceEvents"] == []


def test_long_runs_and_donations_are_timed_too() -> None:
    def chain(x: Any) -> Any:
        for _ in range(6):
            x = et.tanh(x @ x)
        return x

    g = et.jit(chain, donate_argnums=0)
    with et.debug.profile() as p, et.cancel_scope(timeout=100.0):
        g(et.compute(et.ones((300, 300)) * 1e-3))
    products = [row for row in p.rows() if row.family == "dot"]
    assert len(products) == 6
    assert sum(row.calls for row in products) == 6


def test_the_trace_is_one_of_complete_events(runtime: Any, tmp_path: Path) -> None:
    x = et.compute(et.ones((16, 16)) * 0.5)
    with et.debug.profile() as p:
        for _ in range(2):
            et.compute(work(x))
    p.save(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())
    events = found["traceEvents"]
    runs = [event for event in events if event["cat"] == "run"]
    kernels = [event for event in events if event["cat"] != "run"]
    assert len(runs) == 2
    assert {event["ph"] for event in events} == {"X"}
    assert {event["tid"] for event in events} == {threading.get_ident()}
    assert min(event["ts"] for event in events) == 0
    for event in kernels:
        inside = [
            run
            for run in runs
            if run["ts"] <= event["ts"]
            and event["ts"] + event["dur"] <= run["ts"] + run["dur"] + 1e-3
        ]
        assert len(inside) == 1
        assert event["args"]["lines"]


def test_the_body_of_a_loop_is_counted_by_its_steps(runtime: Any) -> None:
    def loop(x: Any) -> Any:
        return et.scan(lambda c, t: (et.tanh(c) * t, None), x, et.ones((5, 16)))[0]

    g = et.jit(loop)
    x = et.compute(et.ones(16) * 0.5)
    with et.debug.profile() as p:
        g(x)
        g(x)
    body = [row for row in p.rows() if row.block]
    (whole,) = (row for row in p.rows() if row.family == "scan")
    assert {row.calls for row in body} == {10}
    assert whole.calls == 2
    assert whole.seconds >= sum(row.seconds for row in body)
    assert "in body 0" in str(p)
    names = [event["name"] for event in p.trace()["traceEvents"]]
    assert names.count("scan") == 2
    assert "tanh multiply" not in names
