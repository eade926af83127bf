"""An explanation as one page of HTML: fused regions and the memory plan, drawn as inline SVG.

The page loads nothing and runs no script; every text in it is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from pyeffect_torch.api.explain import count, shortened, size

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fdfdfc; --soft: #6b7480;
  --line: #d5dae0; --fused: #dbe9f8; --single: #eef0f2; --edge: #5b8cc4; --bar: #7fb08a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #16191d; --soft: #98a2ad;
  --line: #353c45; --fused: #1f3c5c; --single: #252b32; --edge: #6fa3dd; --bar: #4c8a5b; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
p { color: var(--soft); max-width: 46rem; }
dl { display: flex; flex-wrap: wrap; gap: .5rem 2rem; } dt { color: var(--soft); } dd { margin: 0; }
svg { width: 100%; height: auto; display: block; }
text { font: 12px ui-monospace, monospace; fill: var(--ink); } text.soft { fill: var(--soft); }
.fused { fill: var(--fused); stroke: var(--edge); } .single { fill: var(--single);
  stroke: var(--line); } .edge { fill: none; stroke: var(--edge); opacity: .55; }
.bar { fill: var(--bar); } .axis { stroke: var(--line); }
table { border-collapse: collapse; } td, th { padding: .1rem .8rem .1rem 0; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
"""

_ROW: Final = 26  # pixels of one kernel
_LANES: Final = 150  # width of the arrows on the left
_WIDTH: Final = 1060
_BOX: Final = 560
_STORAGE_HEIGHT: Final = 320
_KERNELS_MAX: Final = 1500
"""More are not drawn: a page of some megabytes opens slowly."""


def page(explanation: Mapping[str, Any]) -> str:
    """Return the page."""
    kernels = explanation["kernels"]
    shown = kernels[:_KERNELS_MAX]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>What was compiled</title>',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>What was compiled</h1>",
        _summary(explanation),
        "<h2>Kernels in the order in which they run</h2>",
        "<p>A box is a kernel; a blue one is a fused region of several operations. Lines on the "
        "left lead from the kernel that made a value to those that read it. Bars compare the "
        "operations of the kernels; point at a box for more.</p>",
        _kernels(shown),
        "" if len(shown) == len(kernels) else f"<p>{len(kernels) - len(shown)} more.</p>",
    ]
    if explanation.get("arena"):
        parts.extend(
            [
                "<h2>Memory plan</h2>",
                "<p>Each rectangle is a value in the arena: from left to right the kernels during "
                "which it is kept, from top to bottom where it lies.</p>",
                _arena(explanation),
            ]
        )
    if explanation.get("passes"):
        parts.extend(["<h2>Passes of the compiler</h2>", _passes(explanation["passes"])])
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _summary(explanation: Mapping[str, Any]) -> str:
    facts = [
        ("kernels", f"{len(explanation['kernels'])}"),
        ("instructions", f"{explanation['program_instructions']}"),
        ("operations", count(explanation["flops"])),
        ("read and written", size(explanation["bytes"])),
    ]
    for name, label in (
        ("arena_bytes", "arena"),
        ("peak_bytes", "peak"),
        ("constant_bytes", "constants"),
    ):
        if name in explanation:
            facts.append((label, size(explanation[name])))
    rows = (f"<div><dt>{escape(a)}</dt><dd>{escape(b)}</dd></div>" for a, b in facts)
    return f"<dl>{''.join(rows)}</dl>"


def _kernels(kernels: Sequence[Mapping[str, Any]]) -> str:
    height = _ROW * len(kernels) + 4
    most = max((row["flops"] for row in kernels), default=0)
    drawn = [
        *(_edge(source, number) for number, row in enumerate(kernels) for source in row["reads"]),
        *(piece for number, row in enumerate(kernels) for piece in _box(number, row, most)),
    ]
    return _svg(_WIDTH, height, "fused regions", drawn)


def _edge(source: int, target: int) -> str:
    """A curve from one box to a later one, the further the wider."""
    start, end = _ROW * source + _ROW / 2 + 4, _ROW * target + _ROW / 2 - 2
    bend = min(_LANES - 10, 12 + 7 * math.sqrt(abs(target - source)))
    left = _LANES - bend
    return (
        f'<path class="edge" d="M{_LANES} {start:.0f} C{left:.0f} {start:.0f} '
        f'{left:.0f} {end:.0f} {_LANES} {end:.0f}"/>'
    )


def _box(number: int, row: Mapping[str, Any], most: int) -> Iterator[str]:
    top = _ROW * number + 3
    kind = "fused" if len(row["operations"]) > 1 else "single"
    where = f" in body {row['block'] - 1}" if row["block"] else ""
    title = "\n".join(
        [
            f"kernel {number}: {row['kernel']}{where}",
            " ".join(row["operations"]),
            f"{count(row['flops'])} operations, {size(row['bytes'])}",
            *row["lines"],
        ]
    )
    indent = 20 if row["block"] else 0
    label = f"{number}  {shortened(row['operations'], 52 - indent // 7) or row['kernel']}"
    bar = 160 * row["flops"] / most if most else 0
    yield f"<g><title>{escape(title)}</title>"
    yield (
        f'<rect class="{kind}" x="{_LANES + indent}" y="{top}" width="{_BOX - indent}" '
        f'height="{_ROW - 6}" rx="4"/>'
    )
    yield _text(_LANES + indent + 8, top + 14, label)
    right = _LANES + _BOX + 12
    yield f'<rect class="bar" x="{right}" y="{top + 4}" width="{bar:.1f}" height="{_ROW - 14}"/>'
    yield _text(right + 170, top + 14, row["lines"][0] if row["lines"] else "", "soft")
    yield "</g>"


def _arena(explanation: Mapping[str, Any]) -> str:
    steps = max(explanation["instructions"], 1)
    total = max(explanation["arena_bytes"], 1)
    left, width = 90, _WIDTH - 100
    drawn = [
        _text(0, 14, "0", "soft"),
        _text(0, _STORAGE_HEIGHT, size(total), "soft"),
        f'<line class="axis" x1="{left}" y1="0" x2="{left}" y2="{_STORAGE_HEIGHT}"/>',
    ]
    for row in explanation["arena"]:
        x = left + width * row["first"] / steps
        y = _STORAGE_HEIGHT * row["offset"] / total
        title = f"{size(row['bytes'])} at {row['offset']}, kernels {row['first']} to {row['last']}"
        drawn.append(
            f"<g><title>{escape(title)}</title>"
            f'<rect class="fused" x="{x:.1f}" y="{y:.2f}" '
            f'width="{max(width * (row["last"] - row["first"] + 1) / steps, 1):.1f}" '
            f'height="{max(_STORAGE_HEIGHT * row["bytes"] / total, 0.5):.2f}"/></g>'
        )
    return _svg(_WIDTH, _STORAGE_HEIGHT + 6, "memory plan", drawn)


def _passes(passes: Iterable[Mapping[str, Any]]) -> str:
    rows = "".join(
        f'<tr><td>{escape(row["name"])}</td><td class="number">{row["us"]:.0f} us</td>'
        f'<td class="number">{row["instructions"]}</td></tr>'
        for row in passes
    )
    return f"<table><tr><th>pass</th><th>time</th><th>instructions</th></tr>{rows}</table>"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{style}>{escape(text)}</text>'


def _svg(width: int, height: int, label: str, drawn: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(drawn)}</svg>"
    )
