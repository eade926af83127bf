"""A program read back is the graph that was encoded, for every op and dtype, and runs alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import OUT, PLACEHOLDER, Array, placeholder
from pyeffect_torch.core.graph import reach
from pyeffect_torch.core.op import REGISTRY
from pyeffect_torch.runtime.decode import decode
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.runtime.wire import Program
from pyeffect_torch.testing.declarations import (
    draw_samples,
    expected,
    is_region,
    is_structural,
    results_of,
)
from pyeffect_torch.testing.values import difference

OPS = [
    name
    for name, op in REGISTRY.items()
    if not is_structural(op) and not is_region(op) and op.opcode is not None
]


def every_opcode(name: str) -> bool:
    del name
    return True


def program_of(name: str) -> tuple[Program, list[Array], list[Array], list[Any]]:
    """One program of all samples of all dtypes of an op: also its formals, roots and uploads."""
    op = REGISTRY[name]
    assert op.domain is not None
    formals: list[Array] = []
    roots: list[Array] = []
    uploads: list[Any] = []
    for dtype in op.domain.dtypes:
        for sample in draw_samples(op, dtype):
            inputs = [
                placeholder(x.shape, dtypes.canonical(x.dtype) or x.dtype, "operand")
                for x in sample.inputs
            ]
            formals.extend(inputs)
            uploads.extend(sample.inputs)
            roots.extend(results_of(op, inputs, sample.params))
    return encode(roots, formals, every_opcode), formals, roots, uploads


def same(a: Any, b: Any) -> bool:
    """Attributes are equal after the round trip; tuples and lists alike."""
    if isinstance(a, (tuple, list)):
        return [int(x) for x in a] == [int(x) for x in b]
    return bool(a == b)


def instructions_of(roots: Sequence[Array]) -> list[Array]:
    nodes = reach(roots, set())
    return [node for node in nodes if node.op is not PLACEHOLDER and node.op is not OUT]


@pytest.mark.parametrize("name", OPS)
def test_decoded_program_is_the_graph(name: str) -> None:
    op = REGISTRY[name]
    program, formals, roots, uploads = program_of(name)
    decoded = decode(program.blob)
    assert decoded.input_types == [(f.shape, f.dtype) for f in formals]
    assert decoded.output_types == [(r.shape, r.dtype) for r in roots]
    ids = {formal.serial: index for index, formal in enumerate(formals)}
    count = len(formals) + len(decoded.literals)
    nodes = instructions_of(roots)
    assert len(decoded.instructions) == len(nodes)
    for node, (opcode, operands, attributes, types) in zip(
        nodes, decoded.instructions, strict=True
    ):
        assert opcode == op.opcode
        assert operands == [ids[array.serial] for array in node.inputs]
        given = op.attributes(node)
        assert set(attributes) == set(given)
        assert all(same(attributes[key], value) for key, value in given.items())
        ids[node.serial] = count
        results = node.params.types if op.multi else ((node.shape, node.dtype),)
        assert types == list(results)
        count += len(types)
    wanted = [
        ids[root.inputs[0].serial] + root.params if root.op is OUT else ids[root.serial]
        for root in roots
    ]
    assert [index for index, _ in decoded.outputs] == wanted

    runtime = et.reference()
    buffers = runtime.executable(program).run([runtime.upload(x) for x in uploads], program)
    got = iter([b.numpy(r.shape, r.dtype) for b, r in zip(buffers, roots, strict=True)])
    assert op.domain is not None
    for dtype in op.domain.dtypes:
        for sample in draw_samples(op, dtype):
            for want in expected(op, sample):
                assert difference(next(got), want, roundings=0.0) == "", sample.params


@pytest.mark.parametrize("name", OPS)
def test_encoding_is_deterministic(name: str) -> None:
    first, second = program_of(name)[0], program_of(name)[0]
    assert first.blob == second.blob
    assert first.digest == second.digest


def test_decoding_finds_every_field() -> None:
    """A field that the decoder forgets would stay at nothing in all of the programs above."""
    decoded = decode(program_of("dot_general")[0].blob)
    filled = {f.name for f in dataclasses.fields(decoded) if getattr(decoded, f.name)}
    assert filled >= {"instructions", "input_types", "outputs", "output_types", "formal_count"}
