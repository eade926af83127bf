"""Write `docs/ulp.md`: the worst error of each elementwise float32 function, measured.

Each function is run on millions of float32 numbers of every exponent and both signs, and compared
with float64. The points are the same in every run. One column is one instruction set: each is
measured in a process of its own, as far as this machine has it.

Usage: python tools/ulp_table.py [--check]

`--check` writes nothing, and ends with status 1 if the file differs from what is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pyeffect_torch as et
from pyeffect_torch.core.op import REGISTRY

NumpyArray = np.ndarray[Any, Any]

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ulp.md"
COLUMNS = ("v2", "v3", "v4")
"""Instruction sets whose elementwise code differs; `v4b` has that of `v4`."""
SAME_WITHIN = 0.02
"""Ulp by which a fresh measurement may differ: makers of processors round estimates differently."""


@dataclass(frozen=True)
class Case:
    """One function: the bound it promises in ulp, and the same in float64.

    Attributes:
        scale: the size whose ulp is the unit, by default the result's; of the result and operands.
        count: the number of points, about; fewer where the float64 function is slow.
        operands: one, or two.
    """

    name: str
    bound: float
    exact: Callable[..., Any]
    call: Callable[..., Any] | None = None
    scale: Callable[..., Any] | None = None
    count: int = 1 << 21
    operands: int = 1

    def run(self, *arrays: NumpyArray) -> NumpyArray:
        """Return the float32 results."""
        function = self.call or getattr(et, self.name)
        return function(*arrays).numpy()


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return np.vectorize(function, otypes=[np.float64])


def _reference(name: str, **attributes: Any) -> Callable[..., Any]:
    """The reference of an op, which computes in float64."""
    reference = REGISTRY[name].reference
    assert reference is not None
    return lambda *arrays: reference(attributes, *arrays)


def _sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0, -x))


def _lgamma(x: Any) -> Any:
    """The reference, and the Taylor series near its roots, where that cancels."""
    value = _reference("lgamma")(x)
    z = np.where(np.abs(x - 2) < 0.5, x - 2, x - 1)
    zeta = [sum(m**-k for m in range(1, 200)) + 200 ** (1 - k) / (k - 1) + 200**-k / 2
            for k in range(2, 12)]  # fmt: skip
    series = -np.euler_gamma * z + sum(zeta_k * (-z) ** k / k for k, zeta_k in enumerate(zeta, 2))
    series = series + np.where(np.abs(x - 2) < 0.5, np.log1p(z), 0)
    return np.where(np.abs(z) < 0.01, series, value)


def _sinc(x: Any) -> Any:
    """NumPy rounds pi x before it takes the sine, here whole multiples of pi are left out."""
    whole = np.round(x)
    sine = np.sin(np.pi * (x - whole)) * np.where(np.remainder(whole, 2) == 1, -1, 1)
    return np.where(x == 0, 1, sine / (np.pi * x))


def _factor(result: Any, x: Any) -> Any:
    """Of `x` times a number that may be subnormal: what an error of that makes of the result."""
    return np.maximum(np.abs(result), np.abs(x) * 2.0**-126)


def _gelu(x: Any) -> Any:
    return x / 2 * _each(math.erfc)(-x * math.sqrt(0.5))


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0) -> Any:
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)

NAMESAKES = (
    "exp exp2 expm1 log log1p log2 log10 sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh "
    "arccosh arctanh cbrt"
)
"""Functions of one operand that NumPy has by the same name."""

UNARY: Sequence[Case] = (
    Case("sqrt", 0.5, np.sqrt),
    Case("reciprocal", 0.5, np.reciprocal),
    Case("square", 0.5, np.square),
    *(Case(name, 2.0, getattr(np, name)) for name in NAMESAKES.split()),
    Case("erf", 2.0, _each(math.erf)),
    Case("erfc", 2.0, _each(math.erfc)),
    Case("sigmoid", 2.0, _sigmoid),
    Case("rsqrt", 2.0, lambda x: 1 / np.sqrt(x)),
    Case("erfinv", 1.0, _reference("erfinv"), count=1 << 17),
    Case("lgamma", 1.0, _lgamma),
    Case("digamma", 1.0, _reference("polygamma", order=0), count=1 << 15),
    Case("i0", 1.0, _reference("bessel_i", order=0), count=1 << 18),
    Case("i1", 1.0, _reference("bessel_i", order=1), count=1 << 18),
)
PAIRS: Sequence[Case] = (
    Case("add", 0.5, np.add, operands=2),
    Case("multiply", 0.5, np.multiply, operands=2),
    Case("divide", 0.5, np.divide, operands=2),
    Case("power", 2.0, np.power, operands=2),
    Case("arctan2", 2.0, np.arctan2, operands=2),
    Case("floor_divide", 0.5, _reference("floor_divide"), operands=2),
    Case("remainder", 0.5, np.remainder, operands=2),
    Case("fmod", 0.0, np.fmod, operands=2),
)
COMPOSITES: Sequence[Case] = (
    Case("softsign", 1.5, lambda x: np.where(np.isinf(x), np.nan, x / (1 + np.abs(x)))),
    Case("softplus", 2.0, lambda x: np.logaddexp(0, x)),
    Case("log_sigmoid", 2.0, lambda x: -np.logaddexp(0, -x)),
    Case("silu", 3.0, lambda x: x * _sigmoid(x), scale=_factor),
    Case("elu", 2.0, _elu),
    Case("selu", 3.0, lambda x: _elu(x, *SELU)),
    Case("mish", 4.0, lambda x: x * np.tanh(np.logaddexp(0, x)), scale=_factor),
    Case("gelu", 2.0, _gelu, scale=lambda result, x: x),
    Case("sinc", 3.0, _sinc),
)
COMPOSITE_PAIRS: Sequence[Case] = (
    Case("hypot", 2.0, np.hypot, operands=2),
    Case(
        "logaddexp",
        4.0,
        np.logaddexp,
        scale=lambda result, x, y: np.maximum(np.abs(result), np.abs(np.maximum(x, y))),
        operands=2,
    ),
)
CASES: Sequence[Case] = (*UNARY, *PAIRS, *COMPOSITES, *COMPOSITE_PAIRS)


# --- points


def _near(values: Sequence[float], steps: int) -> NumpyArray:
    """The float32 numbers within `steps` of each value, on both sides of 0."""
    centre = np.array(values, np.float32).view(np.int32)[:, None]
    bits = (centre + np.arange(-steps, steps + 1, dtype=np.int32)).ravel()
    bits = np.concatenate([bits, bits ^ np.int32(-(2**31))])
    return bits.view(np.float32)


def points(count: int) -> NumpyArray:
    """Float32 numbers: all exponents and signs evenly, small ones evenly, and edges."""
    # An odd step near 2^32 / count meets every exponent, and mantissas of all kinds.
    step = (2**32 // count) | 1
    spread = (np.arange(count, dtype=np.uint64) * step).astype(np.uint32).view(np.float32)
    line = np.linspace(-100, 100, count // 4).astype(np.float32)
    unit = np.linspace(-2, 2, count // 4).astype(np.float32)
    edges = [0.25, 0.5, 0.92, 1.0, 1.5, 2.0, 3.0, 3.95, 16.0, 87.3, 88.7, 103.9, 2.0**-126, 3.4e38]
    edges += [math.pi / 2 * k for k in range(1, 33)]
    edges += [math.log(2) * k for k in (0.5, 1, 1.5, 127, 128)]
    extremes = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45], np.float32)
    return np.concatenate([spread, line, unit, _near(edges, 256), extremes])


def pairs(count: int) -> tuple[NumpyArray, NumpyArray]:
    """Pairs of float32 numbers: any bits, exponents near each other, and all pairs of edges."""
    rng = np.random.default_rng(5)
    third = count // 3
    bits = rng.integers(0, 2**32, (2, third), dtype=np.uint64).astype(np.uint32)
    wild = bits.view(np.float32)
    base = rng.uniform(-0.5, 3.5, third)
    tame = np.stack([base, rng.uniform(-30, 30, third)]).astype(np.float32)
    close = rng.standard_normal((2, third)) * 2.0 ** rng.integers(-20, 20, third)
    edge = np.array([0, 1e-45, 1e-38, 0.5, 1, 1.5, 2, 3, 7.25, 88.0, 2**24 - 1, 2**24, 3e38,
                     np.inf, np.nan], np.float32)  # fmt: skip
    grid = np.stack(np.meshgrid(np.r_[edge, -edge], np.r_[edge, -edge])).reshape(2, -1)
    x, y = np.concatenate([wild, tame, close.astype(np.float32), grid], axis=1)
    return x, y


# --- errors


@np.errstate(over="ignore", invalid="ignore")  # infinities are told apart below
def ulp_errors(got: NumpyArray, want: NumpyArray, size: NumpyArray) -> NumpyArray:
    """How far float32 results are from float64 ones, in units of the last place of `size`.

    Infinite where one is NaN and the other is not, or an infinity has no large neighbour.
    """
    largest = float(np.finfo(np.float32).max)
    rounded = want.astype(np.float32)
    _, exponent = np.frexp(np.clip(np.abs(size), 2.0**-126, largest))
    unit = np.ldexp(1.0, exponent - 24)
    wide = got.astype(np.float64)
    # Beyond the range the neighbour of infinity is the largest number.
    infinite = np.isinf(rounded) | np.isinf(got)
    near = (np.abs(wide) >= largest) & (np.abs(want) >= largest) & (np.sign(wide) == np.sign(want))
    error = np.where(infinite, np.where(near, 1.0, np.inf), np.abs(wide - want) / unit)
    error = np.where(got == rounded, np.where(infinite, 0.0, error), error)
    nan = np.isnan(want)
    return np.where(nan | np.isnan(got), np.where(nan & np.isnan(got), 0.0, np.inf), error)


def worst(case: Case) -> tuple[float, list[float]]:
    """The largest error of a function, and the operands that have it."""
    arrays = pairs(case.count) if case.operands == 2 else (points(case.count),)
    with np.errstate(all="ignore"):
        got = case.run(*arrays)
        wide = [x.astype(np.float64) for x in arrays]
        want = np.asarray(case.exact(*wide))
        size = want if case.scale is None else case.scale(want, *wide)
        error = ulp_errors(got, want, size)
    at = int(np.argmax(error))
    return float(error[at]), [float(x[at]) for x in arrays]


def measure() -> dict[str, tuple[float, list[float]]]:
    """The table of this process: each function's error and operands."""
    return {case.name: worst(case) for case in CASES}


def _in_process(isa: str, request: str) -> str:
    """What this program prints for `request` with an instruction set."""
    done = subprocess.run(
        [sys.executable, __file__, request],
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYEFFECT_ISA": isa},
    )
    return done.stdout.decode()


def measure_all() -> dict[str, Any]:
    """The tables of all instruction sets that this machine and library have, by column."""
    found: dict[str, Any] = {}
    for isa in COLUMNS:
        column = _in_process(isa, "--isa").strip().removesuffix("b")
        if column in COLUMNS and column not in found:
            found[column] = json.loads(_in_process(isa, "--measure"))
    return found


# --- the page

HEAD = """\
# Accuracy

The worst error of each elementwise float32 function, in units of the last place (ulp) of the
result: 0.5 is correctly rounded. `make table` measures it (`tools/ulp_table.py`), against float64
on the same machine, over millions of numbers of every exponent and both signs with the
neighbourhoods of what is special to some function, or of pairs; `make test` measures again and
fails where a bound does not hold or the table is not what it says. The columns are instruction
sets ([kernels.md](kernels.md#instruction-sets)); `v4b` computes these as `v4` does. Float64 is
within 4 ulp, half types are computed in float32 and rounded once.
"""
SECTIONS = (
    ("One operand", UNARY, ""),
    ("Two operands", PAIRS, ""),
    (
        "Made of other functions",
        (*COMPOSITES, *COMPOSITE_PAIRS),
        "The unit is an ulp of the result, but for `gelu`, where it is one of the argument, for\n"
        "`silu` and `mish` where their second factor is subnormal, and for `logaddexp`, where it\n"
        "is one of the larger of the result and the larger argument.\n",
    ),
)


def page(tables: dict[str, Any]) -> str:
    """The text of `docs/ulp.md`."""
    lines = [HEAD]
    for title, cases, note in SECTIONS:
        lines.append(f"## {title}\n")
        if note:
            lines.append(note)
        lines.append("| function | bound | " + " | ".join(COLUMNS) + " | worst at |")
        lines.append("| --- | --- |" + " --- |" * (len(COLUMNS) + 1))
        for case in cases:
            errors = [f"{tables[isa][case.name][0]:.2f}" for isa in COLUMNS]
            at = ", ".join(f"{x:.9g}" for x in tables[COLUMNS[-1]][case.name][1])
            lines.append(f"| `{case.name}` | {case.bound:g} | {' | '.join(errors)} | {at} |")
        lines.append("")
    return "\n".join(lines)


def rows_of(text: str) -> dict[str, dict[str, float]]:
    """The errors of a page, by function and column."""
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(COLUMNS) + 3 and cells[0].startswith("`"):
            found[cells[0].strip("`")] = dict(zip(COLUMNS, map(float, cells[2:-1]), strict=True))
    return found


def problems(text: str, tables: dict[str, Any]) -> list[str]:
    """A sentence for each bound that does not hold and each number of the page that is wrong."""
    found: list[str] = []
    rows = rows_of(text)
    if list(rows) != [case.name for case in CASES]:
        found.append(f"docs/ulp.md lists {list(rows)}; run `make table`")
    for isa, table in tables.items():
        for case in CASES:
            error, at = table[case.name]
            if not error <= case.bound:
                found.append(f"{case.name} on {isa}: {error} ulp at {at}, promised {case.bound:g}")
            said = rows.get(case.name, {}).get(isa)
            if said is not None and not abs(said - error) <= SAME_WITHIN:
                found.append(f"{case.name} on {isa}: {error:.3f} ulp, docs/ulp.md says {said}")
    return found


def main() -> int:
    """Write or check the page; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--isa", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.isa or options.measure:
        print(et.cpu().features["isa"] if options.isa else json.dumps(measure()))
        return 0
    tables = measure_all()
    if not options.check:
        missing = set(COLUMNS) - set(tables)
        if missing:
            print(f"no {', '.join(sorted(missing))} here: a full library on an x86-64-v4 machine")
            return 1
        PAGE.write_text(page(tables), encoding="utf-8")
    found = problems(PAGE.read_text(encoding="utf-8"), tables)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
