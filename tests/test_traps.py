"""The traps of composing transforms, each with its right answer.

Perturbation confusion, values read under a derivative, leaks, rules with captures: the cases that
designs of this kind get wrong.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.graph import TOKENS

f32 = np.float32
EPS = float(np.finfo(f32).eps)


def close(got: Any, want: Any, roundings: int = 16) -> None:
    """Assert equality within a number of float32 roundings of the largest value."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    scale = np.max(np.abs(want), initial=1.0)
    np.testing.assert_allclose(got, want, rtol=0, atol=roundings * EPS * scale)


def sign_of_value(x: Any) -> Any:
    return x * x if float(x) > 0 else -x


# --- nesting


def test_no_perturbation_confusion() -> None:
    close(et.grad(lambda x: x * et.grad(lambda y: x + y)(1.0))(1.0), 1.0)


def test_nested_jvp() -> None:
    value = et.jvp(lambda x: x * et.jvp(lambda y: x * y, (2.0,), (1.0,))[1], (3.0,), (1.0,))
    close(value[1], 6.0)


def test_nested_grad_of_a_closure() -> None:
    close(et.grad(lambda x: et.grad(lambda y: x * y * y)(x))(3.0), 12.0)


def test_stop_gradient_inside_nested_grad() -> None:
    inner = et.grad(lambda y: et.stop_gradient(y) * y)
    close(et.grad(lambda x: x * inner(x))(3.0), 3.0)


def test_jvp_of_grad_and_grad_of_jvp() -> None:
    cube = lambda x: x * x * x
    close(et.jvp(et.grad(cube), (2.0,), (1.0,))[1], 12.0)
    close(et.grad(lambda x: et.jvp(cube, (x,), (1.0,))[1])(2.0), 12.0)
    close(et.grad(et.grad(et.grad(cube)))(2.0), 6.0)


# --- control flow on values


def test_control_flow_on_values_under_grad() -> None:
    close(et.grad(sign_of_value)(3.0), 6.0)
    close(et.grad(sign_of_value)(-3.0), -1.0)
    close(et.grad(et.grad(sign_of_value))(3.0), 2.0)


@pytest.mark.parametrize(
    "transformed",
    [
        et.jit(sign_of_value),
        et.grad(et.jit(sign_of_value)),
        et.jit(et.grad(sign_of_value)),
        et.checkpoint(sign_of_value),
    ],
    ids=["jit", "grad(jit)", "jit(grad)", "checkpoint"],
)
def test_control_flow_on_traced_values_is_refused(transformed: Callable[..., Any]) -> None:
    with pytest.raises(et.errors.TraceError, match=r"test_traps\.py"):
        transformed(et.array(3.0))


def test_control_flow_under_vmap_is_refused() -> None:
    rows = et.array([1.0, 2.0])
    for transformed in (et.vmap(sign_of_value), et.vmap(et.grad(sign_of_value))):
        with pytest.raises(et.errors.TraceError, match="vmap"):
            transformed(rows)


# --- reading under a derivative


def read_on_the_way(x: Any) -> Any:
    y = et.sin(x)
    z = y * y
    float(z)
    del y
    w = z * x
    float(w)
    return w * z


def test_values_read_under_grad_do_not_cut_the_path() -> None:
    plain = lambda x: (et.sin(x) ** 2 * x) * et.sin(x) ** 2
    close(et.grad(read_on_the_way)(0.7), et.grad(plain)(0.7))
    close(et.grad(et.grad(read_on_the_way))(0.7), et.grad(et.grad(plain))(0.7), 64)
    gc.collect()
    assert TOKENS.live == {}
    assert [r for r in TOKENS.pending if r() is not None] == []


def test_a_gradient_that_was_read_has_no_inputs() -> None:
    g = et.grad(read_on_the_way)(0.7)
    float(g)
    assert g.inputs == ()


def test_pullback_after_reading_the_value() -> None:
    y, pullback = et.vjp(lambda x: et.sin(x) * x, 2.0)
    float(y)
    slope = np.cos(2.0) * 2.0 + np.sin(2.0)
    close(pullback(1.0)[0], slope)
    close(pullback(2.0)[0], 2 * slope)


def test_a_list_of_losses_holds_values_and_no_graph() -> None:
    losses: list[Any] = []

    def loss(w: Any) -> Any:
        value = (w * w).sum()
        losses.append(value)
        float(value)
        return value

    w = et.array([1.0, 2.0])
    for _ in range(3):
        w = et.compute(w - 0.1 * et.grad(loss)(w))
    assert all(value.inputs == () and value.state == "concrete" for value in losses)


def nodes_alive() -> int:
    gc.collect()
    return sum(isinstance(thing, et.Array) for thing in gc.get_objects())


def test_a_value_loop_does_not_grow_the_graph() -> None:
    x = et.array([1.0, 2.0, 3.0])
    for _ in range(50):
        x = et.cos(x)
        float(x.sum())
    before = nodes_alive()
    for _ in range(200):
        x = et.cos(x)
        float(x.sum())
    assert nodes_alive() <= before + 2


def test_a_value_loop_inside_grad_that_is_independent_of_the_leaf() -> None:
    counts: list[int] = []

    def f(x: Any) -> Any:
        y = et.array([1.0, 2.0])
        for step in range(120):
            y = et.sin(y)
            float(y.sum())
            if step in (20, 119):
                counts.append(nodes_alive())
        return x * y.sum()

    et.grad(f)(1.0)
    assert counts[1] <= counts[0] + 2


def test_a_train_loop_that_reads_only_the_loss_does_not_grow() -> None:
    x = et.array(np.linspace(-1, 1, 8, dtype=f32).reshape(4, 2))
    w = et.compute(et.ones(2) * 0.5)
    loss = lambda w: et.square(x @ w - 1.0).mean()
    counts: list[int] = []
    for step in range(40):
        value, slope = et.value_and_grad(loss)(w)
        w = w - 0.1 * slope
        float(value)
        if step in (10, 39):
            counts.append(nodes_alive())
    # What is not read yet may wait, the steps before it may not.
    assert counts[1] <= counts[0] + 2


# --- leaks


def test_a_leaked_placeholder_is_refused() -> None:
    kept: list[Any] = []
    et.jit(lambda x: (kept.append(x * 2), x)[1])(1.0)
    with pytest.raises(et.errors.TraceError, match="jit"):
        float(kept[0])
    with pytest.raises(et.errors.TraceError, match="leaked"):
        et.jit(lambda y: y + kept[0])(1.0)


def test_a_value_stored_inside_grad_is_ordinary() -> None:
    kept: list[Any] = []
    et.grad(lambda x: (kept.append(x * 2), x)[1])(1.5)
    close(kept[0], 3.0)


# --- custom rules


def test_custom_vjp() -> None:
    @et.custom_vjp
    def f(x: Any) -> Any:
        return et.sin(x)

    f.defvjp(lambda x: (et.sin(x), x), lambda x, ct: (2 * ct * et.cos(x),))
    rows = et.array([0.1, 0.2, 0.3])
    close(f(0.3), np.sin(0.3))
    close(et.grad(f)(0.3), 2 * np.cos(0.3))
    close(et.grad(et.grad(f))(0.3), -2 * np.sin(0.3))
    close(et.vmap(et.grad(f))(rows), 2 * np.cos([0.1, 0.2, 0.3]))
    close(et.jit(et.grad(f))(0.3), 2 * np.cos(0.3))


def test_custom_vjp_sums_over_rows_for_unbatched_arguments() -> None:
    @et.custom_vjp
    def f(a: Any, b: Any) -> Any:
        return a * b

    f.defvjp(lambda a, b: (a * b, (a, b)), lambda r, ct: (3 * r[1] * ct, r[0] * ct))
    b = et.array([1.0, 2.0, 3.0])
    total = lambda a: et.vmap(f, in_axes=(None, 0))(a, b).sum()
    close(et.grad(total)(1.5), 18.0)


def test_custom_vjp_over_a_differentiated_capture_is_refused() -> None:
    def outer(x: Any) -> Any:
        @et.custom_vjp
        def f(y: Any) -> Any:
            return x * y

        f.defvjp(lambda y: (x * y, y), lambda y, ct: (ct,))
        return f(2.0)

    with pytest.raises(et.errors.TraceError, match="pass that value as an argument"):
        et.grad(outer)(1.0)


def test_custom_vjp_has_no_forward_mode() -> None:
    @et.custom_vjp
    def f(x: Any) -> Any:
        return x * x

    f.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))
    with pytest.raises(TypeError, match="no forward-mode rule"):
        et.jvp(f, (1.0,), (1.0,))


def test_custom_jvp() -> None:
    @et.custom_jvp
    def f(x: Any) -> Any:
        return et.sin(x)

    f.defjvp(lambda primals, tangents: (et.sin(primals[0]), tangents[0] * 5 * primals[0]))
    close(et.jvp(f, (0.3,), (1.0,))[1], 1.5)
    close(et.grad(f)(0.3), 1.5)
    close(et.grad(et.grad(f))(0.3), 5.0)
    close(et.vmap(et.grad(f))(et.array([0.1, 0.2])), [0.5, 1.0])


# --- integers, zeros, aliases


def test_integers() -> None:
    with pytest.raises(TypeError, match="int64"):
        et.grad(lambda n: n * 1.0)(et.array(3))
    out, pullback = et.vjp(lambda x, n: (x * 2, n + 1), 1.0, et.array(3))
    ct = pullback((et.array(1.0), out[1]))
    assert ct[1].dtype == np.int64
    close(ct[1], 0)
    _, tangent = et.jvp(lambda x, n: (x * 2, n), (1.0, et.array(3)), (1.0, et.array(7)))
    assert tangent[1].dtype == np.int64
    close(tangent[1], 0)


def test_unused_constant_identity() -> None:
    got = et.grad(lambda x, y: x, argnums=(0, 1))(1.0, et.array([1.0, 2.0]))
    close(got[0], 1.0)
    close(got[1], [0.0, 0.0])
    close(et.grad(lambda x: et.array(3.0))(2.0), 0.0)
    close(et.grad(lambda x: x)(2.0), 1.0)


def test_repeated_roots() -> None:
    _, pullback = et.vjp(lambda x: (x, x, x * x), 3.0)
    close(pullback((1.0, 1.0, 1.0))[0], 8.0)
    y = et.array([4.0])
    a, b, c = et.jit(lambda x: (y, y, x))(et.array([5.0]))
    a.delete()
    close(b, [4.0])
    close(c, [5.0])
    close(y, [4.0])


def test_ties_share_the_gradient() -> None:
    close(et.grad(et.max)(et.array([2.0, 2.0, 1.0])), [0.5, 0.5, 0.0])


def test_embedding_with_duplicate_indices_accumulates() -> None:
    table = et.array(np.arange(8, dtype=f32).reshape(4, 2))
    rows = et.array([[1, 1, 3], [0, 1, 0]])
    loss = lambda ids, w: et.nn.embedding(ids, w).sum()
    got = et.vmap(et.grad(loss, argnums=1), in_axes=(0, None))(rows, table)
    close(got[0, :, 0], [0, 2, 0, 1])
    close(got[1, :, 0], [2, 1, 0, 0])


# --- jit


def test_one_trace_serves_plain_calls_grad_and_vmap_of_grad() -> None:
    g = et.jit(lambda x: et.sin(x) * x)
    x = et.array(0.5)
    g(x)
    et.grad(g)(x)
    et.vmap(et.grad(g))(et.array([0.5, 0.6]))
    assert g.stats.traces == 1


def test_a_trace_that_captures_a_live_leaf_is_not_cached() -> None:
    box: list[Any] = [None]
    g = et.jit(lambda y: y * box[0])

    def outer(x: Any) -> Any:
        box[0] = x
        return g(3.0)

    close(et.grad(outer)(5.0), 3.0)
    close(et.grad(outer)(7.0), 3.0)


def test_linearize_inside_jit_and_hessian() -> None:
    def f(x: Any) -> Any:
        value, tangent = et.linearize(lambda y: et.sin(y) * y, x)
        return value + tangent(et.ones_like(x))

    want = 0.5 * np.sin(0.5) + np.cos(0.5) * 0.5 + np.sin(0.5)
    close(et.jit(f)(0.5), want)
    close(et.jit(et.hessian(lambda x: f(x)))(0.5), et.hessian(f)(0.5))


def test_a_donated_argument_of_a_lazy_array() -> None:
    x = et.compute(et.array([1.0, 2.0]) * 1.0)
    y = x * 2
    et.jit(lambda v: v + 1, donate_argnums=0)(x)
    with pytest.raises(et.errors.InvalidHandleError, match="donated to jit"):
        y.numpy()


# --- implicit randomness


def test_explicit_key_under_vmap_gives_equal_rows() -> None:
    key = et.random.key(0)
    rows = et.vmap(lambda x: x + et.random.uniform(key))(et.zeros(3))
    assert len(set(rows.tolist())) == 1


def test_implicit_draws_differ_by_row_and_by_call() -> None:
    rows = et.vmap(lambda x: x + et.rand(()))(et.zeros(4))
    assert len(set(rows.tolist())) == 4
    g = et.jit(lambda x: x + et.rand(()))
    assert float(g(0.0)) != float(g(0.0))
    assert g.stats.traces == 1
    inside = et.vmap(et.jit(lambda x: x + et.rand(())))(et.zeros(4))
    assert len(set(inside.tolist())) == 4
    twice = et.jit(lambda x: (et.rand(()) + x, et.rand(()) + x))(0.0)
    assert float(twice[0]) != float(twice[1])


def test_checkpoint_recomputes_the_same_draw() -> None:
    def f(x: Any) -> Any:
        return (et.rand((4,)) * x * x).sum()

    value, slope = et.jit(et.value_and_grad(et.checkpoint(f)))(3.0)
    close(slope, 2 * np.asarray(value) / 3.0)


# --- depth and threads


def on_small_stack(work: Callable[[], None]) -> None:
    """Run `work` on a thread with a 256 KiB stack; its exception fails the test."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # handed to the test's thread
            failures.append(error)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if failures:
        raise failures[0]


def test_a_long_chain_on_a_small_stack() -> None:
    def work() -> None:
        def chain(x: Any) -> Any:
            for _ in range(100_000):
                x = et.sin(x)
            return x

        x = et.array(0.5)
        y = chain(x)
        del y
        assert chain(x).shape == ()
        float(et.grad(chain)(0.5))
        et.jvp(chain, (0.5,), (1.0,))
        et.vmap(chain)(et.array([0.5, 0.6]))

    on_small_stack(work)


def test_a_wide_graph_on_a_small_stack() -> None:
    def work() -> None:
        def wide(x: Any) -> Any:
            parts = [x * float(i) for i in range(25_000)]  # and as many sums
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=False)
                parts = [a + b for a, b in pairs] + parts[len(parts) // 2 * 2 :]
            return parts[0]

        x = et.array(np.float64(1.0))
        want = float(sum(range(25_000)))
        assert float(wide(x)) == want  # sums of integers below 2**53 are exact
        assert float(et.grad(wide)(x)) == want

    on_small_stack(work)


def test_releasing_a_million_nodes_on_a_small_stack() -> None:
    def work() -> None:
        x = et.array(0.5)
        for _ in range(1_000_000):
            x = x + x
        del x

    on_small_stack(work)


def test_a_thousand_custom_jvp_calls() -> None:
    @et.custom_jvp
    def f(x: Any) -> Any:
        return x * 1.0

    f.defjvp(lambda primals, tangents: (primals[0] * 1.0, tangents[0]))

    def chain(x: Any) -> Any:
        for _ in range(1000):
            x = f(x)
        return x

    close(et.grad(chain)(2.0), 1.0)


def test_threads_on_one_lazy_base() -> None:
    base = et.sin(et.array(np.linspace(0, 1, 64, dtype=f32)))
    compiled = et.jit(lambda x: et.sin(x) * x)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            value = float((base * base).sum())
            slope = et.grad(lambda x: (x * base).sum())(2.0)
            pair = compiled(et.array(0.5))
            if not np.isclose(value, want) or not np.isclose(float(slope), total):
                wrong.append((value, slope))
            if not np.isclose(float(pair), 0.5 * np.sin(0.5)):
                wrong.append(pair)

    values = np.sin(np.linspace(0, 1, 64))
    want, total = float((values**2).sum()), float(values.sum())
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    gc.collect()
    assert TOKENS.live == {}


def test_releasing_a_chain_of_regions_by_capture_on_a_small_stack() -> None:
    def work() -> None:
        x = et.array(0.5)
        for _ in range(20_000):
            held = x
            x = et.checkpoint(lambda held=held: et.sin(held))()
        del x, held

    on_small_stack(work)
