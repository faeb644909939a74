"""A LLaMA block as Hugging Face writes it, which knows nothing of ranks."""

from __future__ import annotations

import torch
from torch import nn

PLAN = {
    "*layernorm": "sequence",
    "self_attn": "gather",
    "self_attn.[qkv]_proj": "colwise",
    "self_attn.o_proj": "rowwise",
    "mlp": "gather",
    "mlp.gate_proj": "colwise",
    "mlp.up_proj": "colwise",
    "mlp.down_proj": "rowwise",
}


class RMSNorm(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Attention(nn.Module):
    def __init__(self, size: int, heads: int, kv_heads: int, bias: bool):
        super().__init__()
        self.head_dim, self.per_kv_head = size // heads, heads // kv_heads
        self.q_proj = nn.Linear(size, size, bias=bias)
        self.k_proj = nn.Linear(size, kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(size, kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(size, size, bias=bias)

    def forward(self, hidden_states: torch.Tensor, position_embeddings: tuple) -> torch.Tensor:
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        q = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        k = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        v = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        q, k = rotated(q, *position_embeddings), rotated(k, *position_embeddings)
        k, v = (x.repeat_interleave(self.per_kv_head, dim=1) for x in (k, v))
        scores = q @ k.transpose(2, 3) * self.head_dim**-0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        attended = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.o_proj(attended.transpose(1, 2).reshape(*input_shape, -1).contiguous())


class MLP(nn.Module):
    def __init__(self, size: int, inner: int, bias: bool):
        super().__init__()
        self.gate_proj = nn.Linear(size, inner, bias=bias)
        self.up_proj = nn.Linear(size, inner, bias=bias)
        self.down_proj = nn.Linear(inner, size, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, size: int = 32, heads: int = 8, kv_heads: int = 4, inner: int = 48, bias: bool = False):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(size), RMSNorm(size)
        self.self_attn = Attention(size, heads, kv_heads, bias)
        self.mlp = MLP(size, inner, bias)

    def forward(self, hidden_states: torch.Tensor, position_embeddings: tuple) -> torch.Tensor:
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states = residual + self.self_attn(hidden_states=hidden_states, position_embeddings=position_embeddings)
        residual = hidden_states
        return residual + self.mlp(self.post_attention_layernorm(hidden_states))


def position_embeddings(length: int, head_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = 10000 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies).repeat(1, 2)
    return angles.cos().to(dtype), angles.sin().to(dtype)
