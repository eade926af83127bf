"""The reference runtime: programs interpreted in NumPy, op by op, from the declarations.

Slow and obvious. It is the oracle of every differential test: floats are computed in float64 and
rounded once to the result dtype.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyeffect_torch.core import source
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import BackendError, InvalidHandleError, UnsupportedError
from pyeffect_torch.core.op import REGISTRY, Op, Region, Shape
from pyeffect_torch.runtime import profiling
from pyeffect_torch.runtime.base import Runtime, copy_in_pieces
from pyeffect_torch.runtime.decode import Decoded, decode
from pyeffect_torch.runtime.wire import Program

Value = np.ndarray[Any, Any]


class NumpyBuffer:
    """A buffer that is a NumPy array."""

    __slots__ = ("value",)

    def __init__(self, value: Value | None) -> None:
        self.value: Value | None = value
        if value is not None:
            value.flags.writeable = False  # or the holder of a view could set its flag back

    def numpy(self, shape: Shape, dtype: DType) -> Value:
        """Return a read-only view."""
        if self.value is None:
            raise InvalidHandleError("the buffer was released", "keep the array alive")
        return self.value.view()

    def release(self) -> None:
        """Drop the array."""
        self.value = None


class ReferenceRuntime(Runtime):
    """NumPy with float64 accumulation."""

    def __init__(self, hidden: frozenset[str] = frozenset()) -> None:
        super().__init__("reference")
        self.hidden = hidden

    def has(self, opcode: str) -> bool:
        """Whether some declaration has this opcode and a reference, and it is not hidden."""
        op = by_opcode().get(opcode)
        return opcode not in self.hidden and op is not None and op.reference is not None

    def upload(self, value: Value) -> NumpyBuffer:
        """Copy the array."""
        copied = np.empty(value.shape, value.dtype)
        copy_in_pieces(copied, value)
        return NumpyBuffer(copied)

    def reserve(self, shape: Shape, dtype: DType) -> tuple[NumpyBuffer, memoryview]:
        """Return a new array and its bytes."""
        value = np.empty(shape, dtype)
        data = value.reshape(-1).view(np.uint8).data
        return NumpyBuffer(value), data

    def compile(self, program: Program, optimize: bool) -> ReferenceExecutable:
        """Decode the program; there is nothing to optimise."""
        del optimize
        return ReferenceExecutable(program, decode(program.blob))

    def memory_stats(self) -> dict[str, int]:
        """NumPy keeps no counters: only the number of cached programs."""
        return {"executables": len(self._executables)}


_by_opcode: dict[str, Op] = {}


def by_opcode() -> dict[str, Op]:
    """Declarations by opcode."""
    if len(_by_opcode) == 0:
        _by_opcode.update({op.opcode: op for op in REGISTRY.values() if op.opcode is not None})
    return _by_opcode


class ReferenceExecutable:
    """An interpreter over the decoded instructions."""

    def __init__(
        self, program: Program, decoded: Decoded, bound: Sequence[Any] = (), first: int = 0
    ) -> None:
        self.program = program
        self.decoded = decoded
        self.bound = [NumpyBuffer(buffer.value) for buffer in bound]  # released by us alone
        self.first = first

    @property
    def nbytes(self) -> int:
        """The size of the program."""
        return len(self.program.blob)

    def bind(self, captured: Sequence[Any], first: int) -> ReferenceExecutable:
        """Remember the buffers of the inputs from number `first` on."""
        return ReferenceExecutable(self.program, self.decoded, captured, first)

    def explain(self) -> dict[str, Any]:
        """The instructions, each a kernel, as they are interpreted."""
        programs = [self.decoded, *self.decoded.blocks]
        kernels = [
            {"kernel": step[0], "block": block, "instruction": at, "members": [at]}
            for block, decoded in enumerate(programs)
            for at, step in enumerate(decoded.instructions)
        ]
        count = len(self.decoded.instructions)
        return {"program_instructions": len(kernels), "instructions": count, "kernels": kernels}

    def run(self, inputs: Sequence[Any], origin: Program) -> list[Any]:
        """Interpret the program."""
        decoded = self.decoded
        given = [*inputs[: self.first], *self.bound, *inputs[self.first :]]
        rest = iter([buffer.value for buffer in given])
        values: list[Any] = [
            decoded.constants[index] if index in decoded.constants else next(rest)
            for index in range(len(decoded.input_flags))
        ]
        profile = profiling.current()
        run = _Run(decoded, origin, timed=profile is not None)
        with np.errstate(all="ignore"):
            outputs = run.program(values)
        if profile is not None:
            profile.add(origin, self, run.times())
        for index in self.program.donated:
            given[index].release()
        return [NumpyBuffer(np.array(value, order="C")) for value in outputs]


class _Run:
    """One run: the values of a program, and of the nested programs that its instructions run."""

    def __init__(self, root: Decoded, origin: Program, timed: bool = False) -> None:
        self.root = root
        self.origin = origin
        self.records: dict[tuple[int, int], tuple[int, int, int]] | None = {} if timed else None

    def times(self) -> list[tuple[int, int, int]]:
        """Start, duration and calls of each instruction, in the order of `explain`."""
        assert self.records is not None
        programs = [self.root, *self.root.blocks]
        places = [(k, at) for k, p in enumerate(programs) for at in range(len(p.instructions))]
        return [self.records.get(place, (0, 0, 0)) for place in places]

    def program(self, inputs: Sequence[Value], number: int | None = None) -> list[Value]:
        """Interpret the program, or the nested one of that number."""
        decoded, origin = self.root, self.origin
        sources, operations = origin.sources, origin.operations
        if number is not None:
            decoded, known = self.root.blocks[number], bool(origin.block_sources)
            sources = origin.block_sources[number] if known else ()  # a file has no lines
            operations = origin.block_operations[number] if known else ()
        values = [*inputs, *decoded.literals]
        for at, step in enumerate(decoded.instructions):
            begun = time.monotonic_ns()
            operation = operations[at] if at < len(operations) else step[0]
            where = sources[at] if at < len(sources) else None
            values.extend(self.step(step, values, operation, where))
            if self.records is not None:
                place = (0 if number is None else number + 1, at)
                first, spent, calls = self.records.get(place, (begun, 0, 0))
                self.records[place] = (first, spent + time.monotonic_ns() - begun, calls + 1)
        return [values[index] for index, _ in decoded.outputs]

    def step(
        self, step: Any, values: list[Value], operation: str, where: source.Source | None
    ) -> list[Value]:
        """Compute the results of one instruction, which `operation` was encoded as."""
        name, operands, attributes, types = step
        op = by_opcode().get(name)
        if op is None or op.reference is None:
            raise UnsupportedError(
                f"the reference has no {name}", "use et.cpu()", where, backend="reference"
            )
        arrays = [values[index] for index in operands]
        if isinstance(op.derivative, Region) and op.derivative.blocks:
            bodies = {key: self.nested(attributes[key]) for key in op.derivative.blocks}
            got = op.reference({**attributes, **bodies, "types": types}, *arrays)
        else:
            try:
                got = op.reference(attributes, *arrays)
            except BackendError as error:
                what = f"{operation}: {error.what}" if name == "check" else error.what
                context = {"backend": "reference", "operation": operation}
                raise type(error)(what, error.mend, where, **context) from None
        results = got if isinstance(got, (tuple, list)) else (got,)
        out: list[Value] = []
        for value, (shape, dtype) in zip(results, types, strict=True):
            rounded = np.asarray(value).astype(dtype, copy=False)
            if rounded.shape != shape:
                raise UnsupportedError(
                    f"the reference of {name} gave shape {rounded.shape} instead of {shape}",
                    "report this as a defect",
                    where,
                    backend="reference",
                )
            out.append(rounded)
        return out

    def nested(self, number: Any) -> Any:
        """A nested program as a function from a list of values to a list; of a list, all."""
        if isinstance(number, tuple):
            return [self.nested(one) for one in number]
        return lambda inputs: self.program(inputs, number)
