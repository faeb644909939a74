"""A script on simulated ranks, as ``ditron run`` and ``ditron.init(sim=N)`` run it; errors say how to replay it."""

from __future__ import annotations

import faulthandler
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from ditron.machines import Machine
from ditron.sim.runner import run_script
from ditron_compiler.errors import CompileError, DitronError, SimulationError
from ditron_compiler.source_location import UNKNOWN, raised_at

__all__ = ["ScriptRun"]


@dataclass(frozen=True)
class ScriptRun:
    """One run: the script, its arguments and the options of ``ditron run``; call it with a seed."""

    script: str
    args: Sequence[str] = ()
    ranks: int = 1
    ranks_per_node: int | None = None
    trace: str | None = None
    timeline: str | None = None
    races: bool | None = None
    weak: bool | None = None
    as_cuda: bool = False
    traceback: bool = False
    machine: Machine | None = None
    timing_only: bool = False
    routing: str | None = None

    def __call__(self, seed: int | None) -> int:
        """The script's exit code. An error of the run says which command runs it again, with the same seed."""
        if not faulthandler.is_enabled():
            faulthandler.enable(sys.__stderr__)  # an extension that crashes says at which line of the script
        try:
            return run_script(
                self.script,
                self.args,
                ranks=self.ranks,
                ranks_per_node=self.ranks_per_node,
                seed=seed,
                trace=self.trace,
                timeline=self.timeline,
                races=self.races,
                weak=self.weak,
                as_cuda=self.as_cuda,
                **({} if self.routing is None else {"routing": self.routing}),
                **({} if self.machine is None else {"machine": self.machine, "timing_only": self.timing_only}),
            )
        except Exception as error:
            self._fail(error, seed or 0)

    def _fail(self, error: Exception, seed: int) -> NoReturn:
        """Raise an error of a run with the command that replays it; a wrong call says its line, too."""
        again = f"seed {seed}; again: {self.replay(seed)}"
        if isinstance(error, CompileError):  # which is the same with every seed
            raise error
        if isinstance(error, SimulationError):
            error.args = (f"{error}\n{again}",)
        elif isinstance(error, DitronError):
            line = raised_at(error)
            error.args = (f"{error}\n" + ("" if line == UNKNOWN or line in str(error) else f"  at {line}\n") + again,)
        else:
            error.add_note(again)
        raise error

    def replay(self, seed: int) -> str:
        """The command that runs the same again."""
        return shlex.join(["ditron", *self.command("--replay", str(seed))])

    def command(self, *seeds: str) -> list[str]:
        """The words after ``ditron`` that run the same with the options ``seeds``."""
        words = ["run", "--sim", str(self.ranks)]
        if self.machine is not None:
            words += ["--machine", self.machine.file]
            words += [word for change in self.machine.changed for word in _option(change)]
            words += ["--timing-only"] * self.timing_only
        if self.routing is not None:
            words += ["--routing", self.routing]
        if self.ranks_per_node is not None:
            words += ["--ranks-per-node", str(self.ranks_per_node)]
        if self.as_cuda:
            words.append("--as-cuda")
        for name, value in (("races", self.races), ("weak", self.weak)):
            if value is not None:
                words.append(f"--{name}" if value else f"--no-{name}")
        if self.traceback:
            words.append("--traceback")
        return [*words, *seeds, self.script, *self.args]


def _option(change: str) -> list[str]:
    """What asks for a change of a machine: its name, or a number."""
    return ["--set", change] if "=" in change else [f"--{change}"]
