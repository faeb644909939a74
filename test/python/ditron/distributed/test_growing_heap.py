"""Symmetric memory that grows: ranks are threads, and CUDA's virtual memory is the host's (fake_vmm.py)."""

import gc
import os
import random
from types import SimpleNamespace

import pytest
import torch
from fake_node import on_node
from fake_vmm import GRANULARITY

from ditron import DitronError
from ditron.distributed import growing_heap
from ditron.distributed.context import barrier_area_bytes

UNIT = 1 << 20


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    monkeypatch.setattr(growing_heap, "SMALLEST_SEGMENT", UNIT)


def good(results: list) -> list:
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def test_grows_and_keeps_addresses_and_contents():
    def body(rank):
        bases = rank.heap.base, list(rank.heap.peer_bases)
        tensors = [rank.allocate(1 << bits, f"t{bits}") for bits in range(4, 21)]
        addresses = [tensor.data_ptr() for tensor in tensors]
        for number, tensor in enumerate(tensors):
            tensor.fill_(1000 * rank.rank + number)
        rank.meet()
        for peer in range(3):
            for number, tensor in enumerate(tensors):
                assert rank.peer(tensor, peer).unique().tolist() == [1000 * peer + number]
        rank.allocate(5 << 20)
        assert [tensor.data_ptr() for tensor in tensors] == addresses
        assert (rank.heap.base, rank.heap.peer_bases) == bases
        assert all(tensor.unique().tolist() == [1000 * rank.rank + i] for i, tensor in enumerate(tensors))
        rank.meet()
        return [address - rank.heap.base for address in addresses], rank.cuda.calls["cuMemCreate"]

    first, *others = good(on_node(body, 3))
    assert others == [first, first]  # the same offsets and the same growth everywhere
    assert 3 <= first[1] < len(first[0])


def test_memory_is_returned():
    def body(rank):
        start = rank.cuda.used
        small = rank.allocate(100)
        large = rank.allocate(4 << 20)
        assert rank.cuda.used == start + (16 << 20)
        rank.meet()
        offset = large.data_ptr() - rank.heap.base
        end = rank.heap.nbytes
        rank.heap.free(large)
        assert rank.cuda.used == start and rank.heap.nbytes < end
        assert len(rank.cuda.mapped) == 2 and not rank.cuda.handles
        small.fill_(3)
        again = rank.allocate(4 << 20)
        assert again.data_ptr() - rank.heap.base == offset
        rank.meet()
        rank.heap.free(again)
        rank.heap.free(small)
        assert rank.cuda.used == start  # the first segment stays
        return start

    assert good(on_node(body, 2)) == [UNIT, UNIT]


def test_initial_bytes_are_kept():
    def body(rank):
        tensor = rank.allocate(4 << 18)
        rank.heap.free(tensor)
        return rank.cuda.used, rank.cuda.calls["cuMemCreate"]

    assert good(on_node(body, 2, initial=8 << 20)) == [(8 << 20, 1)] * 2


def test_few_initial_bytes_are_what_is_mapped():
    assert GRANULARITY < UNIT
    assert good(on_node(lambda rank: rank.cuda.used, 2, initial=1)) == [GRANULARITY] * 2
    assert good(on_node(lambda rank: rank.cuda.used, 2, initial=0)) == [UNIT] * 2


def test_random_allocations_agree():
    def body(rank):
        rng, held, offsets = random.Random(11), [], []
        for _ in range(120):
            if held and rng.random() < 0.45:
                tensor, value = held.pop(rng.randrange(len(held)))
                assert tensor.unique().tolist() == [value + rank.rank]
                rank.heap.free(tensor)
            else:
                tensor = rank.allocate(rng.randrange(1, 500_000))
                held.append((tensor, rng.randrange(1000)))
                tensor.fill_(held[-1][1] + rank.rank)
                offsets.append(tensor.data_ptr() - rank.heap.base)
        for tensor, _ in held:
            rank.heap.free(tensor)
        assert rank.cuda.used == UNIT
        return offsets

    first, second = good(on_node(body, 2))
    assert first == second


def test_fds_and_handles_are_closed():
    def body(rank):
        def count() -> int:
            """While the others wait; listing opens a descriptor itself."""
            rank.meet()
            found = len(os.listdir("/proc/self/fd")) if rank.rank == 0 else 0
            rank.meet()
            return found

        before = count()
        tensors = [rank.allocate(1 << 20) for _ in range(5)]
        grown = count() - before
        assert not rank.cuda.handles
        return grown, len(tensors)

    assert good(on_node(body, 3)) == [(0, 5)] * 3


def test_subgroups_share_the_addresses():
    """[0, 1], [0], [1, 2]: each allocates without the others, in any order, and none sees another's memory."""

    def body(rank):
        heaps = {
            ranks: rank.heap.subgroup(list(ranks), None, rank.rank in ranks) for ranks in ((0, 1), (0,), (1, 2), (2, 0))
        }
        everyone = rank.allocate(1000, "everyone")
        everyone.fill_(7)
        mine = {ranks: heap for ranks, heap in heaps.items() if heap}
        order = list(mine) if rank.rank != 1 else list(mine)[::-1]
        assert all(rank.rank in ranks for ranks in mine)
        held = {}
        for turn in range(3):
            for ranks in sorted(order):  # the same order on both members of a group
                heap = mine[ranks]
                tensor = rank.allocate(200_000 * (turn + 1), str(ranks), heap)
                tensor.fill_(100 * sum(ranks) + rank.rank)
                held[ranks, turn] = tensor
                if turn == 1 and ranks == (0,):
                    heap.free(tensor)
                    del held[ranks, turn]
        for ranks, heap in mine.items():
            heap.peers.values("meet", None)
            for (owner, _), tensor in held.items():
                for index, world_rank in enumerate(ranks):
                    if owner == ranks:
                        assert rank.peer(tensor, index, heap).unique().tolist() == [100 * sum(ranks) + world_rank]
        rank.meet()
        assert everyone.unique().tolist() == [7]
        areas = [(heap.barrier_offset, barrier_area_bytes(len(ranks))) for ranks, heap in mine.items()]
        areas += [(rank.heap.barrier_offset, barrier_area_bytes(3))]
        for index, (start, size) in enumerate(areas):
            assert all(start + size <= other or other + more <= start for other, more in areas[index + 1 :])
        return {key: tensor.data_ptr() - rank.heap.base for key, tensor in held.items()}

    offsets = good(on_node(body, 3))
    for ranks in ((0, 1), (1, 2), (2, 0)):
        for turn in range(3):
            assert len({offsets[rank][ranks, turn] for rank in ranks}) == 1


def test_process_groups_need_their_ranks_alone():
    """Ranks 1 and 2 make one, and allocate, while rank 0 does something else."""

    def body(rank):
        everyone = rank.allocate(1000)
        everyone.fill_(rank.rank)
        if rank.rank == 0:
            rank.heap.of_process_group([0], SimpleNamespace(group_name="0"))
            return []
        heap = rank.heap.of_process_group([1, 2], SimpleNamespace(group_name="12"))
        assert heap.barrier_offset + heap.base != rank.heap.base + rank.heap.barrier_offset
        tensors = [rank.allocate(1 << 19, "", heap) for _ in range(3)]
        for number, tensor in enumerate(tensors):
            tensor.fill_(10 * number + rank.rank)
        heap.peers.values("meet", None)
        for number, tensor in enumerate(tensors):
            assert [rank.peer(tensor, i, heap).unique().tolist() for i in (0, 1)] == [
                [10 * number + 1],
                [10 * number + 2],
            ]
        heap.peers.values("meet", None)
        return [tensor.data_ptr() - heap.base for tensor in tensors] + everyone.unique().tolist()

    alone, first, second = good(on_node(body, 3))
    assert alone == [] and first[:-1] == second[:-1] and (first[-1], second[-1]) == (1, 2)


def test_groups_that_are_dropped_return_their_memory():
    def body(rank):
        used, areas = [], set()
        for turn in range(100):
            ranks = [[0, 1], [0], [1, 2], [0, 1, 2]][turn % 4]
            heap = rank.heap.subgroup(ranks, None, rank.rank in ranks)
            if heap:
                areas.add(heap.barrier_offset)
                tensor = rank.allocate(10_000, "", heap)
                assert not tensor.data_ptr() - heap.base == heap.barrier_offset
                del tensor
            del heap
            used.append((rank.cuda.used, len(rank.cuda.mapped), len(rank.heap._subgroups)))
        return used, len(areas)

    for used, areas in good(on_node(body, 3)):
        assert max(used) <= (3 * UNIT, 9, 2) and areas <= 3


def test_a_group_that_one_rank_holds_stays():
    def body(rank):
        heap = rank.heap.subgroup([0, 1], None, True)
        tensor = rank.allocate(1000, "", heap)
        tensor.fill_(5 + rank.rank)
        rank.meet()
        if rank.rank == 1:
            del heap, tensor
        for _ in range(3):
            rank.heap.subgroup([0, 1], None, True)
        assert set(rank.heap._subgroups) >= {1}
        return [rank.peer(tensor, peer, heap).unique().tolist() for peer in (0, 1)] if rank.rank == 0 else None

    assert good(on_node(body, 2)) == [[[5], [6]], None]


def test_a_tensor_keeps_its_group_alive():
    def body(rank):
        heap = rank.heap.subgroup([0, 1], None, True)
        tensor = rank.allocate(1000, "", heap)
        tensor.fill_(5)
        del heap
        rank.heap.subgroup([0, 1], None, True)
        assert tensor.unique().tolist() == [5]
        del tensor
        gc.collect()
        used = rank.cuda.used
        rank.heap.subgroup([0, 1], None, True)
        return used - rank.cuda.used

    assert good(on_node(body, 2)) == [UNIT, UNIT]


# --- failures ---------------------------------------------------------------------------------------------------------


def test_no_memory_on_one_rank_is_an_error_on_all():
    def prepare(rank, cuda):
        cuda.total = (8 if rank == 1 else 64) << 20

    def body(rank):
        rank.allocate(1 << 20, "gather.workspace")
        rank.allocate(1 << 18, "gather.signals")
        with pytest.raises(MemoryError) as caught:
            rank.allocate(3 << 20, "scatter.buffer")
        assert rank.cuda.used <= 6 << 20
        after = rank.allocate(1 << 10)  # what is there can be used on
        return str(caught.value), after.data_ptr() - rank.heap.base

    results = good(on_node(body, 3, prepare=prepare))
    assert len({offset for _, offset in results}) == 1
    for rank, (text, _) in enumerate(results):
        assert text.startswith(
            "symm_empty: no memory for scatter.buffer (12.0 MiB): rank 1: cuMemCreate: CUDA_ERROR_OUT"
        )
        assert "MiB of 8 MiB free" in text and f"6.0 MiB on rank {rank}" in text
        assert "gather.workspace 4.0 MiB, gather.signals 1.0 MiB" in text and "program.free()" in text


def test_no_memory_ahead_of_need_is_no_error():
    """The last bytes of a GPU are used, although a whole segment does not fit any more."""

    def body(rank):
        rank.allocate(3 << 18)
        rank.allocate((UNIT - 1024) // 4)  # the rest of the first segment
        tensor = rank.allocate(GRANULARITY // 4)
        return rank.cuda.total - rank.cuda.used, tensor.numel()

    def prepare(rank, cuda):
        cuda.total = 4 * UNIT + GRANULARITY

    assert good(on_node(body, 2, prepare=prepare)) == [(0, GRANULARITY // 4)] * 2


@pytest.mark.parametrize(
    "call",
    ["cuMemCreate", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"],
)
def test_a_call_that_fails_on_one_rank(call):
    """Every rank gets the error, nothing stays behind, and the next allocation is right again."""

    def body(rank):
        before = rank.cuda.used, len(rank.cuda.mapped), len(rank.cuda.handles)
        if rank.rank == 2:
            rank.cuda.fail = {call: 1}
        with pytest.raises(MemoryError, match=f"rank 2: {call}: CUDA_ERROR_INVALID_VALUE"):
            rank.allocate(1 << 20)
        rank.cuda.fail = {}
        assert (rank.cuda.used, len(rank.cuda.mapped), len(rank.cuda.handles)) == before
        rank.meet()
        return rank.allocate(1 << 20).data_ptr() - rank.heap.base

    assert len(set(good(on_node(body, 3)))) == 1


def test_cached_memory_of_torch_is_given_back_first():
    def body(rank):
        cache = [40 << 20]
        rank.cuda.used += cache[0]

        def empty_cache():
            rank.cuda.used -= cache.pop() if cache else 0

        rank.heap.space._empty_cache = empty_cache
        rank.allocate(8 << 20)
        return cache

    assert good(on_node(body, 2)) == [[], []]


def test_a_rank_that_ends_is_named():
    def body(rank):
        rank.meet()
        if rank.rank == 1:
            raise RuntimeError("the user's error")
        rank.allocate(1 << 20)

    results = on_node(body, 3)
    assert str(results[1]) == "the user's error"
    for rank in (0, 2):
        assert isinstance(results[rank], DitronError) and "rank 1 has ended" in str(results[rank])


def test_a_rank_that_makes_another_call_is_named():
    def body(rank):
        if rank.rank == 1:
            rank.heap.free(rank.allocate(10))
        else:
            rank.allocate(10)
            rank.allocate(1 << 20)

    for result in on_node(body, 2):
        assert isinstance(result, DitronError)
        assert "symm_free() in the world" in str(result) and "growing in the world" in str(result)


def test_free_of_different_tensors():
    def body(rank):
        tensors = [rank.allocate(10), rank.allocate(10)]
        rank.heap.free(tensors[rank.rank])

    for result in on_node(body, 2):
        assert isinstance(result, DitronError) and "every rank to free the same tensor" in str(result)


def test_after_finalize():
    def body(rank):
        tensor = rank.allocate(10)
        heap = rank.heap.subgroup([0, 1], None, True)
        rank.meet()
        rank.heap.finalize()
        rank.heap.finalize()
        assert not rank.cuda.reserved and not rank.cuda.mapped and not rank.cuda.used
        with pytest.raises(DitronError, match="after ditron.finalize"):
            rank.heap.free(tensor)
        with pytest.raises(DitronError, match="after ditron.finalize"):
            rank.allocate(10, "", heap)

    good(on_node(body, 2))


def test_finalize_when_the_gpu_has_failed():
    def body(rank):
        rank.allocate(10)
        rank.cuda.fail = {"cuMemUnmap": 700}
        rank.heap.finalize()

    good(on_node(body, 1))


def test_one_rank_alone():
    def body(rank):
        tensor = rank.allocate(1 << 20)
        tensor.fill_(1)
        rank.heap.free(tensor)
        return rank.cuda.used

    assert good(on_node(body, 1)) == [UNIT]


def test_a_tensor_is_usable():
    def body(rank):
        tensor = rank.heap.allocate((16, 32), torch.bfloat16, "")
        tensor.copy_(torch.arange(512).view(16, 32))
        assert tensor.is_contiguous() and tensor[3:5, ::2].t().shape == (16, 2)
        assert tensor.view(-1)[100:].data_ptr() == tensor.data_ptr() + 200
        return tensor.float().sum().item()

    assert good(on_node(body, 1)) == [torch.arange(512).bfloat16().float().sum().item()]
