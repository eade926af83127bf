"""Random stacks of transforms over a random program, on three executors.

The optimised core, the core instruction by instruction, and the reference must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import placeholder
from pyeffect_torch.runtime.encode import encode
from tests.compositions.programs import Function, Program, draw

DEPTH_MAX = 4
ROUNDINGS_PER_INSTRUCTION = 64.0
"""A special function differs by up to 4 ulp between NumPy and the core, and a derivative of order
4 multiplies it by no more than about 16: the steps of programs have slopes of about 1."""


def weights(size: int) -> Any:
    return np.linspace(-0.75, 1.0, size)


def _grad(f: Function, size: int) -> Function:
    return et.grad(lambda y: (f(y) * weights(size)).sum())


def _jvp(f: Function, size: int) -> Function:
    return lambda x: et.jvp(f, (x,), (et.sin(x),))[1]


def _vjp(f: Function, size: int) -> Function:
    return lambda x: et.vjp(f, x)[1](x * 0.5)[0]


def _linearize(f: Function, size: int) -> Function:
    return lambda x: et.linearize(f, x)[1](et.array(weights(size)))


def _vmap(f: Function, size: int) -> Function:
    return lambda x: et.vmap(f)(et.stack([x, x * 0.5])).mean(0)


def _scan(f: Function, size: int) -> Function:
    def one(carry: Any, t: Any) -> tuple[Any, Any]:
        return (f(carry) + t) * 0.5, carry * t

    def scanned(x: Any) -> Any:
        carry, rows = et.scan(one, x, et.array(np.array([0.25, -0.5])))
        return carry + rows.mean(0)

    return scanned


def _cond(f: Function, size: int) -> Function:
    return lambda x: et.cond(et.sum(x) > -0.05, f, lambda y: f(y * 0.5), x)


TRANSFORMS: dict[str, Callable[[Function, int], Function]] = {
    "grad": _grad,
    "jvp": _jvp,
    "vjp": _vjp,
    "linearize": _linearize,
    "vmap": _vmap,
    "jit": lambda f, size: et.jit(f),
    "checkpoint": lambda f, size: et.checkpoint(f),
    "scan": _scan,
    "cond": _cond,
    "jacfwd": lambda f, size: lambda x: et.jacfwd(f)(x) @ weights(size),
    "jacrev": lambda f, size: lambda x: weights(size) @ et.jacrev(f)(x),
}
FORWARD = {"jvp", "linearize", "jacfwd"}


@dataclass(frozen=True)
class Case:
    """A program, the transforms around it (the outermost first), and where it is evaluated."""

    seed: int
    program: Program
    stack: tuple[str, ...]
    point: tuple[float, ...]

    def function(self) -> Function:
        f: Function = self.program
        for name in reversed(self.stack):
            f = TRANSFORMS[name](f, self.program.size)
        return f

    def text(self) -> str:
        return (
            f"seed {self.seed}: {' '.join(self.stack) or 'no transform'} "
            f"at {list(self.point)} of {self.program.text()}"
        )


def case(seed: int) -> Case:
    """Draw a case by its seed."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 5))
    depth = int(rng.integers(DEPTH_MAX + 1))
    names = list(TRANSFORMS)
    stack = tuple(names[int(k)] for k in rng.integers(len(names), size=depth))
    program = draw(rng, size, int(rng.integers(1, 9)), 2, bool(FORWARD & set(stack)))
    return Case(seed, program, stack, tuple(float(x) for x in rng.uniform(-1.0, 1.0, size)))


def problem(drawn: Case) -> str:
    """Return what differs between the executors, or an empty string.

    Equal numbers may be ordered differently by executors that round differently; then a comparison
    falls to the other side. That happens at a point, not around it: a difference counts only if it
    is there at a second point, too.
    """
    x = placeholder((drawn.program.size,), dtypes.float64, "the point")
    root = drawn.function()(x)
    found = ""
    point = np.array(drawn.point)
    for value in (point, point * 0.9921875 + 0.00390625):
        found = _difference(root, x, value)
        if not found:
            return ""
    return found


def _difference(root: Any, x: Any, value: Any) -> str:
    want, _ = _run(et.reference(), root, x, value, True)
    for optimize in (True, False):
        got, count = _run(et.cpu(), root, x, value, optimize)
        size = np.abs(want[np.isfinite(want)]).max(initial=1.0)
        bound = ROUNDINGS_PER_INSTRUCTION * 2.0**-53 * count * size
        with np.errstate(invalid="ignore"):
            same = (np.abs(got - want) <= bound) | (got == want)
        if got.shape != want.shape or not np.all(same | (np.isnan(got) & np.isnan(want))):
            return f"optimize={optimize}: {got.tolist()} instead of {want.tolist()} (+-{bound:.1e})"
    return ""


def _run(runtime: Any, root: Any, x: Any, value: Any, optimize: bool) -> tuple[Any, int]:
    program = encode([root], [x], runtime.has)
    executable = runtime.executable(program, optimize)
    if program.captured:
        bound = [
            runtime.upload(array.buf.numpy(array.shape, array.dtype)) for array in program.captured
        ]
        executable = executable.bind(bound, program.formal_count)
    (buffer,) = executable.run([runtime.upload(value)], program)
    return buffer.numpy(root.shape, root.dtype), max(1, len(program.blob) // 16)
