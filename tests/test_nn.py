"""`et.nn` is a facade: the functions of `et`, and no model."""

from __future__ import annotations

import inspect

import pyeffect_torch as et

OF_LOOPS = {"kda", "kda_step"}
"""What is made of control flow, above the array functions, is in `et.nn` alone."""


def test_every_name_is_a_documented_function() -> None:
    assert len(et.nn.__all__) == len(set(et.nn.__all__))
    for name in et.nn.__all__:
        function = getattr(et.nn, name)
        assert inspect.isfunction(function), name
        assert function.__doc__, name
        assert getattr(et, name, None) is (None if name in OF_LOOPS else function), name


def test_losses_are_in_their_own_module_only() -> None:
    for name in et.losses.__all__:
        assert not hasattr(et, name), name
        assert not hasattr(et.nn, name), name
