"""What `explain` says: kernels with their lines and costs, the memory plan, and the page."""

from __future__ import annotations

import html.parser
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core.op import REGISTRY
from pyeffect_torch.runtime.costs import Costs
from pyeffect_torch.runtime.decode import decode
from pyeffect_torch.runtime.encode import encode
from pyeffect_torch.testing.declarations import (
    draw_samples,
    is_region,
    is_structural,
    results_of,
    symbolic,
)

F = np.float32
OPS = sorted(
    op.name
    for op in REGISTRY.values()
    if not is_structural(op) and not is_region(op) and op.domain is not None
)


def layer(x: Any, w: Any) -> Any:
    hidden = et.tanh(x @ w) * 2.0
    return hidden.sum(0)


def explained(f: Any, *args: Any) -> Any:
    return et.jit(f).lower(*args).explain()


def test_kernels_have_operations_lines_and_costs() -> None:
    found = explained(layer, et.ones((64, 32)), et.ones((32, 128)))
    product, region, total = found["kernels"]
    assert product["operations"] == ["dot_general"]
    assert product["flops"] == 2 * 64 * 32 * 128
    assert product["bytes"] == 4 * (64 * 32 + 32 * 128 + 64 * 128)
    assert region["operations"] == ["tanh", "multiply"]
    assert region["flops"] == 2 * 64 * 128
    assert region["bytes"] == 4 * 2 * 64 * 128 + 4  # the number 2.0
    assert total["operations"] == ["reduce_sum"]
    assert (total["flops"], total["bytes"]) == (64 * 128, 4 * (64 * 128 + 128))
    assert [row["reads"] for row in found["kernels"]] == [[], [0], [1]]
    line = layer.__code__.co_firstlineno + 1
    assert product["lines"] == [f"test_explain.py:{line}"]
    assert total["lines"] == [f"test_explain.py:{line + 1}"]
    assert found["flops"] == sum(row["flops"] for row in found["kernels"])


def test_reductions_done_with_a_region_are_its_members() -> None:
    found = explained(lambda x: (x * x).sum(), et.ones((300, 300)))
    (kernel,) = found["kernels"]
    assert sorted(kernel["operations"]) == ["multiply", "reduce_sum"]
    assert (kernel["flops"], kernel["bytes"]) == (2 * 90_000, 4 * 90_001)


def test_a_copy_is_called_one_and_has_no_operations() -> None:
    found = explained(lambda x: x.T, et.ones((5, 7)))
    (kernel,) = found["kernels"]
    assert kernel["operations"] == ["copy for transpose"]
    assert (kernel["flops"], kernel["bytes"]) == (0, 2 * 4 * 35)


def test_a_kernel_reads_through_views() -> None:
    found = explained(lambda x: et.exp(et.softmax(x).T) @ x, et.ones((8, 8)))
    softmax, power, product = found["kernels"]
    assert (softmax["kernel"], power["reads"], product["reads"]) == ("softmax", [0], [1])


def test_the_reference_explains_its_instructions() -> None:
    with et.use(et.reference()):
        found = explained(lambda x: et.sin(x) + 1.0, et.ones(4))
    assert [row["operations"] for row in found["kernels"]] == [["sin"], ["add"]]
    assert found["flops"] == 8
    assert "sin" in str(found)
    assert "<svg" in found.html()


def test_the_text_is_a_table() -> None:
    text = str(explained(layer, et.ones((64, 32)), et.ones((32, 128))))
    assert text.startswith("3 kernels for 4 instructions\n549 k operations, ")
    assert re.search(r"^ *1 +elementwise +tanh multiply +16.4 k +64 KiB", text, re.MULTILINE)


def test_a_frozen_program_explains_itself_too() -> None:
    frozen = et.freeze(layer, et.spec((64, 32), "f32"), et.spec((32, 128), "f32"))
    jitted = explained(layer, et.ones((64, 32)), et.ones((32, 128)))
    assert frozen.explain()["flops"] == jitted["flops"]
    assert frozen.explain()["kernels"][0]["lines"] == jitted["kernels"][0]["lines"]


@pytest.mark.parametrize("name", OPS)
def test_every_operation_has_a_cost(name: str) -> None:
    op = REGISTRY[name]
    assert op.domain is not None
    for sample in draw_samples(op, op.domain.dtypes[-1])[:4]:
        formals = symbolic(sample)
        program = encode(results_of(op, formals, sample.params), formals, et.cpu().has)
        decoded = decode(program.blob)
        for block, inner in enumerate((decoded, *decoded.blocks)):
            for number in range(len(inner.instructions)):
                cost = Costs(decoded).of(block, [number])
                assert cost.flops >= 0
                assert cost.bytes >= 0


# --- the page


class Checker(html.parser.HTMLParser):
    """Collects elements and attributes, and checks that elements are closed in order."""

    EMPTY = frozenset({"meta", "rect", "path", "line"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> Checker:
    parser = Checker()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_the_page_draws_regions_and_memory_and_loads_nothing() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((64, 32), F), rng.standard_normal((32, 128), F)
    page = explained(et.grad(lambda w: et.softmax(layer(x, w)).max()), w).html()
    parser = checked(page)
    tags = [tag for tag, _ in parser.found]
    assert tags.count("svg") == 2
    assert "script" not in tags
    named = [
        value for _, row in parser.found for key, value in row.items() if key in ("src", "href")
    ]
    assert named == []
    assert "url(" not in page
    assert "default-src 'none'" in page
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    kernels, memory = (ElementTree.fromstring(drawing) for drawing in drawings)
    assert any(rect.get("class") == "fused" for rect in kernels.iter("rect"))
    assert len(list(kernels.iter("path"))) >= 2
    _, _, width, height = map(float, memory.get("viewBox", "").split())
    boxes = [rect for rect in memory.iter("rect") if rect.get("class") == "fused"]
    assert boxes
    for box in boxes:
        assert 0 <= float(box.get("x", "")) <= float(box.get("x", "")) + float(box.get("width", ""))
        assert float(box.get("y", "")) + float(box.get("height", "")) <= height
        assert float(box.get("x", "")) + float(box.get("width", "")) <= width


def test_text_in_the_page_is_escaped() -> None:
    scope: dict[str, Any] = {"et": et}
    name = '<script>alert("&\'x")<script>.py'
    exec(compile("def f(x):\n    return et.sin(x)\n", name, "exec"), scope)
    page = explained(scope["f"], et.ones(3)).html()
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;&amp;&#x27;x&quot;)" in page
    checked(page)


def test_a_long_program_is_drawn_in_part() -> None:
    def chain(x: Any) -> Any:
        for _ in range(1600):
            x = et.softmax(x)
        return x

    found = explained(chain, et.ones(8))
    page = found.html()
    assert f"<p>{len(found['kernels']) - 1500} more.</p>" in page
    checked(page)


def test_costs_of_the_families() -> None:
    def flops(f: Any, *args: Any) -> int:
        return explained(f, *args)["flops"]

    q = et.ones((2, 4, 16, 8))
    attention = et.nn.scaled_dot_product_attention
    assert flops(attention, q, q, q) == 2 * 2 * 4 * 16 * 16 * (8 + 8)
    assert flops(lambda x: et.cumsum(x, 0), et.ones((5, 6))) == 30
    assert flops(lambda x: et.sort(x), et.ones((4, 8))) == 32 * 3
    assert flops(et.linalg.cholesky, et.eye(9)) >= round(9**3 / 3)
    assert flops(lambda x, i: et.take(x, i, axis=0), et.ones((9, 3)), et.array([1, 2])) == 0
    program = et.freeze(lambda x: x + 1.0, et.spec((7,), "f32")).program
    cost = Costs(decode(program.blob)).of(0, [0])
    assert (cost.flops, cost.bytes) == (7, 4 * 7 * 2 + 4)
