"""`et.scope`: what is deleted at the end of a block, and what is left alone."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import pyeffect_torch as et


def live() -> int:
    gc.collect()
    return et.cpu().memory_stats()["buffers_live"]


def test_what_is_not_kept_is_deleted() -> None:
    before_block = et.array([1.0, 2.0])
    lazy_before = before_block + 1
    count = live()
    with et.scope() as s:
        a = et.array([3.0, 4.0])
        b = et.compute(a * before_block)
        c = et.jit(lambda x: x + 1)(b)
        lazy_before.numpy()
        kept = s.keep({"sum": et.sum(c), "lazy": lazy_before * a})
    assert [x.state for x in (a, b, c)] == ["deleted"] * 3
    assert kept["sum"].item() == 13.0
    assert kept["lazy"].tolist() == [6.0, 12.0]
    assert (before_block.tolist(), lazy_before.tolist()) == ([1.0, 2.0], [2.0, 3.0])
    assert live() == count + 3  # `lazy_before` and the two that were kept
    with pytest.raises(et.errors.InvalidHandleError, match=r"was deleted at .*test_scope\.py"):
        a + 1


def test_views_of_numpy_outlive_the_block() -> None:
    with et.scope():
        value = (et.ones(1000) * 2).numpy()
    et.zeros(1000).numpy()
    assert (value == 2).all()


def test_on_an_exception_everything_is_deleted() -> None:
    with pytest.raises(ZeroDivisionError), et.scope() as s:
        kept = s.keep(et.array([1.0]) + 1)
        raise ZeroDivisionError
    assert kept.is_deleted()


def test_scopes_nest() -> None:
    with et.scope() as outer:
        with et.scope() as inner:
            a, b = inner.keep((et.ones(2) + 1, et.ones(2) + 2))
            gone = et.array([5.0])
        assert gone.is_deleted() and a.tolist() == [2.0, 2.0]
        outer.keep(a)
    assert a.tolist() == [2.0, 2.0]
    assert b.is_deleted()


def test_functions_traced_inside_stay_usable() -> None:
    table = np.arange(3, dtype=np.float32)
    f = et.jit(lambda x: x * et.array(table))
    with et.scope():
        f(et.ones(3)).numpy()
    assert f(et.ones(3)).tolist() == [0.0, 1.0, 2.0]
    assert et.grad(lambda x: f(x).sum())(et.ones(3)).tolist() == [0.0, 1.0, 2.0]


def test_other_threads_are_left_alone() -> None:
    made: list[et.Array] = []
    with et.scope():
        thread = threading.Thread(target=lambda: made.append(et.array([1.0])))
        thread.start()
        thread.join()
    assert made[0].tolist() == [1.0]


def test_gradients_inside_a_scope() -> None:
    with et.scope() as s:
        value, slope = s.keep(et.value_and_grad(lambda x: et.sum(x * x))(et.array([1.0, 3.0])))
    assert (value.item(), slope.tolist()) == (10.0, [2.0, 6.0])


def test_misuse() -> None:
    s = et.scope()
    with pytest.raises(et.errors.ArgumentError, match="outside its block"):
        s.keep(1.0)
    with s, pytest.raises(et.errors.ArgumentError, match="entered twice"):
        s.__enter__()
    with s:  # one after the other is fine
        pass
    with et.scope() as s, pytest.raises(et.errors.TraceError):
        et.jit(s.keep)(et.ones(2))
