"""The semantic graph as text: one line a node, with its type and the user's source line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyeffect_torch.core import source
from pyeffect_torch.core.array import LITERAL, OUT, Array
from pyeffect_torch.core.graph import Body
from pyeffect_torch.core.op import Region


class IR:
    """A printable function of the graph. `str(ir)` is the text; `ir.body` the nodes."""

    def __init__(self, name: str, body: Body, names: Sequence[str]) -> None:
        self.name = name
        self.body = body
        self.names = tuple(names)

    def __str__(self) -> str:
        return print_body(self.body, self.name, self.names)

    __repr__ = __str__

    def __len__(self) -> int:
        """The number of nodes, without formals and literals."""
        return sum(1 for node in self.body.nodes if node.inputs)


def type_text(array: Array) -> str:
    """`float32[2, 3]`; for a bundle, the types of its outputs."""
    if array.shape is None and array.params is None:
        return "(computed)"
    if array.shape is None:
        types = ", ".join(f"{dtype.name}{list(shape)}" for shape, dtype in array.params.types)
        return f"({types})"
    return f"{array.dtype.name}{list(array.shape)}"


def print_body(body: Body, name: str, names: Sequence[str] = (), indent: str = "") -> str:
    """Return the text of a body: header, one line a node, results; nested bodies indented."""
    labels: dict[int, str] = {}
    formals: list[str] = []
    for index, formal in enumerate(body.formals):
        label = names[index] if index < len(names) else f"%in{index}"
        labels[formal.serial] = label
        formals.append(f"{label}: {type_text(formal)}")
    rows: list[tuple[str, str]] = []
    count = 0
    for node in body.nodes:
        if node.op is LITERAL and not node.inputs:
            labels[node.serial] = f"{node.params}"
            continue
        labels[node.serial] = f"%{count}"
        count += 1
        rows.append((_line(node, labels), _place(node)))
        bodies: Sequence[Body] = getattr(node.params, "bodies", ())
        for number, inner in enumerate(bodies):
            text = print_body(inner, _title(node, number, len(bodies)), (), indent + "    ")
            rows.extend((line, "") for line in text.splitlines())
    width = max((len(left) for left, right in rows if right), default=0)
    lines = [f"{indent}{name}({', '.join(formals)}) {{"]
    for left, right in rows:
        nested = not right
        lines.append(
            left
            if nested and left.startswith(indent + "    ")
            else (f"{indent}  {left:<{width}}  # {right}" if right else f"{indent}  {left}")
        )
    results = ", ".join(_label(root, labels) for root in body.roots)
    lines.append(f"{indent}  return {results}")
    lines.append(f"{indent}}}")
    return "\n".join(lines)


def _title(node: Array, number: int, count: int) -> str:
    """The name of a nested body: of its op, and which one it is of several."""
    if count == 1:
        return node.op.name
    blocks = node.op.derivative.blocks if isinstance(node.op.derivative, Region) else ()
    return f"{node.op.name}.{blocks[number] if len(blocks) == count else number}"


def _label(array: Array, labels: dict[int, str]) -> str:
    """What a line calls its operand; a literal that other graphs share is no line of a body."""
    if array.op is LITERAL and array.buf is None:
        return str(array.params)
    return labels.get(array.serial, "?")


def _line(node: Array, labels: dict[int, str]) -> str:
    label = labels[node.serial]
    if node.op is OUT:
        return f"{label} = {labels[node.inputs[0].serial]}.{node.params} : {type_text(node)}"
    arguments = [_label(array, labels) for array in node.inputs]
    arguments.extend(f"{key}={_value(value)}" for key, value in _attributes(node).items())
    return f"{label} = {node.op.name}({', '.join(arguments)}) : {type_text(node)}"


def _attributes(node: Array) -> Mapping[str, Any]:
    if node.params is None or node.op.opcode is None:
        return {}
    return node.op.attributes(node)


def _value(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(getattr(value, "name", value))


def _place(node: Array) -> str:
    if node.src is None:
        return ""
    return f"{os.path.basename(node.src[0].co_filename)}:{source.line_of(node.src)}"
