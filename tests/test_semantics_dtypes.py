"""The rules of dtypes and scalars, one test each, named after the rule."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError

FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
INTEGERS = sorted(dtypes.INTEGERS, key=str)
SIGNED = sorted(dtypes.SIGNED, key=str)
HALVES = [dtypes.float16, dtypes.bfloat16]


@pytest.fixture(params=["cpu", "reference", "jit"], autouse=True)
def how(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Calls a function: on the core, on the reference runtime, and compiled."""
    runtime = et.reference() if request.param == "reference" else et.cpu()
    with et.use(runtime):
        yield (lambda f, *xs: et.jit(f)(*xs)) if request.param == "jit" else lambda f, *xs: f(*xs)


def of(values: Any, dtype: Any) -> Any:
    return et.array(np.array(values, dtype))


def same(got: Any, values: Any, dtype: Any) -> None:
    """Equal in value, shape and dtype; NaN in the same places."""
    assert got.dtype is dtypes.canonical(dtype)
    want = np.asarray(values)
    if got.dtype in dtypes.FLOATS:
        np.testing.assert_array_equal(got.numpy().astype(np.float64), want.astype(np.float64))
    else:
        np.testing.assert_array_equal(got.numpy(), want)


# --- where dtypes come from


def test_python_numbers_are_float32_int64_and_bool() -> None:
    for value, dtype in ((1.5, "float32"), (3, "int64"), (True, "bool")):
        assert et.array(value).dtype.name == et.array([value]).dtype.name == dtype
        assert et.full((2,), value).dtype.name == dtype
        assert et.square(value).dtype.name == dtype if dtype != "bool" else True


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_numpy_arrays_and_scalars_keep_their_dtype(dtype: Any) -> None:
    x = np.ones((2, 3), dtype)
    assert et.array(x).dtype is dtype
    assert et.array(x[0, 0]).dtype is dtype
    assert et.equal(x, x[0, 0]).dtype is dtypes.bool_
    assert et.from_dlpack(np.ones(2)).dtype is dtypes.float64


def test_numpy_of_bfloat16_is_an_ml_dtypes_array() -> None:
    assert of([1, 2], dtypes.bfloat16).numpy().dtype == ml_dtypes.bfloat16


# --- mixing


BINARY = (
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "maximum",
    "minimum", "arctan2", "logaddexp", "hypot", "equal", "less", "copysign", "nextafter", "fmod",
)  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_mixed_dtypes_are_an_error_that_names_the_op_both_types_and_the_cast(name: str) -> None:
    x, y = of([1.0, 2.0], "float32"), of([1.0, 2.0], "float64")
    with pytest.raises(DTypeError) as caught:
        getattr(et, name)(x, y)
    text = str(caught.value)
    assert text.startswith(f"{name}: mixed dtypes, float32[2] and float64[2]")
    assert "x.astype('float64')" in text
    assert re.search(r"test_semantics_dtypes\.py:\d+", text)


@pytest.mark.parametrize(
    ("a", "b"), [("int32", "int64"), ("int8", "uint8"), ("float32", "int64"), ("bool", "int64")]
)
def test_mixed_integers_floats_and_bools_are_errors(a: str, b: str) -> None:
    for f in (operator.add, operator.lt, et.maximum):
        with pytest.raises(DTypeError, match="mixed dtypes"):
            f(of([1, 0], a), of([1, 0], b))


def test_mixed_dtypes_of_where_matmul_concatenate_are_errors_even_for_scalars() -> None:
    x, scalar = of([1.0, 2.0], "float32"), of(1.0, "float64")
    condition = of([True, False], "bool")
    for call in (
        lambda: et.where(condition, x, scalar),
        lambda: et.matmul(x, of([1.0, 2.0], "float64")),
        lambda: et.concatenate([x, of([1.0], "float64")]),
        lambda: et.stack([x, of([1.0, 1.0], "float64")]),
    ):
        with pytest.raises(DTypeError):
            call()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_python_number_takes_the_arrays_dtype(dtype: Any, how: Any) -> None:
    x = of([1.5, -2.0], dtype)
    for number in (True, 2, 2.5):
        same(how(lambda x, n=number: x + n, x), np.array([1.5, -2.0]) + number, dtype)
        same(how(lambda x, n=number: n - x, x), number - np.array([1.5, -2.0]), dtype)
        assert et.maximum(x, number).dtype is et.where(x > 0, x, number).dtype is dtype


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_a_python_int_takes_an_integer_arrays_dtype_and_must_fit(dtype: Any, how: Any) -> None:
    info = np.iinfo(dtype)
    x = of([1, 2], dtype)
    same(how(lambda x: x * 2 + True, x), [3, 5], dtype)
    same(et.minimum(x, int(info.max)), [1, 2], dtype)
    for number in (int(info.max) + 1, int(info.min) - 1, 10**40):
        with pytest.raises(DTypeError, match="does not fit"):
            _ = x + number


def test_a_python_float_with_an_integer_array_is_an_error() -> None:
    for f in (operator.add, operator.mul, operator.gt, et.maximum, et.power):
        with pytest.raises(DTypeError, match=r"float 2\.0"):
            f(of([1, 2], "int64"), 2.0)


def test_a_python_number_with_a_bool_array_is_an_error() -> None:
    for number in (1, 1.5):
        with pytest.raises(DTypeError, match="does not fit a bool array"):
            _ = of([True, False], "bool") == number
    same(operator.eq(of([True, False], "bool"), True), [True, False], "bool")


def test_numpy_numbers_are_arrays_not_python_numbers() -> None:
    x = of([1.0, 2.0], "float32")
    same(x * np.float64(2.0), [2.0, 4.0], "float32")  # the 0-d rule
    with pytest.raises(DTypeError):
        _ = of([1, 2], "int64") + np.int32(1)
    with pytest.raises(DTypeError):
        _ = of(1.0, "float32") + np.float64(2.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_0d_float_meeting_a_larger_float_takes_its_dtype(dtype: Any, how: Any) -> None:
    x = of([1.5, -2.0], dtype)
    for other in FLOATS:
        scalar = of(0.5, other)
        same(how(operator.add, x, scalar), [2.0, -1.5], dtype)
        same(how(operator.truediv, scalar, x), (0.5 / np.array([1.5, -2.0])).astype(dtype), dtype)
        same(how(et.maximum, x, scalar), [1.5, 0.5], dtype)
        same(how(et.minimum, scalar, x), [0.5, -2.0], dtype)
        same(how(operator.lt, x, scalar), [False, True], "bool")


def test_two_0d_floats_of_different_dtype_are_an_error() -> None:
    with pytest.raises(DTypeError, match=re.escape("float32[] and float64[]")):
        _ = of(1.0, "float32") + of(1.0, "float64")


def test_a_0d_integer_does_not_take_the_dtype_of_another_array() -> None:
    with pytest.raises(DTypeError):
        _ = of([1, 2], "int64") + of(1, "int32")
    with pytest.raises(DTypeError):
        _ = of([1.0, 2.0], "float32") + of(1, "int64")


def test_the_0d_rule_is_decided_on_the_shape_that_the_function_sees_under_vmap(how: Any) -> None:
    rows = of([[1.0, 2.0], [3.0, 4.0]], "float32")
    scalars = of([0.5, 0.25], "float64")  # 0-d for each row
    got = how(lambda x, s: et.vmap(lambda x, s: x * s)(x, s), rows, scalars)
    same(got, [[0.5, 1.0], [0.75, 1.0]], "float32")
    with pytest.raises(DTypeError, match="mixed dtypes"):
        et.vmap(lambda x, s: x * s)(of([1.0, 2.0], "float32"), scalars)  # two 0-d floats
    with pytest.raises(DTypeError, match="mixed dtypes"):
        _ = rows * scalars


def test_the_0d_rule_is_recorded_as_a_cast_so_gradients_keep_each_dtype() -> None:
    x, s = of([1.0, 2.0], "float32"), of(0.5, "float64")
    a, b = et.grad(lambda x, s: (x * s).sum(), argnums=(0, 1))(x, s)
    same(a, [0.5, 0.5], "float32")
    same(b, 3.0, "float64")


# --- results


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_comparisons_give_bool(dtype: Any, how: Any) -> None:
    x = of([0, 1], dtype)
    for f in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        assert how(f, x, x).dtype is dtypes.bool_


def test_masks_and_conditions_must_be_bool() -> None:
    x = of([1, 2], "int64")
    for call in (
        lambda: et.where(x, x, x),
        lambda: et.logical_and(x, x),
        lambda: et.logical_not(x),
        lambda: et.select([x], [x]),
    ):
        with pytest.raises(DTypeError):
            call()


def test_true_division_needs_floats() -> None:
    for dtype in (*INTEGERS, dtypes.bool_):
        with pytest.raises(DTypeError):
            _ = of([1, 1], dtype) / of([1, 1], dtype)


@pytest.mark.parametrize("dtype", [*SIGNED, *FLOATS], ids=str)
def test_floor_division_and_remainder_follow_pythons_sign_rule(dtype: Any, how: Any) -> None:
    a, b = np.array([7, 7, -7, -7, 6, -6]), np.array([3, -3, 3, -3, 3, -3])
    quotients = [int(p) // int(q) for p, q in zip(a, b, strict=True)]
    rests = [int(p) % int(q) for p, q in zip(a, b, strict=True)]
    same(how(operator.floordiv, of(a, dtype), of(b, dtype)), quotients, dtype)
    same(how(operator.mod, of(a, dtype), of(b, dtype)), rests, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_remainders_zeros_included_take_the_divisors_sign(dtype: Any, how: Any) -> None:
    got = how(operator.mod, of([6, -6, 6, -6, 0.0, -0.0], dtype), of([3, 3, -3, -3, -2, 2], dtype))
    assert not got.numpy().any()
    np.testing.assert_array_equal(
        np.signbit(got.numpy().astype(np.float64)), [False, False, True, True, True, False]
    )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_by_zero_gives_zero(dtype: Any, how: Any) -> None:
    info = np.iinfo(dtype)
    x = of([0, 1, info.min, info.max], dtype)
    for f in (operator.floordiv, operator.mod, et.fmod):
        same(how(f, x, of([0, 0, 0, 0], dtype)), [0, 0, 0, 0], dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_overflow_wraps(dtype: Any, how: Any) -> None:
    info = np.iinfo(dtype)
    x = of([info.max, info.min], dtype)
    with np.errstate(over="ignore"):
        value = x.numpy()
        same(how(lambda x: x + 1, x), value + np.array(1, dtype), dtype)
        same(how(lambda x: x - 1, x), value - np.array(1, dtype), dtype)
        same(how(lambda x: x * x, x), value * value, dtype)
        same(how(et.negative, x), np.negative(value), dtype)
        same(how(lambda x: x**3, x), value * value * value, dtype)
        same(how(et.sum, x), (value[:1] + value[1:])[0], dtype)
    if dtype in dtypes.SIGNED:  # the quotient that does not fit wraps, too
        same(how(operator.floordiv, x[1:], of([-1], dtype)), [info.min], dtype)


def test_subnormals_are_kept(how: Any) -> None:
    for dtype in FLOATS:
        tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
        x = of([tiny, -3 * tiny], dtype)
        same(how(lambda x: x + x, x), [2 * tiny, -6 * tiny], dtype)
        same(how(lambda x: x * 2.0, x), [2 * tiny, -6 * tiny], dtype)
        same(how(et.abs, x), [tiny, 3 * tiny], dtype)


def test_float64_to_float16_rounds_once(how: Any) -> None:
    """By way of float32 the first would be a tie that rounds down, and so 1."""
    values = [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 3 * 2.0**-11 - 2.0**-40]
    got = how(lambda x: x.astype("float16"), of(values, "float64"))
    same(got, [1 + 2.0**-10, 1.0, 1 + 2.0**-10], "float16")


# --- reductions


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS], ids=str)
def test_reductions_keep_the_dtype(dtype: Any, how: Any) -> None:
    x = of([[1, 2], [3, 4]], dtype)
    for f in (et.sum, et.prod, et.max, et.min, lambda x: et.cumsum(x, 0), et.ptp):
        assert how(f, x).dtype is dtype


def test_sum_prod_and_cumsum_of_bool_give_int64(how: Any) -> None:
    x = of([True, True, False], "bool")
    same(how(et.sum, x), 2, "int64")
    same(how(et.prod, x), 0, "int64")
    same(how(lambda x: et.cumsum(x, 0), x), [1, 2, 2], "int64")


@pytest.mark.parametrize("dtype", [*INTEGERS, dtypes.bool_], ids=str)
def test_mean_of_bool_or_int_gives_float32(dtype: Any, how: Any) -> None:
    same(how(et.mean, of([1, 0, 1, 1], dtype)), 0.75, "float32")


@pytest.mark.parametrize("name", ["var", "std", "softmax", "log_softmax", "logsumexp"])
def test_var_std_norm_softmax_need_floats(name: str) -> None:
    with pytest.raises(DTypeError):
        getattr(et, name)(of([1, 2], "int64"))


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_argmax_argmin_argsort_give_int64_and_the_first_position_on_ties(
    dtype: Any, how: Any
) -> None:
    x = of([1, 0, 1, 0], dtype)
    same(how(et.argmax, x), 0, "int64")
    same(how(et.argmin, x), 1, "int64")
    same(how(et.argsort, x), [1, 3, 0, 2], "int64")


def test_halves_accumulate_in_float32_and_round_once(how: Any) -> None:
    for dtype in HALVES:
        n = 5000  # one by one in the half type, the sum would stop growing
        ones = et.ones((n,), dtype)
        same(how(et.sum, ones), np.array(n).astype(dtype), dtype)
        same(how(lambda x: x @ x, ones), np.array(n).astype(dtype), dtype)
        same(how(et.mean, ones), 1.0, dtype)
        same(how(lambda x: et.cumsum(x, 0)[-1], ones), np.array(n).astype(dtype), dtype)


def test_float32_sums_grow_with_the_logarithm(how: Any) -> None:
    x = np.full(2**22, 0.1, np.float32)
    exact = float(x.astype(np.float64).sum())
    got = float(how(et.sum, et.array(x)).numpy())
    assert abs(got - exact) <= 23 * 2.0**-24 * exact  # one by one: 4e3 times as much


# --- casts


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_float_to_int_casts_truncate_and_saturate_and_nan_gives_zero(
    source: Any, dtype: Any, how: Any
) -> None:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    x = of([1.75, -1.75, np.inf, -np.inf, np.nan], source)
    want = [1, max(low, -1), high, low, 0]
    same(how(lambda x: x.astype(dtype), x), want, dtype)
    huge = float(ml_dtypes.finfo(source).max)
    wide = [max(low, min(high, int(v))) for v in (huge, -huge)]
    same(how(lambda x: x.astype(dtype), of([huge, -huge], source)), wide, dtype)


# --- shapes and axes


def test_zero_extents_and_rank_0_are_legal(how: Any) -> None:
    empty, scalar = et.zeros((0, 3)), et.zeros(())
    assert how(lambda x: et.exp(x) @ et.ones((3, 2)), empty).shape == (0, 2)
    same(how(lambda x: et.sum(x, 0), empty), [0, 0, 0], "float32")
    same(how(et.exp, scalar), 1.0, "float32")
    same(how(lambda x: et.max(x, ()), scalar), 0.0, "float32")


def test_negative_axes_count_from_the_end(how: Any) -> None:
    x = et.arange(24).reshape(2, 3, 4)
    for axis in range(-3, 0):
        np.testing.assert_array_equal(
            how(lambda x, a=axis: et.sum(x, a), x).numpy(), x.numpy().sum(axis + 3)
        )


@pytest.mark.parametrize("axis", [3, -4, (0, 0), (1, -2), (0, 3)])
def test_duplicate_or_out_of_range_axes_are_a_shape_error(axis: Any) -> None:
    x = et.zeros((2, 3, 4))
    for f in (et.sum, et.max, et.flip, et.mean):
        with pytest.raises(ShapeError):
            f(x, axis)
    with pytest.raises(ShapeError):
        et.transpose(x, (0, 1, 1))


# --- numbers as arguments, lists, bools, powers, shifts


def test_a_python_number_argument_of_a_compiled_function_is_an_array() -> None:
    seen: list[str] = []

    def f(n: Any, x: Any) -> Any:
        seen.append(n.dtype.name)
        return x

    for number, dtype in ((1.5, "float32"), (3, "int64"), (True, "bool")):
        et.jit(f)(number, et.zeros(2))
        assert seen[-1] == dtype
    with pytest.raises(DTypeError, match=r"static_argnames") as caught:
        et.jit(lambda x, n: x * n)(of([1.0], "float32"), 3)
    assert "n of jit(<lambda>) was passed as a number" in str(caught.value)
    assert "x.dtype.type(n)" in str(caught.value)


def test_lists_are_accepted_by_array_only() -> None:
    same(et.array([1.0, 2.0]), [1, 2], "float32")
    for f in (et.exp, et.sum, lambda x: et.add(x, 1.0)):
        with pytest.raises(ArgumentError, match="list"):
            f([1.0, 2.0])


def test_arithmetic_on_bools_is_an_error_and_bit_operations_work(how: Any) -> None:
    x, y = of([True, True, False], "bool"), of([True, False, False], "bool")
    for f in (operator.add, operator.sub, operator.mul, operator.truediv):
        with pytest.raises(DTypeError):
            f(x, y)
    same(how(operator.and_, x, y), [True, False, False], "bool")
    same(how(operator.or_, x, y), [True, True, False], "bool")
    same(how(operator.xor, x, y), [False, True, False], "bool")
    same(how(operator.invert, x), [False, False, True], "bool")


def test_a_power_with_a_python_int_is_exact_and_static(how: Any) -> None:
    x = of([3.0, -3.0, 0.0, np.nan], "float32")
    same(how(lambda x: x**5, x), [243.0, -243.0, 0.0, np.nan], "float32")
    same(how(lambda x: x**0, x), [1, 1, 1, 1], "float32")
    slope = et.vmap(et.grad(lambda x: x**2))(of([0.0, -3.0], "float32"))
    same(slope, [0.0, -6.0], "float32")
    third = et.grad(et.grad(et.grad(lambda x: x**3)))(et.array(0.0))
    assert float(third) == 6.0
    same(how(lambda x: x**40, of([3], "int64")), [3**40 - 2**64 * round(3**40 / 2**64)], "int64")


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_of_at_least_the_width_give_0_or_the_sign(dtype: Any, how: Any) -> None:
    width = dtype.itemsize * 8
    info = np.iinfo(dtype)
    x = of([1, info.max, info.min], dtype)
    for amount in {width, width + 1, min(int(info.max), 2 * width + 5)}:
        n = of([amount] * 3, dtype)
        same(how(operator.lshift, x, n), [0, 0, 0], dtype)
        same(how(operator.rshift, x, n), [0, 0, -1 if info.min < 0 else 0], dtype)
    if info.min < 0:
        same(how(operator.lshift, x, of([-1] * 3, dtype)), [0, 0, 0], dtype)


# --- defaults of functions with several conventions


def test_var_and_std_take_correction_0_as_numpy(how: Any) -> None:
    x = np.array([1.0, 2.0, 4.0, 8.0])
    for f, peer in ((et.var, np.var), (et.std, np.std)):
        assert np.isclose(float(how(f, et.array(x)).numpy()), peer(x), rtol=1e-15)
        assert np.isclose(float(f(et.array(x), correction=1).numpy()), peer(x, ddof=1), rtol=1e-15)


def test_split_takes_a_number_of_equal_sections_or_indices(how: Any) -> None:
    x = et.arange(6)
    assert [p.shape for p in how(lambda x: et.split(x, 3), x)] == [(2,)] * 3
    assert [p.shape for p in how(lambda x: et.split(x, [1, 4]), x)] == [(1,), (3,), (2,)]
    with pytest.raises(ShapeError):
        et.split(x, 4)


def test_chunk_takes_a_number_of_chunks(how: Any) -> None:
    assert [p.shape for p in how(lambda x: et.chunk(x, 4), et.arange(6))] == [(2,), (2,), (2,)]


def test_randint_gives_int64_unless_told(how: Any) -> None:
    key = et.random.key(0)
    assert how(lambda k: et.random.randint(k, (3,), 0, 9), key).dtype is dtypes.int64
    assert how(lambda k: et.random.randint(k, (3,), 0, 9, "int8"), key).dtype is dtypes.int8
