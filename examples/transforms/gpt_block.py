"""One block of a decoder, and the gradient of a next-token loss with respect to its weights."""

from __future__ import annotations

from typing import Any

import pyeffect_torch as jnp
from pyeffect_torch import grad, jit, random, tree, vmap
from pyeffect_torch.nn import gelu, log_softmax, softmax

VOCABULARY, WIDTH, HEADS, TIME, BATCH = 17, 32, 4, 8, 3


def init(key: Any) -> dict[str, Any]:
    shapes = {
        "tokens": (VOCABULARY, WIDTH),
        "positions": (TIME, WIDTH),
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
    }
    keys = random.split(key, len(shapes))
    weights = {
        name: random.normal(k, shape) * 0.1
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return weights | {"norm1": jnp.ones((WIDTH,)), "norm2": jnp.ones((WIDTH,))}


def norm(x: Any, scale: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


def attend(x: Any, p: dict[str, Any]) -> Any:
    time, width = x.shape
    q, k, v = (x @ p["qkv"]).reshape(time, 3, HEADS, width // HEADS).transpose(1, 2, 0, 3)
    scores = q @ k.swapaxes(-1, -2) / (width // HEADS) ** 0.5
    mask = jnp.tril(jnp.ones((time, time), bool))
    weights = softmax(jnp.where(mask, scores, -1e9), axis=-1)
    return (weights @ v).transpose(1, 0, 2).reshape(time, width) @ p["out"]


def block(p: dict[str, Any], ids: Any) -> Any:
    x = p["tokens"][ids] + p["positions"][: ids.shape[0]]
    x = x + attend(norm(x, p["norm1"]), p)
    x = x + gelu(norm(x, p["norm2"]) @ p["up"], approximate=False) @ p["down"]
    return x @ p["tokens"].T


def loss(p: dict[str, Any], ids: Any) -> Any:
    def one(row: Any) -> Any:
        chosen = jnp.take_along_axis(log_softmax(block(p, row[:-1])), row[1:, None], axis=1)
        return -chosen.mean()

    return vmap(one)(ids).mean()


def main() -> dict[str, Any]:
    """Return the loss and its gradients."""
    params = init(random.key(1))
    ids = (jnp.arange(BATCH * (TIME + 1)) * 7 % VOCABULARY).reshape(BATCH, TIME + 1)
    gradient = jit(grad(loss))(params, ids)
    return {"loss": jit(loss)(params, ids), "gradient": gradient}


if __name__ == "__main__":
    print(tree.map(lambda x: f"{list(x.shape)} mean {float(x.mean()):.4g}", main()))
