"""How an operator enters torch's dispatcher: schema, implementation, shapes for tracing, gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ditron.distributed.torch_groups import group_named

__all__ = ["define", "num_ranks", "save"]


def define(
    schema: str,
    function: Callable,
    fake: Callable,
    backward: Callable | None = None,
    setup_context: Callable | None = None,
) -> None:
    """Register ``function`` as ``torch.ops.ditron`` operator; without ``backward``, it has no gradients."""
    name = "ditron::" + schema[: schema.index("(")]
    torch.library.define(name, schema[schema.index("(") :], tags=(torch.Tag.pt2_compliant_tag,))
    eager = function.__wrapped__  # type: ignore[attr-defined]

    def kernel(*args: Any, group: str = "", **options: Any) -> Any:
        found = group_named(group)
        with found.within_operator():
            return eager(*args, group=found, **options)

    torch.library.impl(name, ("cpu", "cuda"))(kernel)
    torch.library.register_fake(name)(fake)
    if backward is not None:
        torch.library.register_autograd(name, backward, setup_context=setup_context)


def num_ranks(group: str) -> int:
    """Of the group of that name."""
    return group_named(group).num_ranks


def save(ctx: Any, group: str, *tensors: Tensor | None) -> None:
    """For the gradient: the group, by name, and tensors. Gradients that nobody has computed are None."""
    ctx.group = group_named(group).name
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)
