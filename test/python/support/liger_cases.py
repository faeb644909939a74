"""The operators of liger-kernel, each with inputs and the same thing in plain torch; liger.py runs them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from plain_torch import given, labels, rand


@dataclass(frozen=True)
class Case:
    """One call: ``inputs(dtype)``, of which floating-point ones get gradients; results are tensors or tuples."""

    inputs: Callable[[torch.dtype], tuple]
    liger: Callable[..., Any]  # (ops, *inputs)
    plain: Callable[..., Any]  # (*inputs), given in float32
    dtypes: tuple = (torch.float32, torch.bfloat16)
    fixed: tuple[int, ...] = ()  # inputs that get no gradient
    tolerance: float = 1.0  # times the dtype's
    as_cuda: bool = False  # the operator asks torch for a CUDA device


CASES: dict[str, Case] = {}


def case(name: str, inputs: Callable, liger: Callable, plain: Callable, **more: Any) -> None:
    CASES[name] = Case(inputs, liger, plain, **more)


# --- norms ------------------------------------------------------------------------------------------------------


def _rms(x, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


for _mode, _offset in (("llama", 0.0), ("gemma", 1.0), ("none", 0.0)):
    case(
        f"rms_norm ({_mode})",
        given(rand(2, 5, 96), rand(96)),
        lambda ops, x, w, m=_mode, o=_offset: ops.LigerRMSNormFunction.apply(x, w, 1e-6, o, m, False),
        lambda x, w, o=_offset: _rms(x) * (w + o),
    )
case(
    "rms_norm (many rows)",
    given(rand(70, 64), rand(64)),
    lambda ops, x, w: ops.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", True),
    lambda x, w: _rms(x) * w,
)
case(
    "fused_add_rms_norm",
    given(rand(2, 5, 96), rand(2, 5, 96), rand(96)),
    lambda ops, x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, 1e-6, 0.0, "llama", False),
    lambda x, r, w: (_rms(x + r) * w, x + r),
)
case(
    "modulated_rms_norm",
    given(rand(2, 5, 96), rand(96), rand(2, 96), rand(2, 96)),
    lambda ops, x, w, s, t: ops.LigerModulatedRMSNormFunction.apply(x, w, s, t, 1e-6, 0.0, "llama", False),
    lambda x, w, s, t: (1 + s[:, None]) * (_rms(x) * w) + t[:, None],
)
case(
    "layer_norm",
    given(rand(2, 5, 96), rand(96), rand(96)),
    lambda ops, x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, 1e-6),
    lambda x, w, b: F.layer_norm(x, (96,), w, b, 1e-6),
)
case(
    "group_norm",
    given(rand(2, 6, 40), rand(6), rand(6)),
    lambda ops, x, w, b: ops.LigerGroupNormFunction.apply(x, w, b, 6, 3, 1e-6),
    lambda x, w, b: F.group_norm(x, 3, w, b, 1e-6),
    tolerance=4.0,
)


def _poly(x, w, b):
    return w[0] * _rms(x**3) + w[1] * _rms(x**2) + w[2] * _rms(x) + b


case(
    "poly_norm",
    given(rand(6, 96), rand(3), rand()),
    lambda ops, x, w, b: ops.LigerPolyNormFunction.apply(x, w, b, 1e-6, False),
    _poly,
    tolerance=2.0,
)
case(
    "dyt",
    given(rand(2, 3, 96), rand(1), rand(96), rand(96)),
    lambda ops, x, a, g, b: ops.LigerDyTFunction.apply(x, a, g, b),
    lambda x, a, g, b: g * torch.tanh(a * x) + b,
    as_cuda=True,
)

# --- activations ------------------------------------------------------------------------------------------------

case(
    "swiglu",
    given(rand(2, 3, 100), rand(2, 3, 100)),
    lambda ops, a, b: ops.LigerSiLUMulFunction.apply(a, b),
    lambda a, b: F.silu(a) * b,
)
case(
    "swiglu (gate and up in one)",
    given(rand(6, 200)),
    lambda ops, y: ops.LigerFusedGateUpSiLUMulFunction.apply(y),
    lambda y: F.silu(y[:, :100]) * y[:, 100:],
)
case(
    "geglu",
    given(rand(2, 3, 100), rand(2, 3, 100)),
    lambda ops, a, b: ops.LigerGELUMulFunction.apply(a, b),
    lambda a, b: F.gelu(a, approximate="tanh") * b,
)
case(
    "relu_squared",
    given(rand(2, 3, 100)),
    lambda ops, x: ops.LigerReLUSquaredFunction.apply(x),
    lambda x: F.relu(x) ** 2,
)
case("softmax", given(rand(2, 3, 100)), lambda ops, x: ops.LigerSoftmaxFunction.apply(x), lambda x: x.softmax(-1))


def _sparsemax(x):
    z = x.sort(-1, descending=True).values
    sums = z.cumsum(-1) - 1
    k = torch.arange(1, x.shape[-1] + 1)
    support = (z * k > sums).sum(-1, keepdim=True)
    return F.relu(x - sums.gather(-1, support - 1) / support)


case("sparsemax", given(rand(5, 100)), lambda ops, x: ops.LigerSparsemaxFunction.apply(x, -1), _sparsemax)

# --- losses -----------------------------------------------------------------------------------------------------

case(
    "cross_entropy",
    given(rand(6, 100), labels(6, 100)),
    lambda ops, x, t: ops.LigerCrossEntropyFunction.apply(x, t, None)[0],
    lambda x, t: F.cross_entropy(x, t),
)
case(
    "cross_entropy (weight, smoothing, softcap)",
    given(rand(6, 100), labels(6, 100), lambda _: torch.rand(100)),
    lambda ops, x, t, w: ops.LigerCrossEntropyFunction.apply(x, t, w, -100, 0.0, 0.1, "sum", 30.0)[0],
    lambda x, t, w: F.cross_entropy(30 * torch.tanh(x / 30), t, w, label_smoothing=0.1, reduction="sum"),
    fixed=(2,),
)
case(
    "fused_linear_cross_entropy",
    given(rand(6, 32), rand(100, 32, scale=0.3), labels(6, 100), rand(100)),
    lambda ops, x, w, t, b: ops.LigerFusedLinearCrossEntropyFunction.apply(x, w, t, b)[0],
    lambda x, w, t, b: F.cross_entropy(x @ w.T + b, t),
    tolerance=2.0,
)
case(
    "vocab_parallel_cross_entropy",
    given(rand(3, 2, 100), lambda _: torch.randint(100, (3, 2))),
    lambda ops, x, t: ops.LigerVocabParallelCEFunction.apply(x, t, None, -100, 0.0, "megatron", "per_token"),
    lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten(), reduction="none").view(3, 2),
)


def _ce_tvd(x, y, t):
    kept = (t != -100).float()
    return (F.cross_entropy(x, t, reduction="none"), (x.softmax(-1) - y.softmax(-1)).abs().sum(-1) / 2 * kept)


case(
    "fused_ce_tvd",
    given(rand(6, 100), rand(6, 100), labels(6, 100)),
    lambda ops, x, y, t: ops.LigerFusedCETVDFunction.apply(x, y, t),
    _ce_tvd,
    fixed=(1,),
)


def _logs(*shape: int) -> Callable:
    return lambda dtype: torch.randn(shape).log_softmax(-1).to(dtype)


def _jsd(x, y, beta=0.5):
    p, q = y.exp(), x.exp()
    m = beta * p + (1 - beta) * q
    one = (p * (y - m.log())).sum(-1)
    other = (q * (x - m.log())).sum(-1)
    return (beta * one + (1 - beta) * other).mean()


for _beta in (0.5, 0.2):
    case(
        f"jsd (beta {_beta})",
        given(_logs(6, 100), _logs(6, 100)),
        lambda ops, x, y, b=_beta: ops.LigerJSDFunction.apply(x, y, None, b, -100),
        lambda x, y, b=_beta: _jsd(x, y, b),
        fixed=(1,),
    )
case(
    "fused_linear_jsd",
    given(rand(6, 32), rand(100, 32, scale=0.3), rand(6, 48), rand(100, 48, scale=0.3)),
    lambda ops, x, w, y, v: ops.LigerFusedLinearJSDFunction.apply(x, w, y, v),
    lambda x, w, y, v: _jsd((x @ w.T).log_softmax(-1), (y @ v.T).log_softmax(-1)),
    fixed=(2, 3),
    tolerance=2.0,
)
for _reduction in ("batchmean", "none"):
    case(
        f"kl_div ({_reduction})",
        given(_logs(6, 100), _logs(6, 100)),
        lambda ops, x, y, r=_reduction: ops.LigerKLDivLossFunction.apply(x, y.exp(), r, False, 1e-10),
        lambda x, y, r=_reduction: F.kl_div(x, y.exp(), reduction=r),
        fixed=(1,),
    )
case(
    "fused_linear_kl_div",
    given(rand(6, 32), rand(100, 32, scale=0.3), _logs(6, 100)),
    lambda ops, x, w, y: ops.LigerFusedLinearKLDivFunction.apply(x, w, y.exp()),
    lambda x, w, y: F.kl_div((x @ w.T).log_softmax(-1), y.exp(), reduction="batchmean"),
    fixed=(2,),
    tolerance=2.0,
)
case(
    "tvd",
    given(_logs(6, 100), _logs(6, 100)),
    lambda ops, x, y: ops.LigerTVDLossFunction.apply(x.exp(), y.exp(), None, "batchmean", -100),
    lambda x, y: (x.exp() - y.exp()).abs().sum() / 2 / 6,
    fixed=(1,),
)


def _grpo(logits, old, ref, ids, advantages):
    logp = (logits[:, :-1] / 0.9).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    ratio = (logp - old).exp()
    first, second = ratio * advantages[:, None], ratio.clamp(0.8, 1.4) * advantages[:, None]
    kl = (ref - logp).exp() - (ref - logp) - 1
    return -torch.minimum(first, second) + 0.04 * kl


case(
    "grpo_loss",
    given(
        rand(2, 6, 100),
        lambda _: torch.randn(2, 5) * 0.1 - 4.6,
        lambda _: torch.randn(2, 5) - 4.6,
        lambda _: torch.randint(100, (2, 5)),
        lambda _: torch.randn(2),
    ),
    lambda ops, x, o, r, i, a: ops.GrpoLossFunction.apply(
        x, o, r, i, a, None, 0.9, 0.04, 0.2, 0.4, False, "grpo", None, False
    )[0],
    _grpo,
    fixed=(1, 2, 4),
)

# --- positions --------------------------------------------------------------------------------------------------


def _half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)


def _angles(*shape: int) -> list:
    angles = torch.rand(*shape[:-1], shape[-1] // 2) * 6
    angles = torch.cat((angles, angles), -1)
    return [lambda dtype: angles.cos().to(dtype), lambda dtype: angles.sin().to(dtype)]


def _rope(q, k, cos, sin):
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + _half(q) * sin, k * cos + _half(k) * sin


case(
    "rope",
    given(rand(2, 4, 5, 32), rand(2, 2, 5, 32), *_angles(1, 5, 32)),
    lambda ops, q, k, c, s: ops.LigerRopeFunction.apply(q, k, c, s),
    _rope,
    fixed=(2, 3),
)


def _mrope(q, k, cos, sin):
    parts = [4, 6, 6, 4, 6, 6]
    mix = lambda t: torch.cat([m[i % 3] for i, m in enumerate(t.split(parts, dim=-1))], -1)[:, None]  # noqa: E731
    return q * mix(cos) + _half(q) * mix(sin), k * mix(cos) + _half(k) * mix(sin)


case(
    "qwen2vl_mrope",
    given(rand(2, 4, 5, 32), rand(2, 2, 5, 32), *_angles(3, 2, 5, 32)),
    lambda ops, q, k, c, s: ops.LigerQwen2VLMRopeFunction.apply(q, k, c, s, [4, 6, 6]),
    _mrope,
    fixed=(2, 3),
)


def _complex_rope(q, k, angles):
    unit = torch.polar(torch.ones_like(angles), angles)[:, None]
    turn = lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * unit).flatten(3)  # noqa: E731
    return turn(q), turn(k)


case(
    "llama4_rope",
    given(rand(2, 5, 4, 32), rand(2, 5, 2, 32), lambda _: torch.rand(5, 16) * 6),
    lambda ops, q, k, a: ops.LigerLlama4RopeFunction.apply(q, k, torch.polar(torch.ones_like(a), a)),
    _complex_rope,
    fixed=(2,),
)
case(
    "embedding",
    given(rand(20, 48), lambda _: torch.randint(20, (2, 7))),
    lambda ops, w, i: ops.LigerEmbeddingFunction.apply(w, i),
    lambda w, i: F.embedding(i, w),
)

# --- attention and experts --------------------------------------------------------------------------------------


def _causal(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


def _multi_token(scores, w, b):
    n = scores.shape[-1]
    probs = scores.masked_fill(~_causal(n), -1e9).softmax(-1)
    return F.conv2d(probs, w, b, padding=1).masked_fill(~_causal(n), 0.0)


case(
    "multi_token_attention",
    given(rand(2, 3, 16, 16), rand(4, 3, 3, 3, scale=0.3), rand(4)),
    lambda ops, x, w, b: ops.LigerMultiTokenAttentionFunction.apply(x, w, b, 1, 1, 1, 1, False),
    _multi_token,
)


def _neighbours(q, k, v):
    n = q.shape[-2]
    near = (torch.arange(n)[:, None] - torch.arange(n)).abs() <= 2
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~near, float("-inf"))
    return scores.softmax(-1) @ v


case(
    "fused_neighborhood_attention",
    given(rand(2, 2, 20, 32), rand(2, 2, 20, 32), rand(2, 2, 20, 32)),
    lambda ops, q, k, v: ops.LigerFusedNeighborhoodAttentionFunction.apply(q, k, v, 5, 1, None),
    _neighbours,
    tolerance=3.0,
)


def _attn_res(v, query, norm):
    scores = torch.einsum("d,nbtd->nbt", query, _rms(v) * norm)
    return torch.einsum("nbt,nbtd->btd", scores.softmax(0), v)


case(
    "attn_res",
    given(rand(3, 2, 5, 48), rand(48, scale=0.3), rand(48)),
    lambda ops, v, q, n: ops.LigerAttnResFunction.apply(v, q, n, 1e-6),
    _attn_res,
)


def _coefficients(x, phi, b, pre, post, res, hc=4, tmax=5, eps=1e-6):
    flat = x.flatten(-2)
    mix = (flat @ phi) * torch.rsqrt(flat.pow(2).mean(-1, keepdim=True) + 1e-6)
    logits = torch.cat((mix[..., :hc] * pre, mix[..., hc : 2 * hc] * post, mix[..., 2 * hc :] * res), -1) + b
    mat = logits[..., 2 * hc :].unflatten(-1, (hc, hc)).softmax(-1) + eps
    mat = mat / (mat.sum(-2, keepdim=True) + eps)
    for _ in range(tmax - 1):
        mat = mat / (mat.sum(-1, keepdim=True) + eps)
        mat = mat / (mat.sum(-2, keepdim=True) + eps)
    return logits[..., :hc].sigmoid(), 2.0 * logits[..., hc : 2 * hc].sigmoid(), mat


_scalar = lambda _: torch.rand(()) + 0.5  # noqa: E731
case(
    "mhc (coefficients)",
    given(rand(2, 3, 4, 16), lambda _: torch.randn(64, 24) * 0.2, lambda _: torch.randn(24), _scalar, _scalar, _scalar),
    lambda ops, *a: ops.LigerMHCCoeffsFunction.apply(*a, True, 5, 1e-6, 0.0, 1e-6, 2.0),
    _coefficients,
    tolerance=8.0,
)
case(
    "mhc (pre)",
    given(rand(2, 3, 4, 16), lambda _: torch.rand(2, 3, 4)),
    lambda ops, x, h: ops.LigerMHCPreFunction.apply(x, h),
    lambda x, h: (h[..., None] * x).sum(-2),
)
case(
    "mhc (post and residual)",
    given(rand(2, 3, 4, 16), rand(2, 3, 16), lambda _: torch.rand(2, 3, 4), lambda _: torch.rand(2, 3, 4, 4)),
    lambda ops, *a: ops.LigerMHCPostResFunction.apply(*a),
    lambda x, f, p, r: torch.einsum("btij,btjc->btic", r, x) + p[..., None] * f[..., None, :],
)


def _experts(x, up, down, index, weights):
    out = torch.zeros_like(x)
    for token in range(x.shape[0]):
        for k in range(index.shape[1]):
            gate, value = (up[index[token, k]] @ x[token]).chunk(2)
            out[token] += weights[token, k] * (down[index[token, k]] @ (F.silu(gate) * value))
    return out


case(
    "fused_moe",
    given(
        rand(9, 32),
        rand(4, 48, 32, scale=0.3),
        rand(4, 32, 24, scale=0.3),
        lambda _: torch.randint(4, (9, 2), dtype=torch.int32),
        lambda _: torch.rand(9, 2),
    ),
    lambda ops, *a: ops.LigerFusedMoEFunction.apply(*a),
    _experts,
    tolerance=3.0,
)


def _linear(x, w):
    return F.silu(x @ w)


case(
    "tiled_mlp",
    given(rand(2, 12, 16), rand(16, 16)),
    lambda ops, x, w: ops.apply_tiled_mlp(lambda m, x: _linear(x, m.w), _Holder(w), x, 3),
    _linear,
    fixed=(1,),
)
case(
    "mlp",
    given(rand(2, 16, 64), rand(128, 64, scale=0.2), rand(128, 64, scale=0.2), rand(64, 128, scale=0.2)),
    lambda ops, x, g, u, d: ops.LigerMLPFunction.apply(x, g, u, d),
    lambda x, g, u, d: (F.silu(x @ g.T) * (x @ u.T)) @ d.T,
    dtypes=(torch.bfloat16,),
    tolerance=3.0,
    as_cuda=True,
)

# Without a Triton kernel where the GPU's CuTe DSL is missing: plain torch, so nothing of it is simulated.
case(
    "fused_linear_scaled_cross_entropy",
    given(rand(6, 32), rand(100, 32, scale=0.3), labels(6, 100)),
    lambda ops, x, w, t: ops.LigerFusedLinearScaledCrossEntropyFunction.apply(x, w, t, 0.7),
    lambda x, w, t: F.cross_entropy(x @ w.T / 0.7, t, reduction="none"),
    tolerance=2.0,
)

# What cannot be run, and why.
IMPOSSIBLE = {
    "fused_linear_scaled_cross_entropy_tp": "no Triton kernel in it: CuTe DSL with NVSHMEM, or torch with NCCL",
}


class _Holder(torch.nn.Module):
    def __init__(self, w: torch.Tensor):
        super().__init__()
        self.w = w
