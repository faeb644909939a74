"""ag_gemm and gemm_rs over several nodes, on the GPUs of one host, which NVSHMEM serves as if they were more.

    torchrun --nproc-per-node 2 test/gpu/check_nodes.py                     # two nodes of one rank
    torchrun --nproc-per-node 4 test/gpu/check_nodes.py --ranks-per-node 2
    ditron run --sim 4 --nodes 2 test/gpu/check_nodes.py --small

Elements are small integers, so that products are exact; every call has others. Prints a line, or fails.
"""

from __future__ import annotations

import argparse
import time

import torch

import ditron
from ditron import kernels


def integers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks-per-node", type=int, default=1)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="shapes for the simulator")
    given = parser.parse_args()
    ditron.init(transport="nvshmem", ranks_per_node=given.ranks_per_node)
    rank, ranks, device = ditron.rank(), ditron.num_ranks(), ditron.device()
    rows, N, K = (40, 48, 32) if given.small else (1024, 1536, 2048)
    wrong = 0
    started = time.perf_counter()
    for call in range(3 if given.small else given.calls):
        a, b = (integers(call * 100 + seed, ranks, *shape).to(device) for seed, shape in ((0, (rows, K)), (1, (N, K))))
        got = kernels.ag_gemm(a[rank], b[rank], algorithm="overlapped")
        wrong += int((got != (a.reshape(-1, K).float() @ b[rank].float().T).bfloat16()).sum())
        x = integers(call * 100 + 2, ranks, ranks * rows, 32).to(device)  # sums of few products are exact in bfloat16
        w = integers(call * 100 + 3, ranks, N, 32).to(device)
        got = kernels.gemm_rs(x[rank], w[rank], algorithm="overlapped")
        own = x[:, rank * rows : (rank + 1) * rows].float()
        wrong += int((got != (own @ w.float().transpose(1, 2)).sum(0).bfloat16()).sum())
    seconds = time.perf_counter() - started
    nodes = ranks // given.ranks_per_node if not ditron.world().is_sim else len(ditron.world().nodes)
    print(f"rank {rank} of {ranks} on {nodes} nodes: {wrong} elements are wrong, {seconds:.1f} s", flush=True)
    ditron.finalize()
    assert not wrong


if __name__ == "__main__":
    main()
