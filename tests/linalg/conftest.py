"""Matrices of known spectrum for the tests of `et.linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

NumpyArray = np.ndarray[Any, Any]

CONDITION = 1e3
GAP = 1e-2


def _orthonormal(rng: np.random.Generator, n: int) -> NumpyArray:
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def _spectrum(n: int) -> NumpyArray:
    """From 1 down to 1/CONDITION, no two nearer than GAP."""
    even = np.linspace(1.0, 1 / CONDITION, n) if n > 1 else np.ones(n)
    assert n < 2 or np.abs(np.diff(even)).min() > GAP
    return even


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def matrix(rng: np.random.Generator) -> Callable[..., NumpyArray]:
    """Draw `[*lead, m, n]` with singular values from 1 to 1/1000."""

    def draw(m: int, n: int, *lead: int) -> NumpyArray:
        k = min(m, n)
        out = np.zeros((*lead, m, n))
        for at in np.ndindex(*lead):
            left, right = _orthonormal(rng, m), _orthonormal(rng, n)
            out[at] = (left[:, :k] * _spectrum(k)) @ right[:k]
        return out

    return draw


@pytest.fixture
def symmetric(rng: np.random.Generator) -> Callable[..., NumpyArray]:
    """Draw symmetric `[*lead, n, n]` with eigenvalues from 1 to 1/1000, every second negative."""

    def draw(n: int, *lead: int, definite: bool = False) -> NumpyArray:
        values = _spectrum(n) * (1.0 if definite else (-1.0) ** np.arange(n))
        out = np.zeros((*lead, n, n))
        for at in np.ndindex(*lead):
            vectors = _orthonormal(rng, n)
            made = (vectors * values) @ vectors.T
            out[at] = (made + made.T) / 2
        return out

    return draw
