"""How nodes become instructions, one visit a node; `tables.py` has the tables.

A composite or region whose opcode the runtime lacks is expanded on the spot: its body is built on
the original inputs, whose value ids are known, so nothing downstream is rebuilt. The bodies of a
region that has an opcode become nested programs, each encoded once (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyeffect_torch.core import source
from pyeffect_torch.core.array import (
    CONST,
    LEAF,
    LITERAL,
    OUT,
    PLACEHOLDER,
    START,
    Array,
    make,
)
from pyeffect_torch.core.errors import UnsupportedError
from pyeffect_torch.core.graph import Body, op_of, settle
from pyeffect_torch.core.op import DECOMPOSITIONS, Composite, Op, Region, Slim
from pyeffect_torch.runtime.blocks import Blocks
from pyeffect_torch.runtime.native.opcodes import OPCODES
from pyeffect_torch.runtime.needed import needed, reach_values
from pyeffect_torch.runtime.tables import NO_TOKEN, Tables
from pyeffect_torch.runtime.wire import attribute_words
from pyeffect_torch.transforms.effects import EFFECT

# Structural nodes that are numbered where they are used.
_WITHOUT_CODE = (CONST, LITERAL, PLACEHOLDER, START)


class Plain(NamedTuple):
    """What the instructions of an op with one result share.

    Attributes:
        word: their words, without the numbers of operands and of attribute words.
        most: how many operands they may have. schema: their attributes, by name and kind.
    """

    word: int
    most: int
    schema: tuple[tuple[str, str], ...]


class Encoder(Tables):
    """Fills the tables of one encoding, of a whole program or of a nested one."""

    def __init__(
        self,
        supports: Callable[[str], bool],
        blocks: Blocks,
        scalar_slots: bool = False,
        bake: bool = False,
    ) -> None:
        super().__init__(scalar_slots, bake)
        self.supports = supports
        self.blocks = blocks
        self.projections: dict[int, dict[int, int]] = {}
        self.plain: dict[Op, Plain | None] = {}  # of the ops met

    def run(self, roots: Sequence[Array], nodes: Sequence[Array] | None = None) -> None:
        """Encode what `roots` need: ascending nodes, whose leaves are numbered as they are met."""
        ids, plain = self.ids, self.plain
        types, result_types, operands = self.types, self.result_types, self.operands
        instructions, attrs = self.instructions, self.attrs
        sources, operations = self.sources, self.operations
        if nodes is None:
            nodes = reach_values(roots, ids)
        used: dict[int, list[int]] = {}
        ops = set(map(op_of, nodes))
        for op in ops.difference(plain):
            plain[op] = self.plain_instruction(op)
        if any(op.multi and isinstance(op.derivative, Region) for op in ops):
            nodes, used = needed(roots, nodes)
        for node in nodes:
            serial = node.serial
            if serial in ids:
                continue
            op = node.op
            known = plain[op]
            if known is None or node.buf is not None:
                self.visit(node, used)
                continue
            # What `instruction` does, written out: most nodes come here, and calls would double
            # what they cost.
            word, most, schema = known
            inputs = node.inputs
            count = len(inputs)
            if count > most:
                raise _too_many(op, count, most, node.src)
            if schema:
                word |= attribute_words(schema, op.attributes(node), attrs) << 48
            instructions.append(word | count << 32)
            for array in inputs:
                try:
                    operands.append(ids[array.serial])
                except KeyError:
                    operands.append(self.ref(array))
            ids[serial] = len(result_types)
            try:
                result_types.append(types[node.dtype, node.shape])
            except KeyError:
                result_types.append(self.type_id(node.shape, node.dtype))
            sources.append(node.src)
            operations.append(op.name)

    def plain_instruction(self, op: Op) -> Plain | None:
        """What the nodes of `op` share, if each is one instruction with one result."""
        if op.multi or op.opcode is None or not self.supports(op.opcode):
            return None
        row = OPCODES[op.opcode]
        return Plain(row.number | 1 << 16, row.max_operands, row.attributes)

    def visit(self, node: Array, used: dict[int, list[int]]) -> None:
        """Encode a node; `used` are the outputs of regions that are needed."""
        op = node.op
        opcode = op.opcode
        if node.buf is not None or op in _WITHOUT_CODE:
            return
        if op.multi and isinstance(op.derivative, Region):
            return  # its first projection knows which outputs are used
        ids = self.ids
        if opcode is not None and self.supports(opcode):
            ids[node.serial] = self.instruction(node, op, opcode, node.inputs)
        elif op is OUT:
            bundle, k = node.inputs[0], node.params
            if bundle.buf is not None:
                settle(node)
                return
            parts = self.projections.get(bundle.serial)
            if parts is None and not isinstance(bundle.op.derivative, Region):
                ids[node.serial] = ids[bundle.serial] + k
                return
            if parts is None or k not in parts:
                parts = self.region(bundle, used[bundle.serial])
            ids[node.serial] = parts[k]
        elif op is LEAF:
            ids[node.serial] = self.ref(node.inputs[0])
        else:
            self.expand(node)

    def instruction(
        self, node: Array, op: Op, name: str, inputs: Sequence[Array], slim: Slim | None = None
    ) -> int:
        """Emit one instruction, of the opcode `name`; return the reference of its first result.

        Of a region, `slim` says which outputs are results, and its attributes.
        """
        row = OPCODES[name]
        if len(inputs) > row.max_operands:
            raise _too_many(op, len(inputs), row.max_operands, node.src)
        schema = row.attributes
        words = 0
        if schema:
            attributes = op.attributes(node) if slim is None else slim.attributes
            words = attribute_words(schema, attributes, self.attrs)
        self.operands += [self.ref(array) for array in inputs]
        first = len(self.result_types)
        types = node.params.types if op.multi else [(node.shape, node.dtype)]
        if slim is not None:
            types = [types[k] for k in slim.outputs]
        self.result_types += [self.type_id(shape, dtype) for shape, dtype in types]
        self.instructions.append(row.number | len(types) << 16 | len(inputs) << 32 | words << 48)
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
            return {0: self.literal(NO_TOKEN, NO_TOKEN.dtype)}
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


def _too_many(op: Op, count: int, most: int, where: source.Source | None) -> UnsupportedError:
    return UnsupportedError(
        f"{op.name}: {count} operands, an instruction has at most {most}",
        "apply it to groups, then to their results",
        where,
        operation=op.name,
        phase="compile",
    )


def _no_kernel(node: Array) -> UnsupportedError:
    return UnsupportedError(
        f"this runtime has no kernel for {node.op.name}",
        "use another runtime",
        node.src,
        operation=node.op.name,
        phase="compile",
    )
