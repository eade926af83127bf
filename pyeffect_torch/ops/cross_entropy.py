"""Cross entropy of logits and integer labels: one op for the losses of rows, one for its gradient.

Both are composites, so that every order of derivative follows from their bodies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from pyeffect_torch.core import dtypes, late
from pyeffect_torch.core.array import Array, bind, literal
from pyeffect_torch.core.dtypes import DType
from pyeffect_torch.core.errors import IndexOutOfBoundsError, ShapeError
from pyeffect_torch.core.op import Composite, Domain, MaybeArray, Sample, Shape, declare
from pyeffect_torch.ops import domains
from pyeffect_torch.ops.base import describe, mixed_dtypes, require_float, require_integer
from pyeffect_torch.ops.index_base import all_batched
from pyeffect_torch.ops.indexing import TAKE_ALONG_AXIS
from pyeffect_torch.ops.normalization import widen
from pyeffect_torch.ops.parameters import MODE_STRICT, AlongParams
from pyeffect_torch.ops.shape import expand_dims, reshape

__all__ = []

_f: Any = late.functions


def _check_rows(name: str, logits: Array, labels: Array) -> None:
    require_float(name, logits)
    require_integer(name, labels, "labels")
    if not logits.shape or logits.shape[:-1] != labels.shape:
        raise ShapeError(
            f"{name}: labels {describe(labels)} do not fit logits {describe(logits)}",
            "labels have the shape of the logits without the last axis, the classes",
        )
    if logits.shape[-1] == 0:
        raise ShapeError(f"{name}: logits {describe(logits)} have no class", "use 1 class or more")


def _infer(inputs: tuple[Array, ...], params: int) -> Any:
    del params
    logits, labels = inputs
    _check_rows("cross_entropy", logits, labels)
    return labels.shape, logits.dtype


def _infer_grad(inputs: tuple[Array, ...], params: int) -> Any:
    del params
    logits, labels, ct = inputs
    _check_rows("cross_entropy_grad", logits, labels)
    if ct.dtype is not logits.dtype or ct.shape != labels.shape:
        raise mixed_dtypes("cross_entropy_grad", logits, ct)
    return logits.shape, logits.dtype


def _labels(labels: Array, ignore_index: int) -> tuple[Array, Array]:
    """Return which labels are active, and int64 labels that are 0 where they are not."""
    wide = _f.cast(labels, dtypes.int64)
    active = _f.not_equal(wide, ignore_index)
    return active, _f.where(active, wide, 0)


def _body(params: int, logits: Array, labels: Array) -> Array:
    wide = widen(logits)
    active, safe = _labels(labels, params)
    along = AlongParams(len(labels.shape), MODE_STRICT)
    picked = bind(TAKE_ALONG_AXIS, (_f.log_softmax(wide, -1), expand_dims(safe, -1)), along)
    row = reshape(_f.negative(picked), labels.shape)
    return _f.cast(_f.where(active, row, literal(0, row.dtype)), logits.dtype)


def _grad_body(params: int, logits: Array, labels: Array, ct: Array) -> Array:
    wide = widen(logits)
    active, safe = _labels(labels, params)
    hits = _f.equal(expand_dims(safe, -1), _f.arange(logits.shape[-1]))
    difference = _f.subtract(_f.softmax(wide, -1), _f.cast(hits, wide.dtype))
    scaled = _f.multiply(difference, expand_dims(widen(ct), -1))
    kept = _f.where(expand_dims(active, -1), scaled, literal(0, wide.dtype))
    return _f.cast(kept, logits.dtype)


def _vjp(node: Array, cts: Sequence[MaybeArray], need: Sequence[bool]) -> Sequence[MaybeArray]:
    del need
    logits, labels = node.inputs
    ct = cts[0]
    assert ct is not None
    return [bind(CROSS_ENTROPY_GRAD, (logits, labels, ct), node.params), None]


def _batch(node: Array, inputs: Sequence[Array], batched: Sequence[bool], size: int) -> Array:
    return bind(node.op, all_batched(inputs, batched, size), node.params)


def _reference_labels(labels: Any, ignore_index: int, classes: int) -> tuple[Any, Any]:
    wide = labels.astype(np.int64)
    active = wide != ignore_index
    outside = active & ((wide < 0) | (wide >= classes))
    if outside.any():
        raise IndexOutOfBoundsError(
            f"cross_entropy: label {wide[outside][0]} is out of range for {classes} classes",
            f"use labels from 0 to {classes - 1}, or ignore_index",
        )
    return active, np.where(active, wide, 0)


def _log_softmax(logits: Any) -> Any:
    wide = domains.wide(logits)
    with np.errstate(invalid="ignore"):
        shifted = wide - wide.max(-1, keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _reference(attributes: Any, logits: Any, labels: Any) -> Any:
    active, safe = _reference_labels(labels, attributes["ignore_index"], logits.shape[-1])
    picked = np.take_along_axis(_log_softmax(logits), safe[..., None], -1)[..., 0]
    return np.where(active, -picked, 0.0)


def _grad_reference(attributes: Any, logits: Any, labels: Any, ct: Any) -> Any:
    active, safe = _reference_labels(labels, attributes["ignore_index"], logits.shape[-1])
    hits = safe[..., None] == np.arange(logits.shape[-1])
    difference = np.exp(_log_softmax(logits)) - hits
    return np.where(active[..., None], difference * domains.wide(ct)[..., None], 0.0)


_LABEL_DTYPES: Final = (dtypes.int64, dtypes.int32, dtypes.uint8, dtypes.int8, dtypes.uint64)
_ROWS: Final[tuple[tuple[Shape, int], ...]] = (
    ((), 3), ((), 1), ((4,), 5), ((1,), 1), ((0,), 3), ((2, 3), 4), ((2, 0), 3), ((3, 1), 17),
    ((33,), 2), ((2, 1, 3), 5),
)  # fmt: skip


def _samples(with_ct: bool) -> Any:
    def samples(rng: np.random.Generator, dtype: DType) -> Sequence[Sample]:
        out: list[Sample] = []
        for k, (rows, classes) in enumerate(_ROWS * 2):
            label_dtype = _LABEL_DTYPES[k % len(_LABEL_DTYPES)]
            ignore = 255 if label_dtype in dtypes.UNSIGNED else -100
            labels = rng.integers(0, classes, rows)
            if k % 2:
                labels = np.where(rng.random(rows) < 0.25, ignore, labels)
            inputs = [
                domains.draw(rng, (*rows, classes), dtype, -4.0, 4.0),
                np.asarray(labels).astype(label_dtype),
            ]
            if with_ct:
                inputs.append(domains.draw(rng, rows, dtype))
            out.append(Sample(tuple(inputs), ignore))
        return out

    return samples


def _roundings(sample: Sample) -> float:
    """As a log-softmax: exp and log within a few roundings of 8 + log(n), and a tree of n terms."""
    return 16.0 + math.log2(sample.inputs[0].shape[-1])


def _attributes(node: Array) -> dict[str, Any]:
    return {"ignore_index": node.params}


CROSS_ENTROPY: Final = declare(
    "cross_entropy",
    infer=_infer,
    derivative=Composite(_body, _vjp),
    batch=_batch,
    reference=_reference,
    domain=Domain(domains.FLOATING, _samples(False), _roundings),
    opcode="cross_entropy",
    attributes=_attributes,
    traits=("may_fail",),
    unsafe=(1,),
)
CROSS_ENTROPY_GRAD: Final = declare(
    "cross_entropy_grad",
    infer=_infer_grad,
    derivative=Composite(_grad_body),
    batch=_batch,
    reference=_grad_reference,
    domain=Domain(domains.FLOATING, _samples(True), _roundings),
    opcode="cross_entropy_grad",
    attributes=_attributes,
    traits=("may_fail",),
    unsafe=(1,),
)


def cross_entropy_rows(logits: Array, labels: Array, ignore_index: int) -> Array:
    """Return the loss of each row, 0 where the label is `ignore_index`; see `et.losses`."""
    return bind(CROSS_ENTROPY, (logits, labels), ignore_index)
