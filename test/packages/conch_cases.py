"""conch-triton-kernels: inference kernels, against the references the package has or a few lines of torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from harness import Case, given, rand, tensor

HEADS, KV_HEADS, SIZE, PAGE = 4, 2, 32, 16


AS_CUDA = False


def _attention(q, k, v, causal_offset=None):
    """q (Lq, H, D), k and v (Lk, Hkv, D)."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.transpose(0, 1), *(x.transpose(0, 1).repeat_interleave(group, 0) for x in (k, v))
    mask = None
    if causal_offset is not None:
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(causal_offset)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(0, 1)


LENGTHS = (37, 64, 5)
QUERIES = (5, 1, 5)
TABLE = torch.arange(12, dtype=torch.int32).flip(0).reshape(3, 4)


def _gathered(cache, i):
    return cache[TABLE[i].long()].flatten(0, 1)[: LENGTHS[i]]


def cases() -> dict[str, Case]:
    import importlib

    from conch.ops.activation.gelu_tanh_and_mul import gelu_tanh_and_mul
    from conch.ops.activation.silu_and_mul import silu_and_mul
    from conch.ops.attention.paged_attention import paged_attention
    from conch.ops.attention.varlen_attention import varlen_attention
    from conch.ops.embedding.rotary_embedding import rotary_embedding
    from conch.ops.normalization.gemma_rms_norm import gemma_rms_norm
    from conch.ops.normalization.rms_norm import fused_add_rms_norm, rms_norm
    from conch.ops.quantization.bitsandbytes import functional as bnb
    from conch.ops.quantization.fp8 import scaled_fp8_quant
    from conch.ops.quantization.gemm import mixed_precision_gemm, scaled_gemm
    from conch.ops.quantization.int8 import scaled_int8_quant
    from conch.ops.vision.bev_pool import bev_pool, bev_pool_backward
    from conch.ops.vision.nms import nms
    from conch.ops.vision.voxelization import VoxelizationParameter, generate_voxels
    from conch.ops.vllm.copy_blocks import copy_blocks
    from conch.ops.vllm.reshape_and_cache import reshape_and_cache

    def ref(path):
        return importlib.import_module("conch.reference." + path)

    ff = (torch.float32, torch.bfloat16, torch.float16)
    f32 = (torch.float32,)
    made = {}
    made["silu_and_mul"] = Case(
        given(rand(6, 200)), silu_and_mul, lambda x: F.silu(x[:, :100]) * x[:, 100:], dtypes=ff, forward_only=True
    )
    made["gelu_tanh_and_mul"] = Case(
        given(rand(6, 200)),
        gelu_tanh_and_mul,
        lambda x: F.gelu(x[:, :100], approximate="tanh") * x[:, 100:],
        dtypes=f32,
        forward_only=True,
    )

    def rms(x, w):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    made["rms_norm"] = Case(
        given(rand(6, 96), rand(96)), lambda x, w: rms_norm(x, w, 1e-6), rms, dtypes=ff, forward_only=True
    )
    made["gemma_rms_norm"] = Case(
        given(rand(6, 96), rand(96)),
        lambda x, w: gemma_rms_norm(x, w, 1e-6),
        lambda x, w: rms(x, 1 + w),
        dtypes=ff,
        forward_only=True,
    )
    made["fused_add_rms_norm"] = Case(
        given(rand(6, 96), rand(6, 96), rand(96)),
        lambda x, r, w: tuple(fused_add_rms_norm(x, r, w, 1e-6)),
        lambda x, r, w: (rms(x + r, w), x + r),
        dtypes=ff,
        forward_only=True,
    )
    made["rotary_embedding"] = Case(
        given(rand(6, 64), rand(6, 32)),
        lambda q, k: rotary_embedding(
            torch.arange(6), q, k, 16, ref("embedding.rotary_embedding").compute_cos_sin_cache(1e4, 16, 32).to(q.dtype)
        ),
        lambda q, k: ref("embedding.rotary_embedding")._rotary_embedding_pytorch_ref(
            torch.arange(6), q, k, ref("embedding.rotary_embedding").compute_cos_sin_cache(1e4, 16, 32), 16, 16
        ),
        dtypes=ff,
        forward_only=True,
    )
    made["fp8_quant"] = Case(
        given(rand(6, 200, scale=100)),
        lambda x: scaled_fp8_quant(x, torch.tensor(0.7))[0].float(),
        lambda x: (x * (1 / torch.tensor(0.7))).clamp(-448, 448).to(torch.float8_e4m3fn).float(),
        dtypes=ff,
        forward_only=True,
        tolerance=1.0,
    )
    made["int8_quant"] = Case(
        given(rand(6, 200, scale=100)),
        lambda x: scaled_int8_quant(x, torch.tensor(0.7))[0].float(),
        lambda x: (x * (1 / torch.tensor(0.7))).clamp(-128, 127).to(torch.int8).float(),
        dtypes=ff,
        forward_only=True,
    )
    for mode in ("fp4", "nf4"):
        made[f"quantize_4bit {mode}"] = Case(
            given(rand(500)),
            lambda x, m=mode: ((r := bnb.quantize_4bit(x, quant_type=m))[0].flatten().float(), r[1].absmax),
            lambda x, m=mode: _bnb(ref, x, m),
            dtypes=ff,
            forward_only=True,
        )
        made[f"dequantize_4bit {mode}"] = Case(
            given(rand(512)),
            lambda x, m=mode: bnb.dequantize_4bit(*bnb.quantize_4bit(x, quant_type=m), quant_type=m),
            lambda x: x,
            dtypes=f32,
            forward_only=True,
            tolerance=5e3,
        )
    cache = given(rand(3, HEADS, SIZE), rand(12, PAGE, KV_HEADS, SIZE), rand(12, PAGE, KV_HEADS, SIZE))
    made["paged_attention"] = Case(
        cache,
        lambda q, k, v: paged_attention(q, k, v, TABLE, torch.tensor(LENGTHS, dtype=torch.int32)),
        lambda q, k, v: torch.cat([_attention(q[i : i + 1], _gathered(k, i), _gathered(v, i)) for i in range(3)]),
        dtypes=ff,
        forward_only=True,
    )
    cu = torch.tensor([0, 5, 6, 11], dtype=torch.int32)
    made["varlen_attention"] = Case(
        given(rand(11, HEADS, SIZE), *cachers()),
        lambda q, k, v: varlen_attention(
            q, k, v, cu, 5, torch.tensor(LENGTHS, dtype=torch.int32), 64, TABLE, causal=True
        ),
        lambda q, k, v: torch.cat(
            [
                _attention(q[cu[i] : cu[i + 1]], _gathered(k, i), _gathered(v, i), 0 if QUERIES[i] > 1 else None)
                for i in range(3)
            ]
        ),
        dtypes=ff,
        forward_only=True,
    )
    made["reshape_and_cache"] = Case(
        given(rand(5, KV_HEADS, SIZE), rand(5, KV_HEADS, SIZE)),
        lambda k, v: _cached(reshape_and_cache, k, v),
        lambda k, v: _cached(
            ref("vllm.reshape_and_cache").reshape_and_cache, k, v, k_scale=torch.ones(1), v_scale=torch.ones(1)
        ),
        dtypes=ff,
        forward_only=True,
    )
    made["copy_blocks"] = Case(
        given(rand(6, 64), rand(6, 64)),
        lambda k, v: (copy_blocks([k], [v], torch.tensor([[0, 3], [1, 5]])), k, v)[1:],
        lambda k, v: (
            ref("vllm.copy_blocks").copy_blocks(keys := [k.clone()], values := [v.clone()], [(0, 3), (1, 5)]),
            keys[0],
            values[0],
        )[1:],
        dtypes=ff,
        forward_only=True,
    )
    made["scaled_gemm int8"] = Case(
        given(ints(20, 64), ints(64, 48), rand(20, 1), rand(48, 1)),
        lambda a, b, sa, sb: scaled_gemm(a.to(torch.int8), b.to(torch.int8), sa, sb, sa.dtype),
        lambda a, b, sa, sb: a.float() @ b.float() * sa * sb.T,
        dtypes=(torch.float32,),
        forward_only=True,
    )
    made["scaled_gemm fp8"] = Case(
        given(rand(20, 64), rand(64, 48), rand(20, 1), rand(48, 1)),
        lambda a, b, sa, sb: scaled_gemm(
            a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), sa.float(), sb.float(), sa.dtype
        ),
        lambda a, b, sa, sb: (a.to(torch.float8_e4m3fn).float() @ b.to(torch.float8_e4m3fn).float()) * sa * sb.T,
        dtypes=(torch.float32,),
        forward_only=True,
    )

    def packed(w):  # (K, N) of 0..15 -> (K/8, N) int32
        w = w.to(torch.int64).reshape(-1, 8, w.shape[1])
        out = sum(w[:, i] << (4 * i) for i in range(8))
        return torch.where(out >= 2**31, out - 2**32, out).to(torch.int32)

    made["mixed_precision_gemm"] = Case(
        given(rand(20, 128), tensor(lambda: torch.randint(0, 16, (128, 64))), rand(2, 64)),
        lambda x, w, s: mixed_precision_gemm(x, packed(w), s, None, 4, 8, 64),
        lambda x, w, s: x @ ((w.float() - 8) * s.repeat_interleave(64, 0)),
        dtypes=(torch.float16, torch.bfloat16),
        forward_only=True,
        tolerance=2.0,
    )
    geom = torch.tensor([[0, 1, 0, 0], [0, 1, 0, 0], [2, 1, 0, 1], [1, 2, 0, 1], [1, 2, 0, 1]], dtype=torch.int32)
    starts, lens = torch.tensor([0, 2, 3], dtype=torch.int32), torch.tensor([2, 1, 2], dtype=torch.int32)
    made["bev_pool"] = Case(
        given(rand(5, 40)),
        lambda x: bev_pool(x, geom, starts, lens, 2, 2, 3, 3),
        lambda x: ref("vision.bev_pool").bev_pool_pytorch(x, geom, starts, lens, 2, 2, 3, 3),
        dtypes=f32,
        forward_only=True,
    )
    made["bev_pool_backward"] = Case(
        given(rand(2, 2, 3, 3, 40)),
        lambda g: bev_pool_backward(g, geom, starts, lens),
        lambda g: ref("vision.bev_pool").bev_pool_backward_pytorch(g, geom, starts, lens),
        dtypes=f32,
        forward_only=True,
    )
    made["nms"] = Case(
        given(boxes, rand(40)),
        lambda b, s: nms(b, s, 0.3).float(),
        lambda b, s: ref("vision.nms")._nms_pytorch_iterative(b, s, 0.3).float(),
        dtypes=f32,
        forward_only=True,
    )
    par = VoxelizationParameter(
        min_range=(0.0, 0.0, 0.0), max_range=(1.0, 1.0, 1.0), voxel_dim=(0.5, 0.5, 0.5), max_num_points_per_voxel=300
    )

    def vox(p):
        count, _, idx, points = generate_voxels(p, par)
        n = int(count)
        order = (idx[:n, 0] * 100 + idx[:n, 1] * 10 + idx[:n, 2]).argsort()
        return idx[:n, :3][order].float(), points[:n][order].float()

    def voxref(p):
        i = (p[:, :3] / 0.5).long().clamp(max=1)
        ok = ((p[:, :3] >= 0) & (p[:, :3] < 1)).all(1)
        u, c = i[ok].unique(dim=0, return_counts=True)
        return u.float(), c.float()

    made["generate_voxels"] = Case(given(rand(500, 4)), vox, voxref, dtypes=f32, forward_only=True)
    return made


def boxes(dtype):
    b = torch.rand(40, 4, dtype=dtype)
    b[:, 2:] = b[:, :2] + b[:, 2:] * 0.5
    return b


def ints(*s):
    return tensor(lambda: torch.randint(-100, 100, s))


def cachers():
    return rand(12, PAGE, KV_HEADS, SIZE), rand(12, PAGE, KV_HEADS, SIZE)


def _cached(f, k, v, **o):
    kc, vc = torch.zeros(4, PAGE, KV_HEADS, SIZE, dtype=k.dtype), torch.zeros(4, PAGE, KV_HEADS, SIZE, dtype=k.dtype)
    o = {"kv_cache_dtype": "auto", "k_scale": torch.ones(1), "v_scale": torch.ones(1)}
    f(k, v, kc, vc, torch.tensor([3, 20, -1, 40, 63]), **o)
    return kc, vc


def _bnb(ref, x, m):
    mod = ref("quantization.bitsandbytes.quantize_blockwise")
    absmax, out = torch.zeros(8), torch.zeros(250, dtype=torch.uint8)
    out, absmax = mod.quantize_blockwise_launcher(
        x=x, absmax=absmax, out=out, code=None, blocksize=64, input_size=500, quant_type=m
    )
    return out.float(), absmax


IMPOSSIBLE = {
    "gelu_tanh_and_mul in 16 bits": "libdevice.tanh takes float32 and float64: Triton's own error",
}
