"""`jit`: the decorator; `compiled.py` has what it makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.api.compiled import Compiled
from pyeffect_torch.api.signatures import capacity, numbers, static_parameters
from pyeffect_torch.core.errors import ArgumentError


def jit(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    cache_capacity: int = 32,
    optimize: bool = True,
) -> Any:
    """Return `f`, traced once per signature and compiled; usable as a decorator.

    Args:
        f: a pure function of pytrees of arrays, NumPy arrays and Python numbers.
        static_argnums, static_argnames: hashable arguments that are part of the signature; one
            named by either is static however it is passed.
        donate_argnums: arguments whose memory the results may take; they are deleted by a
            successful call and untouched by a failed one.
        cache_capacity: how many signatures are kept; the least recently used is dropped.
        optimize: False runs every operation by itself, to compare with.

    Raises:
        TraceError: at the first call, when `f` reads a traced value.
    """
    if f is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            cache_capacity=cache_capacity,
            optimize=optimize,
        )
    if not callable(f):
        raise ArgumentError(
            f"jit: expected a function, got {type(f).__name__}", "pass the function itself"
        )
    return Compiled(
        f,
        *static_parameters(f, static_argnums, static_argnames),
        numbers("donate_argnums", donate_argnums),
        capacity(cache_capacity),
        optimize,
    )
