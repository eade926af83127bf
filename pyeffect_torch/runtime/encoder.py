"""The tables of one encoding: nodes become instructions, one visit a node.

A composite or region whose opcode the runtime lacks is expanded on the spot: its body is built on
the original inputs, whose value ids are known, so nothing downstream is rebuilt. The bodies of a
region that has an opcode become nested programs, each encoded once (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyeffect_torch.core import source
from pyeffect_torch.core.array import (
    CONST,
    DEAD_FLAG,
    LEAF,
    LITERAL,
    OUT,
    PLACEHOLDER,
    START,
    Array,
    deleted_error,
    make,
)
from pyeffect_torch.core.errors import UnsupportedError
from pyeffect_torch.core.graph import Body, settle
from pyeffect_torch.core.op import DECOMPOSITIONS, Composite, Op, Region, Slim
from pyeffect_torch.core.trace import leak_error
from pyeffect_torch.runtime.blocks import Blocks
from pyeffect_torch.runtime.native.opcodes import INPUT_FLAGS, OPCODES, Opcode
from pyeffect_torch.runtime.needed import needed, reach_values
from pyeffect_torch.runtime.wire import (
    Counts,
    assemble,
    attribute_words,
    input_records,
    opcode_records,
    type_records,
)
from pyeffect_torch.transforms.effects import EFFECT

# Structural nodes that are numbered where they are used.
_NO_TOKEN = np.bool_(False)
_WITHOUT_CODE = (CONST, LITERAL, PLACEHOLDER, START)


class Encoder:
    """The tables of one encoding, of a whole program or of a nested one.

    How many inputs, scalars and literals there are is known only at the end, so references are
    provisional: results count up from 0, input i is `-1 - 4 i`, scalar `-2 - 4 i`, literal
    `-3 - 4 i`.
    """

    def __init__(
        self,
        supports: Callable[[str], bool],
        blocks: Blocks,
        scalar_slots: bool = False,
        bake: bool = False,
    ) -> None:
        self.supports = supports
        self.blocks = blocks
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
        self.projections: dict[int, dict[int, int]] = {}
        self.types: dict[Any, int] = {}
        self.result_types: list[int] = []
        self.instructions: list[int] = []
        self.operands: list[int] = []
        self.attrs: list[int] = []
        self.sources: list[source.Source | None] = []
        self.operations: list[str] = []
        self.outputs: list[int] = []
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
            self.ids[node.serial] = self.literal(value, node.dtype)
            return
        if node.op is PLACEHOLDER:
            raise leak_error(node)
        if node.op is START:
            self.ids[node.serial] = self.literal(_NO_TOKEN, node.dtype)
            return
        self.add_input(node, INPUT_FLAGS["constant"] if self.bake else 0)
        self.captured.append(node)

    def literal(self, value: Any, dtype: Any) -> int:
        """The reference of a 0-d value that is part of the program."""
        key = (dtype.name, value.tobytes())
        number = self.literals.setdefault(key, len(self.literals))
        if number == len(self.literal_types):
            self.literal_types.append(self.type_id((), dtype))
        return -3 - 4 * number

    def ref(self, array: Array) -> int:
        """The reference of an encoded node, or of a leaf, which is numbered where it is first used.

        By age, equal programs would differ where one of them shares an older literal.
        """
        found = self.ids.get(array.serial)
        if found is None:
            self.leaf(array)
            found = self.ids[array.serial]
        return found

    def run(self, roots: Sequence[Array], nodes: Sequence[Array] | None = None) -> None:
        """Encode what `roots` need: ascending nodes, whose leaves are numbered as they are met."""
        ids, rows = self.ids, self.rows
        if nodes is None:
            nodes = reach_values(roots, ids)
        used: dict[int, list[int]] = {}
        if any(node.op.multi and isinstance(node.op.derivative, Region) for node in nodes):
            nodes, used = needed(roots, nodes)
        for node in nodes:
            serial = node.serial
            if serial in ids:
                continue
            op = node.op
            opcode = op.opcode
            if node.buf is not None or op in _WITHOUT_CODE:
                continue
            if op.multi and isinstance(op.derivative, Region):
                continue  # its first projection knows which outputs are used
            if opcode in rows or (opcode is not None and self.supports(opcode)):
                ids[serial] = self.instruction(node, op, opcode, node.inputs)
            elif op is OUT:
                bundle, k = node.inputs[0], node.params
                if bundle.buf is not None:
                    settle(node)
                    continue
                parts = self.projections.get(bundle.serial)
                if parts is None and not isinstance(bundle.op.derivative, Region):
                    ids[serial] = ids[bundle.serial] + k
                    continue
                if parts is None or k not in parts:
                    parts = self.region(bundle, used[bundle.serial])
                ids[serial] = parts[k]
            elif op is LEAF:
                ids[serial] = self.ref(node.inputs[0])
            else:
                self.expand(node)

    def instruction(
        self, node: Array, op: Op, name: str, inputs: Sequence[Array], slim: Slim | None = None
    ) -> int:
        """Emit one instruction, of the opcode `name`; return the reference of its first result.

        Of a region, `slim` says which outputs are results, and its attributes.
        """
        row = self.rows.get(name)
        if row is None:
            row = self.rows[name] = OPCODES[name]
        ids = self.ids
        schema = row.attributes
        words = 0
        if schema:
            attributes = op.attributes(node) if slim is None else slim.attributes
            words = attribute_words(schema, attributes, self.attrs)
        result_types = self.result_types
        first = len(result_types)
        if op.multi:
            types = node.params.types
            if slim is not None:
                types = [types[k] for k in slim.outputs]
            result_types.extend([self.type_id(shape, dtype) for shape, dtype in types])
            results = len(types)
        else:
            key = (node.dtype, node.shape)
            found = self.types.get(key)
            result_types.append(self.type_id(node.shape, node.dtype) if found is None else found)
            results = 1
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
        return first

    def expand(self, node: Array) -> None:
        """Emit the body of a composite, or a decomposition, in place of the node."""
        rule = node.op.derivative
        before = source.set_override(node.src)
        try:
            if isinstance(rule, Composite):
                made = rule.body(node.params, *node.inputs)
                outs = made if node.op.multi else [made]
            elif node.op.opcode in DECOMPOSITIONS:
                outs = [DECOMPOSITIONS[node.op.opcode](node.params, *node.inputs)]
            else:
                raise _no_kernel(node)
        finally:
            source.set_override(before)
        self.run(outs)
        if not node.op.multi:
            self.ids[node.serial] = self.ref(outs[0])
            return
        # A projection of an expanded node: its results need not be neighbours.
        self.projections[node.serial] = {k: self.ref(out) for k, out in enumerate(outs)}

    # --- regions

    def region(self, node: Array, used: Sequence[int]) -> dict[int, int]:
        """Emit a region for the sake of some of its outputs; return what is known of all."""
        rule = node.op.derivative
        assert isinstance(rule, Region)
        name = node.op.opcode
        if node.op is EFFECT:
            assert rule.slim is not None
            slim = rule.slim(node, used)
            self.instruction(node, node.op, "host_call", slim.inputs, slim)
            return {0: self.literal(_NO_TOKEN, _NO_TOKEN.dtype)}
        if name is not None and self.supports(name):
            if rule.slim is None:
                first = self.instruction(node, node.op, name, node.inputs)
                found = {k: first + k for k in range(len(node.params.types))}
            else:
                found = self.nested(node, name, rule, rule.slim(node, used))
        elif rule.inline is not None:
            before = source.set_override(node.src)
            try:
                outs = _inlined(node, rule, used)
            finally:
                source.set_override(before)
            self.run(outs)
            found = {k: self.ref(out) for k, out in zip(used, outs, strict=True)}
        else:
            raise _no_kernel(node)
        known = self.projections.setdefault(node.serial, {})
        known.update(found)
        return known

    def nested(self, node: Array, name: str, rule: Region, slim: Slim) -> dict[int, int]:
        """Emit an instruction that runs nested programs.

        A nested program holds no arrays: those that a body meets become captures of all bodies of
        the instruction, in front of the others.
        """
        encoders = [self.block(body) for body in slim.bodies]
        more = {array.serial: array for encoder in encoders for array in encoder.captured}
        numbers = {
            id(body): self.blocks.add(encoder.finish(body, list(more.values())), encoder)
            for body, encoder in zip(slim.bodies, encoders, strict=True)
        }
        attributes = dict(slim.attributes)
        for block in rule.blocks:
            value = attributes[block]
            attributes[block] = (
                numbers[id(value)]
                if isinstance(value, Body)
                else [numbers[id(body)] for body in value]
            )
        if "captures" in attributes:
            attributes["captures"] += len(more)
        lead = len(slim.inputs) - len(slim.bodies[0].formals)
        inputs = [*slim.inputs[:lead], *more.values(), *slim.inputs[lead:]]
        slim = slim._replace(attributes=attributes)
        first = self.instruction(node, node.op, name, inputs, slim)
        return {k: first + number for number, k in enumerate(slim.outputs)}

    def nested_encoder(self) -> Encoder:
        """Return the empty tables of a nested program."""
        return Encoder(self.supports, self.blocks)

    def block(self, body: Body) -> Encoder:
        """Return the tables of a nested program, to be finished when its captures are known."""
        encoder = self.nested_encoder()
        for formal in body.formals:
            encoder.add_input(formal, 0)
        encoder.run(body.roots)
        encoder.outputs = [encoder.ref(root) for root in body.roots]
        return encoder

    def finish(self, body: Body, captured: Sequence[Array]) -> bytes:
        """Return the nested program of `body`, with `captured` as its first inputs."""
        for array in captured:
            if array.serial not in self.ids:
                self.add_input(array, 0)
        order = [self.ids[array.serial] for array in (*captured, *body.formals)]
        position = {reference: number for number, reference in enumerate(order)}
        self.input_types = [self.input_types[(-1 - reference) // 4] for reference in order]

        def moved(references: Sequence[int]) -> list[int]:
            return [-1 - 4 * position[r] if r in position else r for r in references]

        self.operands, self.outputs = moved(self.operands), moved(self.outputs)
        return assemble(*self.sections([0] * len(self.outputs)))

    # --- the end

    def sections(self, aliases: Sequence[int]) -> tuple[dict[str, bytes], Counts]:
        """Return the sections that a nested program has too, and the counts of the header."""
        value_types = self.input_types + self.scalar_types + self.literal_types + self.result_types
        flags = self.input_flags + [INPUT_FLAGS["scalar_slot"]] * len(self.scalars)
        types_section, dims = type_records(self.types)
        rows = [self.resolve(self.outputs), np.asarray(aliases, dtype="<u4")]
        sections = {
            "opcodes": opcode_records(self.rows),
            "types": types_section,
            "dims": dims,
            "value_types": np.asarray(value_types, dtype="<u4").tobytes(),
            "inputs": input_records(flags),
            "literals": b"".join(value.ljust(8, b"\0") for _, value in self.literals),
            "instructions": np.asarray(self.instructions, dtype="<u8").tobytes(),
            "operands": self.resolve(self.operands).tobytes(),
            "attrs": np.asarray(self.attrs, dtype="<i8").tobytes(),
            "outputs": np.stack(rows, axis=1).tobytes(),
        }
        counts = (
            len(value_types),
            len(flags),
            len(self.literals),
            len(self.instructions),
            len(self.outputs),
        )
        return sections, counts

    def resolve(self, references: Sequence[int]) -> np.ndarray[Any, Any]:
        """Turn provisional references into value ids."""
        given = np.asarray(references, dtype=np.int64)
        inputs, scalars = len(self.input_types), len(self.scalars)
        base = np.array([0, 0, inputs, inputs + scalars], dtype=np.int64)
        code = -given
        leaf = base[code & 3] + (code >> 2)
        results = given + (inputs + scalars + len(self.literals))
        return np.where(given < 0, leaf, results).astype("<u4")


def _inlined(node: Array, rule: Region, used: Sequence[int]) -> list[Array]:
    """The outputs `used` of a region as ordinary nodes."""
    assert rule.inline is not None
    if rule.slim is None:
        inlined = rule.inline(node, node.inputs)
        return [inlined[k] for k in used]
    slim = rule.slim(node, used)
    types = tuple(node.params.types[k] for k in used)
    params = node.params._replace(bodies=tuple(slim.bodies), types=types)
    small = make(node.op, tuple(slim.inputs), params, None, None, 0, node.src)
    return list(rule.inline(small, slim.inputs))


def _no_kernel(node: Array) -> UnsupportedError:
    return UnsupportedError(
        f"this runtime has no kernel for {node.op.name}",
        "use another runtime",
        node.src,
        operation=node.op.name,
        phase="compile",
    )
