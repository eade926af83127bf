"""Milliseconds of a 3x3 convolution, beside im2col and NumPy's matrix product.

The peer copies the windows of the padded images into a matrix and multiplies it by the weights,
which is what a convolution costs with a good matrix product and no care. The peers alternate in one
run; figures are medians, each with one thread if the environment says so (`PYEFFECT_NUM_THREADS=1
OPENBLAS_NUM_THREADS=1`).

Usage: python bench/convolution.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pyeffect_torch as et

# images, channels, height and width, output channels, stride
SIZES = ((8, 64, 56, 64, 1), (8, 128, 28, 128, 1), (8, 256, 14, 256, 1), (8, 64, 56, 128, 2))


def by_columns(x: Any, w: Any, stride: int) -> Any:
    """Return the convolution as a matrix product over copied windows."""
    around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    windows = windows[:, :, ::stride, ::stride].transpose(0, 1, 4, 5, 2, 3)
    height, width = windows.shape[4:]
    columns = np.ascontiguousarray(windows).reshape(len(x), -1, height * width)
    return (w.reshape(len(w), -1) @ columns).reshape(len(x), len(w), height, width)


def milliseconds(run: Callable[[], Any]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    """Measure every size and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(0)
    for images, channels, extent, outputs, stride in SIZES:
        x = rng.standard_normal((images, channels, extent, extent), np.float32)
        w = rng.standard_normal((outputs, channels, 3, 3), np.float32)
        inputs = et.array(x), et.array(w)
        compiled = et.jit(lambda a, b, s=stride: et.nn.conv2d(a, b, stride=s, padding=1))
        runs: dict[str, Callable[[], Any]] = {
            "ours": lambda f=compiled, given=inputs: f(*given).numpy(),
            "im2col": lambda a=x, b=w, s=stride: by_columns(a, b, s),
        }
        np.testing.assert_allclose(runs["ours"](), runs["im2col"](), rtol=0, atol=1e-2)
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                times[name].append(milliseconds(run))
        found = {name: statistics.median(each) for name, each in times.items()}
        line = {
            "x": list(x.shape),
            "w": list(w.shape),
            "stride": stride,
            **{f"{name}_ms": round(value, 2) for name, value in found.items()},
            "ratio": round(found["ours"] / found["im2col"], 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
