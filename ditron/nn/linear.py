"""Linear layers whose weights are divided among the ranks of a group."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from ditron import kernels
from ditron.distributed.torch_groups import AnyGroup, as_group
from ditron.nn.gradients import summed_gradient
from ditron.nn.rows import restore, rows_first
from ditron_compiler.errors import DitronError

__all__ = ["ColumnParallelLinear", "RowParallelLinear", "version_of"]


def version_of(x: torch.Tensor) -> int:
    """Changes when ``x`` is written in place, where torch counts that."""
    return 0 if torch.compiler.is_compiling() or x.is_inference() else x._version


class _ParallelLinear(nn.Module):
    """What both have: ``weight``, this rank's part, ``bias`` or None, ``group``, and how activations are divided."""

    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        shape: tuple[int, int],
        bias_size: int | None,
        group: AnyGroup,
        sequence_parallel: bool,
        sequence_dim: int,
        device: Any,
        dtype: torch.dtype | None,
    ):
        super().__init__()
        self.in_features, self.out_features, self.group = in_features, out_features, as_group(group)
        self.sequence_parallel, self.sequence_dim = sequence_parallel, sequence_dim
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias_size is None:
            self.register_parameter("bias", None)
        else:
            self.bias = nn.Parameter(torch.empty(bias_size, device=device, dtype=dtype))

    def reset_parameters(self) -> None:
        """Draw the parameters as nn.Linear does; ranks whose generators are alike draw the same parts."""
        bound = 1 / math.sqrt(self.in_features)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"num_ranks={self.group.num_ranks}, sequence_parallel={self.sequence_parallel}"
        )


def _part(features: int, group: AnyGroup, what: str) -> int:
    ranks = as_group(group).num_ranks
    if features % ranks:
        raise DitronError(f"{what} cannot be divided among {ranks} ranks: {features} is no multiple of them")
    return features // ranks


def _own(tensor: torch.Tensor, dim: int, group: AnyGroup) -> torch.Tensor:
    group = as_group(group)
    return tensor.detach().chunk(group.num_ranks, dim)[group.rank].clone(memory_format=torch.contiguous_format)


class ColumnParallelLinear(_ParallelLinear):
    """``y = x Wᵀ + b``; each rank has rows of W, and gives those features of all rows of x.

    Args:
        in_features, out_features, bias, device, dtype: as of nn.Linear, of the whole layer.
        group: the ranks, as operators take it; default the current group.
        sequence_parallel: each rank has a part of x along ``sequence_dim``, which is gathered under the product.
            Otherwise every rank has all of x.
        gather_output: give all features on every rank.
        keep_gathered: keep the gathered x for the gradient of W, num_ranks times the input, instead of gathering again.

        up = ditron.nn.ColumnParallelLinear.from_linear(mlp.up)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        group: AnyGroup = None,
        sequence_parallel: bool = True,
        sequence_dim: int = -2,
        gather_output: bool = False,
        keep_gathered: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        own = _part(out_features, group, "ColumnParallelLinear: out_features")
        super().__init__(
            in_features,
            out_features,
            (own, in_features),
            own if bias else None,
            group,
            sequence_parallel,
            sequence_dim,
            device,
            dtype,
        )
        self.gather_output, self.keep_gathered = gather_output, keep_gathered
        # In a module that parallelize has gather its input: whether that runs, and x is whole; else None.
        self.input_is_gathered: bool | None = None
        self.ready: tuple[torch.Tensor, int, torch.Tensor] | None = None  # then an input, its version, and its output
        self.reset_parameters()

    @classmethod
    def from_linear(cls, linear: nn.Linear, group: AnyGroup = None, **options: Any) -> ColumnParallelLinear:
        """This rank's part of ``linear``, which is the same on every rank; ``options`` are those of the class."""
        made = cls(
            linear.in_features, linear.out_features, linear.bias is not None, group=group, device="meta", **options
        )
        made.weight = nn.Parameter(_own(linear.weight, 0, group), linear.weight.requires_grad)
        if linear.bias is not None:
            made.bias = nn.Parameter(_own(linear.bias, 0, group), linear.bias.requires_grad)
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[.., rows, in_features]`` to ``[.., num_ranks * rows, out_features / num_ranks]`` if sequence-parallel."""
        ready, self.ready = self.ready, None
        if ready is not None and ready[0] is x and ready[1] == version_of(x):
            y = ready[2]
        elif self.input_is_gathered:  # another tensor, or another call, whose output the caller may write to
            y = nn.functional.linear(x, self.weight, self.bias)
        elif self.input_is_gathered is False:
            raise DitronError(
                "ColumnParallelLinear: called outside of the forward of the module that gathers its input, as "
                "torch.utils.checkpoint does in backward when it is used within: checkpoint that module as a whole, or "
                'leave its "gather" out of the plan'
            )
        elif self.sequence_parallel:
            rows, between = rows_first(x, self.sequence_dim)
            if self.keep_gathered:
                y, _ = kernels.ag_gemm_gathered(rows, self.weight, self.bias, group=self.group)
            else:
                y = kernels.ag_gemm(rows, self.weight, self.bias, group=self.group)
            y = restore(y, self.sequence_dim, between)
        else:
            y = nn.functional.linear(summed_gradient(x, self.group.name), self.weight, self.bias)
        if self.gather_output:
            features_first = y.movedim(-1, 0).contiguous()
            y = kernels.all_gather(features_first, gradient="replicate", group=self.group).movedim(0, -1)
        return y


class RowParallelLinear(_ParallelLinear):
    """``y = x Wᵀ + b``; each rank has columns of W, and x's features of them: the products are added over ranks.

    Args:
        in_features, out_features, bias, device, dtype: as of nn.Linear, of the whole layer.
        group: the ranks, as operators take it; default the current group.
        sequence_parallel: each rank gets its part of y along ``sequence_dim``, added under the product. Otherwise
            every rank gets all of y.

        down = ditron.nn.RowParallelLinear.from_linear(mlp.down)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        group: AnyGroup = None,
        sequence_parallel: bool = True,
        sequence_dim: int = -2,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        own = _part(in_features, group, "RowParallelLinear: in_features")
        super().__init__(
            in_features,
            out_features,
            (out_features, own),
            out_features if bias else None,
            group,
            sequence_parallel,
            sequence_dim,
            device,
            dtype,
        )
        self.reset_parameters()

    @classmethod
    def from_linear(cls, linear: nn.Linear, group: AnyGroup = None, **options: Any) -> RowParallelLinear:
        """This rank's part of ``linear``, which is the same on every rank; ``options`` are those of the class."""
        made = cls(
            linear.in_features, linear.out_features, linear.bias is not None, group=group, device="meta", **options
        )
        made.weight = nn.Parameter(_own(linear.weight, 1, group), linear.weight.requires_grad)
        if linear.bias is not None:
            made.bias = nn.Parameter(linear.bias.detach().clone(), linear.bias.requires_grad)
        return made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[.., rows, in_features / num_ranks]`` to ``[.., rows / num_ranks, out_features]`` if sequence-parallel."""
        rows, between = rows_first(x, self.sequence_dim)
        bias = self.bias
        if self.sequence_parallel:
            if x.shape[self.sequence_dim] % self.group.num_ranks:
                raise DitronError(
                    f"RowParallelLinear: a sequence of {x.shape[self.sequence_dim]} cannot be divided among "
                    f"{self.group.num_ranks} ranks: pad it to a multiple of them"
                )
            y = kernels.gemm_rs(rows, self.weight, group=self.group)
            bias = None if bias is None else summed_gradient(bias, self.group.name)
        else:
            y = kernels.gemm_ar(rows, self.weight, group=self.group)
        # In the dtype of torch.autocast, as nn.Linear's result is.
        return restore(y if bias is None else y + bias.to(y.dtype), self.sequence_dim, between)
