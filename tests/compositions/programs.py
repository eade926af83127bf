"""Random well-typed programs: functions of a float64 vector that can be stacked under transforms.

A program is data (`Step`s), so it can be built again for any input, printed and saved. Every value
is a vector of `n` elements; a step maps [-1, 1] to about itself with a slope of at most about 1, so
that roundings add up but hardly grow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import pyeffect_torch as et

Vector = Any
Function = Callable[[Vector], Vector]


@dataclass(frozen=True)
class Step:
    """One value of a program.

    Attributes:
        name: of `UNARY`, `BINARY` or `NESTED`.
        operands: the numbers of earlier values; 0 is the input.
        seed: for the constants that the step draws.
        inner: the programs of a nested step.
    """

    name: str
    operands: tuple[int, ...]
    seed: int = 0
    inner: tuple[Program, ...] = ()


@dataclass(frozen=True)
class Program:
    """Steps over vectors of `size` elements; the result is the mean of the last two values."""

    size: int
    steps: tuple[Step, ...] = field(default=())

    def __call__(self, x: Vector) -> Vector:
        values = [x]
        for step in self.steps:
            operands = [values[k] for k in step.operands]
            if step.name in UNARY:
                values.append(UNARY[step.name](operands[0]))
            elif step.name in BINARY:
                values.append(BINARY[step.name](*operands))
            else:
                values.append(NESTED[step.name](step, *operands))
        return (values[-1] + values[-2]) * 0.5 if len(values) > 1 else x

    def text(self) -> str:
        """The program as JSON."""
        return json.dumps(asdict(self))


def constants(step: Step, *shape: int) -> Any:
    """Numbers in [-1, 1] that belong to the step, as a NumPy array."""
    return np.random.default_rng(step.seed).uniform(-1.0, 1.0, shape)


def spread(x: Vector, value: Vector) -> Vector:
    """A scalar as a vector like `x`."""
    return et.broadcast_to(value, x.shape)


UNARY: dict[str, Function] = {
    "sin": et.sin,
    "cos": lambda x: et.cos(x * 0.5),
    "tanh": et.tanh,
    "exp": lambda x: et.exp(x - 1.0),
    "expm1": lambda x: et.expm1(x) * 0.5,
    "log1p": lambda x: et.log1p(x * 0.4),
    "sigmoid": et.sigmoid,
    "erf": lambda x: et.erf(x * 0.75),
    "square": lambda x: x * x * 0.5,
    "cube": lambda x: x**3 * 0.3,
    "sqrt": lambda x: et.sqrt(x * 0.4 + 1.0) - 1.0,
    "rsqrt": lambda x: et.rsqrt(x * 0.25 + 1.0) - 0.5,
    "arctan": et.arctan,
    "relu": et.relu,
    "abs": et.abs,
    "gelu": lambda x: et.gelu(x) * 0.8,
    "negative": et.negative,
    "flip": lambda x: et.flip(x, 0),
    "roll": lambda x: et.roll(x, 1, 0),
    "cumsum": lambda x: et.cumsum(x, 0) / x.shape[0],
    "cummax": lambda x: et.cummax(x, 0),
    "cumprod": lambda x: et.cumprod(x, 0),
    "softmax": lambda x: et.softmax(x, -1),
    "logsumexp": lambda x: spread(x, et.logsumexp(x) * 0.4),
    "sum": lambda x: spread(x, et.sum(x) / x.shape[0]),
    "max": lambda x: spread(x, et.max(x)),
    "prod": lambda x: spread(x, et.prod(x)),
    "var": lambda x: spread(x, et.var(x)),
    "sort": lambda x: et.sort(x, 0),
    "stop_gradient": et.stop_gradient,
    "norm": lambda x: et.layer_norm(et.concatenate([x, x * 0.5 + 1.0]))[: x.shape[0]] * 0.4,
    "outer": lambda x: et.einsum("i,j->ij", x, x).mean(1),
    "at": lambda x: x.at[0].multiply(0.5),
    "pad": lambda x: et.pad(x, [(1, 1)])[:-2] + x * 0.25,
}

BINARY: dict[str, Callable[[Vector, Vector], Vector]] = {
    "multiply": lambda x, y: x * y * 0.5,
    "add": lambda x, y: (x + y) * 0.5,
    "subtract": lambda x, y: (x - y) * 0.5,
    "maximum": et.maximum,
    "minimum": et.minimum,
    "divide": lambda x, y: x * 0.5 / (y * 0.25 + 1.5),
    "arctan2": lambda x, y: et.arctan2(x * 0.25, y * 0.25 + 1.0),
    "logaddexp": lambda x, y: et.logaddexp(x, y) * 0.4,
    "where": lambda x, y: et.where(x > y, x * 0.5, y),
    "take": lambda x, y: et.take_along_axis(x, et.argsort(et.stop_gradient(y), 0), 0),
    "dot": lambda x, y: spread(x, (x @ y) / x.shape[0]),
    "concatenate": lambda x, y: et.concatenate([x, y])[1 : x.shape[0] + 1],
    "dynamic": lambda x, y: et.dynamic_slice(et.concatenate([x, y]), (et.argmax(y),), x.shape),
}


def _matmul(step: Step, x: Vector) -> Vector:
    return et.array(constants(step, x.shape[0], x.shape[0]) / x.shape[0]) @ x


def _gather(step: Step, x: Vector) -> Vector:
    index = np.random.default_rng(step.seed).integers(0, x.shape[0], x.shape[0])
    return x[et.array(index)]


def _scatter(step: Step, x: Vector) -> Vector:
    index = np.random.default_rng(step.seed).integers(0, x.shape[0], x.shape[0])
    return et.zeros_like(x).at[et.array(index)].add(x / x.shape[0])


def _scan(step: Step, x: Vector, y: Vector) -> Vector:
    body = step.inner[0]

    def one(carry: Vector, row: Vector) -> tuple[Vector, Vector]:
        carry = (body(carry) + row) * 0.5
        return carry, et.sum(carry * y) / y.shape[0]

    carry, rows = et.scan(one, x, et.array(constants(step, 3)), reverse=bool(step.seed & 1))
    return (carry + spread(x, rows.mean())) * 0.5


def _rows(step: Step, x: Vector, y: Vector) -> Vector:
    """A scan over the elements of the vectors themselves."""
    weight = float(constants(step))
    carry, rows = et.scan(lambda c, t: (c * weight + t[0] * t[1] * 0.5, c), x[0], (x, y))
    return (rows + carry) * 0.5


def _loop(step: Step, x: Vector) -> Vector:
    body = step.inner[0]
    return et.fori_loop(0, 3, lambda i, v: body(v) + et.cast(i, v.dtype) * 0.01, x)


def _cond(step: Step, x: Vector, y: Vector) -> Vector:
    first, second = step.inner
    return et.cond(et.sum(x) > 0.1, first, lambda v: second(v) * y, x)


def _switch(step: Step, x: Vector, y: Vector) -> Vector:
    first, second = step.inner
    return et.switch(et.argmax(y), [first, second, lambda v: v * 0.5], x)


def _map(step: Step, x: Vector) -> Vector:
    body = step.inner[0]
    return et.map(lambda s: body(x * s).mean(), x)


def _associative(step: Step, x: Vector) -> Vector:
    return et.associative_scan(lambda a, b: a * b * 0.5 + a * 0.25 + b * 0.25, x)


def _rows_batched(step: Step, x: Vector) -> Vector:
    body = step.inner[0]
    rows = et.stack([x, x * 0.5])
    return et.vmap(lambda r: body(r) - et.pmean(r, "rows") * 0.5, axis_name="rows")(rows).mean(0)


def _custom_jvp(step: Step, x: Vector) -> Vector:
    body = step.inner[0]
    f = et.custom_jvp(body)
    f.defjvp(lambda primals, tangents: et.jvp(body, primals, tangents))
    return f(x)


def _custom_vjp(step: Step, x: Vector) -> Vector:
    body = step.inner[0]
    f = et.custom_vjp(body)
    f.defvjp(lambda v: (body(v), v), lambda v, ct: et.vjp(body, v)[1](ct))
    return f(x)


NESTED: dict[str, Callable[..., Vector]] = {
    "matmul": _matmul,
    "gather": _gather,
    "scatter": _scatter,
    "scan": _scan,
    "rows": _rows,
    "loop": _loop,
    "cond": _cond,
    "switch": _switch,
    "map": _map,
    "associative": _associative,
    "vmap": _rows_batched,
    "jit": lambda step, x: et.jit(step.inner[0])(x),
    "checkpoint": lambda step, x: et.checkpoint(step.inner[0])(x),
    "custom_jvp": _custom_jvp,
    "custom_vjp": _custom_vjp,
}
OPERANDS = {"scan": 2, "rows": 2, "cond": 2, "switch": 2}
INNER = {"scan": 1, "loop": 1, "cond": 2, "switch": 2, "map": 1, "vmap": 1, "jit": 1,
         "checkpoint": 1, "custom_jvp": 1, "custom_vjp": 1}  # fmt: skip


def draw(rng: np.random.Generator, size: int, length: int, depth: int, forward: bool) -> Program:
    """Draw a program of `length` steps, nested steps at most `depth` deep.

    Args:
        forward: whether the stack around it uses forward mode, which `custom_vjp` does not have.
    """
    nested = [name for name in NESTED if not (forward and name == "custom_vjp")]
    steps: list[Step] = []
    for k in range(1, length + 1):
        kind = rng.random()
        if kind < 0.45:
            steps.append(Step(choose(rng, list(UNARY)), (latest(rng, k),)))
        elif kind < 0.75:
            steps.append(Step(choose(rng, list(BINARY)), (latest(rng, k), latest(rng, k))))
        else:
            name = choose(rng, [n for n in nested if depth or n not in INNER])
            inner = tuple(
                draw(rng, size, int(rng.integers(1, 4)), depth - 1, forward or name == "custom_jvp")
                for _ in range(INNER.get(name, 0))
            )
            operands = tuple(latest(rng, k) for _ in range(OPERANDS.get(name, 1)))
            steps.append(Step(name, operands, int(rng.integers(2**31)), inner))
    return Program(size, tuple(steps))


def choose(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]


def latest(rng: np.random.Generator, count: int) -> int:
    """The number of an earlier value, the last ones more often."""
    return int(count - 1 - min(count - 1, rng.geometric(0.5) - 1))
