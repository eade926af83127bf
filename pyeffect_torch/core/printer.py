"""The semantic graph as text: one line a node, with its type and the user's source line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pyeffect_torch.core import source
from pyeffect_torch.core.array import LITERAL, OUT, Array
from pyeffect_torch.core.graph import Body


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
        inner = getattr(node.params, "body", None)
        if isinstance(inner, Body):
            text = print_body(inner, node.op.name, (), indent + "    ")
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
    results = ", ".join(labels.get(root.serial, "?") for root in body.roots)
    lines.append(f"{indent}  return {results}")
    lines.append(f"{indent}}}")
    return "\n".join(lines)


def _line(node: Array, labels: dict[int, str]) -> str:
    label = labels[node.serial]
    if node.op is OUT:
        return f"{label} = {labels[node.inputs[0].serial]}.{node.params} : {type_text(node)}"
    arguments = [labels.get(array.serial, "?") for array in node.inputs]
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
