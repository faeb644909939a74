"""fla-core (flash-linear-attention): its operators against the references in plain torch that the package has."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F
from harness import Case, given, rand, tensor

B, T, H, D = 1, 80, 2, 32  # a chunk of 64 tokens, and a part of one

AS_CUDA = True  # at import it asks torch about its CUDA device
# On a Hopper it refuses gated backward passes with Triton 3.4 to 3.7, for a fault of the compiler's there.
os.environ.setdefault("DITRON_SIM_CAPABILITY", "80")

FORWARD_ONLY = {
    "chunk_iplr_delta_rule",
    "fused_recurrent_dplr_delta_rule",
    "fused_recurrent_kda",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_comba",
    "fused_recurrent_rwkv7",
}  # say so
GONE = {"fused_chunk_gla", "fused_chunk_delta_rule"}  # names that only raise
HALF = {"chunk_delta_rule"}  # refuses float32


def qkv(*more: Any) -> Any:
    return given(rand(B, T, H, D), unit(B, T, H, D), rand(B, T, H, D), *more)


def unit(*shape: int) -> Any:
    """Vectors of length 1, what delta rules need to stay bounded."""
    return tensor(lambda: F.normalize(torch.randn(shape), dim=-1))


def gate(*shape: int, scale: float = 1.0) -> Any:
    """Logarithms of decays."""
    return tensor(lambda: F.logsigmoid(torch.randn(shape) + 2) * scale)


def sigmoid(*shape: int) -> Any:
    return tensor(lambda: torch.randn(shape).sigmoid())


def first(function: Any, **options: Any) -> Any:
    """Of a function's results the first: the others are states, None unless asked for."""

    def call(*args: Any, **more: Any) -> torch.Tensor:
        result = function(*args, **options, **more)
        return result[0] if isinstance(result, tuple) else result

    return call


def heads_first(function: Any, **options: Any) -> Any:
    """A reference for tensors of (B, H, T, ...)."""

    def call(*args: Any) -> torch.Tensor:
        return first(function, **options)(*[a.transpose(1, 2) if a.ndim > 2 else a for a in args]).transpose(1, 2)

    return call


def recurrent_comba(q: Any, k: Any, v: Any, g: Any, beta: Any) -> torch.Tensor:
    """The package's reference lets the state decay before it is asked for ``p``; its kernels do so afterwards."""
    state, rows = torch.zeros(B, H, D, D), []
    for t in range(T):
        asked = (state * (k[:, t] * 0.8)[..., None]).sum(-2)
        new = (v[:, t] - asked) * beta[:, t][..., None]
        state = state * g[:, t].exp()[..., None, None] + k[:, t][..., None] * new[..., None, :]
        rows.append((q[:, t][..., None] * state).sum(-2) * D**-0.5)
    return torch.stack(rows, 1)


def cases() -> dict[str, Case]:
    import fla.ops as ops
    from fla.ops.based.naive import naive_parallel_based
    from fla.ops.delta_rule.naive import delta_rule_recurrence
    from fla.ops.forgetting_attn.naive import naive_forgetting_attn
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
    from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
    from fla.ops.generalized_delta_rule.iplr.naive import iplr_recurrence
    from fla.ops.gla.naive import naive_recurrent_gla
    from fla.ops.gsa.naive import naive_recurrent_gsa
    from fla.ops.hgrn.naive import naive_recurrent_hgrn
    from fla.ops.kda.naive import naive_recurrent_kda
    from fla.ops.linear_attn.naive import naive_recurrent_linear_attn
    from fla.ops.log_linear_attn.naive import naive_log_linear_attn
    from fla.ops.retention.naive import naive_retention
    from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
    from fla.ops.simple_gla.naive import naive_recurrent_simple_gla

    made: dict[str, Case] = {}

    def add(name: str, inputs: Any, ours: Any, plain: Any) -> None:
        dtypes = (torch.bfloat16,) if name in HALF else (torch.float32, torch.bfloat16)
        made[name] = Case(inputs, ours, plain, dtypes, forward_only=name in FORWARD_ONLY)

    def both(name: str, inputs: Any, plain: Any, **options: Any) -> None:
        for form in ("chunk", "fused_chunk", "fused_recurrent", "parallel"):
            function = getattr(ops, f"{form}_{name}", None)
            if function is not None and f"{form}_{name}" not in GONE:
                add(f"{form}_{name}", inputs, first(function, **options), plain)

    both("linear_attn", qkv(), first(naive_recurrent_linear_attn), normalize=False)
    both("retention", qkv(), heads_first(naive_retention))
    both("simple_gla", qkv(gate(B, T, H)), first(naive_recurrent_simple_gla))
    both("gla", qkv(gate(B, T, H, D)), first(naive_recurrent_gla))
    both("delta_rule", qkv(sigmoid(B, T, H)), heads_first(delta_rule_recurrence))
    both("kda", qkv(gate(B, T, H, D), sigmoid(B, T, H)), first(naive_recurrent_kda))
    both("gsa", qkv(rand(B, T, H, D), gate(B, T, H, D)), first(naive_recurrent_gsa))
    both("hgrn", given(rand(B, T, D), gate(B, T, D)), first(naive_recurrent_hgrn))
    both("iplr_delta_rule", qkv(unit(B, T, H, D), unit(B, T, H, D)), heads_first(iplr_recurrence))
    both("dplr_delta_rule", qkv(unit(B, T, H, D), unit(B, T, H, D), gate(B, T, H, D)), heads_first(dplr_recurrence))
    both(
        "rwkv6",
        qkv(gate(B, T, H, D), rand(H, D)),
        lambda r, k, v, w, u: first(naive_recurrent_rwkv6)(*[a.transpose(1, 2) for a in (r, k, v, w)], u).transpose(
            1, 2
        ),
    )
    both("forgetting_attn", qkv(gate(B, T, H)), first(naive_forgetting_attn))
    both("based", given(rand(B, T, H, 16), rand(B, T, H, 16), rand(B, T, H, D)), heads_first(naive_parallel_based))
    both(
        "attn",
        qkv(),
        lambda q, k, v: F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        ).transpose(1, 2),
    )
    both(
        "log_linear_attn",
        given(*[rand(B, 128, H, 64)] * 3, gate(B, 128, H), sigmoid(B, 128, H, 8)),
        lambda *inputs: naive_log_linear_attn(*inputs),
    )

    for form in ("chunk", "fused_recurrent"):
        delta, comba, rwkv7 = (getattr(ops, f"{form}_{name}") for name in ("gated_delta_rule", "comba", "rwkv7"))
        add(
            f"{form}_gated_delta_rule",
            qkv(gate(B, T, H), sigmoid(B, T, H)),
            lambda q, k, v, g, beta, f=delta: f(q, k, v, g=g, beta=beta)[0],
            lambda q, k, v, g, beta: naive_recurrent_gated_delta_rule(q, k, v, beta, g)[0],
        )
        add(
            f"{form}_comba",
            qkv(gate(B, T, H), sigmoid(B, T, H)),
            lambda q, k, v, g, beta, f=comba: f(q=q, k=k, v=v, p=k * 0.8, g=g, beta=beta)[0],
            recurrent_comba,
        )
        add(
            f"{form}_rwkv7",
            qkv(gate(B, T, H, D, scale=0.5), unit(B, T, H, D), unit(B, T, H, D)),
            lambda r, k, v, w, a, b, f=rwkv7: f(r, w, k, v, a, b, scale=D**-0.5)[0],
            lambda r, k, v, w, a, b: heads_first(dplr_recurrence)(r, k, v, a, b, w),
        )
    return made


IMPOSSIBLE = {
    "backward of " + ", ".join(sorted(FORWARD_ONLY)): "the package has none",
    ", ".join(sorted(GONE)): "the package has no more than their names",
}
