"""How an operator enters torch's dispatcher: schema, implementation, shapes for tracing, gradient.

A call whose gradient is recorded, and that nobody traces, has that gradient without the dispatcher
(docs/decisions/0025-recorded-calls-leave-the-dispatcher.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ditron._program.arguments import flatten, unflatten
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import group_named
from ditron.kernels.dispatch import is_plain_call, recorded

__all__ = ["define", "num_ranks", "ops", "save"]

_functions: dict[str, Callable] = {}  # the operators' functions, by name


def define(
    schema: str,
    function: Callable,
    fake: Callable,
    backward: Callable | None = None,
    setup_context: Callable | None = None,
) -> None:
    """Register ``function`` as ``torch.ops.ditron`` operator; without ``backward``, it has no gradients."""
    short = schema[: schema.index("(")]
    name = f"ditron::{short}"
    torch.library.define(name, schema[schema.index("(") :], tags=(torch.Tag.pt2_compliant_tag,))
    eager = _functions[short] = function.__wrapped__  # type: ignore[attr-defined]

    def kernel(*args: Any, group: str = "", **options: Any) -> Any:
        found = group_named(group)
        with found.within_operator():
            return eager(*args, group=found, **options)

    torch.library.impl(name, ("cpu", "cuda"))(kernel)
    torch.library.register_fake(name)(fake)
    if backward is not None and setup_context is not None:
        torch.library.register_autograd(name, backward, setup_context=setup_context)
        recorded[short] = _recorder(short, eager, backward, setup_context)


@dataclass
class _Call:
    """A call whose gradient is recorded.

    ``form``, ``made``: how the tensors and numbers among its inputs, and its outputs, are nested. ``options``: by name.
    """

    group: Group
    options: dict[str, Any]
    form: Any
    made: Any = None


def _recorder(name: str, eager: Callable, backward: Callable, setup_context: Callable) -> Callable:
    """What calls the operator in a group and records its gradient, as torch's dispatcher does, in half of its time."""
    arguments = getattr(torch.ops.ditron, name).default._schema.arguments
    inputs = [argument for argument in arguments if not argument.kwarg_only]
    defaults = {a.name: a.default_value for a in arguments if a.kwarg_only and a.name != "group"}

    def forward(ctx: Any, call: _Call, *leaves: Any) -> tuple:
        given = tuple(unflatten(leaves, call.form))
        result = eager(*given, group=call.group, **call.options)
        setup_context(
            ctx=ctx, inputs=given, keyword_only_inputs=call.options | {"group": call.group.name}, output=result
        )
        outputs, call.made = flatten(result if isinstance(result, tuple) else (result,))
        ctx.call = call
        return outputs

    def backward_of(ctx: Any, *grads: Any) -> tuple:
        call, needs = ctx.call, ctx.needs_input_grad
        ctx.needs_input_grad = tuple(unflatten(needs[1:], call.form))
        try:
            result = backward(ctx, *unflatten(grads, call.made))
        finally:
            ctx.needs_input_grad = needs
        return None, *_of_leaves(result if isinstance(result, tuple) else (result,), call.form)

    title = "".join(word.capitalize() for word in name.split("_"))
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward_of)}
    function: Any = type(title, (torch.autograd.Function,), methods)

    def run(group: Group, args: tuple, options: dict[str, Any]) -> Any:
        options = {key: value for key, value in options.items() if value is not None}  # as left out
        rest = inputs[len(args) :]
        if any(a.name not in options and not a.has_default_value() for a in rest):
            return getattr(torch.ops.ditron, name)(*args, **options, group=group.name)  # which says what is missing
        given = [*args, *[options.pop(a.name) if a.name in options else a.default_value for a in rest]]
        leaves, form = flatten(tuple(given))
        call = _Call(group, defaults | options, form)
        result = unflatten(function.apply(call, *leaves), call.made)
        return result[0] if len(result) == 1 else tuple(result)

    return run


def _of_leaves(gradients: Sequence[Any], form: Any) -> list:
    """Gradients of inputs as those of the leaves that inputs of this form have."""
    if form is None:
        return list(gradients)
    found: list = []
    for gradient, place in zip(gradients, form, strict=True):
        if isinstance(place, tuple):  # of a list, or of a tuple
            places = place[1]
            found += _of_leaves([None] * len(places) if gradient is None else gradient, places)
        elif place is not None:
            found.append(gradient)
    return found


class _Operators:
    """``torch.ops.ditron`` for gradients: a call that nobody records or traces does not go through the dispatcher."""

    def __getattr__(self, name: str) -> Callable:
        def call(*args: Any, group: str, **options: Any) -> Any:
            if is_plain_call((*args, *options.values())):
                return _functions[name](*args, group=group_named(group), **options)
            return getattr(torch.ops.ditron, name)(*args, group=group, **options)

        return call


#: Operators by name, with the name of a group.
ops = _Operators()


def num_ranks(group: str) -> int:
    """Of the group of that name."""
    return group_named(group).num_ranks


def save(ctx: Any, group: str, *tensors: Tensor | None) -> None:
    """For the gradient: the group, by name, and tensors. Gradients that nobody has computed are None."""
    ctx.group = group_named(group).name
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)
