"""Put parallel layers into a module by a plan, as torch's ``parallelize_module`` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import nn

from ditron import kernels
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup, as_group
from ditron.nn.linear import ColumnParallelLinear, RowParallelLinear
from ditron.nn.rows import restore, rows_first
from ditron_compiler.errors import DitronError

__all__ = ["parallelize"]

LAYERS: dict[str, Any] = {"colwise": ColumnParallelLinear, "rowwise": RowParallelLinear}
STYLES = (*LAYERS, "gather", "sequence")


def parallelize(
    module: nn.Module,
    plan: Mapping[str, str],
    group: AnyGroup = None,
    *,
    sequence_parallel: bool = True,
    sequence_dim: int = -2,
) -> nn.Module:
    """Divide the layers of ``module`` that ``plan`` names among the ranks of a group; returns ``module``, changed.

    Args:
        module: the same on every rank.
        plan: names of submodules, as ``named_modules`` gives them, where ``*`` and ``?`` stand for parts between dots,
            to what becomes of them. ``"colwise"``, ``"rowwise"``: an ``nn.Linear`` becomes a ColumnParallelLinear or
            RowParallelLinear. ``"gather"``: the first tensor that the submodule is called with is gathered along the
            sequence, and multiplied meanwhile by the weights of its colwise children, for all of them at once.
            ``"sequence"``: the submodule has all of its parameters on every rank and sees a part of the sequence
            (norms do), and their gradients are added.
        group: the ranks, as operators take it; default the current group.
        sequence_parallel, sequence_dim: of the layers. Without it, activations between parallel layers are whole on
            every rank, and ``"gather"`` and ``"sequence"`` do nothing.

    Raises DitronError for a name that nothing has, an unknown style, and layers that cannot be divided.

        ditron.nn.parallelize(mlp, {"up": "colwise", "down": "rowwise"})
    """
    group = as_group(group)
    found = [(name, style) for pattern, style in plan.items() for name in _matches(module, pattern, style)]
    options = {"group": group, "sequence_parallel": sequence_parallel, "sequence_dim": sequence_dim}
    for name, style in found:
        if style in LAYERS:
            linear = module.get_submodule(name)
            if not isinstance(linear, nn.Linear):
                raise DitronError(f"parallelize: {name!r} is {style} and must be an nn.Linear, got {type(linear)}")
            try:
                module.set_submodule(name, LAYERS[style].from_linear(linear, **options))
            except DitronError as error:
                raise DitronError(f"parallelize: {name!r}: {error}") from None
    for name, style in found if sequence_parallel else ():
        submodule = module.get_submodule(name)
        if style == "gather":
            _gather_input(name, submodule, group, sequence_dim)
        elif style == "sequence":
            _sum_gradients(submodule, (), group)
            submodule.register_forward_pre_hook(partial(_sum_gradients, group=group))
    return module


def _matches(module: nn.Module, pattern: str, style: str) -> list[str]:
    if style not in STYLES:
        raise DitronError(f"parallelize: unknown style {style!r} of {pattern!r}: expected one of {', '.join(STYLES)}")
    parts = pattern.split(".")
    names = [
        name
        for name, _ in module.named_modules()
        if len(atoms := name.split(".")) == len(parts) and all(map(fnmatchcase, atoms, parts))
    ]
    if not names:
        raise DitronError(f"parallelize: no submodule is named {pattern!r}")
    return names


def _sum_gradients(module: nn.Module, args: tuple, group: Group) -> None:
    """Have the gradients of a module's parameters summed over ranks, also of those that it has been given since."""
    for parameter in module.parameters():
        if parameter.requires_grad and not hasattr(parameter, "_ditron_group"):
            parameter._ditron_group = group.name  # type: ignore[attr-defined]
            parameter.register_hook(partial(_summed, group=group))


def _summed(grad: torch.Tensor, group: Group) -> torch.Tensor:
    return kernels.all_reduce(grad, group=group)


def _gather_input(name: str, module: nn.Module, group: Group, sequence_dim: int) -> None:
    layers = [child for child in module.children() if isinstance(child, ColumnParallelLinear)]
    if not layers:
        raise DitronError(f"parallelize: {name!r} is to gather its input, and none of its children is colwise")
    _lay_side_by_side(layers)

    def before(module: nn.Module, args: tuple, kwargs: dict) -> tuple:
        values = [*args, *kwargs.values()]
        index = next(i for i, value in enumerate(values) if isinstance(value, torch.Tensor))
        rows, between = rows_first(values[index], sequence_dim)
        bias = (
            torch.cat([_bias(layer) for layer in layers]) if any(layer.bias is not None for layer in layers) else None
        )
        weight = _joined([layer.weight for layer in layers])
        product, gathered = kernels.ag_gemm_gathered(rows, weight, bias, keep=False, group=group)
        values[index] = restore(gathered, sequence_dim, between)
        for layer, part in zip(layers, product.split([len(layer.weight) for layer in layers], 1), strict=True):
            layer.ready = values[index], restore(part, sequence_dim, between)
        return tuple(values[: len(args)]), dict(zip(kwargs, values[len(args) :], strict=True))

    def after(module: nn.Module, args: tuple, output: Any) -> None:
        for layer in layers:
            layer.ready = None

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after, always_call=True)


def _bias(layer: ColumnParallelLinear) -> torch.Tensor:
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias


def _lay_side_by_side(layers: list[ColumnParallelLinear]) -> None:
    """Move the weights into one tensor, which :func:`_joined` finds without a copy."""
    if len({(layer.weight.dtype, layer.weight.device, layer.in_features) for layer in layers}) == 1:
        parts = torch.cat([layer.weight.detach() for layer in layers]).split([len(layer.weight) for layer in layers])
        for layer, part in zip(layers, parts, strict=True):
            layer.weight.data = part


class _Joined(torch.autograd.Function):
    """Matrices that lie side by side in memory, as the one that they are together."""

    @staticmethod
    def forward(ctx: Any, *matrices: torch.Tensor) -> torch.Tensor:
        ctx.rows = [len(matrix) for matrix in matrices]
        return matrices[0].detach().as_strided((sum(ctx.rows), matrices[0].shape[1]), matrices[0].stride())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        return grad.split(ctx.rows)


def _joined(matrices: list[torch.Tensor]) -> torch.Tensor:
    if len(matrices) == 1:
        return matrices[0]
    if torch.compiler.is_compiling() or not all(_follow_each_other(matrices)):  # as after a change of dtype
        return torch.cat(matrices)
    return _Joined.apply(*matrices)


def _follow_each_other(matrices: list[torch.Tensor]) -> Iterator[bool]:
    for first, second in zip(matrices, matrices[1:], strict=False):
        yield first.is_contiguous() and second.is_contiguous()
        yield first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        yield first.data_ptr() + first.nbytes == second.data_ptr()
