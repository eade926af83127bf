"""The traps of transforms and control flow together, each with its right answer."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.graph import TOKENS
from pyeffect_torch.runtime.decode import Decoded, decode
from pyeffect_torch.runtime.encode import encode

pytestmark = pytest.mark.usefixtures("runtime")

f32 = np.float32
EPS = float(np.finfo(f32).eps)
T = np.arange(3, dtype=f32)


def close(got: Any, want: Any, roundings: int = 16) -> None:
    """Assert equality within a number of float32 roundings of the largest value."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    scale = np.max(np.abs(want), initial=1.0)
    np.testing.assert_allclose(got, want, rtol=0, atol=roundings * EPS * scale)


def compiled(f: Any, *args: Any) -> Decoded:
    """The program of `f`, as it is encoded."""
    return decode(et.freeze(f, *args).program.blob)


def runs(program: Decoded, opcode: str, blocks: list[Decoded] | None = None) -> int:
    """How often an opcode is executed, steps of scans counted."""
    blocks = program.blocks if blocks is None else blocks
    total = 0
    for name, _, attributes, _ in program.instructions:
        total += name == opcode
        if name == "scan":
            inner = blocks[attributes["body"]]
            total += attributes["length"] * runs(inner, opcode, blocks)
    return total


def scans(program: Decoded) -> list[tuple[int, int, int]]:
    """Of each scan of a program: captures, carries and stacked results."""
    return [
        (attributes["captures"], attributes["carries"], len(types) - attributes["carries"])
        for name, _, attributes, types in program.instructions
        if name == "scan"
    ]


def polynomial(x: Any) -> Any:
    return et.scan(lambda c, t: (c * x + t, c), x, et.array(T))[0]


# --- scan


def test_derivatives_of_a_scan() -> None:
    close(polynomial(2.0), 20)
    close(et.grad(polynomial)(2.0), 33)
    close(et.grad(et.grad(polynomial))(2.0), 48)
    close(et.vmap(et.grad(polynomial))(et.array([1.0, 2.0])), [5, 33])
    close(et.jit(et.grad(et.grad(et.grad(polynomial))))(2.0), 48)
    close(et.jvp(polynomial, (2.0,), (1.0,))[1], 33)
    close(et.hessian(polynomial)(2.0), 48)


def test_a_body_that_differentiates_a_closure_over_an_outer_leaf() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, t: Any) -> Any:
            slope = et.grad(lambda y: x * y * y * t)(c)  # 2 x c t
            return c + slope, None

        return et.scan(step, x, et.array(f32([1.0, 0.5])))[0]

    # c1 = x + 2x^2, c2 = c1 + x c1 = x + 3x^2 + 2x^3
    close(f(0.7), 0.7 + 3 * 0.49 + 2 * 0.343)
    close(et.grad(f)(0.7), 1 + 6 * 0.7 + 6 * 0.49)
    close(et.grad(et.grad(f))(0.7), 6 + 12 * 0.7)


def test_scan_in_scan_three_times_differentiated() -> None:
    def f(x: Any) -> Any:
        def inner(c: Any, t: Any) -> Any:
            return c * x + t, None

        def outer(c: Any, t: Any) -> Any:
            return et.scan(inner, c * t, et.array(T))[0], None

        return et.scan(outer, x, et.array(f32([1.0, 0.5])))[0]

    # One pass of the inner one is p(c) = c x^3 + x + 2, twice with c = x and half of that.
    x = 0.7
    close(f(x), 0.5 * (x**7 + x**4 + 2 * x**3) + x + 2)
    close(et.grad(f)(x), 0.5 * (7 * x**6 + 4 * x**3 + 6 * x**2) + 1)
    third = 0.5 * (7 * 6 * 5 * x**4 + 4 * 3 * 2 * x + 12)
    close(et.jit(et.grad(et.grad(et.grad(f))))(x), third)
    close(et.grad(et.grad(et.grad(f)))(x), third)


def test_a_carry_that_is_replaced_by_a_capture() -> None:
    def f(w: Any) -> Any:
        last, seen = et.scan(lambda c, _: (w, c * c), 2.0, length=3)
        return last + seen.sum()

    close(f(1.5), 1.5 + 4 + 2 * 1.5**2)
    close(et.grad(f)(1.5), 7)
    close(et.jvp(f, (1.5,), (1.0,))[1], 7)
    close(et.vmap(f)(et.array([1.5, 2.0])), [10, 14])


def test_a_carry_that_becomes_batched_at_the_third_pass() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, t: Any) -> Any:
            return (c[1], c[2], c[2] + t * x), c[0]

        return et.scan(step, (1.0, 1.0, 1.0), et.array(f32([1, 2, 3, 4])))

    rows = et.array([0.5, -1.0])
    got = et.vmap(f)(rows)
    each = [f(row) for row in rows]
    for mine, theirs in zip(
        et.tree.leaves(got), zip(*map(et.tree.leaves, each), strict=True), strict=True
    ):
        close(mine, np.stack([np.asarray(value) for value in theirs]))
    total = lambda x: sum(et.tree.leaves(et.tree.map(et.sum, f(x))))
    close(et.vmap(et.grad(total))(rows), [float(et.grad(total)(row)) for row in rows])


def test_no_steps() -> None:
    def f(x: Any) -> Any:
        last, seen = et.scan(lambda c, t: (c * t, c), x, et.zeros((0,)))
        return last + seen.sum()

    close(f(3.0), 3)
    close(et.grad(f)(3.0), 1)
    close(et.jvp(f, (3.0,), (1.0,))[1], 1)
    close(et.vmap(et.grad(f))(et.array([1.0, 2.0])), [1, 1])
    assert et.map(lambda t: t[None], et.zeros((0, 2))).shape == (0, 1, 2)


def test_an_integer_carry_beside_a_floating_one() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            number, value = c
            return (number + 1, value * x), number

        (number, value), numbers = et.scan(step, (0, x), length=2)
        return value * number.astype("float32") / 2 + numbers.sum().astype("float32") * 0

    close(et.grad(f)(2.0), 12)
    close(et.jvp(f, (2.0,), (1.0,))[1], 12)
    close(et.vmap(f)(et.array([2.0, 3.0])), [8, 27])


def test_the_forward_pass_runs_once() -> None:
    def f(x: Any) -> Any:
        return et.scan(lambda c, _: (et.sin(c) * x, None), x, length=5)[0]

    program = compiled(et.value_and_grad(f), 0.5)
    assert runs(program, "sin") == 5
    assert runs(program, "cos") == 5
    joint = compiled(lambda x: et.jvp(f, (x,), (1.0,)), 0.5)
    assert runs(joint, "sin") == 5
    assert runs(joint, "cos") == 5
    assert scans(joint) == [(2, 2, 0)]


def test_reading_a_result_computes_what_others_wait_for() -> None:
    def f(x: Any) -> Any:
        return et.scan(lambda c, _: (et.sin(c) * x, c), x, length=5)

    value, slope = et.value_and_grad(lambda x: f(x)[0])(0.5)
    float(value)
    program = encode([slope], (), et.current().has)
    assert program.operations.count("scan") == 1  # the backward one: the stacks are there
    close(slope, et.grad(lambda x: f(x)[0])(0.5))
    last, seen = f(0.5)
    float(last)
    assert encode([seen.sum()], (), et.current().has).operations.count("scan") == 0
    close(et.jit(lambda: seen)(), et.jit(lambda: f(0.5)[1])())
    close(et.scan(lambda c, x: (c + x, None), 0.0, seen)[0], np.asarray(seen).sum())


def test_what_only_a_body_captures_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []

    def counted(targets: Any, *args: Any, **options: Any) -> Any:
        kept.append(len(targets))
        return encode(targets, *args, **options)

    monkeypatch.setattr("pyeffect_torch.runtime.compute.encode", counted)

    def f(x: Any) -> Any:
        y = et.sin(x)  # captured by both loops, the inner one in the outer
        inner = lambda c: et.scan(lambda d, t: (d + y * t, None), c, et.array(T))[0]
        return et.scan(lambda c, _: (inner(c) * y, None), y, length=2)[0]

    float(f(0.5))
    float(et.grad(f)(0.5))
    assert kept == [1, 1]
    y = et.sin(0.5)
    float(et.scan(lambda c, _: (c * y, None), 1.0, length=2)[0])
    assert kept == [1, 1, 2]  # the caller holds it
    assert y.state == "concrete"


def test_a_scope_with_a_scan_of_which_one_result_is_read() -> None:
    with et.scope() as scope:
        last, seen = et.scan(lambda c, t: (et.sin(c) + t, c), 0.5, et.array(T))
        float(last)
        kept = scope.keep(seen * 1.0)
    assert last.state == "deleted"
    close(kept[0], 0.5)


def test_reading_a_carry_under_a_derivative() -> None:
    def f(x: Any) -> Any:
        last, seen = et.scan(lambda c, _: (et.sin(c) * x, c), x, length=5)
        return last * float(last > 0) + seen.sum()

    def plain(x: Any) -> Any:
        last, seen = et.scan(lambda c, _: (et.sin(c) * x, c), x, length=5)
        return last + seen.sum()

    close(et.grad(f)(0.5), et.grad(plain)(0.5))
    close(et.grad(et.grad(f))(0.5), et.grad(et.grad(plain))(0.5), 64)
    gc.collect()
    assert TOKENS.live == {}
    assert [r for r in TOKENS.pending if r() is not None] == []


def test_only_what_the_backward_pass_reads_is_stacked() -> None:
    def f(w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            a = et.tanh(h @ w + x)  # read: h, and tanh itself
            return a + et.broadcast_to(et.exp(w[0, 0] * 2.0), (4,)), a.sum()  # exp(capture): not

        xs = et.array(np.ones((6, 4), f32))
        return et.scan(step, et.zeros(4), xs)[1].sum()

    program = compiled(et.grad(f), et.spec((4, 4), "float32"))
    forward, backward = scans(program)
    assert forward == (1, 1, 2)
    assert backward[1:] == (2, 0)
    assert runs(compiled(f, et.spec((4, 4), "float32")), "tanh") == 6


def test_a_region_of_which_one_result_is_the_same_in_every_step() -> None:
    def f(x: Any) -> Any:
        both = lambda u, v: (et.sin(u), v * v)

        def step(c: Any, _: Any) -> Any:
            steady, moving = et.checkpoint(both)(x, c)
            other, turning = et.cond(x > 0, both, lambda u, v: (u, v), x, c)
            return (steady * moving + other * turning) * 0.5, None

        return et.scan(step, x, length=2)[0]

    def plain(x: Any) -> Any:
        s = et.sin(x)
        return s * (s * x * x) ** 2

    close(f(0.7), plain(0.7))
    close(et.grad(f)(0.7), et.grad(plain)(0.7))
    close(et.grad(et.grad(f))(0.7), et.grad(et.grad(plain))(0.7), 64)


def test_reductions_over_a_named_axis_inside_bodies() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, t: Any) -> Any:
            return c + t * et.psum(x * c, "rows"), et.pmax(c, "rows")

        return et.scan(step, x, et.array(f32([1, 2])))

    rows = f32([1.0, 2.0, -1.0])
    c, seen = rows, []
    for t in (1, 2):
        seen.append(c.max())
        c = c + t * (rows * c).sum()
    last, most = et.vmap(f, axis_name="rows")(rows)
    close(last, c)
    close(most, [seen] * 3)
    total = lambda r: et.vmap(lambda x: f(x)[0], axis_name="rows")(r).sum()
    close(et.jvp(total, (rows,), (f32([1, 0, 0]),))[1], et.grad(total)(rows)[0])


def test_what_nobody_reads_is_not_encoded() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, t: Any) -> Any:
            return (c[0] * x, c[1] + et.exp(c[1]), et.cos(c[2]) * c[0]), (et.sin(t), c[2] * t)

        (first, _, _), (sines, _) = et.scan(step, (x, x, x), et.array(T))
        return first, sines

    program = compiled(f, 1.0)
    assert scans(program) == [(1, 1, 1)]
    assert runs(program, "exp") == runs(program, "cos") == 0
    assert runs(program, "sin") == 3
    # A derivative of one result needs no cotangents of the others.
    assert scans(compiled(et.grad(lambda x: f(x)[0]), 1.0)) == [(1, 1, 1), (1, 2, 0)]


def test_a_node_made_just_before_the_placeholders_is_a_capture() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return et.scan(lambda c, t: (c + y * t, None), 0.0, et.array(T))[0]

    close(et.jit(f)(1.5), 9)
    close(et.jit(et.grad(f))(1.5), 6)


def test_an_array_made_inside_a_body() -> None:
    def step(c: Any, t: Any) -> Any:
        weights = et.array(f32([1.0, 2.0]))
        scale = float(et.exp(et.array(0.0)))  # may be read: it depends on no placeholder
        return c * scale + (weights * t).sum(), weights

    f = lambda x: et.scan(step, x, et.array(T))
    for g in (f, et.jit(f)):
        last, seen = g(1.0)
        close(last, 10)
        close(seen, [[1, 2]] * 3)
    close(et.grad(lambda x: f(x)[0])(1.0), 1)
    close(et.vmap(lambda x: f(x)[0])(et.array([1.0, 2.0])), [10, 11])


def test_a_value_that_becomes_concrete_after_the_trace() -> None:
    kept: list[Any] = []

    def step(c: Any, _: Any) -> Any:
        kept.append(et.exp(et.ones(2)))
        return c + kept[0].sum(), None

    last, _ = et.scan(step, 0.0, length=2)
    kept[0].numpy()
    close(last, 4 * np.e)


def test_reading_a_value_inside_a_body_is_refused() -> None:
    read = lambda c, t: (c if float(c) > 0 else -c, t)
    with pytest.raises(et.errors.TraceError, match="carry of scan"):
        et.scan(read, 1.0, length=2)
    with pytest.raises(et.errors.TraceError, match="x of map"):
        et.map(lambda x: x if x > 0 else -x, et.array(T))
    with pytest.raises(et.errors.TraceError, match="carry of while_loop"):
        et.while_loop(lambda c: bool(c < 3), lambda c: c + 1, 0)
    with pytest.raises(et.errors.TraceError, match=r"operands\[0\] of cond"):
        et.cond(True, lambda x: x if x > 0 else -x, lambda x: x, 1.0)


# --- branches


def chosen(x: Any) -> Any:
    return et.cond(x < 1.5, lambda z: z * z * z, lambda z: et.sin(z) * x, x)


def test_cond() -> None:
    xs = et.array([1.0, 2.0])
    values = [1.0, np.sin(2.0) * 2.0]
    slopes = [3.0, np.cos(2.0) * 2.0 + np.sin(2.0)]
    second = [6.0, -np.sin(2.0) * 2.0 + 2 * np.cos(2.0)]
    for k, x in enumerate([1.0, 2.0]):
        close(chosen(x), values[k])
        close(et.jit(et.grad(chosen))(x), slopes[k])
        close(et.jvp(chosen, (x,), (1.0,))[1], slopes[k])
        close(et.grad(et.grad(chosen))(x), second[k])
    close(et.vmap(chosen)(xs), values)
    close(et.vmap(et.grad(chosen))(xs), slopes)
    close(et.grad(lambda v: et.vmap(chosen)(v).sum())(xs), slopes)
    close(et.vmap(et.grad(et.grad(chosen)))(xs), second)


def test_only_the_branch_that_is_taken_runs() -> None:
    table = et.array(T)

    def f(i: Any) -> Any:
        return et.cond(i < 3, lambda: table[i], lambda: et.array(-1.0))

    for g in (f, et.jit(f)):
        close(g(et.array(2)), 2)
        close(g(et.array(7)), -1)  # the index would be out of bounds in the other branch


def test_checks_under_a_batched_predicate_are_masked() -> None:
    table = et.array(T)

    def f(i: Any, x: Any) -> Any:
        def look(y: Any) -> Any:
            total = et.scan(lambda c, _: (c + table[i] * y, None), 0.0, length=2)[0]
            return total + et.checkpoint(lambda z: table[i] * z)(y)

        return et.cond(i < 3, look, lambda y: y, x)

    rows, xs = et.array([2, 7, 1]), et.array([1.0, 5.0, 3.0])
    close(et.vmap(f)(rows, xs), [6, 5, 9])
    close(et.vmap(et.grad(f, argnums=1))(rows, xs), [6, 1, 3])
    with pytest.raises(IndexError):
        et.vmap(lambda i, x: et.cond(i < 9, lambda: table[i], lambda: x))(rows, xs).numpy()


def test_checks_of_rows_that_are_done_are_masked() -> None:
    table = et.array(f32([1.0, 2.0, 3.0]))

    def f(n: Any) -> Any:
        return et.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] + table[c[0]]), (0, 0.0))

    close(et.vmap(f)(et.array([1, 3, 0]))[1], [1, 6, 0])


def test_switch_takes_the_nearest_branch() -> None:
    def f(i: Any, x: Any) -> Any:
        return et.switch(i, [lambda y: y, lambda y: y * y, lambda y: y * y * y], x)

    for i, want in ((-5, 3), (0, 3), (1, 9), (2, 27), (99, 27)):
        close(f(i, 3.0), want)
        close(et.jit(f)(et.array(i), 3.0), want)
    close(f(np.uint64(2**63 + 1), 3.0), 27)
    close(et.vmap(f, (0, None))(et.array([-1, 1, 7]), 3.0), [3, 9, 27])
    close(et.vmap(et.grad(f, 1), (0, None))(et.array([-1, 1, 7]), 3.0), [1, 6, 27])
    close(et.switch(0, [lambda: 2.0]), 2)


def test_a_tangent_that_only_one_branch_has() -> None:
    def f(x: Any) -> Any:
        return et.cond(x > 0, lambda y: (y, 1.0), lambda y: (2.0, y * y), x)

    for x, want in ((1.0, (1, 0)), (-3.0, (0, -6))):
        close(et.tree.leaves(et.jvp(f, (x,), (1.0,))[1]), want)
        close(et.grad(lambda y: sum(f(y)))(x), sum(want))


# --- while


def powers(n: Any, x: Any) -> Any:
    return et.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (0, 1.0))[1]


def test_vmap_of_while() -> None:
    close(et.vmap(powers)(et.array([1, 3, 0]), et.array([2.0, 3.0, 4.0])), [2, 27, 1])
    close(et.vmap(powers, (None, 0))(3, et.array([2.0, 3.0])), [8, 27])
    close(et.vmap(powers, (0, None))(et.array([1, 3]), 2.0), [2, 8])


def test_vmap_of_vmap_of_while() -> None:
    counts, xs = et.array([[1, 3], [0, 2]]), et.array([[2.0, 3.0], [4.0, 5.0]])
    close(et.vmap(et.vmap(powers))(counts, xs), [[2, 27], [1, 25]])
    close(et.vmap(et.vmap(powers, (None, 0)), (0, None))(et.array([1, 2]), xs[0]), [[2, 3], [4, 9]])


def test_forward_mode_of_while() -> None:
    close(et.jvp(lambda x: powers(3, x), (2.0,), (1.0,))[1], 12)
    slope = et.vmap(lambda n, x: et.jvp(lambda y: powers(n, y), (x,), (1.0,))[1])
    close(slope(et.array([1, 3, 0]), et.array([2.0, 3.0, 4.0])), [1, 27, 0])
    close(et.jvp(lambda x: et.jvp(lambda y: powers(3, y), (x,), (1.0,))[1], (2.0,), (1.0,))[1], 12)


def test_reverse_mode_of_a_while_that_does_not_depend() -> None:
    def f(x: Any) -> Any:
        return x * et.while_loop(lambda c: c < 4.0, lambda c: c * 1.5, 1.3333334)

    close(et.grad(f)(2.0), 4.5)

    # The number of steps depends on x, but no derivative passes through that.
    def count(x: Any) -> Any:
        limit = et.stop_gradient(x) * 2
        steps = et.while_loop(lambda c: c.astype("float32") < limit, lambda c: c + 1, 0)
        return x * steps.astype("float32")

    close(et.grad(count)(2.0), 4)


def test_reverse_mode_of_a_while_that_depends_is_refused() -> None:
    with pytest.raises(et.errors.TraceError, match=r"(?s)while_loop.*test_traps_control\.py.*scan"):
        et.grad(lambda x: powers(3, x))(2.0)


def test_fori_loop() -> None:
    f = lambda x: et.fori_loop(0, 3, lambda i, c: c * x, x * 0 + 1)
    close(et.grad(f)(2.0), 12)
    total = lambda n: et.fori_loop(1, n, lambda i, c: c + i, 0)
    close(total(5), 10)
    close(et.jit(total)(et.array(5)), 10)
    close(et.jit(total)(et.array(0)), 0)
    close(et.fori_loop(4, 2, lambda i, c: c + i, 7), 7)
    close(et.vmap(total)(et.array([3, 5])), [3, 10])


# --- checkpoint, custom rules, nested jit


def test_checkpoint_inside_and_around() -> None:
    def plain(x: Any) -> Any:
        return et.scan(lambda c, t: (et.sin(c) * x + t, None), x, et.array(T))[0]

    @et.checkpoint
    def step(c: Any, x: Any, t: Any) -> Any:
        return et.sin(c) * x + t

    inside = lambda x: et.scan(lambda c, t: (step(c, x, t), None), x, et.array(T))[0]
    for f in (inside, et.checkpoint(plain), et.checkpoint(plain, "everything"),
              et.checkpoint(plain, "dots"), et.checkpoint(inside)):  # fmt: skip
        close(f(0.7), plain(0.7))
        close(et.grad(f)(0.7), et.grad(plain)(0.7))
        close(et.jit(et.grad(et.grad(f)))(0.7), et.grad(et.grad(plain))(0.7), 64)
        close(et.vmap(et.grad(f))(et.array([0.7, 0.2])),
              [float(et.grad(plain)(v)) for v in (0.7, 0.2)])  # fmt: skip
    # What is recomputed is not stacked: the carry alone is.
    assert scans(compiled(et.grad(inside), 0.7))[0] == (1, 1, 1)


def test_a_checkpoint_policy_inside_a_body() -> None:
    weights = et.array(np.linspace(-1, 1, 16, dtype=f32).reshape(4, 4))

    def loss(policy: str) -> Any:
        step = et.checkpoint(lambda c, x: et.sin(et.sin(c @ weights)) * x, policy)
        return lambda x: et.scan(lambda c, _: (step(c, x), None), et.ones(4), length=3)[0].sum()

    want = et.grad(loss("nothing"))(0.5)
    close(et.grad(loss("dots"))(0.5), want)
    close(et.grad(loss("everything"))(0.5), want)
    products = {
        p: runs(compiled(et.grad(loss(p)), 0.5), "dot_general") for p in ("nothing", "dots")
    }
    assert products == {"nothing": 9, "dots": 6}  # recomputed, or kept by the forward scan


def test_custom_rules_inside_bodies() -> None:
    @et.custom_jvp
    def bent(x: Any) -> Any:
        return et.sin(x)

    bent.defjvp(lambda primals, tangents: (bent(*primals), tangents[0] * 3.0 * primals[0]))

    @et.custom_vjp
    def steep(x: Any) -> Any:
        return et.sin(x)

    steep.defvjp(lambda x: (et.sin(x), x), lambda x, ct: (3.0 * x * ct,))
    for f in (bent, steep):
        g = lambda x, f=f: et.scan(lambda c, _: (f(c), None), x, length=2)[0]
        want = 3 * np.sin(0.5) * 3 * 0.5
        close(et.grad(g)(0.5), want)
        close(et.jit(et.grad(g))(0.5), want)
        close(et.vmap(et.grad(g))(et.array([0.5, 0.5])), [want, want])
        h = lambda x, f=f: et.cond(x > 0, f, lambda y: y, x)
        close(et.grad(h)(0.5), 1.5)
    twice = lambda x: et.scan(lambda c, _: (bent(c), None), x, length=2)[0]
    close(et.jvp(twice, (0.5,), (1.0,))[1], 3 * np.sin(0.5) * 3 * 0.5)


def test_a_rule_that_closes_over_what_its_function_does_not() -> None:
    def f(x: Any, scale: Any) -> Any:
        @et.custom_vjp
        def g(y: Any) -> Any:
            return et.sin(y)

        wide = scale * 2.0
        g.defvjp(lambda y: (et.sin(y), y), lambda y, ct: (ct * et.jit(lambda v: v * wide)(y),))
        return et.scan(lambda c, _: (g(c), None), x, length=2)[0]

    want = 3 * np.sin(0.5) * 3 * 0.5
    close(et.grad(f)(0.5, 1.5), want)
    close(et.jit(et.grad(f))(0.5, 1.5), want)
    close(et.vmap(et.grad(f))(et.array([0.5, 0.5]), et.array([1.5, 3.0])), [want, 4 * want])


def test_a_nested_jit_is_traced_once() -> None:
    g = et.jit(lambda c, t: et.sin(c) * t)
    f = lambda x: et.scan(lambda c, t: (g(c, t), None), x, et.array(T))[0]
    close(et.grad(f)(0.5), et.grad(lambda x: g(g(g(x, 0.0), 1.0), 2.0))(0.5))
    close(et.jit(et.grad(f))(0.5), et.grad(f)(0.5))
    et.vmap(lambda p: et.cond(p, g, g, 0.5, 1.0))(et.array([True, False]))
    assert g.stats.traces == 1


def test_linearize_and_hessian_with_a_scan() -> None:
    def f(x: Any) -> Any:
        value, tangent = et.linearize(polynomial, x)
        return et.cond(x > 0, lambda: value + tangent(1.0), lambda: x)

    close(et.jit(f)(2.0), 53)
    close(et.hessian(f)(2.0), 48 + 48)
    close(et.jacrev(polynomial)(2.0), 33)
    out, pullback = et.vjp(polynomial, 2.0)
    close(out, 20)
    close(pullback(2.0)[0], 66)


# --- implicit randomness


def test_each_step_draws_its_own() -> None:
    def f(x: Any) -> Any:
        return et.scan(lambda c, _: (c, et.rand(()) + c), x, length=4)[1]

    for g in (f, et.jit(f)):
        first, second = g(0.0).tolist(), g(0.0).tolist()
        assert len({*first, *second}) == 8
    rows = et.vmap(f)(et.zeros(3)).numpy()
    assert len(set(rows.ravel().tolist())) == 12
    assert len(set(et.map(lambda x: x + et.rand(()), et.zeros(4)).tolist())) == 4
    assert (
        len(set(et.fori_loop(0, 3, lambda i, c: c.at[i].set(et.rand(())), et.zeros(3)).tolist()))
        == 3
    )


def test_a_draw_in_a_step_is_the_same_in_the_backward_pass() -> None:
    def f(x: Any) -> Any:
        step = et.checkpoint(lambda c: et.rand(()) * c * c)
        return et.scan(lambda c, _: (step(c), None), x, length=2)[0]

    # r2 (r1 x^2)^2: the slope is four times the value over x
    for g in (f, et.checkpoint(f)):
        value, slope = et.jit(et.value_and_grad(g))(0.5)
        close(slope, 4 * np.asarray(value) / 0.5, 64)


def test_a_draw_without_a_key_in_a_while_loop_is_refused() -> None:
    with pytest.raises(et.errors.TraceError, match="carry a key through the loop"):
        et.while_loop(lambda c: c < 3, lambda c: c + et.rand(()), 0.0)
    with pytest.raises(et.errors.TraceError, match="carry a key"):
        et.while_loop(lambda c: et.rand(()) < c, lambda c: c, 0.0)


# --- threads


def test_threads_on_one_cached_trace_with_a_scan_in_a_scan() -> None:
    def f(x: Any) -> Any:
        def outer(c: Any, t: Any) -> Any:
            return et.scan(lambda d, _: (et.sin(d) * x, None), c, length=2)[0] + t, None

        return et.scan(outer, x, et.array(T))[0]

    g = et.jit(f)
    want = [float(et.grad(g)(0.5)), float(et.grad(et.grad(g))(0.5))]
    fixed = et.scan(lambda c, t: (et.sin(c) * t, c), et.array(0.5), et.array(T))  # one lazy base
    base = float(et.scan(lambda c, t: (et.sin(c) * t, c), et.array(0.5), et.array(T))[1].sum())
    wrong: list[Any] = []
    here = et.current()

    def work() -> None:
        with et.use(here):
            for _ in range(5):
                got = [float(et.grad(g)(0.5)), float(et.grad(et.grad(g))(0.5))]
                if not np.allclose(got, want, rtol=64 * EPS):
                    wrong.append(got)
                slope = et.grad(lambda x: (fixed[1] * x).sum() + fixed[0])(2.0)
                if not np.allclose(float(slope), base, rtol=64 * EPS):
                    wrong.append(slope)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    gc.collect()
    assert TOKENS.live == {}
