"""insert-swizzle: kernels in plain order give the same results in another, and each rank's first tile comes early."""

from __future__ import annotations

import sys

import pass_helpers
import paths
import pytest
import torch
import triton
import triton.language as tl

import ditron
import ditron.language as dl
from ditron_compiler.lowering.tile_order import swizzled

ROOT = paths.ROOT
sys.path.insert(0, str(ROOT / "benchmark"))
import plain_examples  # noqa: E402

WORLDS = [(1, 1), (3, 3), (4, 4), (6, 3), (8, 2)]


@pytest.fixture(scope="module")
def ag_gemm(tmp_path_factory):
    return plain_examples.plain("ag_gemm_in_kernel", tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def gemm_rs(tmp_path_factory):
    return plain_examples.plain("gemm_rs", tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def steps():
    import swizzle_steps

    return swizzle_steps


def orders(kernel, name: str, **options) -> int:
    return pass_helpers.count(kernel, "ditron.swizzle", name, **options)


def example(module) -> dict:
    return {"signature": module.EXAMPLE["signature"], "constexprs": module.EXAMPLE["constexprs"]}


def test_ag_gemm_is_reordered(ag_gemm):
    assert orders(ag_gemm.ag_gemm_kernel, "default", **example(ag_gemm)) == 0
    assert orders(ag_gemm.ag_gemm_kernel, "swizzled", **example(ag_gemm)) == 1


def test_gemm_rs_is_reordered(gemm_rs):
    assert orders(gemm_rs.gemm_rs_kernel, "default", **example(gemm_rs)) == 0
    assert orders(gemm_rs.gemm_rs_kernel, "swizzled", **example(gemm_rs)) == 1


def test_examples_that_have_an_order_keep_it():
    sys.path.insert(0, str(ROOT / "examples"))
    import ag_gemm_in_kernel as ag
    import gemm_rs as rs

    for kernel, module, before in ((ag.ag_gemm_kernel, ag, 1), (rs.gemm_rs_kernel, rs, 0)):
        assert orders(kernel, "swizzled", **example(module)) == orders(kernel, "default", **example(module)) == before


@pytest.mark.parametrize("ranks, per_node", WORLDS)
@pytest.mark.parametrize("rows", [32, 19])
def test_results_of_ag_gemm_are_unchanged(ag_gemm, rows, ranks, per_node):
    def main():
        ditron.init()
        return ag_gemm.check(rows, 21, 25, calls=2, num_push=2, push_rows=8, block=(16, 16, 16))

    world = dict(ranks=ranks, ranks_per_node=per_node, seeds=3)
    assert pass_helpers.run("swizzled", main, **world) == pass_helpers.run("default", main, **world)


@pytest.mark.parametrize("ranks, per_node", WORLDS)
@pytest.mark.parametrize("rows", [32, 19])
def test_results_of_gemm_rs_are_unchanged(gemm_rs, rows, ranks, per_node):
    def main():
        ditron.init()
        return gemm_rs.check(rows, 21, 25, calls=2, block=(16, 16, 16))

    world = dict(ranks=ranks, ranks_per_node=per_node, seeds=3)
    assert pass_helpers.run("swizzled", main, **world) == pass_helpers.run("default", main, **world)


@ditron.jit
def _visit(order_ptr, signal_ptr, rows_per_rank, others, BLOCK: tl.constexpr):
    """Mark the tiles that are worked on."""
    place = tl.program_id(0)
    m = place // others
    n = place % others
    row = m * BLOCK
    owner = row // rows_per_rank
    dl.wait(signal_ptr + owner, 1, 0)
    tl.store(order_ptr + m * others + n, tl.num_programs(0))


@ditron.jit
def _persistent(order_ptr, signal_ptr, rows_per_rank, tiles, others, BLOCK: tl.constexpr):
    for place in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = place // others
        owner = m * BLOCK // rows_per_rank
        dl.notify(signal_ptr + owner, owner, 1, op="add")
        visits = dl.atomic_add(order_ptr, 1)  # the first number counts them
        tl.store(order_ptr + 1 + visits, m)


def visited(rows: int, block: int, others: int):
    """In which order one persistent program on each rank takes the tiles, of which ``others`` are in each row."""

    def main():
        ditron.init()
        tiles = -(-rows * ditron.num_ranks() // block)
        order = torch.zeros(1 + tiles * others, dtype=torch.int32)
        signals = ditron.symm_zeros(ditron.num_ranks(), dtype=torch.int64)
        _persistent[(1,)](order, signals, rows, tiles * others, others, BLOCK=block)
        return order[1::others].tolist()

    return main


@pytest.mark.parametrize("ranks, per_node", [(4, 4), (8, 4), (6, 2)])
@pytest.mark.parametrize("rows", [32, 61])
@pytest.mark.parametrize("others", [2, 1])  # Triton compiles for 1: there is no division then
def test_tiles_come_in_the_order_of_the_closed_form(others, rows, ranks, per_node):
    world = dict(ranks=ranks, ranks_per_node=per_node, seeds=2)
    found = pass_helpers.run("swizzled", visited(rows, 16, others), **world)
    tiles = range(-(-rows * ranks // 16))
    assert found == [
        [swizzled(t, rows * ranks, 16, r, ranks, "scatter", per_node) for t in tiles] for r in range(ranks)
    ]
    assert pass_helpers.run("default", visited(rows, 16, others), **world) == [list(tiles)] * ranks


def test_a_launch_that_takes_a_part_of_the_tiles_takes_the_same_part():
    """Four of the eight rows of tiles: reordered, other tiles would be left out on each rank."""

    def main():
        ditron.init()
        order, signals = torch.zeros(8, 3, dtype=torch.int32), ditron.symm_zeros(4, dtype=torch.int64)
        _visit[(4 * 3,)](order, signals, 32, 3, BLOCK=16)
        return order.tolist()

    assert (
        "ditron.swizzle gather"
        in ditron.compile(
            _visit,
            {"order_ptr": "*i32", "signal_ptr": "*i64", "rows_per_rank": "i32", "others": "i32"},
            {"BLOCK": 16},
            "sim",
            pipeline="swizzled",
            stop_after="ditron",
        ).asm["ditron"]
    )
    found = pass_helpers.run("swizzled", main, ranks=4, seeds=2)
    assert found == pass_helpers.run("default", main, ranks=4, seeds=2) == [[[12] * 3] * 4 + [[0] * 3] * 4] * 4


@ditron.jit
def _last_first(order_ptr, signal_ptr, rows_per_rank, tiles, others, BLOCK: tl.constexpr):
    for place in range(tl.program_id(0), tiles * others, tl.num_programs(0)):
        m = tiles - 1 - place // others
        dl.wait(signal_ptr + m * BLOCK // rows_per_rank, 1, 0)
        visits = dl.atomic_add(order_ptr, 1)
        tl.store(order_ptr + 1 + visits, m)


def test_an_order_of_the_authors_own_stays():
    """As many tiles as ranks, so that whether all are taken would not tell a quotient from the rank that it is not."""

    def main():
        ditron.init()
        order, signals = torch.zeros(1 + 4 * 3, dtype=torch.int32), ditron.symm_zeros(4, dtype=torch.int64)
        _last_first[(1,)](order, signals, 16, 4, 3, BLOCK=16)
        return order[1::3].tolist()

    assert pass_helpers.run("swizzled", main, ranks=4, seeds=2) == [[3, 2, 1, 0]] * 4


@pytest.mark.parametrize("ranks, nodes, rows", [(16, 2, 64), (8, 1, 61)])
def test_no_first_tile_is_late(steps, ranks, nodes, rows):
    """In plain order the last rank waits for nearly all tiles of the others; in scatter order none waits."""
    plain = steps.count_steps(ranks, nodes, rows, "default")
    order = steps.count_steps(ranks, nodes, rows, "swizzled")
    tiles = -(-ranks * rows // 16)
    assert plain.tiles == order.tiles == tiles
    assert plain.first[-1] == (ranks - 1) * rows // 16 + 1 and plain.late == ranks - 1 and plain.fan_in == ranks
    assert order.first == [1] * ranks and order.late == 0
    if rows % 16 == 0:
        assert order.fan_in == 1  # nobody is sent to by two in the same step
    assert max(order.complete) <= max(plain.complete)


@triton.jit(noinline=True)
def _store_here(out_ptr, value):
    tl.store(out_ptr + tl.program_id(0), value)


@ditron.jit
def _asks_twice(out_ptr, signal_ptr, rows, flag, BLOCK: tl.constexpr, INLINE: tl.constexpr):
    value = 0
    if flag > 0:
        place = tl.program_id(0)
        m = place // 2
        dl.wait(signal_ptr + m * BLOCK // rows, 1, 0)
        value = m * 100 + place % 2
    if INLINE:
        tl.store(out_ptr + tl.program_id(0), value)
    else:
        _store_here(out_ptr, value)


@pytest.mark.parametrize("inline", [True, False])
def test_a_program_that_asks_for_its_number_again_keeps_its_tile(inline):
    def main():
        ditron.init()
        out, signals = torch.zeros(16, dtype=torch.int32), ditron.symm_zeros(4, dtype=torch.int64)
        _asks_twice[(16,)](out, signals, 32, 7, BLOCK=16, INLINE=inline)
        return out.tolist()

    expected = [[place // 2 * 100 + place % 2 for place in range(16)]] * 4
    assert pass_helpers.run("swizzled", main, ranks=4, seeds=2) == expected
