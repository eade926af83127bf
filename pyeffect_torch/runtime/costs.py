"""What a kernel of a compiled program costs, from the program alone: operations and bytes.

Operations are additions, multiplications and comparisons by count; a function such as `exp` counts
as one, a moved or converted element as none, and masks are not looked at. Bytes are those of the
operands and results of the kernel, each once: the least it must read and write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyeffect_torch.core.op import Type
from pyeffect_torch.runtime.decode import Decoded

_FREE: Final = frozenset((
    "reshape", "transpose", "broadcast_to", "slice", "concatenate", "pad", "cast", "bitcast",
    "barrier", "iota", "where", "take", "take_along_axis", "dynamic_slice",
    "dynamic_update_slice", "check", "check_index", "window",
    "switch", "while", "scan", "host_call",
))  # fmt: skip
_BY_OPERAND: Final = {
    "reduce_sum": 1, "reduce_prod": 1, "reduce_max": 1, "reduce_min": 1, "argmax": 1, "argmin": 1,
    "cumsum": 1, "cumprod": 1, "cummax": 1, "cummin": 1,
    "softmax": 4, "log_softmax": 4, "cross_entropy": 4, "cross_entropy_grad": 4,
    "rms_norm": 4, "layer_norm": 8,
}  # fmt: skip
"""Operations for each element of the first operand."""

Rule = Callable[[Mapping[str, Any], Sequence[Type], Sequence[Type]], int]


def _size(found: Type) -> int:
    return math.prod(found[0])


def _dot(attributes: Mapping[str, Any], operands: Sequence[Type], results: Sequence[Type]) -> int:
    shape = operands[0][0]
    return 2 * _size(results[0]) * math.prod(shape[axis] for axis in attributes["lhs_contract"])


def _attention(products: tuple[int, int]) -> Rule:
    """Products over the width of keys and of values, for each query and key."""

    def rule(attributes: Mapping[str, Any], operands: Sequence[Type], results: Any) -> int:
        del attributes, results
        (*lead, queries, width), (*_, keys, _) = operands[0][0], operands[1][0]
        values = operands[2][0][-1]
        each = products[0] * width + products[1] * values
        return 2 * math.prod(lead) * queries * keys * each

    return rule


def _sort(attributes: Mapping[str, Any], operands: Sequence[Type], results: Any) -> int:
    del results
    length = operands[0][0][attributes["axis"]]
    return _size(operands[0]) * max(1, math.ceil(math.log2(max(length, 1))))


def _matrix(factor: float) -> Rule:
    """A factorisation: `factor * m * n * min(m, n)` for each matrix."""

    def rule(attributes: Mapping[str, Any], operands: Sequence[Type], results: Any) -> int:
        del attributes, results
        *lead, rows, columns = operands[0][0]
        return round(factor * math.prod(lead) * rows * columns * min(rows, columns))

    return rule


def _solve(attributes: Mapping[str, Any], operands: Sequence[Type], results: Sequence[Type]) -> int:
    del attributes
    return _size(results[0]) * operands[0][0][-1]


def _updates(attributes: Mapping[str, Any], operands: Sequence[Type], results: Any) -> int:
    del attributes, results
    return _size(operands[2])


_RULES: Final[dict[str, Rule]] = {
    "dot_general": _dot,
    "attention": _attention((1, 1)),
    "attention_grad": _attention((3, 2)),
    "sort": _sort,
    "searchsorted": lambda attributes, operands, results: (
        _size(results[0]) * max(1, math.ceil(math.log2(max(operands[0][0][-1], 1))))
    ),
    "scatter": _updates,
    "scatter_along_axis": _updates,
    # Golub and Van Loan, Matrix Computations: the leading terms.
    "lu": _matrix(2 / 3),
    "cholesky": _matrix(1 / 3),
    "qr": _matrix(4),
    "eigh": _matrix(9),
    "svd": _matrix(14),
    "triangular_solve": _solve,
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Operations, and bytes read and written, of one kernel."""

    flops: int
    bytes: int


class Costs:
    """The costs of the kernels of one program."""

    def __init__(self, decoded: Decoded) -> None:
        self._programs = [_Program(decoded), *(_Program(block) for block in decoded.blocks)]

    def of(self, block: int, members: Sequence[int]) -> Cost:
        """Return the cost of a kernel that does the instructions `members` of a program.

        `block` is 0 for the program itself, k + 1 for its nested program k.
        """
        program = self._programs[block]
        return Cost(sum(map(program.flops, members)), program.bytes(members))


class _Program:
    def __init__(self, decoded: Decoded) -> None:
        self._instructions = decoded.instructions
        self._types: list[Type] = [*decoded.input_types]
        self._types.extend((value.shape, value.dtype) for value in decoded.literals)
        self._first: list[int] = []
        uses: dict[int, set[int]] = {}
        for number, (_, operands, _, types) in enumerate(decoded.instructions):
            self._first.append(len(self._types))
            self._types.extend(types)
            for operand in operands:
                uses.setdefault(operand, set()).add(number)
        for value, _ in decoded.outputs:
            uses.setdefault(value, set()).add(-1)
        self._uses = uses

    def flops(self, number: int) -> int:
        """Operations of one instruction."""
        name, operands, attributes, results = self._instructions[number]
        types = [self._types[operand] for operand in operands]
        if name in _FREE:
            return 0
        if name in _BY_OPERAND:
            return _BY_OPERAND[name] * _size(types[0])
        if name in _RULES:
            return _RULES[name](attributes, types, results)
        return sum(_size(result) for result in results)

    def bytes(self, members: Sequence[int]) -> int:
        """Bytes of what `members` read from elsewhere, and of their results used elsewhere."""
        inside = set(members)
        made = {
            self._first[number] + k
            for number in members
            for k in range(len(self._instructions[number][3]))
        }
        read = {v for number in members for v in self._instructions[number][1]} - made
        written = {value for value in made if self._uses.get(value, set()) - inside}
        return sum(_size(self._types[v]) * self._types[v][1].itemsize for v in read | written)
