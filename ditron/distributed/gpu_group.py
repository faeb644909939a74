"""A group of processes with a GPU each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ditron.distributed.context import Slot, barrier_area_bytes, pack
from ditron.distributed.device_wait import GpuWaits, wait_for_device
from ditron.distributed.group import Group
from ditron.distributed.heap import Heap
from ditron.distributed.links import has_nvlink
from ditron.distributed.local_sockets import RankLeft
from ditron.sanitizer import report as sanitizer
from ditron_compiler import knobs
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

    from ditron_compiler.frontend.targets import Target

__all__ = ["GpuGroup"]


class GpuGroup(Group):
    """Processes with a GPU each.

    Attributes:
        process_group: torch's. heap: the symmetric heap.
        context: int64 tensor that kernels find their peers by (:mod:`ditron.distributed.context`).
        monitor: reads the sanitizer's reports, where ``sanitize`` is not 0.
    """

    backend = "cuda"

    def __init__(
        self,
        ranks: Sequence[int],
        world_rank: int,
        transport: str,
        device: torch.device,
        process_group: Any,
        heap: Heap,
        ranks_per_node: int,
        sanitize: int = 0,
    ):
        import torch
        import torch.distributed as dist

        super().__init__(ranks, world_rank, transport, device, ranks_per_node)
        self.process_group, self.heap, self.sanitize = process_group, heap, sanitize
        self._of_process_groups: dict[str, GpuGroup] = {}  # of torch, by their names
        self._heap_bytes = heap.nbytes
        if device.type == "cuda":
            gpu = torch.cuda.get_device_properties(device)
            self.sms, self.has_tma = gpu.multi_processor_count, torch.version.cuda is not None and gpu.major >= 9
        node = world_rank // ranks_per_node
        local = [r for r in self.ranks if r // ranks_per_node == node]
        fixed = {
            Slot.RANK: self.rank,
            Slot.NUM_RANKS: self.num_ranks,
            Slot.LOCAL_RANK: local.index(world_rank),
            Slot.NUM_LOCAL_RANKS: len(local),
            Slot.NODE: self.nodes.index(node),
            Slot.WORLD_RANK: world_rank,
            Slot.WORLD_SIZE: dist.get_world_size(),
            Slot.TEAM: heap.team,
            Slot.HEAP_BASE: heap.base,
            Slot.HEAP_BYTES: heap.nbytes,
            Slot.BARRIER_OFFSET: heap.barrier_offset,
        }
        if sanitize:
            reports = torch.zeros(sanitizer.RECORDS * sanitizer.WORDS, dtype=torch.int64, pin_memory=True)
            area = range(heap.barrier_offset, heap.barrier_offset + barrier_area_bytes(self.num_ranks))
            self.monitor = sanitizer.Monitor(reports, self.ranks, self.rank, heap.base, heap.nbytes, area)
            fixed |= {Slot.REPORT: reports.data_ptr(), Slot.LIMIT_NS: int(knobs.sanitize_seconds.get() * 1e9)}
        self.context = torch.tensor(pack(fixed, heap.peer_bases, self.ranks), dtype=torch.int64, device=device)
        self.barrier()
        if device.type == "cuda":  # ranks may see other GPUs, and choose alike
            linked = torch.version.cuda is not None and has_nvlink(torch.cuda._get_device_index(device, True))
            self.has_nvlink = all(self.small_values("a new group", linked))

    @property
    def local_rank(self) -> int:
        return self.device.index

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype, name: str) -> torch.Tensor:
        call, mine = "symm_empty()", [list(shape), str(dtype)]
        asked = self.small_values(call, mine)
        if any(other != asked[self.rank] for other in asked):
            lines = [f"rank {r} asked for {tuple(s)} {d}" for r, (s, d) in enumerate(asked)]
            raise DitronError(
                f"symm_empty: expected every rank of the group to ask for the same tensor: "
                f"{'; '.join(lines)}: symmetric memory is symmetric, allocate the largest on all ranks"
            )
        tensor = self.heap.allocate(shape, dtype, name)
        self._update_bounds()
        if self.sanitize:
            self.monitor.remember(tensor, name)
        return tensor

    def free(self, tensor: torch.Tensor) -> None:
        self.heap.free(tensor)
        self._update_bounds()
        if self.sanitize:
            self.monitor.forget(tensor)

    def _update_bounds(self) -> None:
        """Write where the heap ends into the context when that has changed: the sanitizer's checks read it."""
        import torch

        if self._heap_bytes != self.heap.nbytes:
            self._heap_bytes = self.heap.nbytes
            self.context[Slot.HEAP_BYTES : Slot.HEAP_BYTES + 1].copy_(torch.tensor([self._heap_bytes]))
            if self.sanitize:
                self.monitor.nbytes = self._heap_bytes

    def barrier(self) -> None:
        import torch
        import torch.distributed as dist

        if self.sanitize:
            return sanitizer.meet(self)
        wait_for_device(self.device, self.heap.peers)
        if self.heap.peers:  # which notices when a process has ended
            self.heap.peers.values("barrier()", None)
            return
        dist.barrier(self.process_group, device_ids=[self.device.index])
        torch.cuda.synchronize(self.device)

    def synchronize(self) -> None:
        if not self.sanitize:
            wait_for_device(self.device, self.heap.peers)
        sanitizer.synchronize(self)

    def all_gather_object(self, value: Any) -> list:
        import torch.distributed as dist

        gathered: list[Any] = [None] * self.num_ranks
        dist.all_gather_object(gathered, value, group=self.process_group)
        order = dist.get_process_group_ranks(self.process_group)
        return [gathered[order.index(rank)] for rank in self.ranks]

    def small_values(self, what: str, value: Any) -> list:
        return self.heap.peers.values(what, value) if self.heap.peers else self.all_gather_object(value)

    def of_process_group(self, process_group: Any) -> Group:
        import torch.distributed as dist

        ranks = dist.get_process_group_ranks(process_group)
        if ranks == self.ranks:
            return self
        found = self._of_process_groups.get(process_group.group_name)
        if found is not None and found.process_group is process_group:
            return found
        if self.transport != "p2p":
            raise DitronError(
                f"transport {self.transport!r} allocates memory on every rank of the world, and a process group is of "
                f"ranks {ranks} alone: make the group by ditron.new_group on all ranks"
            )
        heap = self.heap.of_process_group(ranks, process_group)
        made = GpuGroup(
            ranks,
            self.ranks[self.rank],
            self.transport,
            self.device,
            process_group,
            heap,
            self.ranks_per_node,
            self.sanitize,
        )
        self._of_process_groups[process_group.group_name] = made
        return made

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        import torch.distributed as dist

        process_group = dist.new_group(list(ranks))
        world_rank = self.ranks[self.rank]
        heap = self.heap.subgroup(list(ranks), process_group, world_rank in ranks)
        if heap is None:
            return None
        return GpuGroup(
            ranks, world_rank, self.transport, self.device, process_group, heap, self.ranks_per_node, self.sanitize
        )

    def finalize(self) -> None:
        import torch.distributed as dist

        try:
            self.barrier()
        except Exception as error:
            if not self.heap.peers:
                raise
            self.heap.finalize(in_use=isinstance(error, GpuWaits))  # which waits for nobody
            if not isinstance(error, RankLeft):
                raise
            warnings.warn(f"ditron.finalize(): {error}", RuntimeWarning, stacklevel=3)
            return  # torch's group would wait for the rank that left
        self._of_process_groups.clear()
        self.heap.finalize()
        if dist.is_initialized():
            dist.destroy_process_group()

    def target(self) -> Target:
        from triton.runtime.driver import driver

        from ditron_compiler.frontend.targets import Target

        gpu = driver.active.get_current_target()
        return Target(gpu.backend, gpu.arch, self.transport, bool(self.sanitize))

    def launch(self, kernel: Any, grid: Any, args: tuple, kwargs: dict, warmup: bool) -> Any:
        if not self.sanitize:
            return kernel.launch_on_gpu(self, grid, args, kwargs, warmup)
        self.before_launch()
        compiled = kernel.launch_on_gpu(self, grid, args, kwargs, warmup)
        if not warmup:
            self.after_launch()
        return compiled

    def before_launch(self) -> None:
        if self.sanitize and self.monitor.reported:
            self.synchronize()

    def after_launch(self) -> None:
        if self.sanitize > 1:
            self.synchronize()

    def on_module_loaded(self, kernel: Any) -> None:
        """Called once per kernel after its code was loaded; ``kernel.module`` is the driver's module handle."""
        if self.sanitize:
            sanitizer.remember_kernel(kernel.asm.get("ttir"))
        self.heap.on_module_loaded(kernel.module)

    def benchmark(self, call: Callable[[], Any], quantiles: Sequence[float], warmup: int, repeat: int) -> list[float]:
        import torch

        for _ in range(warmup):
            call()
        self.barrier()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(repeat + 1)]
        events[0].record()
        for event in events[1:]:
            call()
            event.record()
        events[-1].synchronize()
        times = torch.tensor([start.elapsed_time(end) for start, end in pairwise(events)])
        slowest = self.all_gather_object(times.quantile(torch.tensor(quantiles)).tolist())
        return [max(ranks) for ranks in zip(*slowest, strict=True)]
