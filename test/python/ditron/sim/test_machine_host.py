"""The scripts of simulated ranks: collective calls, groups, exceptions, `run_script`."""

from __future__ import annotations

import random
import sys
import textwrap
import threading
import time

import pytest
import torch
from machine_kernels import kernel
from test_machine import RING

import ditron
from ditron import sim

WHO = kernel(
    "who",
    "out: ptr",
    "\n".join(
        f"  %v{index} = call i32 @ditron_sim_{call}\n  %p{index} = getelementptr i32, ptr %out, i64 {index}\n"
        f"  store i32 %v{index}, ptr %p{index}"
        for index, call in enumerate(
            [
                "rank(i32 0)",
                "num_ranks(i32 0)",
                "rank(i32 1)",
                "num_ranks(i32 1)",
                "rank(i32 2)",
                "num_ranks(i32 2)",
                "local_rank()",
                "num_local_ranks()",
                "node()",
            ]
        )
    )
    + "\n  ret void",
)


def test_results_are_in_rank_order():
    assert sim.run(lambda scale: sim.current_world().rank * scale, ranks=5, args=(10,)) == [0, 10, 20, 30, 40]
    assert sim.current_world() is None


def test_view():
    def main():
        world = sim.current_world()
        return world.rank, world.world_size, world.ranks_per_node, world.node, world.local_rank

    assert sim.run(main, 6, 3)[4] == (4, 6, 3, 1, 1)


@pytest.mark.parametrize("ranks, per_node", [(0, None), (4, 3), (-2, None)])
def test_impossible_worlds(ranks, per_node):
    with pytest.raises(ValueError, match="whole number of nodes"):
        sim.run(lambda: None, ranks, per_node)


def test_only_one_script_runs_at_a_time():
    running = []

    def main():
        for _ in range(3):
            running.append(sim.current_world().rank)
            time.sleep(0.001)
            assert len(running) == 1
            running.pop()
            sim.current_world().barrier()

    sim.run(main, 4)


def test_who_am_i_in_a_group():
    """Groups number their ranks in the order given; the node counts among the group's nodes."""

    def main():
        world = sim.current_world()
        group = world.new_group([5, 4, 2])
        out = torch.zeros(9, dtype=torch.int32)
        if world.rank in group.ranks:
            world.launch(WHO, (1,), [out.data_ptr()], group=group)
        else:
            with pytest.raises(ditron.SimulationError, match=r"rank \d is not in the group of ranks \[5, 4, 2\]"):
                world.launch(WHO, (1,), [out.data_ptr()], group=group)
        return out.tolist()

    results = sim.run(main, 6, 2)
    assert results[5] == [0, 3, 0, 2, 5, 6, 0, 2, 1]
    assert results[4] == [1, 3, 1, 2, 4, 6, 1, 2, 1]
    assert results[2] == [2, 3, 0, 1, 2, 6, 0, 1, 0]


def test_two_groups_run_their_rings_side_by_side():
    def main():
        world = sim.current_world()
        halves = [world.new_group([0, 1, 2]), world.new_group([5, 4, 3])]
        group = halves[world.rank // 3]
        sig = world.alloc((1,), torch.int64, name="sig", group=group)
        world.launch(RING, (1,), [sig.data_ptr(), 3], group=group)
        return sig.item()

    for seed in range(20):
        assert sim.run(main, 6, 3, seed) == [3] * 6


def test_symmetric_tensors():
    def main():
        world = sim.current_world()
        a = world.alloc((3, 5), torch.bfloat16, name="a")
        b = world.alloc((), torch.float64)
        empty = world.alloc((0, 4), torch.int32)
        assert (a.shape, a.dtype, b.shape, empty.numel()) == ((3, 5), torch.bfloat16, (), 0)
        assert a.data_ptr() % 256 == b.data_ptr() % 256 == 0 and not a.any() and not b.any()
        a.fill_(world.rank)
        world.barrier()
        assert (a == world.rank).all()
        return b.data_ptr() - a.data_ptr()

    assert len(set(sim.run(main, 4))) == 1, "the same layout on every rank"


def test_tensor_outlives_its_world():
    def main():
        return sim.current_world().alloc((1000,), torch.int64).fill_(sim.current_world().rank)

    assert [int(t.sum()) for t in sim.run(main, 3)] == [0, 1000, 2000]


def test_freed_memory_comes_back_as_zeros():
    def main():
        world = sim.current_world()
        places = set()
        for _ in range(100):
            big = world.alloc((1 << 18,), torch.int64, name="big")
            assert not big.any()
            places.add(big.fill_(1).data_ptr())
            world.free(big)
            with pytest.raises(ditron.SimulationError, match="frees a tensor that it does not hold"):
                world.free(big)
            world.barrier()
        return len(places)

    assert sim.run(main, 2, heap_bytes=5 << 20) == [1, 1]


def test_full_heap():
    with pytest.raises(ditron.SimulationError, match="heap is full: 8388608 bytes were requested(.|\n)*SYMMETRIC_SIZE"):
        sim.run(lambda: sim.current_world().alloc((1 << 20,), torch.int64), 2, heap_bytes=1 << 20)


@pytest.mark.parametrize("other", [((4,), torch.int64, "x"), ((5,), torch.int32, "x"), ((5,), torch.int64, "y")])
def test_mismatched_allocation(other):
    def main():
        shape, dtype, name = other if sim.current_world().rank == 2 else ((5,), torch.int64, "x")
        sim.current_world().alloc(shape, dtype, name=name)

    with pytest.raises(ditron.SimulationError) as raised:
        sim.run(main, 3)
    assert "rank 1 asked for (5,) torch.int64 named 'x'; rank 2 asked for " in str(raised.value)
    assert str(other[0]) in str(raised.value) and "allocate the largest on all ranks" in str(raised.value)


def test_mismatched_calls():
    def main():
        world = sim.current_world()
        return world.barrier() if world.rank else world.all_gather_object(1)

    with pytest.raises(ditron.SimulationError, match="every rank must make the same collective calls"):
        sim.run(main, 3)


def test_mismatched_and_impossible_groups():
    with pytest.raises(ditron.SimulationError, match=r"rank 0 asked for ranks \[0\]; rank 1 asked for ranks \[1\]"):
        sim.run(lambda: sim.current_world().new_group([sim.current_world().rank]), 2)
    with pytest.raises(ditron.SimulationError, match="expected distinct ranks from 0 to 1"):
        sim.run(lambda: sim.current_world().new_group([0, 2]), 2)


def test_all_gather_object():
    def main():
        world = sim.current_world()
        group = world.new_group([3, 1])
        mine = {"rank": world.rank}
        everyone = world.all_gather_object(mine)
        mine["rank"] = everyone[0]["rank"] = None if world.rank else 0  # nobody else's copy
        return everyone, world.rank in group.ranks and world.all_gather_object(world.rank, group=group)

    results = sim.run(main, 4)
    assert results[0] == ([{"rank": rank} for rank in range(4)], False)
    assert results[3][0] == [{"rank": None}, *results[0][0][1:]]
    assert results[3][1] == results[1][1] == [3, 1]


def test_missing_rank_at_a_barrier():
    def main():
        if sim.current_world().rank != 2:
            sim.current_world().barrier()  # here

    with pytest.raises(ditron.DeadlockError) as raised:
        sim.run(main, 3)
    line = main.__code__.co_firstlineno + 2
    assert raised.value.waiters == (
        f"rank 0's host code waits in barrier() at {__file__}:{line}",
        f"rank 1's host code waits in barrier() at {__file__}:{line}",
        "rank 2's host code has ended",
    )


def test_exception_in_one_rank_ends_all():
    ended = []

    def main():
        world = sim.current_world()
        try:
            if world.rank == 1:
                raise KeyError("mine")
            while True:
                world.barrier()
        finally:
            ended.append(world.rank)

    before = threading.active_count()
    for seed in range(20):
        ended.clear()
        with pytest.raises(KeyError, match="mine") as raised:
            sim.run(main, 3, seed=seed)
        assert raised.value.__notes__ == ["raised on rank 1 of 3"]
        assert 1 in ended and set(ended) <= {0, 1, 2}
    assert threading.active_count() == before


def test_worlds_nest_and_follow_each_other():
    def main():
        inner = sim.run(lambda: sim.current_world().rank, 2)
        sim.current_world().barrier()
        return inner, sim.current_world().rank

    assert sim.run(main, 2) == [([0, 1], 0), ([0, 1], 1)]


SCRIPT = """
    import sys
    from dataclasses import dataclass
    from ditron import sim
    import neighbour

    @dataclass
    class Mine:
        rank: "int"

    counter = 0
    for _ in range(3):
        counter += 1
        sim.current_world().barrier()
    assert (counter, __name__, sys.argv[1:]) == (3, "__main__", ["--depth", "2"])
    assert sys.modules["__main__"].counter == 3 and __file__ == sys.argv[0] == neighbour.WHERE
    print("rank", Mine(sim.current_world().rank).rank)
    code = CODE
    if code is not None and sim.current_world().rank == 1:
        sys.exit(CODE)
    sim.current_world().barrier()
"""


@pytest.mark.parametrize("code, expected", [(None, 0), (3, 3), ("too bad", 1)])
def test_run_script(tmp_path, capsys, code, expected):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).replace("CODE", repr(code)))
    (tmp_path / "neighbour.py").write_text(f"WHERE = {str(script)!r}\n")
    main, path = sys.modules["__main__"], list(sys.path)
    sys.modules.pop("neighbour", None)
    assert sim.run_script(script, ["--depth", "2"], ranks=3, seed=1) == expected
    assert sys.modules["__main__"] is main and sys.path == path
    captured = capsys.readouterr()
    assert set(captured.out.split("\n")) >= ({"rank 1"} if code else {"rank 0", "rank 1", "rank 2"})
    assert ("too bad" in captured.err) == (code == "too bad")


def test_exception_in_a_script(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text("from ditron import sim\nif sim.current_world().rank == 2:\n    1 // 0\n")
    with pytest.raises(ZeroDivisionError) as raised:
        sim.run_script(script, ranks=4)
    assert raised.value.__notes__ == ["raised on rank 2 of 4"]
    assert str(script) in str(raised.traceback[-1].path)


def test_kernels_print(capsys):
    hello = kernel(
        "hello",
        "text: ptr",
        """
  call void (ptr, i32, ...) @ditron_sim_print(ptr %text, i32 0, i32 %pid1, double 1.5, i64 -7)
  ret void
""",
    )

    def main():
        text = torch.tensor(list(b"pid (%u) x: %f %lli\0"), dtype=torch.uint8)
        if sim.current_world().rank == 1:
            sim.current_world().launch(hello, (1, 2), [text.data_ptr()])

    sim.run(main, 2)
    assert set(capsys.readouterr().out.splitlines()) == {f"[rank 1] pid ({y}) x: 1.500000 -7" for y in range(2)}


def test_empty_grid_and_wrong_grid():
    def main():
        world = sim.current_world()
        world.launch(WHO, (0, 5), [0])
        with pytest.raises(ditron.SimulationError, match="a grid of one to three extents"):
            world.launch(WHO, (1, -1), [0])

    sim.run(main, 2)


DRAW = """
import random, sys
import numpy
import torch
import ditron
seeded = sys.argv[1] == "seeded"
if seeded:
    torch.manual_seed(5), random.seed(5), numpy.random.seed(5)
ditron.init()
drawn = []
for _ in range(3):
    ditron.barrier()  # others run meanwhile
    drawn.append((torch.rand(()).item(), random.random(), float(numpy.random.rand())))
everybody = ditron.all_gather_object(drawn)
if ditron.rank() == 0:
    print(repr(everybody))
"""


def drawn(tmp_path, capsys, how: str, seed: int) -> list:
    path = tmp_path / "draw.py"
    path.write_text(DRAW)
    assert sim.run_script(path, [how], ranks=3, seed=seed) == 0
    return eval(capsys.readouterr().out)


def test_each_rank_draws_as_a_process_of_its_own(tmp_path, capsys):
    torch.manual_seed(5), random.seed(5)
    alone = [(torch.rand(()).item(), random.random()) for _ in range(3)]
    torch.manual_seed(6)
    before = torch.get_rng_state()
    everybody = drawn(tmp_path, capsys, "seeded", 0)
    assert everybody[0] == everybody[1] == everybody[2] and [number[:2] for number in everybody[0]] == alone
    assert torch.equal(torch.get_rng_state(), before)
    unseeded = drawn(tmp_path, capsys, "not", 1)
    assert unseeded == drawn(tmp_path, capsys, "not", 1)
    fresh = torch.Generator()
    new = [torch.rand((), generator=fresh).item() for _ in range(3)]
    assert [[number[0] for number in numbers] for numbers in unseeded] == 3 * [new]
    assert len({number for numbers in unseeded for _, *others in numbers for number in others}) == 18
    assert unseeded[0][0][1:] != drawn(tmp_path, capsys, "not", 2)[0][0][1:]


def test_ranks_draw_from_where_the_caller_is():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    assert len(set(sim.run(lambda: torch.rand(()).item(), ranks=2))) == 1
    assert torch.equal(torch.get_rng_state(), before)
