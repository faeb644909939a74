"""Kernels of candidates, compiled before any is measured: by all cores at once, without a GPU, into Triton's cache.

``python -m ditron.tuning.compile_ahead FILE PART PARTS`` compiles one part of what ``FILE`` lists.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ditron._program.execute import executable
from ditron._program.execute.epochs import is_counted_by_kernels, linear_steps
from ditron._program.execute.kernels import captured_form, compile_for_gpu
from ditron._program.execute.loaded import LoadedProgram
from ditron.distributed.group import Group
from ditron.tuning.bench import call_of, operands
from ditron.tuning.cores import processes_for
from ditron.tuning.lookup import GroupChoices
from ditron.tuning.problem import Options, Problem
from ditron_compiler import host, knobs
from ditron_compiler.analysis.linear import Polynomial
from ditron_compiler.frontend.targets import Target, parse_target

__all__ = ["CompileGroup", "run", "tasks"]

_SECONDS = 600.0  # for all of them; what is not compiled by then, those that measure compile


class CompileGroup(Group):
    """A group of no ranks but this one's name: operators that are called in it compile their kernels, and run none."""

    backend = "compile"

    def __init__(self, ranks: int, capability: int, sms: int):
        super().__init__(range(ranks), 0, "p2p", torch.device("meta"), ranks)
        self.sms, self.has_tma = sms, capability >= 90
        self.capability = capability
        self.choices = GroupChoices(None)  # what is given is what is called

    def target(self) -> Target:
        return parse_target(f"cuda:{self.capability}", self.transport)

    def all_gather_object(self, value: Any) -> list:
        return [value] * self.num_ranks

    def launch(self, kernel: Any, grid: Any, args: tuple, kwargs: dict, warmup: bool) -> None:
        """Nothing: kernels outside of programs are compiled where they are measured."""


class _Compiler:
    """In place of what runs a program: compiles its kernels as they are launched, called and captured."""

    def __init__(self, program: LoadedProgram, group: Group):
        self.program, self.group = program, group

    def prepared(self, args: tuple, key: Any) -> Callable[[tuple], None]:
        return self._compile

    def _compile(self, args: tuple) -> None:
        first, second = (self.program.evaluate(args, self.group, epoch) for epoch in (5, 6))
        steps = linear_steps(5, first, 6, second) or first
        counts = is_counted_by_kernels(steps)
        for step in steps:
            if isinstance(step, host.Launch):
                text, target = self.program.kernel(step.kernel), self.group.target()
                compile_for_gpu(text, step.kernel, dict(sorted(step.options.items())), target)
                pointers = tuple(index for index, value in enumerate(step.args) if isinstance(value, Polynomial))
                if pointers:
                    text = captured_form(text, pointers, counts)
                    compile_for_gpu(text, step.kernel, dict(sorted(step.options.items())), target)


def tasks(jobs: Iterable[Any]) -> list[tuple[Problem, Options]]:
    """A call for each kernel; problems whose sizes are alike divisible share them."""
    found: dict[tuple, tuple[Problem, Options]] = {}
    for job in jobs:
        problem = job.problem
        for number in job.left:
            options = job.candidates[number]
            if options.get("algorithm") != "nccl":
                alike = [(extent % 16 == 0, extent == 1) for extent in (problem.rows, problem.N, problem.K)]
                of_experts = (problem.experts, problem.top_k, problem.parallel)
                sizes = (problem.operator, problem.dtype, problem.ranks, *of_experts, str(alike))
                key = (*sizes, str(sorted(options.items())))
                found.setdefault(key, (problem, options))
    return list(found.values())


def run(jobs: Iterable[Any], capability: int, sms: int, say: Callable[[str], None] = lambda text: None) -> None:
    """Compile what the jobs' candidates need. What fails here fails, with its message, where it is measured."""
    todo = tasks(jobs)
    parts = processes_for(len(todo))
    if parts < 2:
        return
    begin = time.monotonic()
    say(f"compiling {len(todo)} kernels in {parts} processes")
    with tempfile.TemporaryDirectory(prefix="ditron-tune-") as folder:
        file = Path(folder) / "kernels.json"
        listed = [[asdict(problem), options] for problem, options in todo]
        file.write_text(json.dumps({"capability": capability, "sms": sms, "tasks": listed}))
        command = [sys.executable, "-m", "ditron.tuning.compile_ahead", str(file)]
        environment = knobs.environment(DITRON_TUNE=0, OMP_NUM_THREADS=1)
        processes = [
            subprocess.Popen([*command, str(part), str(parts)], env=environment, stdout=subprocess.DEVNULL)
            for part in range(parts)
        ]
        try:
            for process in processes:
                process.wait(max(0.1, begin + _SECONDS - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in processes:
                process.kill()
                process.wait()
    say(f"compiled in {time.monotonic() - begin:.0f} s")


def compile_task(problem: Problem, options: Options, capability: int, sms: int) -> None:
    """Compile the kernels of one call."""
    executable.BACKENDS["compile"] = _Compiler
    group = CompileGroup(problem.ranks, capability, sms)
    with group:
        given, _ = operands(problem, 0, group.device)
        call_of(problem, given)(group=group, **options)


def main(file: str, part: int, parts: int) -> None:
    spec = json.loads(Path(file).read_text())
    for problem, options in spec["tasks"][part::parts]:
        options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        try:
            compile_task(Problem(**problem), options, spec["capability"], spec["sms"])
        except Exception as error:
            print(f"{problem}, {options}: {type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
