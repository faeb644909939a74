"""Packets in the simulator: messages arrive as they were sent, and what is wrong with them is found."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl

PROTOCOLS = ["ll", "ll128"]
# What a seed may show of a packet that is overwritten, or taken twice, depends on who comes first.
SEEDS = range(60)

kernel = ditron.jit(do_not_specialize=["epoch"])


@ditron.jit
def exchange(packets, src, dst, epoch, nbytes, HALF: tl.constexpr, PROTOCOL: tl.constexpr):
    """A message to the right, one from the left; two places by the epoch's parity."""
    right = (dl.rank() + 1) % dl.num_ranks()
    place = packets + epoch % 2 * HALF
    dl.ll_put(place, src, nbytes, right, epoch, protocol=PROTOCOL)
    token = dl.ll_get(dst, place, nbytes, epoch, protocol=PROTOCOL)
    first = dl.consume_token(dst, token)
    tl.store(first, tl.load(first))


def exchange_bytes(nbytes: int, offset: int, protocol: str, calls: int = 4) -> None:
    ditron.init()
    rank, ranks = ditron.rank(), ditron.num_ranks()
    packets = ditron.symm_packets(1, nbytes=max(nbytes, 1), name="packets")
    assert packets.shape == (1, 2 * dl.packet_bytes(max(nbytes, 1)) // 8)
    for call in range(calls):
        # Every rank's message of every call is another.
        messages = [
            torch.randint(
                0, 256, (nbytes + 16,), dtype=torch.uint8, generator=torch.Generator().manual_seed(100 * call + r)
            )
            for r in range(ranks)
        ]
        src, dst = messages[rank].clone(), torch.full((nbytes + 16,), 0xA5, dtype=torch.uint8)
        exchange[(1,)](
            packets, src[offset:], dst[offset:], 2**31 - 3 + call, nbytes, HALF=packets.shape[1] // 2, PROTOCOL=protocol
        )
        expected = torch.full_like(dst, 0xA5)
        expected[offset : offset + nbytes] = messages[rank - 1][offset : offset + nbytes]
        # nbytes 0: the byte that the kernel loads and stores stays what it was.
        assert torch.equal(dst, expected), (call, nbytes, offset)
        ditron.barrier()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("nbytes", [0, 1, 3, 4, 7, 8, 9, 119, 120, 121, 128, 240, 1000])
def test_bytes_arrive(protocol, nbytes):
    for seed, offset in enumerate((0, 1, 4)):
        ditron.sim.run(exchange_bytes, ranks=3, seed=seed, args=(nbytes, offset, protocol))


def wrapping(protocol: str) -> None:
    """Epochs around a multiple of 2^32, where the flag of 32 bits would be 0, as memory that was never written."""
    ditron.init()
    packets = ditron.symm_packets(1, nbytes=64, name="packets")
    for call in range(6):
        # Every second message is longer: its second half comes to packets that were not written for a while, or ever.
        nbytes = 16 if call % 4 < 2 else 64
        src = torch.full((64,), call + 1, dtype=torch.uint8)
        dst = torch.zeros(64, dtype=torch.uint8)
        exchange[(1,)](packets, src, dst, 2**32 - 2 + call, nbytes, HALF=packets.shape[1] // 2, PROTOCOL=protocol)
        assert dst.tolist() == [call + 1] * nbytes + [0] * (64 - nbytes)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_flags_wrap(protocol):
    for seed in range(10):
        ditron.sim.run(wrapping, ranks=2, seed=seed, args=(protocol,))


# --- mistakes ------------------------------------------------------------------------------------------------------


def find(main, kind: str, says: str, ranks: int = 2, **options) -> ditron.SimulationError:
    """The first finding of ``main``, which must be of that kind in every seed that has one."""
    for seed in SEEDS:
        try:
            ditron.sim.run(main, ranks=ranks, seed=seed, **options)
        except ditron.SimulationError as error:
            assert error.kind == kind and says in str(error), error
            return error
    pytest.fail(f"nothing found in {len(SEEDS)} seeds")


@kernel
def reads_packets(packets, src, dst, epoch):
    peer = 1 - dl.rank()
    dl.ll_put(packets, src, 64, peer, epoch)
    tl.store(dst, tl.load(packets).to(tl.float32))


@kernel
def stores_into_packets(packets, src, dst, epoch):
    peer = 1 - dl.rank()
    dl.ll_put(packets, src, 64, peer, epoch)
    tl.store(packets, 0)
    dl.ll_get(dst, packets, 64, epoch)


@kernel
def relies_on_order(packets, src, dst, epoch):
    """The packet says nothing about what else its sender has stored."""
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(packets, peer) + 32, epoch)
    dl.ll_put(packets, src, 64, peer, epoch)
    token = dl.ll_get(dst, packets, 64, epoch)
    tl.store(dst, tl.load(dl.consume_token(packets, token) + 32).to(tl.float32))


@kernel
def relies_on_fences(packets, src, dst, epoch):
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(packets, peer) + 32, epoch)
    dl.fence()
    dl.ll_put(packets, src, 64, peer, epoch)
    token = dl.ll_get(dst, packets, 64, epoch)
    dl.fence()
    tl.store(dst, tl.load(dl.consume_token(packets, token) + 32).to(tl.float32))


@kernel
def one_place(packets, src, dst, epoch):
    """The next message may come before the last one is taken."""
    peer = 1 - dl.rank()
    dl.ll_put(packets, src, 64, peer, epoch)
    dl.ll_get(dst, packets, 64, epoch)


@kernel
def two_places(packets, src, dst, epoch):
    peer = 1 - dl.rank()
    dl.ll_put(packets + epoch % 2 * 16, src, 64, peer, epoch)
    dl.ll_get(dst, packets + epoch % 2 * 16, 64, epoch)


@kernel
def nobody_takes(packets, src, dst, epoch):
    dl.ll_put(packets, src, 64, 1 - dl.rank(), epoch)
    dl.quiet()


@kernel
def wrong_epoch(packets, src, dst, epoch):
    dl.ll_put(packets, src, 64, 1 - dl.rank(), epoch)
    dl.ll_get(dst, packets, 64, epoch + 1)


@kernel
def misaligned(packets, src, dst, epoch):
    dl.ll_put(packets + 1, src, 64, 1 - dl.rank(), epoch)


@kernel
def no_room(packets, src, dst, epoch):
    dl.ll_put(packets + 16, src, 256, 1 - dl.rank(), epoch)


@kernel
def epoch_zero(packets, src, dst, epoch):
    dl.ll_put(packets, src, 64, 1 - dl.rank(), epoch - 1)


@kernel
def half_an_element(packets, src, dst, epoch):
    dl.ll_put(packets, src, 5 + epoch, 1 - dl.rank(), epoch)


def main(case, calls: int = 1, grid: int = 1, zeros: bool = True):
    def on_rank():
        ditron.init()
        packets = (
            ditron.symm_packets(2, nbytes=64, name="packets")
            if zeros
            else ditron.symm_empty(64, dtype=torch.int64, name="packets")
        )
        dst = torch.zeros(64)
        for epoch in range(1, calls + 1):
            case[(grid,)](packets, torch.full((64,), float(epoch)), dst, epoch)

    return on_rank


@kernel
def waits_for_nothing(packets, src, dst, epoch):
    """A message of no bytes has a flag, and waits for it."""
    if dl.rank() == 0:
        dl.ll_get(dst, packets, 0, epoch)


MISTAKES = {
    "waits_for_nothing": (main(waits_for_nothing), "deadlock", "packets[0, 0] == 1"),
    "reads_packets": (main(reads_packets), "race", "packets are read by dl.ll_get alone"),
    "stores_into_packets": (main(stores_into_packets), "race", "packets"),
    "relies_on_order": (main(relies_on_order), "race", "nothing orders this load and a store"),
    "one_place": (main(one_place, calls=4), "race", "ll_put"),
    "nobody_takes": (main(nobody_takes, calls=2), "race", "ll_put"),
    "two_programs": (main(two_places, grid=2), "race", ""),
    "wrong_epoch": (main(wrong_epoch), "deadlock", "the latest packet there came from rank"),
    "misaligned": (main(misaligned), "", "aligned to 128 bytes"),
    "no_room": (main(no_room), "bounds", "packets"),
    "epoch_zero": (main(epoch_zero), "", "expected an epoch of 1 or more, got 0"),
    "half_an_element": (main(half_an_element), "", "not a multiple of the 4 bytes"),
    "unwritten": (main(two_places, zeros=False), "unwritten", "ll_get"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_found(name):
    find(*MISTAKES[name])


@pytest.mark.parametrize("case,calls", [(two_places, 6), (relies_on_fences, 1)])
def test_right_kernel_is_clean(case, calls):
    for seed in SEEDS:
        ditron.sim.run(main(case, calls=calls), ranks=2, seed=seed)


def test_another_node_is_refused():
    find(main(two_places), "", "which is on another node", ranks_per_node=1)


def test_taking_says_where_it_waits():
    error = find(main(wrong_epoch), "deadlock", "test_packets.py")
    assert "packets[0, 0] == 2 (it is 1)" in str(error), error


@pytest.mark.parametrize(
    "change,says",
    [
        ({"epoch": 0}, "epoch must be at least 1, got 0"),
        ({"protocol": "simple"}, "must be 'll' or 'll128'"),
        ({"nbytes": 6}, "multiple of the 4 bytes"),
        ({"packets": "src"}, "must point to 64-bit signals"),
    ],
)
def test_language_refuses(change, says):
    @ditron.jit
    def put(packets, src, NBYTES: tl.constexpr, EPOCH: tl.constexpr, PROTOCOL: tl.constexpr, SWAP: tl.constexpr):
        dl.ll_put(src if SWAP else packets, src, NBYTES, 0, EPOCH, protocol=PROTOCOL)

    constexprs = {
        "NBYTES": change.get("nbytes", 64),
        "EPOCH": change.get("epoch", 1),
        "PROTOCOL": change.get("protocol", "ll"),
        "SWAP": "packets" in change,
    }
    with pytest.raises(Exception, match=says):
        ditron.compile(put, signature={"packets": "*i64", "src": "*fp32"}, constexprs=constexprs, target="sim")
