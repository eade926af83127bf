"""Every name that the list of array functions promises is there, by its row."""

from __future__ import annotations

from typing import Any

import pytest

import pyeffect_torch as et

ROWS: dict[str, str] = {
    "constructors": (
        "zeros ones full empty eye tri arange linspace zeros_like ones_like full_like empty_like "
        "array asarray constant constant_like from_dlpack meshgrid diag"
    ),
    "elementwise, two operands": (
        "add subtract multiply divide floor_divide remainder power maximum minimum arctan2 "
        "logaddexp hypot equal not_equal less less_equal greater greater_equal logical_and "
        "logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift sub mul "
        "div fmod copysign nextafter heaviside gcd isclose"
    ),
    "elementwise, one operand": (
        "negative abs sign sqrt rsqrt cbrt square reciprocal exp exp2 expm1 log log1p log2 log10 "
        "sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh erf erfc erfinv "
        "lgamma digamma sinc signbit i0 floor ceil trunc round isnan isinf isfinite logical_not "
        "bitwise_not"
    ),
    "activations": (
        "sigmoid log_sigmoid relu relu6 silu gelu mish elu selu celu leaky_relu softplus softsign "
        "hardtanh hard_sigmoid hard_swish glu swiglu geglu"
    ),
    "choice": "where clip select nan_to_num cast astype",
    "reductions": (
        "sum prod mean max min var std norm logsumexp all any argmax argmin count_nonzero median "
        "quantile percentile average nansum nanmean nanmax nanmin ptp allclose array_equal cumsum "
        "cumprod cummax cummin cumlogsumexp diff"
    ),
    "shape": (
        "reshape ravel flatten squeeze unsqueeze expand_dims transpose swapaxes moveaxis "
        "broadcast_to concatenate stack split chunk tile repeat pad flip roll rot90 triu tril "
        "trace diagonal dynamic_slice dynamic_update_slice hstack vstack unstack atleast_1d "
        "atleast_2d broadcast_arrays broadcast_shapes matrix_transpose triu_indices tril_indices "
        "unravel_index"
    ),
    "indexing": (
        "take take_along_axis gather scatter_add scatter_set scatter_max scatter_min one_hot "
        "embedding segment_sum nonzero searchsorted bincount digitize histogram interp isin"
    ),
    "order": "sort argsort top_k unique",
    "contractions": ("matmul dot vdot vecdot inner outer kron cross tensordot einsum linear"),
    "types and constants": (
        "finfo iinfo result_type can_cast isdtype bitcast_convert_type pi e inf nan newaxis"
    ),
    "control": ("scan while_loop fori_loop cond switch map associative_scan stop_gradient barrier"),
}
NAMESPACES: dict[str, str] = {
    "nn": (
        "sigmoid log_sigmoid relu relu6 silu gelu mish elu selu celu leaky_relu softplus softsign "
        "hardtanh hard_sigmoid hard_swish glu swiglu geglu softmax log_softmax layer_norm rms_norm "
        "batch_norm group_norm rotary_embedding position_embedding scaled_dot_product_attention "
        "dropout conv1d conv2d conv_transpose1d conv_transpose2d max_pool1d max_pool2d avg_pool1d "
        "avg_pool2d global_max_pool global_avg_pool mean_pool upsample kda short_conv1d linear "
        "embedding one_hot"
    ),
    "nn.initializers": (
        "zeros ones constant normal truncated_normal uniform xavier_uniform xavier_normal "
        "kaiming_uniform kaiming_normal orthogonal lecun_uniform lecun_normal"
    ),
    "linalg": (
        "inv det slogdet solve triangular_solve cholesky qr svd eigh lstsq pinv norm matrix_rank "
        "matrix_power"
    ),
    "random": (
        "key split fold_in bits uniform normal truncated_normal randint bernoulli categorical"
    ),
    "losses": "mse l1 huber binary_cross_entropy cross_entropy nll kl_div",
}


@pytest.mark.parametrize("row", ROWS)
def test_the_names_of_a_row_are_there(row: str) -> None:
    missing = [name for name in ROWS[row].split() if not hasattr(et, name)]
    assert missing == []


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_names_of_a_namespace_are_there(namespace: str) -> None:
    owner: Any = et
    for part in namespace.split("."):
        owner = getattr(owner, part)
    missing = [name for name in NAMESPACES[namespace].split() if not callable(
        getattr(owner, name, None))]  # fmt: skip
    assert missing == []
    assert set(NAMESPACES[namespace].split()) <= set(owner.__all__)


def test_what_an_array_has_instead_of_functions() -> None:
    x = et.arange(6).reshape(2, 3)
    assert x[::-1, 1:].shape == (2, 2)
    assert float(x.at[0, 0].set(5).sum()) == 20.0
    assert et.reshape(x, (3, -1)).shape == (3, 2)
    for mode in ("constant", "edge", "reflect", "wrap"):
        assert et.pad(x, 1, mode=mode).shape == (4, 5)
    assert et.unique(x, size=6).shape == (6,)
    assert et.nonzero(x, size=5)[0].shape == (5,)
    assert et.bincount(x.ravel(), length=6).shape == (6,)
