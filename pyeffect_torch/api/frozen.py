"""`freeze`: a function as a program that is saved, loaded, and run from C without Python."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from pyeffect_torch.api.donation import concrete_buffers
from pyeffect_torch.api.explain import Explanation, explanation
from pyeffect_torch.api.inspection import Spec, traced
from pyeffect_torch.core import late, tree
from pyeffect_torch.core.array import from_buffer
from pyeffect_torch.core.dtypes import canonical
from pyeffect_torch.core.errors import ArgumentError, FileFormatError, ShapeError, TraceError
from pyeffect_torch.core.files import read_whole, write_atomically
from pyeffect_torch.core.graph import live_leaf
from pyeffect_torch.ops.base import describe, operand
from pyeffect_torch.runtime.base import Executable
from pyeffect_torch.runtime.compute import compute_arrays
from pyeffect_torch.runtime.decode import Decoded, decode
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.runtime.registry import current
from pyeffect_torch.runtime.wire import Program
from pyeffect_torch.transforms.arguments import require_callable


class FrozenProgram:
    """A compiled program of fixed input types; `freeze` and `load_program` make it.

    Attributes:
        inputs: `(name, Spec)` of each input leaf, in order.
        outputs: `(name, Spec)` of each output leaf.
    """

    def __init__(self, program: Program, meta: dict[str, Any]) -> None:
        self.program = program
        self.inputs = [(row["name"], _spec(row)) for row in meta["inputs"]]
        self.outputs = [(row["name"], _spec(row)) for row in meta["outputs"]]
        self._uses_key = bool(meta["uses_key"])
        self._in_structure = _structure(meta["in_tree"])
        self._out_structure = _structure(meta["out_tree"])
        self._executable: Executable | None = None
        self._runtime = current()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {spec!r}" for name, spec in self.inputs)
        outputs = ", ".join(repr(spec) for _, spec in self.outputs)
        return f"<frozen program ({inputs}) -> ({outputs})>"

    def require_types_of(self, decoded: Decoded) -> None:
        """Raise `ValueError` unless the names and trees are of what the program takes and gives."""
        formals = decoded.formal_types()[int(self._uses_key) :]
        for what, rows, types, structure in (
            ("inputs", self.inputs, formals, self._in_structure),
            ("outputs", self.outputs, decoded.output_types, self._out_structure),
        ):
            if [(spec.shape, spec.dtype) for _, spec in rows] != types:
                raise ValueError(f"its {what} are not those of the program")
            if structure.num_leaves != len(rows):
                raise ValueError(f"its tree of {what} has {structure.num_leaves} leaves")

    def call(self, *args: Any) -> Any:
        """Run the program on arguments of the frozen types.

        Raises:
            TreeError: another tree. ShapeError: a leaf of another type.
            TraceError: a leaf depends on a placeholder: a frozen program cannot be traced.
            InvalidHandleError, ForeignHandleError: a leaf was deleted, or lives elsewhere.
        """
        leaves, structure = tree.flatten(args)
        if structure != self._in_structure:
            raise tree.mismatch("FrozenProgram.call", self._in_structure, structure, "arguments")
        arrays = [operand("FrozenProgram.call", leaf) for leaf in leaves]
        for array, (name, spec) in zip(arrays, self.inputs, strict=True):
            if array.shape != spec.shape or array.dtype is not spec.dtype:
                raise ShapeError(
                    f"FrozenProgram.call: {name} is {describe(array)}, the program takes {spec!r}",
                    "freeze the function again for these types",
                )
        runtime = self._runtime
        buffers = concrete_buffers("FrozenProgram.call", arrays, runtime)
        if self._uses_key:
            buffers.insert(0, runtime.upload(late.functions.fresh_key_bits()))
        executable = self._executable
        if executable is None:
            executable = self._executable = runtime.executable(self.program)
        outputs = executable.run(buffers, self.program)
        results = [
            from_buffer(buf, spec.shape, spec.dtype, runtime.mask)
            for buf, (_, spec) in zip(outputs, self.outputs, strict=True)
        ]
        return tree.unflatten(self._out_structure, results)

    __call__ = call

    def explain(self) -> Explanation:
        """Return what was compiled: kernels and fused regions with their costs, memory plan."""
        if self._executable is None:
            self._executable = self._runtime.executable(self.program)
        return explanation(self._executable, self.program)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program, constants included, to one file; whole or not at all.

        Raises:
            IoError: it cannot be written.
        """
        write_atomically(path, [self.program.blob])


def freeze(f: Callable[..., Any], *exemplars: Any, constants: Any = None) -> FrozenProgram:
    """Return `f` as a `FrozenProgram` for arguments like `exemplars`.

    Args:
        f: a pure function of pytrees.
        exemplars: arguments, or trees of `et.spec`; only shapes and dtypes matter.
        constants: a tree that is passed to `f` first and baked into the program (parameters).

    Raises:
        TraceError: `f` reads a traced value, or closes over a value under differentiation.
    """
    require_callable("freeze", f)
    function = f if constants is None else (lambda *args: f(constants, *args))
    made, structure, out_structure = traced("freeze", function, exemplars, {})
    captures = list(made.captures)
    if any(live_leaf(array) for array in captures):
        raise TraceError(
            "freeze: the function closes over a value that is being differentiated",
            "freeze outside of grad and jvp",
        )
    if made.effects:
        raise TraceError(
            "freeze: the function calls et.debug.print or et.debug.callback, and a frozen program "
            "runs without Python",
            "leave the call out of what is frozen, or return the value",
        )
    compute_arrays([array for array in captures if array.buf is None])
    key, *formals = made.arguments
    body = made.body
    uses_key = made.uses_key()
    inputs = [key, *formals] if uses_key else list(formals)
    in_structure = structure.children()[0]
    meta = {
        "inputs": _rows(formals, tree.paths(in_structure, "args")),
        "outputs": _rows(body.roots, tree.paths(out_structure, "out")),
        "uses_key": uses_key,
        "in_tree": _skeleton(in_structure),
        "out_tree": _skeleton(out_structure),
    }
    program = encode(
        body.roots,
        inputs,
        current().has,
        key=0 if uses_key else None,
        nodes=body.nodes,
        bake=True,
        meta=json.dumps(meta).encode(),
    )
    return FrozenProgram(program, meta)


def load_program(path: str | os.PathLike[str]) -> FrozenProgram:
    """Read a program that `FrozenProgram.save` wrote; it runs on the current runtime.

    Containers come back as dicts, lists and tuples (a dataclass as a tuple).

    Raises:
        IoError: it cannot be read. FileFormatError: it is no program, of another version,
        truncated or corrupted; the message names the offset.
    """
    blob = read_whole(path)
    decoded = decode(blob)
    try:
        made = FrozenProgram(_program(blob, decoded), json.loads(decoded.meta))
        made.require_types_of(decoded)
        return made
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"program: the meta section is malformed ({error})", "freeze and save it again"
        ) from None


def _program(blob: bytes, decoded: Decoded) -> Program:
    blocks = [_operations(block) for block in decoded.blocks]
    return Program(
        blob,
        (),
        (),
        tuple(decoded.output_types),
        (None,) * len(decoded.instructions),
        _operations(decoded),
        (),
        decoded.formal_count,
        (),
        tuple((None,) * len(operations) for operations in blocks),
        tuple(blocks),
    )


def _operations(decoded: Decoded) -> tuple[str, ...]:
    return tuple(name for name, *_ in decoded.instructions)


def _rows(arrays: Any, names: list[str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": list(array.shape), "dtype": array.dtype.name}
        for array, name in zip(arrays, names, strict=True)
    ]


def _spec(row: dict[str, Any]) -> Spec:
    dtype = canonical(row["dtype"])
    if dtype is None:
        raise ValueError(f"unknown dtype {row['dtype']!r}")
    return Spec(tuple(int(extent) for extent in row["shape"]), dtype)


def _skeleton(structure: tree.Structure) -> Any:
    """A structure as JSON: 0 for a leaf, null, or `[kind, children, keys]`."""
    if structure.is_leaf():
        return 0
    if structure.type is type(None):
        return None
    children = [_skeleton(child) for child in structure.children()]
    if structure.type is dict:
        keys = list(structure.entries())
        if not all(isinstance(key, (str, int)) for key in keys):
            raise ArgumentError(
                f"freeze: dict keys must be strings or ints, got {keys}", "rename the keys"
            )
        return ["dict", children, keys]
    return ["list" if structure.type is list else "tuple", children]


def _structure(skeleton: Any) -> tree.Structure:
    def build(value: Any) -> Any:
        if value == 0:
            return 0
        if value is None:
            return None
        kind, children, *keys = value
        built = [build(child) for child in children]
        if kind == "dict":
            return dict(zip(keys[0], built, strict=True))
        return built if kind == "list" else tuple(built)

    return tree.structure(build(skeleton))
