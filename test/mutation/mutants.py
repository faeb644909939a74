"""Build a kernel with a mutation, run it on the simulator, and have the checker look at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mutate
from subjects import Subject

import ditron
from ditron._program.program import Program
from ditron.protocol.api import check_program
from ditron.protocol.capture import capture
from ditron.sim import launch as simulate
from ditron_compiler.frontend.source import DitronSource
from ditron_compiler.protocol import check_scenario

__all__ = ["Mutant", "checked", "find", "simulated"]

Mutant = tuple[str, mutate.Mutation]  # the kernel's or program's name, and what is done to it


class _Source(DitronSource):
    """The kernel's own source, with the mutation made right after the frontend."""

    mutant: Mutant | None = None
    found: dict[str, list[mutate.Mutation]] | None = None
    touched: set[Any] = set()

    def hash(self) -> str:
        return f"{super().hash()}-{self.mutant}"

    def make_mixed(self, *args: Any) -> Any:
        mixed = super().make_mixed(*args)
        name = self.fn.__name__
        if self.found is not None:
            self.found.setdefault(name, mutate.mutations(mixed))
        if self.mutant is not None and self.mutant[0] == name:
            mutate.apply(self.mutant[1], mixed)
        return mixed


@contextmanager
def _mutated(mutant: Mutant | None) -> Iterator[None]:
    """Within it, that kernel is compiled anew, with the mutation; without one, all are."""
    before, launch = simulate.DitronSource, simulate.launch
    states: dict[Any, Any] = {}

    def fresh(fn: Any, *args: Any) -> Any:
        if fn not in states and (mutant is None or mutant[0] == fn.__name__):
            states[fn], fn.simulated = fn.simulated, None
        return launch(fn, *args)

    trace = Program._trace
    executables: dict[Program, dict] = {}

    def traced(program: Program, *args: Any) -> Any:
        """A program with its kernels, and the mutation made after its passes; with the functions that it calls."""
        module, functions = trace(program, *args)
        if _Source.found is not None:
            _Source.found.setdefault(program.__name__, mutate.mutations(module))
        if mutant is not None and mutant[0] == program.__name__:
            mutate.apply(mutant[1], module)
        return module, functions

    def executable(program: Program, *args: Any) -> Any:
        if program not in executables:
            executables[program], program._executables = program._executables, {}
        return find_executable(program, *args)

    find_executable = Program._executable
    _Source.mutant = mutant
    simulate.DitronSource, simulate.launch = _Source, fresh
    Program._trace, Program._executable = traced, executable
    try:
        yield
    finally:
        simulate.DitronSource, simulate.launch = before, launch
        Program._trace, Program._executable = trace, find_executable
        for fn, state in states.items():
            fn.simulated = state
        for program, found in executables.items():
            program._executables = found


def find(subject: Subject) -> list[Mutant]:
    """Every mutation of every kernel that the subject launches."""
    _Source.found = {}
    with _mutated(None):
        for ranks, per_node in subject.groups:
            if subject.program is not None:
                check_program(subject.program, [(ranks, per_node)])
            else:
                capture(subject.run, ranks, per_node)
    found, _Source.found = _Source.found, None
    return [(kernel, mutation) for kernel, mutations in found.items() for mutation in mutations]


def simulated(subject: Subject, mutant: Mutant | None, seeds: range) -> str:
    """What the simulator says of it: empty when all is well, else the kind of what is wrong, with its first line.

    "refused": the mutant does not compile.
    """
    with _mutated(mutant):
        for seed in seeds:
            for ranks, per_node in subject.groups:
                try:
                    errors = ditron.sim.run(subject.run, ranks, per_node, seed)
                except ditron.SimulationError as error:
                    return f"{error.kind or 'fault'}: {str(error).splitlines()[0]}"
                except Exception as error:
                    return f"refused: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                if not all(error <= subject.tolerance for error in errors):
                    return f"wrong: errors {[float(f'{error:.2g}') for error in errors]}"
    return ""


def checked(subject: Subject, mutant: Mutant | None) -> str:
    """What the checker says of it: empty when nothing, else the kind of its first finding, with its first line."""
    with _mutated(mutant):
        for ranks, per_node in subject.groups:
            try:
                if subject.program is not None:
                    findings = check_program(subject.program, [(ranks, per_node)]).findings
                else:
                    findings, _ = check_scenario(capture(subject.run, ranks, per_node))
            except ditron.DitronError as error:
                return f"error: {str(error).splitlines()[0]}"
            if findings:
                return f"{findings[0].kind}: {str(findings[0]).splitlines()[0]}"
    return ""
