"""The picture and the trace of a run on a machine with a clock: true to what took time."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import pytest
import torch
import triton.language as tl
from timed_programs import simple_machine, two_nodes

import ditron
from ditron import sim
from ditron.sim import machine_timeline
from ditron.sim.trace import Recording
from ditron.sim.world import World

US = 1e-3


@ditron.jit
def write_kernel(x_ptr, N: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0) * N + tl.arange(0, N), 1.0)


def copies(*sizes, peer=1):
    """Rank 0 copies so many MB to a peer, one behind the other."""

    def main():
        ditron.init()
        view = sim.current_world()
        far = view.alloc((len(sizes), 4_000_000), torch.int8, name="far")
        near = torch.zeros(4_000_000, dtype=torch.int8)
        if view.rank == 0:
            for row, mb in enumerate(sizes):
                view.stream("copy").rank_copy(near[: mb * 1_000_000], far[row, : mb * 1_000_000], peer)
        view.synchronize()

    return main


def ag_gemm(rows=256, N=256, K=256):
    def main():
        ditron.init()
        a = torch.empty(rows // ditron.num_ranks(), K, dtype=torch.bfloat16)
        b = torch.empty(N, K, dtype=torch.bfloat16)
        for _ in range(2):
            ditron.kernels.ag_gemm(a, b, algorithm="overlapped")

    return main


def recorded(main, machine, ranks):
    world = World(ranks, machine=machine, timing_only=True)
    world.machine.enable_trace(1 << 20)
    world.run(main)
    of = world.ranks_per_node, world.seed, not world.machine.trace_truncated
    return Recording(world.machine.take_trace(), "test", world.size, *of, world.prediction)


def area(steps, end):
    """Of a number that changes at times: its integral."""
    return sum(value * (later - at) for (at, value), (later, _) in zip(steps, [*steps[1:], (end, 0)], strict=True))


@pytest.mark.parametrize(
    "machine, peer, resource, rate",
    [
        (simple_machine(), 1, "link", ("link.rate", "copy_engine.share")),
        (two_nodes(), 1, "link", ("link.rate", "copy_engine.share")),
        (two_nodes(), 2, "nic", ("nic.rate",)),
    ],
)
def test_what_is_transferred_is_what_was_copied(machine, peer, resource, rate):
    recording = recorded(copies(1, 3, peer=peer), machine, 4)
    usages = machine_timeline._usages(recording.prediction.usages(), range(4))
    assert {place for place in usages if place[1] != "memory"} == {(0, f"{resource} out"), (peer, f"{resource} in")}
    for usage in usages.values():
        moved = area(usage, recording.end) * math.prod(machine[name] for name in rate)  # ns of 1 GB/s
        assert moved == pytest.approx(4_000_000, rel=1e-6)
        assert all(0 <= part <= 1 + 1e-9 for _, part in usage) and usage[-1][1] == 0


def test_programs_are_counted_by_what_they_do():
    recording = recorded(ag_gemm(), simple_machine(), 4)
    for rank, counts in machine_timeline._programs(recording, range(4)).items():
        times = sorted({at for steps in counts.values() for at in steps.changes})
        resident = machine_timeline._values(counts["resident"], times)
        busy = [machine_timeline._values(counts[what], times) for what in ("products", "loads and stores", "waits")]
        assert max(resident) == 4  # of the machine's SMs
        assert all(sum(parts) <= there for *parts, there in zip(*busy, resident, strict=True))
        # As the clock has added it up.
        launches = [one for one in recording.prediction.launches if one.rank == rank and one.programs]
        computed = area(list(zip(times, busy[0], strict=True)), recording.end)
        waited = area(list(zip(times, busy[2], strict=True)), recording.end)
        assert computed == pytest.approx(sum(one.compute for one in launches), rel=0.05) and computed > 0
        assert waited == pytest.approx(sum(one.waited for one in launches), rel=0.05) and waited > 0


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_picture_says_what_it_shows(tmp_path, ranks):
    import matplotlib

    machine = simple_machine() if ranks <= 4 else two_nodes()
    if ranks == 8:
        from dataclasses import replace

        machine = replace(machine, ranks=4)
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        prediction = sim.predict(ag_gemm(), machine, ranks, timeline=tmp_path / "out.svg")
    text = (tmp_path / "out.svg").read_text()
    us = (prediction.window()[1] - prediction.window()[0]) * US
    assert f"call 2 of 2, {prediction.calls[-1][0].name}, {us:.1f} us" in text
    assert text.count(": critical path<") == min(ranks, machine_timeline.MOST_RANKS)
    for name in ("link out", "programs: products", "main stream", "stream copy", "us, predicted for"):
        assert name in text
    assert ("nic out" in text) == ("on 2 nodes" in text) == (ranks == 8)
    assert ("4 of them shown" in text) == (ranks == 8)
    slowest = max(prediction.calls[-1], key=lambda call: call.end).rank
    assert f">rank {slowest}: critical path<" in text


def test_products_of_torch_behind_the_last_program():
    """They are calls too, without kernels: what is shown is the last call of a program."""

    def main():
        ag_gemm()()
        torch.empty(64, 64) @ torch.empty(64, 64)

    prediction = sim.predict(main, simple_machine(), 4)
    assert prediction.calls[-1][0].name.startswith("product of") and not prediction.critical_path(-1)
    assert "ag_gemm" in prediction.calls[prediction.shown_call][0].name
    text = str(prediction)
    assert "critical path of call 2, first to last:" in text and "ag_gemm_kernel" in text


def test_kernels_between_programs_are_told():
    def main():
        ag_gemm()()
        write_kernel[(2,)](torch.zeros(256), N=128)

    text = str(sim.predict(main, simple_machine(), 4))
    assert "1 kernel outside of programs: " in text and "the whole run: " in text
    assert "outside of programs" not in str(sim.predict(ag_gemm(), simple_machine(), 4))


def test_the_trace_has_the_critical_path_and_what_links_transfer(tmp_path):
    prediction = sim.predict(ag_gemm(), simple_machine(), 4, trace=tmp_path / "out.json")
    lines = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    path = [line for line in lines if line.get("cat") == "critical path"]
    assert sum(line["dur"] for line in path) == pytest.approx(sum(step.us for step in prediction.critical_path()))
    counters = defaultdict(list)
    for line in lines:
        if line["ph"] == "C":
            counters[line["pid"], line["name"]].append(line)
    assert {name for _, name in counters} >= {"link out, %", "link in, %"}
    for of_resource in counters.values():
        assert [line["ts"] for line in of_resource] == sorted(line["ts"] for line in of_resource)
        assert of_resource[-1]["args"] == {"of its rate": 0}


def test_a_run_that_fails_is_drawn(tmp_path):
    def main():
        ditron.init()
        copies(1)()
        raise ValueError("afterwards")

    with pytest.raises(ValueError, match="afterwards"):
        sim.predict(main, simple_machine(), 2, timeline=tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_kinds_of_files(tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.png"):
        sim.predict(copies(1), simple_machine(), 2, timeline=tmp_path / "out.gif")
