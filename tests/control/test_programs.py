"""Programs with loops and branches: what is encoded, printed, saved, and said of errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.runtime.decode import Decoded, decode
from pyeffect_torch.runtime.encode import encode

f32 = np.float32
XS = np.linspace(-1, 1, 5, dtype=f32)


def mixed(x: Any, n: Any) -> Any:
    """A scan, a branch inside it, a nested loop and a loop of unknown length."""

    def step(c: Any, t: Any) -> Any:
        c = et.cond(c > t, lambda v: et.sin(v) * x, lambda v: v * v + t, c)
        return et.fori_loop(0, 2, lambda i, d: d * 0.5 + x, c), c

    last, seen = et.scan(step, x, XS)
    return et.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.5 + seen[0]), (0, last))[
        1
    ]


def block_names(program: Decoded) -> list[list[str]]:
    return [[name for name, *_ in block.instructions] for block in program.blocks]


def test_a_program_with_control_flow_is_saved_and_loaded(tmp_path: Path) -> None:
    want = float(mixed(0.7, 3))
    frozen = et.freeze(mixed, et.spec((), "float32"), et.spec((), "int64"))
    frozen.save(tmp_path / "f.pet")
    assert float(frozen(0.7, 3)) == want
    loaded = et.load_program(tmp_path / "f.pet")
    assert float(loaded(0.7, 3)) == want
    assert float(loaded(0.7, 0)) == float(mixed(0.7, 0))
    with et.use(et.reference()):
        got = float(et.load_program(tmp_path / "f.pet")(0.7, 3))
    assert abs(got - want) <= 64 * 2.0**-23
    slope = et.freeze(lambda x: et.grad(lambda y: et.scan(
        lambda c, t: (et.sin(c) * y + t, c), y, XS)[1].sum())(x), 0.7)  # fmt: skip
    slope.save(tmp_path / "g.pet")
    assert float(et.load_program(tmp_path / "g.pet")(0.7)) == float(slope(0.7))


def test_parameters_are_baked_outside_of_the_bodies(tmp_path: Path) -> None:
    weights = {"w": et.array(np.linspace(-1, 1, 9, dtype=f32).reshape(3, 3))}

    def f(p: Any, x: Any) -> Any:
        inside = et.array(f32([1, 2, 3]))  # made outside of the body
        step = lambda h, t: (et.tanh(h @ p["w"] + t * inside), et.array(f32([4.0])) * t)
        return et.scan(step, x, XS)

    frozen = et.freeze(f, et.spec((3,), "float32"), constants=weights)
    program = decode(frozen.program.blob)
    assert sorted(value.shape for value in program.constants.values()) == [(1,), (3,), (3, 3), (5,)]
    assert all(not any(block.input_flags) for block in program.blocks)
    frozen.save(tmp_path / "f.pet")
    got = et.load_program(tmp_path / "f.pet")(np.ones(3, f32))
    for a, b in zip(got, f(weights, et.ones(3)), strict=True):
        assert np.allclose(a.numpy(), b.numpy(), atol=1e-6)


def test_every_bit_of_a_saved_program_is_checked(tmp_path: Path) -> None:
    blob = et.freeze(mixed, et.spec((), "float32"), et.spec((), "int64")).program.blob
    block = blob.index(b"PETP", 4)  # the first nested program
    for place in (block, block + 5, block + 9, block + 20, block + 40, block + 100):
        damaged = bytearray(blob)
        damaged[place] ^= 1
        (tmp_path / "bad.pet").write_bytes(damaged)
        with pytest.raises(et.errors.FileFormatError):
            et.load_program(tmp_path / "bad.pet")


def test_equal_bodies_are_encoded_once() -> None:
    def f(x: Any) -> Any:
        step = lambda c, t: (et.sin(c) + t, None)
        return sum(et.scan(step, c, XS)[0] for c in (x, x * 2))

    program = decode(et.freeze(f, 0.5).program.blob)
    assert block_names(program) == [["sin", "add"]]
    branches = et.freeze(lambda i, x: et.switch(i, [et.cos, et.sin, et.cos], x), 0, 0.5)
    program = decode(branches.program.blob)
    (attributes,) = [a for name, _, a, _ in program.instructions if name == "switch"]
    assert attributes["blocks"] == (0, 1, 0)


def test_blocks_come_before_what_runs_them() -> None:
    program = decode(et.freeze(mixed, et.spec((), "float32"), et.spec((), "int64")).program.blob)
    for number, block in enumerate(program.blocks):
        for name, _, attributes, _ in block.instructions:
            if name == "scan":
                assert attributes["body"] < number
            if name == "switch":
                assert max(attributes["blocks"]) < number
    assert ["sin", "multiply"] in block_names(program)


def test_programs_of_equal_structure_share_an_executable() -> None:
    def f(rate: float) -> Any:
        return et.scan(lambda c, t: (c * t, None), rate, XS)[0]

    def g(rate: float) -> Any:
        return et.scan(lambda c, t: (c * t, None), rate, XS)[0]

    digests = {encode([h(rate)], (), lambda _: True, scalar_slots=True).digest
               for h, rate in ((f, 0.5), (f, 0.7), (g, 0.5))}  # fmt: skip
    assert len(digests) == 1
    other = encode([et.scan(lambda c, t: (c + t, None), 0.5, XS)[0]], (), lambda _: True)
    assert other.digest not in digests


def test_instructions_in_bodies_have_their_lines() -> None:
    def f(table: Any, n: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            return c + table[i + n]  # the line

        return et.fori_loop(0, 3, body, 0.0)

    for runtime in (et.cpu(), et.reference()):
        with et.use(runtime):
            table = et.array(XS)
            assert abs(float(et.jit(f)(table, et.array(1))) - XS[1:4].sum()) < 1e-6
            for g in (f, et.jit(f)):
                with pytest.raises(IndexError) as raised:
                    et.compute(g(table, et.array(3)))
                assert "return c + table[i + n]  # the line" in str(raised.value)
    program = encode([f(et.array(XS), et.array(1))], (), et.cpu().has)
    assert [len(s) for s in program.block_sources] == [len(o) for o in program.block_operations]
    assert all(where is not None for block in program.block_sources for where in block)


def test_bodies_are_printed_indented() -> None:
    text = str(et.make_ir(mixed)(0.7, 3))
    for line in (
        r"  %\d+ = scan\(arg\[0\], arg\[0\], capture0, "
        r"captures=1, carries=1, length=5, reverse=False\) "
        r": \(float32\[\], float32\[5\]\) .*# test_programs\.py:\d+",
        r"    scan\(%in0: float32\[\], %in1: float32\[\], %in2: float32\[\]\) \{",
        r"        switch\.0\(%in0: float32\[\], %in1: float32\[\], %in2: float32\[\]\) \{",
        r"        switch\.1\(",
        r"          %0 = sin\(%in2\) : float32\[\] .*# test_programs\.py:\d+",
        r"    while_loop\.condition\(",
        r"    while_loop\.body\(",
    ):
        assert re.search(f"^{line}", text, re.MULTILINE), (line, text)
    assert "?" not in text
    assert str(et.jit(mixed).lower(0.7, 3).ir()).count("switch.1") == 1


def test_explain_and_eval_shape() -> None:
    explained = et.jit(mixed).lower(0.7, 3).explain()
    assert explained["instructions"]
    assert et.eval_shape(lambda x: et.scan(lambda c, t: (c, t), x, XS), 1.0) == (
        et.spec((), "float32"),
        et.spec((5,), "float32"),
    )


def test_a_runtime_without_the_opcode_says_so() -> None:
    with pytest.raises(et.errors.UnsupportedError) as raised:
        encode([et.scan(lambda c, t: (c, t), 0.0, XS)[1]], (), lambda opcode: opcode != "scan")
    assert "no kernel for scan" in str(raised.value)
    assert "test_programs.py" in raised.value.where


def test_donation_reaches_through_a_loop() -> None:
    step = et.jit(lambda x: et.scan(lambda c, t: (c * t, None), x, XS)[0], donate_argnums=0)
    x = et.compute(et.ones(4) * 2.0)
    got = step(x)
    assert np.allclose(got.numpy(), 2 * XS.prod())
    assert x.state == "deleted"
