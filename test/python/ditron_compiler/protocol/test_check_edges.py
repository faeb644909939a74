"""What the checker says holds in every execution does: random protocols, and all their executions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ditron_compiler.protocol.edges import add_wait_edges, overtaking
from ditron_compiler.protocol.induction import prove
from ditron_compiler.protocol.memory import HeapBuffer, address
from ditron_compiler.protocol.records import satisfies
from ditron_compiler.protocol.scenario import HostSignalWait, HostSignalWrite, Scenario
from ditron_compiler.protocol.streams import execute

CELLS = 2
ROOT = HeapBuffer(1, "flags", 8 * CELLS, 8, (CELLS,), symmetric=True, zeroed=True, given=False)


def scenario(streams: list[list[tuple]]) -> Scenario:
    """Of one rank: ``("set" | "add", cell, value)`` or ``("wait", cell, value)`` on each stream."""
    steps = []
    for number, operations in enumerate(streams):
        for at, (kind, cell, value) in enumerate(operations):
            facts = (f"s{number}", f"p.py:{10 * number + at}:1", 1)
            cells = (address(0, 1, 8 * cell),)
            steps.append(
                HostSignalWait(*facts, cells, "ge", value)
                if kind == "wait"
                else HostSignalWrite(*facts, cells, kind, value)
            )
    return Scenario(1, 1, {1: ROOT}, [steps])


def executions(streams: list[list[tuple]]) -> Iterator[tuple[list[tuple[int, int]], bool]]:
    """Every order in which the operations can happen, as (stream, number), and whether all of them do."""

    def go(at: tuple[int, ...], cells: tuple[int, ...], done: list) -> Iterator:
        stuck = True
        for stream, operations in enumerate(streams):
            if at[stream] == len(operations):
                continue
            kind, cell, value = operations[at[stream]]
            if kind == "wait" and cells[cell] < value:
                continue
            stuck = False
            after = list(cells)
            if kind != "wait":
                after[cell] = value if kind == "set" else cells[cell] + value
            further = tuple(n + (s == stream) for s, n in enumerate(at))
            yield from go(further, tuple(after), [*done, (stream, at[stream])])
        if stuck:
            yield done, len(done) == sum(map(len, streams))

    yield from go((0,) * len(streams), (0,) * CELLS, [])


def random_streams(seed: int) -> list[list[tuple]]:
    rng = random.Random(seed)
    kinds = rng.choice((["set"], ["add"], ["set", "add"]))
    return [
        [
            ("wait", rng.randrange(CELLS), rng.randint(1, 3))
            if rng.random() < 0.45
            else (rng.choice(kinds), rng.randrange(CELLS), rng.randint(1, 2))
            for _ in range(rng.randint(1, 4))
        ]
        for _ in range(rng.randint(2, 3))
    ]


def place(loc: str) -> tuple[int, int]:
    number = int(loc.split(":")[1])
    return number // 10, number % 10


def test_every_edge_holds_in_every_execution_and_most_that_hold_are_found():
    claimed = true = 0
    for seed in range(400):
        streams = random_streams(seed)
        machine = execute(scenario(streams))
        add_wait_edges(machine)
        found = {
            (place(writer.loc), place(wait.loc))
            for wait in machine.waits
            for cell in wait.cells
            for writer in machine.cell(cell).writers
            if machine.graph.precedes(writer.node, wait.after)
        }
        orders = [{op: i for i, op in enumerate(done)} for done, _ in executions(streams)]

        def always(writer, wait, orders=orders):
            return all(order[writer] < order[wait] if writer in order else False for order in orders if wait in order)

        for writer, wait in found:
            assert always(writer, wait), f"seed {seed}: {writer} is not always before {wait} in {streams}"
        returned = {place(wait.loc) for wait in machine.waits}
        sent = {place(w.loc) for cell in machine.cells.values() for w in cell.writers}
        truth = {
            (writer, wait)
            for wait in returned
            for writer in sent
            if streams[writer[0]][writer[1]][1] == streams[wait[0]][wait[1]][1] and always(writer, wait)
        }
        claimed, true = claimed + len(found), true + len(truth)
    assert claimed <= true and claimed > 0.9 * true > 100, (claimed, true)


def states(streams: list[list[tuple]]) -> set[tuple[int, ...]]:
    """How far each stream is, in every state of any execution."""
    begin = (0,) * len(streams), (0,) * CELLS
    known, work = {begin}, [begin]
    while work:
        at, cells = work.pop()
        for stream, operations in enumerate(streams):
            kind, cell, value = operations[at[stream]] if at[stream] < len(operations) else ("wait", 0, 1 << 30)
            if kind == "wait" and cells[cell] < value:
                continue
            after = list(cells)
            if kind != "wait":
                after[cell] = value if kind == "set" else cells[cell] + value
            state = tuple(n + (s == stream) for s, n in enumerate(at)), tuple(after)
            if state not in known:
                known.add(state)
                work.append(state)
    return {at for at, _ in known}


def barriers(seed: int) -> list[list[tuple]]:
    """Streams that add to all cells before and after they wait for their own: values and orders at random."""
    rng = random.Random(seed)
    streams = []
    for cell in range(CELLS):
        first, again = ([("add", c, 1) for c in rng.sample(range(CELLS), CELLS)] for _ in range(2))
        stream = [*first, ("wait", cell, CELLS if rng.random() < 0.8 else rng.randint(1, CELLS)), *again]
        if rng.random() < 0.2:
            at = rng.randrange(len(stream) - 1)
            stream[at], stream[at + 1] = stream[at + 1], stream[at]
        streams.append(stream)
    return streams


@pytest.mark.parametrize(("make", "cells", "seeds", "new"), [(random_streams, 2, 400, 0), (barriers, 3, 100, 50)])
def test_what_is_proven_of_several_waits_at_once_holds_in_every_execution(make, cells, seeds, new, monkeypatch):
    """Of updates and waits, of whichever signal; ``new``: how often there is more than edge by edge."""
    monkeypatch.setitem(globals(), "CELLS", cells)
    monkeypatch.setitem(globals(), "ROOT", replace(ROOT, nbytes=8 * cells, shape=(cells,)))
    more = 0
    for seed in range(seeds):
        streams = make(seed)
        machine = execute(scenario(streams))
        add_wait_edges(machine)
        while prove(machine, range(len(machine.graph.before))):
            more += 1
            add_wait_edges(machine)
        nodes = {place(w.loc): w.node for cell in machine.cells.values() for w in cell.writers}
        nodes |= {place(wait.loc): wait.after for wait in machine.waits}
        claimed = [
            (op, place(wait.loc))
            for wait in machine.waits
            for op, node in nodes.items()
            if node != wait.after and machine.graph.precedes(node, wait.after)
        ]
        for at in states(streams):
            for op, wait in claimed:
                assert at[op[0]] > op[1] or at[wait[0]] <= wait[1], (seed, op, wait, streams)
    assert more >= new


def test_a_run_that_gets_stuck_does_so_in_every_execution():
    """For signals that are counted: nothing that is added is ever lost."""
    stuck = 0
    for seed in range(400):
        streams = [
            [(kind if kind == "wait" else "add", cell, value) for kind, cell, value in stream]
            for stream in random_streams(seed)
        ]
        machine = execute(scenario(streams))
        assert {complete for _, complete in executions(streams)} == {not machine.stuck}, seed
        stuck += bool(machine.stuck)
    assert 50 < stuck < 350


@pytest.mark.parametrize(("streams", "kinds"), [
    ([[("set", 0, 1), ("set", 0, 2)]], []),
    ([[("set", 0, 1)], [("set", 0, 2)]], ["backwards"]),
    ([[("set", 0, 1)], [("set", 0, 1)]], []),
    ([[("set", 0, 1)], [("wait", 0, 1), ("set", 0, 2)]], []),
    ([[("set", 0, 1), ("add", 0, 2)]], ["mixed"]),
])  # fmt: skip
def test_overtaking(streams, kinds):
    machine = execute(scenario(streams))
    add_wait_edges(machine)
    assert [kind for kind, *_ in overtaking(machine)] == kinds


def test_satisfies():
    comparisons = ("eq", "ne", "gt", "ge", "lt", "le")
    assert [satisfies(2, cmp, 2) for cmp in comparisons] == [True, False, False, True, False, True]
