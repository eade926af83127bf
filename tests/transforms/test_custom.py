"""`custom_vjp` and `custom_jvp`: what their rules may do, and what is said of wrong ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et


def test_a_rule_that_is_not_linear_in_the_tangent_is_named() -> None:
    @et.custom_jvp
    def square(x: Any) -> Any:
        return x * x

    square.defjvp(lambda primals, tangents: (primals[0] * primals[0], tangents[0] * tangents[0]))
    with pytest.raises(et.errors.TraceError, match="custom_jvp square: its jvp rule is not linear"):
        et.grad(lambda x: square(x).sum())(et.ones(3))


def test_nondiff_argnums_count_from_the_end() -> None:
    scale = et.custom_vjp(lambda x, n: x * n, nondiff_argnums=(-1,))
    scale.defvjp(lambda x, n: (x * n, None), lambda n, residuals, ct: (ct * (n + 1),))
    assert np.array_equal(et.grad(lambda x: scale(x, 3.0).sum())(et.ones(2)).numpy(), [4, 4])


def test_nondiff_argnums_out_of_range_are_refused() -> None:
    scale = et.custom_vjp(lambda x: x, nondiff_argnums=(2,))
    scale.defvjp(lambda x: (x, None), lambda residuals, ct: (ct,))
    with pytest.raises(et.errors.ArgumentError, match=r"nondiff_argnums.* 2 is out of range"):
        scale(et.ones(2))


def test_an_integer_result_of_a_custom_jvp_has_no_tangent() -> None:
    @et.custom_jvp
    def split(x: Any) -> Any:
        return x * x, (x > 1).astype("int32")

    def rule(primals: Any, tangents: Any) -> Any:
        x, t = primals[0], tangents[0]
        return (x * x, (x > 1).astype("int32")), (2 * x * t, et.ones(x.shape, "int32"))

    split.defjvp(rule)

    def f(x: Any) -> Any:
        y, count = split(x)
        return y, count.astype("float32")

    x = et.array([0.5, 3.0])
    _, (tangent, count) = et.jvp(f, (x,), (et.ones(2),))
    assert np.array_equal(tangent.numpy(), [1, 6])
    assert np.array_equal(count.numpy(), [0, 0])


def test_a_jvp_rule_may_push_through_a_checkpoint() -> None:
    """The backward pass of the joint body reads no tangent, so it must not depend on one."""
    inner = et.checkpoint(lambda x: et.sin(x) * x)
    f = et.custom_jvp(inner)
    f.defjvp(lambda primals, tangents: et.jvp(inner, primals, tangents))
    at = 0.7
    slope = math.sin(at) + at * math.cos(at)
    assert float(et.grad(f)(at)) == pytest.approx(slope, rel=1e-6)
    second = 2 * math.cos(at) - at * math.sin(at)
    assert float(et.grad(et.grad(f))(at)) == pytest.approx(second, rel=1e-6)


def test_a_jvp_rule_may_compare_what_a_checkpoint_gives() -> None:
    """The primal comes from the body that computes the tangent with it, and depends on neither."""

    def inner(x: Any) -> Any:
        y = et.checkpoint(lambda x: x * x)(x)
        return et.maximum(x, y) * y

    f = et.custom_jvp(inner)
    f.defjvp(lambda primals, tangents: et.jvp(inner, primals, tangents))
    for at, slope, second in ((0.5, 3 * 0.5**2, 6 * 0.5), (2.0, 4 * 2.0**3, 12 * 2.0**2)):
        assert float(et.grad(f)(at)) == pytest.approx(slope, rel=1e-6)
        assert float(et.grad(et.grad(f))(at)) == pytest.approx(second, rel=1e-6)
        assert float(et.jit(et.grad(f))(at)) == pytest.approx(slope, rel=1e-6)


def test_a_checkpoint_in_a_branch_is_encoded_without_what_is_not_read() -> None:
    """A backward pass may leave out a tangent that the checkpoint in its branch still has."""
    inner = et.checkpoint(et.sin)

    def f(x: Any) -> Any:
        return et.cond(x > 0.0, inner, lambda y: y * y, x)

    def pushed(x: Any) -> Any:
        return et.jvp(f, (x,), (x * x,))[1]

    def pulled(x: Any) -> Any:
        return et.vjp(pushed, x)[1](x)[0]

    at = 0.7
    slope = math.cos(at) * 2 * at - math.sin(at) * at * at  # of x * x * cos(x)
    assert float(et.jit(pulled)(at)) == pytest.approx(slope * at, rel=1e-6)
    second = 2 * math.cos(at) - 4 * at * math.sin(at) - at * at * math.cos(at)
    assert float(et.grad(pulled)(at)) == pytest.approx(second * at + slope, rel=1e-6)
