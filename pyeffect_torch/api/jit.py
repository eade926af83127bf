"""`jit`: the decorator; `compiled.py` has what it makes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pyeffect_torch.api.compiled import Compiled
from pyeffect_torch.api.signatures import capacity, numbers, static_parameters
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.transforms.arguments import require_callable


def jit(
    f: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    constant_argnums: int | Sequence[int] = (),
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
        constant_argnums: trees of arrays and numbers that are part of the program, for example the
            parameters of a model that only predicts: they are bound to it once. The same arrays
            find it again, others trace anew. It keeps them alive.
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
            constant_argnums=constant_argnums,
            cache_capacity=cache_capacity,
            optimize=optimize,
        )
    require_callable("jit", f)
    constant = static_parameters(f, constant_argnums, (), "constant_argnums")
    static = static_parameters(f, static_argnums, static_argnames)
    donated = numbers("donate_argnums", donate_argnums)
    twice = sorted({*constant[0]} & {*static[0], *donated})
    if twice:
        raise ArgumentError(
            f"jit: argument {twice[0]} is constant and also static or donated",
            "name it in one of the lists only",
        )
    return Compiled(
        f,
        static[0] + constant[0],
        static[1] + constant[1],
        donated,
        frozenset((*constant[0], *constant[1])),
        capacity(cache_capacity),
        optimize,
    )
