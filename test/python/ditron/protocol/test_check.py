"""The protocol checker finds every mistake of broken_kernels, at its marked lines, and none in what is right."""

from __future__ import annotations

import importlib
import inspect
import sys
from contextlib import nullcontext

import paths
import pytest
import test_clean_kernels
import torch
import triton.language as tl
from broken_kernels import CASES

import ditron
import ditron.language as dl
from ditron.protocol.api import check_function, check_script
from ditron.protocol.capture import capture
from ditron_compiler.protocol import check_scenario

EXAMPLES = paths.EXAMPLES

# What the checker calls each of them. `freed_twice` is the script's own mistake: capturing it raises as running does.
KINDS = {
    "missing_wait": "unordered", "data_after_its_flag": "unpublished", "relaxed_flag": "semantic",
    "relaxed_look_at_the_flag": "semantic", "relaxed_signal_fetch": "semantic", "gpu_scope_on_a_peers_flag": "scope", "wait_of_gpu_scope": "scope",
    "gpu_scope_before_a_nic_reads": "scope",
    "atomic_of_gpu_scope_before_a_nic_reads": "scope", "relaxed_wait": "semantic", "ordinary_load_of_a_flag": "unordered",
    "no_fence_between_put_and_signal": "unpublished", "second_put_without_a_signal": "unpublished",
    "sync_all_is_no_quiet": "unordered", "symm_at_without_acquire": "unordered", "wrong_neighbour": "unordered",
    "count_one_too_low": "too-early", "count_one_too_high": "count", "wrong_signal": "unordered",
    "fewer_signals_than_chunks": "unordered", "wrong_epoch": "too-early", "counting_without_quiet": "too-early",
    "equality_overtaken": "overtaken", "reset_race": "writers", "signal_goes_backwards": "overtaken",
    "signal_wraps": "count", "single_buffer_without_credit": "reuse", "two_buffers_by_parity_in_a_ring": "reuse",
    "source_used_again_too_soon": "reuse", "source_used_again_by_the_next_launch": "reuse",
    "get_used_before_quiet": "unordered", "slots_overlap": "writers", "two_programs_write_one_place": "writers",
    "two_puts_without_fence": "writers", "relaxed_lock": "unordered", "last_program_adds_up": "unordered",
    "one_row_too_many": "bounds", "nobody_wrote_it": "unwritten", "padding_is_read": "unwritten",
    "script_reads_before_a_barrier": "unordered", "used_after_it_was_freed": "freed",
    "missing_notify": "never-signalled", "wrong_rank": "never-signalled", "cyclic_wait": "cycle",
    "starved_producer": "starved",
    "barrier_that_one_misses": "barrier",
}  # fmt: skip


def test_every_broken_kernel_is_here():
    assert set(KINDS) == set(CASES) - {"freed_twice"}


@pytest.mark.parametrize("name", KINDS)
def test_broken_kernel_is_found_at_its_lines(name, monkeypatch):
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")  # the default one mends some of them
    case = CASES[name]
    findings, _ = check_scenario(capture(case.main, case.ranks, case.ranks_per_node, resident=case.resident))
    assert findings, f"{name} passes"
    first = findings[0]
    assert first.kind == KINDS[name], str(first)
    assert int(first.loc.split(":")[1]) in case.lines, str(first)


def test_freeing_twice_is_an_error_of_the_script():
    with pytest.raises(ditron.SimulationError, match="does not hold"):
        capture(CASES["freed_twice"].main, 2)


@pytest.mark.parametrize("kernel", test_clean_kernels.KERNELS, ids=lambda kernel: kernel.__name__)
def test_right_kernel_is_clean(kernel):
    grid = test_clean_kernels.KERNELS[kernel]
    report = check_function(lambda: test_clean_kernels.on_rank(kernel, grid), [(2, None), (2, 1)][:1])
    assert not report.findings and not report.notes, str(report)


@ditron.jit(pipeline="as-written")
def look_at(flags, out, HOW: tl.constexpr, SPIN: tl.constexpr):
    seen = tl.full((), 0, tl.int64)
    if SPIN:
        while seen < 1:
            seen = look(flags, HOW)
    else:
        for _ in range(3):
            seen += look(flags, HOW)
    tl.store(out, seen)


@ditron.jit
def look(flags, HOW: tl.constexpr):
    if HOW == "signal_fetch":
        return dl.signal_fetch(flags)
    if HOW == "ld":
        return dl.ld(flags, scope="world", semantic="acquire")
    return dl.atomic_cas(flags, 1, 1)


@pytest.mark.parametrize("spin", [True, False])
@pytest.mark.parametrize("how", ["signal_fetch", "ld", "atomic_cas"])
def test_a_loop_that_spins_hangs_and_one_with_bounds_does_not(how, spin):
    def run():
        ditron.init()
        flags = ditron.symm_zeros(1, dtype=torch.int64, name="flags")
        look_at[(1,)](flags, torch.zeros(1, dtype=torch.int64), HOW=how, SPIN=spin)

    report = check_function(run, [(2, None)])
    assert [finding.kind for finding in report.findings] == (["never-signalled"] if spin else []), str(report)


TILE = dict(block=(16, 16, 16))
SHIPPED = {
    "ag_gemm_in_kernel": lambda check: check(20, 16, 16, num_push=2, push_rows=8, **TILE),
    "gemm_rs": lambda check: check(20, 16, 16, **TILE),
    "all_gather": lambda check: check(600, chunk=256),
    "put_signal": lambda check: check(1500),
    "ring": lambda check: check(400),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_kernel_is_clean(name, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example = importlib.import_module(name)

    def run():
        ditron.init()
        SHIPPED[name](example.check)

    report = check_function(run)
    assert not report.findings, str(report)
    assert len(report.checked) == 5
    fits = [note for note in report.notes if "its grid must not exceed" in note]
    assert report.notes == fits and bool(fits) == (name == "all_gather")


def test_script(capsys):
    argv = sys.argv
    report = check_script(EXAMPLES / "ring.py", ["--elements", "300"], [(3, None)])
    assert str(report) == "ring.py: no findings (3 ranks)" and sys.argv is argv
    assert not capsys.readouterr().out, "what the script prints of its results means nothing"


@pytest.mark.parametrize("protocol", ["auto", "ll", "ll128", "simple"])
def test_packets_are_clean(protocol):
    report = check_script(EXAMPLES / "ll_all_gather.py", ["--protocol", protocol])
    assert not report.findings, str(report)


@ditron.jit(pipeline="as-written")
def packets(data, places, out, epoch, PLACES: tl.constexpr, ANSWER: tl.constexpr, N: tl.constexpr):
    right, place = (dl.rank() + 1) % dl.num_ranks(), places + (epoch % PLACES) * N
    dl.ll_put(place, data, N * 4, right, epoch)
    token = dl.ll_get(out, place, N * 4, epoch)
    tl.store(data + tl.arange(0, N), tl.load(dl.consume_token(out, token) + tl.arange(0, N)))
    if ANSWER:
        dl.barrier_all()


@pytest.mark.parametrize(("ranks", "places", "answer", "kinds"), [
    (2, 2, False, []), (3, 1, True, []), (2, 1, False, ["overtaken"]), (3, 2, False, ["overtaken"]),
])  # fmt: skip
def test_packets_need_two_places_or_an_answer(ranks, places, answer, kinds):
    def run():
        ditron.init()
        memory = ditron.symm_packets(2, nbytes=256, name="places")
        for epoch in (1, 2, 3):
            packets[(1,)](torch.ones(64), memory, torch.empty(64), epoch, PLACES=places, ANSWER=answer, N=64)

    report = check_function(run, [(ranks, None)])
    assert [finding.kind for finding in report.findings] == kinds, str(report)


@ditron.jit(pipeline="as-written")
def messages_of_nothing(places, out, epoch, SENDS: tl.constexpr):
    if SENDS:
        dl.ll_put(places, out, 0, (dl.rank() + 1) % dl.num_ranks(), epoch)
    dl.ll_get(out, places, 0, epoch)


@pytest.mark.parametrize("sends", [True, False])
def test_a_message_of_no_bytes_is_waited_for(sends):
    def run():
        ditron.init()
        messages_of_nothing[(1,)](ditron.symm_packets(1, nbytes=64), torch.empty(4), 1, SENDS=sends)

    assert len(check_function(run, [(2, None)]).findings) == (0 if sends else 1)


@ditron.jit(pipeline="as-written")
def stored_before_a_signal(data, flags, out, N: tl.constexpr, SIGNAL: tl.constexpr, ORDER: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    if ORDER == "barrier before":
        dl.barrier_all()
    tl.store(dl.symm_at(data, peer) + N + at, 1.0)  # stored
    if ORDER == "fence":
        dl.fence()
    if SIGNAL == "putmem_signal":
        dl.putmem_signal(data, out, N * 4, flags, 1, peer)
    else:
        dl.signal_op(flags, 1, peer)
    token = dl.wait(flags, 1, 1)
    if ORDER == "notify":
        dl.notify(flags + 1, peer, 1)
        token = dl.wait(flags + 1, 1, 1)
    if ORDER != "not read":
        tl.store(out + at, tl.load(dl.consume_token(data, token) + N + at))  # read
    dl.barrier_all()


@pytest.mark.parametrize("order", ["none", "barrier before", "fence", "notify", "not read"])
@pytest.mark.parametrize("signal", ["putmem_signal", "signal_op"])
def test_a_signal_without_a_fence_orders_no_stores(signal, order):
    """As in OpenSHMEM. The simulator takes the signal for a release of them."""

    def main():
        ditron.init()
        data = ditron.symm_zeros(2, 32, dtype=torch.float32)
        flags = ditron.symm_zeros(8, dtype=torch.int64)
        out = torch.zeros(32)
        stored_before_a_signal[(1,)](data, flags, out, 32, signal, order)
        ditron.barrier()

    found = check_function(main, [(2, None)]).findings
    if order not in ("none", "barrier before"):
        assert not found, str(found[0])
        return
    assert [finding.kind for finding in found] == ["unpublished"]
    source = inspect.getsourcelines(stored_before_a_signal.fn)
    lines = {mark: source[1] + [mark in line for line in source[0]].index(True) for mark in ("# stored", "# read")}
    assert {int(loc.split(":")[1]) for loc in (found[0].loc, *(loc for _, loc in found[0].others))} >= set(
        lines.values()
    )
    assert "dl.fence()" in str(found[0])


@ditron.jit
def reach(x, flag, HOW: tl.constexpr, N: tl.constexpr):
    peer = (dl.rank() + 1) % dl.num_ranks()
    at = tl.arange(0, N)
    if HOW == "symm_at":
        tl.store(dl.symm_at(x, peer) + at, 1.0)
    elif HOW == "putmem":
        dl.putmem(x, x, N * 4, peer)
    elif HOW == "getmem":
        dl.getmem(x, x, N * 4, peer)
    else:
        dl.notify(flag, peer, 1)


@pytest.mark.parametrize("how", ["symm_at", "putmem", "getmem", "notify"])
def test_memory_that_is_not_symmetric(how):
    def main():
        ditron.init()
        reach[(1,)](torch.ones(32), torch.zeros(1, dtype=torch.int64), HOW=how, N=32)

    found = check_function(main, [(2, None)]).findings
    assert [finding.kind for finding in found[:1]] == ["symmetric"], found
    first = inspect.getsourcelines(reach.fn)
    assert how in first[0][int(found[0].loc.split(":")[1]) - first[1]] and "symm_empty" in found[0].hint
    assert not check_function(main, [(1, None)]).findings or how != "notify"


@pytest.mark.parametrize("sent, taken, lines", [(0, 1, ["ll_put"]), (1, 0, ["ll_get"]), (1, 1, [])])
def test_epochs_of_packets_begin_with_one(sent, taken, lines):
    """Memory to which nothing was sent is a message of epoch 0."""

    @ditron.jit(pipeline="as-written")
    def epochs(places, data, out, sent, taken):
        dl.ll_put(places, data, 256, (dl.rank() + 1) % dl.num_ranks(), sent)
        dl.ll_get(out, places, 256, taken)

    def run():
        ditron.init()
        epochs[(1,)](ditron.symm_packets(1, nbytes=256), torch.ones(64), torch.empty(64), sent, taken)

    found = [str(finding) for finding in check_function(run, [(2, None)]).findings if "epoch 0" in finding.message]
    assert len(found) == len(lines) and all("[count]" in text for text in found), found
    with nullcontext() if not lines else pytest.raises(ditron.SimulationError, match=f"{lines[0]}: expected an epoch"):
        ditron.sim.run(run, ranks=2)
