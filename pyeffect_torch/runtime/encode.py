"""From a graph to a frozen program (`docs/wire.md` has the format; `encoder.py` fills the tables).

Inputs are the formals, then the concrete arrays that the graph meets, then the scalar slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyeffect_torch.core.array import Array
from pyeffect_torch.core.collector import collector_paused
from pyeffect_torch.core.graph import ENCODING, buf_of
from pyeffect_torch.core.op import Type
from pyeffect_torch.runtime.blocks import Blocks
from pyeffect_torch.runtime.encoder import Encoder
from pyeffect_torch.runtime.finite import CheckedEncoder, Mode
from pyeffect_torch.runtime.native.opcodes import INPUT_FLAGS
from pyeffect_torch.runtime.needed import reach_values
from pyeffect_torch.runtime.wire import Program, assemble, constant_bytes, source_sections


def encode(
    roots: Sequence[Array],
    formals: Sequence[Array],
    supports: Callable[[str], bool],
    *,
    donated: Sequence[int] = (),
    key: int | None = None,
    scalar_slots: bool = False,
    nodes: Sequence[Array] | None = None,
    bake: bool = False,
    meta: bytes = b"",
    checks: Mode | None = None,
    effects: Sequence[Array] = (),
) -> Program:
    """Encode `roots` as a function of `formals`.

    Args:
        roots: the outputs; they may repeat, and be formals or constants.
        formals: the inputs, in order; concrete arrays that the graph meets follow them.
        supports: whether the runtime has an opcode.
        donated: indices of formals whose memory outputs of their type may take.
        key: index of the formal that is the random key.
        scalar_slots: make 0-d literals inputs, so that they stand outside the structural hash.
        nodes: `reach_values(roots)`, or the nodes of a body, if the caller has them.
        bake: write the values of captured arrays into the program.
        meta: the meta section.
        checks: look for NaN and infinities (`finite.py`).
        effects: tokens, of which the program makes the effects and returns nothing.

    Raises:
        TraceError: a placeholder that is no formal. InvalidHandleError: a deleted array.
        UnsupportedError: an op without kernel and body, or with too many operands.
    """
    blocks = Blocks()
    encoder = (
        Encoder(supports, blocks, scalar_slots, bake)
        if checks is None
        else CheckedEncoder(supports, blocks, scalar_slots, bake, mode=checks)
    )
    for index, formal in enumerate(formals):
        flags = INPUT_FLAGS["donated"] if index in donated else 0
        encoder.add_input(formal, INPUT_FLAGS["rng_key"] if index == key else flags)
    with ENCODING, collector_paused():
        if isinstance(encoder, CheckedEncoder):
            encoder.check_inputs(formals)
        if nodes is None or any(node.inputs for node in filter(buf_of, nodes)):
            # what only a computed node needs is left out
            nodes = reach_values([*roots, *effects], encoder.ids)
        encoder.run([*roots, *effects], nodes)
        encoder.outputs = [encoder.ref(root) for root in roots]
    types = tuple((root.shape, root.dtype) for root in roots)
    aliases = _aliases(encoder, donated, types)
    return _finish(encoder, aliases, types, meta)


def _aliases(encoder: Encoder, donated: Sequence[int], types: Sequence[Type]) -> list[int]:
    """Pair each output with the first donated input of its type that is not taken yet."""
    free: dict[int, list[int]] = {}
    for index in sorted(donated, reverse=True):
        free.setdefault(encoder.input_types[index], []).append(index)
    aliases: list[int] = []
    for shape, dtype in types:
        candidates = free.get(encoder.type_id(shape, dtype))
        aliases.append(candidates.pop() + 1 if candidates else 0)
    return aliases


def _finish(
    encoder: Encoder, aliases: Sequence[int], types: tuple[Type, ...], meta: bytes
) -> Program:
    blocks = encoder.blocks
    sections, counts = encoder.sections(aliases)
    by_source = source_sections(encoder.sources, blocks.sources)
    sections.update(by_source.sections)
    sections["blocks"], sections["meta"] = b"".join(blocks.numbers), meta
    if encoder.bake:
        sections["constants"] = constant_bytes(encoder.captured)
    flags = encoder.input_flags
    return Program(
        assemble(sections, counts),
        () if encoder.bake else tuple(encoder.captured),
        tuple(encoder.scalars),
        types,
        tuple(encoder.sources),
        tuple(encoder.operations),
        by_source.locations,
        len(encoder.input_types) - len(encoder.captured),
        tuple(i for i, flag in enumerate(flags) if flag & INPUT_FLAGS["donated"]),
        tuple(blocks.sources),
        tuple(blocks.operations),
    )
