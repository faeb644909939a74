"""Kernels mean the same with packets for their signals, on the simulator: values, seeds, ranks that lag."""
from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron_compiler.passes import ll_protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
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
        assert all(torch.equal(a, b) for mine, its in zip(got, expected, strict=True)
                   for a, b in zip(mine, its, strict=True)), protocol


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
    arith = ll_protocol._Rewriter.arith
    monkeypatch.setattr(ll_protocol._Rewriter, "arith", lambda self, name, a, b: arith(
        self, name, a, 0 if name == "andi" else b))
    kernels = {"ll": ditron.jit(ll_all_gather.all_gather, pipeline="low-latency-ll",
                                do_not_specialize=["n_elements", "epoch"])}
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
        dl.putmem_signal(mine + rank * N, x + block * N, tl.minimum(rank + 1, N) * 4,
                         signals + (block * ranks + rank), epoch, peer)
    for peer in range(ranks):
        token = dl.wait(signals + (block * ranks + peer), 1, epoch)
        got = tl.load(dl.consume_token(mine, token) + peer * N + at, mask=at < tl.minimum(peer + 1, N), other=0.0)
        tl.store(out + block * N + at, got + tl.load(out + block * N + at))
    dl.quiet()


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
        assert all(torch.equal(a, b) for mine, its in zip(got, expected, strict=True)
                   for a, b in zip(mine, its, strict=True)), f"seed {seed}"


@pytest.mark.parametrize("function", [ll_all_gather.all_gather, *KERNELS], ids=lambda function: function.__name__)
def test_no_signal_is_left_but_the_credit(function):
    example = ll_all_gather.EXAMPLE if function is ll_all_gather.all_gather else {
        "signature": {"x": "*fp32", "box": "*fp32", "signals": "*i64", "out": "*fp32", "credits": "*i64",
                      "epoch": "i32"}, "constexprs": {"N": 16}}
    kernel = ditron.jit(function, pipeline="low-latency", do_not_specialize=["epoch"])
    text = ditron.compile(kernel, target="sim", stop_after="ditron", **example).asm["ditron"]
    assert "ditron.ll_put" in text and "ditron.ll_get" in text
    left = sorted(SIGNALS.findall(text))
    assert left == (["notify", "wait"] if function is shift_with_credit else []), text
    assert ("ditron.quiet" in text) == (function is shift_with_credit)
