"""AG+GEMM in stock Triton: the kernel of gemm_kernels.py behind pushes into symmetric memory. See ag_gemm.py."""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gemm_kernels

BM, BN, BK = 128, 256, 64


@functools.cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def call(function: str, *args: object) -> None:
    """A function of the CUDA driver; raises with the name of its error."""
    cuda = driver()
    code = getattr(cuda, function)(*args)
    if code:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(name))
        raise RuntimeError(f"{function}: {name.value.decode() if name.value else code}")


class _Operation(ctypes.Structure):
    """CUstreamBatchMemOpParams, for a wait or a write."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
    ]


WAIT32, WRITE32, WAIT64, WRITE64 = 1, 2, 4, 5  # CUstreamBatchMemOpType; a wait is for at least the value


def stream_operations(stream: torch.cuda.Stream, operations: list[tuple[int, int, int]]) -> None:
    """(kind, address, value) in this order, as one item of the stream, or one node of a graph; no SM is needed."""
    if operations:
        array = (_Operation * len(operations))(*(_Operation(*operation) for operation in operations))
        call("cuStreamBatchMemOp_v2", ctypes.c_void_p(stream.cuda_stream), len(operations), array, 0)


def copy(stream: torch.cuda.Stream, target: int, source: int, nbytes: int) -> None:
    call(
        "cuMemcpyDtoDAsync_v2",
        ctypes.c_uint64(target),
        ctypes.c_uint64(source),
        ctypes.c_size_t(nbytes),
        ctypes.c_void_p(stream.cuda_stream),
    )


class Symmetric:
    """Two halves of a workspace, and signals of operators, at the same place on every rank."""

    SIGNALS = 64  # of one half of one operator

    def __init__(self, nbytes: int, operators: int = 64):
        device = torch.device("cuda", torch.cuda.current_device())
        self.half = nbytes
        self.workspace = symm_mem.empty(2 * nbytes, dtype=torch.uint8, device=device)
        self.signals = symm_mem.empty(2 * self.SIGNALS * operators, dtype=torch.int64, device=device)
        self._workspaces = symm_mem.rendezvous(self.workspace, group=dist.group.WORLD)
        self._signals = symm_mem.rendezvous(self.signals, group=dist.group.WORLD)
        self.workspaces, self.signal_ptrs = self._workspaces.buffer_ptrs, self._signals.buffer_ptrs
        self.partials = torch.empty(1024 * BM * BN, dtype=torch.float32, device=device)
        self.counts = torch.zeros(2048, dtype=torch.int32, device=device)
        self.copies, self.resets = torch.cuda.Stream(priority=-1), torch.cuda.Stream(priority=-1)
        self.operators = 0
        self.clear()

    def clear(self) -> None:
        """No signal is set, and all areas for operators are free. Nothing may be in flight."""
        self.operators = 0
        self.signals.zero_()
        torch.cuda.synchronize()
        dist.barrier()

    def workspace_of(self, peer: int) -> torch.Tensor:
        return self._workspaces.get_buffer(peer, self.workspace.shape, self.workspace.dtype)

    def signals_of(self, peer: int) -> torch.Tensor:
        return self._signals.get_buffer(peer, self.signals.shape, self.signals.dtype)

    def area(self) -> int:
        self.operators += 1
        return 2 * self.SIGNALS * (self.operators - 1)


class AllGatherGemm:
    """C = all_gather(A) @ B.T. Shards are pushed by the copy engine, nearest needer first, into halves by parity.

    Signals are set to 1, and cleared in the next call, before this rank sends anything that lets a peer go on to the
    call that sets them again: no epoch, so that a captured call is the eager one. A shard has ``pieces`` signals, each
    after a copy; or it is pushed by ``pushers`` programs of a kernel, on SMs of their own.
    ``splits``: programs that share the K of a tile, from tile ``whole`` on. A graph must hold an even number of calls.
    """

    def __init__(self, memory: Symmetric, a, b, pieces=1, whole=None, splits=1, group=8, pushers=0):
        self.memory, self.b, self.group, self.pieces, self.pushers = memory, b, group, pieces, pushers
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.M, self.K, self.N = a.shape[0] * self.ranks, b.shape[1], b.shape[0]
        self.programs = torch.cuda.get_device_properties(b.device).multi_processor_count - pushers
        self.tiles_m = self.M // self.ranks // BM
        tiles = self.M // BM * triton.cdiv(self.N, BN)
        self.splits, self.whole = splits, tiles if splits == 1 else whole
        self.parity, self.area = 0, memory.area()
        workspaces = [memory.workspace[p * memory.half :][: self.M * self.K * 2] for p in (0, 1)]
        self.gathered = [self.rows(w.view(torch.bfloat16).view(self.M, self.K)) for w in workspaces]
        self.b_desc = TensorDescriptor.from_tensor(b, [BN, BK])
        self.use(a, torch.empty(self.M, self.N, dtype=a.dtype, device=a.device))

    @staticmethod
    def rows(tensor: torch.Tensor) -> TensorDescriptor:
        return TensorDescriptor.from_tensor(tensor, [BM, BK])

    def use(self, a: torch.Tensor, c: torch.Tensor) -> None:
        self.a, self.c = a, c
        self.a_desc, self.c_desc = self.rows(a), TensorDescriptor.from_tensor(c, [BM, BN // 2])

    def signal(self, half: int, shard: int, piece: int = 0) -> int:
        """Its number among all signals of a rank."""
        return self.area + half * Symmetric.SIGNALS + shard * self.pieces + piece

    def launch(self, gathered: TensorDescriptor, signals: torch.Tensor, wait="change", own=True) -> None:
        gemm_kernels.gathered_gemm[(self.programs,)](
            self.a_desc,
            gathered,
            self.b_desc,
            self.c_desc,
            signals,
            max(1, self.pushers),
            self.memory.partials,
            self.memory.counts,
            self.M,
            self.N,
            self.K,
            self.rank,
            self.tiles_m // self.pieces,
            self.whole,
            BM=BM,
            BN=BN,
            BK=BK,
            GROUP=self.group,
            SHARDS=self.ranks,
            PROGRAMS=self.programs,
            FLATTEN=True,
            WAIT=wait,
            OWN=own,
            HALVES=True,
            SPLITS=self.splits,
            num_stages=4,
            num_warps=8,
        )

    def push(self, half: int, ready: torch.cuda.Event | None = None) -> None:
        """The own shard to every peer; signals are written after ``ready``."""
        memory, nbytes = self.memory, self.a.numel() * 2
        for step in range(1, self.ranks):
            peer = (self.rank - step) % self.ranks
            begin = half * memory.half + self.rank * nbytes
            if self.pushers:
                target = memory.workspace_of(peer)[begin : begin + nbytes].view(self.a.dtype)
                with torch.cuda.stream(memory.copies):
                    gemm_kernels.push[(self.pushers,)](
                        self.a,
                        target,
                        memory.signals_of(peer)[self.signal(half, self.rank) :],
                        self.a.numel(),
                        self.a.numel() // self.pieces,
                        BLOCK=32768,
                        PROGRAMS=self.pushers,
                        num_warps=16,
                    )
                continue
            part = nbytes // self.pieces
            for piece in range(self.pieces):
                target = memory.workspaces[peer] + begin + piece * part
                copy(memory.copies, target, self.a.data_ptr() + piece * part, part)
                if ready is not None:
                    memory.copies.wait_event(ready)
                    ready = None
                signal = memory.signal_ptrs[peer] + 8 * self.signal(half, self.rank, piece)
                stream_operations(memory.copies, [(WRITE64, signal, 1)])

    def __call__(self) -> torch.Tensor:
        half, memory, stream = self.parity, self.memory, torch.cuda.current_stream()
        self.parity ^= 1
        memory.copies.wait_stream(stream)
        memory.resets.wait_stream(stream)
        before = [
            self.signal(1 - half, (self.rank + step) % self.ranks, piece)
            for step in range(1, self.ranks)
            for piece in range(self.pieces)
        ]
        stream_operations(memory.resets, [(WRITE64, memory.signals.data_ptr() + 8 * number, 0) for number in before])
        ready = memory.resets.record_event()
        if self.pushers:
            memory.copies.wait_event(ready)
            ready = None
        self.push(half, ready)
        self.launch(self.gathered[half], memory.signals[self.signal(half, 0) :])
        stream.wait_stream(memory.copies)
        return self.c
