"""Put parallel layers into a module by a plan, as torch's ``parallelize_module`` does."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from ditron import kernels
from ditron.distributed.group import Group
from ditron.distributed.torch_groups import AnyGroup, as_group
from ditron.nn.linear import ColumnParallelLinear, RowParallelLinear, version_of
from ditron.nn.plan import LAYERS, check_plan, find
from ditron.nn.rows import restore, rows_first
from ditron_compiler.errors import DitronError

__all__ = ["parallelize"]


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
            Whatever else they are called with there is taken as whole.
            ``"sequence"``: the submodule has all of its parameters on every rank and sees a part of the sequence
            (norms do), and their gradients are added.
        group: the ranks, as operators take it; default the current group.
        sequence_parallel, sequence_dim: of the layers. Without it, activations between parallel layers are whole on
            every rank, and ``"gather"`` and ``"sequence"`` do nothing.

    Raises DitronError for a name that nothing has, an unknown style, and layers that cannot be divided or share
    weights with others, before it changes anything.

        ditron.nn.parallelize(mlp, {"up": "colwise", "down": "rowwise"})
    """
    group = as_group(group)
    found = find(module, plan)
    options = {"group": group, "sequence_parallel": sequence_parallel, "sequence_dim": sequence_dim}
    if not sequence_parallel:
        found = [(name, style) for name, style in found if style in LAYERS]
    check_plan(module, found, group)
    for name, style in found:
        if style in LAYERS:
            module.set_submodule(name, LAYERS[style].from_linear(module.get_submodule(name), **options))
    for name, style in found:
        submodule = module.get_submodule(name)
        if style == "gather":
            _gather_input(submodule, group, sequence_dim)
        elif style == "sequence":
            _sum_gradients(submodule, (), group)
            submodule.register_forward_pre_hook(partial(_sum_gradients, group=group))
    return module


class _Summed:
    """Marks a parameter whose gradient is summed; one that was pickled has lost its hook, and the mark with it."""

    def __reduce__(self) -> tuple:
        return OrderedDict, ()


def _sum_gradients(module: nn.Module, args: tuple, group: Group) -> None:
    """Have the gradients of a module's parameters summed over ranks, also of those that it has been given since.

    Those of parallel layers are of this rank's part, or summed by the layer.
    """
    for child in module.modules():
        if isinstance(child, ColumnParallelLinear | RowParallelLinear):
            continue
        for parameter in child.parameters(recurse=False):
            if parameter.requires_grad and not getattr(parameter, "_ditron_summed", None):
                parameter._ditron_summed = _Summed()  # type: ignore[attr-defined]
                parameter.register_hook(partial(_summed, group=group))


def _summed(grad: torch.Tensor, group: Group) -> torch.Tensor:
    return kernels.all_reduce(grad, group=group)


def _gather_input(module: nn.Module, group: Group, sequence_dim: int) -> None:
    layers = [child for child in module.children() if isinstance(child, ColumnParallelLinear)]
    _lay_side_by_side(layers)
    for layer in layers:
        layer.input_is_gathered = False
    # copies and pickles of the module have hooks with their own layers
    before = partial(_gather, layers=layers, group=group, sequence_dim=sequence_dim)
    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(partial(_forget, layers=layers), always_call=True)


def _gather(
    module: nn.Module,
    args: tuple,
    kwargs: dict,
    layers: list[ColumnParallelLinear],
    group: Group,
    sequence_dim: int,
) -> tuple:
    values = [*args, *kwargs.values()]
    tensors = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
    if not tensors:
        raise DitronError(
            f"{type(module).__name__} is to gather its input, and was called without a tensor: give it the tensor that "
            'its colwise layers multiply as an argument, or leave its "gather" out of the plan'
        )
    index = tensors[0]
    rows, between = rows_first(values[index], sequence_dim)
    biases = [_bias(layer) for layer in layers] if any(layer.bias is not None for layer in layers) else []
    weights = [layer.weight for layer in layers]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (rows, *weights, *biases)):
        # products of their own, whose gradients need not be joined
        parts, gathered = kernels.ag_gemm_multi(rows, weights, biases, group=group)
    else:
        bias = torch.cat(biases) if biases else None
        product, gathered = kernels.ag_gemm_gathered(rows, _joined(weights), bias, keep=False, group=group)
        parts = product.split([len(weight) for weight in weights], 1)
    values[index] = restore(gathered, sequence_dim, between)
    for layer, part in zip(layers, parts, strict=True):
        layer.input_is_gathered = True
        layer.ready = values[index], version_of(values[index]), restore(part, sequence_dim, between)
    return tuple(values[: len(args)]), dict(zip(kwargs, values[len(args) :], strict=True))


def _forget(module: nn.Module, args: tuple, output: Any, layers: list[ColumnParallelLinear]) -> None:
    for layer in layers:
        layer.input_is_gathered, layer.ready = False, None


def _bias(layer: ColumnParallelLinear) -> torch.Tensor:
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias


def _lay_side_by_side(layers: list[ColumnParallelLinear]) -> None:
    """Move the weights into one tensor, which :func:`_joined` finds without a copy."""
    if len({(layer.weight.dtype, layer.weight.device, layer.in_features) for layer in layers}) == 1:
        parts = torch.cat([layer.weight.detach() for layer in layers]).split([len(layer.weight) for layer in layers])
        for layer, part in zip(layers, parts, strict=True):
            layer.weight.data = part


def _joined(matrices: list[torch.Tensor]) -> torch.Tensor:
    if len(matrices) == 1:
        return matrices[0]
    if torch.compiler.is_compiling() or not all(_follow_each_other(matrices)):  # as after a change of dtype
        return torch.cat(matrices)
    rows = sum(len(matrix) for matrix in matrices)
    return matrices[0].detach().as_strided((rows, matrices[0].shape[1]), matrices[0].stride())


def _follow_each_other(matrices: list[torch.Tensor]) -> Iterator[bool]:
    for first, second in zip(matrices, matrices[1:], strict=False):
        yield first.is_contiguous() and second.is_contiguous()
        yield first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        yield first.data_ptr() + first.nbytes == second.data_ptr()
