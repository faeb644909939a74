"""What a stream copies has to be seen beyond the programs of its GPU: by the checker and the simulator alike."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl
from test_check_nics import line_of

import ditron
import ditron.language as dl
from ditron.protocol.capture import capture
from ditron_compiler.protocol import check_scenario

N = 64
#: What is between the kernel's signal and the copy of what it has written.
ORDERS = ["a wait", "an event", "the kernel's end", "another kernel", "a signal", "a barrier"]


@ditron.jit(pipeline="as-written")
def produce(x, flags, SCOPE: tl.constexpr, N: tl.constexpr):
    """Writes, says so, and goes on for a while: what is in its buffers by then is not published by its end."""
    tl.store(x + tl.arange(0, N), 7.0)
    dl.notify(flags, dl.rank(), 1, scope=SCOPE)
    for _ in range(20):
        dl.ld(flags + 1)


@ditron.jit(pipeline="as-written")
def nothing(flags):
    dl.ld(flags + 2)


def main(scope: str = "gpu", order: str = "a wait", local: bool = False, symmetric: bool = True, kernel=produce):
    def rank() -> float:
        ditron.init()
        view = ditron.sim.current_world()
        peer = view.rank if local else 1 - view.rank
        x = ditron.symm_zeros(N, dtype=torch.float32, name="x") if symmetric else torch.zeros(N)
        box = ditron.symm_zeros(N, dtype=torch.float32, name="box")
        flags = ditron.symm_zeros(4, dtype=torch.int64, name="flags")
        main, copy, other = view.stream(), view.stream("copy"), view.stream("other")
        with main:
            kernel[(1,)](x, flags, SCOPE=scope, N=N)
        if order == "an event":
            other.signal_wait(flags[0], 1)
            copy.wait_event(other.record())
        elif order == "the kernel's end":
            copy.wait_event(main.record())
        else:
            copy.signal_wait(flags[0], 1)
        if order == "another kernel":
            with copy:
                nothing[(1,)](flags)
        elif order == "a signal":
            copy.signal_write(flags[3], 1)
        elif order == "a barrier":
            copy.barrier()
        if local:
            copy.copy(x, box)
        else:
            copy.rank_copy(x, box, peer)
        copy.signal_write(flags[2], 1, peer=peer)
        main.wait_event(copy.record())
        main.signal_wait(flags[2], 1)
        view.synchronize(main)
        return box.sum().item()

    return rank


def is_found(function) -> bool:
    """Whether both find it, at the copy; what they do not find is right, however late stores are seen."""
    findings, notes = check_scenario(capture(function, 2))
    assert not notes
    for seed in range(20):
        try:
            assert ditron.sim.run(function, 2, seed=seed) == [7.0 * N] * 2
        except ditron.RaceError as error:
            assert 'the copy reads memory by itself, and the signal between the two has scope="gpu"' in str(error)
            (finding,) = findings
            assert finding.kind == "scope" and "copy reads memory by itself: the signal behind" in finding.message
            assert finding.loc == error.location and "copy(x, box" in line_of(finding.loc + ":0")
            return True
    assert not findings
    return False


@pytest.mark.parametrize("scope", ["gpu", "node", "world"])
@pytest.mark.parametrize("local", [False, True])
def test_a_release_of_gpu_scope_is_not_for_copies(scope, local):
    assert is_found(main(scope, local=local)) == (scope == "gpu")


@pytest.mark.parametrize("order", ORDERS)
def test_what_publishes_it(order):
    """Streams' waits and events do not; the end of any kernel between does, and a signal or a barrier of the stream."""
    assert is_found(main(order=order)) == (order in ("a wait", "an event"))


def test_memory_of_one_gpu_is_coherent():
    assert not is_found(main(symmetric=False))


@ditron.jit
def produce_and_read(x, flags, SCOPE: tl.constexpr, N: tl.constexpr):
    """By the default pipeline: the kernel reads the signal that a stream waits for, too."""
    produce(x, flags, SCOPE, N)
    dl.wait(flags, 1, 1)


def test_the_compiler_does_not_narrow_it():
    assert not is_found(main("world", kernel=produce_and_read))
    assert is_found(main("gpu", kernel=produce_and_read))
