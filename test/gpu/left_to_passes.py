"""AG+GEMM and GEMM+RS as one would first write them: in one order, on no stream, with copies that are not needed.

What `eliminate-copies` and `assign-streams` make of them is run on GPUs by `check_programs.py`, and on the simulator by
`test/python/ditron/_program/test_pipeline_overlap.py`. One workspace and signals for done, so that they can be captured.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import ditron
import ditron.host as dh
from ditron_compiler import pipeline

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
from ag_gemm_ring import gemm_kernel  # noqa: E402
from gemm_rs_chunks import add_chunks_kernel  # noqa: E402


def gather_gemm(a, b, c, *, block=(128, 128, 64), num_warps=8, num_stages=3):
    """``c`` = all ranks' ``a``, one below the other, times ``b``: the own shard is copied to the others."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, K), N = a.shape, b.shape[1]
    workspace = dh.symm_empty(ranks * rows, K, dtype=a.dtype, name="workspace")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    block_m, block_n, block_k = block
    grid = (dh.cdiv(rows, block_m) * dh.cdiv(N, block_n),)
    for step in dh.range(1, ranks):
        dh.signal_wait(done[(rank + step) % ranks], epoch - 1)
    dh.all_gather(a, workspace, arrived, epoch)
    for step in dh.range(ranks):
        source = (rank + step) % ranks
        dh.signal_wait(arrived[source], epoch)
        part = slice(source * rows, (source + 1) * rows)
        gemm_kernel[grid](
            workspace[part],
            b,
            c[part],
            rows,
            N,
            K,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            num_warps=num_warps,
            num_stages=num_stages,
        )
    for step in dh.range(1, ranks):
        dh.signal_write(done[rank], epoch, (rank + step) % ranks)


def scatter_gemm(a, b, out, *, block=(128, 128, 64), num_warps=8, num_stages=3):
    """``out`` = this rank's rows of the sum of ``a @ b``: products are copied to an outbox, the sum out of scratch."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, N), K = out.shape, a.shape[1]
    inbox = dh.symm_empty(ranks, rows, N, dtype=out.dtype, name="inbox")
    product, outbox, own, total = (
        dh.empty(rows, N, dtype=out.dtype, name=name) for name in ("product", "outbox", "own", "total")
    )
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    block_m, block_n, block_k = block
    grid = (dh.cdiv(rows, block_m) * dh.cdiv(N, block_n),)

    def multiply(owner, result):
        gemm_kernel[grid](
            a[owner * rows : (owner + 1) * rows],
            b,
            result,
            rows,
            N,
            K,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            num_warps=num_warps,
            num_stages=num_stages,
        )

    for step in dh.range(1, ranks):
        owner = (rank + step) % ranks
        multiply(owner, product)
        dh.copy(product, outbox)
        dh.signal_wait(done[owner], epoch - 1)
        dh.rank_copy(outbox, inbox[rank], owner)
        dh.signal_write(arrived[rank], epoch, owner)
    multiply(rank, own)
    dh.copy(own, inbox[rank])
    for step in dh.range(1, ranks):
        dh.signal_wait(arrived[(rank + step) % ranks], epoch)
    add_chunks_kernel[(dh.cdiv(rows * N, 1024),)](inbox, total, ranks, rows * N, BLOCK=1024)
    dh.copy(total, out)
    for step in dh.range(1, ranks):
        dh.signal_write(done[rank], epoch, (rank + step) % ranks)


RING: pipeline.Pipeline = ("decompose-ring", *pipeline.OVERLAP)


def _program(body, passes, rows):
    def check(ranks):
        return {
            name: f"bf16[{20 * ranks if name in rows else 20 if name != 'b' else 16}, 16]"
            for name in body.__code__.co_varnames[:3]
        } | {"block": (16, 16, 16)}

    return ditron.program(body, passes=passes, sample_args=check, max_nodes=1)


#: Name -> program; the first two as they are written.
PROGRAMS = {
    "gather_gemm": _program(gather_gemm, pipeline.HOST, "c"),
    "scatter_gemm": _program(scatter_gemm, pipeline.HOST, "a"),
    "gather_gemm, overlap": _program(gather_gemm, pipeline.OVERLAP, "c"),
    "gather_gemm, ring and overlap": _program(gather_gemm, RING, "c"),
    "scatter_gemm, overlap": _program(scatter_gemm, pipeline.OVERLAP, "a"),
}
