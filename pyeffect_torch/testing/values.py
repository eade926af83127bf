"""`assert_close`: values within a number of roundings of their dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pyeffect_torch.core import dtypes, tree
from pyeffect_torch.core.dtypes import DType

NumpyArray = np.ndarray[Any, Any]


def assert_close(
    got: Any, want: Any, *, roundings: float = 16.0, scale: float | None = None, name: str = ""
) -> None:
    """Assert that two trees of arrays agree in structure, shapes, dtypes and values.

    Integers and bools must be equal. Floats may differ by `roundings * epsilon(dtype) * scale`;
    infinities and NaN must stand in the same places.

    Args:
        got, want: trees of arrays, NumPy arrays and numbers. A Python number in `want` has the
            dtype of its counterpart.
        roundings: how many roundings of the largest term the computation makes.
        scale: the largest term; by default the largest finite magnitude in each array of `want`.
        name: what is compared, for the message.

    Raises:
        AssertionError: names the leaf, the tolerance and the worst element.
    """
    got_leaves, structure = tree.flatten(got)
    want_leaves, expected = tree.flatten(want)
    if structure != expected:
        raise AssertionError(f"{name}: the trees differ:\n  got  {structure}\n  want {expected}")
    paths = tree.paths(structure, name or "value")
    for path, mine, theirs in zip(paths, got_leaves, want_leaves, strict=True):
        a = np.asarray(mine)
        b = np.asarray(theirs)
        if isinstance(theirs, (bool, int, float)) and not isinstance(theirs, np.generic):
            b = b.astype(a.dtype)
        problem = difference(a, b, roundings, scale)
        if problem:
            raise AssertionError(f"{path}: {problem}")


def difference(got: NumpyArray, want: NumpyArray, roundings: float, scale: Any = None) -> str:
    """Return how two arrays differ beyond the tolerance, or "".

    Args:
        scale: the largest term, or an array of one for each element.
    """
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, expected {list(want.shape)}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype.name}, expected {want.dtype.name}"
    if want.dtype not in dtypes.FLOATS:
        wrong = got != want
        return _describe(got, want, wrong, 0.0) if wrong.any() else ""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if scale is None:
        scale = np.abs(b[finite]).max(initial=0.0)
    allowed = tolerance(want.dtype, roundings, scale)
    with np.errstate(invalid="ignore"):
        apart = np.where(finite, ~(np.abs(a - b) <= allowed), ~((a == b) | np.isnan(b)))
        apart |= np.isnan(a) != np.isnan(b)
    return _describe(got, want, apart, np.max(allowed, initial=0.0)) if apart.any() else ""


def tolerance(dtype: DType, roundings: float, scale: Any) -> Any:
    """Return `roundings` roundings of terms of size `scale`; at least as many subnormal steps."""
    step = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    return roundings * (dtypes.epsilon(dtype) * np.asarray(scale) + step)


def _describe(got: NumpyArray, want: NumpyArray, wrong: NumpyArray, allowed: float) -> str:
    where = tuple(int(k[0]) for k in np.nonzero(np.atleast_1d(wrong)))[: got.ndim]
    return (
        f"{int(wrong.sum())} of {want.size} elements differ by more than {allowed:.3g}, "
        f"first at {list(where)}: got {got[where]!r}, expected {want[where]!r}"
    )
