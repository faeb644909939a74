"""What the processes that measure do on GPUs: the operands of a problem, samples of a call."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

import ditron
from ditron import kernels
from ditron._program.program import Program
from ditron.kernels.expert_schedules import block_rows
from ditron.kernels.route_draws import RouteDistribution
from ditron.kernels.routing import max_rows
from ditron.tuning.floors import calls_in_a_graph
from ditron.tuning.problem import Options, Problem
from ditron_compiler import knobs

__all__ = ["GpuBench", "call_of", "operands", "prepared"]

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_L2_BYTES = 192 << 20  # more than a GPU's L2 cache holds


class GpuBench:
    """A rank on its GPU. The L2 cache holds other data, and the ranks are aligned, before each sample."""

    def __init__(self, rank: int, ranks: int, folder: str, timing: str):
        self.rank, self.timing = rank, timing
        self.device = torch.device("cuda", knobs.local_rank.get())
        torch.cuda.set_device(self.device)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl",
            init_method=f"file://{folder}/store",
            rank=rank,
            world_size=ranks,
            device_id=self.device,
            timeout=datetime.timedelta(minutes=10),
        )
        ditron.init(transport="p2p")
        self.cache = torch.zeros(_L2_BYTES // 4, dtype=torch.int32, device=self.device)
        self.one = torch.zeros(1, device=self.device)
        self.calls = 1

    def gather(self, value: Any) -> list:
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, value)
        return gathered

    def prepare(self, problem: Problem) -> Callable[[Options], torch.Tensor]:
        self.calls = calls_in_a_graph(problem) if self.timing == "graph" else 1
        self._free_programs()
        return prepared(problem, self.rank, self.device)

    def _free_programs(self) -> None:
        """Give back what programs keep for earlier problems, where little memory is left on a rank."""
        free, whole = torch.cuda.mem_get_info()
        if min(self.gather(free / whole)) < 0.4:
            torch.cuda.synchronize()
            for name, module in sys.modules.items():
                if name.startswith("ditron.kernels."):
                    for value in vars(module).values():
                        if isinstance(value, Program):
                            value.free()

    def differs(self, result: torch.Tensor, expected: torch.Tensor) -> str:
        torch.cuda.synchronize()
        error = ((result.float() - expected.float()).norm() / expected.float().norm()).item()
        bound = 1e-4 if result.dtype == torch.float32 else 1e-2
        return "" if error < bound else f"relative error {error:.2g} to what the rule's choice gives"

    def sampler(self, call: Callable[[], Any]) -> Callable[[], float]:
        if self.timing == "call":
            return lambda: self._sample(call, 900_000)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="relaxed"):
            for _ in range(self.calls):
                call()
        torch.cuda.synchronize()
        return lambda: self._sample(graph.replay, 100_000)

    def _sample(self, run: Callable[[], Any], cycles: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.cache.sum()  # read, not written: L2 would write it back during the sample
        torch.cuda._sleep(cycles)  # while the host enqueues what comes
        dist.all_reduce(self.one)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / self.calls

    def recover(self) -> None:
        torch.cuda.synchronize()


def call_of(problem: Problem, given: tuple[torch.Tensor, ...]) -> Callable[..., Any]:
    """An operator's function with these :func:`operands`, in the current group; collective where it takes a plan."""
    function = getattr(kernels, problem.operator)
    of_experts: dict[str, Any] = {"num_experts": problem.experts, "parallel": problem.parallel}
    match problem.operator:
        case "ag_moe" | "moe_rs":
            tokens_or_rows, w, *routes = given
            plan = kernels.moe_plan(*routes, **of_experts, block_m=block_rows(problem.rows_of_expert))
            return partial(function, tokens_or_rows, w, plan)
        case "ep_moe":
            return partial(function, *given, **of_experts)
        case "all_to_all_v":
            return partial(function, *given, max_rows=len(given[0]))
    return partial(function, *given)


def prepared(problem: Problem, rank: int, device: torch.device) -> Callable[[Options], torch.Tensor]:
    """An operator's call on its :func:`operands`, in the current group, with the options that it is given: its result,
    the same tensor each time but of ``ep_moe``; rows of experts that are not written are zero. Collective.
    """
    given, shape = operands(problem, rank, device)
    call = call_of(problem, given)
    if problem.operator == "ep_moe":
        return lambda options: call(**options)
    out = torch.zeros(shape, dtype=given[0].dtype, device=device)
    if problem.operator == "all_to_all_v":
        return lambda options: call(out=out, **options)[0]
    return lambda options: call(out=out, **options)


def operands(
    problem: Problem, rank: int, device: torch.device, values: bool = True
) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
    """The operands of an operator on a rank, and the shape of its result there; with ``values``, matrices have some.

    Experts are drawn as the problem's routing says, and parts of an all-to-all are equal.
    """
    ranks, rows, N, K = problem.ranks, problem.rows, problem.N, problem.K
    dtype = _TYPES[problem.dtype]

    def random(*shape: int, seed: int) -> torch.Tensor:
        if device.type == "meta" or not values:
            return torch.empty(shape, dtype=dtype, device=device)
        generator = torch.Generator(device).manual_seed(seed)
        return (torch.randn(*shape, device=device, generator=generator) * shape[-1] ** -0.25).to(dtype)

    def routes() -> tuple[torch.Tensor, torch.Tensor]:
        if device.type == "meta":
            return tuple(
                torch.empty(rows, problem.top_k, dtype=of, device=device) for of in (torch.int32, torch.float32)
            )
        return RouteDistribution.parse(problem.routing).draw(rows, problem.experts, problem.top_k, rank, device)

    match problem.operator:
        case "ag_moe" | "moe_rs":
            block_m, own = block_rows(problem.rows_of_expert), problem.own_experts
            w, most = random(own, N, K, seed=100 + rank), max_rows(ranks * rows, problem.top_k, own, block_m)
            if problem.operator == "ag_moe":
                return (random(rows, K, seed=rank), w, *routes()), (most, N)
            return (random(most, K, seed=rank), w, *routes()), (rows, N)
        case "ep_moe":
            own, second = problem.own_experts, (K, N // 2)
            weights = random(own, N, K, seed=100 + rank), random(own, *second, seed=200 + rank)
            return (random(rows, K, seed=rank), *routes(), *weights), (rows, K)
        case "all_to_all_v":
            splits = torch.full((ranks,), rows, device=device)
            return (random(ranks * rows, seed=rank), splits), (ranks * rows,)
        case "ag_gemm":
            return (random(rows, K, seed=rank), random(N, K, seed=100 + rank)), (ranks * rows, N)
        case "gemm_rs":
            return (random(ranks * rows, K, seed=rank), random(N, K, seed=100 + rank)), (rows, N)
        case "gemm_ar":
            return (random(rows, K, seed=rank), random(N, K, seed=100 + rank)), (rows, N)
        case "gemm_a2a":
            return (random(rows, K, seed=rank), random(N, K, seed=100)), (ranks * rows, N // ranks)
        case "a2a_gemm":
            return (random(ranks * rows, K // ranks, seed=rank), random(N, K, seed=100)), (rows, N)
        case "all_to_all":
            return (random(ranks * rows, seed=rank),), (ranks * rows,)
        case "all_reduce":
            return (random(rows, seed=rank),), (rows,)
        case "all_gather":
            return (random(rows, seed=rank),), (ranks * rows,)
        case "reduce_scatter":
            return (random(ranks * rows, seed=rank),), (rows,)
    raise ValueError(f"no operands are known for {problem.operator}")
