"""The tables of one encoding, and the sections that they become.

How many inputs, scalars and literals there are is known only at the end, so references are
provisional: results count up from 0, input i is `-1 - 4 i`, scalar `-2 - 4 i`, literal `-3 - 4 i`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import source
from pyeffect_torch.core.array import (
    DEAD_FLAG,
    LITERAL,
    PLACEHOLDER,
    START,
    Array,
    deleted_error,
)
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.trace import leak_error
from pyeffect_torch.runtime.native.opcodes import INPUT_FLAGS
from pyeffect_torch.runtime.wire import (
    Counts,
    assemble,
    input_records,
    opcode_records,
    type_records,
)

NO_TOKEN: Final = np.bool_(False)
"""What stands in a program for the order of effects, which its instructions have anyway."""


class Tables:
    """The tables of a whole program or of a nested one.

    Attributes:
        ids: the reference of each array that has one, by serial.
        scalar_slots: make 0-d literals inputs. bake: captured arrays are constants.
    """

    def __init__(self, scalar_slots: bool, bake: bool) -> None:
        self.scalar_slots = scalar_slots
        self.bake = bake
        self.ids: dict[int, int] = {}
        self.input_types: list[int] = []
        self.input_flags: list[int] = []
        self.captured: list[Array] = []
        self.literals: dict[tuple[Any, bytes], int] = {}
        self.literal_types: list[int] = []
        self.scalars: list[Any] = []
        self.scalar_types: list[int] = []
        self.types: dict[Any, int] = {}
        self.result_types: list[int] = []
        self.instructions: list[int] = []
        self.operands: list[int] = []
        self.attrs: list[int] = []
        self.sources: list[source.Source | None] = []
        self.operations: list[str] = []
        self.outputs: list[int] = []

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
            self.ids[node.serial] = self.literal(NO_TOKEN, node.dtype)
            return
        self.add_input(node, INPUT_FLAGS["constant"] if self.bake else 0)
        self.captured.append(node)

    def literal(self, value: Any, dtype: Any) -> int:
        """The reference of a 0-d value that is part of the program."""
        key = (dtype, value.tobytes())
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

    # --- the end

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

    def sections(self, aliases: Sequence[int]) -> tuple[dict[str, bytes], Counts]:
        """Return the sections that a nested program has too, and the counts of the header."""
        value_types = self.input_types + self.scalar_types + self.literal_types + self.result_types
        flags = self.input_flags + [INPUT_FLAGS["scalar_slot"]] * len(self.scalars)
        types_section, dims = type_records(self.types)
        instructions = np.asarray(self.instructions, dtype="<u8")
        rows = [self.resolve(self.outputs), np.asarray(aliases, dtype="<u4")]
        sections = {
            "opcodes": opcode_records(instructions),
            "types": types_section,
            "dims": dims,
            "value_types": np.asarray(value_types, dtype="<u4").tobytes(),
            "inputs": input_records(flags),
            "literals": b"".join(value.ljust(8, b"\0") for _, value in self.literals),
            "instructions": instructions.tobytes(),
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
