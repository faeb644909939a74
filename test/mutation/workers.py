"""Processes that try mutants; one that hangs or dies is replaced, and its mutant counts as having another meaning."""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.connection import Connection, wait

__all__ = ["run_all"]

_SECONDS = 120.0  # of one mutant


def run_all(only: list[str] | None, seeds: int, jobs: int) -> list[tuple]:
    """``(subject, mutation as text, kind, simulator's word, checker's word)`` for every mutant, originals first."""
    from mutants import find
    from subjects import subjects

    todo: list[tuple[str, int]] = []
    for name, subject in subjects().items():
        if not only or name in only:
            todo += [(name, number) for number in range(-1, len(find(subject)))]
    outcomes: dict[tuple[str, int], tuple] = {}
    partial: dict[tuple[str, int], tuple] = {}  # what the checker has said of those that the simulator runs
    queue, total = list(reversed(todo)), len(todo)
    workers = {}
    context = multiprocessing.get_context("spawn")

    def start() -> None:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, seeds), daemon=True)
        process.start()
        theirs.close()
        workers[ours] = [process, None, time.monotonic()]

    def give(pipe: Connection) -> None:
        if queue:
            workers[pipe][1:] = [queue.pop(), time.monotonic()]
            pipe.send(workers[pipe][1])
        else:
            workers[pipe][1] = None

    def lose(pipe: Connection, why: str) -> None:
        process, job, _ = workers.pop(pipe)
        process.kill()
        pipe.close()
        if job is not None:
            name, text, kind, _, said = partial.pop(job, (job[0], f"mutant {job[1]}", "?", "", ""))
            outcomes[job] = (name, text, kind, why, said)
        if queue:
            start()

    for _ in range(min(jobs, total)):
        start()
    for pipe in list(workers):
        give(pipe)
    while any(job is not None for _, job, _ in workers.values()) or queue:
        for pipe in wait(list(workers), timeout=5.0):
            try:
                outcome = pipe.recv()
            except EOFError:
                lose(pipe, "died: the process is gone")
                continue
            job = workers[pipe][1]
            if job not in partial:
                partial[job] = outcome
                continue
            outcomes[job] = outcome
            if sys.stderr.isatty() or len(outcomes) % 50 == 0:
                print(f"\r{len(outcomes)} of {total}", end="", file=sys.stderr, flush=True)
            give(pipe)
        for pipe, (_, job, since) in list(workers.items()):
            if job is not None and time.monotonic() - since > _SECONDS:
                lose(pipe, "hang: no end within the time")
        for pipe, (_, job, _) in list(workers.items()):
            if job is None and queue:
                give(pipe)
    for process, _, _ in workers.values():
        process.kill()
    print(file=sys.stderr)
    return [outcomes[job] for job in todo]


def _work(pipe: Connection, seeds: int) -> None:
    """Try mutants until there are no more."""
    from mutants import checked, find, simulated
    from subjects import subjects

    known = subjects()
    found: dict[str, list] = {}
    while True:
        name, number = pipe.recv()
        subject = known[name]
        if name not in found:
            found[name] = find(subject)
        mutant = found[name][number] if number >= 0 else None
        text, kind = (str(mutant[1]), mutant[1].kind) if mutant else ("original", "original")
        said = checked(subject, mutant)
        pipe.send((name, text, kind, "", said))  # the simulator may never end
        pipe.send((name, text, kind, simulated(subject, mutant, range(seeds)), said))
