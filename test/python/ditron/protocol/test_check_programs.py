"""The protocol checker on host programs: by name, from the command line, and when a program is compiled."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import paths
import pytest
import test_pass_assign_streams
import test_pass_eliminate_copies
import torch

import ditron
import ditron.host as dh
from ditron.cli import main as command
from ditron.protocol import api as checking

EXAMPLES = paths.EXAMPLES
PROGRAMS = {"ag_gemm": "ag_gemm", "ag_gemm_ring": "ag_gemm_ring", "gemm_rs_chunks": "gemm_rs"}


@pytest.mark.parametrize("file", PROGRAMS)
def test_shipped_program_is_clean(file, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    program = getattr(importlib.import_module(file), PROGRAMS[file])
    report = checking.check_program(program)
    assert not report.findings and not report.notes, str(report)
    assert report.checked == ["1 rank", "2 ranks", "3 ranks", "4 ranks"], "they are for one node"


@pytest.mark.parametrize("variant", test_pass_assign_streams.VARIANTS)
@pytest.mark.parametrize("name", test_pass_assign_streams.BODIES)
def test_what_passes_make_is_clean(name, variant):
    """Streams that are assigned, copies that are eliminated, rings: one tells the other's mistakes."""
    program = ditron.program(
        passes=test_pass_assign_streams.VARIANTS[variant],
        sample_args=lambda ranks: {"a": "f32[5]", "out": f"f32[{5 * ranks}]"},
    )(test_pass_assign_streams.BODIES[name])
    report = checking.check_program(program, [(3, None)])
    assert not report.findings and not report.notes, str(report)


@pytest.mark.parametrize("name", test_pass_eliminate_copies.BODIES)
def test_programs_without_copies_are_clean(name):
    def check(ranks):
        shapes = test_pass_eliminate_copies.shapes(name, ranks)
        names = ("a", "b", "c" if name == "ag_gemm" else "out")
        return {key: f"f32[{rows}, {columns}]" for key, (rows, columns) in zip(names, shapes, strict=True)}

    program = ditron.program(passes=test_pass_eliminate_copies.ELIMINATE, sample_args=check)(
        test_pass_eliminate_copies.BODIES[name]
    )
    report = checking.check_program(program, [(3, None)])
    assert not report.findings and not report.notes, str(report)


def shift(*, credit: bool = True, join: bool = True, value: int = 0, own: bool = False, max_nodes: int | None = 1):
    @ditron.program(sample_args=lambda ranks: {"x": "f32[64]", "out": "f32[64]"}, max_nodes=max_nodes)
    def shift(x, out):
        rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
        inbox = dh.symm_empty(*x.shape, dtype=x.dtype, name="inbox")
        full, free = (dh.symm_zeros(1, dtype=torch.int64, name=name) for name in ("full", "free"))
        with dh.stream("copy"):
            if credit:
                dh.signal_wait(free[0], epoch - 1)
            dh.rank_copy(x, inbox, (rank + 1) % ranks)
            dh.signal_write(full[0], epoch, (rank + 1) % ranks)
        dh.signal_wait(full[0], epoch + value)
        dh.copy(inbox, out)
        dh.signal_write(free[0], epoch, (rank + ranks - 1) % ranks)

    return shift


def test_right_program_is_clean():
    report = checking.check_program(shift())
    assert not report.findings, str(report)


@pytest.mark.parametrize(("facts", "kind", "says"), [
    ({"credit": False}, "reuse", "a rank_copy overwrites shift.inbox[0] of rank 0, and its reader is not known"),
    ({"value": 1}, "cycle", "waits for shift.full[0] of rank 0 >= 2"),
    ({"value": -1}, "too-early", "the wait for shift.full[0] ge 0 is satisfied from the beginning"),
])  # fmt: skip
def test_mistake_in_a_program(facts, kind, says):
    report = checking.check_program(shift(**facts))
    assert kind in [finding.kind for finding in report.findings] and says in str(report), str(report)
    assert all(Path(finding.loc.split(":")[0]) == Path(__file__) for finding in report.findings)


def test_copies_and_signals_to_another_node():
    report = checking.check_program(shift(max_nodes=None))
    code = Path(__file__).read_text().splitlines()
    found = [
        (finding.kind, code[int(finding.loc.split(":")[1]) - 1].split("(")[0].strip()) for finding in report.findings
    ]
    assert found == [("node", "dh.rank_copy"), ("node", "dh.signal_write"), ("node", "dh.signal_write")], str(report)
    assert "a rank_copy to rank 0, which is on another node [node]\n  with 4 ranks on 2 nodes: rank 3, " in str(report)
    assert str(report).count("@ditron.program(max_nodes=1)") == 3 and not report.notes


def test_subject_for_fewer_nodes_than_are_asked_for():
    with pytest.raises(ditron.NodesError, match="is called in a group on 2 nodes"):
        checking.check_program(shift(), [(4, 2)])


NEIGHBOUR = """
import torch
import triton.language as tl
import ditron, ditron.language as dl

@ditron.jit
def store_right(box):
    tl.store(dl.symm_at(box, (dl.rank() + 1) % dl.num_ranks()), 1.0)

ditron.init(sim=2{nodes})
store_right[(1,)](ditron.symm_empty(1, dtype=torch.float32, name="box"))
"""


def test_script_for_one_node(tmp_path):
    file = tmp_path / "neighbour.py"
    file.write_text(NEIGHBOUR.format(nodes=""))
    assert [finding.kind for finding in checking.check_script(file).findings] == ["bounds"]
    file.write_text(NEIGHBOUR.format(nodes=", max_nodes=1"))
    report = checking.check_script(file)
    assert not report.findings and report.checked == ["1 rank", "2 ranks", "3 ranks", "4 ranks"]


PLAIN = """
import torch, triton, triton.language as tl
import ditron, ditron.language as dl

@ditron.jit
def push(box, flag):
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(box, peer) + tl.arange(0, 64), 1.0)
    dl.notify(flag, peer, 1)

@ditron.jit
def wait(flag):
    dl.wait(flag, 1, 1)

@triton.jit
def plain(box, out):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(box + i))

ditron.init(sim=2)
box = ditron.symm_zeros(64, dtype=torch.float32, name="box")
flag = ditron.symm_zeros(1, dtype=torch.int64, name="flag")
push[(1,)](box, flag)
if {waits}:
    wait[(1,)](flag)
plain[({programs},)](box, torch.empty(64))
"""


@pytest.mark.parametrize(("waits", "programs"), [(True, 1), (True, 2), (False, 1)])
def test_a_kernel_of_plain_triton_is_followed(tmp_path, waits, programs):
    """It reads what a kernel of ditron's has sent; its programs may store the same to the same place."""
    file = tmp_path / "plain.py"
    file.write_text(PLAIN.format(waits=waits, programs=programs))
    report = checking.check_script(file, groups=[(2, None)])
    assert [finding.kind for finding in report.findings] == ([] if waits else ["unordered"]), str(report)
    assert not report.notes and all(f"{file}:18:" in finding.loc for finding in report.findings), str(report)


def test_program_without_check():
    @ditron.program
    def nothing(x):
        pass

    with pytest.raises(ditron.DitronError, match="give its decorator sample_args=lambda ranks"):
        checking.check_program(nothing)


def called(program):
    def on_rank():
        ditron.init()
        x, out = torch.ones(64), torch.empty(64)
        program(x, out)

    return on_rank


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """No verdict is known."""
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(checking, "_looked_at", set())
    return tmp_path


def test_compiling_warns_once_and_keeps_the_verdict(fresh, monkeypatch):
    with pytest.warns(checking.ProtocolWarning, match="its reader is not known to be done"):
        ditron.sim.run(called(shift(credit=False)), ranks=2)
    assert len(list((fresh / "check").glob("*.json"))) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ditron.sim.run(called(shift(credit=False)), ranks=2)
    monkeypatch.setattr(checking, "_looked_at", set())
    monkeypatch.setattr(checking, "check_program", lambda program: pytest.fail("the verdict is on disk"))
    with pytest.warns(checking.ProtocolWarning):
        ditron.sim.run(called(shift(credit=False)), ranks=2)


def test_compiling_says_what_was_given_up(fresh, monkeypatch):
    monkeypatch.setattr("ditron_compiler.protocol.machine.MAX_NODES", 20)
    for _ in range(2):  # looked at, then read from disk
        monkeypatch.setattr(checking, "_looked_at", set())
        with pytest.warns(checking.ProtocolWarning, match="was not checked to the end on .*4 ranks.*smaller tensors"):
            ditron.sim.run(called(shift()), ranks=2)
        monkeypatch.setattr(checking, "check_program", lambda program: pytest.fail("the verdict is on disk"))


def test_compiling_raises_when_asked_to(fresh, monkeypatch):
    monkeypatch.setenv("DITRON_PROTOCOL", "error")
    with pytest.raises(checking.ProtocolError, match="DITRON_PROTOCOL=off") as caught:
        ditron.sim.run(called(shift(credit=False)), ranks=2)
    assert caught.value.findings
    ditron.sim.run(called(shift()), ranks=2)


def test_compiling_says_nothing_when_asked_to(fresh, monkeypatch):
    monkeypatch.setenv("DITRON_PROTOCOL", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ditron.sim.run(called(shift(credit=False)), ranks=2, races=False)
    assert not (fresh / "check").exists()


KERNEL_FILE = """
import torch
import ditron, ditron.language as dl

@ditron.jit
def wait_in_vain(flag):
    dl.wait(flag, 1, 1)

def on_rank():
    ditron.init()
    wait_in_vain[(1,)](ditron.symm_zeros(1, dtype=torch.int64, name="flag"))

EXAMPLE = {"check": on_rank}
if __name__ == "__main__":
    on_rank()
"""


def test_command_line(tmp_path, capsys):
    file = tmp_path / "vain.py"
    file.write_text(KERNEL_FILE)
    assert command(["check", "--ranks", "2", f"{file}:wait_in_vain"]) == 1
    out = capsys.readouterr().out
    assert f"{file}:7:" in out and "waits for flag[0] of rank 0 >= 1, and nobody signals it [never-signalled]" in out
    assert out.endswith("wait_in_vain: 1 finding (2 ranks)\n")
    assert command(["check", "--ranks", "2", str(file)]) == 1
    assert command(["check", "--ranks", "2", f"{EXAMPLES / 'ag_gemm_ring.py'}:ag_gemm_ring"]) == 0
    assert command(["check", f"{file}:wait_in_vain", "--ranks", "2"]) == 2
    assert command(["check", str(tmp_path / "none.py")]) == 2
    assert command(["check", f"{file}:nothing"]) == 2
    assert command(["check", "--ranks", "4", "--ranks-per-node", "3", str(file)]) == 2
    assert "whole number of nodes" in capsys.readouterr().err


def test_command_line_as_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "ditron.cli", "check", "--ranks", "2", EXAMPLES / "ring.py"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "ring.py: no findings (2 ranks)\n"), done.stderr


@pytest.mark.parametrize(("condition", "code"), [("dl.rank() == 5", 0), ("tl.load(data) > 0.5", 3)])
def test_what_is_not_followed_is_no_success(tmp_path, capsys, condition, code):
    file = tmp_path / "branch.py"
    file.write_text(
        KERNEL_FILE.replace("(flag):", "(flag, data):")
        .replace("(ditron.", "(*[ditron.")
        .replace('"flag"))', '"flag"), torch.zeros(1)])')
        .replace("    dl.wait(flag, 1, 1)", f"    if {condition}:\n        dl.notify(flag, dl.rank(), 1)")
        .replace("import torch", "import torch, triton.language as tl")
    )
    assert command(["check", "--ranks", "2", str(file)]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    assert (f"NOT all was followed ({file}:7:" in last) is (code == 3), last


ASSERTING = """
import torch
import ditron, ditron.language as dl

@ditron.jit
def send(box, flags, out, epoch):
    left = (dl.rank() + dl.num_ranks() - 1) % dl.num_ranks()
    dl.notify(flags + dl.rank(), (dl.rank() + 1) % dl.num_ranks(), epoch)
    dl.wait(flags + left, 1, epoch if epoch < 2 else epoch + 1)

ditron.init()
flags = ditron.symm_zeros(8, dtype=torch.int64, name="flags")
out = torch.zeros(8)
for epoch in (1, 2):
    send[(1,)](out, flags, out, epoch)
    {check}
"""


@pytest.mark.parametrize(
    "check, ends", [("assert out[0] == 1", False), ("torch.testing.assert_close(out, out + 1)", True)]
)
def test_what_a_script_says_of_its_results(tmp_path, check, ends):
    """A wait of the second call is in vain: found behind an assert, and not behind a check that ends the script."""
    script = tmp_path / "asserting.py"
    script.write_text(ASSERTING.format(check=check))
    report = checking.check_script(script, groups=[(2, None)])
    assert bool(report.findings) is not ends, report
    assert ("asserting.py:16: a check of results" in str(report)) is ends, report


EXAMPLED = (
    ASSERTING.split("ditron.init()")[0]
    + """
def main():
    ditron.init()
    flags = ditron.symm_zeros(8, dtype=torch.int64, name="flags")
    out = torch.zeros(8)
    for epoch in (1, 2):
        send[(1,)](out, flags, out, epoch)
        assert out[0] == 1

EXAMPLE = {{"check": main}}
"""
)


def test_asserts_of_the_file_of_an_example_are_left_out(tmp_path, capsys):
    file = tmp_path / "exampled.py"
    file.write_text(EXAMPLED.format())
    assert command(["check", "--ranks", "2", f"{file}:send"]) == 1
    out = capsys.readouterr().out
    assert "never-signalled" in out or "count" in out, out
    assert "note" not in out, out


def launches(where: str) -> None:
    """A check of results that fails, somewhere."""
    ditron.init()
    out = torch.zeros(8)
    if where == "in a loop":
        for _ in range(2):
            assert out[0] == 1
    if where == "in a function, in a loop":
        for _ in range(2):
            launches("at the end")
    if where == "before a barrier":
        assert out[0] == 1
        ditron.barrier()
    if where == "in a branch, before a barrier":
        if out[0] == 0:
            assert out[0] == 1
        ditron.barrier()
    if where == "at the end":
        assert out[0] == 1, "zeros"
    assert where != "at the very end"
    print("done")


@pytest.mark.parametrize(
    "where", ["in a loop", "in a function, in a loop", "before a barrier", "in a branch, before a barrier"]
)
def test_a_function_that_a_check_of_results_cuts_short_has_a_note(where):
    report = checking.check_function(lambda: launches(where), [(2, None)])
    (note,) = report.notes
    assert "a check of results, which mean nothing here, ends the function" in note and Path(__file__).name in note


@pytest.mark.parametrize("where", ["at the end", "at the very end", "nowhere"])
def test_a_function_that_ends_by_a_check_of_results_has_none(where):
    assert not checking.check_function(lambda: launches(where), [(2, None)]).notes
