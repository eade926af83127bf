"""Trees: paths, nodes of one's own, dataclasses, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import pyeffect_torch as et


@et.tree.register_dataclass
@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    weight: Any
    bias: Any


@dataclasses.dataclass
class Scaled:
    value: Any
    factor: float

    def __post_init__(self) -> None:
        if not isinstance(self.factor, float):
            raise TypeError("a factor is a float")


et.tree.register_dataclass(Scaled, data_fields=["value"], meta_fields=["factor"])


class Pair:
    """No dataclass."""

    def __init__(self, left: Any, right: Any, name: str) -> None:
        self.left, self.right, self.name = left, right, name


et.tree.register_node(
    Pair,
    lambda pair: ((pair.left, pair.right), pair.name),
    lambda name, children: Pair(*children, name),
)


class Point(NamedTuple):
    x: Any
    y: Any


TREE = {"a": [1, (2, None)], "b": Point(3, Layer(4, Scaled(5, 0.5)))}


def test_leaves_and_structure() -> None:
    leaves, structure = et.tree.flatten(TREE)
    assert leaves == [1, 2, 3, 4, 5] == et.tree.leaves(TREE)
    assert structure == et.tree.structure(TREE)
    back = et.tree.unflatten(structure, [10 * leaf for leaf in leaves])
    assert back["a"] == [10, (20, None)]
    assert back["b"] == Point(30, Layer(40, Scaled(50, 0.5)))


def test_map_and_map_with_path() -> None:
    doubled = et.tree.map(lambda a, b: a + b, TREE, TREE)
    assert et.tree.leaves(doubled) == [2, 4, 6, 8, 10]
    named = et.tree.map_with_path(lambda path, leaf: f"{path} = {leaf}", TREE)
    assert et.tree.leaves(named) == [
        "['a'][0] = 1",
        "['a'][1][0] = 2",
        "['b'].x = 3",
        "['b'].y.weight = 4",
        "['b'].y.bias.value = 5",
    ]
    summed = et.tree.map_with_path(lambda path, a, b: (len(path), a + b), TREE, TREE)
    assert summed["a"][0] == (8, 2)
    with pytest.raises(et.errors.TreeError, match=r"the trees do not match\n.*\n.*"):
        et.tree.map_with_path(lambda path, a, b: a, [1, 2], [1])


def test_nodes_of_ones_own_pass_transforms() -> None:
    pair = Pair(et.array([1.0, 2.0]), Scaled(et.array([3.0, 4.0]), 2.0), "p")

    def f(p: Pair) -> et.Array:
        return et.sum(p.left * p.right.value * p.right.factor)

    slope = et.jit(et.grad(f))(pair)
    assert (slope.name, slope.right.factor) == ("p", 2.0)
    assert slope.left.tolist() == [6.0, 8.0]
    rows = et.vmap(lambda p: Layer(p.left * 2, p.right))(pair)
    np.testing.assert_array_equal(rows.weight.numpy(), [2.0, 4.0])
    assert rows.bias.factor == 2.0


def test_static_fields_are_part_of_the_structure() -> None:
    traces: list[float] = []

    @et.jit
    def f(s: Scaled) -> et.Array:
        traces.append(s.factor)
        return s.value * s.factor

    for factor in (2.0, 2.0, 3.0):
        f(Scaled(et.ones(2), factor))
    assert traces == [2.0, 3.0]


def test_leaves_need_not_be_what_the_constructor_wants() -> None:
    made = et.tree.map(lambda leaf: object(), Scaled(1, 0.5))
    assert made.factor == 0.5


def test_refusals() -> None:
    with pytest.raises(et.errors.TreeError, match="is no dataclass"):
        et.tree.register_dataclass(Pair)

    @dataclasses.dataclass
    class Other:
        a: Any
        b: Any

    for data, meta in ((["a"], []), (["a", "c"], ["b"]), (["a", "b"], ["b"]), ([], ["c"])):
        with pytest.raises(et.errors.TreeError, match=r"Other has the fields \['a', 'b'\], but"):
            et.tree.register_dataclass(Other, data_fields=data, meta_fields=meta)
    with pytest.raises(et.errors.TreeError, match=r"cannot register <class .*Pair'>"):
        et.tree.register_node(Pair, lambda p: ((), None), lambda meta, children: None)
    with pytest.raises(et.errors.TreeError, match="cannot register 3"):
        et.tree.register_node(3, lambda p: ((), None), lambda meta, children: None)
