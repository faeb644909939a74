"""gemlite: products with quantized weights, every kernel, against the weights in float32."""

import torch
from harness import Case, given, rand

AS_CUDA = True
N, K = 256, 512
KERNELS = {1: ("GEMV", "GEMV_REVSPLITK", "GEMV_SPLITK", "GEMM_SPLITK"), 32: ("GEMM_SPLITK", "GEMM")}
HALF = (torch.float16, torch.bfloat16)
CASES = {}


def _grouped(bits, dtype, group=64):
    """A layer of ``bits``-bit weights with a scale and a zero for each group, and its weight."""
    from gemlite.helper import A16Wn

    torch.manual_seed(1)
    quantized = torch.randint(0, 2**bits, (N, K), dtype=torch.uint8)
    scales = (torch.rand(N * K // group, 1) * 0.1 + 0.01).to(dtype)
    zeros = torch.full_like(scales, 2.0 ** (bits - 1))
    weight = ((quantized.view(-1, group).float() - zeros.float()) * scales.float()).view(N, K)
    return A16Wn(device="cuda:0", dtype=dtype).from_weights(quantized, scales, zeros, bits, group), weight


def _layer(name, dtype, **options):
    """A layer that a processor of the package makes of a plain one, and the weight of that."""
    import gemlite.helper

    torch.manual_seed(1)
    plain = torch.nn.Linear(K, N, bias=False, dtype=dtype)
    weight = plain.weight.data.clone()
    return getattr(gemlite.helper, name)(device="cuda:0", dtype=dtype, **options).from_linear(plain, False), weight


def _ternary(name, dtype):
    import gemlite.helper

    torch.manual_seed(1)
    weight = torch.randint(-1, 2, (N, K)).to(dtype)
    layer = getattr(gemlite.helper, name)(device="cuda:0", dtype=dtype)
    return layer.from_weights(weight.clone(), torch.tensor([0.5])), weight * 0.5


def _add(name, make, rows, kernel=None, tolerance=1.0, dtypes=HALF[:1]):
    def ours(x):
        layer = make(x.dtype)[0]
        return layer.forward_manual(x, kernel) if kernel else layer(x)

    def plain(x, dtype=dtypes[0]):
        return x @ make(dtype)[1].float().T

    CASES[f"{name} {rows} rows" + f" {kernel}" * bool(kernel)] = Case(
        given(rand(rows, K)), ours, plain, dtypes=dtypes, forward_only=True, tolerance=tolerance
    )


for rows, kernels in KERNELS.items():
    for kernel in kernels:
        for bits in (8, 4, 2, 1):
            _add(f"A16W{bits}", lambda dtype, bits=bits: _grouped(bits, dtype), rows, kernel)
        _add("A16W4 of bfloat16", lambda dtype: _grouped(4, dtype), rows, kernel, dtypes=HALF[1:])
    # What is compared with is the weight before it was quantized: the bounds are those of so many bits.
    for name, tolerance in (
        ("A16W8_INT8", 10), ("A16W8_FP8", 30), ("A8W8_int8_dynamic", 15), ("A8W8_fp8_dynamic", 40),
        ("A16W8_MXFP", 40), ("A16W4_MXFP", 100), ("A16W4_NVFP", 100), ("A8W8_MXFP_dynamic", 40),
        ("A8W4_MXFP_dynamic", 100), ("A4W4_MXFP_dynamic", 130),
    ):  # fmt: skip
        _add(name, lambda dtype, name=name: _layer(name, dtype), rows, tolerance=tolerance)
    for name, tolerance in (("A8W8_int8_dynamic", 15), ("A8W8_fp8_dynamic", 40)):
        make = lambda dtype, name=name: _layer(name, dtype, block_quant=True)  # noqa: E731
        _add(f"{name} of blocks", make, rows, tolerance=tolerance)
    for name, tolerance in (("A16W158_INT", 1), ("A8W158_INT_dynamic", 15)):
        _add(name, lambda dtype, name=name: _ternary(name, dtype), rows, tolerance=tolerance)

IMPOSSIBLE = {
    "A4W4_NVFP_dynamic": "a race in its barrier of all programs, by which one waits for ever: the last to arrive "
    "writes -1 and then 0 to what the others poll; reported as a deadlock",
}


def cases():
    return CASES
