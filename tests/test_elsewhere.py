"""The names that JAX has and this package calls otherwise: the message says how."""

from __future__ import annotations

import inspect
import linecache
import pickle
import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

import pyeffect_torch as et
from pyeffect_torch.core.elsewhere import MENDS

CASES = [(module, name, mend) for module, mends in MENDS.items() for name, mend in mends.items()]


@pytest.mark.parametrize(("module", "name", "mend"), CASES)
def test_a_name_of_jax_is_answered_with_ours(module: str, name: str, mend: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"no attribute '{name}'; {mend}")):
        getattr(import_module(module), name)
    named = re.findall(r"\bet\.([a-z0-9_.]*[a-z0-9_])", mend)
    assert all(callable(attrgetter(path)(et)) or path.startswith("dtypes.") for path in named)
    assert named or "x." in mend


def test_what_the_page_calls_absent_is_absent() -> None:
    page = (Path(__file__).parents[1] / "docs" / "from-jax.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^Absent: (.*?)\. ", page, re.DOTALL | re.MULTILINE)
    names = re.findall(r"`([\w.]+)`", listed)
    assert len(names) > 3
    for name in names:
        owner, _, last = name.rpartition(".")
        assert not hasattr(attrgetter(owner)(et) if owner else et, last)
    assert "donate_argnames" not in inspect.signature(et.jit).parameters


def test_a_near_name_is_offered_by_python() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = et.sinn
    assert (caught.value.name, caught.value.obj) == ("sinn", et)


def test_functions_with_a_builtins_name_show_it() -> None:
    with pytest.raises(TypeError, match=r"^sum\(\) got an unexpected keyword argument 'dim'"):
        et.sum(et.ones(3), dim=0)
    assert pickle.loads(pickle.dumps(et.round)) is et.round


def test_a_quoted_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "et.ones(3).reshape(2, 2)  # " + "x" * 200
    monkeypatch.setitem(linecache.cache, "long_line.py", (len(line), None, [line], "long_line.py"))
    with pytest.raises(et.errors.ShapeError) as short:
        exec(compile(line, "long_line.py", "exec"), {"et": et})
    _, place, _ = str(short.value).splitlines()
    assert place == f"  at long_line.py:1 in <module>: {line[:97]}..."


@pytest.mark.parametrize("name", ["ones", "rand", "randn", "zeros"])
def test_a_shape_in_two_arguments_is_answered(name: str) -> None:
    with pytest.raises(et.errors.DTypeError, match=r"3 is not a dtype[^$]*a shape as one tuple"):
        getattr(et, name)(2, 3)


def test_a_result_that_is_no_array_is_told_from_an_argument() -> None:
    with pytest.raises(et.errors.ArgumentError, match=r"result of jit\(.*got str"):
        et.jit(lambda x: "text")(1)
