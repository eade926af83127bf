"""Distributions of vectors: the multivariate normal and the Dirichlet distribution."""

from __future__ import annotations

from typing import Any, Literal

from pyeffect_torch.core import late
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.dtypes import DTypeLike
from pyeffect_torch.core.errors import ArgumentError, ShapeError
from pyeffect_torch.ops import random
from pyeffect_torch.ops.base import describe
from pyeffect_torch.random.gamma import loggamma
from pyeffect_torch.random.parameters import draw_shape, floating_parameters

_f: Any = late.functions


def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: DTypeLike | None = None,
    *,
    method: Literal["cholesky", "eigh", "svd"] = "cholesky",
) -> Array:
    """Return vectors [..., *shape, n] with the normal distribution of a mean and a covariance.

    Args:
        key: uint32 [..., 2].
        mean: floating [.., n].
        cov: [.., n, n] of the same dtype, symmetric and positive definite.
        shape: of the draw of one key, without its last axis; by default what the leading axes of
            `mean` and `cov` broadcast to.
        dtype: float32 or float64; by default that of the parameters.
        method: how the factor of `cov` is found; "eigh" and "svd" take a singular one, too.

    Raises:
        ShapeError: `cov` does not fit `mean`.
    """
    center, covariance = floating_parameters("multivariate_normal", dtype, mean, cov)
    if not center.shape or covariance.shape[-2:] != (center.shape[-1],) * 2:
        raise ShapeError(
            f"multivariate_normal: a mean [.., n] and a covariance [.., n, n] are needed, got "
            f"{describe(center)} and {describe(covariance)}",
            "give both the same last extent",
        )
    extents = draw_shape("multivariate_normal", shape, center.shape[:-1], covariance.shape[:-2])
    noise = random.normal(key, (*extents, center.shape[-1]), center.dtype)
    spread = _f.matmul(_factor(covariance, method), noise[..., None])[..., 0]
    return _f.add(center, spread)


def _factor(covariance: Array, method: str) -> Array:
    """Return A with `A @ A.T = covariance`."""
    if method == "cholesky":
        return _f.cholesky(covariance)
    if method == "eigh":
        values, vectors = _f.eigh(covariance)
        return vectors * _f.sqrt(values)[..., None, :]
    if method == "svd":
        left, values, _ = _f.svd(covariance)
        return left * _f.sqrt(values)[..., None, :]
    raise ArgumentError(
        f"multivariate_normal: unknown method {method!r}", "use 'cholesky', 'eigh' or 'svd'"
    )


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: DTypeLike | None = None) -> Array:
    """Return vectors [..., *shape, n] of sum 1 with the Dirichlet distribution.

    Args:
        key: uint32 [..., 2].
        alpha: floating [.., n], above 0.
        shape: of the draw of one key, without its last axis; by default the leading axes of
            `alpha`.
        dtype: by default that of `alpha`.
    """
    (weights,) = floating_parameters("dirichlet", dtype, alpha)
    if not weights.shape:
        raise ShapeError(
            f"dirichlet: alpha needs an axis of weights, got {describe(weights)}",
            "pass a vector of at least one weight",
        )
    extents = draw_shape("dirichlet", shape, weights.shape[:-1])
    return _f.softmax(loggamma(key, weights, (*extents, weights.shape[-1])), -1)
