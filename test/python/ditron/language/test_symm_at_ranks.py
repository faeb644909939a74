"""``dl.symm_at`` with a tensor of ranks: every element is at the rank beside it, on the simulator and in PTX."""

from __future__ import annotations

import re

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function

B = 16
GATHER = ({"x": "*bf16", "out": "*bf16"}, {"W": 4, "B": 2048})


@ditron.jit
def gather_rows(x, out, W: tl.constexpr, B: tl.constexpr):
    """Row r of the result is rank r's x (of a group that may be smaller than W)."""
    at = tl.arange(0, B)[None, :]
    rows = tl.arange(0, W)[:, None]
    ranks = rows % dl.num_ranks()
    dl.barrier_all()
    tl.store(out + rows * B + at, tl.load(dl.symm_at(x + at, ranks)))
    dl.barrier_all()


@ditron.jit
def transpose(x, out, N: tl.constexpr):
    """Element i goes to rank i % num_ranks: one pointer and as many ranks, then a table of pointers."""
    i = tl.arange(0, N)
    ranks = i % dl.num_ranks()
    mine = tl.load(x + i)
    there = dl.symm_at(out, ranks) + dl.rank() * N + i
    tl.store(there, mine)
    table = tl.where(i % 2 == 0, out + i, out + i)  # no single base
    again = dl.symm_at(table + dl.rank() * N, ranks)
    tl.store(again, mine)
    dl.barrier_all()


@ditron.jit
def beyond(x, out, W: tl.constexpr):
    """The mask turns the ranks off that do not exist; they are asked for all the same."""
    ranks = tl.arange(0, W)
    exists = ranks < dl.num_ranks()
    tl.store(out + ranks, tl.load(dl.symm_at(x, ranks), mask=exists, other=0.0), mask=exists)  # <-


def gathers() -> None:
    ditron.init()
    rank, ranks = ditron.rank(), ditron.num_ranks()
    x, out = ditron.symm_zeros(B, dtype=torch.float32, name="x"), torch.zeros(4, B)
    x.copy_(torch.arange(B) + 100.0 * rank)
    ditron.barrier()
    gather_rows[(1,)](x, out, W=4, B=B)
    for row in range(4):
        assert torch.equal(out[row], torch.arange(B) + 100.0 * (row % ranks))


@pytest.mark.parametrize("ranks", (1, 2, 3, 4))
def test_rows_of_ranks(ranks: int) -> None:
    ditron.sim.run(gathers, ranks=ranks)


@pytest.mark.parametrize("ranks", (2, 3))
def test_elements_of_ranks(ranks: int) -> None:
    def main() -> None:
        ditron.init()
        rank = ditron.rank()
        x, out = torch.arange(B) + 100.0 * rank, ditron.symm_zeros(ranks, B, dtype=torch.float32)
        transpose[(1,)](x, out, N=B)
        mine = torch.arange(B) % ranks == rank
        for source in range(ranks):
            assert torch.equal(out[source], torch.where(mine, torch.arange(B) + 100.0 * source, 0.0))

    ditron.sim.run(main, ranks=ranks)


def asks_beyond() -> None:
    ditron.init()
    beyond[(1,)](ditron.symm_zeros(1, dtype=torch.float32), torch.zeros(4), W=4)


def test_a_rank_out_of_range_is_an_error() -> None:
    """As with one rank: also where a mask turns the access off."""
    with pytest.raises(ditron.SimulationError, match="rank"):
        ditron.sim.run(asks_beyond, ranks=3)


def test_the_checker_follows_ranks() -> None:
    assert not check_function(gathers, [(1, None), (3, None), (4, None)]).findings
    (finding,) = check_function(asks_beyond, [(3, None)]).findings
    assert finding.kind == "rank"
    assert "rank 3 is asked for, of 3" in str(finding)


def unordered() -> None:
    """The barriers are what orders it; without one the checker must see the reads of all ranks."""
    ditron.init()
    x, out = ditron.symm_zeros(B, dtype=torch.float32, name="x"), torch.zeros(4, B)
    read_rows[(1,)](x, out, W=4, B=B)


@ditron.jit
def read_rows(x, out, W: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)[None, :]
    rows = tl.arange(0, W)[:, None]
    tl.store(x + tl.arange(0, B), 1.0)
    dl.barrier(team="node")
    tl.store(x + tl.arange(0, B), 2.0)
    tl.store(out + rows * B + at, tl.load(dl.symm_at(x + at, rows % dl.num_ranks())))
    dl.barrier_all()


def test_the_checker_finds_a_race_with_another_rank() -> None:
    findings = check_function(unordered, [(3, None)]).findings
    assert findings
    assert all("x" in str(finding) for finding in findings)
    with pytest.raises(ditron.SimulationError):
        for seed in range(20):
            ditron.sim.run(unordered, ranks=3, seed=seed, races=True)


@pytest.mark.parametrize("sanitize", (False, True), ids=("plain", "sanitized"))
@pytest.mark.parametrize("transport", ("p2p", "nvshmem"))
def test_ptx_loads_whole_vectors(transport: str, sanitize: bool) -> None:
    """The distance of a heap keeps the pointers' contiguity: bf16 rows are loaded 16 bytes at a time."""
    program = ditron.compile(gather_rows, *GATHER, transport=transport, stop_after="ptx", sanitize=sanitize)
    assert re.search(r"ld\.global\.v4\.b32", program.asm["ptx"])
    assert not re.findall(r"^declare .*@ditron_\w+", program.asm["llir"], re.MULTILINE)


@pytest.mark.parametrize("sanitize", (False, True), ids=("plain", "sanitized"))
@pytest.mark.parametrize("transport", ("p2p", "rocshmem"))
def test_amd_has_it_too(transport: str, sanitize: bool) -> None:
    last = "amdgcn" if transport == "p2p" else "llir"
    program = ditron.compile(
        gather_rows, *GATHER, target="hip:gfx942", transport=transport, stop_after=last, sanitize=sanitize
    )
    assert not re.findall(r"^declare .*@ditron_\w+", program.asm["llir"], re.MULTILINE)
    if transport == "p2p":
        assert "global_load_dwordx4" in program.asm["amdgcn"]
