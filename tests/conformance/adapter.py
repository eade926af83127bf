"""The operator contract in terms of our functions.

Each entry may insert casts and choose layouts, nothing else: what the contract calls by one name is
one function here. Promotion is the contract's (a float wins, bool counts as int32); ours is strict,
so the casts stand in the adapter.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pyeffect_torch as et

Value = Any
Adapter = Callable[[Sequence[Value], dict[str, Any]], Value]
DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i32": "int32",
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
}


def decode(tensor: dict[str, Any] | None, run: str = "f32") -> Value:
    """Return a tensor of the data as a NumPy array; `f32` stands for the run's float dtype."""
    if tensor is None:
        return None
    raw = np.frombuffer(base64.b64decode(tensor["b64"]), "<" + tensor["store"])
    name = DTYPES[run if tensor["dtype"] == "f32" else tensor["dtype"]]
    return raw.reshape(tensor["shape"]).astype(et.dtypes.canonical(name))


def float_(x: Value) -> Value:
    """Integer and bool inputs of float operations compute in float32."""
    return x if et.dtypes.is_float(x.dtype) else x.astype("float32")


def number(x: Value) -> Value:
    """Bool counts as int32."""
    return x.astype("int32") if x.dtype is et.dtypes.bool_ else x


def pair(a: Value, b: Value) -> tuple[Value, Value]:
    """Two numeric operands of one dtype: a float wins."""
    a, b = number(a), number(b)
    if a.dtype is b.dtype:
        return a, b
    if et.dtypes.is_float(a.dtype):
        return a, b.astype(a.dtype)
    return a.astype(b.dtype), b


def condition(x: Value) -> Value:
    """Nonzero is true."""
    return x.astype("bool")


def counted(function: Callable[..., Value]) -> Adapter:
    """A reduction whose bool and int32 results are int32."""

    def apply(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
        x = inputs[0]
        out = function(number(x), **keywords(args))
        return out if et.dtypes.is_float(x.dtype) else out.astype("int32")

    return apply


def keywords(args: dict[str, Any]) -> dict[str, Any]:
    """`axis` and `keepDims` by our names."""
    return {"keepdims" if name == "keepDims" else name: value for name, value in args.items()}


def binary(function: Callable[..., Value], prepare: Callable[..., Any] = pair) -> Adapter:
    return lambda inputs, args: function(*prepare(*inputs))


def unary(function: Callable[..., Value], prepare: Callable[[Value], Value] = float_) -> Adapter:
    return lambda inputs, args: function(prepare(inputs[0]))


def divided(a: Value, b: Value) -> tuple[Value, Value]:
    return pair(float_(a), float_(b))


def chosen(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
    where, a, b = inputs
    if a.dtype is not b.dtype:
        a, b = pair(a, b)
    return et.where(where, a, b)


def sliced(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
    (x,) = inputs
    return x[tuple(slice(b, e) for b, e in zip(args["begin"], args["end"], strict=True))]


def concatenated(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
    arrays = list(inputs)
    if len({x.dtype for x in arrays}) > 1:
        arrays = [number(x) for x in arrays]
        if any(et.dtypes.is_float(x.dtype) for x in arrays):
            arrays = [float_(x) for x in arrays]
    return et.concatenate(arrays, axis=args["axis"])


def gathered(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
    x, index = inputs
    return et.take_along_axis(x, index[..., None], axis=1)


def linear(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
    x, weight, bias = inputs
    return et.nn.linear(float_(x).astype(weight.dtype), weight, bias)


def normalised(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
    x, weight, bias = inputs
    return et.nn.layer_norm(float_(x), weight, bias, **args)


def attention(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
    q, k, v, mask = inputs
    return et.nn.scaled_dot_product_attention(q, k, v, mask=mask, scale=args["scale"])


def pooled(inputs: Sequence[Value], args: dict[str, Any]) -> Value:
    x, mask = inputs
    return et.nn.mean_pool(x, condition(mask))


OPERATIONS: dict[str, Adapter] = {
    "add": binary(et.add),
    "sub": binary(et.subtract),
    "mul": binary(et.multiply),
    "div": binary(et.divide, divided),
    "maximum": binary(et.maximum),
    "pow": binary(et.power, divided),
    "equal": binary(et.equal),
    "notEqual": binary(et.not_equal),
    "less": binary(et.less),
    "lessEqual": binary(et.less_equal),
    "greater": binary(et.greater),
    "greaterEqual": binary(et.greater_equal),
    "logicalAnd": binary(et.logical_and, lambda a, b: (condition(a), condition(b))),
    "logicalOr": binary(et.logical_or, lambda a, b: (condition(a), condition(b))),
    "logicalNot": unary(et.logical_not, condition),
    "where": chosen,
    "scale": lambda inputs, args: float_(inputs[0]) * args["s"],
    "exp": unary(et.exp),
    "log": unary(et.log),
    "sqrt": unary(et.sqrt),
    "rsqrt": unary(et.rsqrt),
    "tanh": unary(et.tanh),
    "sigmoid": unary(et.sigmoid),
    "erf": unary(et.erf),
    "relu": unary(et.relu, number),
    "gelu": unary(et.gelu),
    "neg": unary(et.negative, number),
    "abs": unary(et.abs, number),
    "sum": counted(et.sum),
    "cumsum": counted(et.cumsum),
    "mean": lambda inputs, args: et.mean(float_(inputs[0]), **keywords(args)),
    "max": lambda inputs, args: et.max(inputs[0], **keywords(args)),
    "min": lambda inputs, args: et.min(inputs[0], **keywords(args)),
    "argmax": lambda inputs, args: et.argmax(inputs[0], **keywords(args)).astype("int32"),
    "argmin": lambda inputs, args: et.argmin(inputs[0], **keywords(args)).astype("int32"),
    "softmax": lambda inputs, args: et.softmax(float_(inputs[0]), **args),
    "sort": lambda inputs, args: et.sort(inputs[0], **args),
    "reshape": lambda inputs, args: et.reshape(inputs[0], args["shape"]),
    "transpose": lambda inputs, args: et.transpose(inputs[0], args["perm"]),
    "slice": sliced,
    "split": lambda inputs, args: et.split(inputs[0], args["parts"], axis=args["axis"]),
    "concat": concatenated,
    "cast": lambda inputs, args: inputs[0].astype(DTYPES.get(args["dtype"], args["dtype"])),
    "matmul": binary(et.matmul, divided),
    "linear": linear,
    "layerNorm": normalised,
    "embedding": lambda inputs, args: et.nn.embedding(inputs[1], inputs[0]),
    "gatherRows": gathered,
    "rope": lambda inputs, args: et.nn.rotary_embedding(inputs[0], base=args["base"]),
    "sdpa": attention,
    "geglu": lambda inputs, args: et.nn.geglu(inputs[0]),
    "meanPool": pooled,
}
