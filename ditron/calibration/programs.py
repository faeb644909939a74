"""Host programs around the kernels, called alike on GPUs and on the simulator with its clock."""

from __future__ import annotations

from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
from ditron.calibration import kernels
from ditron.kernels.exchange import packet_boxes
from ditron.kernels.tiles import shards_descriptor
from ditron_compiler.analysis.packet_layout import packet_bytes

__all__ = [
    "barriers_program",
    "copies_program",
    "elements_program",
    "launch_program",
    "local_copy_program",
    "packet_sum_program",
    "packets_program",
    "product_program",
    "signals_program",
    "stores_program",
    "tma_program",
    "turns_program",
]


@ditron.program
def launch_program(x, y, *, block):
    """``y`` [n] = ``x`` [n] + the number of the call; a program for each block."""
    kernels.small_kernel[(dh.cdiv(x.shape[0], block),)](x, y, dh.epoch(), BLOCK=block)


@ditron.program
def packet_sum_program(x, out, *, block=512, protocol="ll", num_warps=4):
    """``out`` [n] = the sum over ranks of ``x`` [n], by packets of ``"ll"`` or ``"ll128"``."""
    n = x.shape[0]
    blocks = dh.cdiv(n, block)
    boxes = packet_boxes(blocks, block, x.dtype)
    kernels.packet_sum_kernel[(blocks,)](
        x, out, boxes, n, dh.epoch(), BLOCK=block, PROTOCOL=protocol, num_warps=num_warps
    )


@ditron.program
def turns_program(*, turns):
    """Two programs of one launch signal each other, ``turns`` times each."""
    signals = dh.symm_zeros(2, dtype=torch.int64, name="signals")
    kernels.turns_kernel[(2,)](signals, dh.epoch(), TURNS=turns)


@ditron.program
def signals_program(*, count):
    """A stream writes a signal of its own rank ``count`` times."""
    signal = dh.symm_zeros(1, dtype=torch.int64, name="signal")
    for _ in range(count):
        dh.signal_write(signal[0], dh.epoch(), dh.rank())


@ditron.program
def local_copy_program(x, y, *, block, programs, num_warps):
    """``y`` [n] = ``x`` [n], by stores of ``programs``."""
    kernels.copy_kernel[(programs,)](x, y, x.shape[0], BLOCK=block, num_warps=num_warps)


@ditron.program
def elements_program(x, y, *, special, times, block=4096):
    """``y`` [n] = ``times`` exponentials, or multiply-adds, of each element of ``x``."""
    n = x.shape[0]
    kernels.element_kernel[(dh.cdiv(n, block),)](x, y, n, SPECIAL=special, TIMES=times, BLOCK=block)


@ditron.program
def product_program(a, b, c, *, programs, block=(128, 256, 64), group_m=8, num_warps=8, stages=4):
    """``c`` [M, N] = ``a`` [M, K] times ``b`` [N, K] transposed."""
    (M, K), N = a.shape, b.shape[0]
    BM, BN, BK = block
    kernels.product_kernel[(programs,)](
        shards_descriptor(a, 1, M, K, (BM, BK)),
        TensorDescriptor.from_tensor(b, [BN, BK]),
        shards_descriptor(c, 1, M, N, (BM, BN // 2)),
        M,
        N,
        K,
        dh.epoch(),
        BM=BM,
        BN=BN,
        BK=BK,
        GROUP=group_m,
        PROGRAMS=programs,
        num_warps=num_warps,
        num_stages=stages,
    )


def _right() -> Any:
    return (dh.rank() + 1) % dh.num_ranks()


@ditron.program
def copies_program(x):
    """The rows of ``x`` [pieces, n], each by a copy engine, one after the other, to the right neighbour."""
    box = dh.symm_empty(*x.shape, dtype=x.dtype, name="box")
    for piece in dh.range(x.shape[0]):
        dh.rank_copy(x[piece], box[piece], _right())


@ditron.program
def stores_program(x, *, programs, block, num_warps, pull=False):
    """``x`` [n] to the right neighbour by stores; with ``pull``, from the left one by loads."""
    box = dh.symm_empty(*x.shape, dtype=x.dtype, name="box")
    kernel = kernels.load_pull if pull else kernels.store_push
    kernel[(programs,)](x, box, x.shape[0], BLOCK=block, num_warps=num_warps)


@ditron.program
def tma_program(x, *, programs, add):
    """``x`` [n] to the right neighbour by TMA, stored or added."""
    box = dh.symm_empty(*x.shape, dtype=x.dtype, name="box")
    kernels.tma_push[(programs,)](x, box, x.shape[0], ROWS=32, COLS=256, STAGES=4, ADD=add, num_warps=4)


@ditron.program
def packets_program(x, *, programs, block, num_warps):
    """``x`` [n] to the right neighbour, as LL128 packets that nobody takes."""
    blocks = dh.cdiv(x.shape[0], block)
    packets = dh.symm_zeros(blocks * (packet_bytes(2 * block) // 8), dtype=torch.int64, name="packets")
    kernels.packet_push[(programs,)](
        x, packets, x.shape[0], dh.epoch(), BLOCK=block, PROTOCOL="ll128", num_warps=num_warps
    )


@ditron.program
def barriers_program(*, count):
    """``count`` barriers of all ranks' streams."""
    for _ in range(count):
        dh.barrier()
