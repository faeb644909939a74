"""What the checker says of waits that are never satisfied: the signal that went elsewhere."""

from __future__ import annotations

import inspect

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function

N = 64


@ditron.jit
def gather(x, out, ready, done, epoch, WRONG: tl.constexpr, N: tl.constexpr):
    rank, ranks = dl.rank(), dl.num_ranks()
    at = tl.arange(0, N)
    for peer in range(ranks):
        tl.store(dl.symm_at(x, peer) + rank * N + at, 1.0)
        if WRONG == "index":
            dl.notify(ready + peer, peer, epoch)
        elif WRONG == "rank":
            dl.notify(ready + rank, (peer + 1) % ranks if peer else peer, epoch)
        else:
            dl.notify(ready + rank, peer, epoch)
    for peer in range(ranks):
        token = dl.wait(ready + peer, 1, epoch)  # waits
        tl.store(out + peer * N + at, tl.load(dl.consume_token(x, token) + peer * N + at))
    for peer in range(ranks):
        dl.notify(done + rank, peer, epoch)
    dl.wait(done, ranks, epoch)


def findings(launch, ranks=3):
    def main():
        ditron.init()
        ready, done = (ditron.symm_zeros(8, dtype=torch.int64, name=name) for name in ("ready", "done"))
        x = ditron.symm_empty(8, N, dtype=torch.float32, name="x")
        for epoch in (1, 2, 3):
            launch(x, torch.empty(8, N), ready, done, epoch)

    return check_function(main, [(ranks, None)]).findings


def line_of(kernel, mark: str) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(number for number, line in enumerate(lines) if mark in line)


@pytest.mark.parametrize(
    ("wrong", "sent", "asks"),
    [
        ("index", "dl.notify(ready + peer, peer", "ready[1] of rank 1, not of rank 0: is the rank right?"),
        ("rank", "(peer + 1) % ranks if peer", "of rank 2, not of rank 1: is the rank right"),
    ],
)
def test_a_signal_that_goes_elsewhere_explains_a_hang(wrong, sent, asks):
    found = findings(lambda *args: gather[(1,)](*args, WRONG=wrong, N=N))
    first = found[0]
    assert first.kind == "never-signalled" and int(first.loc.split(":")[1]) == line_of(gather, "# waits"), str(first)
    text, loc = first.others[0]
    assert asks in text and int(loc.split(":")[1]) == line_of(gather, sent), str(first)
    assert not findings(lambda *args: gather[(1,)](*args, WRONG="", N=N))


@ditron.jit
def send_swapped(x, out, ready, done, epoch, HOW: tl.constexpr):
    right = (dl.rank() + 1) % dl.num_ranks()
    if HOW == "notify":
        dl.notify(ready, epoch, right)  # notify
    elif HOW == "signal_op":
        dl.signal_op(ready, right, epoch)  # signal_op
    elif HOW == "putmem_signal":
        dl.putmem_signal(x, out, 4, ready, right, epoch)  # putmem_signal
    else:
        dl.putmem(x, out, right, 64)  # putmem
    if HOW != "putmem":
        dl.wait(ready, 1, epoch)


@pytest.mark.parametrize("how", ["notify", "signal_op", "putmem_signal", "putmem"])
def test_swapped_arguments_are_named(how):
    found = findings(lambda *args: send_swapped[(1,)](*args, HOW=how))
    said = next(finding for finding in found if "swapped" in str(finding))
    lines = {int(loc.split(":")[1]) for loc in (said.loc, *(loc for _, loc in said.others))}
    assert line_of(send_swapped, f"# {how}\n") in lines, str(said)
    assert said.kind == "never-signalled" or (said.kind == "rank" and f"the order is dl.{how}(" in said.hint), str(said)


@ditron.jit
def send_one(flag):
    dl.notify(flag, 1, 1 - dl.rank())
    dl.wait(flag, 1, 1)


def test_swapped_arguments_that_are_both_ranks():
    (never, *_) = findings(lambda x, out, ready, done, epoch: send_one[(1,)](ready), ranks=2)
    assert never.kind == "never-signalled" and never.others[0][0].endswith(
        "is the rank right, or swapped with the value?"
    ), never


@ditron.jit
def tree(x, out, ready, done, epoch, ROUNDS: tl.constexpr):
    """A broadcast by doubling."""
    rank, ranks = dl.rank(), dl.num_ranks()
    if rank > 0:
        dl.wait(ready, 1, epoch)
    for k in tl.static_range(ROUNDS):
        if rank < (1 << k):
            if rank + (1 << k) < ranks:
                dl.notify(ready, rank + (1 << k), epoch)


@ditron.jit
def arrive(count, ready, LAST: tl.constexpr):
    if tl.atomic_add(count, 1) == LAST:
        dl.notify(ready, dl.rank(), 1, op="add")


@ditron.jit
def take(ready, epoch):
    dl.wait(ready, 1, epoch)


@ditron.jit
def to_the_next(ready):
    dl.notify(ready, dl.rank() + 1, 1)
    dl.wait(ready, 1, 1)


@ditron.jit
def some_send(ready, epoch):
    """Rank 2 sends nothing to rank 1; what each sends is the same epoch."""
    rank = dl.rank()
    for peer in range(dl.num_ranks()):
        if rank != 2 or peer != 1:
            dl.notify(ready + rank, peer, epoch)
    dl.wait(ready, dl.num_ranks(), epoch)


@ditron.jit
def poll_by_swaps(flag):
    tl.atomic_add(flag, 1)
    while tl.atomic_cas(flag, 1, 1) != 1:
        pass


def never_circular(found):
    assert found and not any(finding.kind == "cycle" for finding in found), found
    return found[0]


def test_who_waits_and_sends_nothing_to_itself_is_no_cycle():
    assert not findings(lambda *args: tree[(1,)](*args, ROUNDS=3), ranks=5)
    assert never_circular(findings(lambda *args: tree[(1,)](*args, ROUNDS=2), ranks=5)).kind == "never-signalled"


@pytest.mark.parametrize(("last", "kinds"), [(3, []), (4, ["never-signalled"])])
def test_what_a_launch_that_has_ended_did_not_send_is_no_cycle(last, kinds):
    count = torch.zeros(1, dtype=torch.int32)

    def launch(x, out, ready, done, epoch):
        count.zero_()
        arrive[(4,)](count, ready, LAST=last)
        take[(1,)](ready, epoch)

    assert [finding.kind for finding in findings(launch, ranks=1)] == kinds


def test_a_signal_to_a_rank_that_does_not_exist_is_one_finding():
    found = findings(lambda x, out, ready, done, epoch: to_the_next[(1,)](ready), ranks=1)
    assert [finding.kind for finding in found] == ["rank"]


def test_an_epoch_is_not_called_a_rank():
    never = never_circular(findings(lambda x, out, ready, done, epoch: some_send[(1,)](ready, epoch)))
    assert never.kind == "never-signalled" and "is the rank right" in str(never) and "swapped" not in str(never), never


def test_a_poll_by_swaps_says_what_it_waits_for():
    flag = torch.zeros(1, dtype=torch.int32)
    found = findings(lambda *args: poll_by_swaps[(1,)](flag), ranks=1)
    assert "== 1, and" in found[0].message and "!=" not in found[0].message, found[0]
