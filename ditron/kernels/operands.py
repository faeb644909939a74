"""What the operators' functions ask of their tensors, and how they size the memory that a program keeps."""

from __future__ import annotations

import torch

from ditron.distributed.group import Group, require_group
from ditron.distributed.torch_groups import AnyGroup, as_group
from ditron_compiler.errors import DitronError

__all__ = [
    "DTYPES",
    "QUANTIZED",
    "SCALE_BLOCK",
    "aligned",
    "bias_of",
    "capacity_for",
    "grouped_operands",
    "in_group",
    "is_transposed",
    "matrices",
    "reaches_by_tma",
    "require_tensor",
    "result",
    "vector_operand",
    "weight_layout",
]

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SCALE_BLOCK = 128  # elements along K, and rows of a weight, that share a scale of blocks
QUANTIZED = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8)


def in_group(group: AnyGroup, what: str) -> Group:
    """``group``, or the current one; programs run in it within ``with in_group(...) as group``."""
    return as_group(require_group(None, f"ditron.kernels.{what}()") if group is None else group)


def capacity_for(extent: int) -> int:
    """``extent`` rounded up to a power of two, at least 64: calls of many sizes share few allocations.

    (Those whose extents are divisible by 16 are compiled, and have memory, apart from the others.)
    """
    return max(64, 1 << (extent - 1).bit_length())


def require_tensor(what: str, name: str, value: object) -> None:
    """Raise DitronError for what is no tensor."""
    if not isinstance(value, torch.Tensor):
        raise DitronError(f"{what}: {name} must be a tensor, got {type(value).__name__}")
    if value.layout != torch.strided:
        raise DitronError(f"{what}: {name} must be a dense tensor, got one of {value.layout}: give its to_dense()")


def matrices(
    what: str, group: Group, *, quantized: bool = False, is_local: bool = False, **tensors: torch.Tensor
) -> None:
    """Raise DitronError unless all are matrices of one dtype, which may be a quantized one, on the group's device; of
    the same shapes on every rank, as far as that is known, unless the operator ``is_local``.
    """
    for name, tensor in tensors.items():
        require_tensor(what, name, tensor)
    first = next(iter(tensors.values()))
    for name, tensor in tensors.items():
        if tensor.ndim != 2 or tensor.numel() == 0:
            raise DitronError(f"{what}: {name} must be a matrix with elements, got shape {tuple(tensor.shape)}")
        if tensor.dtype != first.dtype or tensor.dtype not in (DTYPES + QUANTIZED if quantized else DTYPES):
            with_scales = ", or float8_e4m3fn, float8_e5m2 or int8 with scales" if quantized else ""
            beside = "" if tensor.dtype == first.dtype else f" beside {first.dtype}"
            raise DitronError(
                f"{what}: expected matrices of one dtype, bfloat16, float16 or float32{with_scales}, got {name} of "
                f"{tensor.dtype}{beside}"
            )
        if tensor.device != group.device:
            raise DitronError(f"{what}: {name} is on {tensor.device}, and this rank's device is {group.device}")
    if not is_local:
        group.require_same(what, {name: list(tensor.shape) for name, tensor in tensors.items()})


def grouped_operands(
    what: str,
    group: Group,
    name: str,
    a: torch.Tensor,
    w: torch.Tensor,
    scale_a: torch.Tensor | None = None,
    scale_w: torch.Tensor | None = None,
) -> None:
    """Raise DitronError unless ``a`` [rows, K], called ``name``, and experts' matrices ``w`` [experts, N, K] fit, and,
    if they are of fp8, their scales.
    """
    dtypes = (torch.bfloat16, torch.float16, torch.float8_e4m3fn)
    for which, tensor, dims in ((name, a, 2), ("w", w, 3)):
        require_tensor(what, which, tensor)
        if tensor.ndim != dims or tensor.numel() == 0 or tensor.dtype not in dtypes:
            raise DitronError(
                f"{what}: {which} must have {dims} dimensions and be bfloat16 or float16, or float8_e4m3fn with "
                f"scales, got {tuple(tensor.shape)} of {tensor.dtype}"
            )
        if tensor.device != group.device:
            raise DitronError(f"{what}: {which} is on {tensor.device}, and this rank's device is {group.device}")
    (rows, K), (experts, N, _) = a.shape, w.shape
    if w.shape[2] != K or w.dtype != a.dtype:
        raise DitronError(
            f"{what}: {name} is [{rows}, {K}] of {a.dtype}: expected w to be [{experts}, {N}, {K}] of it too, got "
            f"{tuple(w.shape)} of {w.dtype}"
        )
    if N * max(2, w.itemsize) % 16 or K * w.itemsize % 16:
        raise DitronError(
            f"{what}: w is [{experts}, {N}, {K}] of {w.dtype}: expected rows of a multiple of 16 bytes, and as many of "
            "them that a result's rows have that too"
        )
    blocks = -(-N // SCALE_BLOCK), -(-K // SCALE_BLOCK)
    _block_scales(
        what, group, a, {f"scale_{name}": (scale_a, (rows, blocks[1])), "scale_w": (scale_w, (experts, *blocks))}
    )


def _block_scales(
    what: str, group: Group, a: torch.Tensor, scales: dict[str, tuple[torch.Tensor | None, tuple[int, ...]]]
) -> None:
    """Raise DitronError unless the scales, by name, have the shapes they have to, if ``a`` is of fp8, or are None."""
    for name, (scale, shape) in scales.items():
        if a.dtype != torch.float8_e4m3fn:
            if scale is not None:
                raise DitronError(f"{what}: {name}= is for tensors of float8_e4m3fn, got {a.dtype}")
            continue
        if scale is None:
            raise DitronError(f"{what}: tensors of float8_e4m3fn need {name}=, {list(shape)} of float32")
        require_tensor(what, name, scale)
        if tuple(scale.shape) != shape or scale.dtype != torch.float32 or scale.device != group.device:
            raise DitronError(
                f"{what}: {name} must be {list(shape)} of float32 on {group.device}, a scale for {SCALE_BLOCK} "
                f"elements along K, got {list(scale.shape)} of {scale.dtype} on {scale.device}"
            )
    if a.dtype == torch.float8_e4m3fn and a.shape[1] % SCALE_BLOCK:
        raise DitronError(f"{what}: K of float8_e4m3fn must be a multiple of {SCALE_BLOCK}, got {a.shape[1]}")


def vector_operand(what: str, group: Group, x: torch.Tensor, *, quantized: bool = False) -> None:
    """Raise DitronError unless a collective can take the tensor, whose dtype may be a quantized one."""
    require_tensor(what, "the operand", x)
    if x.numel() == 0 or x.ndim == 0:
        raise DitronError(f"{what}: expected a tensor with elements and a dimension, got shape {tuple(x.shape)}")
    if x.dtype not in (DTYPES + QUANTIZED if quantized else DTYPES):
        with_quantized = ", float8_e4m3fn, float8_e5m2 or int8" if quantized else ""
        raise DitronError(f"{what}: expected bfloat16, float16 or float32{with_quantized}, got {x.dtype}")
    if x.device != group.device:
        raise DitronError(f"{what}: the tensor is on {x.device}, and this rank's device is {group.device}")
    group.require_same(what, {"the operand": list(x.shape)})


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or a copy that is contiguous and begins at a multiple of 16 bytes.

    A program keeps memory per alignment of its arguments, and ranks that use different ones wait for each other.
    """
    dense = tensor.contiguous()
    return dense if dense.data_ptr() % 16 == 0 else dense.clone()


def weight_layout(b: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """A contiguous matrix with the elements of ``b`` [N, K], and whether it is its transpose [K, N]."""
    return (aligned(b.t()), True) if is_transposed(b) else (aligned(b), False)


def is_transposed(b: torch.Tensor) -> bool:
    """Whether a matrix is the transpose of a row-major one."""
    return b.stride(1) != 1 and b.stride(0) == 1 and b.t().is_contiguous()


def result(
    what: str,
    shape: tuple[int, ...],
    like: torch.Tensor,
    out: torch.Tensor | None,
    /,
    dtype: torch.dtype | None = None,
    called: str = "out",
    **others: torch.Tensor | None,
) -> torch.Tensor:
    """``out`` if the operator can write it, which overlaps none of the ``others`` in memory, or a new tensor.

    Of the dtype of ``like`` if none is given. ``called``: the argument's name.
    """
    dtype = dtype or like.dtype
    if out is None:
        return torch.empty(shape, dtype=dtype, device=like.device)
    require_tensor(what, called, out)
    if tuple(out.shape) != shape or out.dtype != dtype or out.device != like.device or not out.is_contiguous():
        raise DitronError(
            f"{what}: {called} must be contiguous, of shape {shape} and {dtype} on {like.device}, got "
            f"{tuple(out.shape)} of {out.dtype} on {out.device}"
        )
    if out.data_ptr() % 16:
        raise DitronError(
            f"{what}: {called} must begin at a multiple of 16 bytes, and this view begins at {out.data_ptr()}"
        )
    if out.is_meta:  # nothing of it is in memory
        return out
    begin, end = _span(out)
    for name, other in others.items():
        if other is not None and other.device == out.device and _span(other)[0] < end and begin < _span(other)[1]:
            raise DitronError(f"{what}: {called} overlaps {name} in memory: give it a tensor of its own")
    return out


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Where a tensor begins and ends."""
    if tensor.is_contiguous():
        return (begin := tensor.data_ptr()), begin + tensor.nbytes
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.itemsize


def bias_of(what: str, like: torch.Tensor, N: int, bias: torch.Tensor | None) -> None:
    """Raise DitronError unless there is no bias, or one of ``N`` elements like those of the result."""
    if bias is not None:
        require_tensor(what, "bias", bias)
    if bias is not None and (tuple(bias.shape) != (N,) or bias.dtype != like.dtype or bias.device != like.device):
        raise DitronError(
            f"{what}: bias must be [{N}] of {like.dtype} on {like.device}, got {tuple(bias.shape)} of {bias.dtype} on "
            f"{bias.device}"
        )


def reaches_by_tma(*tensors: torch.Tensor) -> bool:
    """Whether TMA can address these row-major matrices: rows and base on multiples of 16 bytes."""
    return all(t.shape[-1] * t.itemsize % 16 == 0 and t.data_ptr() % 16 == 0 for t in tensors)
