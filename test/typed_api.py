"""The public API as a typed program uses it; `make lint` has mypy check this file, strictly. Nothing runs it."""

from __future__ import annotations

import torch

import ditron
import ditron.host as dh


def allocate(n: int) -> torch.Tensor:
    ditron.init(sim=2)
    rank: int = ditron.rank()
    assert rank < ditron.num_ranks()
    ditron.barrier()
    return ditron.symm_zeros(n, dtype=torch.int64)


def loop(stop: int) -> None:
    for i in dh.range(stop):
        i + 1


def stages(path: str) -> str | bytes:
    program: ditron.CompiledProgram = ditron.compile(path, target="cuda:90")
    return program.asm["ptx"]


def layer(x: torch.Tensor, weight: torch.Tensor, module: torch.nn.Module) -> torch.Tensor:
    y: torch.Tensor = ditron.kernels.ag_gemm(x, weight, group=ditron.world())
    total, whole = ditron.kernels.ag_gemm_gathered(x, weight)
    parallel: torch.nn.Module = ditron.nn.parallelize(module, {"up": "colwise"})
    return parallel(y + total)
