"""Quantized operands of ditron.kernels on real GPUs: results, repeated and from CUDA graphs.

    torchrun --nproc-per-node 2 test/gpu/check_scaled.py

Each line is one check: the relative error against the fp32 product of the dequantized operands, and that of torch's
products and NCCL's collectives of the same operands, which ours may exceed by a tenth. Before each call a rank chosen
by chance sleeps on its GPU.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from check_operators import lag, relative_error

import ditron
from ditron import kernels
from ditron.kernels.scales import dequantized, scaled_product, scales_of

# Rows of a rank, N, K: ragged tiles, one row, what TMA cannot address, whole tiles.
SHAPES = [(333, 208, 336), (1, 16, 32), (77, 131, 67), (1024, 1024, 2048)]
KINDS = ("tensor", "row", "block")
DTYPES = (torch.float8_e4m3fn, torch.int8, torch.float8_e5m2)


class Problem:
    """Every rank's A, scales of A, B and scales of B."""

    def __init__(self, name: str, shape: tuple[int, int, int], dtype: torch.dtype, kind: str, seed: int):
        rows, N, K = shape
        ranks, device = ditron.num_ranks(), ditron.device()
        self.name, self.kind, M = name, kind, rows if name == "ag_gemm" else rows * ranks
        generator = torch.Generator(device).manual_seed(seed)

        def matrix(*extents: int) -> torch.Tensor:
            x = torch.randn(*extents, device=device, generator=generator)
            return (30 * x).clamp(-127, 127).to(dtype) if dtype == torch.int8 else x.to(dtype)

        def scales(rows: int, block_rows: int) -> torch.Tensor:
            blocks = (-(-rows // block_rows), -(-K // 128))
            shape = {"tensor": (1, 1), "row": (rows, 1), "block": blocks}[kind]
            return torch.rand(*shape, device=device, generator=generator) + 0.5

        self.leaves = [(matrix(M, K), matrix(N, K), scales(M, 1), scales(N, 128)) for _ in range(ranks)]
        self.mine = [t.clone() for t in self.leaves[ditron.rank()]]
        exact = [(dequantized(a, sa, kind, 1), dequantized(b, sb, kind)) for a, b, sa, sb in self.leaves]
        if name == "ag_gemm":
            self.exact = torch.cat([a for a, _ in exact]) @ exact[ditron.rank()][1].t()
        else:
            self.exact = sum(a @ b.t() for a, b in exact)
            if name == "gemm_rs":
                self.exact = self.exact.chunk(ranks)[ditron.rank()]

    def call(self, **options: Any) -> torch.Tensor:
        a, b, scale_a, scale_b = self.mine
        return getattr(kernels, self.name)(a, b, scale_a=scale_a, scale_b=scale_b, **options)

    def error(self, got: torch.Tensor) -> float:
        return relative_error(got, self.exact)

    def theirs(self, fast: bool) -> float:
        """Of torch's products, and of NCCL's collectives; where torch has no product, of a rounded exact one."""

        def product(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
            group = ditron.world()
            scales, dtype = scales_of("torch", group, a, b, scale_a, scale_b, None, fast)
            return scaled_product(a, b, scales, dtype)

        if self.name == "ag_gemm":
            _, b, _, scale_b = self.mine
            return self.error(torch.cat([product(a, b, scale_a, scale_b) for a, _, scale_a, _ in self.leaves]))
        total = product(*self.mine)
        dist.all_reduce(total)
        return self.error(total if self.name == "gemm_ar" else total.chunk(ditron.num_ranks())[ditron.rank()])


def called(problems: list[Problem], fast: bool, **options: Any) -> list[tuple[float, float]]:
    """Calls one after the other, compared at the end; twice the same is bitwise the same."""
    chance, results = random.Random(1), []
    for call in range(6):
        lag(chance)
        problem = problems[call % len(problems)]
        results.append((problem, problem.call(use_fast_accum=fast, **options)))
    half = len(problems)
    assert torch.equal(results[0][1], results[half][1]), "two calls with the same tensors differ"
    return [(problem.error(got), problem.theirs(fast)) for problem, got in results[:half]]


def replayed(problems: list[Problem], **options: Any) -> list[tuple[float, float]]:
    """From a CUDA graph, with other data each time."""
    first, chance, results = problems[0], random.Random(2), []
    own = [t.clone() for t in first.mine]
    first.call(**options)
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        out = first.call(**options)
    torch.cuda.synchronize()
    dist.barrier()
    for replay in range(12):
        problem = problems[replay % len(problems)]
        for tensor, value in zip(first.mine, own if problem is first else problem.mine, strict=True):
            tensor.copy_(value)
        lag(chance)
        graph.replay()
        results.append((problem, out.clone()))
    torch.cuda.synchronize()
    return [(problem.error(got), problem.theirs(False)) for problem, got in results[1 : 1 + len(problems) - 1]]


def checks(args: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    ragged, *_, whole = SHAPES
    for name in ("ag_gemm", "gemm_rs", "gemm_ar"):
        for shape in SHAPES:
            for dtype in DTYPES if shape == ragged else DTYPES[:1]:
                for kind in KINDS if shape == ragged else KINDS[1:]:
                    problems = [Problem(name, shape, dtype, kind, seed) for seed in range(3)]
                    title = f"{name}, {shape}, {str(dtype).removeprefix('torch.')}, {kind}"
                    options = {}
                    if name != "gemm_ar" and shape[2] % 16 == 0:
                        options["algorithm"] = "overlapped"
                        for algorithm in ("sequential", "by_rank"):
                            yield f"{title}: {algorithm}", lambda p=problems, a=algorithm: called(p, False, algorithm=a)
                        if kind == "row" and dtype == torch.float8_e4m3fn:
                            yield f"{title}: fast", lambda p=problems, o=options: called(p, True, **o)
                    yield f"{title}: called", lambda p=problems, o=options: called(p, False, **o)
                    if shape == whole:
                        yield f"{title}: graph", lambda p=problems: replayed(p)
                        if name != "gemm_ar":
                            yield f"{title}: by_rank, graph", lambda p=problems: replayed(p, algorithm="by_rank")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="checks whose title contains this")
    parser.add_argument("--limit", type=int, default=60, help="seconds a check may take")
    args = parser.parse_args()
    os.environ.setdefault("DITRON_PROTOCOL", "off")  # the checker needs no GPU, and has tests of its own
    ditron.init(transport="p2p")
    done, failed = 0, []
    for title, check in checks(args):
        if args.only not in title:
            continue
        faulthandler.dump_traceback_later(args.limit, exit=True)
        try:
            errors, wrong = check(), ""
        except Exception as error:
            errors, wrong = [], f"{type(error).__name__}: {error}"
            if ditron.rank() == 0:
                traceback.print_exc()
        least = torch.finfo(torch.bfloat16).eps * (1 if "(1, 16, 32)" in title else 0.4)  # few roundings say little
        if not wrong and not all(ours <= max(1.1 * theirs, least) for ours, theirs in errors):
            wrong = "less exact than torch"
        shown = " ".join(f"{ours:.2e}/{theirs:.2e}" for ours, theirs in errors)
        everywhere = [f"rank {r}: {w}" for r, w in enumerate(ditron.all_gather_object(wrong)) if w]
        faulthandler.cancel_dump_traceback_later()
        done += 1
        failed += [title] if everywhere else []
        if ditron.rank() == 0:
            print(f"{'FAILED' if everywhere else 'ok    '} {title} {shown} {'; '.join(everywhere)[:500]}", flush=True)
    if ditron.rank() == 0:
        count = f"{done - len(failed)} of {done}"
        print(f"{count} checks of quantized operands are right on {ditron.num_ranks()} GPUs", flush=True)
        for title in failed:
            print(f"  failed: {title}")
    ditron.finalize()
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
