"""Peers' memory as a level: what crosses the link is what walking the loops counts, element by element of who has it."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator

import pytest
from nest_walk import every_blocking, held

from ditron import cost_model, machines
from ditron_compiler.errors import DitronError

PAIR = ("mk,kl->ml", "ml,ln->mn")
H800 = machines.load("h800x8")


def remote_bytes(walk, chain, tiles, dims, extents, stored) -> int:
    """Bytes of loaded tiles that rank 0 has not: of a tensor in shards along a loop, those of iterations of its rank loop
    behind the first."""
    total = 0
    for name, loop in stored.items():
        for place, times in walk.loads[name].items():
            sides = []
            for dim, at in zip(dims[name], place, strict=True):
                indices = range(at * tiles[dim], min(extents[dim], (at + 1) * tiles[dim]))
                sides.append([index for index in indices if dim != f"rank {loop}" or index > 0])
            total += times * chain.itemsize[name] * math.prod(map(len, sides))
    return total


def rank_loops(chain, ranks, divided, stored) -> Iterator[tuple[dict, dict]]:
    """Dimensions and extents of what rank 0 runs, a loop over shards outside of each loop that a tensor is stored by."""
    split = {loop for loop in stored.values() if loop != divided}
    extents = {}
    for loop, extent in chain.extents.items():
        if loop in split:
            extents |= {f"rank {loop}": ranks, loop: extent // ranks}
        else:
            extents[loop] = extent // ranks if loop == divided else extent
    dims = {
        name: tuple(part for loop in loops for part in ((f"rank {loop}", loop) if loop in split else (loop,)))
        for name, loops in chain.loops_of.items()
    }
    return dims, extents


@pytest.mark.parametrize("seed", range(60))
def test_what_crosses_the_link_is_the_least_of_all_orders_and_tiles(seed):
    """Two ranks or three, any two tensors of peers, a workspace that does not always hold everything."""
    rng = random.Random(seed)
    ranks = rng.choice((2, 2, 3))
    divided = rng.choice("mln")
    extents = {loop: ranks if loop == divided else rng.randint(1, 3) for loop in "mkln"}
    stored = {}
    for name in rng.sample("ABD", 2):
        loop = rng.choice({"A": "mk", "B": "kl", "D": "ln"}[name])
        stored[name] = loop
        extents[loop] = ranks * rng.randint(1, 2 if loop != divided else 1)
    stored["E"] = "m" if divided == "l" and extents["m"] % ranks == 0 else divided
    if stored["E"] not in "mn" or (stored["E"] == "m" and extents["m"] % ranks):
        stored["E"] = "n"
        extents["n"] = ranks
    chain = cost_model.chain(*PAIR, itemsize={name: rng.choice((1, 2)) for name in "ABCDE"}, **extents)
    remote = {name: loop for name, loop in stored.items() if loop != divided}
    dims, loops = rank_loops(chain, ranks, divided, stored)
    local = [name for name in "ABDE" if name not in remote]
    workspace = sum(chain.itemsize[name] for name in "ABCDE" if name not in local) + rng.choice((0, 2, 6, 20))
    products = [(*p.inputs, p.result) for p in chain.products]
    least = min(
        remote_bytes(walk, chain, tiles, dims, loops, remote)
        for _, tiles, walk in every_blocking(loops, products, dims)
        if held(walk, tiles, chain.itemsize, loops, local) <= workspace
    )
    blocking, sent = cost_model.link_blocking(chain, ranks, divided, stored, workspace)
    assert sent == pytest.approx(least, rel=1e-12)
    assert blocking.footprint <= workspace


def find(found: list[cost_model.Placement], divided: str, kept: bool = True) -> cost_model.Placement:
    return next(one for one in found if one.divided == divided and one.kept == kept)


def test_gather_a_or_b():
    """AG+GEMM moves the rows of A, a sharded weight is moved where it is smaller: 7/8 of either."""
    wide = cost_model.chain("mk,kn->mn", m=8192, k=4096, n=11008)
    found = cost_model.placements(wide, H800, 8, {"A": "m", "B": "n"})
    assert found[0].what == "gather A" and found[0].divided == "n" and found[0].kept
    assert found[0].sent == 7 / 8 * 8192 * 4096 * 2
    assert find(found, "m").what == "gather B" and find(found, "m").sent == 7 / 8 * 4096 * 11008 * 2
    tall = cost_model.chain("mk,kn->mn", m=65536, k=4096, n=4096)
    assert cost_model.placements(tall, H800, 8, {"A": "m", "B": "n"})[0].what == "gather B"


def test_the_result_is_reduced_or_exchanged():
    row_parallel = cost_model.chain("mk,kn->mn", m=8192, k=11008, n=4096)
    found = cost_model.placements(row_parallel, H800, 8, {"A": "k", "B": "k", "C": "m"})
    assert found[0].what == "reduce-scatter C" and found[0].sent == 7 / 8 * 8192 * 4096 * 2
    everywhere = cost_model.placements(row_parallel, H800, 8, {"A": "k", "B": "k", "C": None})
    assert find(everywhere, "k").what == "all-reduce C" and find(everywhere, "k").sent == 2 * found[0].sent
    column_parallel = cost_model.chain("mk,kn->mn", m=8192, k=4096, n=11008)
    found = cost_model.placements(column_parallel, H800, 8, {"A": "m", "B": "n", "C": "n"})
    assert find(found, "m").moves == {"B": "gather", "C": "all-to-all"}
    assert find(found, "m").sent == 7 / 8 * (4096 * 11008 + 8192 * 11008 // 8) * 2
    replicated = cost_model.placements(column_parallel, H800, 8, {"B": "n", "C": None})
    assert find(replicated, "n").what == "all-gather C" and find(replicated, "n").sent == 7 / 8 * 8192 * 11008 * 2


def test_a_layer_of_two_products():
    """Tensor parallelism of an MLP: the loop between the products is divided, A is gathered, E scattered."""
    mlp = cost_model.chain(*PAIR, m=8192, k=4096, l=11008, n=4096)
    best = cost_model.placements(mlp, H800, 8, {"A": "m", "B": "l", "D": "l", "E": "m"})[0]
    assert (best.divided, best.moves) == ("l", {"A": "gather", "E": "reduce-scatter"})
    assert best.sent == 7 / 8 * 2 * 8192 * 4096 * 2


@pytest.mark.parametrize("rows, what", [(65536, "gather B and D"), (128, "gather A, reduce-scatter E")])
def test_pass_kv_or_pass_q(rows, what):
    """Grouped heads (8 of one key): a long prompt passes keys and values on, few rows pass queries on."""
    attention = cost_model.chain("mk,lk->ml", "ml,ln->mn", m=rows * 8, k=128, l=65536, n=128)
    found = cost_model.placements(attention, H800, 8, {"A": "m", "B": "l", "D": "l", "E": "m"})
    assert found[0].what.removesuffix(", by each tile") == what
    passed = {"m": 7 / 8 * 2 * 65536 * 128 * 2, "l": 7 / 8 * 2 * rows * 8 * 128 * 2}
    assert {loop: find(found, loop).sent for loop in passed} == passed


def test_keep_or_gather_again():
    """With a workspace, A passes once; loaded by each tile it passes once too, and all else again, or once a column."""
    chain = cost_model.chain("mk,kn->mn", m=4096, k=4096, n=4096 * 8)
    found = cost_model.placements(chain, H800, 8, {"A": "m", "B": "n", "C": "n"})
    kept, again = find(found, "n"), find(found, "n", kept=False)
    assert kept.us < again.us and kept.sent <= again.sent
    assert kept.what == "gather A" and again.what == "gather A, by each tile"


def test_a_small_workspace_gathers_again():
    """Where both operands are of peers, a workspace for both passes each once, and a small one passes one again."""
    chain = cost_model.chain("mk,kn->mn", itemsize=1, m=64, k=64, n=64)
    stored = {"A": "k", "B": "k"}
    whole, sent = cost_model.link_blocking(chain, 2, "m", stored)
    assert set(whole.passes.values()) == {1} and sent == (64 * 64 // 2 + 64 * 64) / 2
    volumes = [cost_model.link_blocking(chain, 2, "m", {**stored, "C": "n"}, w)[1] for w in (64, 512, 2048, 16384)]
    assert volumes == sorted(volumes, reverse=True) and volumes[0] > volumes[-1]


def test_save_for_the_backward_or_gather_again():
    """Two steps with one gathered operand: with memory for all of it, it passes once, and else twice."""
    both = cost_model.chain("mk,ukn->umn", u=2, m=8192, k=4096, n=11008)
    gathered = 8192 * 4096 * 2
    saved, sent = cost_model.link_blocking(both, 8, "n", {"A": "m"}, gathered, steps="u")
    assert saved.passes == {"A": 1} and sent == 7 / 8 * gathered and saved.footprint == gathered
    again, sent = cost_model.link_blocking(both, 8, "n", {"A": "m"}, gathered - 1, steps="u")
    assert again.passes == {"A": 2} and sent == 2 * 7 / 8 * gathered


def test_nodes_share_the_bytes_between_link_and_nic():
    chain = cost_model.chain("mk,kn->mn", m=8192, k=4096, n=11008)
    best = cost_model.placements(chain, machines.load("h800x8x2"), 16, {"A": "m", "B": "n", "C": "n"})[0]
    amounts = {level.name: level.amount for level in best.levels}
    assert amounts["link"] + amounts["nic"] == best.sent == 15 / 16 * 8192 * 4096 * 2
    assert amounts["nic"] == pytest.approx(best.sent / 15)  # a shard of the other node for each rank, then by the link
    again = find(
        cost_model.placements(chain, machines.load("h800x8x2"), 16, {"A": "m", "B": "n", "C": "n"}), "n", False
    )
    amounts = {level.name: level.amount for level in again.levels}
    assert amounts["nic"] == pytest.approx(again.sent * 8 / 15)  # every rank loads the shards of eight others
    exchanged = find(cost_model.placements(chain, machines.load("h800x8x2"), 16, {"A": "k", "B": "n", "C": "n"}), "m")
    assert exchanged.moves == {"A": "all-to-all", "B": "gather", "C": "all-to-all"}
    amounts = {level.name: level.amount for level in exchanged.levels}
    part = {"A": 8192 * 4096 * 2 // 16, "B": 4096 * 11008 * 2, "C": 8192 * 11008 * 2 // 16}
    assert amounts["nic"] == pytest.approx((part["A"] * 8 + part["B"] * 1 + part["C"] * 8) / 16)


def test_links_of_pairs():
    """Where each two GPUs have a link of their own, two ranks have one of them."""
    mi300 = machines.load("mi300x8")
    chain = cost_model.chain("mk,kn->mn", m=8192, k=4096, n=4096)
    for ranks, rate in ((2, mi300["link.pair"]), (8, mi300["link.rate"])):
        best = find(cost_model.placements(chain, mi300, ranks, {"A": "m", "B": "n", "C": "n"}), "n")
        assert best.levels[0].us == pytest.approx(best.sent / (rate * 1e3))


def test_levels_are_volumes_by_rates():
    chain = cost_model.chain("mk,kn->mn", m=8192, k=4096, n=11008)
    best = cost_model.placements(chain, H800, 8, {"A": "m", "B": "n", "C": "n"})[0]
    link, memory, l2, products = best.levels
    assert link.us == pytest.approx(best.sent / 173e3)
    assert products.us == pytest.approx(2 * 8192 * 4096 * 1376 / 720e6)
    assert memory.blocking.footprint <= 50 << 20 and l2.blocking.footprint <= 227 << 10
    assert memory.us == pytest.approx((memory.blocking.moved + best.sent) / 3000e3)
    assert l2.us == pytest.approx(l2.blocking.moved / (112e3 * 132)) and best.us == max(x.us for x in best.levels)
    faster = H800.with_changes(["link=346"])
    assert cost_model.placements(chain, faster, 8, {"A": "m", "B": "n", "C": "n"})[0].us == pytest.approx(best.us / 2)


def test_one_rank_moves_nothing():
    chain = cost_model.chain("mk,kn->mn", m=64, k=64, n=64)
    found = cost_model.placements(chain, H800, 1, {"A": "m", "B": "n"})
    assert {one.what for one in found} == {"nothing moves"} and all(one.sent == 0 for one in found)


def test_a_line_for_people():
    chain = cost_model.chain("mk,kn->mn", m=8192, k=4096, n=11008)
    line = cost_model.what_to_gather(chain, H800, 8, {"A": "m", "B": "n", "C": "n"})
    assert line.startswith("gather A: 56 MB, at least 339.4 us by link (gather B, all-to-all C: 570.1 us; ")


@pytest.mark.parametrize(
    "ranks, stored, capacities, message",
    [
        (9, {}, {}, "the machine h800x8 has 8 ranks, and 9 were asked for"),
        (0, {}, {}, "and 0 were asked for"),
        (8, {"X": "m"}, {}, "the chain stores no tensor 'X': it has A, B, D, E"),
        (8, {"C": "m"}, {}, "the chain stores no tensor 'C'"),
        (8, {"A": "n"}, {}, "A has no loop 'n': it has m, k"),
        (8, {"A": "k"}, {}, "loop k of 12 has no 8 equal shards: pad it to a multiple"),
        (7, {}, {}, "no loop of .* has 7 equal parts: pad one to a multiple of 7"),
        (8, {"A": "m"}, {"shared": 9}, "9 bytes of fast memory do not hold the smallest tiles"),
        (8, {"A": "m"}, {"workspace": 1}, "1 bytes of fast memory do not hold the smallest tiles"),
    ],
)
def test_bad_placements(ranks, stored, capacities, message):
    chain = cost_model.chain(*PAIR, m=64, k=12, l=64, n=64)
    with pytest.raises(DitronError, match=message):
        cost_model.placements(chain, H800, ranks, stored, capacities=cost_model.Capacities(**capacities))


def test_bad_divided_loops():
    chain = cost_model.chain(*PAIR, m=64, k=64, l=64, n=64)
    with pytest.raises(DitronError, match="loop k is summed for the next product, which needs the whole sum"):
        cost_model.link_blocking(chain, 8, "k", {"A": "m"})
    with pytest.raises(DitronError, match="the chain has no loop 'x': it has m, k, l, n"):
        cost_model.link_blocking(chain, 8, "x", {"A": "m"})


def test_an_unknown_machine():
    with pytest.raises(DitronError, match="there is no machine 'h900x8'"):
        machines.load("h900x8")


def test_every_rank_loop_has_a_name_of_its_own():
    split = cost_model.chain("mk,kn->mn", m=8, k=8, n=8).sharded("m", 2).sharded("k", 4)
    assert split.extents == {"rank(m)": 2, "m": 4, "rank(k)": 4, "k": 2, "n": 8}
    assert split.loops_of["A"] == (cost_model.rank_loop("m"), "m", cost_model.rank_loop("k"), "k")
    assert set(itertools.chain(*split.loops_of.values())) == set(split.loops)
