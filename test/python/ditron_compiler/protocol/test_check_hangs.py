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
