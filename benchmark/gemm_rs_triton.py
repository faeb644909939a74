"""GEMM+RS in stock Triton: the kernel counts its tiles, a stream waits for the counts and pushes. See gemm_rs.py."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ag_gemm_triton import BK, BM, BN, WAIT32, WRITE32, WRITE64, Symmetric, copy, stream_operations
from gemm_kernels import add_count, position, store_tile, wait_signal

# A tile on its way to its owner stays as the accumulator's registers hold it: eight bf16 that a thread has side by side
# are 16 bytes in memory, and a warp's are 512. Both ends run the same kernel, so no layout is changed, no shared memory
# is used, and no TMA store has to complete.


@triton.jit
def fragment_addresses(tile_ptr, BM: tl.constexpr, BN: tl.constexpr):
    """Where the elements of a wgmma accumulator of 8 warps lie, 16 rows to a warp."""
    r, c = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    vector = ((r // 16) * (BN // 16) + c // 16) * 32 + (r % 8) * 4 + (c % 8) // 2
    offsets = vector * 16 + (c // 8 % 2) * 8 + (r // 8 % 2) * 4 + (c % 2) * 2
    return tile_ptr.to(tl.int64, bitcast=True) + offsets.to(tl.int64)


@triton.jit
def store_fragments(tile_ptr, acc):
    tl.inline_asm_elementwise(
        "st.global.v4.b32 [$2], {$10, $11, $12, $13}; mov.b32 $0, 0; mov.b32 $1, 0;",
        "=r,=r,l,l,l,l,l,l,l,l,r,r,r,r",
        [fragment_addresses(tile_ptr, acc.shape[0], acc.shape[1]), acc.to(tl.bfloat16)],
        dtype=tl.int8,
        is_pure=False,
        pack=8,
    )


@triton.jit
def load_fragments(tile_ptr, like):
    return tl.inline_asm_elementwise(
        "ld.global.v4.b32 {$0, $1, $2, $3}, [$4];",
        "=r,=r,=r,=r,l,l,l,l,l,l,l,l,f,f,f,f,f,f,f,f",
        [fragment_addresses(tile_ptr, like.shape[0], like.shape[1]), like],
        dtype=tl.bfloat16,
        is_pure=False,
        pack=8,
    ).to(tl.float32)


@triton.jit
def scattered_gemm(
    a_desc,
    b_desc,
    c_desc,
    outbox_ptr,
    inbox_ptr,
    count_ptr,
    signal_ptr,
    M,
    N,
    K,
    own,
    per_piece,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SHARDS: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """The own shard of the sum over all ranks of A @ B.T goes to C [M/SHARDS, N], the others to the outbox.

    Shards go from rank ``own + 1`` on, the own one last. A tile of another shard is counted in the K loop of the next
    tile, when its stores have long completed; an own one waits for the others' parts, which it adds in fp32.
    """
    tiles_n = tl.cdiv(N, BN)
    tiles_m = M // SHARDS // BM
    k_tiles = tl.cdiv(K, BK)
    pieces = tiles_m // per_piece
    here = -1
    for tile in tl.range(tl.program_id(0), tiles_m * SHARDS * tiles_n, PROGRAMS, flatten=True):
        shard, m, n = position(tile, tiles_m, tiles_n, own + 1, SHARDS, GROUP)
        row = (shard * tiles_m + m) * BM
        before = here
        here = tl.where(shard == own, -1, shard * pieces + m // per_piece)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(k_tiles):
            a = a_desc.load([row, k * BK])
            b = b_desc.load([n * BN, k * BK])
            acc = tl.dot(a, b.T, acc)
            if (k == 4) & (before >= 0):
                add_count(count_ptr + before)
        if shard == own:
            for other in tl.static_range(SHARDS - 1):
                part_ptr = inbox_ptr + ((other * tiles_m + m) * tiles_n + n).to(tl.int64) * (BM * BN)
                part_ptr += wait_signal(signal_ptr + other * pieces + m // per_piece, 1)
                acc += load_fragments(part_ptr, acc)
            store_tile(c_desc, m * BM, n * BN, acc, BN, True)
        else:
            store_fragments(outbox_ptr + ((shard * tiles_m + m) * tiles_n + n).to(tl.int64) * (BM * BN), acc)
    if here >= 0:
        add_count(count_ptr + here)


class GemmReduceScatter:
    """Own rows of the sum over ranks of A @ B.T; A is [M, K], B is [N, K], N a multiple of a tile.

    Shards travel in ``pieces``, into halves by parity. Signals are 1 when a piece is there, and cleared in the next
    call before this rank sends anything; counters are cleared by the stream that waited. A graph must hold an even
    number of calls.
    """

    def __init__(self, memory: Symmetric, a, b, pieces=2, group=8):
        assert b.shape[0] % BN == 0
        self.memory, self.pieces, self.group = memory, pieces, group
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        (self.M, self.K), self.N = a.shape, b.shape[0]
        self.programs = torch.cuda.get_device_properties(b.device).multi_processor_count
        self.tiles_m, self.tiles_n = self.M // self.ranks // BM, self.N // BN
        self.parity, self.area = 0, memory.area()
        self.outbox = torch.empty(self.M * self.N, dtype=a.dtype, device=a.device)
        self.counts = torch.zeros(self.ranks * pieces, dtype=torch.int32, device=a.device)
        self.b_desc = TensorDescriptor.from_tensor(b, [BN, BK])
        self.use(a, torch.empty(self.M // self.ranks, self.N, dtype=a.dtype, device=a.device))

    def use(self, a: torch.Tensor, c: torch.Tensor) -> None:
        self.a, self.c = a, c
        self.a_desc = TensorDescriptor.from_tensor(a, [BM, BK])
        self.c_desc = TensorDescriptor.from_tensor(c, [BM, BN // 2])

    def signal(self, half: int, sender: int, owner: int, piece: int = 0) -> int:
        """Its number among all signals of the owner; senders count from the owner on."""
        return self.area + half * Symmetric.SIGNALS + ((sender - owner - 1) % self.ranks) * self.pieces + piece

    def launch(self, half: int, signals: torch.Tensor) -> None:
        memory = self.memory
        scattered_gemm[(self.programs,)](
            self.a_desc,
            self.b_desc,
            self.c_desc,
            self.outbox,
            memory.workspace[half * memory.half :].view(self.a.dtype),
            self.counts,
            signals,
            self.M,
            self.N,
            self.K,
            self.rank,
            self.tiles_m // self.pieces,
            BM=BM,
            BN=BN,
            BK=BK,
            GROUP=self.group,
            SHARDS=self.ranks,
            PROGRAMS=self.programs,
            num_stages=4,
            num_warps=8,
        )

    def push(self, half: int, ready: torch.cuda.Event | None = None, wait: bool = True) -> None:
        memory, shard = self.memory, self.M // self.ranks * self.N * 2
        part, tiles = shard // self.pieces, self.tiles_m // self.pieces * self.tiles_n
        operations: list[tuple[int, int, int]] = []  # before the next copy
        for step in range(1, self.ranks):
            owner = (self.rank + step) % self.ranks
            inbox = memory.workspaces[owner] + half * memory.half + (self.rank - owner - 1) % self.ranks * shard
            for piece in range(self.pieces):
                if wait:
                    count = self.counts.data_ptr() + 4 * (owner * self.pieces + piece)
                    operations += [(WAIT32, count, tiles), (WRITE32, count, 0)]
                stream_operations(memory.copies, operations)
                copy(memory.copies, inbox + piece * part, self.outbox.data_ptr() + owner * shard + piece * part, part)
                if ready is not None:
                    memory.copies.wait_event(ready)
                    ready = None
                signal = memory.signal_ptrs[owner] + 8 * self.signal(half, self.rank, owner, piece)
                operations = [(WRITE64, signal, 1)]
        stream_operations(memory.copies, operations)

    def __call__(self) -> torch.Tensor:
        half, memory, stream = self.parity, self.memory, torch.cuda.current_stream()
        self.parity ^= 1
        memory.copies.wait_stream(stream)
        memory.resets.wait_stream(stream)
        before = [
            self.signal(1 - half, (self.rank + step) % self.ranks, self.rank, piece)
            for step in range(1, self.ranks)
            for piece in range(self.pieces)
        ]
        stream_operations(memory.resets, [(WRITE64, memory.signals.data_ptr() + 8 * number, 0) for number in before])
        ready = memory.resets.record_event()
        self.launch(half, memory.signals[self.area + half * Symmetric.SIGNALS :])
        self.push(half, ready)
        stream.wait_stream(memory.copies)
        return self.c
