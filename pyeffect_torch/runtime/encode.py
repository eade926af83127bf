"""From a graph to a frozen program: one visit a node (`docs/wire.md` has the format).

A composite or region whose opcode the runtime lacks is expanded on the spot: its body is built on
the original inputs, whose value ids are known, so nothing downstream is rebuilt.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyeffect_torch.core import dtypes, source
from pyeffect_torch.core.array import (
    DEAD_FLAG,
    LEAF,
    LITERAL,
    OUT,
    PLACEHOLDER,
    Array,
    deleted_error,
)
from pyeffect_torch.core.errors import UnsupportedError
from pyeffect_torch.core.graph import ENCODING, by_serial
from pyeffect_torch.core.op import DECOMPOSITIONS, Composite, Op, Region, Type
from pyeffect_torch.core.trace import leak_error
from pyeffect_torch.runtime.native.opcodes import INPUT_FLAGS, OPCODES, Opcode
from pyeffect_torch.runtime.wire import (
    Program,
    assemble,
    constant_bytes,
    input_records,
    opcode_records,
    source_sections,
    type_records,
)

_FLOAT_WORD = struct.Struct("<d")
_INT_WORD = struct.Struct("<q")


def _float_word(value: float) -> int:
    return _INT_WORD.unpack(_FLOAT_WORD.pack(value))[0]


def _words(schema: tuple[tuple[str, str], ...], attributes: Any, out: list[int]) -> int:
    """Append the attribute words by schema; return how many."""
    before = len(out)
    for name, kind in schema:
        value = attributes[name]
        if kind == "ints":
            out.append(len(value))
            out.extend(value)
        elif kind == "float":
            out.append(_float_word(value))
        elif kind == "dtype":
            out.append(dtypes.NUMBER[value])
        else:
            out.append(int(value))
    return len(out) - before


class _Encoder:
    """The tables of one encoding.

    How many inputs, scalars and literals there are is known only at the end, so references are
    provisional: results count up from 0, input i is `-1 - 4 i`, scalar `-2 - 4 i`, literal
    `-3 - 4 i`.
    """

    def __init__(self, supports: Callable[[str], bool], scalar_slots: bool, bake: bool) -> None:
        self.supports = supports
        self.scalar_slots = scalar_slots
        self.bake = bake
        self.ids: dict[int, int] = {}
        self.input_types: list[int] = []
        self.input_flags: list[int] = []
        self.captured: list[Array] = []
        self.literals: dict[tuple[str, bytes], int] = {}
        self.literal_types: list[int] = []
        self.scalars: list[Any] = []
        self.scalar_types: list[int] = []
        self.projections: dict[int, list[int]] = {}
        self.types: dict[Any, int] = {}
        self.result_types: list[int] = []
        self.instructions: list[int] = []
        self.operands: list[int] = []
        self.attrs: list[int] = []
        self.sources: list[source.Source | None] = []
        self.operations: list[str] = []
        self.rows: dict[str, Opcode] = {}  # of the opcodes used and supported

    def type_id(self, shape: tuple[int, ...], dtype: Any) -> int:
        """The index of an interned type."""
        key = (dtype, shape)
        found = self.types.get(key)
        if found is None:
            found = self.types[key] = len(self.types)
        return found

    def add_input(self, array: Array, flags: int) -> None:
        """Number a formal input."""
        self.ids[array.serial] = -1 - 4 * len(self.input_types)
        self.input_types.append(self.type_id(array.shape, array.dtype))
        self.input_flags.append(flags)

    def leaf(self, node: Array) -> None:
        """Number a captured buffer or a literal."""
        if node.flags & DEAD_FLAG:
            raise deleted_error(node, "compute")
        if node.op is LITERAL and node.buf is None:
            value: Any = node.params
            if self.scalar_slots:
                self.ids[node.serial] = -2 - 4 * len(self.scalars)
                self.scalars.append(value)
                self.scalar_types.append(self.type_id((), node.dtype))
                return
            key = (node.dtype.name, value.tobytes())
            number = self.literals.setdefault(key, len(self.literals))
            if number == len(self.literal_types):
                self.literal_types.append(self.type_id((), node.dtype))
            self.ids[node.serial] = -3 - 4 * number
            return
        if node.op is PLACEHOLDER:
            raise leak_error(node)
        self.add_input(node, INPUT_FLAGS["constant"] if self.bake else 0)
        self.captured.append(node)

    def ref(self, array: Array) -> int:
        """The reference of an encoded node, or of a leaf, which is numbered where it is first used.

        By age, equal programs would differ where one of them shares an older literal.
        """
        found = self.ids.get(array.serial)
        if found is None:
            self.leaf(array)
            found = self.ids[array.serial]
        return found

    def run(self, nodes: Sequence[Array]) -> None:
        """Encode ascending nodes whose inputs are numbered, among them, or leaves."""
        ids, rows = self.ids, self.rows
        for node in nodes:
            serial = node.serial
            if serial in ids:
                continue
            op = node.op
            opcode = op.opcode
            if node.buf is not None or (opcode is None and not node.inputs):
                continue
            if opcode in rows or (opcode is not None and self.supports(opcode)):
                self.instruction(node, op, opcode)
            elif op is OUT:
                bundle = node.inputs[0].serial
                expanded = self.projections.get(bundle)
                k = node.params
                ids[serial] = ids[bundle] + k if expanded is None else expanded[k]
            elif op is LEAF:
                ids[serial] = self.ref(node.inputs[0])
            else:
                self.expand(node)

    def instruction(self, node: Array, op: Op, name: str) -> None:
        """Emit one instruction, of the opcode `name`."""
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = OPCODES[name]
        ids = self.ids
        attributes = row.attributes
        words = _words(attributes, op.attributes(node), self.attrs) if attributes else 0
        result_types = self.result_types
        ids[node.serial] = len(result_types)
        if op.multi:
            types = node.params.types
            result_types.extend([self.type_id(shape, dtype) for shape, dtype in types])
            results = len(types)
        else:
            key = (node.dtype, node.shape)
            found = self.types.get(key)
            result_types.append(self.type_id(node.shape, node.dtype) if found is None else found)
            results = 1
        inputs = node.inputs
        count = len(inputs)
        if count > row.max_operands:
            raise UnsupportedError(
                f"{op.name}: {count} operands, an instruction has at most {row.max_operands}",
                "apply it to groups, then to their results",
                node.src,
                operation=op.name,
                phase="compile",
            )
        try:
            self.operands += [ids[array.serial] for array in inputs]
        except KeyError:  # a leaf that is used for the first time
            self.operands += [self.ref(array) for array in inputs]
        self.instructions.append(row.number | results << 16 | count << 32 | words << 48)
        self.sources.append(node.src)
        self.operations.append(op.name)

    def expand(self, node: Array) -> None:
        """Emit a body or a decomposition in place of the node."""
        rule = node.op.derivative
        before = source.set_override(node.src)
        try:
            if isinstance(rule, Region) and rule.inline is not None:
                outs: Sequence[Array] = rule.inline(node, node.inputs)
            elif isinstance(rule, Composite):
                made = rule.body(node.params, *node.inputs)
                outs = made if node.op.multi else [made]
            elif node.op.opcode in DECOMPOSITIONS:
                outs = [DECOMPOSITIONS[node.op.opcode](node.params, *node.inputs)]
            else:
                raise UnsupportedError(
                    f"this runtime has no kernel for {node.op.name}",
                    "use another runtime",
                    node.src,
                    operation=node.op.name,
                    phase="compile",
                )
        finally:
            source.set_override(before)
        self.run(reach_values(outs, self.ids))
        if not node.op.multi:
            self.ids[node.serial] = self.ref(outs[0])
            return
        # A projection of an expanded node: its results need not be neighbours.
        self.ids[node.serial] = 0
        self.projections[node.serial] = [self.ref(out) for out in outs]

    def resolve(self, references: Sequence[int]) -> np.ndarray[Any, Any]:
        """Turn provisional references into value ids."""
        given = np.asarray(references, dtype=np.int64)
        inputs, scalars = len(self.input_types), len(self.scalars)
        base = np.array([0, 0, inputs, inputs + scalars], dtype=np.int64)
        code = -given
        leaf = base[code & 3] + (code >> 2)
        results = given + (inputs + scalars + len(self.literals))
        return np.where(given < 0, leaf, results).astype("<u4")


def reach_values(roots: Sequence[Array], known: dict[int, Any]) -> list[Array]:
    """Return what `roots` need, ascending: not behind concrete arrays, nor behind `known`."""
    seen: set[int] = set()
    found: list[Array] = []
    stack = list(roots)
    while stack:
        node = stack.pop()
        serial = node.serial
        if serial in seen or serial in known:
            continue
        seen.add(serial)
        found.append(node)
        if node.buf is None:
            stack.extend(node.inputs)
    found.sort(key=by_serial)
    return found


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

    Raises:
        TraceError: a placeholder that is no formal. InvalidHandleError: a deleted array.
        UnsupportedError: an op without kernel and body, or with too many operands.
    """
    encoder = _Encoder(supports, scalar_slots, bake)
    for index, formal in enumerate(formals):
        flags = INPUT_FLAGS["donated"] if index in donated else 0
        encoder.add_input(formal, INPUT_FLAGS["rng_key"] if index == key else flags)
    with ENCODING:
        if nodes is None or any(node.buf is not None and node.inputs for node in nodes):
            nodes = reach_values(roots, encoder.ids)  # what only a computed node needs is left out
        encoder.run(nodes)
        outputs = [encoder.ref(root) for root in roots]
    types = tuple((root.shape, root.dtype) for root in roots)
    aliases = _aliases(encoder, donated, types)
    return _finish(encoder, outputs, aliases, types, meta)


def _aliases(encoder: _Encoder, donated: Sequence[int], types: Sequence[Type]) -> list[int]:
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
    encoder: _Encoder,
    outputs: list[int],
    aliases: list[int],
    types: tuple[Type, ...],
    meta: bytes,
) -> Program:
    value_types = (
        encoder.input_types + encoder.scalar_types + encoder.literal_types + encoder.result_types
    )
    flags = encoder.input_flags + [INPUT_FLAGS["scalar_slot"]] * len(encoder.scalars)
    types_section, dims = type_records(encoder.types)
    sections = {
        "opcodes": opcode_records(encoder.rows),
        "types": types_section,
        "dims": dims,
        "value_types": np.asarray(value_types, dtype="<u4").tobytes(),
        "inputs": input_records(flags),
        "literals": b"".join(value.ljust(8, b"\0") for _, value in encoder.literals),
        "instructions": np.asarray(encoder.instructions, dtype="<u8").tobytes(),
        "operands": encoder.resolve(encoder.operands).tobytes(),
        "attrs": np.asarray(encoder.attrs, dtype="<i8").tobytes(),
        "outputs": np.stack(
            [encoder.resolve(outputs), np.asarray(aliases, dtype="<u4")], axis=1
        ).tobytes()
        if outputs
        else b"",
    }
    strings, sources, locations = source_sections(encoder.sources)
    sections["strings"], sections["sources"], sections["meta"] = strings, sources, meta
    if encoder.bake:
        sections["constants"] = constant_bytes(encoder.captured)
    counts = (
        len(value_types),
        len(flags),
        len(encoder.literals),
        len(encoder.instructions),
        len(outputs),
    )
    return Program(
        assemble(sections, counts),
        () if encoder.bake else tuple(encoder.captured),
        tuple(encoder.scalars),
        types,
        tuple(encoder.sources),
        tuple(encoder.operations),
        locations,
        len(encoder.input_types) - len(encoder.captured),
        tuple(i for i, flag in enumerate(flags) if flag & INPUT_FLAGS["donated"]),
    )
