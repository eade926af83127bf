"""Random programs: the core optimised, the core op by op, and the reference agree to the last bit.

All values are whole numbers of moderate size, so that every sum and product is exact in any order,
and gradients but for the sharing of ties: one differing bit is a defect of a pass, of the plan of
memory, or of a kernel. A program is drawn by a seed and a length, and each longer one begins with
the shorter one.
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
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.testing.values import difference

KINDS = ("float32", "float64", "int64", "int32", "uint8", "bool")
SHAPES = ((), (1,), (4,), (3, 4), (2, 3, 4), (0, 4), (1, 4), (3, 1), (33,), (5, 7, 2))
LIMIT = 97  # values are brought back under this, so that products and sums stay exact


class Draw:
    """A program under construction: its inputs, and every array made so far."""

    def __init__(self, seed: int, kinds: tuple[str, ...]) -> None:
        self.rng = np.random.default_rng(seed)
        self.kinds = kinds
        self.values: list[Any] = []
        self.inputs: list[Array] = []
        for kind in kinds:
            for _ in range(2):
                shape = SHAPES[self.rng.integers(len(SHAPES))]
                self.add_input(shape, kind)
        self.pool = list(self.inputs)

    def add_input(self, shape: tuple[int, ...], kind: str) -> None:
        dtype = dtypes.canonical(kind)
        assert dtype is not None
        low = 0 if kind in ("uint8", "bool") else -6
        value = self.rng.integers(low, 2 if kind == "bool" else 7, shape)
        self.values.append(np.asarray(value).astype(dtype))
        self.inputs.append(placeholder(shape, dtype, f"input {len(self.inputs)}"))

    def choose(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def pick(self, test: Callable[[Array], bool] = lambda x: True) -> Array | None:
        fitting = [x for x in self.pool if test(x)]
        return self.choose(fitting) if fitting else None

    def fitting(self, x: Array) -> Array:
        """An array of the dtype of `x` that broadcasts with it."""

        def fits(y: Array) -> bool:
            if y.dtype is not x.dtype:
                return False
            pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
            return all(a == b or 1 in (a, b) for a, b in pairs)

        found = self.pick(fits)
        return x if found is None else found

    def step(self) -> None:
        x = self.pick(lambda a: a.size < 5000)
        assert x is not None
        made = self.choose(STEPS)(self, x)
        if made is not None and made.size < 5000:
            self.pool.append(made)


def bounded(x: Array) -> Array:
    return x if x.dtype.kind == "b" else et.remainder(x, LIMIT)


def unary(d: Draw, x: Array) -> Array | None:
    if x.dtype is dtypes.bool_:
        return et.logical_not(x)
    names = ["abs", "square", "sign", "negative"]
    if x.dtype.kind == "f":
        names += ["floor", "round", "relu", "stop_gradient"]
    return bounded(getattr(et, d.choose(names))(x))


def binary(d: Draw, x: Array) -> Array | None:
    y = d.fitting(x)
    if x.dtype is dtypes.bool_:
        return getattr(et, d.choose(["logical_and", "logical_or", "logical_xor"]))(x, y)
    return bounded(
        getattr(et, d.choose(["add", "subtract", "multiply", "maximum", "minimum"]))(x, y)
    )


def compare(d: Draw, x: Array) -> Array | None:
    return getattr(et, d.choose(["less", "equal", "greater_equal", "not_equal"]))(x, d.fitting(x))


def select(d: Draw, x: Array) -> Array | None:
    y = d.fitting(x)
    shape = np.broadcast_shapes(x.shape, y.shape)

    def fits(c: Array) -> bool:
        pairs = zip(reversed(c.shape), reversed(shape), strict=False)
        return c.dtype is dtypes.bool_ and all(a == b or 1 in (a, b) for a, b in pairs)

    condition = d.pick(fits)
    return None if condition is None else et.where(condition, x, y)


def cast(d: Draw, x: Array) -> Array | None:
    return et.cast(x, d.choose(d.kinds))


def number(d: Draw, x: Array) -> Array | None:
    if x.dtype is dtypes.bool_:
        return None
    return bounded(x * int(d.rng.integers(0, 5)) + 1)


def reduction(d: Draw, x: Array) -> Array | None:
    if not x.shape or 0 in x.shape:
        return None
    axis = int(d.rng.integers(len(x.shape)))
    name = d.choose(["sum", "max", "min", "argmax", "cumsum", "all"])
    if name == "all":
        return et.all(x, axis)
    if x.dtype is dtypes.bool_:
        return et.any(x, axis)
    made = getattr(et, name)(x, axis) if name in ("argmax", "cumsum") else getattr(et, name)(
        x, axis, keepdims=bool(d.rng.integers(2))
    )  # fmt: skip
    return et.cast(bounded(made), x.dtype) if d.rng.integers(2) else bounded(made)


def move(d: Draw, x: Array) -> Array | None:
    rank = len(x.shape)
    order = [int(a) for a in d.rng.permutation(rank)]
    kind = d.choose(["transpose", "reshape", "flip", "slice", "broadcast", "pad", "concatenate"])
    if kind == "reshape" or not rank:
        return et.reshape(x, (x.size,) if d.rng.integers(2) or not rank else (*x.shape[::-1], 1))
    if kind == "transpose":
        return et.transpose(x, tuple(order))
    axis = order[0]
    if kind == "flip":
        return et.flip(x, axis)
    if kind == "slice":
        index = [slice(None)] * rank
        index[axis] = d.choose([slice(1, None), slice(None, None, 2), slice(None, None, -1),
                                slice(0, 2), slice(None, -1)])  # fmt: skip
        return x[tuple(index)]
    if kind == "broadcast":
        return et.broadcast_to(x, (2, *x.shape))
    if kind == "pad":
        widths = [(int(d.rng.integers(3)), int(d.rng.integers(3))) for _ in x.shape]
        return et.pad(x, widths)
    return et.concatenate([x, et.flip(x, axis), x], axis)


def product(d: Draw, x: Array) -> Array | None:
    if x.dtype is dtypes.bool_ or len(x.shape) < 2:
        return None
    small = et.remainder(x, 7)
    return bounded(et.matmul(small, et.swapaxes(small, -1, -2)))


def gather(d: Draw, x: Array) -> Array | None:
    if not x.shape or 0 in x.shape:
        return None
    axis = int(d.rng.integers(len(x.shape)))
    index = d.pick(lambda a: a.dtype is dtypes.int64 and a.size < 40)
    if index is None:
        return None
    inside = et.remainder(index, x.shape[axis])
    if d.rng.integers(2) and axis == 0 and x.dtype is not dtypes.bool_:
        flat = et.reshape(inside, (-1,))
        rows = et.take(x, flat, 0)
        return bounded(x.at[flat].add(rows))
    return et.take(x, inside, axis)


STEPS = (unary, binary, binary, binary, compare, select, cast, number, reduction, move, move,
         product, gather)  # fmt: skip


def evaluate(runtime: Any, roots: list[Array], draw: Draw, optimize: bool = True) -> list[Any]:
    program = encode(roots, draw.inputs, runtime.has)
    uploads = [runtime.upload(value) for value in draw.values]
    buffers = runtime.executable(program, optimize).run(uploads, program)
    return [b.numpy(r.shape, r.dtype) for b, r in zip(buffers, roots, strict=True)]


def agree(roots: list[Array], draw: Draw, roundings: float = 0.0) -> None:
    want = evaluate(et.reference(), roots, draw)
    for optimize in (True, False):
        got = evaluate(et.cpu(), roots, draw, optimize)
        for index, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            problem = difference(mine, theirs, roundings)
            assert problem == "", (
                f"root {index} of {roots[index].op}, optimize={optimize}: {problem}"
            )


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 60))
def test_programs_agree(seed: int, length: int) -> None:
    draw = Draw(seed, KINDS)
    for _ in range(length):
        draw.step()
    # The last arrays, and a few others, inputs and repetitions among them.
    roots = [*draw.pool[-3:], *(draw.choose(draw.pool) for _ in range(3))]
    agree(roots, draw)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 25))
def test_gradients_agree(seed: int, length: int) -> None:
    draw = Draw(seed, ("float64", "int64", "bool"))

    def loss(a: Any, b: Any) -> Any:
        draw.rng = np.random.default_rng(seed)
        draw.pool = [a, b, *draw.inputs[2:]]
        for _ in range(length):
            draw.step()
        floats = [x for x in draw.pool if x.dtype is dtypes.float64]
        return et.sum(et.stack([et.sum(x) for x in floats[-4:]]))

    roots = list(et.grad(loss, argnums=(0, 1))(*draw.inputs[:2]))
    exact = evaluate(et.reference(), roots, draw)
    if all(np.abs(x).max(initial=0) < 2**40 for x in exact):
        # Three equal maxima have a third of the gradient each: no longer exact.
        agree(roots, draw, roundings=float(length))


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 30))
def test_batches_agree_with_rows(seed: int, length: int) -> None:
    draw = Draw(seed, ("float64", "int64", "bool"))
    names = [(x.shape, x.dtype) for x in draw.inputs]
    state = draw.rng.bit_generator.state

    def f(*given: Any) -> Any:
        draw.rng.bit_generator.state = state
        draw.pool = list(given)
        for _ in range(length):
            draw.step()
        return draw.pool[-3:]

    rng = np.random.default_rng(seed)
    stacked = [
        np.stack([value, rng.permutation(value.ravel()).reshape(shape)])
        for value, (shape, _) in zip(draw.values, names, strict=True)
    ]
    for runtime in (et.reference(), et.cpu()):
        with et.use(runtime):
            rows = et.vmap(f)(*(et.array(x) for x in stacked))
            for k in range(2):
                single = f(*(et.array(x[k]) for x in stacked))
                for row, one in zip(rows, single, strict=True):
                    np.testing.assert_array_equal(row.numpy()[k], one.numpy())


def test_the_comparison_notices_a_difference() -> None:
    draw = Draw(3, KINDS)
    draw.values[0] = np.ones((4,), np.float32)
    draw.inputs[0] = placeholder((4,), dtypes.float32, "input 0")
    third = et.divide(draw.inputs[0], 3)  # not a whole number
    (single,) = evaluate(et.cpu(), [third * third], draw)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(single, (draw.values[0].astype(np.float64) / 3) ** 2)
