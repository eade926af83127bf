"""`et.debug.nans`: the first NaN or infinity, by operation and line, wherever it is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.op import REGISTRY
from pyeffect_torch.ops.base import operand
from pyeffect_torch.testing import assert_close
from pyeffect_torch.testing.declarations import draw_samples, is_region, is_structural, results_of

pytestmark = pytest.mark.usefixtures("runtime")

NAN = "the result has a NaN, and no operand has one"
INFINITE = "the result is infinite somewhere, and no operand is"
OPS = sorted(
    op.name
    for op in REGISTRY.values()
    if not is_structural(op) and not is_region(op) and op.domain is not None
)


def loop(x: Any) -> Any:
    return et.scan(lambda c, t: (et.log(c - t), None), x, et.ones(5))[0]


def last_step(x: Any) -> Any:
    return et.while_loop(lambda c: c[0] < 9.0, lambda c: (c[0] + 3.0, et.sqrt(5.0 - c[0])), (x, x))


def branch(x: Any) -> Any:
    return et.cond(x > 0, lambda v: et.log(-v), lambda v: v, x)


@et.custom_vjp
def bent(x: Any) -> Any:
    return x * 1.0


bent.defvjp(lambda x: (x * 1.0, x), lambda x, ct: (ct * et.log(x - x - 1.0),))

CASES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "log": (lambda: et.log(et.array([1.0, -1.0])), "log", NAN),
    "infinite": (lambda: 1.0 / (et.array([1.0, 2.0]) - 2.0), "divide", INFINITE),
    "product": (lambda: et.array([3e38]) @ et.array([9.0]), "dot_general", INFINITE),
    "half": (lambda: et.array([1e5]).astype("float16"), "cast", INFINITE),
    "compiled": (lambda: et.jit(lambda x: et.sqrt(x).sum() * 2.0)(et.array([-1.0])), "sqrt", NAN),
    "gradient": (lambda: et.grad(et.sqrt)(et.array(0.0)), "", INFINITE),
    "compiled gradient": (lambda: et.jit(et.grad(et.sqrt))(et.array(0.0)), "", INFINITE),
    "second": (lambda: et.grad(et.grad(lambda x: x**1.5))(et.array(0.0)), "", INFINITE),
    "vmap": (lambda: et.vmap(et.log)(et.array([1.0, -1.0])), "log", NAN),
    "scan": (lambda: et.jit(loop)(et.array(3.0)), "log", NAN),
    "scan backward": (lambda: et.grad(lambda x: et.scan(
        lambda c, t: (et.sqrt(c) * t, None), x, et.zeros(2))[0])(et.array(1.0)), "", INFINITE),
    "while": (lambda: last_step(et.array(1.0)), "sqrt", NAN),
    "cond": (lambda: branch(et.array(2.0)), "log", NAN),
    "custom": (lambda: et.grad(bent)(et.array(2.0)), "log", NAN),
    "checkpoint": (lambda: et.grad(et.checkpoint(et.sqrt))(et.array(0.0)), "", INFINITE),
    "several results": (lambda: et.linalg.cholesky(-et.eye(3)), "cholesky", NAN),
    "argument": (lambda: et.jit(lambda v: v + 1.0)(et.array([np.nan])), "v of jit(<lambda>)",
        "it has a NaN already"),
    "outside": (lambda: et.array([np.nan]) + 1.0, "a value from outside", "it has a NaN already"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_first_culprit_is_named_with_its_line(name: str) -> None:
    make, operation, reason = CASES[name]
    et.compute(make())  # without checks it is a value like any other
    with et.debug.nans(), pytest.raises(et.errors.ExecutionError) as caught:
        et.compute(make())
    assert str(caught.value).startswith(f"{operation}: {reason}" if operation else "")
    assert reason in str(caught.value)
    assert "test_nan_checks.py" in caught.value.where


FINE: dict[str, Callable[[], Any]] = {
    "mask": lambda: et.softmax(et.where(et.array([True, False]), et.ones(2), -et.inf)),
    "infinite argument": lambda: et.jit(et.exp)(et.array([-np.inf])),
    "attention": lambda: et.nn.scaled_dot_product_attention(
        *[et.ones((1, 2, 4, 8))] * 3, mask=et.zeros((4, 4), "bool")
    ),
    "untaken": lambda: branch(et.array(-2.0)),
    "no step": lambda: et.scan(lambda c, t: (et.log(c), None), et.array(-1.0), et.zeros((0, 2)))[0],
    "maximum of nothing": lambda: et.array([1.0]) + et.array(-np.inf),
    "integers": lambda: et.array([1, 2]) // 0,
    "training": lambda: et.jit(et.value_and_grad(lambda w: et.square(et.tanh(w)).sum()))(
        et.ones((3, 3))
    ),
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_meant_passes_with_the_same_value(name: str) -> None:
    want = et.compute(FINE[name]())
    with et.debug.nans():
        got = et.compute(FINE[name]())
    for a, b in zip(et.tree.leaves(want), et.tree.leaves(got), strict=True):
        assert np.array_equal(a.numpy(), b.numpy(), equal_nan=True)


def test_infinities_may_be_left_out() -> None:
    with et.debug.nans(infinities=False):
        assert float(1.0 / et.array(0.0)) == np.inf
        with pytest.raises(et.errors.ExecutionError, match="log: the result has a NaN"):
            et.log(et.array(-1.0)).item()


def test_a_compiled_function_keeps_both_programs() -> None:
    g = et.jit(lambda x: et.log(x) * 2.0)
    x = et.array([-1.0])
    assert np.isnan(g(x).numpy()).all()
    for _ in range(2):
        with et.debug.nans(), pytest.raises(et.errors.ExecutionError, match="log: "):
            g(x)
    assert np.isnan(g(x).numpy()).all()
    assert (g.stats.traces, g.stats.programs) == (1, 1)


def test_donated_arguments_survive_a_refusal() -> None:
    g = et.jit(et.log, donate_argnums=0)
    x = et.compute(et.array([-1.0, 2.0]) * 1.0)
    with et.debug.nans(), pytest.raises(et.errors.ExecutionError, match="log: "):
        g(x)
    assert x.tolist() == [-1.0, 2.0]
    y = et.compute(et.array([1.0]) * 1.0)
    with et.debug.nans():
        assert g(y).tolist() == [0.0]
    assert y.is_deleted()


@pytest.mark.parametrize("name", OPS)
def test_every_operation_passes_on_its_samples(name: str) -> None:
    op = REGISTRY[name]
    assert op.domain is not None
    for sample in draw_samples(op, op.domain.dtypes[-1])[:3]:
        inputs = [operand(name, value) for value in sample.inputs]
        want = et.compute(results_of(op, inputs, sample.params))
        if not all(np.isfinite(v.numpy().astype(float)).all() for v in want):
            continue
        with et.debug.nans():
            got = et.compute(results_of(op, inputs, sample.params))
        for a, b in zip(want, got, strict=True):
            assert a.dtype is b.dtype
            # Both are within the op's roundings of what is exact.
            assert_close(b, a, roundings=2 * op.domain.roundings(sample), name=name)
