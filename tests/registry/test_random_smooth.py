"""Random programs of smooth functions, in every floating dtype: fused, op by op, and in NumPy.

Each step maps [-1, 1] to itself and moves its result by no more than what its operands were moved
(its slope is at most 1), so that roundings add up but never grow: a program of n steps may differ
by a few roundings a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array, placeholder
from pyeffect_torch.core.graph import Body
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.testing.values import difference

SHAPES = ((), (1,), (7,), (3, 5), (2, 3, 5), (1, 5), (3, 1), (40, 33))
ROUNDINGS_PER_STEP = 8.0

UNARY: tuple[Callable[[Array], Array], ...] = (
    et.sin,
    et.tanh,
    et.abs,
    et.negative,
    et.sigmoid,
    et.arctan,
    lambda x: et.cos(x * 0.5),
    lambda x: et.erf(x * 0.75),
    lambda x: et.exp(x - 1),
    lambda x: et.exp2(x - 1),
    lambda x: et.expm1(x) * 0.36,
    lambda x: et.log1p(x * 0.5),
    lambda x: et.log(x * 0.25 + 1) * 2,
    lambda x: et.sqrt(x * 0.5 + 1) - 1,
    lambda x: et.rsqrt(x * 0.25 + 1) - 0.5,
    lambda x: et.reciprocal(x * 0.25 + 1.5),
    lambda x: x * x * 0.5,
    lambda x: x**3 * 0.25,
    lambda x: et.sinh(x) * 0.6,
    lambda x: et.arcsin(x * 0.5),
    lambda x: et.stop_gradient(x),
)
BINARY: tuple[Callable[[Array, Array], Array], ...] = (
    lambda x, y: x * y * 0.5,
    lambda x, y: (x + y) * 0.5,
    lambda x, y: (x - y) * 0.5,
    et.maximum,
    et.minimum,
    lambda x, y: x * 0.25 / (y * 0.5 + 1.5),
    lambda x, y: et.arctan2(x * 0.25, y * 0.25 + 1),
)
MOVES: tuple[Callable[[Array], Array], ...] = (
    lambda x: et.swapaxes(x, 0, -1),
    lambda x: et.flip(x, 0),
    lambda x: et.mean(x, -1, keepdims=True),
    lambda x: et.max(x, 0, keepdims=True),
    lambda x: et.softmax(x, -1),
    lambda x: et.reshape(x, (-1,)),
    lambda x: x[..., ::2],
    lambda x: et.cumsum(x, 0) / x.shape[0],
)


def fits(x: Array, y: Array) -> bool:
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def build(seed: int, length: int, dtype: Any) -> tuple[list[Array], list[Any], list[Array]]:
    """The inputs, their values, and the last arrays of a program."""
    rng = np.random.default_rng(seed)
    inputs: list[Array] = []
    values: list[Any] = []
    for k in range(4):
        shape = SHAPES[rng.integers(len(SHAPES))]
        inputs.append(placeholder(shape, dtype, f"input {k}"))
        values.append(np.asarray(rng.uniform(-1, 1, shape)).astype(dtype))
    pool = list(inputs)
    for _ in range(length):
        x = pool[max(0, len(pool) - 1 - int(rng.integers(4)))]
        kind = rng.integers(10)
        if kind < 5:
            made = UNARY[rng.integers(len(UNARY))](x)
        elif kind < 8:
            others = [y for y in pool if fits(x, y)]
            made = BINARY[rng.integers(len(BINARY))](x, others[rng.integers(len(others))])
        elif x.shape:
            made = MOVES[rng.integers(len(MOVES))](x)
        else:
            continue
        if made.size <= 5000:
            pool.append(made)
    return inputs, values, pool[-4:]


def evaluate(runtime: Any, built: Any, optimize: bool = True) -> list[Any]:
    inputs, values, roots = built
    program = encode(roots, inputs, runtime.has)
    uploads = [runtime.upload(value) for value in values]
    buffers = runtime.executable(program, optimize).run(uploads, program)
    return [b.numpy(r.shape, r.dtype) for b, r in zip(buffers, roots, strict=True)]


@pytest.mark.parametrize("dtype", sorted(dtypes.FLOATS, key=str), ids=lambda dtype: dtype.name)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 40))
def test_smooth_programs_agree(dtype: Any, seed: int, length: int) -> None:
    built = build(seed, length, dtype)
    want = evaluate(et.reference(), built)
    for value in want:
        assert np.abs(value.astype(np.float64)).max(initial=0.0) <= 1.1
    for optimize in (True, False):
        for mine, theirs in zip(evaluate(et.cpu(), built, optimize), want, strict=True):
            problem = difference(mine, theirs, ROUNDINGS_PER_STEP * (length + 1), 1.0)
            assert problem == "", f"optimize={optimize}: {problem}"


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 15))
def test_their_gradients_agree(seed: int, length: int) -> None:
    """Slopes are at most 1, so are gradients of one element; each step's rule is a few steps."""
    inputs, values, roots = build(seed, length, dtypes.float64)
    loss = roots[-1].sum() / max(roots[-1].size, 1)
    _, pull = et.vjp(lambda *given: relinked(loss, inputs, given), *inputs)
    gradients = [g for g in pull(et.constant(1.0, "float64")) if g.shape is not None]
    want = evaluate(et.reference(), (inputs, values, gradients))
    for optimize in (True, False):
        got = evaluate(et.cpu(), (inputs, values, gradients), optimize)
        for mine, theirs in zip(got, want, strict=True):
            scale = max(float(np.abs(theirs).max(initial=0.0)), 1.0)
            problem = difference(mine, theirs, 64.0 * (length + 1), scale)
            assert problem == "", f"optimize={optimize}: {problem}"


def relinked(root: Array, inputs: list[Array], given: Any) -> Array:
    """`root` as a function of `inputs`, at `given`."""
    return Body(inputs, [root]).inline(given)[0]
