"""Functions of arrays that neural networks are made of. Constructors of models are elsewhere.

Nothing here holds parameters: weights are arguments, and `initializers` says how they begin. Losses
are in `pyeffect_torch.losses`.
"""

from __future__ import annotations

from pyeffect_torch.nn import initializers as initializers
from pyeffect_torch.nn.delta_rule import kda, kda_step
from pyeffect_torch.ops.activations import (
    celu,
    elu,
    geglu,
    gelu,
    glu,
    hard_sigmoid,
    hard_swish,
    hardtanh,
    leaky_relu,
    log_sigmoid,
    mish,
    relu,
    relu6,
    selu,
    silu,
    softplus,
    softsign,
    swiglu,
)
from pyeffect_torch.ops.attention import scaled_dot_product_attention
from pyeffect_torch.ops.batch_norm import batch_norm, group_norm
from pyeffect_torch.ops.contraction import linear
from pyeffect_torch.ops.convolution import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from pyeffect_torch.ops.dropout import dropout
from pyeffect_torch.ops.embedding import embedding, one_hot
from pyeffect_torch.ops.normalization import layer_norm, log_softmax, rms_norm, softmax
from pyeffect_torch.ops.pooling import (
    avg_pool1d,
    avg_pool2d,
    global_avg_pool,
    global_max_pool,
    max_pool1d,
    max_pool2d,
    mean_pool,
)
from pyeffect_torch.ops.positions import position_embedding, rotary_embedding
from pyeffect_torch.ops.short_convolution import short_conv1d
from pyeffect_torch.ops.transcendental import sigmoid, tanh
from pyeffect_torch.ops.upsampling import upsample

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "celu",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "dropout",
    "elu",
    "embedding",
    "geglu",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "group_norm",
    "hard_sigmoid",
    "hard_swish",
    "hardtanh",
    "kda",
    "kda_step",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "max_pool1d",
    "max_pool2d",
    "mean_pool",
    "mish",
    "one_hot",
    "position_embedding",
    "relu",
    "relu6",
    "rms_norm",
    "rotary_embedding",
    "scaled_dot_product_attention",
    "selu",
    "short_conv1d",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swiglu",
    "tanh",
    "upsample",
]
