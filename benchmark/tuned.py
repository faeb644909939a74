"""What the table of measured choices is worth: operators as they are called, with it and without, taking turns.

    torchrun --nproc-per-node 2 benchmark/tuned.py --table h200x2.json --rounds 16 --json tuned.json

Each entry of the table is a case: *rule* runs what is chosen by size, *tuned* what the table says. A call is in a CUDA
graph, as it was when it was tuned. Every result is compared with the rule's. Exit code 1 when an entry costs more than
2 %, or gains less than half of what it claims.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measuring import Samples, capture, extend, relative_error, start  # noqa: E402

import ditron  # noqa: E402
from ditron.tuning.bench import prepared  # noqa: E402
from ditron.tuning.floors import calls_in_a_graph  # noqa: E402
from ditron.tuning.lookup import GroupChoices  # noqa: E402
from ditron.tuning.problem import options_text  # noqa: E402
from ditron.tuning.registry import OPERATORS  # noqa: E402
from ditron.tuning.tables import Entry, Table  # noqa: E402


def measure(entry: Entry, table: Table, group: ditron.Group, samples: Samples, rounds: int) -> dict:
    problem, graphs, results = entry.problem, {}, {}
    calls, run = calls_in_a_graph(problem), partial(prepared(problem, group.rank, group.device), {})
    for name, choices in (("rule", GroupChoices(None)), ("tuned", GroupChoices(table))):
        group.choices = choices
        group.repeated.clear()  # calls that are remembered are of the choices before
        for _ in range(2):
            results[name] = run().clone()
        torch.cuda.synchronize()
        dist.barrier()
        graphs[name] = capture(run, calls).replay
    error = relative_error(results["tuned"], results["rule"].float())
    assert error < 1e-2, f"rank {group.rank}, {problem}: relative error {error}"
    times = samples.medians(graphs, rounds, 100_000, calls)
    return {name: 1e3 * time for name, time in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--all", action="store_true", help="also entries in which the rule was fastest")
    parser.add_argument("--limit", type=int, default=60, help="seconds an entry may take")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--output", type=Path, help="the table, without the choices that are behind")
    args = parser.parse_args()
    device = start(args.limit)
    group, samples = ditron.init(transport="p2p"), Samples(device)
    table, rows, behind = Table.from_text(args.table.read_text()), [], 0
    for entry in table.entries.values():
        best = entry.best(None, OPERATORS[entry.problem.operator].named_only)
        rule = next((candidate for candidate in entry.candidates if candidate.is_rule), None)
        if best is None or rule is None or rule.us is None or (best is rule and not args.all):
            continue
        extend(args.limit)
        times = measure(entry, table, group, samples, args.rounds)
        claimed, found = rule.us / best.us, times["rule"] / times["tuned"]
        is_behind = found < 0.98 or found - 1 < (claimed - 1) / 2 - 0.01
        behind += is_behind
        if is_behind:  # the rule stays; slower candidates do too
            entry.candidates = [c for c in entry.candidates if c is rule or (c.us or math.inf) > rule.us]
        rows.append({"problem": str(entry.problem), "claimed": claimed, "found": found, **times})
        if dist.get_rank() == 0:
            print(
                f"{'BEHIND ' if is_behind else ''}{entry.problem}: rule {times['rule']:.1f} us, tuned "
                f"{times['tuned']:.1f} us, {found:.3f} ({claimed:.3f} claimed): {options_text(best.options)}",
                flush=True,
            )
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1))
    if dist.get_rank() == 0:
        if args.output:
            table.save(args.output)
        print(f"{len(rows)} entries, {behind} behind")
    ditron.finalize()
    sys.exit(1 if behind else 0)


if __name__ == "__main__":
    main()
