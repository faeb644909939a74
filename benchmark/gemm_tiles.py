"""What a wait in the tile loop of a matrix product costs on one GPU, against cuBLAS.

    python benchmark/gemm_tiles.py --table out.md
    python benchmark/gemm_tiles.py --arrival --table out.md

The first measures the forms of benchmark/gemm_kernels.py with signals that are set already, on the shapes that a rank
of four has in an AG+GEMM and a GEMM+RS with M = 8192. ``--arrival`` lets shards arrive as they would over a link of
``--link`` GB/s, the signals written by a copy engine after a copy from host memory that takes as long: it chooses the
schedule of an AG+GEMM on ``--ranks`` GPUs, on one. The forms take turns as CUDA graphs, the order rotates, the L2 cache
is overwritten before each; medians over cuBLAS alone. All results are compared with fp32 torch. A shape has ``--limit``
seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import faulthandler
import json
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gemm_kernels

M = 8192
MLPS = {"7B": (11008, 4096), "8B": (14336, 4096), "70B": (28672, 8192), "72B": (29568, 8192)}
SHARDS = 4


def shapes() -> dict[str, tuple[int, int]]:
    """N and K of one rank: an AG+GEMM multiplies by a slice of the columns, a GEMM+RS by one of the rows."""
    result = {}
    for mlp, (n, k) in MLPS.items():
        for mode, slices in (("strong", 4), ("tp8slice", 8)):
            result[f"AG+GEMM {mlp} {mode}"] = (n // slices, k)
            result[f"GEMM+RS {mlp} {mode}"] = (k, n // slices)
    return result


class Gemm:
    """C = A @ B.T by every form."""

    def __init__(self, N: int, K: int, ranks: int = SHARDS):
        self.N, self.K, self.ranks = N, K, ranks
        self.programs = torch.cuda.get_device_properties(0).multi_processor_count
        generator = torch.Generator("cuda").manual_seed(N)
        draw = lambda rows: (torch.randn(rows, K, device="cuda", generator=generator) * K**-0.25).bfloat16()  # noqa: E731
        self.a, self.b = draw(M), draw(N)
        self.own = self.a[: M // ranks].clone()  # the rank is 0
        self.c = torch.empty(M, N, dtype=torch.bfloat16, device="cuda")
        self.signals = torch.ones(64, dtype=torch.int64, device="cuda")
        self.counts = torch.zeros(2048, dtype=torch.int32, device="cuda")
        self.partials = torch.empty(1024 * 128 * 256, dtype=torch.float32, device="cuda")

    def cublas(self) -> None:
        torch.mm(self.a, self.b.T, out=self.c)

    def _arguments(self, block: tuple[int, int, int], halves: bool, stages: int, group: int) -> tuple[tuple, dict]:
        BM, BN, BK = block
        rows = lambda tensor: TensorDescriptor.from_tensor(tensor, [BM, BK])  # noqa: E731
        descriptors = (
            rows(self.own),
            rows(self.a),
            TensorDescriptor.from_tensor(self.b, [BN, BK]),
            TensorDescriptor.from_tensor(self.c, [BM, BN // 2 if halves else BN]),
        )
        constants = dict(BM=BM, BN=BN, BK=BK, GROUP=group, SHARDS=self.ranks, PROGRAMS=self.programs)
        return descriptors, {**constants, "num_stages": stages, "num_warps": 8}

    def gathered(
        self,
        flatten=True,
        wait="change",
        own=False,
        halves=True,
        splits=1,
        whole=None,
        pieces=1,
        made=False,
        block=(128, 256, 64),
        stages=4,
        group=8,
    ) -> Callable[[], object]:
        """``gemm_kernels.gathered_gemm``; a shard arrives in ``pieces``. ``made``: descriptors, by the kernel."""
        kernel = gemm_kernels.gathered_gemm_of_pointers if made else gemm_kernels.gathered_gemm
        descriptors, constants = self._arguments(block, halves, stages, group)
        tiles = M // block[0] * triton.cdiv(self.N, block[1])
        return lambda: kernel[(self.programs,)](
            *((self.own, self.a, self.b, self.c) if made else descriptors),
            self.signals,
            1,
            self.partials,
            self.counts,
            M,
            self.N,
            self.K,
            0,
            M // self.ranks // block[0] // pieces,
            tiles if splits == 1 else whole,
            FLATTEN=flatten,
            WAIT=wait,
            OWN=own,
            HALVES=halves,
            SPLITS=splits,
            **constants,
        )

    def other(self, kernel, *, halves=False, stages=3, **options) -> Callable[[], object]:
        """The kernels that read all of A through one descriptor."""
        (_own, *descriptors), constants = self._arguments((128, 256, 64), halves, stages, 8)
        counted = kernel is gemm_kernels.counted_gemm
        signals = (self.counts[1024:],) if counted else (self.signals, 1)
        if counted:
            options["HALVES"] = halves
        return lambda: kernel[(self.programs,)](*descriptors, *signals, M, self.N, self.K, 0, **constants, **options)

    def tail(self) -> tuple[int, int]:
        """Tiles that whole rounds of all programs take, and how many programs can share one of the rest."""
        tiles = M // 128 * triton.cdiv(self.N, 256)
        whole = tiles // self.programs * self.programs
        return whole, min(8, self.programs // (tiles - whole)) if tiles > whole else 1

    def forms(self) -> dict[str, Callable[[], object]]:
        plain = {"halves": False, "stages": 3}
        whole, splits = self.tail()
        tail = {"splits": splits, "whole": whole}
        return {
            "cuBLAS": self.cublas,
            "loop": self.gathered(flatten=False, wait="none", **plain),
            "loop, wait per tile": self.gathered(flatten=False, wait="tile", **plain),
            "flattened": self.gathered(wait="none", **plain),
            "flattened, wait per tile": self.gathered(wait="tile", **plain),
            "flattened, wait per shard": self.gathered(**plain),
            "by hand, A first": self.other(gemm_kernels.linear_gemm, B_FIRST=False),
            "by hand, B before the wait": self.other(gemm_kernels.linear_gemm, B_FIRST=True),
            "loop over shards": self.other(gemm_kernels.shard_gemm),
            "256x128": self.gathered(block=(256, 128, 64), **plain),
            "128x128, 4 stages": self.gathered(block=(128, 128, 64), halves=False, group=16),
            "halves, 4 stages, no wait": self.gathered(wait="none"),
            "halves, 4 stages": self.gathered(),
            "own shard apart": self.gathered(own=True),
            "own shard apart, groups of 4": self.gathered(own=True, group=4),
            "own shard apart, descriptors made": self.gathered(own=True, made=True),
            "and K of the last tiles divided": self.gathered(own=True, **tail),
            "counted now": self.other(gemm_kernels.counted_gemm, FLATTEN=True, PUBLISH="now", halves=True, stages=4),
            "counted with the next": self.other(
                gemm_kernels.counted_gemm, FLATTEN=True, PUBLISH="next", halves=True, stages=4
            ),
            "counted in the next's K loop": self.other(
                gemm_kernels.counted_gemm, FLATTEN=True, PUBLISH="loop", halves=True, stages=4
            ),
        }

    def schedules(self) -> dict[str, dict]:
        """Arguments of ``gathered`` for shards that arrive one after the other."""
        whole, splits = self.tail()
        result: dict[str, dict] = {"1 piece": {}, "1 piece, groups of 4": {"group": 4}}
        result |= {f"{pieces} pieces": {"pieces": pieces} for pieces in (2, 4)}
        if splits > 1:
            tail = {"whole": whole, "splits": splits}
            result |= {f"{pieces} pieces, tail / {splits}": {"pieces": pieces, **tail} for pieces in (1, 2)}
        return result


class Link:
    """Shards that arrive after the time a copy between GPUs would take; a copy from the host takes it here."""

    def __init__(self, gbytes: float):
        self.gbytes = gbytes
        self.stream = torch.cuda.Stream(priority=-1)
        self.source = torch.empty(1 << 28, dtype=torch.uint8).pin_memory()
        self.target = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        self.driver = ctypes.CDLL("libcuda.so.1")
        times = []
        for _ in range(5):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self.target.copy_(self.source, non_blocking=True)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        self.host_rate = self.source.numel() / statistics.median(times)

    def write(self, address: int, value: int) -> None:
        stream = ctypes.c_void_p(self.stream.cuda_stream)
        code = self.driver.cuStreamWriteValue64_v2(stream, ctypes.c_uint64(address), ctypes.c_uint64(value), 0)
        assert code == 0, f"cuStreamWriteValue64: error {code}"

    def run(self, gemm: Gemm, schedule: dict | None) -> Callable[[], object]:
        """The kernel, unless ``schedule`` is None, beside the copies and signals of one call."""
        kernel = gemm.gathered(own=True, **schedule) if schedule is not None else lambda: None
        schedule = schedule or {}
        tiles_m = M // gemm.ranks // 128
        pieces = schedule.get("pieces", 1)
        nbytes = int(tiles_m * 128 * gemm.K * 2 / pieces / (self.gbytes * 1e9) * self.host_rate)

        def call() -> None:
            stream = torch.cuda.current_stream()
            self.stream.wait_stream(stream)
            for piece in range(pieces, gemm.ranks * pieces):
                with torch.cuda.stream(self.stream):
                    self.target[:nbytes].copy_(self.source[:nbytes], non_blocking=True)
                self.write(gemm.signals.data_ptr() + 8 * piece, 1)
            kernel()
            stream.wait_stream(self.stream)

        return call


class Samples:
    def __init__(self):
        self.cache = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def check(
        self, gemm: Gemm, runs: dict[str, Callable[[], object]], before: Callable[[], object]
    ) -> dict[str, float]:
        """Relative errors against fp32, the larger of two calls; ``before`` runs before each."""
        expected = gemm.a.float() @ gemm.b.float().T
        errors: dict[str, float] = {}
        for name, run in runs.items():
            for _ in range(2):
                gemm.c.fill_(float("nan"))
                before()
                run()
                error = ((gemm.c.float() - expected).norm() / expected.norm()).item()
                assert error < 4e-3, f"{name}, N={gemm.N}, K={gemm.K}: relative error {error}"
                errors[name] = max(error, errors.get(name, 0))
        return errors

    def medians(
        self, runs: dict[str, Callable[[], object]], rounds: int, before: Callable[[], object]
    ) -> dict[str, float]:
        graphs = {}
        for name, run in runs.items():
            graphs[name] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graphs[name], capture_error_mode="relaxed"):
                run()
        names, times = list(runs), {name: [] for name in runs}
        for turn in range(rounds + 2):
            shift = turn % len(names)
            order = (names[shift:] + names[:shift])[:: -1 if turn % 2 else 1]
            for name in order:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                before()
                self.cache.zero_()
                begin.record()
                graphs[name].replay()
                end.record()
                times[name].append((begin, end))
            torch.cuda.synchronize()
        return {name: statistics.median(b.elapsed_time(e) for b, e in pairs[2:]) for name, pairs in times.items()}


def waits(args: argparse.Namespace) -> list[str]:
    """Table of all forms: a column per shape, times over cuBLAS."""
    samples, results = Samples(), {}
    for shape, (N, K) in shapes().items():
        if any(word not in shape for word in args.only):
            continue
        faulthandler.dump_traceback_later(args.limit, exit=True)
        gemm = Gemm(N, K)
        forms = gemm.forms()
        samples.check(gemm, forms, lambda: None)
        results[shape] = samples.medians(forms, args.rounds, lambda: None)
        floor = results[shape]["cuBLAS"]
        print(f"{shape}, N={N}, K={K}: cuBLAS {floor:.4f} ms, {2 * M * N * K / floor / 1e9:.0f} TFLOP/s", flush=True)
        print("    " + "  ".join(f"{name}: {time / floor:.3f}" for name, time in results[shape].items()), flush=True)
        if args.json:
            args.json.write_text(json.dumps(results, indent=1))
    table = [
        "| form | " + " | ".join(shape.replace(" ", "<br>") for shape in results) + " | mean |",
        "|---" * (len(results) + 2) + "|",
        "| cuBLAS, ms | " + " | ".join(f"{times['cuBLAS']:.3f}" for times in results.values()) + " | |",
    ]
    for name in next(iter(results.values())):
        if name != "cuBLAS":
            ratios = [times[name] / times["cuBLAS"] for times in results.values()]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            table.append(f"| {name} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + f" | {mean:.3f} |")
    return table


def arrivals(args: argparse.Namespace) -> list[str]:
    """Table of schedules for shards that arrive."""
    samples, link, results = Samples(), Link(args.link), {}
    print(f"copies from the host: {link.host_rate / 1e9:.1f} GB/s", flush=True)
    table = [
        "| shape | N x K a rank | cuBLAS alone | copies alone | best | / roof | schedule | 1 piece |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for mlp, (n, K) in MLPS.items():
        for mode, N in (("strong", n // args.ranks), ("tp8slice", n // 8)):
            shape = f"{mlp} {mode}"
            if any(word not in shape for word in args.only):
                continue
            faulthandler.dump_traceback_later(args.limit, exit=True)
            gemm = Gemm(N, K, args.ranks)
            runs = {name: link.run(gemm, schedule) for name, schedule in gemm.schedules().items()}
            runs = {"cuBLAS": gemm.cublas, **runs}
            copies = {"copies": link.run(gemm, None)}
            clear = gemm.signals.zero_
            samples.check(gemm, runs, clear)
            results[shape] = times = samples.medians({**runs, **copies}, args.rounds, clear)
            floor, name = times["cuBLAS"], min(list(runs)[1:], key=times.get)
            wire = times["copies"]
            table.append(
                f"| {shape} | {N} x {K} | {floor:.3f} | {wire:.3f} | {times[name]:.3f} | "
                f"{times[name] / max(floor, wire):.3f} | {name} | {times['1 piece']:.3f} |"
            )
            print(table[-1], flush=True)
            print("    " + "  ".join(f"{x}: {time / floor:.3f}" for x, time in times.items()), flush=True)
            if args.json:
                args.json.write_text(json.dumps(results, indent=1))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrival", action="store_true", help="let shards arrive over a simulated link")
    parser.add_argument("--ranks", type=int, default=SHARDS, help="of --arrival")
    parser.add_argument("--link", type=float, default=360, help="GB/s out of one GPU, of --arrival")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[], help="shapes with all of these words")
    parser.add_argument("--limit", type=int, default=120, help="seconds a shape may take")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--json", type=Path, help="write all medians to this file, after every shape")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    triton.set_allocator(lambda nbytes, _align, _stream: torch.empty(nbytes, dtype=torch.int8, device="cuda"))
    table = arrivals(args) if args.arrival else waits(args)
    title = f"AG+GEMM on {args.ranks} GPUs over {args.link:g} GB/s, simulated" if args.arrival else "Time over cuBLAS's"
    title += (
        f", M = {M}, bf16, 1 x {torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}, "
        f"{datetime.date.today()}"
    )
    print("\n".join([title, "", *table]), flush=True)
    if args.table:
        with args.table.open("a") as file:
            file.write("\n".join(["", title, "", *table, ""]))


if __name__ == "__main__":
    main()
