"""einops and jaxtyping work on arrays, concrete or traced, without any registration."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import einops
import einops.array_api
import numpy as np
import pytest
from einops import layers
from jaxtyping import BFloat16, Bool, Float, Float32, Int, Shaped, UInt8, jaxtyped

import pyeffect_torch as et

VALUE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def programs() -> list[tuple[str, Any]]:
    return [
        ("rearrange", lambda e, x: e.rearrange(x, "a b c -> c (b a)")),
        ("split", lambda e, x: e.rearrange(x, "a b (c d) -> a d c b", c=2)),
        ("mean", lambda e, x: e.reduce(x, "a b c -> b", "mean")),
        ("max", lambda e, x: e.reduce(x, "a b c -> a 1 c", "max")),
        ("prod", lambda e, x: e.reduce(x, "a b c -> a c", "prod")),
        ("repeat", lambda e, x: e.repeat(x, "a b c -> a (b r) c s", r=2, s=3)),
        ("list", lambda e, x: e.rearrange([x, x + 1], "n a b c -> a b (n c)")),
        ("pack", lambda e, x: e.pack([x, x], "a b *")[0]),
        ("unpack", lambda e, x: e.unpack(x, [(2,), (2,)], "a b *")[1]),
    ]


@pytest.mark.parametrize(("name", "program"), programs(), ids=[name for name, _ in programs()])
@pytest.mark.parametrize("library", [einops, einops.array_api], ids=["einops", "array_api"])
def test_einops(name: str, program: Any, library: Any) -> None:
    want = program(einops, VALUE)
    x = et.array(VALUE)
    np.testing.assert_allclose(program(library, x).numpy(), want, rtol=2.0**-20)
    compiled = et.jit(lambda v: program(library, v))
    np.testing.assert_allclose(compiled(x).numpy(), want, rtol=2.0**-20)
    rows = et.vmap(lambda v: program(library, v))(et.stack([x, x * 2]))
    np.testing.assert_allclose(rows[0].numpy(), want, rtol=2.0**-20)
    slope = et.grad(lambda v: et.sum(program(library, v) * 3.0))(x)
    assert slope.shape == x.shape


def test_einops_einsum_and_conversions() -> None:
    x = et.array(VALUE)
    got = einops.einsum(x, x, "a b c, a d c -> a b d")
    np.testing.assert_array_equal(got.numpy(), np.einsum("abc,adc->abd", VALUE, VALUE))
    assert einops.parse_shape(x, "a b c") == {"a": 2, "b": 3, "c": 4}
    np.testing.assert_array_equal(einops.asnumpy(x), VALUE)
    with pytest.raises(einops.EinopsError, match="Error while processing rearrange"):
        einops.rearrange(x, "a b (c d) -> a b c d", c=3)


@pytest.mark.parametrize("first", ["einops", "pyeffect_torch"])
def test_einops_knows_arrays_whichever_is_imported_first(first: str) -> None:
    program = f"""
import sys, {first}
import pyeffect_torch as et
assert ("einops" in sys.modules) == {first == "einops"}
import einops
print(einops.rearrange(et.ones((2, 3)), "a b -> b a").shape)
assert not [f for f in sys.meta_path if type(f).__module__ == "pyeffect_torch.interop"]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("(3, 2)", 0), done.stderr


def test_einops_layers_are_for_frameworks_with_modules() -> None:
    assert not hasattr(layers, "pyeffect_torch")  # there is nothing to hold their parameters


def test_jaxtyping_checks_shapes_and_dtypes() -> None:
    x = et.array(VALUE)
    assert isinstance(x, Float[et.Array, "a b c"])
    assert isinstance(x, Float32[et.Array, "2 3 4"])
    assert isinstance(x, Shaped[et.Array, "... c"])
    assert not isinstance(x, Float[et.Array, "a b"])
    assert not isinstance(x, Int[et.Array, "a b c"])
    assert not isinstance(VALUE, Float[et.Array, "a b c"])
    assert isinstance(x.astype("bfloat16"), BFloat16[et.Array, "..."])
    assert isinstance(x > 0, Bool[et.Array, "..."])
    assert isinstance(x.astype("uint8"), UInt8[et.Array, "..."])


def test_jaxtyping_binds_axes_inside_a_trace() -> None:
    @jaxtyped(typechecker=None)
    def product(a: Any, b: Any) -> Any:
        assert isinstance(a, Float[et.Array, "rows inner"])
        assert isinstance(b, Float[et.Array, "inner columns"])
        return a @ b

    assert et.jit(product)(et.ones((2, 3)), et.ones((3, 4))).shape == (2, 4)
    with pytest.raises(AssertionError):
        et.jit(product)(et.ones((2, 3)), et.ones((2, 4)))
