"""The rules of random numbers and of compiled functions, one test each, named after the rule."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.errors import (
    ArgumentError,
    InvalidHandleError,
    TraceError,
)


@pytest.fixture(params=["cpu", "reference"], autouse=True)
def on_each_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with et.use(getattr(et, request.param)()):
        yield


def same(got: Any, values: Any) -> None:
    np.testing.assert_array_equal(got.numpy(), values)


# --- random numbers


def test_keys_are_uint32_values_of_which_equal_ones_draw_equal_numbers() -> None:
    key = et.random.key(3)
    assert (key.shape, key.dtype.name) == ((2,), "uint32")
    copied = et.array(key.numpy())
    same(et.random.bits(key, (5,)), et.random.bits(copied, (5,)).numpy())
    first, second = et.random.split(key)
    assert not np.array_equal(first.numpy(), second.numpy())


def test_a_draw_outside_a_trace_takes_its_key_when_it_is_built() -> None:
    et.seed(1)
    x = et.randn((3,))
    y = x + 0.0
    same(y, x.numpy())  # reading twice, or by another way, gives one value
    et.seed(1)
    same(et.randn((3,)), x.numpy())
    assert not np.array_equal(et.randn((3,)).numpy(), x.numpy())


def test_inside_a_compiled_function_each_call_draws_fresh_values() -> None:
    f = et.jit(lambda: et.rand((4,)))
    first, second = f().numpy(), f().numpy()
    assert not np.array_equal(first, second)


def test_one_node_is_one_draw_shared_by_every_use() -> None:
    def f() -> Any:
        noise = et.randn((4,))
        return noise, noise * 2, et.randn((4,))

    a, b, other = et.jit(f)()
    same(b, a.numpy() * 2)
    assert not np.array_equal(a.numpy(), other.numpy())


def test_checkpoint_recomputes_the_same_draw() -> None:
    def f(x: Any) -> Any:
        return et.sum(x * et.randn((4,)) ** 2)

    def both(x: Any) -> Any:
        return et.value_and_grad(et.checkpoint(f))(x)

    value, slope = et.jit(both)(et.ones((4,)))
    np.testing.assert_allclose(float(value), slope.numpy().sum(), rtol=1e-6)


def test_under_vmap_each_row_draws_its_own() -> None:
    rows = et.jit(lambda x: et.vmap(lambda x: x + et.randn(()))(x))(et.zeros((3,))).numpy()
    assert len(set(rows.tolist())) == 3


def test_in_scan_each_step_draws_its_own() -> None:
    def f(x: Any) -> Any:
        return et.scan(lambda c, _: (c, et.randn(())), x, None, length=4)[1]

    steps = et.jit(f)(et.zeros(())).numpy()
    assert len(set(steps.tolist())) == 4


def test_inside_while_loop_a_draw_without_a_key_is_a_trace_error() -> None:
    def f(x: Any) -> Any:
        return et.while_loop(lambda x: x < 3, lambda x: x + et.rand(()), x)

    with pytest.raises(TraceError):
        et.jit(f)(et.zeros(()))


# --- signatures and caches


def test_a_signature_is_structure_shape_dtype_and_statics_never_values() -> None:
    traces: list[int] = []

    def f(tree: Any, *, n: int) -> Any:
        traces.append(n)
        return tree["a"] * n

    g = et.jit(f, static_argnames="n")
    x = et.zeros((2,))
    calls: list[tuple[Any, int]] = [
        ({"a": x}, 1), ({"a": x + 5}, 1),  # values do not count
        ({"a": x}, 2), ({"a": et.zeros((3,))}, 1), ({"a": x.astype("float16")}, 1),
        ({"a": x, "b": x}, 1),
    ]  # fmt: skip
    for tree, n in calls:
        g(tree, n=n)
    assert traces == [1, 2, 1, 1, 1]


def test_the_least_recently_used_of_32_signatures_is_dropped() -> None:
    g = et.jit(lambda x: x + 1)
    for n in range(1, 33):
        g(et.zeros(n))
    g(et.zeros(1))
    g(et.zeros(33))
    assert (g.stats.programs, g.stats.evictions) == (32, 1)
    before = g.stats.traces
    g(et.zeros(1))  # used again meanwhile, so it was kept
    assert g.stats.traces == before
    g(et.zeros(2))
    assert g.stats.traces == before + 1


def test_concurrent_first_calls_trace_once() -> None:
    gate = threading.Barrier(4)
    g = et.jit(lambda x: et.sin(et.sin(x)))
    runtime = et.current()

    def work() -> None:
        with et.use(runtime):
            gate.wait()
            g(et.ones((3,))).numpy()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert g.stats.traces == 1


def test_a_function_that_calls_its_own_untraced_signature_is_a_trace_error() -> None:
    holder: list[Any] = []
    holder.append(et.jit(lambda x: holder[0](x) + 1))
    with pytest.raises(TraceError):
        holder[0](et.zeros(2))


def test_globals_and_captures_are_read_at_trace_time() -> None:
    scale = {"value": 2.0}
    captured = et.ones((2,))
    g = et.jit(lambda x: x * scale["value"] + captured)
    same(g(et.ones((2,))), [3, 3])
    scale["value"] = 5.0
    same(g(et.ones((2,))), [3, 3])
    g.clear()
    same(g(et.ones((2,))), [6, 6])


def test_grad_of_jit_inlines_the_cached_trace() -> None:
    g = et.jit(lambda x: et.sum(x * x))
    x = et.ones((2,))
    g(x)
    for _ in range(2):
        same(et.grad(g)(x), [2, 2])
    assert g.stats.traces == 1


def test_a_failed_trace_is_counted_and_not_cached() -> None:
    g = et.jit(lambda x: x + et.zeros((5,)))
    for count in (1, 2):
        with pytest.raises(et.errors.ShapeError):
            g(et.zeros((3,)))
        assert (g.stats.traces, g.stats.programs) == (count, 0)


def test_clear_keeps_the_counts() -> None:
    g = et.jit(lambda x: x + 1)
    g(et.zeros(2))
    g.clear()
    assert (g.stats.traces, g.stats.programs) == (1, 0)


def test_more_signatures_than_the_capacity_are_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    g = et.jit(lambda x: x + 1, cache_capacity=2)
    with caplog.at_level(logging.WARNING, logger="pyeffect_torch.jit"):
        for n in range(1, 7):
            g(et.zeros(n))
    said = [r for r in caplog.records if "signatures" in r.getMessage()]
    assert len(said) == 1
    assert "shape" in said[0].getMessage()


def test_explain_retrace_says_which_leaf_changed() -> None:
    g = et.jit(lambda tree: tree["w"] * 2)
    g({"w": et.zeros((2,))})
    g({"w": et.zeros((3,))})
    assert "w" in g.explain_retrace() and "[3]" in g.explain_retrace()


def test_a_cache_is_freed_with_its_function() -> None:
    g = et.jit(lambda x: x + 1)
    g(et.zeros((2,)))
    gone = weakref.ref(g)
    del g
    gc.collect()
    assert gone() is None


# --- results, donation


def test_outputs_are_independent_of_later_calls() -> None:
    g = et.jit(lambda x: x * 2)
    first = g(et.ones((3,)))
    before = first.numpy().copy()
    g(et.full((3,), 7.0)).numpy()
    same(first, before)


def test_a_donated_argument_is_deleted_after_success_and_valid_after_a_failure() -> None:
    g = et.jit(lambda x, i: x * 2 + x[i], donate_argnums=0)
    x = et.compute(et.ones((3,)))
    with pytest.raises(et.errors.IndexOutOfBoundsError):
        g(x, 99).numpy()
    same(x, [1, 1, 1])
    same(g(x, 0), [3, 3, 3])
    with pytest.raises(InvalidHandleError, match="donat"):
        x.numpy()


def test_the_same_array_donated_twice_in_one_call_is_an_argument_error() -> None:
    g = et.jit(lambda x, y: (x + 1, y + 1), donate_argnums=(0, 1))
    x = et.compute(et.ones((3,)))
    with pytest.raises(ArgumentError):
        g(x, x)


def test_a_donated_argument_used_afterwards_by_an_older_lazy_array_names_the_donation() -> None:
    g = et.jit(lambda x: x + 1, donate_argnums=0)
    x = et.compute(et.ones((3,)))
    later = x * 3
    g(x)
    with pytest.raises(InvalidHandleError, match="donat"):
        later.numpy()


# --- derivatives of rules, effects of Python, placeholders


def test_the_value_of_a_custom_rule_is_that_of_f_even_if_fwd_computes_another() -> None:
    @et.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    f.defvjp(lambda x: (x * 100, None), lambda _, ct: (ct * 7,))
    value, slope = et.value_and_grad(f)(et.array(3.0))
    assert (float(value), float(slope)) == (6.0, 7.0)


def test_forward_mode_over_custom_vjp_is_an_error_that_names_the_line() -> None:
    @et.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    f.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 2,))
    x = et.array(1.0)
    with pytest.raises(et.errors.EffectTorchError, match=r"test_semantics_compiled\.py:\d+"):
        et.jvp(f, (x,), (x,))


def test_reverse_mode_through_a_while_loop_is_an_error_that_names_the_line() -> None:
    def f(x: Any) -> Any:
        return et.while_loop(lambda x: x < 100, lambda x: x * 2, x)

    with pytest.raises(et.errors.EffectTorchError, match=r"test_semantics_compiled\.py:\d+"):
        et.grad(f)(et.array(1.5))


def test_python_side_effects_run_at_trace_time_only() -> None:
    seen: list[int] = []
    g = et.jit(lambda x: (seen.append(1), x + 1)[1])
    for _ in range(3):
        g(et.zeros((2,)))
    assert seen == [1]


def test_reading_a_placeholder_is_a_trace_error() -> None:
    for read in (float, bool, lambda x: x.numpy(), lambda x: x.item()):
        with pytest.raises(TraceError):
            et.jit(lambda x, read=read: x * (1.0 if read(x.sum()) else 2.0))(et.zeros((2,)))


def test_a_leaked_placeholder_is_a_trace_error_that_names_where_it_was_made() -> None:
    kept: list[Any] = []
    et.jit(lambda x: (kept.append(x * 2), x)[1])(et.zeros((2,)))
    with pytest.raises(TraceError, match=r"jit"):
        (kept[0] + 1).numpy()
