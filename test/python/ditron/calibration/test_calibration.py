"""``ditron calibrate`` without a GPU: what is "measured" are predictions for another machine, whose numbers must come back."""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace

import pytest
import torch

import ditron
from ditron import machines, sim
from ditron.calibration import measuring, programs
from ditron.calibration.fit import fit
from ditron.calibration.probes import HELD_OUT, PROBES, Probe, Rank, left_out, predicted_us
from ditron.cli import main
from ditron.machines import FIELDS
from ditron_compiler.errors import DitronError

BASE = machines.load("h200x2")
#: Products that stay bound by tensor cores in tiles of 128 x 256, by shared memory in smaller ones, and slower without a pause.
FACTORS = {"sm.dot16": 0.8, "sm.shared": 0.75, "sm.dot16_sustained": 0.7}
OTHERS = (1.2, 0.8, 1.3, 0.7)


def changed(ranks):
    """The numbers of the machine that is "measured", by name."""
    probed = [probe.number for probe in PROBES if probe.ranks <= ranks]
    factors = {name: 0.85 if name.endswith("share") else OTHERS[at % 4] for at, name in enumerate(probed)} | FACTORS
    return {name: BASE[name] * factors[name] for name in probed}


def machine_of(numbers):
    return BASE.with_changes([f"{name}={value!r}" for name, value in numbers.items()])


@functools.cache
def fitted(ranks):
    truth = machine_of(changed(ranks))
    probes = [probe for probe in PROBES if probe.ranks <= ranks]
    measured = {probe: predicted_us(probe, truth, ranks) for probe in probes}
    return fit(BASE, probes, measured, lambda probe, machine: predicted_us(probe, machine, ranks))


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_numbers_that_were_changed_come_back(ranks):
    found = fitted(ranks)
    for name, value in changed(ranks).items():
        assert found.machine[name] == pytest.approx(value, rel=0.02), name
        assert abs(value / BASE[name] - 1) > 0.09, f"{name} was not changed"
    assert not found.unexplained
    others = {name for name in BASE.numbers if name not in changed(ranks)}
    assert all(found.machine[name] == BASE[name] for name in others)


def test_what_was_not_fitted_is_predicted():
    truth, found = machine_of(changed(2)), fitted(2).machine
    for probe in HELD_OUT:
        assert predicted_us(probe, found, 2) == pytest.approx(predicted_us(probe, truth, 2), rel=0.01), str(probe)
        assert predicted_us(probe, found, 2) != pytest.approx(predicted_us(probe, BASE, 2), rel=0.05), str(probe)


# --- the search for one number ---------------------------------------------------------------------------------------


def of(number, us):
    """A probe whose time is a formula."""
    return Probe(number, "a probe", prepare=None, us=us)


def found_of(number, us, measured):
    found = fit(BASE, [of(number, us)], {of(number, us): measured}, lambda probe, machine: probe.us(machine))
    return found.machine[number], found.unexplained.get(number, "")


@pytest.mark.parametrize("value", [0.0, 0.003, 0.2, 1.7, 9.0, 80.0])
def test_a_latency_that_is_far_from_the_bases(value):
    us = functools.partial(lambda machine: 3 + 10 * machine["latency.launch"])
    assert found_of("latency.launch", us, 3 + 10 * value) == (pytest.approx(value, abs=0.01, rel=0.01), "")


@pytest.mark.parametrize("value", [10.0, 100.0, 390.0, 9000.0])
def test_a_rate_that_is_far_from_the_bases(value):
    us = functools.partial(lambda machine: 7 + 1e5 / machine["link.rate"])
    assert found_of("link.rate", us, 7 + 1e5 / value) == (pytest.approx(value, rel=0.02), "")


def test_a_number_that_begins_to_matter_beyond_a_limit():
    us = functools.partial(lambda machine: max(10.0, machine["copy_engine.least"]))
    value, why = found_of("copy_engine.least", us, 8.0)
    assert value == pytest.approx(10.0, rel=0.01) and why == (
        "the probe takes 8.0 us, and at least 10.0 are predicted whatever it is"
    )
    assert found_of("copy_engine.least", us, 14.0) == (pytest.approx(14.0, rel=0.01), "")


def test_a_number_that_any_value_explains():
    us = functools.partial(lambda machine: max(20.0, machine["copy_engine.least"]))
    assert found_of("copy_engine.least", us, 20.0) == (
        BASE["copy_engine.least"],
        "the probe takes as long with a tenth more of it, or less",
    )


def test_numbers_that_do_not_settle():
    """Two probes that take nearly the same: what one pass finds for either, the next one changes."""
    first = of(
        "latency.peer", functools.partial(lambda machine: machine["latency.peer"] + 0.9 * machine["latency.fence"])
    )
    second = of(
        "latency.fence", functools.partial(lambda machine: 0.9 * machine["latency.peer"] + machine["latency.fence"])
    )
    found = fit(BASE, [first, second], {first: 3.9, second: 3.7}, lambda probe, machine: probe.us(machine))
    assert "it did not settle: pass 6 changed it by " in found.unexplained["latency.fence"]


def test_a_number_that_the_probe_does_not_depend_on_is_the_bases():
    value, why = found_of("nccl.share", functools.partial(lambda machine: 5.0), 9.0)
    assert value == BASE["nccl.share"] and why == "the probe takes 9.0 us, and at most 5.0 are predicted whatever it is"


# --- the command -----------------------------------------------------------------------------------------------------


def gpus(count=1, name="NVIDIA H200", sms=132, major=9):
    return [SimpleNamespace(name=name, multi_processor_count=sms, major=major, minor=0)] * count


@pytest.fixture
def calibrate(monkeypatch, tmp_path):
    """Run the command on GPUs of which probes take what is predicted for another machine; from the temporary folder."""

    def run(*args, on=None):
        found = gpus() if on is None else on
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found[device])
        return main(["calibrate", *args])

    def measured_us(probes, ranks, say):
        return {probe: predicted_us(probe, machine_of(changed(ranks)), ranks) for probe in probes}

    monkeypatch.setattr(measuring, "measured_us", measured_us)
    monkeypatch.chdir(tmp_path)
    return run


def call_us(machine):
    def rank():
        ditron.init()
        a, b = (torch.empty(*shape, dtype=torch.bfloat16) for shape in ((4096, 4096), (5504, 4096)))
        ditron.kernels.ag_gemm(a, b, algorithm="overlapped")

    return max(call.us for call in sim.predict(rank, machine).calls[-1])


def test_the_file_of_one_gpu(calibrate, capsys):
    assert calibrate("-o", "mine.toml") == 0
    out = capsys.readouterr().out
    machine, probed = machines.load("mine.toml"), {probe.number for probe in PROBES if probe.ranks == 1}
    assert (machine.title, machine.ranks) == ("2 x NVIDIA H200", 2)
    assert set(machine.numbers) == set(BASE.numbers)
    for name, number in machine.numbers.items():
        if name in probed | {"sm.count"}:
            assert number.source.startswith("measured: ditron calibrate, 20") and "1 x NVIDIA H200" in number.source
            assert number.value == pytest.approx(changed(1).get(name, 132), rel=0.02)
        elif name == "latency.peer":  # with less time for the launch there is more for the link
            why = "a single GPU has no link: its all-reduce of 4 KB by LL takes 3.4 us"
            assert number.source == f"assumed: as of h200x2 ({why}); {BASE.numbers[name].source}"
            (by_ll,) = [probe for probe in PROBES if probe.number == name]
            assert predicted_us(by_ll, machine, 1) == pytest.approx(predicted_us(by_ll, BASE, 1), rel=0.01)
            assert number.value == pytest.approx(
                BASE[name] + BASE["latency.launch"] - machine["latency.launch"], abs=0.05
            )
            assert abs(number.value / BASE[name] - 1) > 0.1
        else:
            why = "a single GPU has no link" if name in changed(2) else "no probe measures it"
            assert number.source == f"assumed: as of h200x2 ({why}); {BASE.numbers[name].source}"
            assert number.value == BASE[name]
    assert re.search(r"^sm.dot16 +800 +6(39\.\d|40(\.\d)?) TFLOP/s +-20\.0 %$", out, re.M)
    assert "as of h200x2 (a single GPU has no link): link.rate, " in out
    assert "as of h200x2 (no probe measures it): l2.size, copy_engine.share, multimem.rate" in out
    assert "partly uncalibrated: l2.size, link.rate, " in out and "held out" in out
    assert (
        "as of h200x2 (a single GPU has no link: its all-reduce of 4 KB by LL takes 3.4 us): latency.peer = 1.1" in out
    )
    assert call_us("mine.toml") == pytest.approx(call_us(machine_of(changed(1))), rel=0.02)


def test_the_file_of_two_gpus(calibrate, capsys):
    assert calibrate("--name", "the lab's", on=gpus(2)) == 0
    machine = machines.load("h200x2.toml")
    assert machine.title == "the lab's"
    assert not {name for name in changed(2) if not machine.numbers[name].source.startswith("measured")}
    assert call_us("h200x2.toml") == pytest.approx(call_us(machine_of(changed(2))), rel=0.02)
    assert "AG+GEMM of 8192 x 5504 x 4096" in capsys.readouterr().out
    assert main(["explain", "ag_gemm", "8192", "11008", "4096", "--machine", "h200x2.toml"]) == 0
    assert "the lab's" in capsys.readouterr().out
    script = "import ditron\nfrom ditron.calibration.programs import signals_program\n"
    script += "ditron.init()\nsignals_program(count=20)\n"
    open("script.py", "w").write(script)
    assert main(["run", "--machine", "h200x2.toml", "script.py"]) == 0
    assert "predicted for h200x2 (the lab's)" in capsys.readouterr().out


def test_a_base_of_data_sheets_and_numbers_of_later_versions(calibrate, tmp_path):
    """What is not measured is named, number by number; a number that the file does not have yet is its base's."""
    (tmp_path / "sheet.toml").write_text('base = "h200x2"\nuncalibrated = "of data sheets"\n')
    assert calibrate("--base", "sheet.toml", "-o", "mine.toml") == 0
    machine, text = machines.load("mine.toml"), (tmp_path / "mine.toml").read_text()
    assert not machine.uncalibrated and "link.rate, " in machine.partly
    (tmp_path / "older.toml").write_text(re.sub(r"\nfill = .*", "", text))
    older = machines.load("older.toml")
    assert machine["sm.fill"] != BASE["sm.fill"] == older["sm.fill"] and set(older.numbers) == set(machine.numbers)


@pytest.mark.parametrize(
    "args, on, code, message",
    [
        ([], [], 1, "measures on GPUs, and there is none here"),
        ([], gpus() + gpus(sms=114), 1, "the GPUs differ: NVIDIA H200, 114 SMs; NVIDIA H200, 132 SMs"),
        (["--ranks", "2"], gpus(), 2, "--ranks 2: this machine has 1 GPUs"),
        ([], gpus(name="NVIDIA B300"), 2, "no file in ditron/machines describes 1 x b300"),
        (["--base", "h2000x2"], gpus(), 2, "--base: there is no machine 'h2000x2'"),
        (["--base", "h800x8x2"], gpus(), 2, "--base h800x8x2: it has 2 nodes, and one is calibrated"),
        (["-o", "mine"], gpus(), 2, "mine: expected a file that ends in .toml"),
        (["-o", "there.toml"], gpus(), 2, "there.toml is there already and is not replaced"),
        (["-o", "none/mine.toml"], gpus(), 2, "cannot write none/mine.toml: No such file or directory"),
    ],
)
def test_errors(calibrate, capsys, args, on, code, message):
    open("there.toml", "w").close()
    assert calibrate(*args, on=on) == code
    assert message in capsys.readouterr().err


def test_ranks_that_do_not_agree():
    assert measuring.disagreement([100.0, 124.0, 101.0]) == measuring.disagreement([3.4, 5.3]) == ""
    assert measuring.disagreement([100.0, 140.0]).startswith(
        "the ranks do not agree: 100.0 us on rank 0 and 140.0 on rank 1: "
    )


def test_a_probe_that_does_not_work(monkeypatch):
    """The others go on, and the command ends with what is wrong."""
    monkeypatch.setattr(measuring, "_BENCH", "fake_bench:ProbesBench")
    works, raises = PROBES[:2]
    assert measuring.measured_us([works], 2, str) == {works: 7.0}
    with pytest.raises(DitronError) as raised:
        measuring.measured_us([works, raises], 2, str)
    assert str(raised.value) == (
        f"1 of 2 probes have no time:\n  {raises}: every rank: RuntimeError: no kernel for {raises}"
    )


def test_every_number_has_one_probe_or_is_known_to_have_none():
    probed = [probe.number for probe in PROBES]
    none = {
        "sm.count",
        "l2.size",
        "copy_engine.share",
        "link.pair",
        "multimem.rate",
        "nic.rate",
        "nic.latency",
        "nic.post",
    }
    assert len(set(probed)) == len(probed) and set(probed) | none == set(FIELDS)
    assert len({str(probe) for probe in (*PROBES, *HELD_OUT)}) == len(PROBES) + len(HELD_OUT)


def test_what_a_gpu_cannot_run_is_left_out():
    probes = {probe.number: probe for probe in PROBES}
    assert left_out(probes["sm.dot8"], BASE, 2, 80) == "GPUs of compute capability 80 have none"
    assert left_out(probes["tma.store_per_sm"], machines.load("l20x8-pcie"), 2, 90) == "l20x8-pcie has none"
    assert left_out(probes["tma.store_per_sm"], BASE, 1, 90) == "a single GPU has no link"
    assert not left_out(probes["tma.store_per_sm"], BASE, 2, 90)


@pytest.mark.parametrize("protocol, block", [("ll", 512), ("ll128", 960)])
def test_the_sum_by_packets_that_latencies_are_found_of(protocol, block):
    """With a last block that is not full, too."""

    def main():
        rank = ditron.init().rank
        x, out = torch.arange(2048.0) + rank, torch.zeros(2048)
        programs.packet_sum_program(x, out, protocol=protocol, block=block)
        assert torch.equal(out, 2 * torch.arange(2048.0) + 1)

    sim.run(main, ranks=2)


@pytest.mark.parametrize("number", ["latency.peer", "latency.fence", "packets.ll128_latency"])
def test_probes_of_small_messages_run(number):
    """Those too whose time the clock does not say."""
    (probe,) = (probe for probe in PROBES if probe.number == number)

    def main():
        group = ditron.init()
        probe.prepare(Rank(group.sms, group.num_ranks, lambda *shape, dtype: torch.ones(shape, dtype=dtype)))()

    sim.run(main, ranks=2)
