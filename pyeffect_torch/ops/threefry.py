"""Threefry-2x32 with 20 rounds: the ops that the core runs, and the same cipher on the host.

A key is uint32 [..., 2]. The counter of an element is its 64-bit row-major index within `shape`,
high word first, so that a draw does not depend on how it is computed; these are the bits of
`jax.random` with partitionable threefry.

Reference: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011,
section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import DTypeError, ShapeError
from pyeffect_torch.core.op import Domain, Nondiff, Sample, Shape, declare
from pyeffect_torch.ops.base import describe

_f: Any = late.functions

FORM_WORD: Final = 0
"""uint32: the two output words combined by xor."""
FORM_LONG: Final = 1
"""uint64: the first output word high."""
FORM_PAIR: Final = 2
"""uint32 with one more axis of extent 2: both output words."""

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA  # the constant of the key schedule
_MASK: Final = 0xFFFFFFFF


class _Bits(NamedTuple):
    """The params of `random_bits`."""

    shape: Shape
    form: int


def encrypt(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Return the two output words for one key and one counter, in Python ints."""
    schedule = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = (counter[0] + key[0]) & _MASK, (counter[1] + key[1]) & _MASK
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = (x + y) & _MASK
            y = ((y << rotation | y >> (32 - rotation)) & _MASK) ^ x
        x = (x + schedule[(group + 1) % 3]) & _MASK
        y = (y + schedule[(group + 2) % 3] + group + 1) & _MASK
    return x, y


def _encrypt_arrays(first: Any, second: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """The same on uint32 arrays that broadcast; arithmetic wraps."""
    schedule = (first, second, first ^ second ^ np.uint32(_PARITY))
    x, y = high + first, low + second
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = (y << np.uint32(rotation) | y >> np.uint32(32 - rotation)) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _require_key(name: str, key: Array) -> None:
    if key.dtype is not dtypes.uint32:
        raise DTypeError(f"{name}: a key is uint32, got {describe(key)}", "use et.random.key(seed)")
    if not key.shape or key.shape[-1] != 2:
        raise ShapeError(
            f"{name}: a key has a last axis of extent 2, got {describe(key)}",
            "use et.random.key(seed)",
        )


def _infer_bits(inputs: tuple[Array, ...], params: _Bits) -> Any:
    (key,) = inputs
    _require_key("random_bits", key)
    shape = (*key.shape[:-1], *params.shape)
    if params.form == FORM_PAIR:
        return (*shape, 2), dtypes.uint32
    return shape, dtypes.uint64 if params.form == FORM_LONG else dtypes.uint32


def _bits_reference(attributes: Any, key: Any) -> Any:
    shape, form = tuple(attributes["shape"]), attributes["form"]
    index = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    high, low = (index >> np.uint64(32)).astype(np.uint32), index.astype(np.uint32)
    lead = key.shape[:-1]
    words = key.reshape(*lead, *(1,) * len(shape), 2)
    x, y = _encrypt_arrays(words[..., 0], words[..., 1], high, low)
    if form == FORM_PAIR:
        return np.stack([x, y], axis=-1)
    if form == FORM_LONG:
        return x.astype(np.uint64) << np.uint64(32) | y.astype(np.uint64)
    return np.asarray(x ^ y)


def _draw_key(rng: np.random.Generator, lead: Shape) -> Any:
    return rng.integers(0, 1 << 32, (*lead, 2), dtype=np.uint32)


def _bits_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    del dtype
    return [
        Sample((_draw_key(rng, lead),), _Bits(shape, form))
        for lead in ((), (3,), (2, 0), (2, 1, 2))
        for shape in ((), (5,), (0, 2), (2, 3, 4), (1, 33))
        for form in (FORM_WORD, FORM_LONG, FORM_PAIR)
    ]


RANDOM_BITS: Final = declare(
    "random_bits",
    infer=_infer_bits,
    derivative=Nondiff(),
    batch=lambda node, inputs, batched, size: bind(node.op, (inputs[0],), node.params),
    reference=_bits_reference,
    domain=Domain((dtypes.uint32,), _bits_samples, lambda sample: 0.0),
    opcode="random_bits",
    attributes=lambda node: node.params._asdict(),
    traits=("random",),
)


def _infer_fold(inputs: tuple[Array, ...], params: Any) -> Any:
    del params
    key, data = inputs
    _require_key("fold_in", key)
    if data.dtype is not dtypes.uint32 or data.shape != key.shape[:-1]:
        raise ShapeError(
            f"fold_in: the data of {describe(key)} is uint32{list(key.shape[:-1])}, "
            f"got {describe(data)}",
            "pass one number for each key",
        )
    return key.shape, dtypes.uint32


def _fold_batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    del node
    key, data = (
        array if is_batched else _f.broadcast_to(array, (size, *array.shape))
        for array, is_batched in zip(inputs, batched, strict=True)
    )
    return bind(RANDOM_FOLD_IN, (key, data))


def _fold_reference(attributes: Any, key: Any, data: Any) -> Any:
    del attributes
    x, y = _encrypt_arrays(key[..., 0], key[..., 1], np.zeros_like(data), data)
    return np.stack([x, y], axis=-1)


def _fold_samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
    del dtype
    return [
        Sample((_draw_key(rng, lead), np.asarray(rng.integers(0, 1 << 32, lead, dtype=np.uint32))))
        for lead in ((), (1,), (7,), (0,), (2, 3), (2, 0, 1)) * 4
    ]


RANDOM_FOLD_IN: Final = declare(
    "random_fold_in",
    infer=_infer_fold,
    derivative=Nondiff(),
    batch=_fold_batch,
    reference=_fold_reference,
    domain=Domain((dtypes.uint32,), _fold_samples, lambda sample: 0.0),
    opcode="random_fold_in",
    traits=("random",),
)


def draw_bits(key: Array, shape: Shape, form: int) -> Array:
    """Return random words [batch.., shape..] for keys [batch.., 2], in one of the three forms."""
    return bind(RANDOM_BITS, (key,), _Bits(shape, form))
