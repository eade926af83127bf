"""The cpu runtime: memory, determinism, donation, and that optimising changes no value."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.runtime.native.loader import load

f32 = np.float32


def network(params: dict[str, Any], x: Any) -> Any:
    """A small transformer-like function that touches every kernel family."""
    h = et.nn.layer_norm(x, params["g"], params["b"])
    q = (h @ params["w"]).reshape(2, 8, 2, 8).transpose(0, 2, 1, 3)
    a = et.nn.scaled_dot_product_attention(q, q, q, causal=True)
    y = et.nn.gelu(a.transpose(0, 2, 1, 3).reshape(2, 8, 16)) + x
    rows = et.nn.embedding(et.array([[0, 1, 2, 3, 0, 1, 2, 3]] * 2), params["w"])
    logits = (y + rows) @ params["w"]
    return et.losses.cross_entropy(logits, et.array(np.arange(16).reshape(2, 8)))


def example() -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    draw = lambda *shape: et.array(rng.standard_normal(shape, dtype=f32) * 0.3)
    params = {"w": draw(16, 16), "g": draw(16), "b": draw(16)}
    return params, draw(2, 8, 16)


@contextmanager
def failing_allocations() -> Iterator[None]:
    """Every native allocation but that of output buffers fails inside."""
    _, lib = load()
    lib.pet_debug_fail_allocations(1)
    try:
        yield
    finally:
        lib.pet_debug_fail_allocations(0)


def test_a_run_allocates_nothing_but_outputs() -> None:
    compiled = et.jit(et.value_and_grad(network))
    params, x = example()
    want = compiled(params, x)
    with failing_allocations():
        got = compiled(params, x)
    for a, b in zip(et.tree.leaves(want), et.tree.leaves(got), strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


def test_compiling_under_failing_allocations_is_an_error_and_not_a_crash() -> None:
    compiled = et.jit(lambda x: et.sin(x) * 3.25)
    x = et.compute(et.array([1.0, 2.0]) * 1.0)
    with failing_allocations(), pytest.raises(et.errors.BackendError, match="out of memory"):
        compiled(x)
    assert np.allclose(compiled(x).numpy(), np.sin([1.0, 2.0]) * 3.25)


def test_output_allocations_equal_the_outputs() -> None:
    runtime = et.cpu()
    compiled = et.jit(lambda x: (x + 1.0, {"a": x * 2.0, "b": et.sin(x)}))
    x = et.compute(et.array(np.ones(100, f32)) * 1.0)
    compiled(x)
    before = runtime.memory_stats()["output_allocations"]
    for _ in range(10):
        compiled(x)
    assert runtime.memory_stats()["output_allocations"] - before == 30


def test_buffers_are_released_with_their_arrays() -> None:
    runtime = et.cpu()
    gc.collect()
    before = runtime.memory_stats()
    arrays = [et.compute(et.array(np.ones((256, 256), f32)) * float(k)) for k in range(20)]
    during = runtime.memory_stats()
    assert during["bytes_live"] - before["bytes_live"] >= 20 * 256 * 256 * 4
    del arrays
    gc.collect()
    after = runtime.memory_stats()
    assert after["bytes_live"] <= before["bytes_live"] + 4096
    assert after["buffers_live"] <= before["buffers_live"] + 8


def test_a_view_outlives_its_array() -> None:
    x = et.compute(et.array(np.arange(1000, dtype=f32)) * 2.0)
    view = x.numpy()
    assert not view.flags.writeable
    del x
    gc.collect()
    et.compute(et.array(np.zeros(1000, f32)) + 5.0)
    assert np.array_equal(view, np.arange(1000) * 2.0)


def test_donation_reuses_memory_but_never_that_of_a_view() -> None:
    step = et.jit(lambda x: x + 1.0, donate_argnums=0)
    x = et.compute(et.array(np.arange(1000, dtype=f32)) * 1.0)
    view = x.numpy()
    y = step(x)
    assert np.array_equal(view, np.arange(1000))
    assert np.array_equal(y.numpy(), np.arange(1000) + 1)
    assert x.is_deleted()


def test_donated_state_is_updated_in_place() -> None:
    step = et.jit(lambda x: x * 0.5 + 1.0, donate_argnums=0)
    x = et.compute(et.array(np.ones(1 << 20, f32)) * 1.0)
    for _ in range(3):
        x = step(x)
    stats = et.cpu().memory_stats()
    before = stats["bytes_live"]
    x = step(x)
    assert et.cpu().memory_stats()["bytes_live"] == before
    assert np.allclose(x.numpy(), 0.5**4 + 1.875)


def test_the_number_of_threads_changes_no_bit() -> None:
    runtime = et.cpu()
    rng = np.random.default_rng(1)
    a = et.array(rng.standard_normal((257, 300), dtype=f32))
    b = et.array(rng.standard_normal((300, 211), dtype=f32))
    big = et.array(rng.standard_normal(3_000_001, dtype=f32))
    params, x = example()

    def work() -> list[Any]:
        compiled = et.jit(
            lambda: [
                a @ b,
                big.sum(),
                et.tanh(big).mean(),
                et.nn.softmax(a),
                et.cumsum(big, 0),
                et.grad(network)(params, x)["w"],
            ]
        )
        return [value.numpy().copy() for value in compiled()]

    results = []
    try:
        for threads in (1, 2, 3, 7):
            runtime.set_threads(threads)
            results.append(work())
    finally:
        runtime.set_threads(0)
    for other in results[1:]:
        for first, again in zip(results[0], other, strict=True):
            assert first.tobytes() == again.tobytes()


def test_optimising_keeps_the_values() -> None:
    params, x = example()
    fast = et.jit(et.value_and_grad(network))(params, x)
    plain = et.jit(et.value_and_grad(network), optimize=False)(params, x)
    with et.use(et.reference()):
        moved = et.tree.map(lambda leaf: leaf.to(et.reference()), (params, x))
        slow = et.value_and_grad(network)(*moved)
    for a, b, c in zip(*(et.tree.leaves(t) for t in (fast, plain, slow)), strict=True):
        # 64 roundings: the depth of the longest chain of sums (16) through four layers
        bound = 64 * np.finfo(f32).eps * max(1.0, float(np.abs(c.numpy()).max()))
        assert np.abs(a.numpy() - b.numpy()).max() <= bound
        assert np.abs(a.numpy() - c.numpy()).max() <= bound


def test_equal_programs_share_one_executable() -> None:
    runtime = et.cpu()
    runtime.clear_caches()
    x = et.compute(et.array([1.0, 2.0]) * 1.0)
    before = runtime.memory_stats()["executables"]
    for rate in (0.1, 0.2, 0.3, 0.4):
        et.compute(x - rate * x)  # the changing scalar stands outside the structural hash
    assert runtime.memory_stats()["executables"] == before + 1


def test_explain_names_regions_and_passes() -> None:
    text = str(et.jit(lambda x: et.tanh(x * 2.0) + 1.0).lower(et.array([1.0, 2.0])).explain())
    for word in ("passes", "arena"):
        assert word in text


def test_source_lines_stand_outside_the_structural_hash() -> None:
    runtime = et.cpu()
    runtime.clear_caches()
    x = et.compute(et.array([1.0, 2.0]) * 1.0)
    before = runtime.memory_stats()["executables"]

    def a_function_with_a_long_name_of_its_own() -> None:
        et.compute(x * 2.0 + 1.0)

    et.compute(x * 3.0 + 4.0)
    a_function_with_a_long_name_of_its_own()
    assert runtime.memory_stats()["executables"] == before + 1
