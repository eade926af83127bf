"""Random numbers from explicit keys, as `et.random`.

Keys, bits and most distributions are array functions (`pyeffect_torch.ops.random`, `.discrete`);
what draws in loops, or in several variables, is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyeffect_torch.core import elsewhere
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
from pyeffect_torch.random.gamma import beta, gamma, loggamma
from pyeffect_torch.random.multivariate import dirichlet, multivariate_normal
from pyeffect_torch.random.poisson import poisson

if not TYPE_CHECKING:  # a type checker would take every name for one that exists
    __getattr__ = elsewhere.getter(__name__)

__all__ = [
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "laplace",
    "loggamma",
    "logistic",
    "multivariate_normal",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "split",
    "truncated_normal",
    "uniform",
]
