"""A sparse mixture-of-experts block whose experts are divided among the ranks of a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ditron import kernels
from ditron.distributed.torch_groups import AnyGroup, as_group
from ditron.kernels.route_draws import are_drawn
from ditron.nn.gradients import summed_gradient
from ditron_compiler.errors import DitronError

__all__ = ["MoE"]


class MoE(nn.Module):
    """A router and SwiGLU experts, as of Mixtral, Qwen3 and DeepSeek-V3: each token goes to ``top_k`` experts.

    Args:
        hidden_size, intermediate_size, num_experts, top_k: of the whole block.
        scoring: what scores are of the router's logits, in fp32: ``"softmax"`` over the experts or ``"sigmoid"``.
        normalize: divide a token's weights, the scores of its experts, by their sum.
        scaling: what weights are multiplied by: DeepSeek's ``routed_scaling_factor``.
        groups: ``(number, chosen)``: experts are divided into groups, of which those with the largest sums of two
            scores are considered: DeepSeek-V3's ``(n_group, topk_group)``.
        correction_bias: have a buffer ``correction_bias`` [num_experts], which is added to the scores that experts are
            chosen by, and not to weights: DeepSeek-V3's ``e_score_correction_bias``.
        parallel: ``"ep"``: each rank has some of the experts; ``"tp"``: a part of each, of intermediate_size.
        sequence_parallel: each rank has its own tokens, as many as the others. Otherwise every rank has all of them.
        expert_dtype: of ``w13`` and ``w2``, default dtype. ``torch.float8_e4m3fn``: quantized, for inference, with
            float32 buffers ``scale_w13`` and ``scale_w2`` of 128 x 128 elements; both sizes are multiples of 128.
        group: the ranks, as operators take it; default the current group. device, dtype: of the parameters.

    The parameters are ``router.weight``, the same on every rank, ``w13`` [experts, 2 * intermediate, hidden], gates
    before what they multiply, and ``w2`` [experts, hidden, intermediate], of this rank. Tokens are bfloat16 or
    float16, which experts are converted to, as float32 ones may be for training; logits are computed in the router's
    dtype. Gradients of the router are the same on every rank. With quantized experts there are none: call it under
    ``torch.no_grad()``. These and their scales keep their dtypes when the module, or one that holds it, is converted to
    another one, as by ``to(torch.bfloat16)``; the router is converted.

        moe = ditron.nn.MoE(2048, 768, num_experts=128, top_k=8, dtype=torch.bfloat16)
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        num_experts: int,
        top_k: int,
        *,
        scoring: str = "softmax",
        normalize: bool = True,
        scaling: float = 1.0,
        groups: tuple[int, int] | None = None,
        correction_bias: bool = False,
        parallel: str = "ep",
        sequence_parallel: bool = True,
        expert_dtype: torch.dtype | None = None,
        group: AnyGroup = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.group = as_group(group)
        ranks = self.group.num_ranks
        if scoring not in ("softmax", "sigmoid"):
            raise DitronError(f"MoE: unknown scoring {scoring!r}: expected 'softmax' or 'sigmoid'")
        if parallel not in ("ep", "tp"):
            raise DitronError(f"MoE: unknown parallel {parallel!r}: expected 'ep' or 'tp'")
        if parallel == "tp" and intermediate_size % ranks:
            raise DitronError(f"MoE: an intermediate size of {intermediate_size} cannot be divided among {ranks} ranks")
        if groups is not None and (num_experts % groups[0] or not 0 < groups[1] <= groups[0]):
            raise DitronError(
                f"MoE: {num_experts} experts cannot be divided into {groups[0]} groups, {groups[1]} chosen"
            )
        considered = num_experts if groups is None else num_experts // groups[0] * groups[1]
        if not 0 < top_k <= considered:
            raise DitronError(f"MoE: top_k={top_k} of {considered} experts that are considered")
        self.hidden_size, self.intermediate_size = hidden_size, intermediate_size
        self.num_experts, self.top_k, self.scoring, self.normalize = num_experts, top_k, scoring, normalize
        self.scaling, self.groups, self.parallel, self.sequence_parallel = scaling, groups, parallel, sequence_parallel
        options = {"device": device, "dtype": dtype}
        self.router = nn.Linear(hidden_size, num_experts, bias=False, **options)
        own = len(self.own_experts) if parallel == "tp" else -(-num_experts // ranks)
        inner = intermediate_size // (ranks if parallel == "tp" else 1)
        if expert_dtype not in (None, torch.float8_e4m3fn, torch.bfloat16, torch.float16, torch.float32):
            raise DitronError(
                f"MoE: expert_dtype must be float8_e4m3fn, bfloat16, float16 or float32, got {expert_dtype!r}"
            )
        quantized = expert_dtype == torch.float8_e4m3fn
        if quantized and (hidden_size % 128 or inner % 128):
            raise DitronError(
                f"MoE: experts of float8_e4m3fn need sizes of multiples of 128, got hidden_size={hidden_size} and "
                f"{inner} of intermediate_size on a rank"
            )
        for name, shape in (("w13", (own, 2 * inner, hidden_size)), ("w2", (own, hidden_size, inner))):
            weight = torch.empty(shape, device=device, dtype=expert_dtype or dtype)
            self.register_parameter(name, nn.Parameter(weight, requires_grad=not quantized))
            blocks = (own, shape[1] // 128, shape[2] // 128)
            scale = torch.ones(blocks, device=device, dtype=torch.float32) if quantized else None
            self.register_buffer(f"scale_{name}", scale)
        bias = torch.zeros(num_experts, device=device, dtype=torch.float32) if correction_bias else None
        self.register_buffer("correction_bias", bias)
        self.reset_parameters()

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> MoE:
        """What ``to``, ``half`` or ``cuda`` call: quantized experts and their scales change devices, not dtypes."""
        if self.scale_w13 is None:
            return super()._apply(fn, recurse)
        quantized = (self.w13, self.w2, self.scale_w13, self.scale_w2)

        def keeping_dtypes(tensor: torch.Tensor) -> torch.Tensor:
            if any(tensor is one for one in quantized):
                like = fn(tensor.new_empty(0))
                if like.dtype != tensor.dtype:
                    return tensor.to(like.device)
            return fn(tensor)

        return super()._apply(keeping_dtypes, recurse)

    @property
    def own_experts(self) -> range:
        """Those that this rank has, or has a part of."""
        rank, ranks = self.group.rank, self.group.num_ranks
        if self.parallel == "tp":
            return range(self.num_experts)
        return range(rank * self.num_experts // ranks, (rank + 1) * self.num_experts // ranks)

    @classmethod
    def from_experts(
        cls, router: nn.Linear, experts: Sequence[tuple[nn.Linear, nn.Linear, nn.Linear]], top_k: int, **options: Any
    ) -> MoE:
        """This rank's part of a block that is the same on every rank.

        Args:
            router: from hidden_size to the number of experts, without bias.
            experts: of each the gate, what it multiplies, and the projection back.
            top_k, options: as of the class.

        The parameters have the dtypes and the device of those given, experts ``expert_dtype=`` where that is said.

            MoE.from_experts(block.gate, [(e.gate_proj, e.up_proj, e.down_proj) for e in block.experts], top_k=8)
        """
        inner, hidden = _check_experts(router, experts)
        made = cls(hidden, inner, len(experts), top_k, device="meta", **options)
        like = experts[0][0].weight
        for name, parameter in (("w13", made.w13), ("w2", made.w2)):
            if (scale := getattr(made, f"scale_{name}")) is not None:
                setattr(made, f"scale_{name}", torch.ones(scale.shape, device=like.device))
                weight = like.new_zeros(parameter.shape, dtype=parameter.dtype)
                setattr(made, name, nn.Parameter(weight, requires_grad=False))
            else:
                weight = like.new_zeros(parameter.shape, dtype=options.get("expert_dtype"))
                setattr(made, name, nn.Parameter(weight, requires_grad=like.requires_grad))
        made.router.weight = nn.Parameter(router.weight.detach().clone(), router.weight.requires_grad)
        if made.correction_bias is not None:
            made.correction_bias = torch.zeros(len(experts), dtype=torch.float32, device=like.device)
        part = slice(None)
        if made.parallel == "tp":
            own = made.w2.shape[2]
            part = slice(made.group.rank * own, (made.group.rank + 1) * own)
        with torch.no_grad():
            for index, expert in enumerate(made.own_experts):
                gate, up, down = (linear.weight for linear in experts[expert])
                made._set_expert("w13", index, torch.cat([gate[part], up[part]]))
                made._set_expert("w2", index, down[:, part])
        return made

    def reset_parameters(self) -> None:
        """Draw the parameters as nn.Linear does."""
        for name, parameter in self.named_parameters():
            bound = 1 / math.sqrt(parameter.shape[-1])
            if parameter.dtype != torch.float8_e4m3fn:
                nn.init.uniform_(parameter, -bound, bound)
                continue
            for index, matrix in enumerate(parameter):
                drawn = torch.empty_like(matrix, dtype=torch.float32).uniform_(-bound, bound)
                self._set_expert(name, index, drawn)

    @torch.no_grad()
    def _set_expert(self, name: str, index: int, matrix: torch.Tensor) -> None:
        """Write, or quantize, one of ``w13`` or ``w2``."""
        weight, scale = getattr(self, name), getattr(self, f"scale_{name}")
        if scale is None:
            weight[index] = matrix
        else:
            weight[index], scale[index] = kernels.quantize_128x128(matrix)

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Experts and weights [tokens, top_k], int64 and float32, of tokens [tokens, hidden_size].

        In timing-only mode there are no scores, and experts are drawn (:func:`ditron.kernels.draw_routes`).
        """
        weight = summed_gradient(self.router.weight, self.group.name)  # each rank has routed other tokens
        logits = nn.functional.linear(x.to(weight.dtype), weight).float()
        scores = logits.softmax(1) if self.scoring == "softmax" else logits.sigmoid()
        choice = scores if self.correction_bias is None else scores + self.correction_bias
        if self.groups is not None:
            number, chosen = self.groups
            of_groups = choice.view(len(x), number, -1)
            best = of_groups.topk(min(2, of_groups.shape[2]), 2).values.sum(2).topk(chosen, 1).indices
            considered = torch.zeros_like(of_groups[..., 0]).scatter_(1, best, 1.0).bool()
            choice = of_groups.masked_fill(~considered[..., None], -math.inf).flatten(1)
        ids = choice.topk(self.top_k, 1).indices
        if are_drawn(self.group):
            ids = kernels.draw_routes(len(x), self.num_experts, self.top_k, group=self.group)[0].long()
        weights = scores.gather(1, ids)
        if self.normalize:
            weights = weights / weights.sum(1, keepdim=True)
        return ids, weights * self.scaling

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., hidden_size]`` of this rank's tokens, or of all ranks' if not sequence-parallel, to the same."""
        if x.shape[-1:] != (self.hidden_size,):
            raise DitronError(f"MoE: x is {list(x.shape)}: expected a last dimension of hidden_size={self.hidden_size}")
        tokens, ranks = x.reshape(-1, self.hidden_size), self.group.num_ranks
        whole = len(tokens)
        if not self.sequence_parallel:  # each rank takes some of them
            padded = nn.functional.pad(summed_gradient(tokens, self.group.name), (0, 0, 0, -whole % ranks))
            tokens = padded.chunk(ranks)[self.group.rank]
        ids, weights = self.route(tokens)
        quantized = self.scale_w13 is not None
        y = kernels.ep_moe(
            tokens,
            ids,
            weights,
            self.w13 if quantized else self.w13.to(x.dtype),
            self.w2 if quantized else self.w2.to(x.dtype),
            scale_w13=self.scale_w13,
            scale_w2=self.scale_w2,
            num_experts=self.num_experts,
            parallel=self.parallel,
            group=self.group,
        )
        if not self.sequence_parallel:
            y = kernels.all_gather(y, gradient="replicate", group=self.group)[:whole]
        return y.view(x.shape)

    def extra_repr(self) -> str:
        """What ``repr`` says of the block."""
        return (
            f"hidden_size={self.hidden_size}, intermediate_size={self.intermediate_size}, "
            f"num_experts={self.num_experts}, top_k={self.top_k}, scoring={self.scoring!r}, "
            f"parallel={self.parallel!r}, num_ranks={self.group.num_ranks}"
        )


def _check_experts(router: nn.Linear, experts: Sequence[tuple[nn.Linear, nn.Linear, nn.Linear]]) -> tuple[int, int]:
    """The experts' inner size and hidden size. Raises DitronError for modules that are no such block."""
    if not experts or router.out_features != len(experts):
        raise DitronError(f"MoE: the router has {router.out_features} outputs, and there are {len(experts)} experts")
    inner, hidden = experts[0][0].weight.shape
    if router.in_features != hidden:
        raise DitronError(f"MoE: the router takes {router.in_features} features, and experts {hidden}")
    parts = [("the router", router, (len(experts), hidden))]
    for index, expert in enumerate(experts):
        shapes = zip(("gate", "up", "down"), expert, ((inner, hidden), (inner, hidden), (hidden, inner)), strict=True)
        parts += [(f"the {name} projection of expert {index}", linear, shape) for name, linear, shape in shapes]
    for name, linear, shape in parts:
        if tuple(linear.weight.shape) != shape:
            raise DitronError(
                f"MoE: {name} has a weight of {list(linear.weight.shape)}: expected {list(shape)}; an expert is its "
                "gate, up and down projections, all of the same sizes"
            )
        if linear.bias is not None:
            raise DitronError(f"MoE: {name} has a bias, which these experts have not: keep the block as it is")
    return inner, hidden
