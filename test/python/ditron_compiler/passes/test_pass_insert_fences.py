"""insert-fences makes wrong kernels right, and leaves right ones alone (test_broken_kernels.py has more of both)."""

from __future__ import annotations

import random

import pytest
import torch
import triton
import triton.language as tl
from pass_helpers import count, pipeline, run

import ditron
import ditron.language as dl

N = 64
SIGNATURE = {"box_ptr": "*fp32", "x_ptr": "*fp32", "ready_ptr": "*i64", "out_ptr": "*fp32", "epoch": "i32"}


@ditron.jit(do_not_specialize=["epoch"])
def put_and_flag(box_ptr, x_ptr, ready_ptr, out_ptr, epoch, N: tl.constexpr):
    """No fence, no quiet: two puts, a signal; the answer's flag is a plain store behind a store."""
    rank, ranks = dl.rank(), dl.num_ranks()
    right = (rank + 1) % ranks
    i = tl.arange(0, N)
    tl.store(x_ptr + i, rank * 1000.0 + epoch * 100 + i)
    dl.putmem_nbi(box_ptr, x_ptr, N * 2, right)
    dl.putmem_nbi(box_ptr + N // 2, x_ptr + N // 2, N * 2, right)
    dl.signal_op(ready_ptr, epoch, right)
    box = dl.consume_token(box_ptr, dl.wait(ready_ptr, 1, epoch))
    tl.store(out_ptr + i, tl.load(box + i))
    left = (rank + ranks - 1) % ranks
    tl.store(dl.symm_at(box_ptr + N, left) + i, tl.load(box + i) + 1)
    dl.st(dl.symm_at(ready_ptr + 1, left), epoch, scope="node")
    answer = dl.consume_token(box_ptr + N, dl.wait(ready_ptr + 1, 1, epoch))
    tl.store(out_ptr + N + i, tl.load(answer + i))


def main():
    ditron.init()
    box, ready = ditron.symm_empty(2 * N, dtype=torch.float32), ditron.symm_zeros(2, dtype=torch.int64)
    x, out = ditron.symm_empty(N, dtype=torch.float32), torch.empty(2 * N)
    for epoch in (1, 2, 3):
        put_and_flag[(1,)](box, x, ready, out, epoch, N=N)
        ditron.barrier()
    return out.tolist()


def test_the_kernel_is_wrong_as_written():
    with pytest.raises(ditron.SimulationError), pipeline("as-written"):
        for seed in range(20):
            ditron.sim.run(main, ranks=3, seed=seed)


def test_the_compiler_puts_it_right():
    result = run("default", main, seeds=20, ranks=3)
    assert result[1] == [300.0 + i for i in range(N)] + [1301.0 + i for i in range(N)]
    fences = {
        name: (
            count(put_and_flag, "ditron.fence", name, signature=SIGNATURE, constexprs={"N": N}),
            count(put_and_flag, "ditron.quiet", name, signature=SIGNATURE, constexprs={"N": N}),
        )
        for name in ("as-written", "default")
    }
    assert fences == {"as-written": (0, 0), "default": (2, 1)}


SLOT = 8


@ditron.jit
def send_all(box_ptr, x_ptr, ready_ptr, out_ptr, PLAN: tl.constexpr, SLOT: tl.constexpr):
    """Slot k is sent as letter k of the plan says (Store, Put, put Nbi, in a Loop of stores), or a signal is (! or ?);
    the last one says that all is there."""
    rank, ranks = dl.rank(), dl.num_ranks()
    right = (rank + 1) % ranks
    i = tl.arange(0, SLOT)
    for k in tl.static_range(len(PLAN)):
        slot = box_ptr + k * SLOT
        if PLAN[k] == "S":
            tl.store(dl.symm_at(slot, right) + i, rank * 100.0 + k + i)
        elif PLAN[k] == "P":
            tl.store(x_ptr + k * SLOT + i, rank * 100.0 + k + i)
            dl.putmem(slot, x_ptr + k * SLOT, SLOT * 4, right)
        elif PLAN[k] == "N":
            tl.store(x_ptr + k * SLOT + i, rank * 100.0 + k + i)
            dl.putmem_nbi(slot, x_ptr + k * SLOT, SLOT * 4, right)
        elif PLAN[k] == "L":
            for j in range(ranks * 4):
                tl.store(dl.symm_at(slot, right) + j % SLOT, rank * 100.0 + k + j % SLOT)
                if j == 3:
                    dl.signal_op(ready_ptr + 1, 1, right)
        elif PLAN[k] == "!":
            dl.signal_op(ready_ptr, k + 1, right)
        else:
            dl.putmem_signal(slot, x_ptr, 4, ready_ptr, k + 1, right)
    box = dl.consume_token(box_ptr, dl.wait(ready_ptr, 1, len(PLAN)))
    for k in tl.static_range(len(PLAN)):
        if PLAN[k] != "!" and PLAN[k] != "?":
            tl.store(out_ptr + k * SLOT + i, tl.load(box + k * SLOT + i))
    dl.quiet()


def _send_all(plan):
    ditron.init()
    box, x = (ditron.symm_zeros(len(plan), SLOT, dtype=torch.float32) for _ in range(2))
    ready, out = ditron.symm_zeros(2, dtype=torch.int64), torch.zeros(len(plan), SLOT)
    send_all[(1,)](box, x, ready, out, PLAN=plan, SLOT=SLOT)
    return out


def test_whatever_is_sent_has_arrived_with_the_last_signal():
    choose = random.Random(1)
    plans = ["".join(choose.choices("SPNL!?", k=choose.randint(2, 6))) + choose.choice("!?") for _ in range(25)]
    wrong = 0
    for plan in plans:
        for seed in range(3):
            out = ditron.sim.run(lambda plan=plan: _send_all(plan), ranks=2, seed=seed)
            for rank in range(2):
                expected = [
                    [(1 - rank) * 100.0 + k + i if letter in "SPNL" else 0.0 for i in range(SLOT)]
                    for k, letter in enumerate(plan)
                ]
                assert out[rank].tolist() == expected, (plan, seed)
        with pipeline("as-written"):
            try:
                ditron.sim.run(lambda plan=plan: _send_all(plan), ranks=2)
            except ditron.SimulationError:
                wrong += 1
    assert wrong > 10, "these plans need no fence: the test would not see a failure"


@ditron.jit(do_not_specialize=["half"])
def store_behind_put(box_ptr, x_ptr, half, N: tl.constexpr):
    """Puts the second half of x, and stores all of it anew, with no quiet in between."""
    right = (dl.rank() + 1) % dl.num_ranks()
    i = tl.arange(0, N)
    tl.store(x_ptr + i, dl.rank() * 100.0 + i)
    dl.putmem_nbi(box_ptr, x_ptr + half, N * 2, right)
    tl.store(x_ptr + i, tl.zeros((N,), dtype=tl.float32) - 1)


def test_a_source_is_stored_to_again_only_when_its_put_is_complete():
    def main():
        ditron.init()
        box, x = (ditron.symm_zeros(N, dtype=torch.float32) for _ in range(2))
        store_behind_put[(1,)](box, x, N // 2, N=N)
        ditron.barrier()
        return box[: N // 2].tolist()

    assert run("default", main, ranks=2) == [[(1 - r) * 100.0 + N // 2 + i for i in range(N // 2)] for r in range(2)]


@triton.jit(noinline=True)
def fill(p, value, N: tl.constexpr):
    tl.store(p + tl.arange(0, N), tl.zeros((N,), dtype=tl.float32) + value)


@ditron.jit
def filled_by_a_function(box_ptr, x_ptr, ready_ptr, out_ptr, N: tl.constexpr):
    """Stores to the right, flags it, and stores to the source of a put: all stores are in a function that is called."""
    rank = dl.rank()
    right = (rank + 1) % dl.num_ranks()
    i = tl.arange(0, N)
    fill(dl.symm_at(box_ptr, right), rank + 1.0, N)
    dl.st(dl.symm_at(ready_ptr, right), 1, scope="node")
    fill(x_ptr, rank + 10.0, N)
    dl.putmem_nbi(box_ptr + N, x_ptr, N * 4, right)
    fill(x_ptr, -1.0, N)
    box = dl.consume_token(box_ptr, dl.wait(ready_ptr, 1, 1))
    tl.store(out_ptr + i, tl.load(box + i))


def _filled_by_a_function():
    ditron.init()
    box, x = ditron.symm_zeros(2 * N, dtype=torch.float32), ditron.symm_zeros(N, dtype=torch.float32)
    ready, out = ditron.symm_zeros(1, dtype=torch.int64), torch.zeros(N)
    filled_by_a_function[(1,)](box, x, ready, out, N=N)
    ditron.barrier()
    return out.tolist(), box[N:].tolist()


def test_what_a_called_function_stores_is_ordered():
    with pytest.raises(ditron.SimulationError), pipeline("as-written"):
        for seed in range(20):
            ditron.sim.run(_filled_by_a_function, ranks=3, seed=seed)
    left = [(rank - 1) % 3 for rank in range(3)]
    assert run("default", _filled_by_a_function, seeds=20, ranks=3) == [([r + 1.0] * N, [r + 10.0] * N) for r in left]


@ditron.jit(do_not_specialize=["a", "b"])
def set_again(ready_ptr, a, b):
    """Two pointers that are one, and in each turn of a loop the same, or the next: the signals must only grow."""
    right = (dl.rank() + 1) % dl.num_ranks()
    dl.signal_op(ready_ptr + a, 1, right)
    dl.signal_op(ready_ptr + b, 2, right)
    for k in range(4):
        dl.signal_op(ready_ptr + 1 + k // 2, 3 + k, right)
    dl.wait(ready_ptr + a, 1, 2)
    dl.wait(ready_ptr + 1, 1, 4)
    dl.wait(ready_ptr + 2, 1, 6)


def _set_again():
    ditron.init()
    ready = ditron.symm_zeros(3, dtype=torch.int64)
    set_again[(1,)](ready, 0, 0)
    ditron.barrier()
    return ready.tolist()


def test_updates_of_what_may_be_one_signal_stay_in_order():
    with pytest.raises(ditron.SimulationError, match="goes backwards"), pipeline("as-written"):
        for seed in range(20):
            ditron.sim.run(_set_again, ranks=2, ranks_per_node=1, seed=seed)
    assert run("default", _set_again, seeds=20, ranks=2, ranks_per_node=1) == [[2, 4, 6]] * 2


@ditron.jit
def counts_to_all(box_ptr, x_ptr, ready_ptr, N: tl.constexpr):
    """To each rank its part, with a number of its own: none of the signals is another's."""
    rank, ranks = dl.rank(), dl.num_ranks()
    for step in range(ranks):
        peer = (rank + step) % ranks
        dl.putmem_signal(box_ptr + rank * N, x_ptr + peer * N, N * 4, ready_ptr + rank, step + 1, peer)
    for k in range(ranks):
        dl.signal_op(ready_ptr + ranks + k, k + 1, rank)
    dl.quiet()


def test_updates_of_other_signals_need_no_fence():
    signature = {"box_ptr": "*fp32", "x_ptr": "*fp32", "ready_ptr": "*i64"}
    assert count(counts_to_all, "ditron.fence", "default", signature=signature, constexprs={"N": N}) == 1  # in between
