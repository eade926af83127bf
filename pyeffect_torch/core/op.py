"""What an op is: one declaration in one place, from which everything else follows.

A declaration says how types are inferred, how the op is differentiated (one statement used by
both modes), how it is batched, what it computes (`reference`, in NumPy), how it is encoded, and on
which inputs generated tests draw it. `tests/registry/` fails on any field left empty.
Where rules are *used*: `transforms/reverse.py`, `forward.py`, `batch.py`, `runtime/encode.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pyeffect_torch.core.dtypes import DType

if TYPE_CHECKING:
    import numpy as np

    from pyeffect_torch.core.array import Array
    from pyeffect_torch.core.graph import Body

Shape: TypeAlias = tuple[int, ...]
Type: TypeAlias = tuple[Shape, DType]
MaybeArray: TypeAlias = "Array | None"


@dataclass(frozen=True, slots=True)
class Nondiff:
    """No derivative: tangents and cotangents are zero and dependency stops here."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear in operand 0 (other operands, if any, are not differentiable).

    forward: the same op on the tangent. reverse: `transpose(node, ct)` has operand 0's type.
    """

    transpose: Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True)
class Affine:
    """Linear in all differentiable operands jointly: add, where, concatenate.

    `forward(node, j, tangent)` is the node's tangent due to operand j (of the node's type);
    `transpose(node, j, ct)` has operand j's type. Never called for an integer or bool operand.
    """

    forward: Callable[[Array, int, Array], Array]
    transpose: Callable[[Array, int, Array], Array]


@dataclass(frozen=True, slots=True)
class Multilinear:
    """Linear in each of `operands` alone: multiply, dot_general, take.

    forward: the same op with operand j replaced by its tangent, summed over j.
    """

    transpose: Callable[[Array, int, Array], Array]
    operands: tuple[int, ...] = (0, 1)


@dataclass(frozen=True, slots=True)
class Smooth:
    """Elementwise with a partial derivative for each operand, as a function of the node.

    A partial may use `node.inputs` and the node itself (exp). None: no derivative in that operand.
    """

    partials: tuple[Callable[[Array], Array] | None, ...]


@dataclass(frozen=True, slots=True)
class JvpRule:
    """`rule(node, tangents)`: the tangent written with linear ops (max, sort, factorisations).

    A multi-output op's rule returns a list of them, one for each result. A tangent is None where
    it is zero. Reverse mode walks back through what the rule emits.
    """

    rule: Callable[[Array, Sequence[MaybeArray]], MaybeArray | Sequence[MaybeArray]]


@dataclass(frozen=True, slots=True)
class Composite:
    """Defined by a body of ordinary ops; forward, higher orders and batching follow from it.

    `body(params, *inputs)` returns an array, or a tuple for a multi-output op. `vjp(node,
    cts, need)` is an optional hand-written backward: one cotangent (or None) per input from one
    cotangent (or None) per output. Its own derivative comes from what it emits.
    """

    body: Callable[..., Any]
    vjp: Callable[[Array, Sequence[MaybeArray], Sequence[bool]], Sequence[MaybeArray]] | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """Control flow and custom rules: an op that holds bodies.

    `forward(node, inputs, tangents)` returns the primal outputs (rebuilt on `inputs`) and their
    tangents; `reverse(node, cts, need)` one cotangent or None per input; `inline(node, inputs)`
    the outputs as ordinary nodes, for encoding (None: the op has an opcode of its own).
    `depends(node, masks, differentiable)` gives what each output depends on, a bit mask of formals,
    from those of the inputs (None: every output depends on every input). `slim(node, used)` says
    what is encoded when only the outputs `used` are: what is left of the bodies must not read what
    `depends` leaves out. `blocks` names the attributes of the opcode that are nested programs.
    """

    forward: Callable[
        [Array, Sequence[Array], Sequence[MaybeArray]], tuple[list[Array], list[MaybeArray]]
    ]
    reverse: Callable[[Array, Sequence[MaybeArray], Sequence[bool]], Sequence[MaybeArray]]
    inline: Callable[[Array, Sequence[Array]], Sequence[Array]] | None
    depends: Callable[[Array, Sequence[int], bool], Sequence[int]] | None = None
    slim: Callable[[Array, Sequence[int]], Slim] | None = None
    blocks: tuple[str, ...] = ()


class Slim(NamedTuple):
    """What is encoded of a region of which only some outputs are used.

    Attributes:
        inputs: the operands; behind what only the instruction reads (an index), they are the
            formals of every body.
        bodies: as functions of these operands.
        attributes: of the opcode; a nested program is given by its body.
        outputs: which of the node's outputs the results are, in order.
    """

    inputs: Sequence[Array]
    bodies: Sequence[Body]
    attributes: Mapping[str, Any]
    outputs: Sequence[int]


Derivative: TypeAlias = (
    "Nondiff | Linear | Affine | Multilinear | Smooth | JvpRule | Composite | Region"
)

BatchRule: TypeAlias = Callable[
    ["Array", "Sequence[Array]", Sequence[bool], int], "Array | list[tuple[Array, bool]]"
]
"""`rule(node, inputs, batched, size)`: batched inputs have the batch axis in front.

A single-output rule returns the batched result (batch axis in front); a multi-output rule returns
one `(array, is_batched)` per output. It is only called when some input is batched.
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One generated test case: the operands (storage dtypes) and the op's params."""

    inputs: tuple[np.ndarray[Any, Any], ...]
    params: Any = None


@dataclass(frozen=True, slots=True)
class Domain:
    """On which inputs generated tests draw an op.

    Attributes:
        dtypes: the dtypes of the first operand to draw.
        samples: `samples(rng, dtype)` gives at least 20 cases: ranks 0 and up, zero extents,
            broadcasting, every parameter. Floats away from ties and singularities, so that finite
            differences exist.
        roundings: how many roundings of size `epsilon(dtype) * |largest term|` a result may
            differ by from the float64 reference (1 for an exact op, depth of the sum for a sum).
    """

    dtypes: tuple[DType, ...]
    samples: Callable[[np.random.Generator, DType], Sequence[Sample]]
    roundings: Callable[[Sample], float]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """The declaration of one op.

    Attributes:
        name: the NumPy name, unique.
        infer: `infer(inputs, params)` gives `(shape, dtype)`, or a tuple of them for a
            multi-output op; raises `ShapeError`/`DTypeError`.
        derivative, batch: the rules above. `batch` may be None for a composite (its body is
            batched) and for a nullary op.
        reference: `reference(attributes, *arrays)` on NumPy arrays of the storage dtypes, with
            float64 accumulation; returns an array, or a tuple. The runtime rounds it to the
            result dtype.
        opcode: the name in the core's opcode table, or None (a composite or region that is
            inlined when encoded).
        attributes: `attributes(node)` gives the opcode's attributes by name.
        traits: "elementwise", "commutative", "view", "random", "effect", "may_fail", "multi".
        domain: for generated tests.
        unsafe: of an op that may fail, the operands that decide; zeros (or true) never fail. Under
            a batched condition they are replaced in the rows where it does not hold.
    """

    name: str
    infer: Callable[[tuple[Array, ...], Any], Any]
    derivative: Derivative
    batch: BatchRule | None
    reference: Callable[..., Any] | None
    opcode: str | None
    attributes: Callable[[Array], Mapping[str, Any]]
    traits: frozenset[str]
    domain: Domain | None
    multi: bool = field(default=False)
    unsafe: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return self.name


REGISTRY: dict[str, Op] = {}
"""Every declared op by name."""

DECOMPOSITIONS: dict[str, Callable[..., Array]] = {}
"""By opcode, `f(params, *inputs)`: simpler ops for a runtime that lacks the kernel."""


def no_attributes(node: Array) -> Mapping[str, Any]:
    """The attributes of an opcode that has none."""
    del node
    return {}


def declare(
    name: str,
    *,
    infer: Callable[[tuple[Array, ...], Any], Any],
    derivative: Derivative,
    batch: BatchRule | None,
    reference: Callable[..., Any] | None,
    domain: Domain | None,
    opcode: str | None = None,
    attributes: Callable[[Array], Mapping[str, Any]] = no_attributes,
    traits: Sequence[str] = (),
    unsafe: Sequence[int] = (),
) -> Op:
    """Declare an op and register it under its name; see `Op` for the fields."""
    if name in REGISTRY:
        raise AssertionError(f"op {name!r} is declared twice")
    op = Op(
        name,
        infer,
        derivative,
        batch,
        reference,
        opcode,
        attributes,
        frozenset(traits),
        domain,
        "multi" in traits,
        tuple(unsafe),
    )
    REGISTRY[name] = op
    return op
