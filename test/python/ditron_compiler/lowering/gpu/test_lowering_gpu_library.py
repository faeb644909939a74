"""The vendor-neutral device library, executed: LLVM IR runs on the CPU too, a thread for each rank's program."""

import ctypes
import operator
import re

import numpy as np
import pytest
from device_library import DATA, I32, I64, SIGNALS, P, Ranks, compiled
from hypothesis import given, settings
from hypothesis import strategies as st

from ditron_compiler.analysis.packet_layout import packet_bytes
from ditron_compiler.ir.dialects._ditron_enum_gen import Cmp
from ditron_compiler.runtime_files import runtime_directory

SIGNATURES = {
    "ditron_copy": (None, P, P, I64, I32, I32),
    "ditron_compare": (ctypes.c_bool, I64, I64, I32),
    "ditron_rank": (I32, P, I32),
    "ditron_num_ranks": (I32, P, I32),
    "ditron_node": (I32, P),
    "ditron_pe": (I32, P, I32),
    "ditron_symm_at": (P, P, P, I32),
    "ditron_multicast_ptr": (P, P, P, I32),
    "ditron_wait": (I32, P, I32, I64, I32, I32, I32),
    "ditron_notify": (I32, P, P, I64, I32, I32, I32),
    "ditron_signal_op": (I32, P, P, I64, I32, I32),
    "ditron_signal_wait_until": (I32, P, I64, I32),
    "ditron_putmem": (I32, P, P, P, I64, I32, I32, I32),
    "ditron_getmem": (I32, P, P, P, I64, I32, I32, I32),
    "ditron_putmem_signal": (I32, P, P, P, I64, P, I64, I32, I32, I32, I32),
    **{f"ditron_{protocol}_put": (I32, P, P, P, I64, I64, I32) for protocol in ("ll", "ll128")},
    **{f"ditron_{protocol}_get": (I32, P, P, I64, I64) for protocol in ("ll", "ll128")},
    "ditron_barrier_all": (I32, P),
    "ditron_barrier": (I32, P, I32),
}


@pytest.fixture(scope="module")
def library():
    return compiled(SIGNATURES)


@settings(max_examples=300)
@given(
    data=st.data(), size=st.integers(0, 700), dst=st.integers(0, 33), src=st.integers(0, 33), step=st.integers(1, 40)
)
def test_threads_copy_every_byte_once_and_no_other(library, data, size, dst, src, step):
    source = np.frombuffer(data.draw(st.binary(min_size=size + 64, max_size=size + 64)), np.uint8).copy()
    target = np.full(size + 64, 0xA5, np.uint8)
    expected = target.copy()
    dst += -target.ctypes.data % 16 if data.draw(st.booleans()) else 0  # aligned alike now and then
    src += -source.ctypes.data % 16 if dst == -target.ctypes.data % 16 else 0
    dst, src = min(dst, 64), min(src, 64)
    expected[dst : dst + size] = source[src : src + size]
    for thread in data.draw(st.permutations(range(step))):
        library.copy(target.ctypes.data + dst, source.ctypes.data + src, size, thread, step)
    assert (target == expected).all()


def test_comparisons_are_those_of_the_dialect(library):
    for cmp in Cmp:
        for a, b in ((1, 2), (2, 2), (3, 2), (-1, 1), (2**40, 1)):
            assert library.compare(a, b, cmp) == getattr(operator, str(cmp))(a, b), (cmp, a, b)


def test_context_is_read_as_python_writes_it(library):
    ranks = Ranks(4, ranks_per_node=2)
    ctx = ranks.contexts[3]
    assert [library.rank(ctx, team) for team in (0, 1, 2)] == [3, 1, 13]
    assert [library.num_ranks(ctx, team) for team in (0, 1, 2)] == [4, 2, 20]
    assert library.node(ctx) == 1 and [library.pe(ctx, r) for r in range(4)] == [10, 11, 12, 13]
    p = ranks.at(3, 100)
    assert [library.symm_at(ctx, p, r) for r in range(4)] == [None, None, ranks.at(2, 100), p]
    assert library.multicast_ptr(ctx, p, 0) is None


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_barrier_separates_what_is_before_from_what_is_after(library, n):
    ranks = Ranks(n)
    rounds, seen = 200, [[] for _ in range(n)]

    def program(rank):
        mine = ranks.words(rank, DATA, 1)
        for epoch in range(1, rounds + 1):
            mine[0] = epoch
            library.barrier_all(ranks.contexts[rank])
            seen[rank].append([int(ranks.words(peer, DATA, 1)[0]) for peer in range(n)])
            library.barrier(ranks.contexts[rank], 1)  # the node is the whole group here

    ranks.run(program)
    assert all(row == [[epoch] * n for epoch in range(1, rounds + 1)] for row in seen)


def test_barrier_of_the_node_leaves_other_nodes_alone(library):
    ranks = Ranks(4, ranks_per_node=2)

    def program(rank):
        if rank < 2:  # the ranks of node 1 never come
            for _ in range(50):
                library.barrier(ranks.contexts[rank], 1)

    ranks.run(program)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_ring_of_notifications(library, n):
    ranks = Ranks(n)

    def program(rank):
        ctx, peer = ranks.contexts[rank], (rank + 1) % n
        for epoch in range(1, 101):
            library.notify(ctx, ranks.at(rank, SIGNALS + 8 * rank), epoch, peer, 0, 1)
            library.notify(ctx, ranks.at(rank, SIGNALS + 8 * n), 1, peer, 1, 1)
            library.wait(ranks.at(rank, SIGNALS + 8 * ((rank - 1) % n)), 1, epoch, 3, 1, 1)
            library.signal_wait_until(ranks.at(rank, SIGNALS + 8 * n), epoch, 3)

    ranks.run(program)
    assert all(ranks.words(r, SIGNALS + 8 * n, 1)[0] == 100 for r in range(n))


@pytest.mark.parametrize("granularity", [0, 1, 2])
def test_transfers_move_bytes_and_signal(library, granularity):
    ranks = Ranks(3)
    payload = np.arange(500, dtype=np.uint8)
    for nbi in (0, 1):
        for r in range(3):
            ranks.words(r, DATA, 256)[:] = 0
        library.putmem(ranks.contexts[0], ranks.at(0, DATA + 3), payload.ctypes.data, 500, 2, nbi, granularity)
        assert ctypes.string_at(ranks.at(2, DATA + 3), 500) == payload.tobytes()
        assert ranks.words(1, DATA, 256).sum() == 0
        back = np.zeros(500, np.uint8)
        library.getmem(ranks.contexts[1], back.ctypes.data, ranks.at(1, DATA + 3), 500, 2, nbi, granularity)
        assert (back == payload).all()
        library.putmem_signal(
            ranks.contexts[0],
            ranks.at(0, DATA),
            payload.ctypes.data,
            500,
            ranks.at(0, SIGNALS),
            5,
            1,
            1,
            nbi,
            granularity,
        )
        assert ctypes.string_at(ranks.at(1, DATA), 500) == payload.tobytes()
        assert ranks.words(1, SIGNALS, 1)[0] == 5 * (nbi + 1)


@pytest.mark.parametrize("protocol", ["ll", "ll128"])
@settings(max_examples=200)
@given(
    data=st.data(),
    size=st.integers(0, 500),
    src=st.integers(0, 9),
    dst=st.integers(0, 9),
    epoch=st.sampled_from([1, 2, 2**32 - 1, 2**32, 2**32 + 1, 2**40]),
)
def test_packets_bring_every_byte_and_touch_no_other(library, protocol, data, size, src, dst, epoch):
    ranks, place = Ranks(2), DATA
    source = np.frombuffer(data.draw(st.binary(min_size=size + 16, max_size=size + 16)), np.uint8).copy()
    target = np.full(size + 32, 0xA5, np.uint8)
    put, get = (getattr(library, f"{protocol}_{end}") for end in ("put", "get"))
    put(ranks.contexts[0], ranks.at(0, place), source.ctypes.data + src, size, epoch, 1)
    get(target.ctypes.data + dst, ranks.at(1, place), size, epoch)
    assert (target[dst : dst + size] == source[src : src + size]).all()
    assert (target[:dst] == 0xA5).all() and (target[dst + size :] == 0xA5).all()
    flags = ranks.words(1, place, 16)  # of the first packet, also of a message of no bytes
    assert ((flags[0] >> 32) % 2**32 == (epoch % 2**32 or 2**31)) if protocol == "ll" else flags[15] == epoch
    # Behind the message's memory nothing was written, nor at the sender.
    assert not ranks.words(1, place + packet_bytes(size), 8).any() and not ranks.words(0, place, 100).any()


@pytest.mark.parametrize("n", [2, 5])
def test_messages_by_packets_arrive_in_time(library, n):
    """Everybody to everybody, two places by parity, ranks as threads: each byte is the right call's."""
    ranks, size = Ranks(n), 60
    half = packet_bytes(size)

    def program(rank):
        target = np.zeros(size, np.uint8)
        for epoch in range(1, 301):
            for peer in range(n):
                source = np.full(size, (7 * epoch + rank) % 256, np.uint8)
                library.ll_put(
                    ranks.contexts[rank],
                    ranks.at(rank, DATA + (2 * rank + epoch % 2) * half),
                    source.ctypes.data,
                    size,
                    epoch,
                    peer,
                )
            for peer in range(n):
                library.ll_get(target.ctypes.data, ranks.at(rank, DATA + (2 * peer + epoch % 2) * half), size, epoch)
                assert (target == (7 * epoch + peer) % 256).all()

    ranks.run(program)


def test_every_function_is_one_of_a_known_kind():
    """All are inlined and dropped when unused; those that may hold a barrier are convergent."""
    for file in runtime_directory().glob("[gna]*/*.ll"):
        text = file.read_text()
        definitions = re.findall(r"^define (.*)\{", text, re.MULTILINE)
        assert definitions, file
        assert all(d.startswith("linkonce_odr hidden") and re.search(r"#[01] $", d) for d in definitions), file
        assert "attributes #0 = { alwaysinline convergent nounwind }" in text
        movable = re.findall(r"^define .*?@(\w+)\(.*?\) #1 \{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
        barriers = {name for name, body in movable if re.search(r"call .*(barrier|asm)", body)}
        assert not barriers, f"{barriers} in {file} hold a barrier and must be convergent (#0)"
