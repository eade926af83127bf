"""The train step that the compile benchmarks use: a decoder-only transformer with AdamW.

The same step is written twice, for this library and for JAX, over a flat dict of parameters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import pyeffect_torch as et

Shapes = dict[str, tuple[int, ...]]


def shapes(layers: int, width: int, vocabulary: int, context: int) -> Shapes:
    """Return the parameter shapes by name; weights are [out, in]."""
    out: Shapes = {"tokens": (vocabulary, width), "positions": (context, width)}
    for k in range(layers):
        out |= {
            f"{k}.norm1.w": (width,),
            f"{k}.norm1.b": (width,),
            f"{k}.qkv.w": (3 * width, width),
            f"{k}.qkv.b": (3 * width,),
            f"{k}.out.w": (width, width),
            f"{k}.out.b": (width,),
            f"{k}.norm2.w": (width,),
            f"{k}.norm2.b": (width,),
            f"{k}.up.w": (4 * width, width),
            f"{k}.up.b": (4 * width,),
            f"{k}.down.w": (width, 4 * width),
            f"{k}.down.b": (width,),
        }
    return out | {"norm.w": (width,), "norm.b": (width,)}


def numpy_params(spec: Shapes, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return float32 parameters drawn from a seed."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(shape, dtype=np.float32) * 0.02
        if len(shape) > 1
        else np.full(shape, float(name.endswith("w")), np.float32)
        for name, shape in spec.items()
    }


def et_loss(params: dict[str, Any], ids: Any, heads: int, layers: int) -> Any:
    """Return the mean next-token loss of int32 ids [batch, time + 1]."""
    inputs, targets = ids[:, :-1], ids[:, 1:]
    batch, time = inputs.shape
    width = params["tokens"].shape[1]
    nn = et.nn
    x = nn.embedding(inputs, params["tokens"]) + params["positions"][:time]
    for k in range(layers):
        h = nn.layer_norm(x, params[f"{k}.norm1.w"], params[f"{k}.norm1.b"])
        qkv = nn.linear(h, params[f"{k}.qkv.w"], params[f"{k}.qkv.b"])
        q, key, v = qkv.reshape(batch, time, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        a = nn.scaled_dot_product_attention(q, key, v, causal=True)
        a = a.transpose(0, 2, 1, 3).reshape(batch, time, width)
        x = x + nn.linear(a, params[f"{k}.out.w"], params[f"{k}.out.b"])
        h = nn.layer_norm(x, params[f"{k}.norm2.w"], params[f"{k}.norm2.b"])
        h = nn.gelu(nn.linear(h, params[f"{k}.up.w"], params[f"{k}.up.b"]), approximate="tanh")
        x = x + nn.linear(h, params[f"{k}.down.w"], params[f"{k}.down.b"])
    x = nn.layer_norm(x, params["norm.w"], params["norm.b"])
    return et.losses.cross_entropy(nn.linear(x, params["tokens"]), targets)


def et_step(heads: int, layers: int, rate: float = 1e-3) -> Any:
    """Return `step(params, first, second, count, ids)` for this library."""

    def step(params: Any, first: Any, second: Any, count: Any, ids: Any) -> Any:
        loss, grads = et.value_and_grad(lambda p: et_loss(p, ids, heads, layers))(params)
        count = count + 1.0
        up, down = 1.0 - 0.9**count, 1.0 - 0.999**count
        out_p, out_m, out_v = {}, {}, {}
        for name, p in params.items():
            g = grads[name]
            m = 0.9 * first[name] + 0.1 * g
            v = 0.999 * second[name] + 0.001 * (g * g)
            out_p[name] = p - rate * ((m / up) / (et.sqrt(v / down) + 1e-8) + 0.01 * p)
            out_m[name], out_v[name] = m, v
        return out_p, out_m, out_v, count, loss

    return step


def jax_step(heads: int, layers: int, rate: float = 1e-3) -> Any:
    """Return the same step for JAX."""
    import jax
    import jax.numpy as jnp

    def norm(x: Any, w: Any, b: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        centred = x - mean
        return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * w + b

    def loss_of(params: Any, ids: Any) -> Any:
        inputs, targets = ids[:, :-1], ids[:, 1:]
        batch, time = inputs.shape
        width = params["tokens"].shape[1]
        x = params["tokens"][inputs] + params["positions"][:time]
        mask = jnp.tril(jnp.ones((time, time), bool))
        for k in range(layers):
            h = norm(x, params[f"{k}.norm1.w"], params[f"{k}.norm1.b"])
            qkv = h @ params[f"{k}.qkv.w"].T + params[f"{k}.qkv.b"]
            q, key, v = qkv.reshape(batch, time, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
            s = q @ key.swapaxes(-1, -2) / math.sqrt(width // heads)
            a = jax.nn.softmax(jnp.where(mask, s, -jnp.inf), axis=-1) @ v
            a = a.transpose(0, 2, 1, 3).reshape(batch, time, width)
            x = x + a @ params[f"{k}.out.w"].T + params[f"{k}.out.b"]
            h = norm(x, params[f"{k}.norm2.w"], params[f"{k}.norm2.b"])
            h = jax.nn.gelu(h @ params[f"{k}.up.w"].T + params[f"{k}.up.b"])
            x = x + h @ params[f"{k}.down.w"].T + params[f"{k}.down.b"]
        x = norm(x, params["norm.w"], params["norm.b"])
        rows = jax.nn.log_softmax(x @ params["tokens"].T)
        return -jnp.take_along_axis(rows, targets[..., None], axis=-1).mean()

    def step(params: Any, first: Any, second: Any, count: Any, ids: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, ids)
        count = count + 1.0
        up, down = 1.0 - 0.9**count, 1.0 - 0.999**count
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * (g * g), second, grads)
        params = jax.tree.map(
            lambda p, m, v: p - rate * ((m / up) / (jnp.sqrt(v / down) + 1e-8) + 0.01 * p),
            params,
            m,
            v,
        )
        return params, m, v, count, loss

    return step
