"""GB/s between two GPUs: stores, puts, TMA and packets of generated code by 1 to all SMs, copy engine and NCCL beside.

    torchrun --nproc-per-node 2 benchmark/links.py --table docs/results/links.md
    ditron run --sim 2 benchmark/links.py --check

Every rank pushes to its right neighbour, or pulls from its left one, at the same time. GB/s of payload out of one GPU
(of packets: without their flags), medians of the slowest rank, in turns; every transport's result is compared first.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parent))
import link_kernels  # noqa: E402

import ditron  # noqa: E402

MB = 1 << 20
PLACES_FOR = 2  # bytes of packets for a byte of payload


@dataclass(frozen=True)
class Transport:
    """A kernel with its constants."""

    name: str
    kernel: Any
    options: dict[str, Any]
    pulls: bool = False

    @property
    def packets(self) -> bool:
        return "PROTOCOL" in self.options


def transports(small: bool) -> list[Transport]:
    def of(kernel: Any, name: str, pulls: bool = False, **options: Any) -> Transport:
        return Transport(name, kernel, options, pulls)

    k, found = link_kernels, []
    for block, warps in [(1024, 4)] if small else [(8192, 8), (16384, 16), (32768, 32)]:
        how = f"{block} elements, {warps} warps"
        found.append(of(k.store_push, f"push, stores, {how}", BLOCK=block, num_warps=warps))
        found.append(of(k.load_pull, f"pull, loads, {how}", True, BLOCK=block, num_warps=warps))
    for block, warps in [(1024, 4)] if small else [(1 << 17, 8), (1 << 17, 16), (1 << 15, 16)]:
        how = f"{block} elements, {warps} warps"
        found.append(of(k.putmem_push, f"push, putmem, {how}", BLOCK=block, num_warps=warps))
        found.append(of(k.getmem_pull, f"pull, getmem, {how}", True, BLOCK=block, num_warps=warps))
    for rows, stages, warps in [(4, 2, 4)] if small else [(32, 4, 4), (64, 4, 4)]:
        shape = dict(ROWS=rows, COLS=256, STAGES=stages, num_warps=warps)
        how = f"{rows} x 256, {stages} stages, {warps} warps"
        found.append(of(k.tma_push, f"push, TMA store, {how}", ADD=False, **shape))
        found.append(of(k.tma_push, f"push, TMA reduce-add, {how}", ADD=True, **shape))
        found.append(of(k.tma_pull, f"pull, TMA load, {how}", True, **shape))
    for protocol, block, warps in (
        [("ll", 256, 4), ("ll128", 240, 4)]
        if small
        else [("ll", 8192, 16), ("ll", 32768, 32), ("ll128", 7680, 16), ("ll128", 30720, 32)]
    ):
        how = f"{block} elements, {warps} warps"
        found.append(
            of(k.packet_push, f"push, {protocol} packets, {how}", BLOCK=block, PROTOCOL=protocol, num_warps=warps)
        )
    return found


class Link:
    """Memory that is sent from and received in, and the transports on it."""

    def __init__(self, nbytes: int):
        self.n = nbytes // 2
        device, self.epoch = ditron.device(), 0
        self.x = torch.empty(self.n, dtype=torch.bfloat16, device=device)
        self.box = ditron.symm_empty(self.n, dtype=torch.bfloat16, name="box")
        self.packets = ditron.symm_zeros(
            PLACES_FOR * self.n // 4 + (self.n // 32 + 1) * 16, dtype=torch.int64, name="packets"
        )

    def launch(self, transport: Transport, programs: int, n: int) -> Callable[[], None]:
        kernel = transport.kernel[(programs,)]
        if transport.packets:
            return lambda: kernel(self.x, self.packets, n, 1, **transport.options)
        return lambda: kernel(self.x, self.box, n, **transport.options)

    def check(self, transport: Transport, programs: int, n: int) -> None:
        """Raises AssertionError unless every element arrives."""
        ranks, rank = ditron.num_ranks(), ditron.rank()
        self.epoch += 1

        def data(of: int) -> torch.Tensor:
            generator = torch.Generator(self.x.device).manual_seed(1000 * self.epoch + of)
            return torch.randint(-256, 256, (n,), generator=generator, device=self.x.device).bfloat16()

        sent, received = (self.box, self.x) if transport.pulls else (self.x, self.box)
        received.zero_()
        sent[:n] = data(rank)
        ditron.barrier()
        if transport.packets:
            transport.kernel[(programs,)](self.x, self.packets, n, self.epoch, **transport.options)
            link_kernels.packet_take[(programs,)](received, self.packets, n, self.epoch, **transport.options)
        else:
            self.launch(transport, programs, n)()
        ditron.barrier()
        wrong = int((received[:n] != data((rank - 1) % ranks)).sum()) + int((received[n:] != 0).sum())
        assert not wrong, f"rank {rank}: {transport.name}, {programs} programs: {wrong} wrong elements"
        ditron.barrier()


def measure(link: Link, found: list[Transport], args: argparse.Namespace) -> list[str]:
    """Rows of a table for each size."""
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem
    from ag_gemm_triton import copy
    from measuring import Samples, extend

    samples, rank, ranks = Samples(link.x.device), ditron.rank(), ditron.num_ranks()
    right = (rank + 1) % ranks
    lines = []
    received = torch.empty(ranks, link.n, dtype=torch.bfloat16, device=link.x.device)

    shared = symm_mem.empty(link.n, dtype=torch.bfloat16, device=link.x.device)
    target = int(symm_mem.rendezvous(shared, group=dist.group.WORLD).buffer_ptrs[right])

    def copy_engine(n: int) -> Callable[[], None]:
        return lambda: copy(torch.cuda.current_stream(), target, link.x.data_ptr(), 2 * n)

    def all_gather(n: int) -> Callable[[], None]:
        out = received.view(-1)[: ranks * n]
        return lambda: dist.all_gather_into_tensor(out, link.x[:n])

    def send_receive(n: int) -> Callable[[], None]:
        def run() -> None:
            ops = [
                dist.P2POp(dist.isend, link.x[:n], right),
                dist.P2POp(dist.irecv, received[0, :n], (rank - 1) % ranks),
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()

        return run

    for nbytes in args.bytes:
        n = nbytes // 2
        peers = {"copy engine": copy_engine(n), "NCCL all-gather": all_gather(n), "NCCL send/recv": send_receive(n)}
        runs = {(name, 0): run for name, run in peers.items()}
        runs |= {(t.name, sms): link.launch(t, sms, n) for t in found for sms in args.sms}
        for run in runs.values():
            run()
        torch.cuda.synchronize()
        dist.barrier()
        extend(args.limit)
        times = samples.medians(runs, args.rounds, 100_000, 1)
        rate = {key: (ranks - 1 if "gather" in key[0] else 1) * nbytes / 1e6 / ms for key, ms in times.items()}
        head = [f"{nbytes / MB:g} MB, GB/s by SMs", *map(str, args.sms)]
        lines += ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += [f"| {name} |" + f" {rate[name, 0]:.0f} |" * len(args.sms) for name in peers]
        for t in found:
            lines.append(f"| {t.name} | " + " | ".join(f"{rate[t.name, sms]:.0f}" for sms in args.sms) + " |")
        if rank == 0:
            print("\n".join(lines[-len(found) - len(peers) - 3 :]), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", nargs="*", type=int, default=[1 * MB, 8 * MB, 64 * MB, 256 * MB])
    parser.add_argument("--sms", nargs="*", type=int, default=[1, 4, 8, 12, 16, 32, 132])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="", help="transports whose name contains this")
    parser.add_argument("--check", action="store_true", help="only compare, with few elements")
    parser.add_argument("--table", type=Path, help="append the tables to this file")
    parser.add_argument("--limit", type=int, default=60, help="seconds a size may take")
    args = parser.parse_args()
    if not args.check:
        from measuring import extend, start

        start(args.limit)
    ditron.init()
    found = [t for t in transports(args.check) if args.only in t.name]
    link = Link(1 << 15 if args.check else max(args.bytes))
    for transport in found:
        if not args.check:
            extend(args.limit)
        for programs in (1, 3) if args.check else (12, 132):
            link.check(transport, programs, link.n)
    if ditron.rank() == 0:
        print(f"{len(found)} transports: every element arrived", flush=True)
    if not args.check:
        lines = measure(link, found, args)
        if ditron.rank() == 0 and args.table:
            title = f"{ditron.num_ranks()} x {torch.cuda.get_device_name()}, torch {torch.__version__}, "
            title += f"triton {triton.__version__}, {datetime.date.today()}"
            with args.table.open("a") as file:
                file.write(f"\n{title}\n" + "\n".join(lines) + "\n")
    ditron.finalize()


if __name__ == "__main__":
    main()
