"""Derivatives of every op against finite differences in float64: of the reference, of the core.

All samples of an op are checked at once (each is a group of its own in reverse mode): jvp and vjp
at order 1, and at order 2 each mode of each mode against differences of the order-1 derivative.
Also the transpose identity, exactly, and the silence of ops without derivative.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.op import REGISTRY, Nondiff, Op, Sample
from pyeffect_torch.testing.declarations import (
    draw_samples,
    is_region,
    is_structural,
    results_of,
    types_of,
)
from pyeffect_torch.testing.gradients import check_flat

F64 = dtypes.float64
# Not the derivative of what they compute, by definition.
BY_DEFINITION = {"stop_gradient": "zero", "bitcast": "moves bits, not values"}


def wide_samples(op: Op, seed: int = 0) -> list[Sample]:
    """The samples that stay in float64: differences of what was rounded to less mean nothing."""
    return [
        sample
        for sample in draw_samples(op, F64, seed)
        if all(d is F64 or d not in dtypes.FLOATS for _, d in types_of(op, sample))
    ]


def is_checked(op: Op) -> bool:
    if op.domain is None or F64 not in op.domain.dtypes or op.name in BY_DEFINITION:
        return False
    moved = any(x.dtype == F64 for s in wide_samples(op) for x in s.inputs)
    return moved and any(dtype is F64 for s in wide_samples(op) for _, dtype in types_of(op, s))


OPS = [
    name
    for name, op in REGISTRY.items()
    if not is_structural(op) and not is_region(op) and is_checked(op)
]


@pytest.fixture(autouse=True)
def on_reference() -> Iterator[None]:
    with et.use(et.reference()):
        yield


@pytest.mark.parametrize(
    ("runtime", "order"), [(et.reference, 1), (et.cpu, 2)], ids=["reference", "cpu"]
)
@pytest.mark.parametrize("name", OPS)
def test_derivatives_are_those_of_differences(name: str, runtime: Any, order: int) -> None:
    op = REGISTRY[name]
    samples = wide_samples(op)
    values: list[np.ndarray] = []
    input_groups: list[int] = []
    output_groups: list[int] = []
    bounds: list[tuple[int, int]] = []
    for group, sample in enumerate(samples):
        bounds.append((len(values), len(values) + len(sample.inputs)))
        values.extend(sample.inputs)
        input_groups.extend([group] * len(sample.inputs))
        output_groups.extend([group] * len(types_of(op, sample)))

    def every_sample(*given: Array) -> list[Array]:
        found: list[Array] = []
        for sample, (start, stop) in zip(samples, bounds, strict=True):
            found.extend(results_of(op, given[start:stop], sample.params))
        return found

    groups = (input_groups, output_groups)
    with et.use(runtime()):
        check_flat(every_sample, values, *groups, order, ("fwd", "rev"), seed=len(name))


@pytest.mark.parametrize("name", OPS)
def test_reverse_mode_transposes_forward_mode(name: str) -> None:
    op = REGISTRY[name]
    assert op.domain is not None
    rng = np.random.default_rng(7)
    for sample in wide_samples(op, 1):
        inputs = [et.array(x) for x in sample.inputs]
        moving = [k for k, x in enumerate(sample.inputs) if x.dtype in dtypes.FLOATS]
        f = function_of(op, inputs, moving, sample.params)
        primals = [inputs[k] for k in moving]
        tangents = [et.array(draw_like(rng, sample.inputs[k])) for k in moving]
        outs, pushed = et.jvp(f, primals, tangents)
        cts = [et.array(draw_like(rng, np.zeros(out.shape, out.dtype))) for out in outs]
        _, pull = et.vjp(f, *primals)
        pulled = pull(cts)
        left = [(ct.numpy() * t.numpy()).ravel() for ct, t in zip(cts, pushed, strict=True)
                if ct.dtype in dtypes.FLOATS]  # fmt: skip
        right = [(ct.numpy() * t.numpy()).ravel().astype(np.float64)
                 for ct, t in zip(pulled, tangents, strict=True)]  # fmt: skip
        terms = np.concatenate([*left, *right, np.zeros(1)])
        # Both sides are sums of products of these terms, each of which the op has rounded.
        allowed = (8.0 + 2 * op.domain.roundings(sample)) * terms.size
        scale = max(np.abs(terms).max(), 1.0)
        difference = sum(part.sum() for part in left) - sum(part.sum() for part in right)
        assert abs(difference) <= allowed * dtypes.epsilon(F64) * scale, sample.params


def function_of(
    op: Op, inputs: Sequence[Array], moving: Sequence[int], params: object
) -> Callable[..., list[Array]]:
    """The op as a function of some of its operands."""

    def f(*moved: Array) -> list[Array]:
        given = list(inputs)
        for k, x in zip(moving, moved, strict=True):
            given[k] = x
        return results_of(op, given, params)

    return f


def draw_like(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return rng.uniform(-1, 1, x.shape).astype(x.dtype)


def test_ops_without_derivative_are_these() -> None:
    """Steps, whose differences are zero away from the jumps, and those that have no values."""
    steps = {name for name in OPS if isinstance(REGISTRY[name].derivative, Nondiff)}
    assert steps == {"floor", "ceil", "trunc", "round", "sign", "floor_divide"}
    x = et.array(np.linspace(-2.3, 2.2, 7))
    tangent = et.jvp(et.stop_gradient, (x,), (x,))[1]
    np.testing.assert_array_equal(tangent.numpy(), np.zeros(7))


def test_casts_to_less_carry_tangents_and_bring_cotangents_back() -> None:
    x = et.array(np.array([0.5, -1.25]))
    for dtype in ("float32", "float16", "bfloat16"):
        narrow = functools.partial(et.cast, dtype=dtype)
        out, tangent = et.jvp(narrow, (x,), (x,))
        assert out.dtype == tangent.dtype == dtypes.canonical(dtype)
        np.testing.assert_array_equal(tangent.numpy().astype(np.float64), x.numpy())
        (ct,) = et.vjp(narrow, x)[1](out)
        assert ct.dtype == F64
        np.testing.assert_array_equal(ct.numpy(), x.numpy())
