"""Programs that stop at the first NaN or infinity: what `et.debug.nans` asks for.

Behind each instruction that computes floats stand a few more, which look at the result and at the
operands. An operation is to blame if its result has a NaN and no operand has one, or is infinite
where no operand is: a mask of -inf that was put in on purpose passes. Bodies of loops and branches
are looked into as well. Such a program is not optimised, so that each operation can be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Final

from pyeffect_torch.core import dtypes, forks, late, source
from pyeffect_torch.core.array import LITERAL, PLACEHOLDER, Array, outputs
from pyeffect_torch.core.op import Composite, Op, Slim
from pyeffect_torch.ops.checks import NAN_INPUT, NEW_INFINITY, NEW_NAN
from pyeffect_torch.ops.dynamic import check
from pyeffect_torch.runtime.blocks import Blocks
from pyeffect_torch.runtime.encoder import Encoder, Plain

_f: Any = late.functions

# They move elements: what is not finite there was not finite before.
_MOVES: Final = frozenset((
    "reshape", "transpose", "broadcast_to", "slice", "concatenate", "barrier", "check",
    "dynamic_slice", "dynamic_update_slice", "window",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mode:
    """What to look for: NaN, and infinities too if `infinities` is set."""

    infinities: bool


class CheckedEncoder(Encoder):
    """Encodes each computation of floats together with a look at its result."""

    def __init__(
        self,
        supports: Callable[[str], bool],
        blocks: Blocks,
        scalar_slots: bool = False,
        bake: bool = False,
        *,
        mode: Mode,
        is_root: bool = True,
    ) -> None:
        super().__init__(supports, blocks, scalar_slots, bake)
        self.mode = mode
        self.is_root = is_root
        self.flags: dict[int, list[Array]] = {}

    def nested_encoder(self) -> Encoder:
        """Tables of a nested program, whose inputs were looked at outside."""
        return CheckedEncoder(self.supports, self.blocks, mode=self.mode, is_root=False)

    def plain_instruction(self, op: Op) -> Plain | None:
        """Nothing: every node is looked at."""
        del op
        return None

    def leaf(self, node: Array) -> None:
        """Number a leaf, and look at the value of a captured one."""
        super().leaf(node)
        if self.is_root and node.op is not LITERAL:
            self.check_input(node, "a value from outside")

    def check_inputs(self, formals: Sequence[Array]) -> None:
        """Refuse a NaN in the formal inputs."""
        for formal in formals:
            named = formal.op is PLACEHOLDER
            self.check_input(formal, str(formal.params) if named else "input")

    def check_input(self, array: Array, name: str) -> None:
        """Refuse a NaN in an input; whoever uses it then uses what was looked at."""
        if dtypes.is_float(array.dtype):
            good = _f.logical_not(self.flags_of(array)[0])
            self.ids[array.serial] = self.checked(array, good, NAN_INPUT, name)

    def instruction(
        self, node: Array, op: Op, name: str, inputs: Sequence[Array], slim: Slim | None = None
    ) -> int:
        """Emit an instruction and a look at each floating result; return the first result."""
        for array in inputs:
            self.ref(array)  # what stands behind a leaf comes before the instruction
        first = super().instruction(node, op, name, inputs, slim)
        if slim is not None or name in _MOVES:
            return first
        if not op.multi:
            self.ids[node.serial] = first
            return self.look(node, node, inputs)
        parts = outputs(node)
        for k, part in enumerate(parts):
            self.ids[part.serial] = first + k
        # The further results of a kernel with a body are for its own backward pass.
        looked = parts[:1] if isinstance(op.derivative, Composite) else parts
        references = [self.look(part, node, inputs) for part in looked]
        if references == [first + k for k in range(len(looked))]:
            return first
        for part, reference in zip(looked, references, strict=True):
            self.ids[part.serial] = reference
        return super().instruction(
            node, op, "barrier", parts, slim=Slim((), (), {}, range(len(parts)))
        )

    def look(self, result: Array, node: Array, inputs: Sequence[Array]) -> int:
        """Look at one result of `node`; return the reference by which it goes on."""
        if not dtypes.is_float(result.dtype):
            return self.ids[result.serial]
        before = source.set_override(node.src)
        try:
            operands = [a for a in inputs if a.shape is not None and dtypes.is_float(a.dtype)]
            found = [self.flags_of(array) for array in operands]
            nan, *infinite = self.flags_of(result)
            good = [(self.excused(nan, [row[0] for row in found]), NEW_NAN)]
            if infinite:
                reasons = [flag for row in found for flag in row]
                good.append((self.excused(infinite[0], reasons), NEW_INFINITY))
            for condition, code in good:
                self.ids[result.serial] = self.checked(result, condition, code, node.op.name)
        finally:
            source.set_override(before)
        return self.ids[result.serial]

    @staticmethod
    def excused(flag: Array, reasons: Sequence[Array]) -> Array:
        """Whether a result is not flagged, or an operand is."""
        good = _f.logical_not(flag)
        for reason in reasons:
            good = _f.logical_or(good, reason)
        return good

    def flags_of(self, array: Array) -> list[Array]:
        """0-d bools: whether a value has a NaN, and whether an infinity if that is asked."""
        found = self.flags.get(array.serial)
        if found is None:
            found = [_f.any(_f.isnan(array))]
            if self.mode.infinities:
                found.append(_f.any(_f.isinf(array)))
            self.flags[array.serial] = found
        return found

    def checked(self, array: Array, condition: Array, code: int, name: str) -> int:
        """Encode a check of `array` in the name of an op; return its reference."""
        made = check(array, condition, code)
        self.run([made])
        self.operations[-1] = name
        return self.ids[made.serial]


_current: ContextVar[Mode | None] = ContextVar("pyeffect_torch_nans", default=None)
_lock = forks.lock()
open_count = 0
"""Blocks that are open in any context: while it is 0, nobody looks for a mode."""


def enter(mode: Mode) -> Token[Mode | None]:
    """Check the programs of this context."""
    global open_count
    with _lock:
        open_count += 1
    return _current.set(mode)


def leave(token: Token[Mode | None]) -> None:
    """Check them no longer."""
    global open_count
    _current.reset(token)
    with _lock:
        open_count -= 1


def current() -> Mode | None:
    """What the programs of this context are checked for, if they are."""
    return _current.get() if open_count else None
