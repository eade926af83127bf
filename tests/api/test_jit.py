"""`jit`: signatures, statics, caches, donation, threads, captures, and what it explains."""

from __future__ import annotations

import enum
import logging
import threading
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et


def test_one_trace_per_signature() -> None:
    g = et.jit(lambda x: x * 2)
    g(et.array([1.0]))
    g(et.array([2.0]))
    assert (g.stats.traces, g.stats.hits) == (1, 1)
    g(et.array([1.0, 2.0]))
    assert g.stats.traces == 2
    assert g.explain_retrace() == "x: shape [2] instead of [1]"
    g(et.array([1, 2]))
    assert g.explain_retrace() == "x: dtype int64 instead of float32"
    assert g.stats.programs == 3
    g.clear()
    assert (g.stats.programs, g.stats.traces) == (0, 3)


def test_static_arguments_are_part_of_the_signature() -> None:
    g = et.jit(lambda x, n: x * n, static_argnums=1)
    assert float(g(2.0, 3)) == 6.0
    assert float(g(2.0, 4)) == 8.0
    assert g.stats.traces == 2
    assert float(g(2.0, True)) == 2.0  # True is not 1 here
    named = et.jit(lambda x, *, power: x**power, static_argnames="power")
    assert float(named(3.0, power=2)) == 9.0
    with pytest.raises(et.errors.ArgumentError, match="static argument 1 of type list"):
        g(2.0, [3])


def test_the_cache_drops_the_oldest_signature(caplog: pytest.LogCaptureFixture) -> None:
    g = et.jit(lambda x: x + 1, cache_capacity=2)
    with caplog.at_level(logging.WARNING, logger="pyeffect_torch.jit"):
        for n in (1, 2, 3):
            g(et.zeros(n))
    assert (g.stats.programs, g.stats.evictions) == (2, 1)
    assert "more than 2 signatures" in caplog.text


def test_a_failed_trace_is_counted_and_not_cached() -> None:
    attempts: list[int] = []

    def f(x: Any) -> Any:
        attempts.append(1)
        return x + et.zeros(3) if len(attempts) > 1 else x + et.zeros(5)

    g = et.jit(f)
    with pytest.raises(et.errors.ShapeError):
        g(et.zeros(3))
    assert g(et.zeros(3)).shape == (3,)
    assert g.stats.traces == 2
    assert g.stats.programs == 1


def test_concurrent_first_calls_trace_once() -> None:
    gate = threading.Barrier(8)

    def slow(x: Any) -> Any:
        for _ in range(50):
            x = et.sin(x)
        return x

    g = et.jit(slow)
    values: list[float] = []

    def work() -> None:
        gate.wait()
        values.append(float(g(0.5)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert g.stats.traces == 1
    assert len(set(values)) == 1


def test_a_function_that_calls_its_own_signature_is_refused() -> None:
    holder: list[Any] = []
    g = et.jit(lambda x: holder[0](x) + 1)
    holder.append(g)
    with pytest.raises(et.errors.TraceError, match="calls itself"):
        g(1.0)


def test_captures_are_read_when_traced() -> None:
    scale = et.compute(et.array([2.0, 3.0]) * 1.0)
    g = et.jit(lambda x: x * scale)
    assert g(et.array([1.0, 1.0])).tolist() == [2.0, 3.0]
    assert g(et.array([2.0, 2.0])).tolist() == [4.0, 6.0]


def test_trees_go_in_and_come_out() -> None:
    g = et.jit(lambda t, *, s: {"sum": t["a"] + t["b"][0] * s, "none": None, "pair": (t["a"], s)})
    out = g({"a": et.array([1.0]), "b": [et.array([2.0])]}, s=et.array([3.0]))
    assert out["sum"].tolist() == [7.0]
    assert out["none"] is None
    assert out["pair"][1].tolist() == [3.0]
    again = g({"a": np.float32([1.0]), "b": [et.array([2.0])]}, s=et.array([3.0]))
    assert again["sum"].tolist() == [7.0]
    assert g.stats.traces == 1


def test_the_hot_path_sees_every_change_of_the_call() -> None:
    g = et.jit(lambda t: t["x"] + 1)
    one, two = et.compute((et.zeros(2) * 1.0, et.zeros(3) * 1.0))
    for _ in range(3):
        assert g({"x": one}).shape == (2,)
    assert g({"x": two}).shape == (3,)
    with pytest.raises(KeyError):
        g({"y": one})
    with pytest.raises(et.errors.ArgumentError):
        g({"x": "text"})
    assert g({"x": np.zeros(2, np.float32)}).tolist() == [1.0, 1.0]
    lazy = one * 2.0
    assert g({"x": lazy}).tolist() == [1.0, 1.0]
    assert float(et.grad(lambda v: g({"x": v}).sum())(one)[0]) == 1.0


def test_a_donated_argument_is_gone_after_success_only() -> None:
    g = et.jit(lambda x, i: et.take(x, i), donate_argnums=0)
    x = et.compute(et.array([1.0, 2.0]) * 1.0)
    with pytest.raises(IndexError, match="index 5 is out of bounds"):
        g(x, et.array([5]))
    assert x.tolist() == [1.0, 2.0]
    assert g(x, et.array([1])).tolist() == [2.0]
    assert x.is_deleted()


def test_donating_one_array_twice_is_refused() -> None:
    g = et.jit(lambda a, b: a + b, donate_argnums=(0, 1))
    x = et.compute(et.array([1.0]) * 1.0)
    with pytest.raises(et.errors.ArgumentError, match="donated twice"):
        g(x, x)
    assert x.tolist() == [1.0]


def test_donation_with_static_arguments_before_it() -> None:
    g = et.jit(lambda n, x, y: x * n + y, static_argnums=0, donate_argnums=1)
    x, y = et.compute((et.array([1.0]) * 1.0, et.array([2.0]) * 1.0))
    assert g(3, x, y).tolist() == [5.0]
    assert (x.is_deleted(), y.is_deleted()) == (True, False)


def test_lower_prints_the_graph_with_lines() -> None:
    text = str(et.jit(lambda x: et.tanh(x) * 2.0).lower(et.array([1.0])).ir())
    assert "tanh(" in text
    assert "test_jit.py:" in text


def test_donating_an_argument_that_is_not_there_is_refused() -> None:
    x, y = et.ones(2), et.ones(2)
    with pytest.raises(et.errors.ArgumentError, match=r"donate_argnums.* 3 is out of range"):
        et.jit(lambda a, b: a + b, donate_argnums=3)(x, y)
    with pytest.raises(et.errors.ArgumentError, match=r"donate_argnums.* 0 is out of range"):
        et.jit(lambda: et.ones(1), donate_argnums=0)()
    assert not x.is_deleted()


def test_a_kind_of_int_is_an_int() -> None:
    class Level(enum.IntEnum):
        HIGH = 3

    assert et.jit(lambda level: level)(Level.HIGH).dtype == np.int64


def test_the_least_recently_used_signature_is_dropped() -> None:
    g = et.jit(lambda x: x + 1, cache_capacity=2)
    one, two, three = et.zeros(1), et.zeros(2), et.zeros(3)
    g(one)
    g(two)
    for _ in range(3):
        g(one)  # by the hot path from the second call on
    g(three)
    assert g.stats.traces == 3
    g(one)
    assert g.stats.traces == 3
    g(two)
    assert g.stats.traces == 4
