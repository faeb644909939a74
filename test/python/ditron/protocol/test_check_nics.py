"""What a NIC reads has to be seen beyond the GPU: by the checker and the simulator alike, and kept by the compiler."""

from __future__ import annotations

import linecache

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.capture import capture
from ditron_compiler.protocol import check_scenario

N = 32
ORDERS = ["none", "fence", "quiet", "wider notify", "wider atomic"]


def relay(x, box, flags, out, SCOPE: tl.constexpr, HOW: tl.constexpr, ORDER: tl.constexpr, N: tl.constexpr):
    """One program writes and signals another one, which puts what was written to the other rank."""
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    if tl.program_id(0) == 0:
        tl.store(x + at, 7.0)
        if HOW == "store":
            dl.st(flags, 1, scope=SCOPE, semantic="release")
        elif HOW == "add":
            dl.atomic_add(flags, 1, scope=SCOPE, semantic="release")
        else:
            dl.notify(flags, dl.rank(), 1, scope=SCOPE)
    else:
        if HOW == "notify":
            dl.wait(flags, 1, 1)
        else:
            while dl.ld(flags, scope=SCOPE, semantic="acquire") < 1:
                pass
        if ORDER == "fence":
            dl.fence()
        elif ORDER == "quiet":
            dl.quiet()
        elif ORDER == "wider notify":
            dl.notify(flags + 2, dl.rank(), 1, scope="world")
        elif ORDER == "wider atomic":
            dl.atomic_add(flags + 2, 1, scope="node", semantic="release")
        dl.putmem_signal(box, x, N * 4, flags + 1, 1, peer)
        token = dl.wait(flags + 1, 1, 1)
        tl.store(out + at, tl.load(dl.consume_token(box, token) + at))


as_written = ditron.jit(relay, pipeline="as-written")
by_default = ditron.jit(relay)


def main(kernel, SCOPE, HOW, ORDER="none"):
    def rank():
        ditron.init()
        x, box = (ditron.symm_zeros(N, dtype=torch.float32, name=name) for name in ("x", "box"))
        flags, out = ditron.symm_zeros(4, dtype=torch.int64, name="flags"), torch.zeros(N)
        kernel[(2,)](x, box, flags, out, SCOPE, HOW, ORDER, N=N)
        return out.sum().item()

    return rank


def is_found(function, per_node):
    """Whether both find it; each says that the scope is too narrow, where the put is."""
    findings, notes = check_scenario(capture(function, 2, per_node))
    assert not notes
    try:
        assert ditron.sim.run(function, 2, per_node) == [7.0 * N] * 2
    except ditron.RaceError as error:
        assert 'by a NIC, and the signal between the two has scope="gpu"' in str(error)
        (finding,) = findings
        assert finding.kind == "scope" and "by a NIC, which need not see what it reads" in finding.message
        assert finding.loc == error.location and "putmem_signal" in line_of(finding.loc)
        return True
    assert not findings
    return False


def line_of(loc):
    path, line, _ = loc.rsplit(":", 2)
    return linecache.getline(path, int(line))


@pytest.mark.parametrize("how", ["store", "add", "notify"])
@pytest.mark.parametrize("scope", ["gpu", "node", "world"])
def test_a_release_of_gpu_scope_ends_at_the_gpu(scope, how):
    """Found between nodes only: within one, a put is a store by the program."""
    assert is_found(main(as_written, scope, how), 1) == (scope == "gpu")
    assert not is_found(main(as_written, scope, how), 2)


@pytest.mark.parametrize("order", ORDERS[1:])
@pytest.mark.parametrize("how", ["store", "notify"])
def test_the_program_that_puts_may_publish(how, order):
    assert not is_found(main(as_written, "gpu", how, order), 1)


def test_the_compiler_does_not_narrow_it():
    """A notify to this rank, of the world as written, stays as wide as a NIC needs where the kernel puts."""
    assert not is_found(main(by_default, "world", "notify"), 1)
    assert is_found(main(by_default, "gpu", "notify"), 1)
