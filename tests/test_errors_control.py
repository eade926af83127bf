"""What control flow says of wrong arguments: what, the user's line, and the cure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError, TraceError, TreeError

f32 = np.float32
XS = np.ones((3, 2), f32)


def said(raised: pytest.ExceptionInfo[et.errors.EffectTorchError]) -> str:
    """The message, which names a line of this file and ends with a cure."""
    error = raised.value
    assert "test_errors_control.py" in error.where
    assert error.mend
    return str(error)


def test_a_carry_of_another_tree() -> None:
    with pytest.raises(TreeError) as raised:
        et.scan(lambda c, x: ((c["h"], x), None), {"h": 0.0}, XS)
    text = said(raised)
    assert "the carry of a step" in text
    assert "{'h': *}" in text
    assert "(*, *)" in text


def test_a_carry_of_another_type() -> None:
    def step(c: Any, x: Any) -> Any:
        return {"h": c["h"] + x, "n": c["n"], "z": c["z"].astype("float64")}, None

    with pytest.raises(TreeError) as raised:
        et.scan(step, {"h": 0.0, "n": 1, "z": 0.0}, XS)
    text = said(raised)
    assert "carry['h'] is float32[] before the step and float32[2] after it" in text
    assert "carry['z'] is float32[] before the step and float64[] after it" in text
    assert "carry['n']" not in text
    assert text.count("test_errors_control.py") == 3  # where each was made, and the call
    assert "start from an init that has those" in text


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("while_loop", lambda: et.while_loop(lambda c: c < 3, lambda c: c * 1.0 + XS[0], 0.0)),
        ("fori_loop", lambda: et.fori_loop(0, 3, lambda i, c: c + XS[0], 0.0)),
        ("fori_loop", lambda: et.fori_loop(0, et.array(3), lambda i, c: c + XS[0], 0.0)),
    ],
)
def test_a_carry_of_another_type_in_other_loops(what: str, call: Any) -> None:
    with pytest.raises(TreeError) as raised:
        call()
    assert said(raised).startswith(f"{what}: a step must return the carry as it came in")
    assert "carry is float32[] before the step and float32[2] after it" in str(raised.value)


def test_xs_of_different_lengths() -> None:
    with pytest.raises(ShapeError) as raised:
        et.scan(lambda c, x: (c, x["a"]), 0.0, {"a": XS, "b": XS[:2]})
    assert "xs['a']: 3, xs['b']: 2" in said(raised)
    with pytest.raises(ShapeError) as raised:
        et.scan(lambda c, x: (c, x), 0.0, XS, length=4)
    assert "length: 4, xs: 3" in said(raised)
    with pytest.raises(ShapeError) as raised:
        et.map(lambda x: x, (XS, 1.0))
    assert "xs[1] is float32[], which has no leading axis" in said(raised)


def test_lengths() -> None:
    with pytest.raises(ArgumentError) as raised:
        et.scan(lambda c, x: (c, x), 0.0)
    assert "neither xs nor length" in said(raised)
    for length in (-1, True, 2.0, np.ones(2)):
        with pytest.raises(ArgumentError) as raised:
            et.scan(lambda c, x: (c, x), 0.0, length=length)
        assert "pass an int, 0 or more" in said(raised)
    for unroll in (0, -2, 1.5, False):
        with pytest.raises(ArgumentError) as raised:
            et.scan(lambda c, x: (c, x), 0.0, length=3, unroll=unroll)
        assert "pass an int, 1 or more, or True" in said(raised)


def test_a_body_that_returns_no_pair() -> None:
    with pytest.raises(ArgumentError) as raised:
        et.scan(lambda c, x: c, 0.0, XS)
    assert "must return a pair (carry, y), got Array" in said(raised)
    assert "return (carry, None)" in str(raised.value)


def test_predicates() -> None:
    branch = lambda x: x
    with pytest.raises(DTypeError) as raised:
        et.cond(et.array(1), branch, branch, 0.0)
    assert "cond: the predicate must be bool[], got int64[]" in said(raised)
    with pytest.raises(ShapeError) as raised:
        et.cond(et.array([True, False]), branch, branch, 0.0)
    assert "must be one bool, got bool[2]" in said(raised)
    assert "et.where" in str(raised.value)
    with pytest.raises(DTypeError) as raised:
        et.while_loop(lambda c: c, lambda c: c, 1.0)
    assert "while_loop: the condition must be bool[], got float32[]" in said(raised)
    with pytest.raises(ShapeError) as raised:
        et.while_loop(lambda c: c < 1, lambda c: c, XS)
    assert "got bool[3, 2]" in said(raised)
    with pytest.raises(TreeError) as raised:
        et.while_loop(lambda c: (c < 1, c < 2), lambda c: c, 1.0)
    assert "the condition must return one bool" in said(raised)


def test_indices_of_branches() -> None:
    with pytest.raises(DTypeError) as raised:
        et.switch(1.0, [lambda: 1.0])
    assert "the index must be an integer, got float32[]" in said(raised)
    with pytest.raises(DTypeError) as raised:
        et.switch(et.array(True), [lambda: 1.0])
    assert "use et.cond" in said(raised)
    with pytest.raises(ShapeError) as raised:
        et.switch(et.array([1, 2]), [lambda: 1.0])
    assert "got int64[2]" in said(raised)
    with pytest.raises(ArgumentError) as raised:
        et.switch(0, [])
    assert "no branches" in said(raised)


def test_branches_with_different_trees() -> None:
    with pytest.raises(TreeError) as raised:
        et.cond(True, lambda x: {"a": x}, lambda x: (x, x), 1.0)
    text = said(raised)
    assert "false_fun returns" in text
    assert "true_fun returns" in text
    assert "{'a': *}" in text


def test_branches_with_different_types() -> None:
    with pytest.raises(TreeError) as raised:
        et.switch(0, [lambda x: (x, x), lambda x: (x, x + XS[0]), lambda x: (x, x)], 1.0)
    text = said(raised)
    assert "result[1] is float32[] from branch 0" in text
    assert "float32[2] from branch 1" in text
    assert "result[0]" not in text


def test_bounds_of_fori_loop() -> None:
    with pytest.raises(DTypeError) as raised:
        et.fori_loop(0, 2.5, lambda i, c: c, 0.0)
    assert "a bound must be an integer, got float32[]" in said(raised)
    with pytest.raises(ShapeError) as raised:
        et.fori_loop(0, et.array([1, 2]), lambda i, c: c, 0.0)
    assert "got int64[2]" in said(raised)
    with pytest.raises(DTypeError) as raised:
        et.fori_loop(et.array(0), np.int32(2), lambda i, c: c, 0.0)
    assert "fori_loop: mixed dtypes" in said(raised)


def test_reverse_mode_of_while() -> None:
    with pytest.raises(TraceError) as raised:
        et.grad(lambda x: et.while_loop(lambda c: c < 9, lambda c: c * x, x))(2.0)
    text = said(raised)
    assert "while_loop: reverse mode" in text
    assert "et.scan" in text


def test_elements_of_associative_scan() -> None:
    with pytest.raises(ShapeError) as raised:
        et.associative_scan(lambda a, b: a, (XS, XS[:2]))
    assert "elems[0]: 3, elems[1]: 2" in said(raised)
    with pytest.raises(ShapeError) as raised:
        et.associative_scan(lambda a, b: a, XS, axis=2)
    assert "has no axis 2" in said(raised)
    with pytest.raises(TreeError) as raised:
        et.associative_scan(lambda a, b: a.astype("float64"), XS)
    assert "elems is float32[1, 2] before the step and float64[1, 2] after it" in said(raised)
    with pytest.raises(ArgumentError) as raised:
        et.associative_scan(lambda a, b: a, ())
    assert "no arrays" in said(raised)


def test_a_leak_out_of_a_body() -> None:
    kept: list[Any] = []
    et.scan(lambda c, x: (c, kept.append(x * 2)), 0.0, XS)
    with pytest.raises(TraceError, match="x of scan"):
        kept[0].numpy()
    with pytest.raises(TraceError, match="leaked"):
        et.jit(lambda: kept[0] + 1)()


def test_an_index_out_of_bounds_in_a_step_names_the_line() -> None:
    with et.use(et.reference()):
        table = et.array(XS[:, 0])
        lazy = et.fori_loop(0, 5, lambda i, c: c + table[i], 0.0)
    with pytest.raises(IndexError) as raised:
        lazy.numpy()
    assert "table[i]" in str(raised.value)
