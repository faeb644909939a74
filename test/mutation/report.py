"""The table of what was found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Outcome", "table"]

TARGET = 0.95
_ROOT = str(Path(__file__).resolve().parents[2]) + "/"


@dataclass(frozen=True)
class Outcome:
    """What the simulator and the checker said of a mutant; empty: nothing."""

    subject: str
    mutation: str
    kind: str
    simulator: str
    checker: str

    @property
    def counts(self) -> bool:
        """Whether it compiles: a mutant that the compiler refuses is nobody's to find."""
        return not self.simulator.startswith("refused")


def table(outcomes: list[Outcome], seeds: int, seconds: float) -> tuple[str, bool]:
    """Markdown, and whether the target is met."""
    originals = [o for o in outcomes if o.kind == "original"]
    mutants = [o for o in outcomes if o.kind != "original" and o.counts]
    refused = [o for o in outcomes if o.kind != "original" and not o.counts]
    changed = [o for o in mutants if o.simulator]
    flagged = [o for o in changed if o.checker]
    missed = [o for o in changed if not o.checker]
    beyond = [o for o in mutants if not o.simulator and o.checker]
    neither = [o for o in mutants if not o.simulator and not o.checker]
    false = [o for o in originals if o.checker]
    share = len(flagged) / max(len(changed), 1)
    lines = [
        f"{len(mutants)} mutants of {len(originals)} kernels and programs, {seeds} seeds each, in "
        f"{seconds:.0f} s; {len(refused)} more do not compile.",
        "",
        f"- **{share:.1%}** of those whose meaning changed are flagged: {len(flagged)} of {len(changed)}",
        f"- false alarms on originals: {len(false)} of {len(originals)}",
        f"- flagged, and no seed showed it: {len(beyond)}",
        f"- neither flagged nor shown by any seed, with the result that every original asserts: {len(neither)}",
        "",
    ]
    lines += _rows("kernel or program", [o.subject for o in originals], mutants, lambda o: o.subject)
    lines += _rows("mutation", sorted({o.kind for o in mutants}), mutants, lambda o: o.kind)
    lines += _list("False alarms", false, lambda o: f"{o.subject}: {o.checker}")
    broken = [o for o in originals if o.simulator]
    lines += _list("Originals that the simulator finds fault with", broken, lambda o: f"{o.subject}: {o.simulator}")
    by_assert = [o for o in missed if o.simulator.startswith("wrong:")]
    lines += _list(
        "Missed by the checker, and seen by no race, deadlock or fault: only the asserted result is wrong",
        by_assert,
        lambda o: f"{o.subject}: {o.mutation}",
    )
    lines += _list(
        "Missed",
        [o for o in missed if o not in by_assert],
        lambda o: f"{o.subject}: {o.mutation} -- simulator: {o.simulator}",
    )
    kinds = Counter((o.subject, o.checker.partition(":")[0], o.mutation.partition(": ")[2]) for o in beyond)
    lines += _list("Flagged, and no seed showed it", list(kinds), lambda k: f"{k[0]}: {k[2]} -- {k[1]}")
    if any(k[1] == "token" for k in kinds):
        lines += [
            "A missing `consume_token` is beyond the simulator, whose programs do nothing ahead of time; on a "
            "GPU Triton's pipeliner may fetch a loop's loads before a wait that they do not depend on."
        ]
    return "\n".join(lines).rstrip().replace(_ROOT, ""), share >= TARGET and not false


def _rows(head: str, names: list[str], mutants: list[Outcome], key) -> list[str]:
    lines = [
        f"| {head} | mutants | meaning changed | flagged | missed | flagged, harmless here |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in [*names, "all"]:
        mine = [o for o in mutants if name == "all" or key(o) == name]
        changed = [o for o in mine if o.simulator]
        lines.append(
            f"| {name} | {len(mine)} | {len(changed)} | {sum(bool(o.checker) for o in changed)} | "
            f"{sum(not o.checker for o in changed)} | "
            f"{sum(bool(o.checker and not o.simulator) for o in mine)} |"
        )
    return [*lines, ""]


def _list(title: str, items: list, text) -> list[str]:
    return [f"### {title}", "", *(f"- {text(item)}" for item in items), ""] if items else []
