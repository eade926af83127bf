"""Random numbers from explicit keys, as `et.random`; `pyeffect_torch.ops.random` has them."""

from __future__ import annotations

from pyeffect_torch.ops.random import (
    bernoulli,
    bits,
    categorical,
    exponential,
    fold_in,
    gumbel,
    key,
    laplace,
    normal,
    randint,
    split,
    truncated_normal,
    uniform,
)

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "laplace",
    "normal",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]
