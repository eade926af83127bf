"""`scan`, `map` and `associative_scan` against loops in Python."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import pyeffect_torch as et

f32 = np.float32


class State(NamedTuple):
    h: Any
    count: Any


def stepped(c: State, x: dict[str, Any]) -> tuple[State, Any]:
    h = c.h * 0.5 + x["a"].sum() + x["b"]
    return State(h, c.count + 1), {"seen": h, "both": (c.count, None)}


@pytest.mark.parametrize("unroll", [1, 2, 3, 7, 50, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_trees_and_directions(reverse: bool, unroll: Any) -> None:
    a, b = np.arange(14, dtype=f32).reshape(7, 2), np.linspace(0, 1, 7, dtype=f32)
    last, ys = et.scan(stepped, State(1.0, 0), {"a": a, "b": b}, reverse=reverse, unroll=unroll)
    h, seen = f32(1.0), np.zeros(7, f32)
    for t in reversed(range(7)) if reverse else range(7):
        h = h * f32(0.5) + a[t].sum() + b[t]
        seen[t] = h
    assert isinstance(last, State)
    assert np.allclose(last.h.numpy(), h)
    assert int(last.count) == 7
    assert np.allclose(ys["seen"].numpy(), seen)
    counts = list(range(7))
    assert ys["both"][0].tolist() == (counts[::-1] if reverse else counts)
    assert ys["both"][1] is None


def test_unrolled_steps_are_in_one_pass() -> None:
    def passes(unroll: Any) -> list[Any]:
        def f(x: Any) -> Any:
            step = lambda c, t: (et.sin(c) * t, None)
            return et.scan(step, x, np.ones(7, f32), unroll=unroll)[0]

        text = str(et.make_ir(f)(0.5))
        return [text.count("= sin("), "length=2" in text, "scan(" in text]

    assert passes(1) == [1, False, True]
    assert passes(3) == [4, True, True]  # three in the body, one left over
    assert passes(True) == [7, False, False]


def test_no_steps_when_unrolled() -> None:
    last, ys = et.scan(lambda c, t: (c + t, c), 1.0, np.zeros(0, f32), unroll=4)
    assert float(last) == 1.0
    assert ys.shape == (0,)


def test_length_without_xs() -> None:
    last, ys = et.scan(lambda c, x: (c * 2, (c, x)), 1, length=4)
    assert int(last) == 16
    assert ys[0].tolist() == [1, 2, 4, 8]
    assert ys[1] is None
    assert et.scan(lambda c, x: (c, None), (), length=3) == ((), None)
    assert et.scan(lambda c, x: (c, et.ones(2)), None, length=3)[1].shape == (3, 2)


def test_numpy_and_python_numbers_keep_their_dtypes() -> None:
    last, ys = et.scan(lambda c, x: (c + x, c > 2), np.float64(1), np.ones(3))
    assert last.dtype == np.float64
    assert ys.dtype == np.bool_
    turned = et.scan(lambda c, x: (~c, c), True, length=3)[1]
    assert turned.tolist() == [True, False, True]
    for dtype in ("bfloat16", "float16", "uint8", "int32", "uint64"):
        row = et.ones(4, dtype)
        got = et.scan(lambda c, x: (c + x, c), row[0], row)
        assert got[0].dtype == got[1].dtype == row.dtype
        assert float(got[0].astype("float32")) == 5


def test_map() -> None:
    xs = {"a": np.arange(6, dtype=f32).reshape(3, 2), "b": np.arange(3)}
    got = et.map(lambda x: (x["a"] * 2, x["b"] + 1), xs)
    assert np.array_equal(got[0].numpy(), xs["a"] * 2)
    assert got[1].tolist() == [1, 2, 3]
    slopes = et.grad(lambda a: et.map(lambda x: (x * x).sum(), a).sum())(xs["a"])
    assert np.array_equal(slopes.numpy(), 2 * xs["a"])


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan_is_a_running_result(count: int, reverse: bool) -> None:
    rng = np.random.default_rng(count)
    matrices = rng.uniform(-1, 1, (count, 2, 2))
    got = et.associative_scan(et.matmul, et.array(matrices), reverse=reverse).numpy()
    rows = matrices[::-1] if reverse else matrices
    want: list[Any] = []
    for row in rows:
        want.append(row if not want else want[-1] @ row)
    expected = np.array(want[::-1] if reverse else want).reshape(count, 2, 2)
    assert np.allclose(got, expected, rtol=1e-12)
    sums = rng.uniform(-1, 1, (3, count, 2))
    for axis in (1, -2):
        running = et.associative_scan(et.add, et.array(sums), reverse=reverse, axis=axis).numpy()
        flipped = np.flip(np.flip(sums, 1).cumsum(1), 1) if reverse else sums.cumsum(1)
        assert np.allclose(running, flipped, rtol=1e-12)


def test_associative_scan_of_a_linear_recurrence() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 1, 9), rng.uniform(-1, 1, 9)

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], right[0] * left[1] + right[1]

    def fast(a: Any, b: Any) -> Any:
        return et.associative_scan(combine, (a, b))[1]

    def slow(a: Any, b: Any) -> Any:
        return et.scan(lambda h, ab: (ab[0] * h + ab[1],) * 2, np.float64(0), (a, b))[1]

    assert np.allclose(fast(a, b).numpy(), slow(a, b).numpy(), rtol=1e-12)
    slopes = [et.grad(lambda a, b, f=f: (f(a, b) ** 2).sum(), (0, 1))(a, b) for f in (fast, slow)]
    for one, two in zip(*slopes, strict=True):
        assert np.allclose(one.numpy(), two.numpy(), rtol=1e-12)


def test_a_loop_of_many_steps() -> None:
    count = 20_000
    total = et.jit(lambda n: et.fori_loop(0, count, lambda i, c: c + i * n, 0))
    assert int(total(3)) == 3 * count * (count - 1) // 2
    until = et.jit(lambda n: et.while_loop(lambda c: c < n, lambda c: c + 1, 0))
    assert int(until(count)) == count
