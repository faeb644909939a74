"""Machines as files: what they say, several nodes, what if, and what is wrong with a file, at its line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import ditron
from ditron import machines, sim
from ditron.machines import FIELDS
from ditron_compiler.errors import DitronError


@pytest.mark.parametrize("name", machines.names())
def test_every_file_is_complete_and_every_number_has_its_source(name):
    machine = machines.load(name)
    assert machine.name == name and machine.ranks >= 1
    assert set(machine.numbers) >= {field for field in FIELDS if not field.startswith("nic.") and field != "link.pair"}
    keys = {field.key for field in FIELDS.values() if field.key}
    assert set(machine.model()) == keys | {"burst", "sustained"}
    kinds = {number.source.split(":")[0].split(",")[0] for number in machine.numbers.values()}
    assert kinds <= {"measured", "data sheet", "paper", "assumed"}
    if not machine.uncalibrated:
        assert "measured" in kinds


@pytest.mark.parametrize("name", machines.names())
def test_numbers_are_plausible(name):
    machine = machines.load(name)
    assert machine["sm.dot8"] >= machine["sm.dot16"] >= machine["sm.dot32"]
    assert machine["sm.dot16_sustained"] <= machine["sm.dot16"]
    assert machine["hbm.rate"] > machine["link.rate"] > machine["link.store_per_sm"] >= machine["link.load_per_sm"]
    assert machine["hbm.rate"] / machine["sm.count"] <= machine["hbm.per_sm"] <= machine["hbm.rate"] / 4
    assert machine["copy_engine.setup_in_graph"] <= machine["copy_engine.setup"] <= machine["copy_engine.least"]
    assert machine["latency.local"] < machine["latency.peer"] < machine["latency.barrier"]
    if "link.pair" in machine.numbers:  # one link to each of the others
        assert machine["link.pair"] * (machine.ranks - 1) == machine["link.rate"]
    if "nic.rate" in machine.numbers:
        assert machine["nic.rate"] < machine["link.rate"] and machine["nic.latency"] > machine["latency.peer"]


@pytest.mark.parametrize("name", [*machines.names(), "h100x8x2", "h200x8x2", "h20x8x2", "mi300x8x2"])
def test_an_operator_is_predicted_on_each(name):
    def main():
        ditron.init()
        a, b = (torch.empty(*shape, dtype=torch.bfloat16) for shape in ((512, 1024), (512, 1024)))
        for _ in range(2):
            ditron.kernels.ag_gemm(a, b, algorithm="overlapped")

    machine = machines.load(name)
    prediction = sim.predict(main, machine)
    us = max(call.us for call in prediction.calls[-1])
    ranks, shard = machine.size, 512 * 1024 * 2
    product = 2 * ranks * 512 * 512 * 1024 / (machine["sm.dot16"] * 1e6)
    sent = (machine.ranks - 1) * machine.nodes * shard / (machine["link.rate"] * 1e3)
    assert max(product, sent) < us < 40 * max(product, sent)
    assert str(machine) in str(prediction) and ("uncalibrated" in str(prediction)) == bool(machine.uncalibrated)


def test_a_link_to_each_of_the_others():
    """Copies to one GPU take that link; to several, all of theirs."""

    def us(*peers):
        def main():
            ditron.init()
            view = sim.current_world()
            far = view.alloc((8, 4_800_000), torch.int8, name="far")
            if view.rank == 0:
                for peer in peers:
                    view.stream(f"s{peer}").rank_copy(torch.zeros(4_800_000, dtype=torch.int8), far[peer], peer)
            view.synchronize()

        return sim.predict(main, "mi300x8").us

    assert us(1) == pytest.approx(10 + 100) == us(1, 2, 3, 4, 5, 6, 7)


def test_what_was_not_measured_says_so():
    assert "uncalibrated: nothing was measured on it" in str(machines.load("h800x8"))
    assert "uncalibrated" in str(machines.load("h800x8x4").with_changes(["nic=100"]))
    assert "uncalibrated" not in str(machines.load("h200x4"))


def test_nodes():
    machine = machines.load("h800x8x2")
    assert (machine.ranks, machine.nodes, machine.size) == (8, 2, 16)
    assert machines.load("h800x8").size == 8
    for name in ("h100x8", "h200x8", "h20x8", "mi300x8"):
        assert machines.load(f"{name}x4").size == 32


def test_the_machine_of_a_gpu():
    """The smallest that has the ranks, as tables of measured choices name GPUs."""
    assert [machines.of_gpu("h200", ranks).name for ranks in (1, 2, 3, 8)] == ["h200x2", "h200x2", "h200x4", "h200x8"]
    assert machines.of_gpu("h200", 9) is None and machines.of_gpu("b300", 2) is None
    assert machines.of_gpu("h100-pcie", 2) is None  # which has no NVLink between all


def test_what_if():
    machine = machines.load("h200x4")
    changed = machine.with_changes(["link=450", "latency.launch=0"])
    assert changed["link.rate"] == 450 and changed.model()["launch"] == 0 and machine["link.rate"] == 390
    assert str(changed).endswith("with link=450, latency.launch=0")
    assert changed.model()["link"] == 450
    sustained = machine.sustained()
    assert sustained.model()["sustained"] == 701 / 800 and "sustained" in str(sustained)
    assert machine.model()["sustained"] == 1
    assert machine.in_graph()["copy_engine.setup"] == machine["copy_engine.setup_in_graph"]


def test_units_of_the_model():
    """GB/s is bytes per ns; TFLOP/s is 1000 operations per ns."""
    model = machines.load("h200x4").model()
    assert model["dot16"] == 800_000 and model["link"] == 390 and model["peer"] == 1500


@pytest.mark.parametrize(
    "change, message",
    [
        ("lnk=450", r"lnk=450: the machine h200x4 has no number 'lnk'.*it has sm.count"),
        ("link.rat=450", r"has no number 'link.rat' \(did you mean 'link.rate'\?\)"),
        ("link=fast", r"expected link.rate=NUMBER, as link.rate=390"),
        ("link", r"expected link.rate=NUMBER"),
        ("link=-1", r"link=-1: expected a number from 1 to 10000 GB/s, got -1.0"),
        ("nic=50", r"the machine h200x4 has no number 'nic.rate'"),
        ("link.pair=50", r"the machine h200x4 has no number 'link.pair'.*of the machines .*, mi300x8 have it"),
        ("nic=50", r"has no number 'nic.rate' \(of a GPU's NIC, each way\): .* h200x8, .* have it"),
        ("lnik=450", r"has no number 'lnik' \(did you mean 'link'\?\); it has"),
        ("sm.count=1.5", r"sm.count=1.5: expected an integer, got 1.5"),
    ],
)
def test_impossible_changes(change, message):
    with pytest.raises(DitronError, match=message):
        machines.load("h200x4").with_changes([change])


@pytest.mark.parametrize(
    "name, message",
    [
        ("h200", r"there is no machine 'h200' \(did you mean 'h200x\d'\?\): expected one of h100x8, h200x2, .*h800x8"),
        ("l20x8-pciex2", r"l20x8-pcie has no NICs, so there is one node of it"),
        ("h200x4x2", r"h200x4 has no NICs, so there is one node of it: add \[nic\] to .*h200x4.toml"),
        ("h800x8x0", "there is no machine"),
        ("h800x8x-1", r"there is no machine 'h800x8x-1': expected a number of nodes from 1 behind h800x8x, got '-1'$"),
        ("nowhere.toml", "machine nowhere.toml: No such file"),
    ],
)
def test_unknown_machines(name, message):
    with pytest.raises(DitronError, match=message):
        machines.load(name)


GOOD = """base = "h200x4"
title = "mine"
ranks = 2

[link]
rate = {value = 100, unit = "GB/s", source = "measured: links.py"}
"""


@pytest.fixture
def write(tmp_path):
    def file(text):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return str(path)

    return file


def test_a_file_of_ones_own_takes_over_what_it_does_not_say(write):
    machine = machines.load(write(GOOD))
    assert (machine.name, machine.ranks, machine["link.rate"], machine["sm.count"]) == ("mine", 2, 100, 132)
    assert machine.numbers["link.rate"].where.endswith("mine.toml:6")


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ('base = "h200x4"\n', "", 4, r"the machine has no sm.count \(streaming multiprocessors.*add to \[sm\] count ="),
        ("ranks = 2\n", "ranks = 0\n", 3, r"expected title, base, ranks \(from 1 to 1024\).*got ranks = 0"),
        ('base = "h200x4"\ntitle = "mine"\n', "", 1, "the machine has no title"),
        ('base = "h200x4"\n', 'base = "h20x4"\n', 1, r"base: there is no machine 'h20x4' \(did you mean"),
        ('base = "h200x4"\n', 'base = "nowhere.toml"\n', 1, "base: there is no file .*nowhere.toml"),
        ('base = "h200x4"\n', "base = 4\n", 1, "expected base to be the name of a machine or a file, got 4"),
        ('base = "h200x4"\n', 'base = "mine.toml"\n', 1, "base leads back to the same file: mine.toml -> mine.toml"),
        (
            '"h200x4"\ntitle = "mine"\nranks = 2',
            '"h800x8x2"\nranks = 16',
            2,
            "ranks is of a node, .* 2 nodes of 8: leave",
        ),
        ('"measured: links.py"', '""', 6, "expected a source that begins with measured, data sheet"),
        ('"measured: links.py"', '"measured: "', 6, "expected a source that begins with measured, data sheet"),
        ("unit = ", "units = ", 6, r"expected value, unit and source, got 'units' \(did you mean 'unit'\?\)"),
        ("100", "0.5", 6, "link.rate: expected a number from 1 to 10000 GB/s, got 0.5"),
        ("100", "nan", 6, "expected a number from 1"),
        ("rate = {value = 100", "pair = {value = 0", 6, "link.pair: expected a number from 0.1 to 10000 GB/s, got 0"),
        ("[link]\nrate = {", "[nic]\nrate = {", 5, r"the machine has no nic.latency \(from one node to another\): add"),
        ("100", "true", 6, "expected a number from 1 to 10000 GB/s, got True"),
        ("100", "'fast'", 6, "got 'fast'"),
        ('"GB/s"', '"MB/s"', 6, "link.rate: expected the unit 'GB/s', got 'MB/s'"),
        ("rate = {", "rat = {", 6, r"no machine has a number 'link.rat' \(did you mean 'link.rate'\?\)"),
        (
            "[link]\nrate = {",
            "[sm]\noperands = {",
            6,
            "number 'sm.operands': take it out, .* or write one of sm.count, ",
        ),
        (', source = "measured: links.py"', "", 6, "every number says where it is from"),
        ('"measured: links.py"', '"guess"', 6, "expected a source that begins with measured, data sheet"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(write, old, new, line, message):
    assert old in GOOD
    text = GOOD.replace(old, new)
    with pytest.raises(DitronError, match=message) as caught:
        machines.load(write(text))
    if "no sm.count" in message:
        line = 1  # no section of that name
    assert re.search(rf"mine\.toml:{line}: error: ", str(caught.value))


def test_not_toml(write):
    with pytest.raises(DitronError, match=r"mine.toml:2: error: not TOML: .*line 2"):
        machines.load(write('title = "mine"\nranks = \n'))
    with pytest.raises(DitronError, match=r"mine.toml:1: error: not TOML: "):
        machines.load(write("ranks"))
    path = Path(write(""))
    path.write_bytes(b'# mine\ntitle = "\xff"\n')
    with pytest.raises(DitronError, match=r"mine.toml:2: error: not TOML: 'utf-8' codec"):
        machines.load(path)


def test_a_folder_is_no_machine(tmp_path):
    (tmp_path / "mine.toml").mkdir()
    with pytest.raises(DitronError, match=r"mine.toml: Is a directory"):
        machines.load(str(tmp_path / "mine.toml"))


def test_bases_that_lead_back(tmp_path):
    for name, base in (("a", "b"), ("b", "c"), ("c", "b")):
        (tmp_path / f"{name}.toml").write_text(f'# a machine\nbase = "{base}.toml"\n')
    with pytest.raises(DitronError, match=r"c.toml:2: error: .*: b.toml -> c.toml -> b.toml$"):
        machines.load(tmp_path / "a.toml")


def test_title_ranks_and_nodes_are_taken_over_too(tmp_path, write):
    machine = machines.load(write('base = "h800x8x2"\n'))
    assert (machine.title, machine.ranks, machine.nodes, machine.size) == ("8 x H800, NVLink (mine.toml)", 8, 2, 16)
    assert machine.uncalibrated == machines.load("h800x8").uncalibrated
    assert machines.load(write('base = "h800x8x2"\nranks = 4\n')).size == 8
    (tmp_path / "next.toml").write_text('base = "mine.toml"\ntitle = "next"\n')  # beside it, not in this folder
    assert str(machines.load(tmp_path / "next.toml")).startswith("next (next, 2 nodes); uncalibrated")


def test_integers_of_a_file(write):
    of_sm = '[sm]\ncount = {{value = {}, source = "data sheet"}}\n'
    assert machines.load(write('base = "h200x4"\n' + of_sm.format(66)))["sm.count"] == 66
    with pytest.raises(DitronError, match=r"mine.toml:3: error: sm.count: expected an integer, got 1.5"):
        machines.load(write('base = "h200x4"\n' + of_sm.format(1.5)))


def test_numbers_of_a_file_that_were_not_measured_are_said(tmp_path, write):
    """Unless all of it is uncalibrated; a change of such a number is said by itself."""
    assumed = GOOD.replace("measured: links.py", "assumed: half")
    assert "uncalibrated" not in str(machines.load(write(GOOD)))
    assert str(machines.load(write('uncalibrated = "no"\n' + assumed))) == "mine (mine); uncalibrated: no"
    machine = machines.load(write(assumed + 'pair = {value = 50, unit = "GB/s", source = "paper: x"}\n'))
    assert str(machine) == "mine (mine); partly uncalibrated: link.rate assumed; link.pair of a paper"
    assert "partly uncalibrated: link.pair of a paper" in str(machine.with_changes(["link=50"]))
    (tmp_path / "next.toml").write_text('base = "mine.toml"\n')
    assert "; partly uncalibrated: link.rate assumed" in str(machines.load(tmp_path / "next.toml"))
    assert "partly uncalibrated: link.rate assumed" in str(sim.predict(ditron.init, machine))


def test_what_cannot_be_predicted():
    for ranks, error, message in [
        (0, DitronError, "expected at least 1 rank, or none for all 4 of h200x4, got 0"),
        (-1, DitronError, "expected at least 1 rank"),
        ("4", TypeError, "expected ranks to be an integer, got '4'"),
    ]:
        with pytest.raises(error, match=message):
            sim.predict(ditron.init, "h200x4", ranks=ranks)
    for machine in (None, 4):
        with pytest.raises(TypeError, match=f"expected the name of a machine, .* got {machine}"):
            sim.predict(ditron.init, machine)


def test_paths(write):
    path = Path(write(GOOD))
    assert machines.load(path) == machines.load(str(path))
    assert sim.predict(ditron.init, path).machine.name == "mine"
    assert sim.World(np.int64(2), machine=path).size == 2
