"""Functions of arrays that neural networks are made of. Constructors of models are elsewhere.

Nothing here holds parameters: weights are arguments, and `initializers` says how they begin. Losses
are in `pyeffect_torch.losses`.
"""

from __future__ import annotations

from pyeffect_torch.nn import initializers as initializers
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
from pyeffect_torch.ops.contraction import linear
from pyeffect_torch.ops.dropout import dropout
from pyeffect_torch.ops.embedding import embedding, one_hot
from pyeffect_torch.ops.normalization import layer_norm, log_softmax, rms_norm, softmax
from pyeffect_torch.ops.transcendental import sigmoid, tanh

__all__ = [
    "celu",
    "dropout",
    "elu",
    "embedding",
    "geglu",
    "gelu",
    "glu",
    "hard_sigmoid",
    "hard_swish",
    "hardtanh",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "one_hot",
    "relu",
    "relu6",
    "rms_norm",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swiglu",
    "tanh",
]
