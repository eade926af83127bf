"""One library has kernels for several instruction sets; each gives the same values."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

import pyeffect_torch as et

ORDER = {
    "x86_64": ["v2", "v3", "v4", "v4b"],
    "AMD64": ["v2", "v3", "v4", "v4b"],
    "aarch64": ["base", "bf16"],
    "arm64": ["base", "bf16"],
}[platform.machine()]

CODE = """
import json
import numpy as np
import pyeffect_torch as et

rng = np.random.default_rng(0)
draw = lambda *shape: et.array(rng.standard_normal(shape, dtype=np.float32))
x, w, b = draw(33, 70), draw(70, 45), draw(45)

def loss(x, w, b):
    y = et.nn.gelu(x @ w + b) * et.sigmoid(b) + et.tanh(b)
    y = et.nn.softmax(y) + et.nn.layer_norm(y, b, b) + et.exp(-et.abs(y)) + et.erf(y)
    q = y[:32, :40].reshape(2, 16, 2, 20).transpose(0, 2, 1, 3)
    return et.nn.scaled_dot_product_attention(q, q, q, causal=True).mean() + et.log1p(y * y).sum()

value, grads = et.jit(et.value_and_grad(loss, argnums=(0, 1, 2)))(x, w, b)
sums = [float(value), *(float(et.abs(g).sum()) for g in grads)]
half = float((x.astype("bfloat16") @ w.astype("bfloat16")).astype("float32").sum())
print(json.dumps({"isa": et.cpu().features["isa"], "sums": sums, "half": half}))
"""


def run(isa: str) -> dict[str, object]:
    """Run the program in a process of its own with that instruction set."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYEFFECT_ISA": isa},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("isa", ORDER)
def test_an_instruction_set_can_be_chosen_and_agrees(isa: str) -> None:
    best = et.cpu().features["isa"]
    want, got = run(best), run(isa)
    # A machine that lacks the wish takes the best it has.
    assert got["isa"] == ORDER[min(ORDER.index(isa), ORDER.index(best))]
    # Sums of at most 33 * 70 float32 terms in another order: log2 of them roundings, times eight
    # operations in a row.
    bound = 8 * 12 * float(np.finfo(np.float32).eps)
    assert np.allclose(got["sums"], want["sums"], rtol=bound, atol=0)
    assert np.isclose(float(str(got["half"])), float(str(want["half"])), rtol=2**-7)
