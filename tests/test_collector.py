"""The cycle collector is paused while a function is traced, and comes back as it was."""

from __future__ import annotations

import gc

import pytest

import pyeffect_torch as et
from pyeffect_torch.core.collector import collector_paused


def test_it_is_paused_inside_a_trace_only() -> None:
    seen: list[bool] = []

    def f(x: et.Array) -> et.Array:
        seen.append(gc.isenabled())
        return et.checkpoint(lambda y: y * 2.0)(x)

    assert gc.isenabled()
    et.jit(f)(1.0)
    assert seen == [False]
    assert gc.isenabled()


def test_it_comes_back_after_an_error() -> None:
    def f(x: et.Array) -> et.Array:
        raise KeyError(x.dtype.name)

    with pytest.raises(KeyError, match="float32"):
        et.jit(f)(1.0)
    assert gc.isenabled()


def test_it_stays_off_for_someone_who_switched_it_off() -> None:
    gc.disable()
    try:
        with collector_paused(), collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
