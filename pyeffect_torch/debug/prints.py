"""`print` and `callback`: calls of Python each time a program comes by, also in compiled code."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import tree
from pyeffect_torch.core.array import Array
from pyeffect_torch.core.errors import ArgumentError
from pyeffect_torch.transforms.effects import Handler, perform, shared_handler

_HERE: Final = object()


def print_(text: str, *args: Any, **kwargs: Any) -> None:
    """Print `text.format(*args, **kwargs)` each time the program comes by, in order.

    In a compiled function at each call, in a loop at each step, in a branch if it is taken; once
    with the function itself under `grad`, `jvp` and `checkpoint`, never in a recomputation. Under
    `vmap` once, with the rows in front. Outside of all of these at once.

    Args:
        text: a format string, as of `str.format`.
        args, kwargs: what it names: trees of arrays, and anything else. A 0-d array is printed as a
            Python number, so `{loss:.3f}` works; others as NumPy arrays.

    Raises:
        ArgumentError: `text` is no string.

    Example:
        >>> @et.jit
        ... def f(x):
        ...     et.debug.print("x is {x:.1f}", x=x)
        ...     return x * 2.0
        >>> _ = f(et.array(1.5))
        x is 1.5
    """
    if not isinstance(text, str):
        raise ArgumentError(
            f"debug.print: expected a format string, got {type(text).__name__}",
            'write debug.print("{}", x)',
        )

    def show(*args: Any, **kwargs: Any) -> None:
        builtins.print(text.format(*args, **kwargs))  # noqa: T201  what it is for

    _effect(show, ("print", text), args, kwargs, _shown)


def callback(function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """Call `function(*args, **kwargs)` each time the program comes by, as `print` does.

    Args:
        function: gets NumPy arrays for arrays; what it returns is ignored. An exception ends the
            program and is raised by the call that runs it.
        args, kwargs: trees of arrays, and anything else.

    Raises:
        ArgumentError: `function` cannot be called.
    """
    if not callable(function):
        raise ArgumentError(
            f"debug.callback: expected a function, got {type(function).__name__}",
            "pass the function itself, then its arguments",
        )
    _effect(function, None, args, kwargs, lambda value: value)


def _effect(
    function: Callable[..., object],
    key: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    shown: Callable[[Any], Any],
) -> None:
    leaves, structure = tree.flatten((args, kwargs))
    arrays = [leaf for leaf in leaves if isinstance(leaf, Array)]
    static = tuple(_HERE if isinstance(leaf, Array) else leaf for leaf in leaves)

    def call(values: Sequence[Any]) -> None:
        given = iter(values)
        filled = [shown(next(given)) if leaf is _HERE else leaf for leaf in static]
        call_args, call_kwargs = tree.unflatten(structure, filled)
        function(*call_args, **call_kwargs)

    ranks = [len(array.shape) for array in arrays]

    def make() -> Handler:
        return Handler(call, ranks)

    handler: Handler | None = None
    if key is not None:
        whole = (key, structure, static, tuple(map(type, static)), tuple(ranks))
        try:
            handler = shared_handler(whole, make)
        except TypeError:  # what is printed has no hash
            handler = make()
    perform(handler or make(), arrays)


def _shown(value: np.ndarray[Any, Any]) -> Any:
    return value.item() if value.ndim == 0 else value
