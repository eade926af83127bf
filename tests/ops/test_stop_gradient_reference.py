"""stop_gradient is an identity that no derivative passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


def test_value_and_type() -> None:
    for value in (np.arange(3, dtype=np.int8), np.ones((2, 0), np.float16)):
        got = et.stop_gradient(value)
        assert got.dtype == value.dtype
        np.testing.assert_array_equal(got.numpy(), value)


def test_no_derivative_passes_in_any_mode_or_order() -> None:
    def f(x: Any) -> Any:
        return x * et.stop_gradient(x * x)

    assert float(et.grad(f)(3.0)) == 9.0
    assert float(et.grad(et.grad(f))(3.0)) == 0.0
    assert [float(v) for v in et.jvp(f, (3.0,), (1.0,))] == [27.0, 9.0]
    assert float(et.jvp(et.grad(f), (3.0,), (1.0,))[1]) == 0.0
    assert float(et.grad(lambda x: et.jvp(f, (x,), (1.0,))[1])(3.0)) == 0.0


def test_what_it_stops_needs_no_derivative() -> None:
    """Reverse mode does not enter what is behind it: a while_loop has no reverse mode."""

    def grown(value: Any, beside: Any) -> Any:
        return et.while_loop(lambda c: c[0] < 100, lambda c: (c[0] * 2, c[1]), (value, beside))[0]

    assert float(et.grad(lambda x: x * grown(et.stop_gradient(x), 1.0))(3.0)) == 192.0
    # The other part of the carry depends on x, but is not what is used.
    assert float(et.grad(lambda x: x * grown(et.stop_gradient(x), x))(3.0)) == 192.0
    ir = str(et.make_ir(et.grad(lambda x: x * et.sin(et.stop_gradient(x))))(3.0))
    assert "sin" in ir and "cos" not in ir


def test_it_is_batched_and_compiled() -> None:
    f = et.jit(et.vmap(et.grad(lambda x: et.sum(x * et.stop_gradient(x)))))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(f(x).numpy(), x)
    f = et.vmap(lambda x, y: y + et.stop_gradient(x), in_axes=(None, 0))
    np.testing.assert_array_equal(f(x[0], x).numpy(), x + x[0])
