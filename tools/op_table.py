"""Write `docs/ops.md`: which op was run on which dtype, on which runtime, in which transform.

For each op and dtype a few samples of the op's own domain are drawn. One compiled program computes
their results, jvp, vjp, the derivative of the vjp, and vmap of the results and of the vjp; each
root is compared with the reference runtime, which is compared with the op's reference function.
What cannot be run must have one of the reasons listed in the page.

Usage: python tools/op_table.py [--check]

`--check` writes nothing. The exit status is 1 if anything differs from the reference or, with
`--check`, from the page.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.op import REGISTRY, Nondiff, Op, Sample
from pyeffect_torch.ops.base import operand
from pyeffect_torch.testing.declarations import (
    draw_samples,
    expected,
    is_region,
    is_structural,
    results_of,
    sample_problem,
    symbolic,
    types_of,
)
from pyeffect_torch.testing.values import difference

NumpyArray = np.ndarray[Any, Any]
Cells = tuple[str, ...]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ops.md"

COLUMNS: Final = ("reference", "cpu", "jit", "jvp", "vjp", "order 2", "vmap")
DERIVATIVES: Final = ("jvp", "vjp", "order 2")
YES: Final = "yes"
REASONS: Final = {
    "int": "integers and bools have no derivative",
    "none": "the op has no derivative, or no floating result",
    "nullary": "the op has no operand to batch or to differentiate",
    "dtype": "the op refuses the dtype with a `DTypeError`",
}
SAMPLES: Final = 6
"""How many samples of a domain are run, drawn from its list."""
ROUNDINGS: Final = 32.0
"""Of the largest number in a sample: a derivative of a derivative is some ten operations."""


class Mismatch(Exception):
    """Something was run and is wrong."""


def ops() -> list[Op]:
    """The ops of the table: those that have samples."""
    return [op for op in REGISTRY.values() if not is_structural(op) and not is_region(op)]


def rows_wanted() -> list[tuple[Op, DType]]:
    """All ops on all dtypes."""
    return [(op, dtype) for op in ops() for dtype in dtypes.ALL]


def chosen(op: Op, dtype: DType, seed: int) -> list[Sample]:
    """The samples that are run; the same places of the list for every seed."""
    drawn = draw_samples(op, dtype, seed)
    places = np.random.default_rng(1).permutation(len(drawn))[:SAMPLES]
    return [drawn[place] for place in places]


# --- one sample as a function of arrays


class Case:
    """A sample, with tangents, cotangents and a second row to batch it with."""

    def __init__(self, op: Op, sample: Sample, other: Sample, rng: np.random.Generator) -> None:
        self.op = op
        self.sample = sample
        self.moving = [k for k, x in enumerate(sample.inputs) if x.dtype in dtypes.FLOATS]
        same = [(x.shape, x.dtype) for x in sample.inputs] == [
            (x.shape, x.dtype) for x in other.inputs
        ]
        row = other if same and other.params == sample.params else sample
        self.other = row.inputs
        self.tangents = [_direction(rng, sample.inputs[k]) for k in self.moving]
        results = [np.zeros(shape, dtype) for shape, dtype in types_of(op, sample)]
        self.cotangents = [_direction(rng, x) for x in results]
        self.is_smooth = (
            bool(self.moving)
            and any(x.dtype in dtypes.FLOATS for x in results)
            and not isinstance(op.derivative, Nondiff)
        )

    def arguments(self) -> list[NumpyArray]:
        """What `roots` takes, flat."""
        return [*self.sample.inputs, *self.other, *self.tangents, *self.cotangents]

    def scale(self) -> float:
        """The largest finite number in it, at least 1."""
        floats = [x.astype(np.float64) for x in self.arguments() if x.dtype in dtypes.FLOATS]
        return max((float(np.abs(x[np.isfinite(x)]).max(initial=1.0)) for x in floats), default=1.0)

    def roots(self, given: Sequence[Array]) -> dict[str, list[Array]]:
        """The results by column, of the arrays that stand for `arguments`."""
        parts: list[list[Array]] = []
        start = 0
        for group in (self.sample.inputs, self.other, self.tangents, self.cotangents):
            parts.append(list(given[start : start + len(group)]))
            start += len(group)
        inputs, others, tangents, cotangents = parts
        found = {"jit": self.call(*inputs)}
        stacked = [et.stack([a, b]) for a, b in zip(inputs, others, strict=True)]
        if stacked:
            found["vmap"] = list(et.vmap(self.call)(*stacked))
        if not self.is_smooth:
            return found

        def pulled(fixed: Sequence[Array]) -> Callable[..., list[Array]]:
            def gradient(*primals: Array) -> list[Array]:
                return list(et.vjp(self.on(fixed), *primals)[1](cotangents))

            return gradient

        primals = [inputs[k] for k in self.moving]
        found["jvp"] = list(et.jvp(self.on(inputs), primals, tangents)[1])
        found["vjp"] = pulled(inputs)(*primals)
        found["order 2"] = list(et.jvp(pulled(inputs), primals, tangents)[1])

        def row(*every: Array) -> list[Array]:
            return pulled(every)(*(every[k] for k in self.moving))

        found["vmap"] += list(et.vmap(row)(*stacked))
        return found

    def call(self, *inputs: Array) -> list[Array]:
        """The op itself."""
        return results_of(self.op, inputs, self.sample.params)

    def on(self, fixed: Sequence[Array]) -> Callable[..., list[Array]]:
        """The op as a function of its floating operands alone."""

        def f(*moved: Array) -> list[Array]:
            given = list(fixed)
            for k, x in zip(self.moving, moved, strict=True):
                given[k] = x
            return self.call(*given)

        return f


def _direction(rng: np.random.Generator, like: NumpyArray) -> NumpyArray:
    if like.dtype not in dtypes.FLOATS:
        return np.zeros(like.shape, like.dtype)
    return np.asarray(rng.uniform(-1, 1, like.shape)).astype(like.dtype)


# --- one row of the table


def run(op: Op, dtype: DType) -> Cells:
    """The cells of one op and dtype.

    Raises:
        Mismatch: something differs from the reference, or is refused without a reason.
    """
    assert op.domain is not None
    if dtype not in op.domain.dtypes:
        _refusal(op, dtype)
        return ("dtype",) * len(COLUMNS)
    pairs = zip(chosen(op, dtype, 0), chosen(op, dtype, 1), strict=True)
    rng = np.random.default_rng(3)
    cases = [Case(op, sample, other, rng) for sample, other in pairs]
    sizes = [len(case.arguments()) for case in cases]
    flat = [x for case in cases for x in case.arguments()]

    def everything(*given: Array) -> list[dict[str, list[Array]]]:
        found: list[dict[str, list[Array]]] = []
        start = 0
        for case, size in zip(cases, sizes, strict=True):
            found.append(case.roots(given[start : start + size]))
            start += size
        return found

    with et.use(et.reference()):
        want = _values(everything(*(operand(op.name, x) for x in flat)))
    with et.use(et.cpu()):
        got = _values(et.jit(everything)(*flat))
        eager = [case.call(*(operand(op.name, x) for x in case.sample.inputs)) for case in cases]
        plain = [[x.numpy() for x in results] for results in et.compute(eager)]
    for case, mine, theirs, direct in zip(cases, got, want, plain, strict=True):
        _compare(case, mine, theirs, direct)
    return tuple(_cell(column, dtype, cases, got) for column in COLUMNS)


def _values(found: Any) -> list[dict[str, list[NumpyArray]]]:
    return [
        {column: [x.numpy() for x in arrays] for column, arrays in case.items()}
        for case in et.compute(found)
    ]


def _compare(
    case: Case,
    got: dict[str, list[NumpyArray]],
    want: dict[str, list[NumpyArray]],
    direct: list[NumpyArray],
) -> None:
    op, sample = case.op, case.sample
    assert op.domain is not None
    first = expected(op, sample)
    for name, results in (("reference", want["jit"]), ("cpu", direct), ("jit", got["jit"])):
        problem = sample_problem(op, sample, results, first)
        if problem:
            raise Mismatch(f"{name}: {problem}")
    roundings = ROUNDINGS + 8 * op.domain.roundings(sample)
    for column in got:
        for mine, theirs in zip(got[column], want[column], strict=True):
            problem = difference(mine, theirs, roundings, _scale(case, theirs))
            if problem:
                shapes = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in sample.inputs)
                raise Mismatch(f"{op.name}({shapes}; {sample.params}) {column}: {problem}")


def _scale(case: Case, want: NumpyArray) -> float:
    if want.dtype not in dtypes.FLOATS:
        return 0.0
    wide = np.abs(want.astype(np.float64))
    return max(case.scale(), float(wide[np.isfinite(wide)].max(initial=0.0)))


def _cell(
    column: str, dtype: DType, cases: Sequence[Case], got: list[dict[str, list[NumpyArray]]]
) -> str:
    if column in ("reference", "cpu", "jit") or any(column in roots for roots in got):
        return YES
    if not any(case.sample.inputs for case in cases):
        return "nullary"
    assert column in DERIVATIVES
    return "none" if dtype in dtypes.FLOATS else "int"


def _refusal(op: Op, dtype: DType) -> None:
    """Raise `Mismatch` unless the op refuses operands of a dtype that its domain does not have."""
    assert op.domain is not None
    known = op.domain.dtypes[0]
    sample = chosen(op, known, 0)[0]
    if not any(x.dtype == known for x in sample.inputs):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = [x.astype(dtype) if x.dtype == known else x for x in sample.inputs]
    try:
        results_of(op, symbolic(Sample(tuple(inputs))), sample.params)
    except et.errors.DTypeError:
        return
    raise Mismatch(f"{op.name} takes {dtype.name}, which its domain does not have")


# --- the page

HEAD = """\
# Ops

Every op with samples, on every dtype: what was run and agreed with the float64 reference. `make
table` runs it all and writes this page (`tools/op_table.py`); `make test` runs float32, float64 and
a tenth of the rest, another one each day, and compares. Derivatives themselves are compared with
finite differences in `tests/registry/test_derivatives.py`.

- **reference**, **cpu**: the op alone on each runtime; **jit**: in a compiled function
- **jvp**, **vjp**, **order 2**: forward and reverse mode, and forward over reverse
- **vmap**: the op batched, and its vjp

A cell that is not `yes` says why not:

"""
TAIL = """
Functions that are not listed are made of these ops. Checkpoints, custom rules and collectives hold
functions of the user, so they have no samples; the tests of transforms cover them.

"""


def page(table: dict[tuple[str, str], Cells]) -> str:
    """The text of `docs/ops.md`: a line for each op and set of dtypes with the same cells."""
    lines = [HEAD.rstrip("\n"), ""]
    lines += [f"- `{key}`: {text}" for key, text in REASONS.items()]
    lines += [TAIL.rstrip("\n"), ""]
    lines.append("| op | dtypes | " + " | ".join(COLUMNS) + " |")
    lines.append("| --- |" + " --- |" * (len(COLUMNS) + 1))
    for op in ops():
        groups: dict[Cells, list[str]] = {}
        for dtype in dtypes.ALL:
            groups.setdefault(table[op.name, dtype.name], []).append(dtype.name)
        for cells, names in groups.items():
            lines.append(f"| `{op.name}` | {' '.join(names)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def table_of(text: str) -> dict[tuple[str, str], Cells]:
    """The cells of a page, by op and dtype."""
    found: dict[tuple[str, str], Cells] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(COLUMNS) + 2 and cells[0].startswith("`"):
            for dtype in cells[1].split():
                found[cells[0].strip("`"), dtype] = tuple(cells[2:])
    return found


def main() -> int:
    """Run everything, and write or check the page; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    table: dict[tuple[str, str], Cells] = {}
    failures: list[str] = []
    for op, dtype in rows_wanted():
        try:
            table[op.name, dtype.name] = run(op, dtype)
        except (Mismatch, et.errors.EffectTorchError) as error:
            failures.append(f"{op.name} {dtype.name}: {type(error).__name__}: {error}")
            print(failures[-1], flush=True)
    if failures:
        return 1
    text = page(table)
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print("docs/ops.md is not what was run: call `make table`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
