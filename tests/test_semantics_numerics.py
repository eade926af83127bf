"""The rules of precision and of errors, one test each, named after the rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.testing.values import difference

HALVES = [dtypes.float16, dtypes.bfloat16]
RNG = np.random.default_rng(2)


@pytest.fixture(params=["cpu", "reference"], autouse=True)
def on_each_runtime(request: pytest.FixtureRequest) -> Iterator[None]:
    with et.use(getattr(et, request.param)()):
        yield


def half(dtype: Any, *shape: int, scale: float = 1.0) -> Any:
    return (RNG.standard_normal(shape) * scale).astype(dtype)


def rounds_once(f: Any, *arrays: Any) -> None:
    """`f` of halves is `f` of the same numbers in float64, rounded: one rounding, and float32's."""
    got = f(*(et.array(x) for x in arrays)).numpy()
    wide = f(*(et.array(x.astype(np.float64)) for x in arrays)).numpy()
    # Half a rounding of the half type, and float32's own, which may decide a near tie.
    assert difference(got, wide.astype(got.dtype), 1.0, np.abs(wide)) == ""
    apart = np.abs(got.astype(np.float64) - wide)
    assert (apart <= (0.5 + 2.0**-6) * dtypes.epsilon(got.dtype) * np.abs(wide) + 1e-7).all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_softmax_norms_and_losses_of_halves_compute_in_float32_and_round_at_the_boundary(
    dtype: Any,
) -> None:
    x = half(dtype, 4, 200)
    weight, bias = half(dtype, 200), half(dtype, 200)
    rounds_once(lambda x: et.softmax(x, -1), x)
    rounds_once(lambda x: et.log_softmax(x, -1), x)
    rounds_once(lambda x: et.logsumexp(x, -1), x)
    rounds_once(lambda x, w: et.nn.rms_norm(x, w), x, weight)
    rounds_once(lambda x, w: et.nn.layer_norm(x, w, et.zeros_like(w)), x, weight)
    rounds_once(lambda x: et.var(x, -1), x)
    rounds_once(lambda x: et.std(x, -1), x)
    labels = np.array([1, 5, 0, 199])
    rounds_once(lambda x: et.losses.cross_entropy(x, labels), x)
    rounds_once(lambda x, y: et.losses.mse(x, y), weight, bias)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_attention_of_halves_computes_in_float32_and_rounds_at_the_boundary(dtype: Any) -> None:
    q, k, v = (np.abs(half(dtype, 1, 2, 9, 8)) for _ in range(3))
    rounds_once(lambda q, k, v: et.nn.scaled_dot_product_attention(q, k, v, causal=True), q, k, v)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_the_mean_of_halves_does_not_overflow(dtype: Any) -> None:
    x = et.full((70_000,), 60_000.0, dtype)
    assert float(et.mean(x).astype("float32")) == float(np.array(60_000.0).astype(dtype))


def test_unoptimised_programs_give_the_same_values_within_the_dtypes_tolerance() -> None:
    x = RNG.standard_normal((33, 17)).astype(np.float32)

    def f(x: Any) -> Any:
        y = et.nn.gelu(x @ x.T) * 0.5 + et.tanh(x[:, :1])
        return et.softmax(y, -1).sum(0), et.log1p(y * y)

    mine = et.jit(f)(x)
    plain = et.jit(f, optimize=False)(x)
    for a, b in zip(mine, plain, strict=True):
        assert difference(a.numpy(), b.numpy(), 64.0) == ""


# --- errors


def lines(error: BaseException) -> list[str]:
    return str(error).splitlines()


def test_errors_of_shape_and_dtype_raise_at_the_call_with_the_users_file_and_line() -> None:
    x = et.zeros((2, 3))
    for call in (lambda: x @ x, lambda: x + et.zeros((2, 4)), lambda: et.reshape(x, (5,))):
        with pytest.raises(et.errors.ShapeError) as caught:
            call()
        assert re.search(r"at \S*test_semantics_numerics\.py:\d+", str(caught.value))


def test_a_message_says_what_where_and_how_to_mend() -> None:
    with pytest.raises(et.errors.DTypeError) as caught:
        et.sqrt(et.arange(3))
    what, where, how = lines(caught.value)
    assert what == "sqrt: has no meaning for int64[3]"
    assert where.startswith("  at test_semantics_numerics.py:")
    assert how.strip().startswith("cast it to a floating dtype")


def test_errors_at_run_time_carry_the_line_of_the_node_that_failed() -> None:
    def f(x: Any, i: Any) -> Any:
        y = x * 2
        return y[i] + 1  # this line

    with pytest.raises(et.errors.IndexOutOfBoundsError) as caught:
        et.jit(f)(et.zeros((3,)), et.array(7)).numpy()
    assert "return y[i] + 1" in str(caught.value)


def test_every_error_is_also_the_builtin_of_its_kind() -> None:
    kinds = {
        "ShapeError": ValueError,
        "DTypeError": TypeError,
        "TraceError": TypeError,
        "TreeError": ValueError,
        "ArgumentError": TypeError,
        "NativeLibraryError": ImportError,
        "IndexOutOfBoundsError": IndexError,
        "IoError": OSError,
    }
    for name, builtin in kinds.items():
        error = getattr(et.errors, name)
        assert issubclass(error, et.errors.EffectTorchError)
        assert issubclass(error, builtin), name


def test_a_malformed_file_is_an_error_and_a_written_one_is_whole(tmp_path: Path) -> None:
    program = et.freeze(lambda x: x * 2, et.spec((3,), "float32"))
    path = tmp_path / "double.pet"
    program.save(path)
    data = path.read_bytes()
    for broken in (b"", data[:40], data[:-9], data[:60] + b"\xff" * 8 + data[68:]):
        path.write_bytes(broken)
        with pytest.raises(et.errors.EffectTorchError):
            et.load_program(path)
    assert [p.name for p in tmp_path.iterdir()] == ["double.pet"]


def test_trees_in_messages_are_named_by_path() -> None:
    params = {"layer": [{"w": et.zeros((2,))}, {"w": et.zeros((2,), "int64")}]}
    with pytest.raises(et.errors.DTypeError) as caught:
        et.grad(lambda p: et.sum(p["layer"][0]["w"]))(params)
    assert "['layer'][1]['w']" in str(caught.value)
