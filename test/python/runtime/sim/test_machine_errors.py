"""What the simulated machine says about kernels that are wrong, and that nothing is left running afterwards."""

from __future__ import annotations

import threading

import pytest
import torch
from machine_kernels import kernel

import ditron
from ditron import sim
from ditron_compiler.lowering.sim.abi import MAY_REPEAT

LINE = {index: f"kernel.py:{10 + index}:5" for index in range(20)}
IN_LOOP = f"i32 {3 | MAY_REPEAT})"  # line 3, in a loop of which the machine is not told that it ends


def launch_on(
    launcher: int, kernel_, grid=(1,), ranks: int = 2, ranks_per_node: int | None = None, extra=(), **machine
):
    """Rank `launcher` runs the kernel on a symmetric `buf` of four i64; the others' scripts end at once."""

    def main():
        world = sim.current_world()
        buf = world.alloc((2, 2), torch.int64, name="buf")
        if world.rank == launcher:
            world.launch(kernel_, grid, [buf.data_ptr(), *extra])

    before = threading.active_count()
    try:
        sim.run(main, ranks, ranks_per_node, **machine)
    finally:
        assert threading.active_count() == before, "a rank's thread was left behind"


def mistake(name: str, body: str, parameters: str = "buf: ptr"):
    return kernel(name, parameters, body + "\n  ret void")


MISTAKES = {
    "rank_too_large": ("call ptr @ditron_sim_symm_at(ptr %buf, i32 2, i32 3)", "rank 2 is outside the group's 2 ranks"),
    "rank_negative": (
        "call void @ditron_sim_notify(ptr %buf, i64 1, i32 -1, i32 0, i32 1, i32 3)",
        "rank -1 is outside the group's 2 ranks",
    ),
    "symm_at_null": ("call ptr @ditron_sim_symm_at(ptr null, i32 0, i32 3)", "symm_at of a null pointer"),
    "symm_at_local": ("%x = alloca i64\n call ptr @ditron_sim_symm_at(ptr %x, i32 0, i32 3)", "in no symmetric heap"),
    "symm_at_twice": (
        "%p = call ptr @ditron_sim_symm_at(ptr %buf, i32 0, i32 2)\ncall ptr @ditron_sim_symm_at(ptr %p, i32 1, i32 3)",
        "one in the heap of rank 0",
    ),
    "wait_null": (
        "call void @ditron_sim_wait(ptr null, i32 1, i64 1, i32 3, i32 1, i32 1, i32 3)",
        "wait through a null pointer",
    ),
    "wait_too_many": (
        "call void @ditron_sim_wait(ptr %buf, i32 5, i64 1, i32 3, i32 1, i32 1, i32 3)",
        "wait for 5 signals from buf[0, 0] on, where there are 4",
    ),
    "wait_count": (
        "call void @ditron_sim_wait(ptr %buf, i32 -1, i64 1, i32 3, i32 1, i32 1, i32 3)",
        "wait: expected a count of at least 0 signals, got -1",
    ),
    "unaligned": (
        "%p = getelementptr i8, ptr %buf, i64 4\ncall i64 @ditron_sim_signal_wait_until(ptr %p, i64 1, i32 3, i32 3)",
        "aligned to 8 bytes",
    ),
    "put_negative": (
        "call void @ditron_sim_putmem(ptr %buf, ptr %buf, i64 -4, i32 0, i32 0, i32 3)",
        "putmem: expected a size of at least 0 bytes, got -4",
    ),
    "put_too_much": (
        "call void @ditron_sim_putmem(ptr %buf, ptr %buf, i64 33, i32 0, i32 0, i32 3)",
        "putmem of 33 bytes at buf[0, 0] goes past its end: it has 32 bytes",
    ),
    "put_to_local": (
        "%x = alloca i64\n call void @ditron_sim_putmem(ptr %x, ptr %buf, i64 8, i32 0, i32 0, i32 3)",
        "putmem: expected a symmetric address",
    ),
    "put_from_null": (
        "call void @ditron_sim_putmem(ptr %buf, ptr null, i64 8, i32 0, i32 1, i32 3)",
        "putmem through a null pointer",
    ),
    "put_to_peer": (
        "%p = call ptr @ditron_sim_symm_at(ptr %buf, i32 0, i32 2)\n"
        "call void @ditron_sim_putmem(ptr %p, ptr %buf, i64 8, i32 1, i32 0, i32 3)",
        "this rank's own symmetric address, got one in the heap of rank 0",
    ),
    "get_too_much": (
        "call void @ditron_sim_getmem(ptr %buf, ptr %buf, i64 40, i32 0, i32 0, i32 3)",
        "getmem of 40 bytes",
    ),
    "signal_past_the_end": (
        "%p = getelementptr i64, ptr %buf, i64 4\ncall void @ditron_sim_signal_op(ptr %p, i64 1, i32 0, i32 0, i32 3)",
        "signal_op of 8 bytes at buf[2, 0] goes past",
    ),
    "where_nothing_is": (
        "%p = getelementptr i64, ptr %buf, i64 4096\ncall i64 @ditron_sim_ld(ptr %p, i32 8, i32 0, i32 0, i32 3)",
        "where nothing is allocated",
    ),
    "atomic_null": (
        "call i64 @ditron_sim_atomic_rmw(ptr null, i64 1, i32 4, i32 1, i32 0, i32 0, i32 3)",
        "an atomic through a null pointer",
    ),
    "multimem_on_plain": (
        "call i64 @ditron_sim_multimem_ld_reduce(ptr %buf, i32 0, i32 1, i32 3)",
        "expected a multicast address",
    ),
    "store_past_the_end": (
        "%p = getelementptr i64, ptr %buf, i64 3\ncall void @ditron_sim_check_range(ptr %p, i64 16, i32 1, i32 3)",
        "a store of 16 bytes at buf[1, 1] goes past its end",
    ),
    "assert": (
        "%m = alloca i64\n store i64 478610333754, ptr %m\n"  # ": foo"
        "call void (ptr, i32, ...) @ditron_sim_assert_fail(ptr %m, i32 3)",
        "assertion failed: foo",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_reported(name):
    body, message = MISTAKES[name]
    with pytest.raises(ditron.SimulationError) as raised:
        launch_on(1, mistake(name, body))
    error = raised.value
    first, who, *hint = str(error).splitlines()
    assert first.startswith(LINE[3] + ": ") and message in first
    assert who.strip() == f"in kernel {name}, rank 1, program (0, 0, 0)"
    assert hint or name == "assert", "an error says what to do"
    assert (error.kernel, error.location, error.rank, error.program) == (name, LINE[3], 1, (0, 0, 0))


def test_other_node_is_out_of_reach():
    at = "%p = call ptr @ditron_sim_symm_at(ptr %buf, i32 0, i32 2)\n"
    with pytest.raises(ditron.SimulationError, match="ld through a null pointer(.|\n)*putmem and getmem"):
        launch_on(
            1, mistake("far_load", at + "call i64 @ditron_sim_ld(ptr %p, i32 8, i32 0, i32 0, i32 3)"), ranks_per_node=1
        )
    multicast = (
        "%p = call ptr @ditron_sim_multicast_ptr(ptr %buf, i32 0, i32 2)\n"
        "call void @ditron_sim_multimem_st(ptr %p, i64 1, i32 1, i32 3)"
    )
    with pytest.raises(ditron.SimulationError, match="got null(.|\n)*the team spans nodes"):
        launch_on(1, mistake("far_multicast", multicast), ranks_per_node=1)


def test_rank_outside_of_the_allocation():
    """A tensor of ranks 0 and 1 cannot be put to rank 2."""

    def main():
        world = sim.current_world()
        pair = world.new_group([0, 1])
        if world.rank < 2:
            buf = world.alloc((2,), torch.int64, name="pair", group=pair)
            world.launch(PUT_TO_2, (1,), [buf.data_ptr()])

    with pytest.raises(
        ditron.SimulationError, match="rank 2 of the world does not hold `pair`, which was allocated by ranks 0, 1"
    ):
        sim.run(main, 3)


PUT_TO_2 = mistake("put_to_2", "call void @ditron_sim_putmem(ptr %buf, ptr %buf, i64 8, i32 2, i32 0, i32 3)")

KNOWN_LINE = "call void @ditron_sim_fence(i32 3)\n"
FAULTS = {
    "null_load": ("%x = load volatile i64, ptr null", "a load or store at a null pointer"),
    "wild_store": ("store volatile i64 1, ptr inttoptr (i64 1311768467463790320 to ptr)", "cannot exist"),
    "unmapped_store": ("store volatile i64 1, ptr inttoptr (i64 8192 to ptr)", "no memory of this program"),
    "wild_source": (
        "%p = inttoptr i64 8192 to ptr\ncall void @ditron_sim_putmem(ptr %buf, ptr %p, i64 8, i32 0, i32 1, i32 3)",
        "a load or store at 0x2000, which is no memory of this program",
    ),
    "division": (
        "%me = call i32 @ditron_sim_local_rank()\n%z = sub i32 %me, 1\n%x = sdiv i32 5, %z\n"
        "%p = alloca i32\nstore volatile i32 %x, ptr %p",
        "integer division by zero",
    ),
    "multicast_load": (
        "%p = call ptr @ditron_sim_multicast_ptr(ptr %buf, i32 0, i32 3)\n%x = load volatile i64, ptr %p",
        "at a multicast address",
    ),
    "trap": ("call void @llvm.trap()", "execution reached a trap"),
    "stack": (
        "%big = alloca [1048576 x i8]\n%n = call i32 @ditron_sim_num_ranks(i32 0)\nstore volatile i8 1, ptr %big",
        "do not fit in its stack of 262144 bytes",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_reported(name):
    """An instruction that would kill the process ends the launch instead."""
    body, message = FAULTS[name]
    with pytest.raises(ditron.SimulationError) as raised:
        launch_on(1, mistake(name, KNOWN_LINE + body), stack_bytes=1 << 18)
    assert message in str(raised.value)
    assert raised.value.location == ("" if name == "stack" else LINE[3]), "the last line known"
    assert (raised.value.kernel, raised.value.rank) == (name, 1)


WAIT = mistake("waits", "call void @ditron_sim_wait(ptr %buf, i32 4, i64 9, i32 3, i32 1, i32 1, i32 3)")
SPIN = kernel(
    "spins",
    "buf: ptr, how: i32",
    """
  %flag = getelementptr i64, ptr %buf, i64 3
  br label %again
again:
  switch i32 %how, label %load [i32 1, label %cas  i32 2, label %add  i32 3, label %ordinary]
load:
  %l = call i64 @ditron_sim_ld(ptr %flag, i32 8, i32 1, i32 1, i32 3)
  br label %look
cas:
  %c = call i64 @ditron_sim_atomic_cas(ptr %flag, i64 1, i64 1, i32 8, i32 1, i32 1, i32 3)
  br label %look
add:
  %a = call i64 @ditron_sim_atomic_rmw(ptr %flag, i64 0, i32 4, i32 1, i32 1, i32 1, i32 3)
  br label %look
ordinary:
  call void @ditron_sim_check_range(ptr %flag, i64 8, i32 0, i32 3)
  %o = load volatile i64, ptr %flag
  br label %look
look:
  %seen = phi i64 [%l, %load], [%c, %cas], [%a, %add], [%o, %ordinary]
  %set = icmp eq i64 %seen, 1
  br i1 %set, label %end, label %again
end:
  ret void
""".replace("i32 3)", IN_LOOP),
)
BARRIER = mistake("meets", "call void @ditron_sim_barrier_all(i32 3)")


def test_deadlock_says_who_waits_for_what():
    with pytest.raises(ditron.DeadlockError) as raised:
        launch_on(1, WAIT)
    assert raised.value.waiters == (
        f"kernel waits, rank 1, program (0, 0, 0) at {LINE[3]}: waits for buf[0, 0] >= 9 (it is 0), buf[0, 1] >= 9 "
        "(it is 0), buf[1, 0] >= 9 (it is 0), buf[1, 1] >= 9 (it is 0); no program has signalled buf[0, 0]",
        "rank 0's host code has ended",
    )
    assert all(line in str(raised.value) for line in raised.value.waiters)


@pytest.mark.parametrize("how", range(4), ids=["load", "cas", "add", "ordinary"])
def test_spin_loop_is_a_wait(how):
    with pytest.raises(ditron.DeadlockError, match=r"spins: reads buf\[1, 1\] = 0"):
        launch_on(0, SPIN, extra=[how])


@pytest.mark.parametrize("how", range(4), ids=["load", "cas", "add", "ordinary"])
def test_spin_loop_sees_an_ordinary_store(how):
    def main():
        world = sim.current_world()
        buf = world.alloc((2, 2), torch.int64, name="buf")
        if world.rank == 0:
            world.launch(SPIN, (3,), [buf.data_ptr(), how])
        else:
            world.launch(STORE_AT_0, (1,), [buf.data_ptr()])

    for seed in range(20):
        sim.run(main, 2, seed=seed)


def test_reading_the_same_for_long_is_no_deadlock():
    """Nothing else can run while one program reads a word 200000 times, and then it ends."""
    reads = mistake(
        "reads",
        """
  br label %again
again:
  %i = phi i64 [0, %entry], [%next, %again]
  %x = call i64 @ditron_sim_ld(ptr %buf, i32 8, i32 0, i32 0, i32 3)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 200000
  br i1 %more, label %again, label %end
end:""".replace("i32 3)", IN_LOOP),
    )
    launch_on(0, reads)


STORE_AT_0 = mistake(
    "stores",
    "%p = call ptr @ditron_sim_symm_at(ptr %buf, i32 0, i32 2)\n"
    "%flag = getelementptr i64, ptr %p, i64 3\nstore i64 1, ptr %flag",
)


def test_barrier_deadlock_says_who_is_missing():
    with pytest.raises(ditron.DeadlockError, match="waits in a barrier of ranks 0, 1, 2; not arrived: 1, 2"):
        launch_on(0, BARRIER, ranks=3)


def test_two_programs_in_one_barrier():
    with pytest.raises(ditron.SimulationError, match="second program of this rank calls a barrier(.|\n)*one program"):
        launch_on(0, BARRIER, grid=(2,))


def test_starved_producer():
    """A program that another waits for, and that finds no place, is named."""
    producer_last = kernel(
        "producer_last",
        "buf: ptr",
        """
  %last = icmp eq i32 %pid, 2
  br i1 %last, label %tell, label %wait
tell:
  call void @ditron_sim_notify(ptr %buf, i64 1, i32 0, i32 0, i32 0, i32 1)
  ret void
wait:
  call void @ditron_sim_wait(ptr %buf, i32 1, i64 1, i32 3, i32 0, i32 1, i32 0)
  ret void
""",
    )
    launch_on(0, producer_last, grid=(3,), resident=3)
    with pytest.raises(ditron.DeadlockError) as raised:
        launch_on(0, producer_last, grid=(3,), resident=2)
    assert (
        "1 of 3 programs of `producer_last` on rank 0 have not started: all 2 program slots are taken by programs that wait"
    ) in raised.value.waiters


def test_long_report_is_cut():
    with pytest.raises(ditron.DeadlockError, match=r"\.\.\. and 61 more") as raised:
        launch_on(0, WAIT, grid=(100,))
    assert len(raised.value.waiters) == 101


def test_caught_error_does_not_bring_the_machine_back():
    def main():
        world = sim.current_world()
        buf = world.alloc((2, 2), torch.int64, name="buf")
        with pytest.raises(ditron.SimulationError):
            world.launch(mistake("caught", MISTAKES["put_negative"][0]), (1,), [buf.data_ptr()])
        with pytest.raises(ditron.SimulationError, match="the simulation has ended"):
            world.barrier()

    with pytest.raises(ditron.SimulationError, match="got -4"):
        sim.run(main, 1)
