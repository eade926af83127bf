"""Random numbers from explicit keys, as `et.random`; `pyeffect_torch.ops.random` has them."""

from __future__ import annotations

from pyeffect_torch.ops.discrete import bernoulli, categorical, choice, permutation, randint
from pyeffect_torch.ops.random import (
    bits,
    cauchy,
    exponential,
    fold_in,
    gumbel,
    key,
    laplace,
    logistic,
    normal,
    split,
    truncated_normal,
    uniform,
)

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "exponential",
    "fold_in",
    "gumbel",
    "key",
    "laplace",
    "logistic",
    "normal",
    "permutation",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]
