"""Groups of torch's process groups and meshes, on a process group that sends nothing; and names of groups."""

import copy
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import ditron
from ditron import DitronError
from ditron.distributed import heap, state
from ditron.distributed.gpu_group import GpuGroup
from ditron.distributed.torch_groups import group_name, group_named

RANK = 2


@pytest.fixture
def world(monkeypatch):
    """Rank 2 of 4, whose groups have no memory."""

    def fake_heap(ranks, process_group=None):
        peer_bases = [0] * len(ranks)
        return SimpleNamespace(
            team=0, base=0, peer_bases=peer_bases, nbytes=8, barrier_offset=0, of_process_group=fake_heap
        )

    monkeypatch.setattr(GpuGroup, "barrier", lambda self: None)
    dist.init_process_group("fake", rank=RANK, world_size=4, store=FakeStore())
    ranks = [0, 1, 2, 3]
    device = torch.device("cpu", 0)
    group = GpuGroup(ranks, RANK, "p2p", device, dist.group.WORLD, fake_heap(ranks), 4)
    state.set_world(group)
    yield group
    state.clear()
    dist.destroy_process_group()


def test_process_groups(world):
    assert ditron.as_group(dist.group.WORLD) is world and ditron.as_group(None) is world
    pair = dist.new_group([1, 2])
    group = ditron.as_group(pair)
    assert (group.ranks, group.rank, group.process_group) == ([1, 2], 1, pair)
    assert ditron.as_group(pair) is group and ditron.as_group(group) is group
    assert ditron.as_group(dist.new_group([1, 2])) is not group
    assert group_name(pair) == group.name and group_named(group.name) is group


def test_meshes(world):
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    group = ditron.as_group(mesh["tp"])
    assert (group.ranks, ditron.as_group(mesh["dp"]).ranks) == ([2, 3], [0, 2])
    assert ditron.as_group(mesh["tp"]) is group
    assert ditron.as_group(dist.init_device_mesh("cpu", (4,))) is world
    with pytest.raises(DitronError, match="DeviceMesh of one dimension"):
        ditron.as_group(mesh)


@pytest.mark.parametrize("kind", ["process group", "mesh", "group"])
def test_compiled_functions_take_groups(world, kind):
    """The name of the group is a constant of the graph."""
    import ditron.kernels

    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["tp"]
    group = {"mesh": mesh, "process group": mesh.get_group(), "group": ditron.as_group(mesh)}[kind]
    graphs = []

    def backend(module, example):
        graphs.append(module.graph)
        return lambda *args: (args[0],)

    torch._dynamo.reset()
    torch.compile(lambda x: ditron.kernels.all_gather(x, group=group), backend=backend, fullgraph=True)(torch.ones(4))
    (call,) = (node for node in graphs[0].nodes if node.op == "call_function")
    assert call.kwargs["group"] == "2,3" and call.meta["example_value"].shape == (8,)


def test_a_process_group_allocates_on_its_ranks_alone(world):
    world.transport = "nvshmem"
    with pytest.raises(DitronError, match="by ditron.new_group on all ranks"):
        ditron.as_group(dist.new_group([1, 2]))


def test_names(world):
    def group(*ranks):
        return GpuGroup(ranks, RANK, "p2p", world.device, dist.group.WORLD, world.heap, 4)

    first, second, turned = group(2, 3), group(2, 3), group(3, 2)
    assert [g.name for g in (world, first, second, turned)] == ["0,1,2,3", "2,3", "2,3#2", "3,2"]
    assert group_named("2,3#2") is second and group_named("") is world
    assert copy.deepcopy([second])[0] is second
    del second
    with pytest.raises(DitronError, match="no group named '2,3#2'"):
        group_named("2,3#2")


def test_peers_lie_in_the_order_of_the_group(monkeypatch):
    """torch sorts the ranks of a process group."""
    import torch.distributed._symmetric_memory as symm_mem

    monkeypatch.setattr(symm_mem, "empty", lambda n, dtype, device: torch.empty(n, dtype=dtype))
    monkeypatch.setattr(symm_mem, "rendezvous", lambda buffer, group: SimpleNamespace(buffer_ptrs=[100, 300]))
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda group: [1, 3])
    assert heap.TorchHeap(4096, torch.device("cpu"), None, [3, 1]).peer_bases == [300, 100]


def test_without_a_group():
    with pytest.raises(DitronError, match=r"ditron.as_group\(\) before ditron.init"):
        ditron.as_group(None)


def test_the_simulator_has_no_process_groups():
    dist.init_process_group("fake", rank=0, world_size=1, store=FakeStore())
    try:

        def main():
            ditron.init()
            with pytest.raises(DitronError, match="has no process groups"):
                ditron.as_group(dist.group.WORLD)

        ditron.sim.run(main, ranks=1)
    finally:
        dist.destroy_process_group()
