"""`check_grads`: derivatives of any order against central finite differences.

The difference quotient is taken with steps h and 2h and extrapolated; how much the two differ
bounds its own error, so that no tolerance is chosen by hand. A sample where they differ too much
lies within a step of a kink (or is too curved), and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pyeffect_torch.core import dtypes, tree
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.ops.base import operand
from pyeffect_torch.runtime.compute import compute_arrays
from pyeffect_torch.transforms.grad import vjp
from pyeffect_torch.transforms.jvp import jvp

NumpyArray = np.ndarray[Any, Any]
FlatFunction = Callable[..., list[Array]]

MODES = ("fwd", "rev")
ROUNDINGS = 64.0
"""Roundings of f itself that a difference quotient divides by the step."""
CURVATURE_MAX = 1e-5
"""How much quotients with steps h and 2h may differ, relative to the largest."""


class Quotient(NamedTuple):
    """A directional difference quotient of each output and the bound of its error."""

    values: list[NumpyArray]
    errors: list[float]


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = MODES,
    *,
    seed: int = 0,
) -> None:
    """Assert that the derivatives of `f` are those that finite differences give.

    Order 1 is compared with differences of `f`, order n with differences of the order n - 1
    derivative; each mode of each order follows each mode of the order below.

    Args:
        f: a function of pytrees. Its floating leaves should be float64.
        args: where to check; integer and bool leaves are held fixed. Away from kinks and ties.
        order: the highest order.
        modes: "fwd" (jvp) and "rev" (vjp).
        seed: of the directions, which are drawn.

    Raises:
        AssertionError: names the mode and order, and both values.
        ArgumentError: an unknown mode.
    """
    unknown = [mode for mode in modes if mode not in MODES]
    if unknown:
        raise ArgumentError(f"check_grads: unknown modes {unknown}", 'use "fwd" and "rev"')
    leaves, structure = tree.flatten(tuple(args))
    values = [operand("check_grads", leaf).numpy() for leaf in leaves]

    def flat(*given: Array) -> list[Array]:
        found, _ = tree.flatten(f(*tree.unflatten(structure, given)))
        return [operand("check_grads", leaf) for leaf in found]

    outputs = len(flat(*(operand("check_grads", value) for value in values)))
    check_flat(flat, values, [0] * len(values), [0] * outputs, order, modes, seed)


def check_flat(
    f: FlatFunction,
    values: Sequence[NumpyArray],
    input_groups: Sequence[int],
    output_groups: Sequence[int],
    order: int,
    modes: Sequence[str],
    seed: int,
) -> None:
    """`check_grads` of many independent functions at once.

    Args:
        f: a function of flat arrays.
        values: the arguments.
        input_groups, output_groups: the number of the function that each argument and each result
            belongs to; reverse mode is compared for each group by itself.
    """
    _check(
        f, list(values), (list(input_groups), list(output_groups)), order, tuple(modes),
        np.random.default_rng(seed), "",
    )  # fmt: skip


def _check(
    f: FlatFunction,
    values: list[NumpyArray],
    groups: tuple[list[int], list[int]],
    order: int,
    modes: tuple[str, ...],
    rng: np.random.Generator,
    label: str,
) -> None:
    direction = [_draw(rng, value) for value in values]
    quotient = numeric_jvp(f, values, direction, label)
    if "fwd" in modes:
        name = f"{label}jvp"

        def forward(*given: Array) -> list[Array]:
            return jvp(f, given, tuple(direction))[1]

        for index, got in enumerate(_evaluate(forward, values)):
            want, bound = quotient.values[index], quotient.errors[index]
            if got.dtype not in dtypes.FLOATS:
                assert not got.any(), f"{name}: result {index} of an integer dtype has a tangent"
                continue
            worst = np.abs(got - want).max(initial=0.0)
            assert worst <= bound, (
                f"{name}: result {index} (group {groups[1][index]}) differs from the difference "
                f"quotient by {worst:.3g}, more than {bound:.3g}:\n  got  {got}\n  want {want}"
            )
        if order > 1:
            _check(forward, values, groups, order - 1, modes, rng, f"{name} of ")
    if "rev" in modes:
        name = f"{label}vjp"
        cotangents = [_draw(rng, value) for value in quotient.values]

        def reverse(*given: Array) -> list[Array]:
            return list(vjp(f, *given)[1](cotangents))

        _compare_products(name, _evaluate(reverse, values), direction, cotangents, quotient, groups)
        if order > 1:
            turned = (groups[0], groups[0])
            _check(reverse, values, turned, order - 1, modes, rng, f"{name} of ")


def _compare_products(
    name: str,
    gradients: list[NumpyArray],
    direction: list[NumpyArray],
    cotangents: list[NumpyArray],
    quotient: Quotient,
    groups: tuple[list[int], list[int]],
) -> None:
    """The transpose identity `<ct, J v> = <J^T ct, v>` for each group."""
    left: dict[int, float] = {}
    right: dict[int, float] = {}
    bounds: dict[int, float] = {}
    for group, gradient, v in zip(groups[0], gradients, direction, strict=True):
        assert np.isfinite(gradient.astype(np.float64)).all(), f"{name}: group {group}: {gradient}"
        right[group] = right.get(group, 0.0) + _product(gradient, v)
    rows = zip(groups[1], cotangents, quotient.values, quotient.errors, strict=True)
    for group, ct, value, bound in rows:
        left[group] = left.get(group, 0.0) + _product(ct, value)
        bounds[group] = bounds.get(group, 0.0) + bound * float(np.abs(ct).sum())
    for group, want in left.items():
        got = right.get(group, 0.0)
        assert abs(got - want) <= bounds[group], (
            f"{name}: group {group}: <J^T ct, v> is {got!r}, <ct, J v> by difference quotients is "
            f"{want!r}, they differ by more than {bounds[group]:.3g}"
        )


def _product(a: NumpyArray, b: NumpyArray) -> float:
    if a.dtype not in dtypes.FLOATS:
        return 0.0
    return float((a.astype(np.float64) * b.astype(np.float64)).sum())


def _draw(rng: np.random.Generator, value: NumpyArray) -> NumpyArray:
    """A direction of the type of `value`, with elements in [0.5, 1] of either sign."""
    if value.dtype not in dtypes.FLOATS:
        return np.zeros(value.shape, value.dtype)
    sizes = rng.uniform(0.5, 1.0, value.shape) * rng.choice((-1.0, 1.0), value.shape)
    return np.asarray(sizes).astype(value.dtype)


def _evaluate(f: FlatFunction, values: Sequence[NumpyArray]) -> list[NumpyArray]:
    results = f(*(operand("check_grads", value) for value in values))
    arrays = [operand("check_grads", result) for result in results]
    compute_arrays(arrays)
    return [array.numpy() for array in arrays]


def numeric_jvp(
    f: FlatFunction,
    values: Sequence[NumpyArray],
    direction: Sequence[NumpyArray],
    label: str = "",
) -> Quotient:
    """Return the derivative of `f` along `direction` by central differences, with error bounds.

    Integer results, and elements that are infinite or NaN on both sides, have a quotient of zero.

    Raises:
        AssertionError: f is not smooth within two steps.
    """
    widths = [dtypes.epsilon(value.dtype) for value in values if value.dtype in dtypes.FLOATS]
    epsilon = max(widths, default=dtypes.epsilon(dtypes.float64))
    step = float(np.cbrt(epsilon))

    def moved(factor: float) -> list[NumpyArray]:
        at = [
            (value + factor * step * v).astype(value.dtype)
            if value.dtype in dtypes.FLOATS
            else value
            for value, v in zip(values, direction, strict=True)
        ]
        return _evaluate(f, at)

    size = max((float(np.abs(v[np.isfinite(v)]).max(initial=1.0)) for v in values
                if v.dtype in dtypes.FLOATS), default=1.0)  # fmt: skip
    found: list[NumpyArray] = []
    errors: list[float] = []
    for index, (up, down, up2, down2) in enumerate(
        zip(moved(1.0), moved(-1.0), moved(2.0), moved(-2.0), strict=True)
    ):
        if up.dtype not in dtypes.FLOATS:
            found.append(np.zeros(up.shape, up.dtype))
            errors.append(0.0)
            continue
        wide, wide2 = up.astype(np.float64), up2.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = (wide - down) / (2 * step)
            far = (wide2 - down2) / (4 * step)
        constant = ~np.isfinite(wide) & ~np.isfinite(down)
        near, far = np.where(constant, 0.0, near), np.where(constant, 0.0, far)
        value = (4 * near - far) / 3
        curved = float(np.abs(near - far).max(initial=0.0))
        scale = max(size, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))
        rounding = ROUNDINGS * epsilon * scale / step
        largest = max(1.0, float(np.abs(value).max(initial=0.0)))
        assert curved <= CURVATURE_MAX * largest + 4 * rounding, (
            f"{label}f: result {index}: difference quotients with steps h and 2h differ by "
            f"{curved:.3g}: a kink or a tie lies within {2 * step:.2g} of the arguments"
        )
        found.append(value.astype(up.dtype))
        errors.append(curved + rounding)
    return Quotient(found, errors)
