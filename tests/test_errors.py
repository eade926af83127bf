"""What bad input gets: a specific error that says what, where (the user's line) and how to mend.

Every case is a function of one line, so that the line which the message must name is known.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import errors
from pyeffect_torch.runtime.native import loader

F = np.float32
X = np.ones((2, 3), F)
V = np.ones(3, F)
ROW = {"w": V, "b": V}
LEAKED: list[Any] = []


def arr(x: Any) -> Any:
    return et.array(x)


def leak(x: Any) -> Any:
    LEAKED.append(x * 2)
    return x


def deleted() -> Any:
    x = et.array(V)
    x.delete()
    return x


def donated() -> Any:
    x = et.array(V)
    et.jit(lambda a: a + 1, donate_argnums=0)(x)
    return x


def leaked() -> Any:
    LEAKED.clear()
    et.jit(leak)(V)
    return LEAKED[0]


def here() -> Any:
    return et.reference().array(V)


def there() -> Any:
    return et.cpu().array(V)


def twice(a: Any, b: Any) -> Any:
    return a + b


@et.custom_vjp
def forgotten(x: Any) -> Any:
    return x


@et.custom_vjp
def one_way(x: Any) -> Any:
    return et.sin(x)


one_way.defvjp(lambda x: (et.sin(x), x), lambda x, ct: (ct * et.cos(x),))

# name: (error, what, how to mend, the offending call)
CASES: dict[str, tuple[str, str, str, Callable[[], Any]]] = {
    # shapes
    "broadcast": ("ShapeError",
        "add: shapes [2, 3] and [2] do not broadcast (axis -1: 3 against 2)",
        "reshape or slice an operand so that extents are equal or 1",
        lambda: arr(X) + np.ones(2, F)),
    "contraction": ("ShapeError", "axes differ, 3 (axis 1 of float32[2, 3]) against 2 (axis 0 of",
        "transpose an operand, or check their order",
        lambda: arr(X) @ arr(X)),
    "reshape": ("ShapeError", "reshape: float32[2, 3] has 6 elements, shape [4] has 4",
        "use a shape of the same size, or -1 for one axis",
        lambda: arr(X).reshape(4)),
    "negative extent": ("ShapeError", "zeros: negative extent in shape [-1]", "use extents >= 0",
        lambda: et.zeros(-1)),
    "ragged": ("ShapeError", "array: the rows have unequal lengths", "pad them to one length first",
        lambda: et.array([[1, 2], [3]])),
    "scalar value": ("ShapeError",
        "float: only an array of shape [] has a Python value, this is [3]",
        "reduce or index it to one element first",
        lambda: float(arr(V))),
    # axes
    "axis": ("ShapeError", "sum: axis 2 is out of range for rank 2", "use an axis from -2 to 1",
        lambda: et.sum(X, 2)),
    "axis twice": ("ShapeError", "sum: axes [0, -2] name an axis twice", "name each axis once",
        lambda: et.sum(X, (0, -2))),
    "axis type": ("ArgumentError", "softmax: axis must be an int, got float", "pass an int",
        lambda: et.softmax(X, 1.0)),
    "in_axes": ("ShapeError", "vmap: in_axes 2 is out of range for x, float32[2, 3]",
        "use an axis of that array, or None to share it",
        lambda: et.vmap(et.sum, in_axes=2)(X)),
    "in_axes count": ("ArgumentError", "vmap: in_axes has 2 entries for 1 positional arguments",
        "give one entry per argument",
        lambda: et.vmap(et.sum, in_axes=(0, 0))(X)),
    "batch sizes": ("ShapeError", "different extents (a: 2, b: 3)",
        "give all batched arguments one extent, or in_axes=None to share one",
        lambda: et.vmap(lambda a, b: a)(X, V)),
    "out_axes": ("TraceError", "vmap: out_axes is None, but result depends on the batch",
        "give it an axis, or reduce over the rows outside",
        lambda: et.vmap(et.sum, out_axes=None)(X)),
    # dtypes
    "mixed": ("DTypeError", "multiply: mixed dtypes, float32[3] and float64[3]",
        "cast one of them, for example x.astype('float64')",
        lambda: arr(V) * np.ones(3)),
    "NumPy scalars": ("DTypeError", "add: mixed dtypes, int64[3] and int32[]", "cast one of them",
        lambda: et.ones(3, "int64") + np.int32(1)),
    "float with ints": ("DTypeError", "the float 0.5 does not fit an array of dtype int64",
        "cast the array to a floating dtype, or write an int",
        lambda: et.ones(3, "int64") * 0.5),
    "int too large": ("DTypeError", "add: the number 300 does not fit uint8",
        "use a wider dtype",
        lambda: et.ones(3, "uint8") + 300),
    "bool arithmetic": ("DTypeError", "bool[2]", "",
        lambda: arr([True, False]) + arr([True, True])),
    "needs floats": ("DTypeError", "softmax: needs a floating array, got int64[3]",
        "cast it first, for example x.astype('float32')",
        lambda: et.softmax(et.arange(3))),
    "condition": ("DTypeError", "where: the condition must be bool, got float32[3]",
        "compare first, for example x != 0",
        lambda: et.where(V, arr(V), arr(V))),
    "no dtype": ("DTypeError", "zeros: 'float31' is not a dtype", "use one of bool, uint8",
        lambda: et.zeros(3, "float31")),
    "complex": ("DTypeError", "complex128", "",
        lambda: et.array(np.ones(2, np.complex128))),
    "list as operand": ("ArgumentError", "expected an array or a number, got list",
        "wrap it with et.array(...)",
        lambda: arr(V) * [1.0, 2.0, 3.0]),
    # argnums
    "argnums range": ("ArgumentError", "grad: argnums 1 is out of range for 1 positional arguments",
        "pass that argument by position, or correct argnums",
        lambda: et.grad(et.sum, argnums=1)(V)),
    "argnums type": ("ArgumentError", "grad: argnums must be an int or a sequence of ints, got 'x'",
        "name positional arguments by their position",
        lambda: et.grad(et.sum, argnums="x")(V)),
    "argnums twice": ("ArgumentError", "argnums (0, 0) names an argument twice", "name it once",
        lambda: et.grad(et.sum, argnums=(0, 0))(V)),
    # losses and gradients
    "vector loss": ("ArgumentError", "grad: the function must return a scalar, got float32[3]",
        "reduce the result, for example with .sum() or .mean()",
        lambda: et.grad(et.sin)(V)),
    "tuple loss": ("ArgumentError", "grad: the function must return one scalar, got tuple",
        "return the loss; with has_aux=True, return (loss, aux)",
        lambda: et.grad(lambda x: (x.sum(), x))(V)),
    "integer loss": ("DTypeError", "the function must return a floating scalar, got int64[]",
        "cast the loss to a floating dtype",
        lambda: et.grad(lambda x: et.argmax(x))(V)),
    "no aux": ("ArgumentError", "with has_aux=True the function must return a pair", "drop has_aux",
        lambda: et.grad(et.sum, has_aux=True)(V)),
    "integer gradient": ("DTypeError",
        "grad: argument 0['n'] has dtype int64, which has no derivative",
        "differentiate with respect to floating arrays, or cast it first",
        lambda: et.grad(lambda p: p["x"].sum())({"x": V, "n": np.arange(3)})),
    # traces
    "read in jit": ("TraceError", "dtype float32 has no value while it is traced: it depends on",
        "select with et.where, pass it as a static argument, or move the read out of the traced",
        lambda: et.jit(lambda x: float(x.sum()))(V)),
    "branch in jit": ("TraceError", "it depends on x of jit(<lambda>)",
        "or move the read out of the traced function",
        lambda: et.jit(lambda x: x if x.sum() > 0 else -x)(V)),
    "read in vmap": ("TraceError", "it depends on x of vmap", "select with et.where",
        lambda: et.vmap(lambda x: x if x > 0 else -x)(V)),
    "leak read": ("TraceError", "has no value while it is traced: it depends on x of",
        "move the read out of the traced function",
        lambda: leaked().numpy()),
    "leak into jit": ("TraceError", "x of jit(leak) leaked out of its trace, where",
        "return the value from the traced function instead of storing it elsewhere",
        lambda: et.jit(lambda y: y + leaked_once())(V)),
    "reverse only": ("TraceError", "custom_vjp one_way: it has no forward-mode rule",
        "use reverse mode (et.grad, et.vjp), or define the function with et.custom_jvp",
        lambda: et.jvp(one_way, (V,), (V,))),
    "no rule": ("ArgumentError", "custom_vjp forgotten: no rule is",
        "call defvjp(fwd, bwd)",
        lambda: forgotten(V)),
    # runtimes
    "mixed runtimes": ("ForeignHandleError", "add: the operands live on different runtimes",
        "move one of them with x.to(runtime)",
        lambda: here() + there()),
    "mixed runtimes in jit": ("ForeignHandleError", "jit(twice): the arguments live on different",
        "move one of them with x.to(runtime)",
        lambda: et.jit(twice)(here(), there())),
    "not a runtime": ("ArgumentError", "to: expected a runtime, got str",
        "call the factory: et.cpu()",
        lambda: arr(V).to("cpu")),
    # deleted and donated
    "deleted": ("InvalidHandleError", "sin: an array of shape [3] was deleted at test_errors.py:",
        "keep the result of that call instead, or do not donate the argument",
        lambda: et.sin(deleted())),
    "deleted read": ("InvalidHandleError", "an array of shape [3] was deleted at test_errors.py:",
        "keep the result",
        lambda: deleted().numpy()),
    "deleted in jit": ("InvalidHandleError", "an array of shape [3] was deleted at test_errors.py:",
        "keep the result",
        lambda: et.jit(et.sin)(deleted())),
    "donated": ("InvalidHandleError", "add: an array of shape [3] was donated to jit(<lambda>) at",
        "keep the result of that call instead, or do not donate the argument",
        lambda: donated() + 1),
    "donated twice": ("ArgumentError", "jit(twice): the same array is donated twice in one call",
        "pass a copy for one of the arguments, or donate only one of them",
        lambda: et.jit(twice, donate_argnums=(0, 1))(*[arr(V)] * 2)),
    # signatures and trees
    "unhashable static": ("ArgumentError", "static argument 1 of type list is not hashable",
        "pass a hashable value (a tuple instead of a list), or make it dynamic",
        lambda: et.jit(twice, static_argnums=1)(V, [1])),
    "hash": ("ArgumentError", "an Array is not hashable: equality is elementwise", "use id(x)",
        lambda: {arr(V): 1}),
    "tangent tree": ("TreeError", "jvp: tangents: the trees do not match\n    expected tangent",
        "",
        lambda: et.jvp(lambda p: p["w"], (ROW,), ({"w": V},))),
    "cotangent tree": ("TreeError", "vjp: cotangents: the trees do not match\n    expected cot",
        "",
        lambda: et.vjp(lambda x: (x, x), V)[1](V)),
    "tangent type": ("TreeError", "tangent[0] is float32[2, 3], but its value is float32[3]",
        "give each tangent the shape and dtype of its value",
        lambda: et.jvp(et.sin, (V,), (X,))),
    "in_axes tree": ("TreeError", "vmap: in_axes is not a prefix of the tree it describes",
        "give an int, None, or a tree of them with the same keys",
        lambda: et.vmap(lambda p: p["w"], in_axes=({"v": 0},))(ROW)),
    "jvp arguments": ("ArgumentError", "jvp: primals and tangents must be tuples or lists",
        "write jvp(f, (x,), (t,))",
        lambda: et.jvp(et.sin, arr(V), arr(V))),
    # indices
    "static index": ("IndexOutOfBoundsError", "index 5 is out of range for axis 0 of extent 3", "",
        lambda: arr(V)[5]),
    "index at run time": ("IndexOutOfBoundsError", "index 7 is out of", "",
        lambda: et.take(V, et.arange(7, 8) + 0).numpy()),
    "index dtype": ("DTypeError", "take: the index must be an integer array, got float32[3]",
        "cast it first, for example i.astype('int64')",
        lambda: et.take(V, V)),
}  # fmt: skip


def leaked_once() -> Any:
    """What a finished trace leaked; the inner trace must not run again while it is used."""
    return LEAKED[0] if LEAKED else leaked()


BUILTINS = {
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "TraceError": TypeError,
    "TreeError": ValueError,
    "ArgumentError": TypeError,
    "IndexOutOfBoundsError": IndexError,
}


@pytest.mark.parametrize("name", CASES)
def test_error_says_what_where_and_how(name: str) -> None:
    kind, what, mend, call = CASES[name]
    LEAKED.clear()
    if name == "leak into jit":
        leaked()
    with pytest.raises(getattr(et.errors, kind)) as caught:
        call()
    error = caught.value
    assert type(error).__name__ == kind
    assert isinstance(error, BUILTINS.get(kind, et.errors.BackendError))
    assert what in error.what
    assert mend in error.mend
    line = call.__code__.co_firstlineno
    assert error.where.startswith(f"test_errors.py:{line} in <lambda>: "), error.where
    assert str(error).split("\n  ")[0] == error.what.split("\n  ")[0]
    assert f"\n  at {error.where}" in str(error)
    assert not mend or str(error).endswith(error.mend)


def test_every_error_is_of_the_tree_and_has_a_name_a_user_knows() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    ours = [cls for cls in classes if issubclass(cls, et.errors.EffectTorchError)]
    assert len(ours) > 15
    for cls in ours:
        if issubclass(cls, et.errors.BackendError) or cls is et.errors.EffectTorchError:
            continue
        bases = [base.__name__ for base in cls.__mro__ if base.__module__ == "builtins"]
        assert any(hasattr(builtins, name) and name not in ("object", "Exception",
                   "BaseException") for name in bases), cls  # fmt: skip


def test_mismatched_trees_are_both_printed() -> None:
    with pytest.raises(et.errors.TreeError) as caught:
        et.jvp(lambda p: p["w"], (ROW,), ({"w": V, "c": V},))
    text = str(caught.value)
    expected, got = (re.search(rf"{word} +tangent (.*)", text) for word in ("expected", "got"))
    assert expected is not None
    assert got is not None
    assert "'b'" in expected[1]
    assert "'c'" in got[1]
    assert "'b'" not in got[1]


def test_an_error_at_run_time_names_the_line_that_built_the_node() -> None:
    for runtime in (et.cpu(), et.reference()):
        with et.use(runtime):
            index = et.array(np.array([0, 9]))
            picked = et.take(V, index)  # the line that the messages name
            added = picked + 1
        with pytest.raises(IndexError, match="index 9 is out of") as caught:
            added.numpy()
        assert isinstance(caught.value, et.errors.IndexOutOfBoundsError)
        assert caught.value.where.endswith("  # the line that the messages name")


def test_leaked_placeholder_names_where_it_was_made() -> None:
    x = leaked()
    with pytest.raises(et.errors.TraceError, match=r"made at test_errors\.py:\d+ in leaked"):
        et.jit(lambda y: y + x)(V)


def test_saved_value_of_a_donated_array_names_the_donation() -> None:
    x = et.array(V)
    later = x * 2
    et.jit(lambda a: a + 1, donate_argnums=0)(x)
    with pytest.raises(et.errors.InvalidHandleError, match=r"was donated to jit\(<lambda>\) at "):
        later.numpy()


# --- the native library


def test_a_library_with_another_opcode_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "TABLE_DIGEST", loader.TABLE_DIGEST ^ 1)
    with pytest.raises(et.errors.NativeLibraryError) as caught:
        loader.open_library(loader.PATH)
    error = caught.value
    assert isinstance(error, ImportError)
    assert "does not match this package" in error.what
    assert f"table {loader.TABLE_DIGEST:016x}" in error.what
    assert f"opcode table {loader.TABLE_DIGEST ^ 1:016x}" in error.what
    assert error.mend == "build it again with `pip install -e .`, or reinstall the wheel"


def test_a_library_of_another_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "ABI_VERSION", loader.ABI_VERSION + 1)
    with pytest.raises(et.errors.NativeLibraryError, match="expected ABI"):
        loader.open_library(loader.PATH)


def test_a_missing_or_broken_library_is_named(tmp_path: Path) -> None:
    with pytest.raises(et.errors.NativeLibraryError, match="is not installed"):
        loader.open_library(tmp_path / loader.PATH.name)
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not a library")
    with pytest.raises(et.errors.NativeLibraryError, match="cannot be loaded"):
        loader.open_library(broken)
