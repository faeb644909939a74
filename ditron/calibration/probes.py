"""What is run for each number of a machine: the same calls on GPUs and on the simulator's clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from ditron import kernels
from ditron.calibration import programs
from ditron.cost_model.intrinsics import INTRINSICS, Transfer

if TYPE_CHECKING:
    from ditron.machines import Machine

__all__ = ["HELD_OUT", "PROBES", "Probe", "Rank", "left_out", "predicted_us"]

MB = 1 << 20
_FP32, _BF16, _FP8 = torch.float32, torch.bfloat16, torch.float8_e4m3fn
_TILE = (128, 256, 64)
_CAPABILITY = {"sm.dot8": 89, "tma.store_per_sm": 90, "tma.reduce_share": 90}  # at least
_HEAP_BYTES = 4 << 30  # of a simulated rank; none of it is touched


@dataclass(frozen=True)
class Rank:
    """Where a probe runs: how many multiprocessors a GPU has, how many ranks there are, ``tensor(*shape, dtype)``."""

    sms: int
    ranks: int
    tensor: Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Probe:
    """A call of which one number of a machine is found.

    Attributes:
        number: of ``machines.FIELDS``; empty: none, a call that is predicted afterwards. what: in words.
        prepare: makes operands and gives the call.
        form: ``"call"``, by itself after a pause; ``"graph"``, in a CUDA graph; ``"sustained"``, the same repeated, as
            ``ditron tune`` does, until the GPU has lowered its clocks. calls: in a graph.
        ranks: at least. keeps_time: where it cannot run, its time is the base's, and its number follows: of what is
            left of that time when all else has been taken off.
        us: what it takes, for what the clock does not price; None: what the clock says.
    """

    number: str
    what: str
    prepare: Callable[[Rank], Callable[[], Any]]
    form: str = "call"
    calls: int = 1
    ranks: int = 1
    keeps_time: bool = False
    us: Callable[[Machine], float] | None = None

    def __str__(self) -> str:
        return f"{self.number}: {self.what}" if self.number else self.what

    def state(self, machine: Machine) -> Machine:
        """The machine as it is when the probe runs."""
        if self.form == "call":
            return machine
        return machine.sustained().in_graph() if self.form == "sustained" else machine.in_graph()


def predicted_us(probe: Probe, machine: Machine, ranks: int) -> float:
    """What a call of a probe takes on so many ranks of a machine, or as many as it needs, on the slowest one."""
    import ditron
    from ditron import sim
    from ditron.tuning.prediction import last_call_us

    if probe.us is not None:
        return probe.us(machine)
    ranks = max(ranks, probe.ranks)
    calls = 1 if probe.form == "call" else 2  # in a graph it is the second that follows another one

    def main() -> None:
        group = ditron.init()

        def tensor(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device=group.device)

        call = probe.prepare(Rank(group.sms, ranks, tensor))
        for _ in range(calls):
            call()

    return last_call_us(sim.predict(main, probe.state(machine), ranks, heap_bytes=_HEAP_BYTES), calls)


def left_out(probe: Probe, base: Machine, ranks: int, capability: int) -> str:
    """Why a probe is not run on so many GPUs of a compute capability (90); empty: it is."""
    if ranks < probe.ranks:
        return "a single GPU has no link"
    if capability < _CAPABILITY.get(probe.number, 0):
        return f"GPUs of compute capability {capability} have none"
    if probe.number and (probe.number not in base.numbers or not base[probe.number]):
        return f"{base.name} has none"
    return ""


_Prepare = Callable[[Rank], Callable[[], Any]]


def _product(
    M: int, N: int, K: int, dtype: torch.dtype = _BF16, block: tuple[int, int, int] = _TILE, stages: int = 4
) -> _Prepare:
    def prepare(rank: Rank) -> Callable[[], Any]:
        a, b = rank.tensor(M, K, dtype=dtype), rank.tensor(N, K, dtype=dtype)
        c = rank.tensor(M, N, dtype=_BF16)
        tiles = -(-M // block[0]) * -(-N // block[1])
        return lambda: programs.product_program(a, b, c, block=block, programs=min(rank.sms, tiles), stages=stages)

    return prepare


def _ag_gemm(M: int, N: int, K: int) -> _Prepare:
    """M rows of all ranks, N columns of each."""

    def prepare(rank: Rank) -> Callable[[], Any]:
        a, b = rank.tensor(M // rank.ranks, K, dtype=_BF16), rank.tensor(N, K, dtype=_BF16)
        return lambda: kernels.ag_gemm(a, b, algorithm="overlapped", block=_TILE, pieces=2)

    return prepare


def _local_copy(nbytes: int, per_sm: int = 0, **schedule: Any) -> _Prepare:
    """By ``per_sm`` programs on each multiprocessor; 0: by one program."""

    def prepare(rank: Rank) -> Callable[[], Any]:
        x, y = (rank.tensor(nbytes // 2, dtype=_BF16) for _ in range(2))
        return lambda: programs.local_copy_program(x, y, programs=per_sm * rank.sms or 1, **schedule)

    return prepare


def _elements(n: int, special: bool, times: int) -> _Prepare:
    def prepare(rank: Rank) -> Callable[[], Any]:
        x, y = (rank.tensor(n, dtype=_BF16) for _ in range(2))
        return lambda: programs.elements_program(x, y, special=special, times=times)

    return prepare


def _moved(program: Callable[..., Any], nbytes: int, sms: int = 0, **schedule: Any) -> _Prepare:
    """By a program on each of so many multiprocessors; 0: of all."""

    def prepare(rank: Rank) -> Callable[[], Any]:
        x = rank.tensor(nbytes // 2, dtype=_BF16)
        return lambda: program(x, programs=sms or rank.sms, **schedule)

    return prepare


def _copies(pieces: int, nbytes: int) -> _Prepare:
    def prepare(rank: Rank) -> Callable[[], Any]:
        x = rank.tensor(pieces, nbytes // 2, dtype=_BF16)
        return lambda: programs.copies_program(x)

    return prepare


def _reduced(algorithm: str, **schedule: Any) -> _Prepare:
    """4096 bytes."""

    def prepare(rank: Rank) -> Callable[[], Any]:
        x = rank.tensor(2048, dtype=_BF16)
        return lambda: kernels.all_reduce(x, algorithm=algorithm, **schedule)

    return prepare


def _reduced_by_packets(protocol: str, block: int) -> _Prepare:
    """4096 bytes."""

    def prepare(rank: Rank) -> Callable[[], Any]:
        x, out = rank.tensor(2048, dtype=_BF16), rank.tensor(2048, dtype=_BF16)
        return lambda: programs.packet_sum_program(x, out, protocol=protocol, block=block)

    return prepare


def _gathered_by_nccl(nbytes: int) -> _Prepare:
    """So many bytes of each rank."""

    def prepare(rank: Rank) -> Callable[[], Any]:
        x = rank.tensor(nbytes // 2, dtype=_BF16)
        return lambda: kernels.all_gather(x, algorithm="nccl")

    return prepare


def _launch(rank: Rank) -> Callable[[], Any]:
    """In the clock, the latency of loads and what counts the calls of a captured program are a launch's."""
    x, y = (rank.tensor(128 * rank.sms, dtype=torch.int64) for _ in range(2))
    return lambda: programs.launch_program(x, y, block=128)


def _alone(program: Callable[..., Any], **constants: Any) -> _Prepare:
    return lambda rank: lambda: program(**constants)


def _priced(intrinsic: str, transfer: Transfer) -> Callable[[Machine], float]:
    (row,) = [row for row in INTRINSICS if row.name == intrinsic]
    return lambda machine: row.us(transfer, machine)


_NO_PAUSE = "bf16 product of 8448 x {}, repeated"
_STORES, _LL128 = {"block": 16384, "num_warps": 16}, {"block": 30720, "num_warps": 32}
_stores, _tma, _packets = programs.stores_program, programs.tma_program, programs.packets_program

_OF_ONE_GPU = (
    Probe("latency.launch", "a kernel that copies 1 KB on each SM", _launch, "graph", 20),
    Probe("latency.local", "two programs signal each other, 100 times each", _alone(programs.turns_program, turns=100)),
    Probe("latency.stream", "a stream writes 32 signals", _alone(programs.signals_program, count=32)),
    Probe("hbm.rate", "copy of 1 GB by all SMs", _local_copy(1024 * MB, 4, block=8192, num_warps=8)),
    Probe("hbm.per_sm", "copy of 32 MB by one program of 16 warps", _local_copy(32 * MB, **_STORES)),
    Probe("sm.dot16", "bf16 product of 8448 x 8192 x 4096", _product(8448, 8192, 4096)),
    Probe("sm.shared", "the same by tiles of 128 x 128", _product(8448, 8192, 4096, block=(128, 128, 64))),
    Probe("sm.fill", "bf16 product of 1536 x 2816 x 512", _product(1536, 2816, 512), "graph", 10),
    Probe("sm.burst", _NO_PAUSE.format("8192 x 4096"), _product(8448, 8192, 4096), "sustained", 2),
    Probe("sm.dot16_sustained", _NO_PAUSE.format("14336 x 8192"), _product(8448, 14336, 8192), "sustained", 2),
    Probe("sm.dot8", "fp8 product of 8448 x 8192 x 4096", _product(8448, 8192, 4096, _FP8, (128, 256, 128))),
    Probe("sm.dot32", "tf32 product of 8448 x 8192 x 2048", _product(8448, 8192, 2048, _FP32, (128, 256, 32))),
)
_OF_TILES = (
    Probe(
        "latency.load",
        "bf16 product by small tiles and two stages",
        _product(8448, 8192, 4096, block=(128, 128, 64), stages=2),
    ),
    Probe("sm.vector", "64 multiply-adds of each of 32 M elements", _elements(32 * MB, False, 64)),
    Probe("sm.special", "16 exponentials of each of 32 M elements", _elements(32 * MB, True, 16)),
)
_OF_LINKS = (
    Probe("link.rate", "copy engine, 256 MB", _copies(1, 256 * MB)),
    Probe("copy_engine.setup", "copy engine, 8 MB", _copies(1, 8 * MB)),
    Probe("copy_engine.setup_behind", "copy engine, 8 of 4 MB", _copies(8, 4 * MB)),
    Probe("copy_engine.least", "copy engine, 64 KB", _copies(1, 64 << 10)),
    Probe("copy_engine.setup_in_graph", "copy engine, 16 of 512 KB in a graph", _copies(16, MB // 2), "graph", 2),
    Probe("link.store_share", "stores of all SMs, 256 MB", _moved(_stores, 256 * MB, **_STORES)),
    Probe("link.load_share", "loads of all SMs, 256 MB", _moved(_stores, 256 * MB, pull=True, **_STORES)),
    Probe("link.store_per_sm", "stores of one SM, 32 MB", _moved(_stores, 32 * MB, 1, **_STORES)),
    Probe("link.load_per_sm", "loads of one SM, 32 MB", _moved(_stores, 32 * MB, 1, pull=True, **_STORES)),
    Probe("latency.peer", "all-reduce of 4 KB by LL", _reduced_by_packets("ll", 512), "graph", 20, keeps_time=True),
    Probe("latency.fence", "all-reduce of 4 KB, one shot", _reduced("one_shot"), "graph", 20),
    Probe("latency.barrier", "8 barriers of streams", _alone(programs.barriers_program, count=8), "graph", 10),
    Probe("copy_engine.busy_share", "AG+GEMM of 8192 x 1376 x 4096", _ag_gemm(8192, 1376, 4096)),
    Probe("nccl.share", "NCCL's all-gather, 64 MB of each rank", _gathered_by_nccl(64 * MB), "graph", 2),
    Probe("nccl.latency", "NCCL's all-gather, 8 MB of each rank", _gathered_by_nccl(8 * MB), "graph", 2),
    Probe("nccl.packet_share", "NCCL's all-gather, 512 KB of each rank", _gathered_by_nccl(MB // 2), "graph", 10),
    Probe("nccl.packet_latency", "NCCL's all-gather, 4 KB of each rank", _gathered_by_nccl(4096), "graph", 10),
)
#: To the clock stores are stores, whoever makes them: what the table of communication intrinsics says is compared.
_OF_INTRINSICS = (
    (
        Probe("tma.store_per_sm", "TMA stores of one SM, 32 MB", _moved(_tma, 32 * MB, 1, add=False)),
        _priced("TMA", Transfer(32 * MB, sms=1)),
    ),
    (
        Probe("tma.reduce_share", "TMA reduce-add of 8 SMs, 256 MB", _moved(_tma, 256 * MB, 8, add=True)),
        _priced("TMA reduce", Transfer(256 * MB, reduce="add", sms=8)),
    ),
    (
        Probe("packets.ll128_per_sm", "LL128 of one SM, 32 MB", _moved(_packets, 32 * MB, 1, **_LL128)),
        _priced("LL128", Transfer(32 * MB, sms=1)),
    ),
    (
        Probe("packets.ll128_latency", "all-reduce of 4 KB by LL128", _reduced_by_packets("ll128", 960), "graph", 20),
        _priced("LL128", Transfer(4096, sms=3)),
    ),
)
#: One for each number that can be measured, in the order in which they are found.
PROBES = (
    *_OF_ONE_GPU,
    *(replace(probe, ranks=2) for probe in _OF_LINKS),
    *(replace(probe, ranks=2, us=us) for probe, us in _OF_INTRINSICS),
    *_OF_TILES,
)

#: Calls that nothing is found of, which a machine that was calibrated is asked to predict.
HELD_OUT = (
    Probe("", "bf16 product of 4096 x 14336 x 5120", _product(4096, 14336, 5120)),
    Probe("", "bf16 product of 4096 x 14336 x 5120, repeated", _product(4096, 14336, 5120), "sustained", 2),
    Probe("", "AG+GEMM of 8192 x 5504 x 4096", _ag_gemm(8192, 5504, 4096), ranks=2),
)
