"""`jit(constant_argnums=)`: trees of arrays that are bound to the program once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et

TRACES: list[str] = []


def predict(params: Any, x: Any) -> Any:
    TRACES.append("predict")
    return et.tanh(x @ params["w"] + params["b"]) * params["scale"]


def parameters(scale: float = 2.0) -> dict[str, Any]:
    w = et.array(np.arange(6, dtype=np.float32).reshape(2, 3) / 10)
    return {"w": w, "b": et.ones(3) * 0.5, "scale": scale}


@pytest.fixture(autouse=True)
def no_traces() -> None:
    TRACES.clear()


def test_the_same_arrays_find_the_program_and_others_trace_anew() -> None:
    f = et.jit(predict, constant_argnums=0)
    params, x = parameters(), et.ones((4, 2))
    want = predict(params, x).numpy()
    TRACES.clear()
    for _ in range(3):
        np.testing.assert_allclose(f(params, x).numpy(), want, rtol=2.0**-22)
    f(dict(params), x)  # another dict of the same arrays
    assert len(TRACES) == 1
    f({**params, "b": params["b"] + 0}, x)
    f({**params, "scale": 3.0}, x)
    assert len(TRACES) == 3
    assert f.explain_retrace() == "params: another constant"
    f(params, et.ones((5, 2)))
    assert len(TRACES) == 4


def test_constants_are_inputs_no_more() -> None:
    params, x = parameters(), et.ones((4, 2))
    program = et.jit(predict, constant_argnums=0).lower(params, x).compile()
    assert program.program.formal_count == 1
    assert et.jit(predict).lower(params, x).compile().program.formal_count == 4


def test_positions_names_and_negative_positions() -> None:
    params, x = parameters(), et.ones((4, 2))
    want = predict(params, x).tolist()
    assert et.jit(predict, constant_argnums=0)(x=x, params=params).tolist() == want
    assert et.jit(predict, constant_argnums=-2)(params, x).tolist() == want
    g = et.jit(lambda *args: predict(*args), constant_argnums=-2)
    assert g(params, x).tolist() == g(params, x).tolist() == want
    both = et.jit(lambda p, x, k: predict(p, x) * k, constant_argnums=0, static_argnums=2)
    assert both(params, x, 2).tolist() == (2 * et.array(want)).tolist()
    donating = et.jit(predict, constant_argnums=0, donate_argnums=1)
    assert donating(params, x).tolist() == want
    assert x.is_deleted() and not params["w"].is_deleted()


def test_the_arrays_are_constants_of_a_derivative_too() -> None:
    params = parameters()
    f = et.jit(predict, constant_argnums=0)
    x = et.ones((1, 2))
    slope = et.grad(lambda v: et.sum(f(params, v)))(x)
    want = et.grad(lambda v: et.sum(predict(params, v)))(x)
    np.testing.assert_allclose(slope.numpy(), want.numpy(), rtol=2.0**-20)
    by_params = et.grad(lambda p: et.sum(f(p, x)))({**params, "scale": et.constant(2.0)})
    assert by_params["w"].shape == (2, 3)
    assert float(et.sum(et.abs(by_params["w"]))) > 0
    rows = et.jit(et.vmap(lambda v: f(params, v)))(et.ones((5, 1, 2)))
    assert rows.shape == (5, 1, 3)


def test_the_runtime_is_that_of_the_constants() -> None:
    with et.use(et.reference()):
        table = et.array([1.0, 2.0])
    f = et.jit(lambda t: t * 2, constant_argnums=0)
    assert f(table).placement is et.reference()
    with pytest.raises(et.errors.ForeignHandleError):
        et.jit(lambda t, x: t * x, constant_argnums=0)(table, et.array([1.0, 1.0]))


def test_refusals() -> None:
    f = et.jit(predict, constant_argnums=0)
    params = parameters()
    with pytest.raises(et.errors.ArgumentError, match=r"made of arrays and numbers, got ndarray"):
        f({**params, "w": np.ones((2, 3), np.float32)}, et.ones((1, 2)))
    for options in ({"static_argnums": 0}, {"donate_argnums": 0}):
        with pytest.raises(et.errors.ArgumentError, match="is constant and also static or donated"):
            et.jit(predict, constant_argnums=0, **options)
    with pytest.raises(et.errors.ArgumentError, match="constant_argnums 5 is out of range"):
        et.jit(predict, constant_argnums=5)
    with pytest.raises(et.errors.ArgumentError, match="constant_argnums must be ints"):
        et.jit(predict, constant_argnums="params")
    f(params, et.ones((1, 2)))
    params["w"].delete()
    with pytest.raises(et.errors.InvalidHandleError, match="was deleted"):
        f(params, et.ones((1, 2)))
