"""Quantized operands: fp8 and int8 matrices with fp32 scales, per tensor, per row, or per block.

An element stands for itself times its scale. ``"tensor"``: one scale. ``"row"``: one for each row of A, or of B
``[N, K]``, which is a column of the result. ``"block"``: one for 1 x 128 elements of A, and for 128 x 128 of B.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

import ditron.host as dh
from ditron.distributed.group import Group
from ditron.kernels.operands import QUANTIZED, SCALE_BLOCK, aligned, is_transposed, require_tensor
from ditron.kernels.tiles import MAX_REGISTERS
from ditron_compiler.errors import DitronError

__all__ = [
    "Scales",
    "check_scaling",
    "dequantized",
    "gathered_scales",
    "has_product",
    "prefers_product",
    "prefers_products_by_rank",
    "promote_every",
    "quantize_128x128",
    "scaled_product",
    "scales_in_shard",
    "scales_of",
    "tiles_of",
]

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
#: Operations of a product for each byte that a rank sends: with more, torch's product is ahead. With sums in fp32, that
#: of all rows, and a collective one after the other; with fast sums, those of each rank's rows, which hide the copies.
PAID_OPERATIONS, PAID_FAST_OPERATIONS = 23_000, 40_000

#: With sums in fp32, and fewer operations in all, the persistent kernel takes less than the host needs to enqueue a
#: product for each rank's rows (docs/results/tensor-parallel-quantized.md).
FEW_OPERATIONS = 1 << 38
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class Scales:
    """``a``: [1, 1], [M, 1] or [M, K / 128], ``b`` alike, of the kinds that are named, for matrices of ``dtype``."""

    a: torch.Tensor
    b: torch.Tensor
    kind_a: str
    kind_b: str
    use_fast_accum: bool
    dtype: torch.dtype
    out_dtype: torch.dtype = torch.bfloat16

    def for_kernel(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Flat, as kernels read them: block scales of A with those of one column of blocks together."""
        return aligned(self.a.t()).view(-1), aligned(self.b).view(-1)

    def for_products(self) -> tuple[torch.Tensor, torch.Tensor]:
        """As programs with a library's products take them: dense, and with the same alignment on every rank."""
        return aligned(self.a), aligned(self.b)

    def constants(self) -> dict[str, Any]:
        """Keyword arguments of a program."""
        return {"scale_a_kind": self.kind_a, "scale_b_kind": self.kind_b, "use_fast_accum": self.use_fast_accum}


def scales_of(
    what: str,
    group: Group,
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor | None,
    scale_b: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    use_fast_accum: bool,
) -> tuple[Scales | None, torch.dtype]:
    """The scales of matrices A and B ``[N, K]``, if those are quantized, and the dtype of their product.

    Raises DitronError for scales that do not fit the matrices.
    """
    scaling = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype, "use_fast_accum": use_fast_accum}
    check_scaling(what, a, scaling)
    if a.dtype not in QUANTIZED:
        return None, a.dtype
    if scale_a is None or scale_b is None:
        raise DitronError(
            f"{what}: expected matrices of one dtype, bfloat16, float16 or float32, or quantized ones with scale_a= "
            f"and scale_b= (torch.ones(1) for none), got {a.dtype} without"
        )
    if is_transposed(b):
        raise DitronError(
            f"{what}: b of {b.dtype} must be [N, K] with K contiguous, as tensor cores read it, and this one is the "
            "transpose of a row-major [K, N]: give b.contiguous()"
        )
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale.dtype != torch.float32 or scale.device != group.device:
            raise DitronError(f"{what}: {name} must be float32 on {group.device}, got {scale.dtype} on {scale.device}")
    dtype = out_dtype or torch.bfloat16
    if dtype not in OUT_DTYPES:
        raise DitronError(f"{what}: out_dtype must be bfloat16, float16 or float32, got {dtype}")
    (M, K), N = a.shape, b.shape[0]
    columns = -(-K // SCALE_BLOCK)
    kinds_a = _kinds(scale_a, [(M,), (M, 1)], (M, columns))
    kinds_b = _kinds(scale_b, [(N,), (N, 1), (1, N)], (-(-N // SCALE_BLOCK), columns))
    if not kinds_a:
        raise DitronError(
            f"{what}: scale_a must have one element, or shape [{M}] or [{M}, 1] for rows of a, or [{M}, {columns}] for "
            f"blocks of 1 x {SCALE_BLOCK}, got {tuple(scale_a.shape)}"
        )
    if not kinds_b:
        raise DitronError(
            f"{what}: scale_b must have one element, or shape [{N}] or [{N}, 1] for rows of b, or "
            f"[{-(-N // SCALE_BLOCK)}, {columns}] for blocks of {SCALE_BLOCK} x {SCALE_BLOCK}, "
            f"got {tuple(scale_b.shape)}"
        )
    fine = kinds_a[0], kinds_b[0]
    kind_a, kind_b = fine if "block" not in fine else (kinds_a[-1], kinds_b[-1])
    if (kind_a == "block") != (kind_b == "block"):
        raise DitronError(f"{what}: scale_a is per {kind_a} and scale_b per {kind_b}: blocks need blocks of both")
    return Scales(
        _matrix(scale_a, kind_a), _matrix(scale_b, kind_b), kind_a, kind_b, use_fast_accum, a.dtype, dtype
    ), dtype


def check_scaling(what: str, a: Any, options: dict[str, Any]) -> None:
    """Raise DitronError for scales that are no tensors, and options of quantized matrices where A is not one."""
    scales = {name: options[name] for name in ("scale_a", "scale_b") if options.get(name) is not None}
    for name, scale in scales.items():
        require_tensor(what, name, scale)
    out_dtype = options.get("out_dtype")
    if isinstance(a, torch.Tensor) and a.dtype not in QUANTIZED:
        if scales or (out_dtype is not None and out_dtype != a.dtype):
            raise DitronError(
                f"{what}: scale_a=, scale_b= and out_dtype= are for matrices of float8_e4m3fn, float8_e5m2 or int8, "
                f"got {a.dtype}"
            )
        if options.get("use_fast_accum"):
            raise DitronError(f"{what}: use_fast_accum= is for fp8 matrices with scale_a= and scale_b=, got {a.dtype}")
    elif out_dtype == torch.float32 and options.get("algorithm") == "overlapped":
        raise DitronError(
            f"{what}: algorithm='overlapped' takes bfloat16 or float16 matrices, or quantized ones with such a result: "
            "out_dtype must be bfloat16 or float16, got torch.float32"
        )


def _kinds(scale: torch.Tensor, by_row: list[tuple[int, ...]], by_block: tuple[int, int]) -> list[str]:
    """What a scale can be for, by its shape; of few elements, blocks can be rows too."""
    shape = tuple(scale.shape)
    fits = {"tensor": scale.numel() == 1, "row": shape in by_row, "block": shape == by_block}
    return [kind for kind, does in fits.items() if does]


def _matrix(scale: torch.Tensor, kind: str) -> torch.Tensor:
    return scale if kind == "block" else scale.reshape(-1, 1)


def scales_in_shard(kind: str, rows: Any, K: Any) -> Any:
    """How many scales, in a host program, a shard's rows of A have."""
    return {"none": 0, "tensor": 1, "row": rows, "block": rows * dh.cdiv(K, SCALE_BLOCK)}[kind]


def promote_every(dtype: torch.dtype, kind_a: str, block_k: int, products: int) -> int:
    """After how many steps, of so many ``products``, a sum goes from the tensor cores to fp32; 0: at the end.

    Hopper's tensor cores add fp8 products with 14 bits.
    """
    if dtype not in FP8 or kind_a in ("none", "block") or not products:
        return 0
    return max(1, products // block_k)


def gathered_scales(scales: Scales, rows: int, gather: Any) -> Scales:
    """Scales for the rows of A of all ranks; a rank's scale of its whole A becomes one for each of its ``rows``."""
    a = gather(scales.a)
    if scales.kind_a != "tensor":
        return replace(scales, a=a)
    return replace(scales, a=a.repeat_interleave(rows, 0), kind_a="row")


def tiles_of(what: str, scales: Scales, given: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a program for operands with scales, but for those ``given``, on GPUs.

    Sums that go from the tensor cores to fp32 need two accumulators, and smaller tiles for that: every 1024 products
    where the result is rounded to bfloat16, whose error is 1.05 times that of ``torch._scaled_mm`` then, every 128 for
    float16. Raises DitronError for blocks of scales that do not hold whole tiles.
    """
    tiles: dict[str, Any] = {"block": (128, 128, SCALE_BLOCK), "stages": 4}  # int8, and blocks
    if scales.dtype in FP8 and scales.kind_a != "block":
        tiles = {"block": (128, 128, 2 * SCALE_BLOCK), "stages": 3, "promoted_products": 1024}
        if scales.out_dtype == torch.float16:
            tiles = {"block": (128, 128, SCALE_BLOCK), "stages": 4, "promoted_products": SCALE_BLOCK}
        if scales.use_fast_accum:
            tiles = {"block": (128, 256, SCALE_BLOCK), "stages": 4 if what == "ag_gemm" else 3}
    _, *tile = given.get("block", tiles["block"])
    if scales.kind_a == "block" and any(SCALE_BLOCK % extent for extent in tile):
        raise DitronError(
            f"{what}: with scales of blocks, block must divide {SCALE_BLOCK} along N and K, got {given['block']}"
        )
    return tiles | scales.constants() | {"maxnreg": MAX_REGISTERS}


def has_product(a: torch.Tensor, b: torch.Tensor, scales: Scales) -> bool:
    """Whether torch has a product of such operands, of that result's dtype, on their device."""
    if not a.is_cuda or a.shape[1] % 16 or len(b) % 16:
        return False
    if scales.kind_a == "block":
        whole = a.shape[1] % (4 * SCALE_BLOCK) == 0 and len(b) % SCALE_BLOCK == 0
        whole &= scales.out_dtype == torch.bfloat16
        return whole and a.dtype == torch.float8_e4m3fn and torch.cuda.get_device_capability(a.device)[0] == 9
    return a.dtype == torch.float8_e4m3fn or a.dtype == torch.int8 and len(a) > 16


def prefers_product(scales: Scales, nbytes: int, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether torch's product, with a collective of ``nbytes`` that nothing hides, is ahead of the persistent kernel.

    That is as fast as torch where tensor cores add all products; where their sums go to fp32 it takes 1.3 times as
    long, and with scales of blocks twice, which hiding has to pay for (docs/results/tensor-parallel-quantized.md).
    """
    if not has_product(a, b, scales):
        return False
    if scales.kind_a == "block":
        return True
    return scales.dtype in FP8 and not scales.use_fast_accum and _operations(a, b, out) > PAID_OPERATIONS * nbytes


def prefers_products_by_rank(scales: Scales, nbytes: int, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether torch's products of each rank's rows, which hide what each rank sends, ``nbytes``, are ahead of the
    persistent kernel: of fp8, unless operations are few, or few a byte where tensor cores add all products.
    """
    if scales.dtype not in FP8 or not has_product(a, b, scales):
        return False
    if scales.kind_a == "block":
        return True
    operations = _operations(a, b, out)
    return operations > (PAID_FAST_OPERATIONS * nbytes if scales.use_fast_accum else FEW_OPERATIONS)


def _operations(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> int:
    """Of a product of all ranks' rows."""
    return 2 * max(len(a), len(out)) * a.shape[1] * len(b)


def scaled_product(
    a: torch.Tensor, b: torch.Tensor, scales: Scales, dtype: torch.dtype, out: torch.Tensor | None = None
) -> torch.Tensor:
    """A times the transpose of B ``[N, K]``, scaled: by torch's products where they take the operands."""
    out = torch.empty(len(a), len(b), dtype=dtype, device=a.device) if out is None else out
    if not has_product(a, b, scales):
        with torch.autocast(a.device.type, enabled=False):
            return out.copy_(dequantized(a, scales.a, scales.kind_a, 1) @ dequantized(b, scales.b, scales.kind_b).t())
    if a.dtype == torch.int8:
        return out.copy_(torch._int_mm(a, b.t()).float().mul_(scales.a).mul_(scales.b.t()))
    if scales.kind_a == scales.kind_b and dtype == torch.bfloat16:
        of_a = scales.a.t().contiguous().t() if scales.kind_a == "block" else aligned(scales.a)
        of_b = aligned(scales.b).t()  # cuBLAS takes no scales that begin elsewhere than at 16 bytes
        fast = scales.use_fast_accum and scales.kind_a != "block"
        return torch._scaled_mm(a, b.t(), scale_a=of_a, scale_b=of_b, out_dtype=dtype, use_fast_accum=fast, out=out)
    one, fast = torch.ones((), device=a.device), scales.use_fast_accum
    product = torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=fast)
    return out.copy_(product.mul_(scales.a).mul_(scales.b.t()))


def quantize_128x128(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights in fp8, and the scale of each 128 x 128 of their elements, as DeepSeek-V3's are.

    Args:
        w: ``[..., N, K]`` bfloat16, float16 or float32, K a multiple of 128.

    Returns float8_e4m3fn like ``w`` and float32 ``[..., N / 128, K / 128]``, rounded up: the largest of a block becomes
    448, and of zeros the scale is 1. By torch, on the device of ``w``. Raises DitronError for what is no such tensor.

        w13, scale_w13 = ditron.kernels.quantize_128x128(w13)
    """
    require_tensor("quantize_128x128", "w", w)
    if w.ndim < 2 or w.numel() == 0 or w.dtype not in OUT_DTYPES or w.shape[-1] % SCALE_BLOCK:
        raise DitronError(
            f"quantize_128x128: w must be [..., N, K] of bfloat16, float16 or float32 with K a multiple of "
            f"{SCALE_BLOCK}, got {tuple(w.shape)} of {w.dtype}"
        )
    *lead, N, K = w.shape
    blocks = torch.nn.functional.pad(w.detach().float(), (0, 0, 0, -N % SCALE_BLOCK))
    blocks = blocks.view(*lead, -1, SCALE_BLOCK, K // SCALE_BLOCK, SCALE_BLOCK)
    largest = blocks.abs().amax((-3, -1), keepdim=True)
    scale = largest / torch.finfo(torch.float8_e4m3fn).max
    scale = torch.where(scale == 0, 1.0, scale)  # of zeros, and of what is too small for a scale
    values = (blocks / scale).view(*lead, -1, K)[..., :N, :].to(torch.float8_e4m3fn)
    return values.contiguous(), scale.view(*lead, -1, K // SCALE_BLOCK)


def dequantized(x: torch.Tensor, scale: torch.Tensor, kind: str, block_rows: int = SCALE_BLOCK) -> torch.Tensor:
    """The elements times their scales, in fp32."""
    if kind == "block":
        scale = scale.repeat_interleave(block_rows, 0)[: len(x)].repeat_interleave(SCALE_BLOCK, 1)[:, : x.shape[1]]
    return x.float() * scale
