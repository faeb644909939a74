"""What executors refuse, on the simulator: other nodes, memory that overlaps, parts and ranks that do not exist."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_program_sim import add_kernel, on_ranks, pass_on

import ditron
import ditron.host as dh
from ditron import DitronError, SimulationError
from ditron._program.execute.overlaps import OverlapCheck


@ditron.program
def to_everybody(x, out):
    rank, ranks = dh.rank(), dh.num_ranks()
    boxes = dh.symm_empty(ranks, *x.shape, dtype=x.dtype, name="boxes")
    for peer in dh.range(ranks):
        dh.rank_copy(x, boxes[rank], peer)  # beyond the node
    dh.barrier()
    dh.copy(boxes, out)


@ditron.program
def tell_everybody():
    full = dh.symm_zeros(1, dtype=torch.int64, name="full")
    for peer in dh.range(dh.num_ranks()):
        dh.signal_write(full[0], dh.epoch(), peer, op="add")  # beyond the node


@pytest.mark.parametrize("program", [to_everybody, tell_everybody])
def test_copies_and_signals_stay_on_their_node(program):
    def body(rank, num_ranks):
        program(*[torch.ones(3), torch.ones(num_ranks, 3)][: len(program.names)])

    line = next(
        n
        for n, text in enumerate(open(__file__), 1)
        if "# beyond the node" in text and n > program.fn.__code__.co_firstlineno
    )
    on_ranks(body, ranks=2)
    message = (
        rf"test_program_refused.py:{line}:\d+: rank [02] is on another node: a rank_copy and a stream's signal "
        "reach the ranks of one node; let a kernel put there .dl.putmem_signal."
    )
    with pytest.raises(DitronError, match=message):
        on_ranks(body, ranks=4, ranks_per_node=2)


def test_groups_of_a_node_have_programs_of_their_own():
    def body(rank, num_ranks):
        groups = [ditron.new_group([0, 1]), ditron.new_group([2, 3])]
        with groups[rank // 2] as group:
            out = torch.zeros(2, 3)
            to_everybody(torch.full((3,), float(rank)), out)
            assert out[:, 0].tolist() == group.ranks

    on_ranks(body, ranks=4, ranks_per_node=2)


@pytest.mark.parametrize(
    "start",
    [
        lambda: ditron.init(max_nodes=1),
        lambda: (ditron.init(), ditron.program(pass_on.fn, max_nodes=1)(torch.ones(2), torch.ones(2))),
    ],
)
def test_more_nodes_than_it_is_for(start):
    ditron.sim.run(start, ranks=2)
    with pytest.raises(ditron.NodesError, match="max_nodes=1"):
        ditron.sim.run(start, ranks=4, ranks_per_node=2)


def add_twice(x, y, out):
    n = x.shape[0] * x.shape[1]
    add_kernel[(1,)](x, y, out, n, 1.0, True, BLOCK=64)


def test_tensors_that_overlap():
    whole = torch.arange(96, dtype=torch.float32)
    x, y, out = whole[:32].view(4, 8), whole[32:64].view(4, 8), whole[64:].view(4, 8)
    add, copy = ditron.program(add_twice), ditron.program(lambda x, out: dh.copy(x, out))
    right = [
        (add, (x, y, out)),
        (add, (x, x, out)),
        (copy, (whole.view(8, 12)[:, :6], whole.view(8, 12)[:, 6:])),
        (copy, (x[:0], x[:0])),
    ]
    wrong = [
        (add, (x, y, x), "'x' and 'out'", "x.clone()"),
        (add, (x, out, out), "'y' and 'out'", "y.clone()"),
        (add, (whole[60:92].view(4, 8), y, out), "'x' and 'out'", "x.clone()"),
        (add, (x, y, whole[39:71].view(4, 8)), "'y' and 'out'", "y.clone()"),
        (copy, (whole.view(8, 12)[:, :6], whole.view(8, 12)[:, 5:11]), "'x' and 'out'", "x.clone()"),
    ]

    def body(rank, num_ranks):
        for _ in range(2):
            for program, args in right:
                program(*args)
            for program, args, names, advice in wrong:
                with pytest.raises(
                    DitronError,
                    match=f"arguments {names} overlap in memory, and the program writes "
                    f"'out': give it tensors that do not overlap, such as {advice}",
                ):
                    program(*args)

    on_ranks(body, 1, seeds=[0])


VIEWS = st.tuples(st.integers(0, 30), st.tuples(*3 * (st.integers(0, 4),)), st.tuples(*3 * (st.integers(0, 7),)))


@given(VIEWS, VIEWS)
@settings(max_examples=300, deadline=None)
def test_overlaps_are_those_of_the_elements(x, y):
    """Whatever the strides, also of rows that interleave and of dimensions that were expanded."""
    whole = torch.arange(80, dtype=torch.int32)
    args = [whole.as_strided(shape, strides, offset) for offset, shape, strides in (x, y)]
    share = set(args[0].flatten().tolist()) & set(args[1].flatten().tolist())
    for writes in (frozenset([0]), frozenset([1])):
        check = OverlapCheck("p", ("x", "y"), writes, args)
        for _ in range(2):
            with pytest.raises(DitronError, match="overlap") if share else nullcontext():
                check.check([tensor.data_ptr() for tensor in args])


def test_different_shapes_on_ranks():
    with pytest.raises(
        SimulationError, match=r"'pass_on': argument 'x' is float32\[\d\] on rank \d and float32\[\d\] on"
    ):
        on_ranks(lambda rank, num_ranks: pass_on(torch.zeros(4 + rank), torch.zeros(4 + rank)), 2, seeds=[0])


def shift_in_place(out, peer):
    box = dh.symm_empty(8, dtype=out.dtype, name="box")
    dh.rank_copy(box[0:4], box[3:7], peer)


def test_parts_that_touch_are_copied():
    def shuffle(out):
        rows = dh.symm_zeros(2, 3, 8, dtype=out.dtype, name="rows")
        dh.copy(out[0:2], out[2:4])
        dh.copy(out[4:6], out[4:6])
        dh.rank_copy(rows[0, :, 0:4], rows[0, :, 4:8], dh.rank())
        dh.rank_copy(rows[0], rows[0], dh.rank())
        dh.rank_copy(rows[0], rows[1], dh.rank())

    def body(rank, num_ranks):
        out = torch.arange(8)
        program(out)
        assert out.tolist() == [0, 1, 0, 1, 4, 5, 6, 7]

    program = ditron.program(shuffle)
    on_ranks(body, 2, seeds=[0])


@pytest.mark.parametrize(
    "part,message",
    [
        (lambda x, out: dh.copy(x[2:9], out[2:9]), "takes elements 2 to 9 of dimension 0, which has 8"),
        (
            lambda x, out: dh.copy(x[dh.rank() :], out),
            r"of shape \[7\] cannot be copied to one of 'out' of shape \[8\]",
        ),
        (lambda x, out: dh.rank_copy(x, dh.symm_empty(8, dtype=x.dtype), dh.num_ranks()), "there is no rank 2"),
        (lambda x, out: dh.signal_wait(dh.symm_zeros(4, dtype=torch.int64)[dh.rank() + 3], 0), "there is no signal 4"),
        (lambda x, out: dh.fill(out, x.shape[0] // dh.node()), "divided by zero"),
        (lambda x, out: dh.fill(out, 1 << (dh.node() - 1)), "1 is shifted by -1 bits"),
        (lambda x, out: dh.copy(out[1:5], out[2:6]), "a part of 'out' is copied to one that overlaps it"),
        (lambda x, out: shift_in_place(out, dh.rank()), "a part of 'box' is copied to one that overlaps it"),
        (
            lambda x, out: add_kernel[(1,)](x, x, out, x.shape[0] * 2**31, 1.0, True, BLOCK=8),
            "does not fit in the 32 bits",
        ),
    ],
)
def test_what_does_not_exist_is_told_with_the_line(part, message):
    def wrong(x, out):
        part(x, out)

    program = ditron.program(wrong)

    def body(rank, num_ranks):
        if rank == 1:
            with pytest.raises(DitronError, match=rf"test_program_refused\.py:\d+:\d+: .*{message}"):
                program(torch.zeros(8, dtype=torch.int64), torch.zeros(8, dtype=torch.int64))
            raise StopIteration

    with pytest.raises(StopIteration):
        on_ranks(body, 2, seeds=[0])


def test_a_wait_that_nobody_ends_is_told_with_the_line():
    def stuck(x):
        dh.signal_wait(dh.symm_zeros(1, dtype=torch.int64, name="never")[0], 1)  # stuck here

    program = ditron.program(stuck)
    line = next(i for i, text in enumerate(open(__file__).read().splitlines(), 1) if text.endswith("# stuck here"))
    with pytest.raises(ditron.DeadlockError, match=rf"test_program_refused\.py:{line}"):
        on_ranks(lambda rank, num_ranks: program(torch.zeros(1)), 2, seeds=[0])
