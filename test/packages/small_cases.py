"""Packages of a few kernels each: attention, late interaction, quantization, images."""

import torch
import torch.nn.functional as F
from harness import Case, given, rand, tensor

AS_CUDA = True
B, H, T, D = 1, 2, 96, 32
HALF = (torch.float16,)  # late-interaction computes in half precision whatever it is given
f32 = (torch.float32,)
CASES = {}


def add(name, inputs, plain, **more):
    def wrap(f):
        CASES[name] = Case(given(*inputs), f, plain, **more)
        return f

    return wrap


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


qkv = [rand(B, H, T, D)] * 3


@add("flash-attention-triton v2", qkv, sdpa, dtypes=(torch.float16,))
def _(q, k, v):
    from flash_attention_triton import flash_attention_v2

    return flash_attention_v2(q, k, v)


for tma in (False, True):

    @add(f"jvp-flash-attention tma={tma}", [rand(1, 2, 128, 32)] * 3, sdpa, dtypes=(torch.float32, torch.float16))
    def _(q, k, v, tma=tma):
        from jvp_flash_attention.jvp_attention import JVPAttn

        return JVPAttn.fwd(q, k, v, causal=True, USE_TMA=tma, warp_specialize=False)


@add(
    "jvp-flash-attention jvp",
    [rand(1, 2, 128, 32)] * 6,
    lambda q, k, v, a, b, c: tuple(
        torch.func.jvp(lambda q, k, v: ((q @ k.transpose(-1, -2)) / 32**0.5).softmax(-1) @ v, (q, k, v), (a, b, c))
    ),
    dtypes=f32,
    forward_only=True,
    tolerance=2.0,
)
def _(q, k, v, a, b, c):
    import torch.autograd.forward_ad as fa
    from jvp_flash_attention.jvp_attention import JVPAttn

    with fa.dual_level():
        r = fa.unpack_dual(
            JVPAttn.fwd_dual(*[fa.make_dual(x, y) for x, y in ((q, a), (k, b), (v, c))], warp_specialize=False)
        )
        return r.primal, r.tangent


def maxref(q, d):
    return torch.einsum("ald,bmd->ablm", q, d).amax(-1).sum(-1)


for how in ("unified", "lowmem"):

    @add(
        f"late-interaction maxsim {how}",
        [rand(3, 20, 64), rand(5, 70, 64)],
        maxref,
        dtypes=HALF,
    )
    def _(q, d, how=how):
        from late_interaction_kernels import maxsim

        return maxsim(q, d, backward=how)


@add(
    "late-interaction pairs",
    [rand(3, 20, 64), rand(3, 70, 64)],
    lambda q, d: torch.einsum("ald,amd->alm", q, d).amax(-1).sum(-1),
    dtypes=HALF,
)
def _(q, d):
    from late_interaction_kernels import maxsim_pairs

    return maxsim_pairs(q, d)


@add(
    "late-interaction varlen",
    [rand(30, 64), rand(90, 64)],
    lambda q, d: torch.stack(
        [
            torch.stack([(q[a:b] @ d[c:e].T).amax(1).sum() for c, e in ((0, 20), (20, 90))])
            for a, b in ((0, 10), (10, 30))
        ]
    ),
    dtypes=f32,
    tolerance=2.0,
)
def _(q, d):
    from late_interaction_kernels import maxsim_varlen

    return maxsim_varlen(
        q, d, torch.tensor([0, 10, 30], dtype=torch.int32), torch.tensor([0, 20, 90], dtype=torch.int32)
    )


@add(
    "lanczos resize",
    [tensor(lambda: torch.rand(1, 3, 20, 30))],
    lambda x: _lanczos(x, 12, 17),
    dtypes=f32,
    forward_only=True,
    tolerance=5.0,
)
def _(x):
    from lanczos_triton import resize

    return resize(x, (12, 17))


def _lanczos(x, oh, ow, a=3):
    def w(n, m):
        s = n / m
        k = max(s, 1.0)
        i = torch.arange(m, dtype=torch.float64)[:, None]
        j = torch.arange(n, dtype=torch.float64)[None]
        t = (j + 0.5 - (i + 0.5) * s) / k
        ww = torch.where(t.abs() < a, torch.sinc(t) * torch.sinc(t / a), 0.0)
        return (ww / ww.sum(1, keepdim=True)).float()

    return w(x.shape[2], oh) @ x @ w(x.shape[3], ow).T


@add(
    "torchao blockwise fp8 gemm",
    [rand(32, 256), rand(128, 256)],
    lambda a, b: a @ b.T,
    dtypes=f32,
    forward_only=True,
    tolerance=5e3,
)
def _(a, b):
    from torchao.kernel.blockwise_quantization import (
        blockwise_fp8_gemm,
        fp8_blockwise_act_quant,
        fp8_blockwise_weight_quant,
    )

    return blockwise_fp8_gemm(
        *fp8_blockwise_act_quant(a, 128), *fp8_blockwise_weight_quant(b.contiguous(), 128)
    ).float()


@add(
    "torchao mx fp4 cast",
    [tensor(lambda: torch.randint(-6, 7, (8, 64)).float())],
    lambda x: x.where(x.abs() != 5, x.sign() * 4),
    dtypes=f32,
    forward_only=True,
)
def _(x):
    from torchao.prototype.mx_formats.kernels import f4_unpacked_to_f32, f32_to_f4_unpacked

    return f4_unpacked_to_f32(f32_to_f4_unpacked(x))


for quant in ("nf4", "fp4"):

    @add(
        f"bitsandbytes 4bit {quant}",
        [rand(512)],
        lambda x: x,
        dtypes=f32,
        forward_only=True,
        tolerance=5e3,
    )
    def _(x, quant=quant):
        from bitsandbytes.backends.triton import ops

        q, a = ops.quantize_4bit(x, 64, quant, torch.uint8)
        return ops.dequantize_4bit(q, a, 64, quant, [512], x.dtype)


@add("bitsandbytes 8bit", [rand(512)], lambda x: x, dtypes=f32, forward_only=True, tolerance=2e3)
def _(x):
    from bitsandbytes.backends.triton import ops
    from bitsandbytes.functional import create_dynamic_map

    code = create_dynamic_map()
    q, a = ops.quantize_blockwise(x, code, 256)
    return ops.dequantize_blockwise(q, a, code, 256, x.dtype)


@add("mase bitflip p=0", [rand(8, 64)], lambda x: x, dtypes=f32, forward_only=True)
def _(x):
    from mase_triton.random_bitflip.functional import random_bitflip_fn

    r = random_bitflip_fn(x, exp_halves=None, frac_halves=None, seed_exp=1, seed_frac=2, zero_out_threshold=None)
    return r[0] if isinstance(r, tuple) else r


@add("adasplash entmax v1", [rand(8, 100)], lambda x: _entmax(x), dtypes=f32, forward_only=True, tolerance=50.0)
def _(x):
    from adasplash import triton_entmax_v1

    return triton_entmax_v1(x, alpha=1.5, n_iter=10, fast_math=False)


@add("adasplash entmax v2", [rand(8, 100)], lambda x: _entmax(x), dtypes=f32, forward_only=True, tolerance=50.0)
def _(x):
    from adasplash import triton_entmax_v2

    return triton_entmax_v2(x, alpha=1.5, n_iter=5)


@add(
    "adasplash v1",
    [rand(1, 2, 128, 32)] * 3,
    lambda q, k, v: _entmax((q @ k.transpose(-1, -2)) / 32**0.5) @ v,
    dtypes=f32,
    forward_only=True,
    tolerance=200.0,
)
def _(q, k, v):
    from adasplash import adasplash_v1

    return adasplash_v1(q, k, v, alpha=1.5, niter=15)


def _entmax(x):
    from entmax import entmax15

    return entmax15(x, -1)


IMPOSSIBLE = {
    "adasplash v2, torchao triton_to_mxfp8_dim1": "inline PTX, which the simulator refuses, naming the line",
    "torchao int_matmul": "its own autotuner measures hundreds of configurations, each of which must be compiled",
    "flash-attn-triton 0.1.1": "needs triton.tools.experimental_descriptor, which Triton 3.6 does not have",
    "tokenspeed-triton-kernels": "needs the Triton of its authors (triton.language.target_info.is_hip_gfx1250)",
    "hilbertsfc": "needs Python 3.12",
}


def cases():
    return CASES
