"""Effects: calls of Python at the moment a program reaches them, in order.

An effect is a node without a result of its own. What it gives is a *token*, a 0-d bool without
meaning, and it takes the token of the effect before it: so effects are ordered by what they depend
on, under every transform, and one root, the last token, keeps all of a body. Each frame has the
last token of what was traced in it; a region hands its own on as one more output. Derived bodies
have no root for tokens, or one that nobody uses, so effects stay with the primal.

Outside of every frame an effect runs at once.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from pyeffect_torch.core import dtypes, forks, late
from pyeffect_torch.core.array import PLACEHOLDER_FLAG, Array, bind, literal, make, outputs
from pyeffect_torch.core.graph import placeholders_of
from pyeffect_torch.core.op import MaybeArray, Op, Region, Slim, Type, declare
from pyeffect_torch.core.trace import Frame, Trace, frames, read_error

_f: Any = late.functions
_numbers = itertools.count(1 << 32)  # smaller ones are for handlers of a runtime of its own
_lock = forks.lock()
_KEPT_MAX: Final = 256


class Handler:
    """What an effect calls, with the values of its operands as NumPy arrays.

    Attributes:
        number: by which programs name it.
        ranks: of the operands where it was written; what comes in front was added by `vmap`.
    """

    def __init__(self, function: Callable[[Sequence[Any]], object], ranks: Sequence[int]) -> None:
        self.function = function
        self.ranks = tuple(ranks)
        self.number = next(_numbers)
        HANDLERS[self.number] = self

    def __call__(self, skip: np.ndarray[Any, Any], *values: np.ndarray[Any, Any]) -> None:
        """Call the function, for the rows that are not to be skipped."""
        skip = np.asarray(skip)
        if skip.all():
            return
        rows = ~skip if skip.any() else None
        self.function(
            [
                value[rows] if rows is not None and value.ndim - rank == skip.ndim else value
                for value, rank in zip(values, self.ranks, strict=True)
            ]
        )


HANDLERS: WeakValueDictionary[int, Handler] = WeakValueDictionary()
"""The handlers in use, by number; nodes keep them alive."""

_kept: OrderedDict[Any, Handler] = OrderedDict()


def shared_handler(key: Any, make_one: Callable[[], Handler]) -> Handler:
    """Return one handler for equal keys, among the last few hundred of them.

    An effect that is written in a Python loop then is one program.
    """
    with _lock:
        found = _kept.get(key)
        if found is None:
            found = _kept[key] = make_one()
            while len(_kept) > _KEPT_MAX:
                _kept.popitem(last=False)
        else:
            _kept.move_to_end(key)
        return found


class EffectParams(NamedTuple):
    """The params of an effect; its inputs are `skip | token | operands`."""

    handler: Handler
    types: tuple[Type, ...] = ()


_TOKEN: Final[Type] = ((), dtypes.bool_)


def _forward(
    node: Array, inputs: Sequence[Array], tangents: Sequence[MaybeArray]
) -> tuple[list[Array], list[MaybeArray]]:
    del tangents
    return list(outputs(make(node.op, tuple(inputs), node.params, None, None, 0, node.src))), [None]


def _reverse(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    del cts, need
    return [None] * len(node.inputs)


def _batch(
    node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int
) -> list[tuple[Array, bool]]:
    del size
    skip, token, *operands = inputs
    if batched[1]:
        token = _f.any(token)
    made = make(node.op, (skip, token, *operands), node.params, None, None, 0, node.src)
    return [(outputs(made)[0], False)]


def _slim(node: Array, used: Sequence[int]) -> Slim:
    """A host call, which has no results: tokens are no values of a program."""
    del used
    skip, _, *operands = node.inputs
    return Slim([skip, *operands], (), {"id": node.params.handler.number}, ())


def _reference(attributes: Any, *arrays: Any) -> tuple[()]:
    HANDLERS[attributes["id"]](*arrays)
    return ()


EFFECT: Final[Op] = declare(
    "effect",
    infer=lambda inputs, params: (_TOKEN,),
    derivative=Region(_forward, _reverse, None, None, _slim),
    batch=_batch,
    reference=_reference,
    domain=None,
    opcode="host_call",
    traits=("multi", "region", "effect", "may_fail"),
    unsafe=(0,),  # where a batched condition does not hold, it is skipped
)


def no_token() -> Array:
    """What stands before the first effect."""
    return literal(False, dtypes.bool_)


def previous_token() -> Array:
    """The token that the next effect on this thread takes."""
    stack = frames()
    token = stack[-1].token if stack else None
    return no_token() if token is None else token


def perform(handler: Handler, operands: Sequence[Array]) -> None:
    """Make an effect: part of what is being traced, or now.

    Raises:
        TraceError: outside of every trace, of a value that depends on a placeholder.
    """
    inputs = (literal(False, dtypes.bool_), previous_token(), *operands)
    happened(outputs(bind(EFFECT, inputs, EffectParams(handler)))[0])


def happened(token: Array) -> None:
    """Note the last token of something that has just been built in the innermost frame."""
    if token.shape:
        token = _f.any(token)
    stack = frames()
    if stack:
        stack[-1].token = token
        return
    if token.flags & PLACEHOLDER_FLAG:
        raise read_error(token, next(iter(placeholders_of(token)), None))
    late.compute([token])


def visible(traced: Trace, outs: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs of a region that its user sees, and note the effects of its body."""
    for token in outs[traced.visible : traced.visible + len(traced.effects)]:
        happened(token)
    return outs[: traced.visible]


def before_effects(traced: Trace) -> dict[int, Array]:
    """What replaces the start of the effects of a trace where it is inlined now."""
    return {} if traced.start is None else {traced.start.serial: previous_token()}


def tokens_of(traced: Sequence[Frame]) -> list[Array] | None:
    """The last token of each frame, for branches that must have equal outputs; None: no effects."""
    if not any(frame.effects for frame in traced):
        return None
    return [frame.effects[0] if frame.effects else no_token() for frame in traced]
