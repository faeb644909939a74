"""What the checker reports."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["KINDS", "Finding", "CheckReport"]

#: Kind -> what it is, in a line; docs/checker.md has an example of each.
KINDS = {
    "never-signalled": "a wait that no one can satisfy: no signal is sent there",
    "count": "a wait that no one can satisfy: the signals do not add up to its value",
    "cycle": "waits that wait for each other",
    "starved": "programs that spin hold the SMs that the producer needs",
    "barrier": "a barrier that not every rank comes to",
    "unordered": "data that is read without a wait for it",
    "too-early": "a wait that returns before the data it is for is there",
    "unpublished": "a signal that is not ordered after the data it announces",
    "scope": "a scope too small for where the signal comes from",
    "semantic": "a relaxed access where the order of others depends on it",
    "token": "a load in a loop with its wait that does not depend on its token",
    "reuse": "a buffer that is used again before its reader is known to be done",
    "writers": "two writers of one place that nothing orders",
    "overtaken": "a signal that another one may overtake",
    "shared": "a signal that two call sites use",
    "overlap": "a copy whose source and destination overlap",
    "unwritten": "a read of memory that nobody has written",
    "bounds": "an access outside of its buffer",
    "freed": "an access to a buffer that was freed",
    "rank": "a rank that does not exist",
    "symmetric": "memory that is not symmetric, of which another rank's copy is asked for",
    "node": "a copy, or a signal of a stream, to a rank of another node",
}


@dataclass(frozen=True)
class Finding:
    """A mistake.

    Attributes:
        kind: one of :data:`KINDS`. message: what is wrong. loc: ``file:line:col`` of the one side; others: of the other
        sides, each with what it is. where: ranks, programs, streams. hint: what would mend it.
    """

    kind: str
    message: str
    loc: str
    where: str
    hint: str
    others: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.loc}: {self.message} [{self.kind}]", f"  {self.where}"]
        lines += [f"  {what}: {loc}" for what, loc in self.others]
        return "\n".join([*lines, f"  {self.hint}"])

    @property
    def key(self) -> tuple:
        """Findings with the same key are one mistake."""
        return self.kind, self.loc, tuple(dict.fromkeys(loc for _, loc in self.others))


@dataclass
class CheckReport:
    """The result of a check.

    Attributes:
        subject: what was checked. findings: mistakes. notes: what was not followed, and what a kernel relies on.
        not_followed: those of the notes that say that not all was checked. checked: the groups, as "4 ranks".
        given_up: those given up for their size, or for time or memory. unknown: names of the tensors whose contents
        were needed, and are not known. floats: names of those whose contents are floats. seconds: that it took.
    """

    subject: str
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    not_followed: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    floats: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether everything was checked to its end."""
        return not (self.given_up or self.not_followed)

    def add(self, findings: list[Finding], not_followed: list[str], advice: list[str]) -> None:
        """Add the findings and notes of one group that are not known from another."""
        known = {finding.key for finding in self.findings}
        for finding in findings:
            if finding.key not in known:
                known.add(finding.key)
                self.findings.append(finding)
        self.not_followed += [note for note in dict.fromkeys(not_followed) if note not in self.not_followed]
        self.notes += [note for note in dict.fromkeys([*not_followed, *advice]) if note not in self.notes]

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.findings]
        lines += [f"note: {note}" for note in self.notes]
        said = []
        if self.checked or self.findings:
            count = f"{len(self.findings)} finding{'s' * (len(self.findings) != 1)}" if self.findings else "no findings"
            said.append(f"{count} ({', '.join([*self.checked, *self.given_up] if self.findings else self.checked)})")
        if self.given_up:
            said.append(f"NOT checked to the end ({', '.join(self.given_up)})")
        if self.not_followed:
            more = f", and {len(self.not_followed) - 1} more" if len(self.not_followed) > 1 else ""
            said.append(f"NOT all was followed ({self.not_followed[0]}{more})")
            if self.unknown:
                said.append(
                    f"give values to {', '.join(self.unknown)}, by tensors that hold some or by "
                    f"sample_args={{{self.unknown[0]!r}: 'i32[4] = permutation', ...}}"
                )
            if self.floats:
                said.append(
                    f"the contents of {', '.join(self.floats)} are floats, which cannot be given: "
                    "let integers decide, in a tensor or as an argument that the host computes "
                    "(ditron check --value LINE=VALUE gives what it reads of results)"
                )
        return "\n".join([*lines, f"{self.subject}: {'; '.join(said or ['nothing was checked'])}"])
