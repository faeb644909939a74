"""``copies_alone`` of ``benchmark/cases.py``: what ranks push that have different bytes for each other."""

import importlib.util
import sys
from types import SimpleNamespace

import paths
import pytest
import torch


@pytest.fixture(scope="module")
def cases():
    folder = paths.ROOT / "benchmark"
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("benchmark_cases", folder / "cases.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


class Machine:
    """Ranks one after the other, without GPUs: sizes of symmetric memory, and copies (peer, offset, bytes)."""

    def __init__(self, cases, monkeypatch, sizes):
        self.rank, self.boxes, self.copies = 0, [], []
        ranks = len(sizes)
        most = max(max((n for peer, n in enumerate(row) if peer != rank), default=0) for rank, row in enumerate(sizes))

        def all_reduce(tensor, op):
            assert op == cases.dist.ReduceOp.MAX
            tensor.fill_(max(int(tensor), most))

        def empty(nbytes, **_):
            self.boxes.append(nbytes)
            return torch.empty(nbytes, dtype=torch.uint8)

        handle = SimpleNamespace(buffer_ptrs=[peer << 32 for peer in range(ranks)])
        stream = SimpleNamespace(wait_stream=lambda other: None)
        group = SimpleNamespace(WORLD=None)
        dist = SimpleNamespace(
            get_rank=lambda: self.rank,
            get_world_size=lambda: ranks,
            all_reduce=all_reduce,
            ReduceOp=cases.dist.ReduceOp,
            group=group,
        )
        monkeypatch.setattr(cases, "dist", dist)
        monkeypatch.setattr(cases, "symm_mem", SimpleNamespace(empty=empty, rendezvous=lambda box, group: handle))
        monkeypatch.setattr(cases, "copy", lambda stream, target, source, n: self.copies.append((target, n)))
        monkeypatch.setattr(torch.cuda, "Stream", lambda **_: stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_with_other_bytes_have_memory_of_one_size(cases, monkeypatch, ranks):
    """Each rank pushes what each peer gets, and no two ranks to one place."""
    sizes = [[100 * sender + 7 * receiver for receiver in range(ranks)] for sender in range(ranks)]
    machine = Machine(cases, monkeypatch, sizes)
    for machine.rank in range(ranks):
        cases.copies_alone(sizes[machine.rank], torch.device("cpu"))()
    assert len(set(machine.boxes)) == 1
    found = sorted((target >> 32, n) for target, n in machine.copies)
    assert found == sorted((r, sizes[s][r]) for s in range(ranks) for r in range(ranks) if s != r and sizes[s][r])
    ends = 0
    for target, n in sorted(machine.copies):
        assert target >= ends and target % (1 << 32) + n <= machine.boxes[0]
        ends = target + n


def test_the_same_bytes_for_every_peer(cases, monkeypatch):
    machine = Machine(cases, monkeypatch, [[64] * 3] * 3)
    for machine.rank in range(3):
        cases.copies_alone(64, torch.device("cpu"))()
    assert machine.boxes == [192] * 3 and [n for _, n in machine.copies] == [64] * 6
