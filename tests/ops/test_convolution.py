"""Convolutions against loops over every product, on both runtimes; their options and errors."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import dtypes
from pyeffect_torch.core.errors import ArgumentError, DTypeError, ShapeError
from pyeffect_torch.testing import check_grads

pytestmark = pytest.mark.usefixtures("runtime")

EPSILON = 2.0**-52


def draw(*shape: int, seed: int = 0, dtype: Any = np.float64) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def close(got: Any, want: Any, terms: int) -> None:
    """Sums of so many products of numbers below 1, each addition rounded."""
    assert got.shape == want.shape
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=4 * terms * EPSILON)


def convolve(x: Any, w: Any, strides: Any, pads: Any, dilations: Any, groups: int = 1) -> Any:
    """One product after the other; pads are pairs, what lies outside of x is 0."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    extents = [
        (n + sum(pad) - d * (k - 1) - 1) // s + 1
        for n, k, s, pad, d in zip(x.shape[2:], w.shape[2:], strides, pads, dilations, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *extents))
    for n, o, *at in np.ndindex(*out.shape):
        first = o // (w.shape[0] // groups) * w.shape[1]
        for c, *k in np.ndindex(*w.shape[1:]):
            place = [
                p * s + i * d - pad[0]
                for p, s, i, d, pad in zip(at, strides, k, dilations, pads, strict=True)
            ]
            if all(0 <= p < extent for p, extent in zip(place, x.shape[2:], strict=True)):
                out[(n, o, *at)] += x[(n, first + c, *place)] * w[(o, c, *k)]
    return out


def convolve_transposed(
    x: Any, w: Any, strides: Any, pads: Any, more: Any, dilations: Any, groups: int = 1
) -> Any:
    """Each element of x adds a multiple of the kernel; then pads are cut off."""
    share = w.shape[1]
    extents = [
        (n - 1) * s - 2 * pad + d * (k - 1) + extra + 1
        for n, k, s, pad, extra, d in zip(
            x.shape[2:], w.shape[2:], strides, pads, more, dilations, strict=True
        )
    ]
    out = np.zeros((x.shape[0], share * groups, *extents))
    for n, c, *at in np.ndindex(*x.shape):
        first = c // (x.shape[1] // groups) * share
        for o, *k in np.ndindex(*w.shape[1:]):
            place = [
                p * s + i * d - pad
                for p, s, i, d, pad in zip(at, strides, k, dilations, pads, strict=True)
            ]
            if all(0 <= p < extent for p, extent in zip(place, extents, strict=True)):
                out[(n, first + o, *place)] += x[(n, c, *at)] * w[(c, o, *k)]
    return out


CASES_1D = [
    # x, w, stride, padding, dilation, groups
    ((2, 3, 9), (4, 3, 3), 1, 0, 1, 1),
    ((1, 4, 9), (2, 4, 2), 2, 3, 2, 1),
    ((2, 4, 8), (6, 2, 3), 3, 1, 1, 2),
    ((2, 3, 8), (3, 1, 4), 1, 3, 1, 3),  # depthwise
    ((2, 3, 8), (6, 1, 3), 2, 1, 2, 3),
    ((1, 1, 700), (2, 1, 5), 1, 2, 1, 1),  # an image of its own
]
CASES_2D = [
    ((2, 3, 6, 7), (4, 3, 3, 3), 1, 1, 1, 1),
    ((1, 2, 8, 7), (3, 2, 3, 2), (2, 1), (1, 0), (1, 2), 1),
    ((2, 4, 7, 6), (6, 2, 2, 3), (1, 2), 2, (2, 1), 2),
    ((2, 3, 6, 6), (3, 1, 3, 3), 1, 1, 1, 3),
    ((2, 2, 6, 6), (4, 1, 3, 3), 2, 1, 1, 2),
    ((2, 4, 5, 5), (3, 4, 1, 1), 1, 0, 1, 1),
    ((2, 1, 25, 26), (2, 1, 3, 3), 1, 1, 1, 1),
]


def spread(option: Any, count: int) -> tuple[int, ...]:
    return option if isinstance(option, tuple) else (option,) * count


@pytest.mark.parametrize(("x", "w", "stride", "padding", "dilation", "groups"), CASES_1D + CASES_2D)
def test_every_option(
    x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    count = len(x) - 2
    a, b, bias = draw(*x), draw(*w, seed=1), draw(w[0], seed=2)
    function = et.nn.conv1d if count == 1 else et.nn.conv2d
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    pads = [(n, n) for n in spread(padding, count)]
    want = convolve(a, b, spread(stride, count), pads, spread(dilation, count), groups)
    terms = int(np.prod(w[1:]))
    close(function(a, b, **options), want, terms)
    column = bias.reshape((-1, *(1,) * count))
    close(function(a, b, bias, **options), want + column, terms + 1)
    close(function(a[0], b, bias, **options), want[0] + column, terms + 1)  # without a batch axis


CASES_TRANSPOSED = [
    # x, w, stride, padding, output padding, dilation, groups
    ((2, 3, 5), (3, 2, 3), 1, 0, 0, 1, 1),
    ((2, 3, 5), (3, 2, 3), 2, 1, 1, 1, 1),
    ((1, 4, 4), (4, 3, 2), 3, 0, 2, 2, 2),
    ((2, 2, 5), (2, 1, 4), 2, 1, 0, 1, 2),  # depthwise
    ((1, 2, 6), (2, 2, 2), 2, 3, 1, 1, 1),  # more is cut off than the kernel reaches
    ((1, 2, 4, 3), (2, 3, 3, 2), (2, 1), (1, 0), (1, 0), 1, 1),
    ((2, 4, 3, 4), (4, 1, 2, 3), 2, 1, 1, (1, 2), 2),
    ((1, 2, 4, 4), (2, 2, 3, 3), 1, 1, 0, 1, 1),
]


@pytest.mark.parametrize(
    ("x", "w", "stride", "padding", "more", "dilation", "groups"), CASES_TRANSPOSED
)
def test_every_option_transposed(
    x: Any, w: Any, stride: Any, padding: Any, more: Any, dilation: Any, groups: int
) -> None:
    count = len(x) - 2
    a, b = draw(*x), draw(*w, seed=1)
    function = et.nn.conv_transpose1d if count == 1 else et.nn.conv_transpose2d
    options = {"stride": stride, "padding": padding, "output_padding": more,
               "dilation": dilation, "groups": groups}  # fmt: skip
    lists = [spread(option, count) for option in (stride, padding, more, dilation)]
    want = convolve_transposed(a, b, *lists, groups)
    terms = x[1] // groups * int(np.prod(w[2:]))
    close(function(a, b, **options), want, terms)
    bias = draw(want.shape[1], seed=2)
    column = bias.reshape((-1, *(1,) * count))
    close(function(a[0], b, bias, **options), want[0] + column, terms + 1)


def test_padding_by_name_and_by_pairs() -> None:
    x, w = draw(2, 3, 7, 6), draw(4, 3, 4, 3, seed=1)
    valid = convolve(x, w, (1, 1), [(0, 0), (0, 0)], (1, 1))
    close(et.nn.conv2d(x, w, padding="valid"), valid, 36)
    same = et.nn.conv2d(x, w, padding="same")
    assert same.shape == (2, 4, 7, 6)
    close(same, convolve(x, w, (1, 1), [(1, 2), (1, 1)], (1, 1)), 36)
    wide = et.nn.conv2d(x, w, padding="same", dilation=(2, 1))
    close(wide, convolve(x, w, (1, 1), [(3, 3), (1, 1)], (2, 1)), 36)
    causal = et.nn.conv2d(x, w, padding=((3, 0), 1), stride=(1, 2))
    close(causal, convolve(x, w, (1, 2), [(3, 0), (1, 1)], (1, 1)), 36)


def test_kernel_reads_forward() -> None:
    """Cross-correlation, as every library of layers has it: the kernel is not mirrored."""
    x = np.array([[[1.0, 2.0, 3.0, 4.0]]])
    w = np.array([[[10.0, 1.0]]])
    np.testing.assert_array_equal(et.nn.conv1d(x, w).numpy(), [[[12, 23, 34]]])
    spread_out = et.nn.conv_transpose1d(x, w, stride=2).numpy()
    np.testing.assert_array_equal(spread_out, [[[10, 1, 20, 2, 30, 3, 40, 4]]])
    # What output_padding adds is what the kernel reaches, where it reaches that far.
    cut = et.nn.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1).numpy()
    np.testing.assert_array_equal(cut, [[[1, 20, 2, 30, 3, 40, 4]]])


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("form", ["windows", "depthwise", "transposed"])
def test_half_types_round_once(dtype: Any, form: str) -> None:
    """Sums of many terms would lose all digits if they were rounded in between."""
    x = draw(1, 32, 12, dtype=np.float32).astype(dtype)
    if form == "windows":
        w = draw(4, 32, 5, seed=1, dtype=np.float32).astype(dtype)
        got, want = et.nn.conv1d(x, w), convolve(x, w, (1,), [(0, 0)], (1,))
    elif form == "depthwise":
        w = draw(32, 1, 12, seed=1, dtype=np.float32).astype(dtype)
        got = et.nn.conv1d(x, w, groups=32)
        want = convolve(x, w, (1,), [(0, 0)], (1,), 32)
    else:
        w = draw(32, 4, 6, seed=1, dtype=np.float32).astype(dtype)
        got = et.nn.conv_transpose1d(x, w, stride=2)
        wide = x.astype(np.float64), w.astype(np.float64)
        want = convolve_transposed(*wide, (2,), (0,), (0,), (1,))
    assert got.dtype == dtype
    half = ml_dtypes.finfo(dtype).eps / 2
    bound = np.abs(want) * half * 1.01 + 200 * 2.0**-24
    assert (np.abs(got.numpy().astype(np.float64) - want) <= bound).all()


def test_nothing_is_legal() -> None:
    def zeros(*shape: int) -> Any:
        return np.zeros(shape, np.float32)

    assert et.nn.conv2d(zeros(0, 2, 5, 5), zeros(3, 2, 3, 3)).shape == (0, 3, 3, 3)
    assert et.nn.conv2d(zeros(1, 2, 0, 5), zeros(3, 2, 3, 3), padding=1).shape == (1, 3, 0, 5)
    assert et.nn.conv2d(zeros(1, 2, 5, 5), zeros(0, 2, 3, 3)).shape == (1, 0, 3, 3)
    no_channels = et.nn.conv1d(zeros(1, 0, 5), zeros(2, 0, 3), np.ones(2, np.float32))
    np.testing.assert_array_equal(no_channels.numpy(), np.ones((1, 2, 3)))
    # (0 - 1) * 2 + 5 - 1 + 1 outputs that nothing is added to
    empty = et.nn.conv_transpose1d(zeros(1, 2, 0), zeros(2, 3, 5), stride=2)
    np.testing.assert_array_equal(empty.numpy(), np.zeros((1, 3, 3)))
    slopes = et.grad(lambda w: et.sum(et.nn.conv1d(zeros(0, 2, 5), w)))(et.ones((3, 2, 3)))
    np.testing.assert_array_equal(slopes.numpy(), np.zeros((3, 2, 3)))


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((1, 2, 5, 4), (2, 2, 2, 3), {"stride": (2, 1), "padding": 1}),
        ((2, 4, 4, 4), (4, 2, 2, 2), {"groups": 2, "dilation": 2}),
        ((2, 2, 4, 4), (2, 1, 3, 3), {"groups": 2, "padding": 1, "stride": 2}),
    ],
)
def test_derivatives_of_two_orders(x: Any, w: Any, options: Any) -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return et.tanh(et.nn.conv2d(a, b, c, **options))

    check_grads(f, (draw(*x), draw(*w, seed=1), draw(w[0], seed=2)), order=2)


@pytest.mark.parametrize("groups", [1, 2])
def test_derivatives_of_two_orders_transposed(groups: int) -> None:
    def f(a: Any, b: Any) -> Any:
        return et.tanh(
            et.nn.conv_transpose2d(a, b, stride=2, padding=1, output_padding=1, groups=groups)
        )

    check_grads(f, (draw(1, 2, 3, 3), draw(2, 2, 3, 2, seed=1)), order=2)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_rows_of_inputs_and_of_weights(groups: int, transposed: bool) -> None:
    function = et.nn.conv_transpose2d if transposed else et.nn.conv2d

    def f(a: Any, b: Any) -> Any:
        return function(a, b, stride=2, padding=1, groups=groups)

    x, w = draw(3, 2, 4, 5, 5), draw(3, 4, 4 // groups, 3, 3, seed=1)
    for in_axes in ((0, 0), (0, None), (None, 0)):
        a = x if in_axes[0] == 0 else x[0]
        b = w if in_axes[1] == 0 else w[0]
        rows = [
            f(a[k] if in_axes[0] == 0 else a, b[k] if in_axes[1] == 0 else b).numpy()
            for k in range(3)
        ]
        close(et.vmap(f, in_axes)(et.array(a), et.array(b)), np.stack(rows), 36)
    # One gradient for each image, without loops over images.
    each = et.vmap(et.grad(lambda b, a: et.sum(et.square(f(a, b)))), (None, 0))
    got = each(et.array(w[0]), et.array(x))
    one = et.grad(lambda b, a: et.sum(et.square(f(a, b))))
    want = np.stack([one(et.array(w[0]), et.array(x[k])).numpy() for k in range(3)])
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_the_gradient_is_the_transpose() -> None:
    """conv_transpose is what its name says: the gradient of conv in its input."""
    x, w = draw(2, 4, 9, 8), draw(6, 2, 3, 2, seed=1)
    options: dict[str, Any] = {"stride": 2, "padding": 1, "groups": 2}
    y, pull = et.vjp(lambda a: et.nn.conv2d(a, w, **options), et.array(x))
    ct = draw(*y.shape, seed=3)
    more = tuple((n + 2 - k) % 2 for n, k in zip((9, 8), (3, 2), strict=True))
    want = et.nn.conv_transpose2d(ct, w, output_padding=more, **options)
    close(pull(et.array(ct))[0], want.numpy(), 18)


@pytest.mark.parametrize("stride", [1, 2])
def test_large_images_in_several_tasks(stride: int) -> None:
    x, w = draw(2, 24, 40, 37, dtype=np.float32), draw(20, 24, 3, 3, seed=1, dtype=np.float32)
    around = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    want = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))
    ct = draw(*want.shape, seed=4, dtype=np.float32)

    def f(a: Any, b: Any) -> Any:
        return et.nn.conv2d(a, b, padding=1, stride=stride)

    y, pull = et.vjp(f, et.array(x), et.array(w))
    dx, dw = pull(et.array(ct))
    assert np.abs(y.numpy() - want).max() < 216 * 2.0**-23
    want_w = np.einsum("nchwij,nohw->ocij", windows, ct.astype(np.float64))
    # Sums of up to 2 * 40 * 37 terms below 1 in a tree: their partial sums are below 100.
    assert np.abs(dw.numpy() - want_w).max() < 16 * 100 * 2.0**-23
    want_x = np.zeros(around.shape)
    for i, j in itertools.product(range(3), range(3)):
        part = np.einsum("nohw,oc->nchw", ct.astype(np.float64), w[:, :, i, j])
        rows, columns = part.shape[2] * stride, part.shape[3] * stride
        want_x[:, :, i : i + rows : stride, j : j + columns : stride] += part
    assert np.abs(dx.numpy() - want_x[:, :, 1:-1, 1:-1]).max() < 180 * 2.0**-23


ERRORS = [
    ((1, 3, 5, 5), (4, 2, 3, 3), {}, ShapeError, r"weights .*\[4, 2, 3, 3\] in 1 groups do not"),
    ((1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, ShapeError, "in 2 groups do not fit the 4"),
    ((1, 3, 2, 5), (4, 3, 3, 3), {}, ShapeError,
     r"kernel of 3 does not fit axis 2 of .*: \(2 \+ 0 \+ 0 - 1 \* \(3 - 1\) - 1\) // 1 \+ 1 = 0"),
    ((1, 3, 5, 5), (4, 3, 3), {}, ShapeError, "no kernel of 2 axes"),
    ((1, 3, 5, 5), (4, 3, 0, 3), {}, ShapeError, "of extent 1 or more"),
    ((3, 5), (4, 3, 3, 3), {}, ShapeError, "needs .batch, channels and 2 more axes"),
    ((1, 3, 5, 5), (4, 3, 3, 3), {"stride": 0}, ArgumentError, "stride must be .* got 0"),
    ((1, 3, 5, 5), (4, 3, 3, 3), {"stride": (1, 2, 3)}, ArgumentError, "an int or 2 ints"),
    ((1, 3, 5, 5), (4, 3, 3, 3), {"dilation": 1.5}, ArgumentError, "got 1.5"),
    ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": -1}, ArgumentError, "padding must be"),
    ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": "some"}, ArgumentError, "got 'some'"),
    ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": (1, 1, 1)}, ArgumentError, "3 entries for 2"),
    ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": "same", "stride": 2}, ArgumentError,
     "'same' with stride 2"),
    ((1, 3, 5, 5), (4, 3, 3, 3), {"groups": 0}, ArgumentError, "groups must be an int of at"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "w", "options", "error", "text"), ERRORS)
def test_errors(x: Any, w: Any, options: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        et.nn.conv2d(np.zeros(x, np.float32), np.zeros(w, np.float32), **options)


def test_errors_of_types_and_of_the_bias() -> None:
    x, w = np.zeros((1, 2, 4), np.float32), np.zeros((3, 2, 2), np.float32)
    with pytest.raises(DTypeError, match="mixed dtypes"):
        et.nn.conv1d(x, w.astype(np.float64))
    with pytest.raises(DTypeError, match="floating"):
        et.nn.conv1d(x.astype(np.int32), w.astype(np.int32))
    with pytest.raises(ShapeError, match=r"the bias .*\[2\] must have shape \[3\]"):
        et.nn.conv1d(x, w, np.zeros(2, np.float32))
    with pytest.raises(ArgumentError, match="output_padding 2 with stride 2"):
        et.nn.conv_transpose1d(x, w.swapaxes(0, 1), stride=2, output_padding=2)
    with pytest.raises(ShapeError, match="do not fit the 2 channels"):
        et.nn.conv_transpose1d(x, w)
    formula = r"\(4 - 1\) \* 1 - 2 \* 4 \+ 1 \* \(2 - 1\) \+ 0 \+ 1 = -3 outputs"
    with pytest.raises(ShapeError, match=formula):
        et.nn.conv_transpose1d(x, w.swapaxes(0, 1), padding=4)
