"""The trace and the timeline of a simulated run: well-formed, and true to what happened."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import paths
import pytest
import torch
from machine_kernels import kernel

import ditron
from ditron import sim
from ditron.sim import timeline
from ditron.sim.trace import FIRST_PLACE, Recording, perfetto
from ditron.sim.world import World
from ditron_compiler.errors import DeadlockError

ROOT = paths.ROOT
sys.path.insert(0, str(ROOT / "examples"))
import ag_gemm_in_kernel as ag_gemm  # noqa: E402
import ring  # noqa: E402

RANKS, CALLS, NUM_PUSH = 4, 2, 2

# Rank 0 puts 8 bytes with a signal into rank 1, which waits for it.
SEND = kernel(
    "send",
    "buf: ptr, source: ptr, sig: ptr",
    """
  %me = call i32 @ditron_sim_rank(i32 0)
  %sends = icmp eq i32 %me, 0
  br i1 %sends, label %sender, label %receiver
sender:
  call void @ditron_sim_putmem_signal(ptr %buf, ptr %source, i64 8, ptr %sig, i64 5, i32 1, i32 1, i32 1, i32 2)
  ret void
receiver:
  call void @ditron_sim_wait(ptr %sig, i32 1, i64 5, i32 3, i32 1, i32 1, i32 4)
  ret void
""",
)


def run_ag_gemm():
    ditron.init()
    return ag_gemm.check(32, 32, 32, calls=CALLS, num_push=NUM_PUSH, block=(16, 16, 16), push_rows=8)


def run_send():
    view = sim.current_world()
    buf, source, sig = (view.alloc([1], torch.int64, name=name) for name in ("buf", "source", "sig"))
    view.launch(SEND, [1], [t.data_ptr() for t in (buf, source, sig)])


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> dict:
    path = tmp_path_factory.mktemp("trace") / "out.json"
    sim.run(run_ag_gemm, ranks=RANKS, seed=3, trace=path)
    return json.loads(path.read_text())


def recording_of(function, capacity: int = 1 << 20, **options) -> Recording:
    world = World(**options)
    world.machine.enable_trace(capacity)
    world.run(function)
    return Recording(
        world.machine.take_trace(),
        "test",
        world.size,
        world.ranks_per_node,
        world.seed,
        not world.machine.trace_truncated,
    )


def check_form(trace: dict) -> None:
    """What the Trace Event Format asks for: keys, slices that nest, flows with both ends."""
    open_slices, flows, last = defaultdict(list), defaultdict(list), 0
    for line in trace["traceEvents"]:
        assert {"ph", "pid", "tid", "ts", "name"} <= line.keys(), line
        assert line["ts"] >= last or line["ph"] == "M"
        last = max(last, line["ts"])
        track = line["pid"], line["tid"]
        if line["ph"] == "B":
            open_slices[track].append(line["name"])
        elif line["ph"] == "E":
            assert open_slices[track].pop() == line["name"]
        elif line["ph"] == "X":
            assert line["dur"] >= 1
        elif line["ph"] in "sf":
            assert line["id"] and line["cat"]
            flows[line["cat"], line["name"], line["id"]].append(line)
            if line["ph"] == "f":
                assert line["bp"] == "e"
        else:
            assert line["ph"] in "Mbe", line
    assert not any(open_slices.values())
    for key, ends in flows.items():
        assert [end["ph"] for end in ends] == ["s", "f"], (key, ends)


def slices(trace: dict) -> list[dict]:
    """Every B/E pair as one dict with `end` and the arguments of both."""
    found, stack = [], defaultdict(list)
    for line in trace["traceEvents"]:
        if line["ph"] == "B":
            entry = {**line, "args": dict(line.get("args", {}))}
            stack[line["pid"], line["tid"]].append(entry)
            found.append(entry)
        elif line["ph"] == "E":
            entry = stack[line["pid"], line["tid"]].pop()
            entry["end"] = line["ts"]
            entry["args"].update(line.get("args", {}))
    return found


def test_form(trace):
    check_form(trace)
    assert trace["otherData"]["ranks"] == RANKS and "step" in trace["otherData"]["time"]
    names = {(e["pid"], e["args"]["name"]) for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert names == {(0, "rank 0"), (1, "rank 1"), (2, "rank 2"), (3, "rank 3"), (RANKS, "scheduler")}


def test_everything_that_happened_is_there(trace):
    count = Counter(s["cat"] for s in slices(trace))
    consumers = (RANKS * 32 // 16) * (32 // 16)
    assert count["program"] == RANKS * CALLS * (NUM_PUSH + consumers)
    assert count["wait"] == RANKS * CALLS * consumers
    assert count["notify"] == RANKS * CALLS * NUM_PUSH * RANKS
    assert count["quiet"] == RANKS * CALLS * NUM_PUSH
    assert count["putmem"] == RANKS * CALLS * RANKS * 32 // 8
    launches = [e for e in trace["traceEvents"] if e.get("cat") == "launch"]
    assert Counter(e["ph"] for e in launches) == {"b": RANKS * CALLS, "e": RANKS * CALLS}
    arrivals = Counter(e["cat"] for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] != "turn")
    assert arrivals == {"data": count["putmem"], "signal": count["notify"]}


def test_lines_are_the_kernels(trace):
    for entry in slices(trace):
        if entry["cat"] in ("wait", "notify", "quiet"):
            file, line, _ = entry["args"]["line"].rsplit(":", 2)
            assert f"dl.{entry['cat']}(" in Path(file).read_text().splitlines()[int(line) - 1]


def test_a_wait_ends_after_the_notifies_it_waited_for(trace):
    """`wait signals[r] >= epoch * NUM_PUSH` on a rank: that many notifies of rank r to it were made, and landed."""
    entries = slices(trace)
    notifies, landed = defaultdict(list), defaultdict(list)
    for entry in entries:
        if entry["cat"] == "notify":
            peer = int(re.search(r"of rank (\d+)", entry["name"])[1])
            notifies[entry["pid"], peer].append(entry["ts"])
    for line in trace["traceEvents"]:
        if line["ph"] == "X" and line.get("cat") == "signal":
            landed[int(line["name"].split()[-1]), line["pid"]].append(line["ts"])
    waits = 0
    for entry in entries:
        if entry["cat"] == "wait":
            sender, value = re.search(r"signals\[(\d+)\] >= (\d+)", entry["name"]).groups()
            link = int(sender), entry["pid"]
            waits += 1
            assert entry["args"]["found"] >= int(value)
            assert sorted(notifies[link])[int(value) - 1] < entry["end"]
            assert sorted(landed[link])[int(value) - 1] < entry["end"]
    assert waits


def test_a_program_runs_inside_its_slice(trace):
    """Each turn lies between the begin and the end of a program, and turns do not overlap."""
    turns = [e for e in trace["traceEvents"] if e.get("cat") == "turn"]
    for one, next in zip(turns, turns[1:], strict=False):
        assert one["ts"] + one["dur"] <= next["ts"]
    programs = [s for s in slices(trace) if s["cat"] == "program"]
    for turn in turns:
        rank, name = re.fullmatch(r"rank (\d+): (.*)", turn["name"]).groups()
        assert any(
            p["pid"] == int(rank)
            and p["name"] == name
            and p["ts"] - 1 <= turn["ts"]
            and turn["ts"] + turn["dur"] <= p["end"]
            for p in programs
        )


@pytest.mark.parametrize("seed", range(10))
def test_put_with_signal(seed):
    recording = recording_of(run_send, ranks=2, seed=seed)
    lines = perfetto(recording)
    check_form(lines)
    at = {e.kind: e for e in recording.events if e.kind in ("send", "data", "signal")}
    wait = next(s for s in slices(lines) if s["cat"] == "wait")
    assert at["send"].time < at["data"].time < at["signal"].time < wait["end"]
    assert (at["data"].rank, at["data"].peer, at["data"].what, at["data"].nbytes) == (1, 0, "buf[0]", 8)
    assert wait["args"] == {"line": "kernel.py:14:5", "found": 5}
    if wait["ts"] < at["signal"].time:
        (release,) = recording.releases
        assert (release.sender.rank, release.arrival.rank, release.end.time) == (0, 1, wait["end"])
    else:
        assert not recording.releases


def test_watching_changes_nothing():
    hashes = []
    for capacity in (0, 1 << 20):
        world = World(RANKS, seed=5)
        if capacity:
            world.machine.enable_trace(capacity)
        world.run(run_ag_gemm)
        hashes.append(world.trace_hash)
    assert hashes[0] == hashes[1]


def test_places_are_reused():
    """With two places per rank, programs take turns on two tracks."""
    recording = recording_of(run_ag_gemm, ranks=2, resident=2)
    tracks = {(s["pid"], s["tid"]) for s in slices(perfetto(recording)) if s["cat"] == "program"}
    assert tracks == {(rank, FIRST_PLACE + place) for rank in range(2) for place in range(2)}


def test_a_long_run_is_cut_off():
    recording = recording_of(run_ag_gemm, capacity=500, ranks=RANKS)
    assert not recording.complete and len(recording.events) == 500
    lines = perfetto(recording)
    check_form(lines)
    assert lines["otherData"]["complete"] is False


def test_a_deadlock_is_written(tmp_path):
    def forget_to_send():
        view = sim.current_world()
        buf, source, sig = (view.alloc([1], torch.int64, name=name) for name in ("buf", "source", "sig"))
        if view.rank == 1:
            view.launch(SEND, [1], [t.data_ptr() for t in (buf, source, sig)])

    with pytest.raises(DeadlockError):
        sim.run(forget_to_send, ranks=2, trace=tmp_path / "out.json", timeline=tmp_path / "out.svg")
    lines = json.loads((tmp_path / "out.json").read_text())
    check_form(lines)
    (wait,) = (s for s in slices(lines) if s["cat"] == "wait")
    assert wait["args"]["note"] == "still open when the record ends"
    assert "seed 0" in (tmp_path / "out.svg").read_text()


def test_scripts_meetings_are_shown():
    def meet():
        ditron.init()
        ditron.barrier()

    lines = perfetto(recording_of(meet, ranks=3))
    barriers = [s for s in slices(lines) if s["cat"] == "script" and s["name"] == "barrier()"]
    assert len(barriers) >= 3
    assert max(s["ts"] for s in barriers[-3:]) < min(s["end"] for s in barriers[-3:])


@pytest.mark.parametrize("kind,start", [(".png", b"\x89PNG\r\n"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_timeline_kinds(tmp_path, kind, start):
    sim.run(run_send, ranks=2, timeline=tmp_path / f"out{kind}")
    assert (tmp_path / f"out{kind}").read_bytes().startswith(start)


@pytest.mark.parametrize("ranks,per_node", [(1, None), (2, None), (8, 4), (16, None)])
def test_timeline_says_what_it_shows(tmp_path, ranks, per_node):
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        sim.run(
            lambda: (ditron.init(), ring.check(64)),
            ranks=ranks,
            ranks_per_node=per_node,
            seed=9,
            timeline=tmp_path / "out.svg",
        )
    text = (tmp_path / "out.svg").read_text()
    for rank in range(ranks):
        assert f">rank {rank}<" in text
    assert "seed 9" in text and "a program runs" in text and "ring_kernel" in text
    assert ("2 nodes" in text) == (per_node == 4)


def test_arrows_are_few_and_between_ranks():
    for ranks in (2, 8):
        recording = recording_of(run_ag_gemm, ranks=ranks, seed=1)
        chosen = list(timeline._chosen(recording))
        assert 0 < len(chosen) <= timeline.ARROWS
        assert all(r.sender.rank != r.end.rank and r.sender.time < r.arrival.time < r.end.time for r in chosen)


def test_what_cannot_be_drawn(tmp_path, monkeypatch):
    for ranks, name, message in [
        (17, "out.png", "up to 16 ranks"),
        (2, "out.gif", "ends in .png"),
        (2, "nowhere/out.png", "there is no folder"),
    ]:
        with pytest.raises(ValueError, match=message):
            sim.run(run_send, ranks=ranks, timeline=tmp_path / name)
    with pytest.raises(ValueError, match="there is no folder"):
        sim.run(run_send, ranks=2, trace=tmp_path / "nowhere" / "out.json")
    (tmp_path / "d.png").mkdir()
    for option in ("trace", "timeline"):
        with pytest.raises(ValueError, match="d.png: expected a file, and it is a folder"):
            sim.run(pytest.fail, ranks=2, args=("it ran",), **{option: tmp_path / "d.png"})
        with pytest.raises(ValueError, match="it cannot be written: "):  # a file system that takes no files, of anybody
            sim.run(pytest.fail, ranks=2, args=("it ran",), **{option: "/proc/out.png"})
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'ditron\[plot\]'"):
        sim.run(run_send, ranks=2, timeline=tmp_path / "out.png")


def run_cli(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "ditron.cli", "run", *words], capture_output=True, text=True, timeout=120, cwd=ROOT
    )


def test_command_line(tmp_path):
    done = run_cli(
        "--sim", "2", "--trace", str(tmp_path / "t.json"), "--timeline", str(tmp_path / "t.png"), "examples/ring.py"
    )
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "t.json").read_text())
    check_form(trace)
    assert trace["otherData"]["title"] == "ring.py"
    assert (tmp_path / "t.png").stat().st_size > 10_000
    done = run_cli("--sim", "17", "--timeline", "t.png", "examples/ring.py")
    assert done.returncode == 2 and "up to 16 ranks" in done.stderr
