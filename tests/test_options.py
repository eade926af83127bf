"""Options of a wrong Python type get an error that names them, at the call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch
import pyeffect_torch.array_api as xp

et: Any = pyeffect_torch  # what is called here, its types forbid

X = et.ones((3, 3))
I64 = et.arange(3)
KEY = et.random.key(0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: et.concatenate(3), "concatenate: arrays must be a sequence, got int"),
        (lambda: et.stack(3), "stack: arrays must be a sequence"),
        (lambda: et.hstack(3), "hstack: arrays must be a sequence"),
        (lambda: et.vstack(None), "vstack: arrays must be a sequence, got NoneType"),
        (lambda: et.lexsort(None), "lexsort: keys must be a sequence"),
        (lambda: et.select(1, [X]), "select: conditions must be a sequence"),
        (lambda: et.select([X > 0], 1), "select: choices must be a sequence"),
        (lambda: et.dynamic_slice(X, 0, (1, 1)), "dynamic_slice: the starts must be a sequence"),
        (lambda: et.ravel_multi_index(1, (2,)), "ravel_multi_index: the indices must be"),
        (lambda: et.histogram(X, range=2.5), "histogram: range must be a sequence"),
        (lambda: et.histogram(X, range=(1, 2, 3)), "histogram: range has 3 ends"),
        (lambda: et.switch(0, 3), "switch: branches must be a sequence"),
        (lambda: et.rot90(X, axes=1.0), "rot90: axes must be a sequence"),
        (lambda: et.rot90(X, k=None), "rot90: k must be an int"),
        (lambda: et.diff(X, n=1.5), "diff: n must be an int"),
        (lambda: et.trace(X, offset=[0]), "diagonal: offset must be an int"),
        (lambda: et.diag(I64, k=None), "diag: k must be an int"),
        (lambda: et.tril_indices(3, k=[1]), "tril_indices: k must be an int"),
        (lambda: et.partition(X, [1, 2]), "partition: kth must be an int"),
        (lambda: et.linspace(0, 1, [1, 1]), "linspace: num must be an int"),
        (lambda: et.tensordot(X, X, axes=1.5), "tensordot: axes must be an int"),
        (
            lambda: et.associative_scan(lambda a, b: a + b, X, axis=None),
            "associative_scan: axis must be an int",
        ),
        (lambda: et.losses.cross_entropy(X, I64, ignore_index="a"), "ignore_index must be an int"),
        (lambda: et.var(X, correction="1"), "var: correction must be a number, got str"),
        (lambda: et.nanvar(X, correction=None), "nanvar: correction must be a number"),
        (lambda: et.isclose(X, X, atol=[1]), "isclose: atol must be a number"),
        (lambda: et.nn.rms_norm(X, eps={}), "rms_norm: eps must be a number"),
        (lambda: et.dropout(KEY, X, "x"), "dropout: rate must be a number"),
        (lambda: et.losses.huber(X, X, delta=None), "huber: delta must be a number"),
        (
            lambda: et.losses.cosine_embedding(X, X, I64, margin={1}),
            "cosine_embedding: margin must be a number",
        ),
        (
            lambda: et.random.truncated_normal(KEY, None, 1.0),
            "truncated_normal: expected an array or",
        ),
        (lambda: et.hardtanh(X, None, 1), "hardtanh: minimum must be a number"),
        (lambda: et.vmap(et.sin, axis_size="a")(X), "vmap: axis_size must be an int"),
        (lambda: et.cpu(without=3), "cpu: the kernels to hide must be a sequence"),
        (lambda: et.from_dlpack(np.ones(2), device=3), "from_dlpack: expected a runtime, got int"),
        (lambda: et.cancel_scope("a").__enter__(), "cancel_scope: the timeout must be a number"),
        (
            lambda: et.cancel_scope(float("nan")).__enter__(),
            "cancel_scope: the timeout is NaN",
        ),
        (lambda: X.reshape(np.array([9, 1])), "reshape: an extent must be an int"),
        (lambda: et.einsum(None, X), "einsum: the subscripts must be a string"),
        (lambda: et.take(X, I64, mode=[1]), r"take: unknown mode \[1\]"),
        (lambda: et.checkpoint(et.sin, policy=1), "checkpoint: unknown policy 1"),
        (lambda: et.checkpoint(et.sin, policy=[1]), r"checkpoint: unknown policy \[1\]"),
    ],
)
def test_an_option_of_another_type_is_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(et.errors.ArgumentError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: et.constant_like(X, "a"),
        lambda: et.constant_like(I64, float("nan")),
        lambda: et.constant_like(X, np.ones(2)),
        lambda: et.constant_like(I64, float("inf")),
        lambda: et.nan_to_num(X, posinf={1}),
    ],
)
def test_what_is_no_number_of_the_dtype_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(et.errors.DTypeError, match="is no value of"):
        call()


def test_a_large_int_beside_bfloat16_is_a_float() -> None:
    ones = et.ones(2, "bfloat16")
    assert (ones * 2**63).tolist() == [2.0**63] * 2
    assert et.less(ones, 2**63).tolist() == [True, True]
    with pytest.raises(et.errors.DTypeError, match="does not fit bfloat16"):
        et.multiply(ones, 10**400)


@pytest.mark.parametrize("reverse", [None, 2**63, 0, 1, "yes"])
def test_any_flag_of_a_running_sum_is_true_or_false(reverse: Any) -> None:
    want = [3, 3, 2] if reverse else [0, 1, 3]
    assert et.cumsum(I64, reverse=reverse).tolist() == want


def test_any_direction_of_a_scan_is_true_or_false() -> None:
    for reverse in (None, {}, "yes", 2**63):
        _, seen = et.scan(lambda c, x: (c + x, c), 0, I64, reverse=reverse)
        assert seen.tolist() == ([3, 2, 0] if reverse else [0, 0, 1])


def test_an_infinite_timeout_is_none() -> None:
    with et.cancel_scope(timeout=float("inf")) as scope:
        assert float(et.sum(X)) == 9
        scope.cancel()
        with pytest.raises(et.errors.CancelledError):
            et.sin(X).numpy()


def test_what_is_no_structure_is_refused() -> None:
    with pytest.raises(et.errors.TreeError, match="int is no structure"):
        et.tree.unflatten(3, [1])


@pytest.mark.parametrize(
    "call",
    [
        lambda: et.jit(3),
        lambda: et.grad(3),
        lambda: et.value_and_grad(3),
        lambda: et.vjp(3, X),
        lambda: et.jvp(3, (X,), (X,)),
        lambda: et.linearize(3, X),
        lambda: et.linear_transpose(3, X),
        lambda: et.vmap(3),
        lambda: et.jacfwd(3),
        lambda: et.jacrev(3),
        lambda: et.hessian(3),
        lambda: et.checkpoint(3),
        lambda: et.custom_vjp(3),
        lambda: et.custom_jvp(3),
        lambda: et.make_ir(3),
        lambda: et.eval_shape(3),
        lambda: et.freeze(3),
        lambda: et.scan(3, X, X),
        lambda: et.map(3, X),
        lambda: et.while_loop(3, et.sin, X),
        lambda: et.while_loop(et.all, 3, X),
        lambda: et.fori_loop(0, 3, 3, X),
        lambda: et.fori_loop(et.array(0), 3, 3, X),
        lambda: et.cond(True, 3, et.sin, X),
        lambda: et.switch(0, [et.sin, 3], X),
        lambda: et.associative_scan(3, X),
    ],
)
def test_what_is_no_function_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(et.errors.ArgumentError, match=": expected a function, got int"):
        call()


def test_a_loop_takes_ints_of_numpy() -> None:
    carry, _ = et.scan(lambda c, _: (c + 1, None), 0, None, length=np.int64(3), unroll=np.int32(2))
    assert int(carry) == 3
    with pytest.raises(et.errors.ArgumentError, match="below 2\\*\\*63"):
        et.scan(lambda c, _: (c, None), 0, None, length=2**63)


@pytest.mark.parametrize(
    "call",
    [
        lambda path: et.safetensors.load(path),
        lambda path: et.safetensors.load_archive(path),
        lambda path: et.safetensors.save(path, {"x": X}),
        lambda path: et.load_program(path),
        lambda path: et.freeze(et.sin, X).save(path),
    ],
)
@pytest.mark.parametrize(("path", "message"), [(None, "got NoneType"), ("a\0b", "NUL character")])
def test_what_is_no_path_is_refused(call: Callable[[Any], Any], path: Any, message: str) -> None:
    with pytest.raises(et.errors.ArgumentError, match=message):
        call(path)


def test_an_error_behind_a_with_statement_of_ours_names_the_users_line(tmp_path: Path) -> None:
    for load in (et.safetensors.load, et.load_program):
        with pytest.raises(et.errors.IoError, match=r"at test_options\.py:.*load\(tmp_path\)"):
            load(tmp_path)


def test_transpose_takes_every_axis_or_none() -> None:
    assert et.ones((2, 3)).transpose().shape == (3, 2)
    assert et.ones(2).transpose(0).shape == (2,)
    for axes in (0, (), (0,)):
        with pytest.raises(et.errors.EffectTorchError, match="transpose: "):
            X.transpose(axes)


def test_a_running_sum_of_the_standard_checks_its_axis() -> None:
    running: Any = xp
    with pytest.raises(et.errors.ShapeError, match="cumsum: axis 5 is out of range"):
        running.cumulative_sum(X, axis=5, include_initial=True)
