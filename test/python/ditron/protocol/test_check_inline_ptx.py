"""Inline PTX that synchronizes, as kernels of other projects write it: understood, or noted as not followed."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function

N = 64
STORE = "st.release.sys.global.u32 [$1], 1; mov.u32 $0, 0;"
LOAD = "ld.acquire.sys.global.u32 $0, [$1];"
SEND = """
{
    .reg .u32   %tmp32_<1>;
    .reg .pred  %p<1>;

    send_signal:
        atom.global.release.sys.cas.b32 %tmp32_0, [$1], 0, 1;  // free, then taken
        setp.eq.u32 %p0, %tmp32_0, 0;
        @!%p0 bra send_signal;
}
"""
WAIT = SEND.replace("send_signal", "wait_signal").replace("[$1], 0, 1", "[$1], 1, 0").replace("_0, 0;", "_0, 1;")
WAIT = WAIT.replace("release", "acquire")


@ditron.jit
def exchange(data, flag, out, SIGNAL: tl.constexpr, WAIT: tl.constexpr, AS_INTEGER: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + at, 1.0)
    tl.debug_barrier()
    there = dl.symm_at(flag, peer)
    if AS_INTEGER:
        tl.inline_asm_elementwise(SIGNAL, "=r,l", [there.to(tl.uint64)], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.inline_asm_elementwise(SIGNAL, "=r,l", [there], dtype=tl.int32, is_pure=False, pack=1)
    seen = 0
    while seen != 1:
        seen = tl.inline_asm_elementwise(WAIT, "=r,l", [flag], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out + at, tl.load(data + at))


@ditron.jit
def with_loops(data, flag, out, SIGNAL: tl.constexpr, WAIT: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(data, peer) + at, 1.0)
    tl.debug_barrier()
    tl.inline_asm_elementwise(SIGNAL, "=r,l", [dl.symm_at(flag, peer)], dtype=tl.int32, is_pure=False, pack=1)
    tl.inline_asm_elementwise(WAIT, "=r,l", [flag], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(out + at, tl.load(data + at))


def report(kernel, *given):
    def main():
        ditron.init()
        data = ditron.symm_zeros(N, dtype=torch.float32, name="data")
        flag = ditron.symm_zeros(1, dtype=torch.int32, name="flag")
        kernel[(1,)](data, flag, torch.empty(N), *given, N=N)

    return check_function(main, [(2, None)])


@pytest.mark.parametrize("as_integer", [False, True])
@pytest.mark.parametrize(
    "signal",
    [
        STORE,
        "red.release.sys.global.add.u32 [$1], 1;",
        "atom.add.release.sys.global.u32 $0, [$1], 1;",
        "fence.acq_rel.sys; st.relaxed.sys.global.u32 [$1], 1;",
    ],
)
def test_the_common_forms_are_understood(signal, as_integer):
    found = report(exchange, signal, LOAD, as_integer)
    assert not found.findings and found.is_complete, str(found)


@pytest.mark.parametrize(
    ("signal", "wait", "kind"),
    [
        (STORE.replace("release", "relaxed"), LOAD, "unordered"),
        (STORE, LOAD.replace("acquire", "relaxed"), "unordered"),
        (STORE.replace(".sys", ".gpu"), LOAD, "unordered"),
        (STORE.replace(", 1", ", 2"), LOAD, "count"),
    ],
)
def test_mistakes_in_them_are_found(signal, wait, kind):
    found = report(exchange, signal, wait, False)
    assert [finding.kind for finding in found.findings] == [kind], str(found)


def test_loops_of_an_atomic_are_followed():
    found = report(with_loops, SEND, WAIT)
    assert not found.findings and found.is_complete, str(found)
    found = report(with_loops, SEND, WAIT.replace("_0, 1;", "_0, 7;").replace("], 1, 0", "], 7, 0"))
    assert found.findings and "with_loops" in str(found), str(found)


@pytest.mark.parametrize(
    "other", ["multimem.red.release.sys.global.add.u32 [$1], 1;", "st.release.sys.global.v2.u32 [$1], {1, 1};"]
)
def test_others_have_a_note(other):
    found = report(with_loops, other, WAIT)
    assert not found.findings and not found.is_complete, str(found)
    assert "tt.elementwise_inline_asm is not followed" in found.not_followed[0], str(found)
    assert f"for `{other.split(';')[0].split('{')[0]}" in found.not_followed[0], str(found)
    assert "understood are ld, st, red" in found.not_followed[0], str(found)


def test_a_register_that_a_loop_has_read_is_used_after_it():
    send = SEND.rstrip().removesuffix("}") + "mov.u32 $0, %tmp32_0;\n}"
    found = report(with_loops, send, WAIT)
    assert not found.findings and found.is_complete, str(found)
    found = report(with_loops, send.replace("release", "relaxed"), WAIT)
    assert [finding.kind for finding in found.findings] == ["unordered"], str(found)


def test_a_pause_is_left_out():
    found = report(exchange, STORE, "nanosleep.u32 20; " + LOAD, False)
    assert not found.findings and found.is_complete, str(found)


def test_a_prefetch_has_no_effect():
    found = report(exchange, STORE, "prefetch.global.L2 [$1]; mov.u32 $0, 0;", False)
    assert [finding.kind for finding in found.findings] == ["unordered"] and found.is_complete, str(found)


@ditron.jit
def of_tiles(flags, out, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.inline_asm_elementwise(
        "st.release.sys.global.u32 [$1], $2;",
        "=r,l,r",
        [dl.symm_at(flags, peer) + at, at + 1],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    while dl.ld(flags + 3, scope="node", semantic="acquire") != 4:
        pass


def test_tiles_of_flags():
    def main():
        ditron.init()
        of_tiles[(1,)](ditron.symm_zeros(8, dtype=torch.int32, name="flags"), torch.empty(8), N=8)

    found = check_function(main, [(2, None)])
    assert not found.findings and found.is_complete, str(found)
