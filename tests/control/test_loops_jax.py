"""Loops and branches against numbers that JAX computed.

`tools/golden_jax_control.py` wrote the numbers; its functions are repeated here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

pytestmark = pytest.mark.usefixtures("runtime")

VALUES = json.loads((Path(__file__).parents[1] / "data" / "jax_loops.json").read_text())["values"]
WIDTH, STEPS = 6, 100
GRID = np.arange(WIDTH * WIDTH, dtype=np.float64).reshape(WIDTH, WIDTH)
PARAMS = (np.sin(GRID) * 0.3, np.cos(GRID) * 0.2, np.linspace(-0.1, 0.1, WIDTH))
POINTS = np.array([0.3, 0.7, 1.1, -0.4])


def check(name: str, got: Any, roundings: float) -> None:
    """Assert equality within a number of float64 roundings of the largest value of a leaf."""
    want = np.array([float.fromhex(text) for text in VALUES[name]])
    for leaf in et.tree.leaves(got):
        value = np.asarray(leaf).ravel()
        part, want = want[: value.size], want[value.size :]
        scale = np.max(np.abs(part), initial=1.0)
        np.testing.assert_allclose(value, part, rtol=0, atol=roundings * 2.0**-52 * scale)
    assert want.size == 0


def recurrent(params: Any) -> Any:
    weights, inner, bias = params
    xs = np.sin(np.arange(STEPS * 4 * WIDTH, dtype=np.float64) * 0.37).reshape(STEPS, 4, WIDTH)

    def step(h: Any, x: Any) -> Any:
        h = et.tanh(x @ weights + h @ inner + bias)
        return h, et.mean(h * x)

    last, losses = et.scan(step, np.zeros((4, WIDTH)), xs)
    return losses.sum() + (last * last).sum()


def branching(x: Any) -> Any:
    half = np.float64(0.5)

    def step(c: Any, t: Any) -> Any:
        c = et.cond(c > t, lambda v: et.sin(v) * x, lambda v: v * v + t, c)
        inner = et.fori_loop(0, 3, lambda i, d: d * half + et.cos(c * i.astype("float64")), x * c)
        return c + 0.25 * inner, et.where(t > 0.5, inner, c)

    last, seen = et.scan(step, x * 1.5, np.array([0.1, 0.9, 0.4, 1.2]))
    return last + (seen * seen).sum()


def halving(x: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] * 0.5, c[1] + et.sin(c[0]) * x

    return et.while_loop(lambda c: c[0] > 1.0, body, (x * 10.0, x))[1]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_recurrent_network_of_100_steps(compiled: bool) -> None:
    step = et.value_and_grad(recurrent)
    value, slopes = (et.jit(step) if compiled else step)(PARAMS)
    check("recurrent", (value, slopes), 64 * STEPS)


def test_a_hessian_vector_product_of_100_steps() -> None:
    product = et.jit(lambda p: et.jvp(et.grad(recurrent), (p,), (p,))[1])
    check("recurrent_product", product(PARAMS), 64 * STEPS)


@pytest.mark.parametrize("unroll", [3, True])
def test_an_unrolled_network(unroll: Any) -> None:
    def loss(w: Any, unroll: Any) -> Any:
        step = lambda h, x: (et.tanh(h * w + x), h * x)
        last, seen = et.scan(step, 0.5, xs, unroll=unroll, reverse=True)
        return last + (seen * seen).sum()

    xs = et.array(np.linspace(-1, 1, 10, dtype=np.float32))
    want, got = et.value_and_grad(loss)(0.7, 1), et.value_and_grad(loss)(0.7, unroll)
    for a, b in zip(got, want, strict=True):
        assert abs(float(a) - float(b)) <= 16 * 2.0**-23 * max(1.0, abs(float(b)))


def test_loops_with_branches_inside() -> None:
    points = et.array(POINTS)
    check("branching", (et.vmap(branching)(points), et.vmap(et.grad(branching))(points)), 256)
    slopes = [float(et.jit(et.grad(branching))(np.float64(x))) for x in POINTS]
    check("branching", (et.map(branching, points), np.array(slopes)), 256)
    check("branching_twice", et.vmap(et.hessian(branching))(points), 1024)
    check("branching_twice", et.vmap(et.jit(et.jacfwd(et.jacrev(branching))))(points), 1024)


def test_loops_of_unknown_length() -> None:
    points = et.array(POINTS)
    tangent = lambda x: et.jvp(halving, (x,), (np.float64(1.0),))[1]
    check("halving", (et.vmap(halving)(points), et.vmap(tangent)(points)), 256)
    check("halving", (et.map(halving, points), et.jit(et.vmap(tangent))(points)), 256)
