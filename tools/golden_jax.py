"""Write golden numbers of JAX: stacks of transforms, and random numbers.

In an environment with JAX (`make interop` makes one), `python tools/golden_jax.py` writes
`tests/data/jax_compositions.json` and `tests/data/jax_random.json`; with `--check` it compares what
is there with what it would write. The functions and the stacks are written twice, here for JAX and
in `tests/transforms/stacked.py` and `test_compositions.py` for this package.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)

DATA = Path(__file__).parents[1] / "tests" / "data"
SEED = 42
ROUNDINGS_MAX = 2.0**-18
"""What `--check` allows: whether XLA fuses an addition with a product depends on the machine."""
FLOATS = ("float16", "bfloat16", "float32", "float64")
WEIGHTS = (0.5, -1.0, 2.0)
Function = Callable[[Any], Any]


@jax.custom_jvp
def bent(x: Any) -> Any:
    """sin, with a derivative of its own."""
    return jnp.sin(x)


bent.defjvp(lambda primals, tangents: (bent(*primals), tangents[0] * 3.0 * primals[0]))


def mixed(x: Any) -> Any:
    """Products across elements."""
    return jnp.exp(-x[0]) * jnp.tanh(x[1]) + x[2] * x[2] * x[2] * x[0]


FUNCTIONS: dict[str, tuple[Function, Any, int]] = {
    "wave": (lambda x: x * x * jnp.sin(x), 0.7, 4),
    "kinks": (lambda x: jnp.where(x > 0.3, x * x * x, jnp.maximum(x, -2.0 * x)) * x, 0.7, 4),
    "bent": (lambda x: bent(x) * x, 0.7, 4),
    "mixed": (mixed, (0.7, -0.4, 1.1), 4),
    "decay": (lambda x: jnp.exp(-x) * jnp.tanh(x), 0.7, 3),
    "total": (lambda x: jnp.sum(x * x * jnp.sin(x)) * x[0], (0.7, -0.4, 1.1), 3),
    "largest": (
        lambda x: jnp.max(x) * jnp.sum(jnp.where(x > 0, x, x * x)), (0.7, -0.4, 1.1), 3,
    ),
}  # fmt: skip
"""Name: the function, where it is evaluated, and the greatest depth of stacks."""


def apply(letter: str, f: Function) -> Function:
    """One transform as a map of scalar functions to scalar functions."""
    if letter == "g":
        return lambda x: jnp.sum(jax.grad(f)(x) * (jnp.array(WEIGHTS) if x.ndim else 1.0))
    if letter == "j":
        return lambda x: jax.jvp(f, (x,), (x * x,))[1]
    if letter == "v":
        return lambda x: jnp.sum(jax.vmap(f)(jnp.stack([x, x - 1.0])))
    return jax.jit(f) if letter == "i" else jax.checkpoint(f)


def compositions() -> dict[str, Any]:
    """Evaluate every stack; op by op, as jit changes no value beyond rounding."""
    values: dict[str, dict[str, str]] = {}
    with jax.disable_jit():
        for name, (f, point, depth) in FUNCTIONS.items():
            x = jnp.array(point, jnp.float64)
            row = values[name] = {}
            for length in range(depth + 1):
                for letters in itertools.product("gjvic", repeat=length):
                    stacked = f
                    for letter in reversed(letters):
                        stacked = apply(letter, stacked)
                    row["".join(letters)] = float(stacked(x)).hex()
    note = "Letters from the outside in: g grad, j jvp, v vmap, i jit, c checkpoint."
    return {"jax": jax.__version__, "note": note, "values": values}


def ints(x: Any) -> list[int]:
    """The elements of an integer array."""
    return np.asarray(x).reshape(-1).astype(object).tolist()


def hexes(x: Any) -> list[str]:
    """The elements of a floating array, to the last bit."""
    return [float(v).hex() for v in np.asarray(x).reshape(-1).astype(np.float64)]


def keys_and_bits(key: Any) -> dict[str, Any]:
    """Keys, bits and uniform numbers, which are equal to the last bit."""
    data = random.key_data
    seeds = (0, 1, 42, -1, 2**40 + 7)
    return {
        "key": [[seed, ints(data(random.key(np.int64(seed))))] for seed in seeds],
        "split": ints(data(random.split(key, 3))),
        "split_2_2": ints(data(random.split(key, (2, 2)))),
        "fold_in": [[n, ints(data(random.fold_in(key, n)))] for n in (0, 1, 7, 2**32 - 1)],
        "bits": {
            d: ints(random.bits(key, (2, 3), d)) for d in ("uint8", "uint16", "uint32", "uint64")
        },
        "uniform": {d: hexes(random.uniform(key, (5,), d)) for d in FLOATS},
        "uniform_range": {d: hexes(random.uniform(key, (5,), d, -3, 5)) for d in FLOATS},
        "randint": [
            [d, low, high, ints(random.randint(key, (5,), low, high, d))]
            for d, low, high in (
                ("int64", -5, 10), ("int32", 0, 1000003), ("int8", -100, 100), ("uint8", 0, 256),
                ("uint32", 0, 7), ("int64", 0, 3 * 2**40 + 1), ("int32", 3, 3),
                ("uint16", 10, 60000), ("int32", -(2**31), 2**31),
            )
        ],
    }  # fmt: skip


def distributions(key: Any) -> dict[str, Any]:
    """Real numbers of one shape and parameters; wide dtypes only, but for `normal`."""
    wide = ("float32", "float64")
    found: dict[str, Any] = {"normal": {d: hexes(random.normal(key, (16,), d)) for d in FLOATS}}
    found["truncated_normal"] = {
        d: hexes(random.truncated_normal(key, -0.5, 1.5, (6,), d)) for d in wide
    }
    for name in ("exponential", "laplace", "gumbel", "cauchy", "logistic"):
        found[name] = {d: hexes(getattr(random, name)(key, (6,), d)) for d in wide}
    return found


def choices(key: Any) -> dict[str, Any]:
    """Bools, categories, permutations and choices."""
    logits = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    grid = np.arange(12).reshape(3, 4)
    p = np.array([0.1, 0.4, 0.0, 0.3, 0.2], np.float32)
    return {
        "bernoulli": ints(random.bernoulli(key, np.float32(0.3), (20,)).astype(int)),
        "categorical": ints(random.categorical(key, logits)),
        "categorical_axis0": ints(random.categorical(key, logits, axis=0)),
        "categorical_draws": ints(random.categorical(key, logits, shape=(5, 3))),
        "permutation": ints(random.permutation(key, 10)),
        "permutation_long": ints(random.permutation(key, 2000)[:20]),
        "permutation_rows": ints(random.permutation(key, grid)),
        "permutation_columns": ints(random.permutation(key, grid, axis=1)),
        "permutation_independent": ints(random.permutation(key, grid, axis=1, independent=True)),
        "choice": ints(random.choice(key, 7, (2, 3))),
        "choice_rows": ints(random.choice(key, grid, (2,))),
        "choice_unique": ints(random.choice(key, 9, (2, 3), replace=False)),
        "choice_columns": ints(random.choice(key, grid, (2,), replace=False, axis=1)),
        "choice_p": ints(random.choice(key, 5, (12,), p=p)),
        "choice_p_unique": ints(random.choice(key, 5, (3,), replace=False, p=p)),
    }


SHAPES = (0.01, 0.3, 1.0, 2.5, 40.0)
"""Parameters of gamma distributions, written once more in `tests/test_random.py`."""


def loops(key: Any) -> dict[str, Any]:
    """Distributions that draw until a draw is accepted, of several variables, and a gradient."""
    found: dict[str, Any] = {}
    for d in ("float32", "float64"):
        a = np.array(SHAPES, d)
        covariance = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 3.0]], d)
        draws = {
            "gamma": random.gamma(key, a, dtype=d),
            "loggamma": random.loggamma(key, a, dtype=d),
            "gamma_rows": random.gamma(key, a, (2, 5), dtype=d),
            "gamma_gradient": jax.grad(lambda v, d=d: random.gamma(key, v, dtype=d).sum())(a),
            "loggamma_gradient": jax.grad(lambda v, d=d: random.loggamma(key, v, dtype=d).sum())(a),
            "beta": random.beta(key, a, a[::-1], dtype=d),
            "dirichlet": random.dirichlet(key, a[1:], (2,), dtype=d),
            "multivariate_normal": random.multivariate_normal(
                key, np.array([1.0, 2.0, 3.0], d), covariance, (2,), dtype=d
            ),
        }
        for name, drawn in draws.items():
            found.setdefault(name, {})[d] = hexes(drawn)
    means = np.array([0.0, 0.5, 3.0, 9.99, 10.0, 55.5, 1e4], np.float32)
    found["poisson"] = ints(random.poisson(key, means, (3, 7)))
    return found


def random_numbers() -> dict[str, Any]:
    """What `jax.random` draws from one seed."""
    key = random.key(SEED)
    note = "Drawn with partitionable threefry and 64-bit types on. Floats are hexadecimal."
    found = {"jax": jax.__version__, "seed": SEED, "note": note}
    return {**found, **keys_and_bits(key), **distributions(key), **choices(key), **loops(key)}


def same(old: Any, new: Any) -> bool:
    """Whether two trees are equal, floats within `ROUNDINGS_MAX`."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[name], new[name]) for name in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    if isinstance(old, str) and isinstance(new, str) and "0x" in old and "0x" in new:
        a, b = float.fromhex(old), float.fromhex(new)
        return abs(a - b) <= ROUNDINGS_MAX * max(abs(a), abs(b))
    return old == new


def write_or_check(files: dict[str, Callable[[], dict[str, Any]]]) -> None:
    """Write the files, or compare them."""
    check = sys.argv[1:] == ["--check"]
    for name, make in files.items():
        path = DATA / f"{name}.json"
        made = make()
        if not check:
            path.write_text(json.dumps(made, indent=0) + "\n")
        elif not same(json.loads(path.read_text()), made):
            sys.exit(f"{path.name} is not what JAX {jax.__version__} computes")
        print(f"{path.name}: {'as stored' if check else 'written'}")


if __name__ == "__main__":
    write_or_check({"jax_compositions": compositions, "jax_random": random_numbers})
