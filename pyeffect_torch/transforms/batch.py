"""The batch walk: replay the nodes that depend on batched inputs, the batch axis in front.

Nodes without a batched input are shared. A composite without a rule of its own is batched through
its body.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyeffect_torch.core import source
from pyeffect_torch.core.array import LEAF, OUT, Array, rebuild
from pyeffect_torch.core.graph import reach
from pyeffect_torch.core.op import Composite


def batch_walk(nodes: Sequence[Array], env: dict[int, Any], size: int) -> None:
    """Extend `env` (serial to batched form) over ascending `nodes`.

    For a multi-output node `env` holds a list of `(array, is_batched)`. A node whose projection
    turned out unbatched is replaced through the key `-serial`.
    """
    before = source.set_override(None)
    get = env.get
    try:
        for node in nodes:
            if node.serial in env:
                continue
            batched: list[bool] = []
            inputs: list[Array] = []
            touched = False
            for array in node.inputs:
                form = get(array.serial)
                batched.append(form is not None)
                if form is None:
                    form = get(-array.serial)
                    touched = touched or form is not None
                else:
                    touched = True
                inputs.append(array if form is None else form)
            if not touched:
                continue
            source.set_override(node.src)
            _step(node, inputs, batched, env, size)
    finally:
        source.set_override(before)


def _step(
    node: Array, inputs: list[Any], batched: list[bool], env: dict[int, Any], size: int
) -> None:
    if node.op is OUT and batched[0]:
        array, is_batched = inputs[0][node.params]
        env[node.serial if is_batched else -node.serial] = array
    elif not any(batched):
        env[-node.serial] = rebuild(node, tuple(inputs))
    elif node.op is LEAF:
        env[node.serial] = inputs[0]
    elif node.op.batch is not None:
        env[node.serial] = node.op.batch(node, inputs, batched, size)
    else:
        _through_body(node, inputs, batched, env, size)


def _through_body(
    node: Array,
    inputs: Sequence[Array],
    batched: Sequence[bool],
    outer: dict[int, Any],
    size: int,
) -> None:
    rule = node.op.derivative
    assert isinstance(rule, Composite), f"{node.op.name} has neither a batching rule nor a body"
    outs = rule.body(node.params, *node.inputs)
    flat = list(outs) if node.op.multi else [outs]
    env: dict[int, Any] = {}
    for array, form, is_batched in zip(node.inputs, inputs, batched, strict=True):
        env[array.serial if is_batched else -array.serial] = form
    stop = {array.serial for array in node.inputs}
    batch_walk(reach(flat, stop), env, size)
    results = [batched_form(out, env) for out in flat]
    if node.op.multi:
        outer[node.serial] = results
        return
    array, is_batched = results[0]
    outer[node.serial if is_batched else -node.serial] = array


def batched_form(node: Array, env: dict[int, Any]) -> tuple[Array, bool]:
    """Return the replacement of `node` after a walk and whether it has the batch axis."""
    form = env.get(node.serial)
    if form is not None:
        return form, True
    return env.get(-node.serial, node), False
