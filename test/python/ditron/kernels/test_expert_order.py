"""The order of an expert's tiles, by tables of a plan, against the order that the paper's appendix B describes."""

import itertools
import random

import pytest
import torch
import triton.language as tl

import ditron
from ditron import kernels, sim
from ditron.kernels.routing import tables_on_host

BLOCK = 16


@ditron.jit
def read_tiles(tiles_ptr, num_tiles_ptr, out_ptr, tiles_n):
    for tile in range(tl.program_id(0), tl.load(num_tiles_ptr) * tiles_n, tl.num_programs(0)):
        m, n, expert, first_stage, last_stage = kernels.expert_tile(tile, tiles_n, tiles_ptr, 2)
        tl.store(out_ptr + 5 * tile, m)
        tl.store(out_ptr + 5 * tile + 1, n)
        tl.store(out_ptr + 5 * tile + 2, expert)
        tl.store(out_ptr + 5 * tile + 3, first_stage)
        tl.store(out_ptr + 5 * tile + 4, last_stage)


def paper_order(counts, rank):
    """Expert and last stage of each tile in order, by the text of appendix B: ``counts`` [ranks][experts] of rows.

    An expert's rows lie by the rank they come from; its tiles are counted by stage, that of the last rank to arrive of
    those that a tile has rows of, and placed by the sums of these counts: by expert, in it by stage.
    """
    ranks, experts = len(counts), len(counts[0])
    order = []
    for expert in range(experts):
        ends = list(itertools.accumulate(counts[source][expert] for source in range(ranks)))
        tiles = -(-ends[-1] // BLOCK)
        by_stage = [0] * ranks
        for tile in range(tiles):
            first, last = tile * BLOCK, min((tile + 1) * BLOCK, ends[-1]) - 1
            sources = [
                source
                for source in range(ranks)
                if counts[source][expert] and ends[source] > first and ends[source] - counts[source][expert] <= last
            ]
            by_stage[max((source - rank) % ranks for source in sources)] += 1
        order += [(expert, stage) for stage in range(ranks) for _ in range(by_stage[stage])]
    return order


def tiles_of(plan):
    """Row of tiles, expert, first and last stage of each, in order, as ``expert_tile`` reads them."""
    table = plan.tiles[: int(plan.num_tiles)].tolist()
    return [
        (row + position - begin, expert, first, last)
        for position, (expert, begin, row, _, first, last) in enumerate(table)
    ]


def stages_of_rows(plan, m, tokens):
    """Of the rows of a row of tiles."""
    slots = plan.row_slot[m * BLOCK : (m + 1) * BLOCK]
    return (slots[slots >= 0] // tokens).tolist()


def routed(counts):
    """Experts of every rank's tokens, one each, so that ``counts`` [ranks][experts] rows result; -1 for the others."""
    tokens = max(sum(of) for of in counts)
    ids = torch.full((len(counts), tokens, 1), -1, dtype=torch.int32)
    for source, of in enumerate(counts):
        experts = [expert for expert, count in enumerate(of) for _ in range(count)]
        random.Random(source).shuffle(experts)
        ids[source, : len(experts), 0] = torch.tensor(experts, dtype=torch.int32)
    return ids


@pytest.mark.parametrize("seed", range(12))
def test_one_group_is_the_papers_order(seed):
    """Of rows in whole tiles, where both cut an expert's rows in the same places: the same experts and stages."""
    draw = random.Random(seed)
    ranks, experts = draw.choice([(1, 3), (2, 4), (4, 5), (8, 3)])
    counts = [[BLOCK * draw.choice([0, 1, 1, 2, 3]) for _ in range(experts)] for _ in range(ranks)]
    if not any(map(sum, counts)):
        counts[0][0] = BLOCK
    rank = draw.randrange(ranks)
    ids = routed(counts)
    plan = tables_on_host(ids, rank, 0, experts, BLOCK, 1)
    found = []
    for m, expert, _, _ in tiles_of(plan):
        found.append((expert, max(stages_of_rows(plan, m, ids.shape[1]))))
    assert found == paper_order(counts, rank)


@pytest.mark.parametrize("seed", range(12))
def test_any_counts(seed):
    """Experts come in the paper's order, with as many tiles, and an expert's tiles as their rows arrive.

    Which rows share a tile differs: here rows are sorted by arrival, there by rank.
    """
    draw = random.Random(100 + seed)
    ranks, experts = draw.choice([(2, 4), (3, 5), (4, 6)])
    counts = [[draw.choice([0, 1, 7, 16, 17, 40]) for _ in range(experts)] for _ in range(ranks)]
    counts[0][0] += 1
    rank, ids = draw.randrange(ranks), routed(counts)
    plan = tables_on_host(ids, rank, 0, experts, BLOCK, 1)
    order = [(expert, max(stages_of_rows(plan, m, ids.shape[1]))) for m, expert, _, _ in tiles_of(plan)]
    assert order == sorted(order)
    papers = paper_order(counts, rank)
    assert papers == sorted(papers)
    assert [expert for expert, _ in order] == [expert for expert, _ in papers]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_device_reads_the_same(groups):
    """``expert_tile`` in a kernel, on the plan that the device has made: each tile once, after its run's stages."""
    ranks, experts, tokens = 4, 6, 40
    ids = torch.rand(ranks, tokens, experts, generator=torch.Generator().manual_seed(groups)).topk(2).indices.int()

    def main():
        ditron.init()
        options = {"num_experts": experts, "parallel": "tp", "block_m": BLOCK, "stage_groups": groups}
        plan = kernels.moe_plan(ids[ditron.rank()], **options)
        want = tables_on_host(ids, ditron.rank(), 0, experts, BLOCK, groups)
        tiles_n = 3
        out = torch.full((int(plan.num_tiles) * tiles_n, 5), -1, dtype=torch.int32)
        read_tiles[(2,)](plan.tiles, plan.num_tiles, out, tiles_n)
        assert len({(m, n) for m, n, *_ in out.tolist()}) == len(out)
        firsts = [(m, expert, first, last) for m, n, expert, first, last in out.tolist() if n == 0]
        assert sorted(firsts) == sorted(tiles_of(want))
        for m, _, first, last in firsts:
            stages = stages_of_rows(plan, m, tokens)
            assert first <= min(stages) and max(stages) <= last
        groups_of = [last * groups // ranks for _, _, _, _, last in out.tolist()]
        assert groups_of == sorted(groups_of)

    sim.run(main, ranks=ranks)
