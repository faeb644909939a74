"""Every host program of the operators passes the protocol checker: it is not asked again where they are called."""

import importlib
import pkgutil
import warnings

import pytest
import torch
from scaled_programs import SCALED_PROGRAMS

import ditron.kernels
import ditron.sim
from ditron._program.program import Program
from ditron.protocol.api import check_program


def programs() -> dict[str, Program]:
    found = {}
    for module in pkgutil.iter_modules(ditron.kernels.__path__, "ditron.kernels."):
        values = vars(importlib.import_module(module.name)).values()
        found |= {value.fn.__name__: value for value in values if isinstance(value, Program)}
    return found


def test_there_are_programs():
    assert {"ag_gemm_program", "gemm_rs_program", "one_shot_program"} <= set(programs())


@pytest.mark.parametrize("name", [*programs(), *SCALED_PROGRAMS])
def test_no_findings(name):
    report = check_program((programs() | SCALED_PROGRAMS)[name])
    assert not report.findings, "\n".join(map(str, report.findings))
    assert not report.given_up


def test_a_call_does_not_ask_the_checker(monkeypatch):
    monkeypatch.setenv("DITRON_PROTOCOL", "error")
    monkeypatch.setattr("ditron.protocol.api._verdict", lambda *_: pytest.fail("the checker was asked"))

    def main():
        ditron.init()
        ditron.kernels.all_reduce(torch.ones(3, dtype=torch.float16))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ditron.sim.run(main, ranks=2)
