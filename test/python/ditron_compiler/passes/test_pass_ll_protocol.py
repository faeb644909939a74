"""Kernels mean the same with packets for their signals, on the simulator: values, seeds, ranks that lag."""

from __future__ import annotations

import inspect
import re
import sys

import paths
import pytest
import torch
import triton.language as tl
from fake_gpu import FakeGroup, fake_gpu
from pass_helpers import pipeline

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron.distributed.packets import PacketMemory
from ditron_compiler.ir.dialects import arith
from ditron_compiler.passes.kernel import ll_protocol

sys.path.insert(0, str(paths.EXAMPLES))
import ll_all_gather  # noqa: E402

SIGNALS = re.compile(r"ditron\.(wait|notify|signal_op|signal_wait_until|putmem_signal|putmem)\b")


def gather(nbytes: int, protocol: str, calls: int) -> list[torch.Tensor]:
    ditron.init()
    chunk = {"ll128": 960}.get(protocol, 512)
    run = ll_all_gather.AllGather(nbytes // 2, protocol=protocol, chunk=chunk)
    results = []
    for call in range(calls):
        generator = torch.Generator().manual_seed(10 * call + ditron.rank())
        results.append(run(torch.randn(nbytes // 2, generator=generator).bfloat16()).clone())
    return results


@pytest.mark.parametrize("nbytes", [8 << i for i in range(14)])
def test_all_gather_equals_put_with_signal(nbytes):
    ranks, calls = (4, 3) if nbytes < 1 << 14 else (2, 2)
    expected = ditron.sim.run(gather, ranks=ranks, args=(nbytes, "simple", calls))
    for protocol in ("ll", "ll128", "auto"):
        got = ditron.sim.run(gather, ranks=ranks, seed=nbytes, args=(nbytes, protocol, calls))
        assert all(
            torch.equal(a, b) for mine, its in zip(got, expected, strict=True) for a, b in zip(mine, its, strict=True)
        ), protocol


def gather_often(protocol: str, calls: int, progress: list[int], lags: list[int], chunk: int = 512) -> None:
    """Every call's values, while rank 0 may be a call behind the others."""
    ditron.init()
    rank, ranks, n = ditron.rank(), ditron.num_ranks(), 8
    run = ll_all_gather.AllGather(n, protocol=protocol, chunk=chunk)
    for call in range(1, calls + 1):
        out = run(torch.full((n,), float((call + rank) % 256)).bfloat16())
        progress[rank] = call
        lags.append(call - min(progress))
        for peer in range(ranks):
            assert (out[peer] == (call + peer) % 256).all(), (call, peer)


@pytest.mark.parametrize("protocol", ["ll", "ll128"])
@pytest.mark.parametrize("seed", range(2))
def test_a_thousand_calls_with_a_rank_that_lags(protocol, seed):
    progress, lags = [0] * 4, []
    ditron.sim.run(gather_often, ranks=4, seed=seed, args=(protocol, 1000, progress, lags))
    assert progress == [1000] * 4
    # A rank that has ended call e has what all sent in it: they have ended e - 1. So it is never two ahead.
    assert max(lags) == 1, f"ranks were {max(lags)} calls apart"


def test_without_parity_it_is_found_out(monkeypatch, tmp_path):
    """One place for all epochs: a rank that is a call ahead overwrites what another has yet to take."""
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    binary = ll_protocol._Rewriter.binary
    monkeypatch.setattr(
        ll_protocol._Rewriter, "binary", lambda self, op, a, b: binary(self, op, a, 0 if op is arith.AndIOp else b)
    )
    kernels = {
        "ll": ditron.jit(ll_all_gather.all_gather, pipeline="low-latency-ll", do_not_specialize=["n_elements", "epoch"])
    }
    monkeypatch.setattr(ll_all_gather, "KERNELS", kernels)
    with pytest.raises(ditron.RaceError, match="nothing orders this ll_put"):
        # Another chunk than elsewhere: no kernel that was compiled before is taken for this one.
        ditron.sim.run(gather_often, ranks=4, args=("ll", 20, [0] * 4, [], 64))


# --- other kernels -------------------------------------------------------------------------------------------------


def shift_with_credit(x, box, signals, out, credits, epoch, N: tl.constexpr):
    """One buffer, one place is free when the credit comes: put_signal.py."""
    rank, ranks = dl.rank(), dl.num_ranks()
    block = tl.program_id(0)
    at = block * N + tl.arange(0, N)
    dl.wait(credits + block, 1, epoch - 1)
    dl.putmem_signal_nbi(box + block * N, x + block * N, N * 4, signals + block, epoch, (rank + 1) % ranks)
    seen = dl.signal_wait_until(signals + block, epoch, cmp="eq")
    tl.store(out + at, tl.load(box + at) + (seen - epoch))
    dl.notify(credits + block, (rank + ranks - 1) % ranks, epoch)
    dl.quiet()


def put_and_notify(x, box, signals, out, credits, epoch, N: tl.constexpr):
    """A put and a notify for each rank; one wait for all; boxes by parity."""
    rank, ranks = dl.rank(), dl.num_ranks()
    block = tl.program_id(0)
    mine = box + ((epoch % 2) * 2 + block) * ranks * N
    for step in range(ranks):
        peer = (rank + step) % ranks
        dl.putmem(mine + rank * N, x + block * N, N * 4, peer)
        dl.notify(signals + block * ranks + rank, peer, epoch)
    token = dl.wait(signals + block * ranks, ranks, epoch)
    mine = dl.consume_token(mine, token)
    total = tl.zeros((N,), tl.float32)
    for peer in range(ranks):
        total += tl.load(mine + peer * N + tl.arange(0, N)) * (peer + 1)
    tl.store(out + block * N + tl.arange(0, N), total)
    dl.quiet()


def wait_by_sender(x, box, signals, out, credits, epoch, N: tl.constexpr):
    """A wait for each sender, of messages whose size depends on who sends."""
    rank, ranks = dl.rank(), dl.num_ranks()
    block = tl.program_id(0)
    at = tl.arange(0, N)
    mine = box + ((epoch % 2) * 2 + block) * ranks * N
    for step in range(ranks):
        peer = (rank + step) % ranks
        dl.putmem_signal(
            mine + rank * N, x + block * N, tl.minimum(rank + 1, N) * 4, signals + (block * ranks + rank), epoch, peer
        )
    for peer in range(ranks):
        token = dl.wait(signals + (block * ranks + peer), 1, epoch)
        got = tl.load(dl.consume_token(mine, token) + peer * N + at, mask=at < tl.minimum(peer + 1, N), other=0.0)
        tl.store(out + block * N + at, got + tl.load(out + block * N + at))
    dl.quiet()


def put_pair(N: tl.constexpr, pair, signals, out, credits, epoch):
    """The first kernel, its buffers as a tuple behind a constant."""
    shift_helper(pair[0], pair[1], signals, out, credits, epoch, N)


shift_helper = ditron.jit(shift_with_credit)
KERNELS = [shift_with_credit, put_and_notify, wait_by_sender]


def calls_of(function, pipeline: str, calls: int, N: int = 16) -> list[torch.Tensor]:
    ditron.init()
    ranks = ditron.num_ranks()
    kernel = ditron.jit(function, pipeline=pipeline, do_not_specialize=["epoch"])
    box = ditron.symm_zeros(4 * ranks * N, dtype=torch.float32, name="box")
    signals = ditron.symm_packets(2 * ranks, nbytes=N * 4, name="signals")
    credits = ditron.symm_zeros(2, dtype=torch.int64, name="credits")
    results = []
    for epoch in range(1, calls + 1):
        x = torch.randn(2 * N, generator=torch.Generator().manual_seed(10 * epoch + ditron.rank()))
        out = torch.zeros(2 * N)
        kernel[(2,)](x, box, signals, out, credits, epoch, N=N)
        results.append(out)
    ditron.barrier()
    return results


@pytest.mark.parametrize("pipeline", ["low-latency", "low-latency-ll128"])
@pytest.mark.parametrize("function", KERNELS, ids=lambda function: function.__name__)
def test_kernel_means_the_same(function, pipeline):
    expected = ditron.sim.run(calls_of, ranks=3, args=(function, "default", 6))
    for seed in range(10):
        got = ditron.sim.run(calls_of, ranks=3, seed=seed, args=(function, pipeline, 6))
        assert all(
            torch.equal(a, b) for mine, its in zip(got, expected, strict=True) for a, b in zip(mine, its, strict=True)
        ), f"seed {seed}"


@ditron.jit(pipeline="low-latency", do_not_specialize=["n", "epoch"])
def gather_some(x, table, signals, n, epoch, N: tl.constexpr):
    """The first n rows of everybody's to everybody, which may be none."""
    rank, ranks = dl.rank(), dl.num_ranks()
    for step in range(ranks):
        dl.putmem_signal(table + rank * N, x, tl.minimum(n, N) * 4, signals + rank, epoch, (rank + step) % ranks)
    dl.wait(signals, ranks, epoch)


def gather_some_often(sizes: list[int], N: int = 16) -> list[list[float]]:
    ditron.init()
    ranks = ditron.num_ranks()
    table = ditron.symm_zeros(ranks, N, dtype=torch.float32, name="table")
    signals = ditron.symm_packets(ranks, nbytes=N * 4, name="signals")
    results = []
    for epoch, n in enumerate(sizes, 1):
        gather_some[(1,)](torch.full((N,), 10.0 * epoch + ditron.rank()), table, signals, n, epoch, N=N)
        results.append(table[:, 0].tolist())
    return results


def test_a_message_of_no_bytes_is_waited_for_too():
    sizes = [16, 0, 16, 0, 0, 16, 0, 16]
    lasting = [max(e for e in range(1, epoch + 1) if sizes[e - 1]) for epoch in range(1, len(sizes) + 1)]
    for seed in range(20):
        results = ditron.sim.run(gather_some_often, ranks=3, seed=seed, args=(sizes,))
        assert results == [[[10.0 * e + rank for rank in range(3)] for e in lasting]] * 3, seed


@pytest.mark.parametrize("function", [ll_all_gather.all_gather, *KERNELS], ids=lambda function: function.__name__)
def test_no_signal_is_left_but_the_credit(function):
    example = (
        ll_all_gather.EXAMPLE
        if function is ll_all_gather.all_gather
        else {
            "signature": {
                "x": "*fp32",
                "box": "*fp32",
                "signals": "*i64",
                "out": "*fp32",
                "credits": "*i64",
                "epoch": "i32",
            },
            "constexprs": {"N": 16},
        }
    )
    kernel = ditron.jit(function, pipeline="low-latency", do_not_specialize=["epoch"])
    text = ditron.compile(kernel, target="sim", stop_after="ditron", **example).asm["ditron"]
    assert "ditron.ll_put" in text and "ditron.ll_get" in text
    left = sorted(SIGNALS.findall(re.sub(r"ditron\.wait %\w+\[%c0_i32\]", "a wait for nothing", text)))
    assert left == (["notify", "wait"] if function is shift_with_credit else []), text
    assert ("ditron.quiet" in text) == (function is shift_with_credit)


# --- programs that take a message each ------------------------------------------------------------------------------


@ditron.jit(pipeline="low-latency", do_not_specialize=["epoch"])
def from_distance(x, box, signals, out, epoch, N: tl.constexpr):
    """A program for each distance takes what the rank so far to the left has sent."""
    rank, ranks = dl.rank(), dl.num_ranks()
    distance = tl.program_id(0)
    mine = box + (epoch % 2) * ranks * N
    dl.putmem_signal(mine + rank * N, x, N * 4, signals + rank, epoch, (rank + distance) % ranks)
    sender = (rank + ranks - distance) % ranks
    token = dl.wait(signals + sender, 1, epoch)
    at = tl.arange(0, N)
    tl.store(out + sender * N + at, tl.load(dl.consume_token(mine, token) + sender * N + at))


def from_distances(programs: int, calls: int = 4, N: int = 16) -> list[list[float]]:
    ditron.init()
    ranks = ditron.num_ranks()
    box = ditron.symm_zeros(2 * ranks * N, dtype=torch.float32, name="box")
    signals = ditron.symm_packets(ranks, nbytes=N * 4, name="signals")
    results = []
    for epoch in range(1, calls + 1):
        out = torch.zeros(ranks, N)
        from_distance[(programs,)](torch.full((N,), 10.0 * epoch + ditron.rank()), box, signals, out, epoch, N=N)
        results.append(out[:, 0].tolist())
    return results


def test_as_many_programs_as_ranks_take_a_message_each():
    for seed in range(5):
        assert (
            ditron.sim.run(from_distances, ranks=3, seed=seed, args=(3,))
            == [[[10.0 * epoch + rank for rank in range(3)] for epoch in range(1, 5)]] * 3
        )


def test_a_launch_of_more_programs_than_ranks_is_refused():
    line = inspect.getsourcelines(from_distance.fn)[1] + 6
    with pytest.raises(
        ditron.DitronError,
        match=r"(?s)'from_distance': a launch of 4 programs along axis 0 in a group "
        rf"of 3 ranks.*argument 'signals'.*test_pass_ll_protocol.py:{line}: the put.*'low-latency' that "
        r"the kernel names\n.*at most num_ranks programs",
    ):
        ditron.sim.run(from_distances, ranks=3, args=(4,))


def test_the_launch_of_a_gpu_is_refused_too():
    group, x, signals = FakeGroup(), torch.zeros(64), torch.zeros(256, dtype=torch.int64)
    group.packets[signals.data_ptr()] = PacketMemory(signals.nbytes, 256)
    with fake_gpu() as gpu:
        from_distance[(1,)](x, x, signals, x, 1, N=16, group=group)
        assert len(gpu.launches) == 1
        with pytest.raises(ditron.DitronError, match="2 programs along axis 0 in a group of 1 ranks"):
            from_distance[(2,)](x, x, signals, x, 1, N=16, group=group)
        assert len(gpu.launches) == 1


# --- memory that is none for packets --------------------------------------------------------------------------------

PUT = inspect.getsourcelines(shift_with_credit)[1] + 6  # the line of its put
# A place for 128 bytes is two messages of 256; what is large enough may have a tensor behind it all the same.
REFUSED = {
    "signals": (lambda: ditron.symm_zeros(2, dtype=torch.int64, name="s"), "was not allocated by ditron.symm_packets"),
    "unknown": (lambda: ditron.symm_zeros(256, dtype=torch.int64, name="s"), "was not allocated by"),
    "too small": (lambda: ditron.symm_packets(2, nbytes=64, name="s"), "has 256 bytes for each"),
}


def says(kernel: str, what: str, chosen: str) -> str:
    return (
        rf"kernel '{kernel}': argument 'signals' {what}.* 512 bytes for each signal.*\n"
        rf".*test_pass_ll_protocol.py:{PUT}: the put whose signal became packets, .*{chosen}.*\n"
        rf".*ditron.symm_packets\(number of signals, nbytes=128\)"
    )


def shift(name: str | None):
    return ditron.jit(shift_with_credit, pipeline=name, do_not_specialize=["epoch"])


def shift_once(kernel, make, group=None, N: int = 32):
    ditron.init()
    box = ditron.symm_zeros(2 * N, dtype=torch.float32, name="box")
    credits = ditron.symm_zeros(2, dtype=torch.int64, name="credits")
    x = torch.arange(2.0 * N)
    out = torch.empty_like(x)
    kernel[(2,)](x, box, make(), out, credits, 1, N=N)
    assert torch.equal(out, x)


@pytest.mark.parametrize("case", REFUSED)
def test_other_memory_is_refused_by_the_launch(case):
    make, what = REFUSED[case]
    with pytest.raises(ditron.DitronError, match=says("shift_with_credit", what, "'low-latency-ll'")) as refused:
        ditron.sim.run(shift_once, ranks=2, args=(shift("low-latency-ll"), make))
    lines, first = inspect.getsourcelines(shift_once)
    launch = next(number for number, line in enumerate(lines, first) if "kernel[" in line)
    assert str(refused.value).startswith(f"{__file__}:{launch}: kernel 'shift_with_credit'")


def test_the_environment_is_named_when_it_has_chosen():
    with pipeline("low-latency"):
        with pytest.raises(ditron.DitronError, match=says("shift_with_credit", "was not", "DITRON_PIPELINE is 'low-l")):
            ditron.sim.run(shift_once, ranks=2, args=(shift(None), REFUSED["signals"][0]))
        ditron.sim.run(shift_once, ranks=2, args=(shift("default"), REFUSED["signals"][0]))


def test_part_of_packet_memory_will_do_and_freed_memory_will_not():
    def part():
        return ditron.symm_packets(4, nbytes=200, name="s")[1:]

    def freed():
        packets = ditron.symm_packets(2, nbytes=128, name="s")
        ditron.symm_free(packets)
        return packets

    ditron.sim.run(shift_once, ranks=2, args=(shift("low-latency"), part))
    with pytest.raises(ditron.DitronError, match="was not allocated by ditron.symm_packets"):
        ditron.sim.run(shift_once, ranks=2, args=(shift("low-latency"), freed))


@ditron.program
def shift_in_program(x, out):
    box = dh.symm_empty(64, dtype=torch.float32, name="box")
    signals = dh.symm_zeros(256, dtype=torch.int64, name="signals")
    credits = dh.symm_zeros(2, dtype=torch.int64, name="credits")
    ll_shift[(2,)](x, box, signals, out, credits, dh.epoch(), N=32)


ll_shift = shift("low-latency")


def test_a_program_that_gives_its_kernel_signals_is_refused():
    def main():
        ditron.init()
        shift_in_program(torch.zeros(64), torch.zeros(64))

    with pytest.raises(ditron.DitronError, match=says("shift_with_credit", "was not allocated", "its pipeline")):
        ditron.sim.run(main, ranks=2)


def test_a_gpu_launch_is_refused_before_it_is_made():
    """Through Triton's launcher and its cache, with arguments that are no parameter of the tt.func or several."""
    kernel, group = ditron.jit(put_pair, pipeline="low-latency", do_not_specialize=["epoch"]), FakeGroup()
    x, credits, signals = torch.zeros(64), torch.zeros(2, dtype=torch.int64), torch.zeros(256, dtype=torch.int64)
    with fake_gpu() as gpu:
        for attempt in (kernel, ditron.jit(put_pair, pipeline="low-latency", do_not_specialize=["epoch"])):
            for _ in range(2):
                with pytest.raises(ditron.DitronError, match="kernel 'put_pair': argument 'signals' was not allocated"):
                    attempt[(2,)](32, (x, x), signals, x, credits, 1, group=group)
        assert not gpu.launches
        group.packets[signals.data_ptr()] = PacketMemory(signals.nbytes, 512)
        kernel[(2,)](32, (x, x), signals, x, credits, 1, group=group)
        group.packets[signals.data_ptr()] = PacketMemory(signals.nbytes, 256)
        with pytest.raises(ditron.DitronError, match="'signals' has 256 bytes"):
            kernel[(2,)](32, (x, x), signals, x, credits, 1, group=group)
        assert len(gpu.launches) == 1


@ditron.jit(pipeline="low-latency", do_not_specialize=["epoch"])
def gather_sized(mine_ptr, table_ptr, ready_ptr, n, epoch, N: tl.constexpr):
    rank, num_ranks = dl.rank(), dl.num_ranks()
    for step in range(num_ranks):
        dl.putmem_signal(
            table_ptr + rank * N, mine_ptr, tl.minimum(n, N) * 4, ready_ptr + rank, epoch, (rank + step) % num_ranks
        )
    dl.wait(ready_ptr, num_ranks, epoch)


def test_kernels_that_lay_out_one_memory_differently_are_refused():
    """A size of 1 is a constant to Triton: its kernel has smaller places than the other's."""

    def main():
        ditron.init()
        table = ditron.symm_empty(ditron.num_ranks(), 64, dtype=torch.float32, name="table")
        ready = ditron.symm_packets(ditron.num_ranks(), nbytes=256, name="ready")
        for epoch, n in enumerate((64, 30, 0, 1), 1):
            gather_sized[(1,)](torch.ones(64), table, ready, n, epoch, N=64)

    with pytest.raises(
        ditron.DitronError,
        match="(?s)'ready_ptr' is memory that an earlier launch used with 1024 bytes"
        ".*compiled for 256.*do_not_specialize",
    ):
        ditron.sim.run(main, ranks=2)
