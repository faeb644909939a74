"""Blockings of chains: volumes are what walking the loops counts, and the optimum is what trying everything finds."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from nest_walk import Walk, elements, every_blocking, held

from ditron import cost_model
from ditron_compiler.errors import DitronError

PAIR = ("mk,kl->ml", "ml,ln->mn")


def plain(chain):
    """A chain as nest_walk has it."""
    return [(*p.inputs, p.result) for p in chain.products], dict(chain.loops_of)


def random_pair(rng: random.Random, most: int) -> cost_model.Chain:
    extents = {loop: rng.randint(1, most) for loop in "mkln"}
    return cost_model.chain(*PAIR, itemsize={name: rng.choice((1, 2, 4)) for name in "ABCDE"}, **extents)


def walked_bytes(walk, chain, tiles, names) -> dict[str, int]:
    return {
        name: chain.itemsize[name] * elements(walk.loads[name], chain.loops_of[name], tiles, chain.extents)
        for name in names
    }


@pytest.mark.parametrize("seed", range(60))
def test_optimum_is_the_least_of_all_orders_and_tiles(seed):
    """By walking every order of every integer tile size."""
    rng = random.Random(seed)
    chain = random_pair(rng, 5)
    capacity = sum(chain.itemsize.values()) + rng.choice((0, 3, 10, 30, 100))
    volumes = [
        sum(walked_bytes(walk, chain, tiles, "ABDE").values())
        for _, tiles, walk in every_blocking(chain.extents, *plain(chain))
        if held(walk, tiles, chain.itemsize, chain.extents) <= capacity
    ]
    found = cost_model.optimal_blocking(chain, capacity)
    assert found.moved == min(volumes) and found.footprint <= capacity


@pytest.mark.parametrize(
    "expressions",
    [
        ("mk,kn->mn",),
        ("bmk,bkl->bml", "bml,bln->bmn"),
        ("mk,kl->ml", "ml,ln->mn", "mn,np->mp"),
        ("gmk,lk->gml", "gml,ln->gmn"),  # grouped heads: B and D are theirs together
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_optimum_of_other_chains(expressions, seed):
    rng = random.Random(seed)
    loops = sorted({letter for expression in expressions for letter in expression if letter.isalpha()})
    chain = cost_model.chain(*expressions, **{loop: rng.randint(1, 3) for loop in loops})
    moved = [*chain.operands, chain.result]
    capacity = sum(chain.itemsize.values()) + rng.choice((0, 6, 20))
    volumes = [
        sum(walked_bytes(walk, chain, tiles, moved).values())
        for _, tiles, walk in every_blocking(chain.extents, *plain(chain))
        if held(walk, tiles, chain.itemsize, chain.extents) <= capacity
    ]
    assert cost_model.optimal_blocking(chain, capacity).moved == min(volumes)


@pytest.mark.parametrize("seed", range(20))
def test_volume_footprint_and_repeats_of_any_blocking(seed):
    """Not only of the best: tiles that do not divide their loops, orders that compute products again."""
    rng = random.Random(seed)
    chain = random_pair(rng, 9)
    for _ in range(20):
        tiles = {loop: rng.randint(1, extent) for loop, extent in chain.extents.items()}
        order = rng.sample("mkln", 4)
        walk = Walk(*plain(chain), {loop: math.ceil(chain.extents[loop] / tiles[loop]) for loop in tiles}, order)
        blocking = cost_model.block(chain, order, tiles)
        assert blocking.volume == walked_bytes(walk, chain, tiles, "ABDE")
        assert blocking.footprint == held(walk, tiles, chain.itemsize, chain.extents)
        computed = sum(
            math.prod(walk.trips[loop] for loop in product.loops) * times
            for product, times in zip(chain.products, blocking.repeated, strict=True)
        )
        assert computed == walk.computed


@pytest.mark.parametrize("seed", range(200))
def test_optimum_of_an_order_is_the_least_of_all_tiles(seed):
    """Loops of up to 24, and the volume of the order m l k n written by hand: two terms for a loop of one iteration."""
    rng = random.Random(seed)
    M, K, L, N = (rng.randint(1, 24) for _ in range(4))
    chain = cost_model.chain(*PAIR, itemsize=1, m=M, k=K, l=L, n=N)
    capacity = rng.randint(5, 400)
    tm, tk, tl, tn = np.meshgrid(*(np.arange(1, extent + 1) for extent in (M, K, L, N)), indexing="ij")
    rows, columns = -(-M // tm), -(-L // tl)
    volume = (
        M * K * np.where(tk < K, columns, 1)
        + K * L * np.where((tk < K) | (tl < L), rows, 1)
        + N * L * np.where((tn < N) | (tl < L), rows, 1)
        + M * N * np.where(tn < N, columns, 1)
    )
    fits = tm * tk + tk * tl + tm * tl + tl * tn + tm * tn <= capacity
    found = cost_model.optimal_blocking(chain, capacity, order="mlkn")
    assert found.moved == volume[fits].min()
    assert found.moved >= cost_model.optimal_blocking(chain, capacity).moved


def test_formula_of_chimera():
    """DV = MK ceil(L/T_L) + KL ceil(M/T_M) + NL ceil(M/T_M) + MN ceil(L/T_L), where every loop has several tiles."""
    M, K, L, N = 100, 70, 90, 60
    chain = cost_model.chain(*PAIR, itemsize=1, m=M, k=K, l=L, n=N)
    for tm, tl in itertools.product((1, 7, 33, 99), (1, 8, 45)):
        blocking = cost_model.block(chain, "mlkn", {"m": tm, "l": tl, "k": 9, "n": 11})
        rows, columns = math.ceil(M / tm), math.ceil(L / tl)
        assert blocking.moved == M * K * columns + K * L * rows + N * L * rows + M * N * columns
        assert blocking.footprint == tm * 9 + 9 * tl + tm * tl + tl * 11 + tm * 11
        assert blocking.volume == {"A": M * K * columns, "B": K * L * rows, "D": N * L * rows, "E": M * N * columns}


def test_attention_keeps_its_queries_and_streams_the_rest():
    """What FlashAttention does follows: rows of A and E stay, B and D pass once for each block of rows."""
    attention = cost_model.chain("mk,lk->ml", "ml,ln->mn", m=8192, k=128, l=8192, n=128)
    best = cost_model.optimal_blocking(attention, 227 << 10, multiple_of=16)
    assert best.order[0] == "m" and best.tiles["k"] == best.tiles["n"] == 128
    assert best.passes["A"] == best.passes["E"] == 1
    assert best.passes["B"] == best.passes["D"] == math.ceil(8192 / best.tiles["m"])


def test_more_memory_never_moves_more():
    chain = cost_model.chain(*PAIR, m=500, k=300, l=700, n=200)
    volumes = [cost_model.optimal_blocking(chain, 1 << bits).moved for bits in range(8, 24)]
    assert volumes == sorted(volumes, reverse=True)
    assert volumes[-1] == sum(chain.nbytes(name) for name in "ABDE") == cost_model.optimal_blocking(chain, None).moved


def test_partial_sums_that_are_read_back():
    """A result that is visited v times is written v times and read v - 1 times."""
    chain = cost_model.chain("mk,kn->mn", itemsize=1, m=8, k=8, n=8)
    tiles = {"m": 2, "k": 4, "n": 2}
    added = cost_model.block(chain, "kmn", tiles)
    read = cost_model.block(chain, "kmn", tiles, reads_sums=True)
    assert (added.passes["C"], read.passes["C"]) == (2, 3) and added.passes["A"] == read.passes["A"]
    for capacity in (12, 20, 50, 90):
        least = min(
            cost_model.block(chain, order, dict(zip("mkn", sizes, strict=True)), reads_sums=True).moved
            for order in itertools.permutations("mkn")
            for sizes in itertools.product(range(1, 9), repeat=3)
            if sizes[0] * sizes[1] + sizes[1] * sizes[2] + sizes[0] * sizes[2] <= capacity
        )
        assert cost_model.optimal_blocking(chain, capacity, reads_sums=True).moved == least


def test_tiles_are_multiples():
    chain = cost_model.chain(*PAIR, m=100, k=64, l=100, n=64)
    best = cost_model.optimal_blocking(chain, 40 << 10, multiple_of={"m": 16, "l": 8, "k": 32})
    assert best.tiles["m"] % 16 == best.tiles["l"] % 8 == best.tiles["k"] % 32 == 0
    assert best.footprint <= 40 << 10


def test_without_computing_again():
    """On an order that loses an intermediate before its last use."""
    chain = cost_model.chain(*PAIR, m=8, k=8, l=8, n=8)
    assert cost_model.block(chain, "nmlk", {"m": 2, "k": 2, "l": 2, "n": 4}).repeated == (2, 1)
    best = cost_model.optimal_blocking(chain, 100, recompute=False)
    assert best.repeated == (1, 1) and best.flops == 2 * 2 * 8**3


@pytest.mark.parametrize("seed", range(12))
def test_optimum_of_steps(seed):
    """Of the orders with the steps outermost, in tiles of one, by walking all of them."""
    rng = random.Random(seed)
    extents = {"u": rng.randint(2, 3), **{loop: rng.randint(1, 4) for loop in "mkn"}}
    chain = cost_model.chain("mk,ukn->umn", itemsize={name: rng.choice((1, 2, 4)) for name in "ABC"}, **extents)
    capacity = sum(chain.itemsize.values()) + rng.choice((0, 4, 12, 40))
    volumes = [
        sum(walked_bytes(walk, chain, tiles, "ABC").values())
        for _, tiles, walk in every_blocking(chain.extents, *plain(chain))
        if tiles["u"] == 1 and walk.order[0] == "u" and held(walk, tiles, chain.itemsize, chain.extents) <= capacity
    ]
    found = cost_model.optimal_blocking(chain, capacity, steps="u")
    assert found.moved == min(volumes) and found.order[0] == "u" and found.tiles["u"] == 1
    assert found.moved == min(
        cost_model.optimal_blocking(chain, capacity, steps="u", order=("u", *order)).moved
        for order in itertools.permutations("mkn")
    )


def test_large_numbers_are_exact():
    """Beyond 64 bits."""
    chain = cost_model.chain("mk,kn->mn", m=10**8, k=10**8, n=10**8)
    best = cost_model.optimal_blocking(chain, 1 << 20)
    rows, deep, columns = (math.ceil(10**8 / best.tiles[loop]) for loop in "mkn")
    assert best.moved == sum(best.volume.values()) > 2**64
    again = {"A": columns, "B": rows, "C": deep}
    assert all(best.passes[name] in (1, again[name]) for name in "ABC")


@pytest.mark.parametrize(
    "arguments, extents, message",
    [
        ((), {}, "at least one product"),
        (("mk,kn",), {"m": 1, "k": 1, "n": 1}, "expected a product as 'mk,kn->mn'"),
        (("mm,mn->mn",), {"m": 1, "n": 1}, "each loop once in a tensor, got 'mm,mn->mn'"),
        (("mk,kn->mp",), {"m": 1, "k": 1, "n": 1, "p": 1}, "the inputs have no loop p"),
        (("mk,kl->ml", "lm,ln->mn"), {"m": 1, "k": 1, "l": 1, "n": 1}, "left input must be the result before, ml"),
        (("mk,kn->mn",), {"m": 1, "k": 1}, "expected the extents of m, k, n, got m, k"),
        (("mk,kn->mn",), {"m": 1, "k": 1, "n": 1, "x": 2}, "expected the extents of m, k, n, got m, k, n, x"),
        (("mk,kn->mn",), {"m": 0, "k": 1, "n": 1}, "the extent of loop m must be an integer from 1 on, got 0"),
        (("mk,kn->mn",), {"m": 2.5, "k": 1, "n": 1}, "got 2.5"),
        (("mk,kn->mn",), {"m": 1, "k": 1, "n": 1, "itemsize": {"X": 2}}, "no tensor 'X': it has A, B, C"),
        (("mk,kn->mn",), {"m": 1, "k": 1, "n": 1, "itemsize": -1}, "the bytes of an element of A"),
    ],
)
def test_bad_chains(arguments, extents, message):
    with pytest.raises(DitronError, match=message):
        cost_model.chain(*arguments, **extents)


@pytest.mark.parametrize(
    "capacity, options, message",
    [
        (100, {"multiple_of": 16}, r"100 bytes of fast memory do not hold the smallest tiles \(m 16, k 16, n 16\), "
                                   "which take 1536"),
        (5, {}, "which take 6: divide the chain"),
        (0, {}, "a capacity must be an integer of bytes from 1 on, or None, got 0"),
        (1e6, {}, "got 1000000.0"),
        (100, {"order": "mk"}, "each of the loops m, k, n once, outermost first, got 'mk'"),
        (100, {"moved": "X"}, "'X' is not moved by the chain: it moves A, B, C"),
        (100, {"multiple_of": {"x": 2}}, "multiple_of: the chain has no loop 'x'"),
        (100, {"steps": "x"}, "steps: the chain has no loop 'x': it has m, k, n"),
        (100, {"steps": "n", "order": "mkn"}, "expected an order that begins with n"),
        (5, {"steps": "n"}, "which take 6: divide the chain"),
        (100, {"multiple_of": 0}, "multiple_of: m: expected an integer from 1 on, got 0"),
    ],
)  # fmt: skip
def test_bad_questions(capacity, options, message):
    with pytest.raises(DitronError, match=message):
        cost_model.optimal_blocking(cost_model.chain("mk,kn->mn", m=64, k=64, n=64), capacity, **options)


def test_bad_tiles():
    chain = cost_model.chain("mk,kn->mn", m=64, k=64, n=64)
    for tiles in ({"m": 1, "k": 1}, {"m": 1, "k": 1, "n": 0}, {"m": 1, "k": 1, "n": 1.5}):
        with pytest.raises(DitronError, match="the tile of loop n must be an integer from 1 on"):
            cost_model.block(chain, "mkn", tiles)
