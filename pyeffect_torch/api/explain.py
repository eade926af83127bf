"""`Explanation`: what a program was compiled to, as data, as text, and as a page (`html`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pyeffect_torch.core import source
from pyeffect_torch.runtime.base import Executable
from pyeffect_torch.runtime.costs import Cost, Costs
from pyeffect_torch.runtime.decode import Decoded, decode
from pyeffect_torch.runtime.profiling import all_kernels
from pyeffect_torch.runtime.wire import Program


class Explanation(dict[str, Any]):
    """What was compiled, as a dict that prints as a table.

    `kernels` has one entry for each kernel: its family (`kernel`), the operations it does
    (`operations`; several if it is a fused region), the user's lines they come from (`lines`), its
    `flops` and `bytes`, and in which program it is (`block`: 0, or the body of a loop or branch).
    `flops` and `bytes` are the sums, each body once; `passes`, `arena`, `outputs` and the `_bytes`
    say what the compiler did and where values lie.
    """

    def __str__(self) -> str:
        lines = [f"{len(self['kernels'])} kernels for {self['program_instructions']} instructions"]
        lines.append(f"{count(self['flops'])} operations, {size(self['bytes'])} read and written")
        if "arena_bytes" in self:
            lines.append(
                f"memory: arena {size(self['arena_bytes'])}, peak {size(self['peak_bytes'])}, "
                f"constants {size(self['constant_bytes'])}"
            )
            passes = (f"{row['name']} {row['us']:.0f}" for row in self["passes"])
            lines.append(f"passes (us): {', '.join(passes)}")
        rows = [
            (
                f"{number}",
                row["kernel"] + (f" in body {row['block'] - 1}" if row["block"] else ""),
                shortened(row["operations"]),
                count(row["flops"]),
                size(row["bytes"]),
                ", ".join(row["lines"][:2]) + (", ..." if len(row["lines"]) > 2 else ""),
            )
            for number, row in enumerate(self["kernels"])
        ]
        head = ("", "kernel", "operations", "flops", "bytes", "lines")
        return "\n".join([*lines, table(head, rows, right=(0, 3, 4))])

    def html(self) -> str:
        """Return a page, complete in itself, that draws the regions and the memory plan."""
        from pyeffect_torch.api.explain_page import page

        return page(self)


def explanation(executable: Executable, program: Program) -> Explanation:
    """Return what `executable` is, with the lines of `program`, and what its kernels cost."""
    made = Explanation(executable.explain())
    made["kernels"] = kernels_of(all_kernels(made), program)
    made["flops"] = sum(row["flops"] for row in made["kernels"])
    made["bytes"] = sum(row["bytes"] for row in made["kernels"])
    return made


def kernels_of(rows: Sequence[dict[str, Any]], program: Program) -> list[dict[str, Any]]:
    """Return the kernels of an executable with operations, lines and costs added."""
    decoded = decode(program.blob)
    costs = Costs(decoded)
    operations = [program.operations, *program.block_operations]
    sources = [program.sources, *program.block_sources]
    reads = dataflow(rows, decoded)
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        block, members = row["block"], sorted(row["members"])
        copied = row.get("copied_bytes", 0)
        cost = Cost(0, 2 * copied) if copied else costs.of(block, members)
        origins = members or [row["instruction"]]  # what a copy is made for
        names = [operations[block][at] for at in origins if at < len(operations[block])]
        lines = (place(sources[block][at]) for at in origins if at < len(sources[block]))
        found.append(
            {
                **row,
                "operations": [f"copy for {names[0]}" if names else "copy"] if copied else names,
                "lines": [line for line in dict.fromkeys(lines) if line],
                "flops": cost.flops,
                "bytes": cost.bytes,
                "reads": reads[number],
            }
        )
    return found


def dataflow(rows: Sequence[dict[str, Any]], decoded: Decoded) -> list[list[int]]:
    """Return for each kernel those whose values it reads, also through views of them."""
    found: list[list[int]] = [[] for _ in rows]
    for block, program in enumerate((decoded, *decoded.blocks)):
        mine = [number for number, row in enumerate(rows) if row["block"] == block]
        maker = {at: number for number in reversed(mine) for at in rows[number]["members"]}
        # By value: the kernels that made it; of a view, those that made what it is a view of.
        made: list[set[int]] = [set() for _ in (*program.input_types, *program.literals)]
        needs: dict[int, set[int]] = {}
        for at, (_, operands, _, types) in enumerate(program.instructions):
            needs[at] = {kernel for operand in operands for kernel in made[operand]}
            made.extend([{maker[at]} if at in maker else needs[at]] * len(types))
        for number in mine:
            read = {kernel for at in rows[number]["members"] for kernel in needs[at]}
            found[number] = sorted(read - {number})
    return found


def place(where: source.Source | None) -> str:
    """`train.py:41`, or "" if the line is not known."""
    if where is None:
        return ""
    return f"{os.path.basename(where[0].co_filename)}:{source.line_of(where)}"


def count(number: float) -> str:
    """A number with a unit of thousands: 12.3 M."""
    for unit in ("", " k", " M", " G"):
        if number < 1000:
            return f"{number:.0f}" if unit == "" else f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.4g} T"


def size(number: float) -> str:
    """Bytes with a unit of 1024: 3.2 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"


def shortened(names: Sequence[str], limit: int = 44) -> str:
    """Names in one cell of a table; the last ones are counted if there are too many."""
    text = " ".join(names)
    if len(text) <= limit:
        return text
    kept: list[str] = []
    for name in names:
        if len(" ".join([*kept, name])) > limit - 8:
            break
        kept.append(name)
    return f"{' '.join(kept)} +{len(names) - len(kept)}".strip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return aligned columns, those of `right` to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = (
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    )
    return "\n".join(lines)
