"""How far the rules of operators are behind the best candidate, on a machine whose table is there. No GPU is needed.

    python benchmark/rules.py h100x2 h200x2
    python benchmark/rules.py h200x2 --problems
    python benchmark/rules.py h100x2 --by-bytes

Of each problem of a table: the time of what the rule says today over that of the fastest candidate that may be chosen.
Problems in which today's rule was not a candidate have no time for it, and are counted apart. *then*: of the rule when
the table was measured. ``--by-bytes``: of ``ag_gemm`` and ``gemm_rs``, over the time by rank, by the bytes that a rank
sends: one after the other, and the best of the persistent kernel with tiles of 128 x 256.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections import defaultdict

from ditron import kernels  # noqa: F401 (declares operators)
from ditron.kernels.schedules import TILE
from ditron.tuning.problem import options_text
from ditron.tuning.registry import OPERATORS, rule_of
from ditron.tuning.tables import Entry, Measured, Table, shipped_path


def table_of(name: str) -> Table:
    machine, _, ranks = name.rpartition("x")
    return Table.from_text(shipped_path(machine, int(ranks)).read_text(), name)


def fastest(entry: Entry) -> Measured:
    """What may be chosen where no algorithm is named."""
    named_only = OPERATORS[entry.problem.operator].named_only
    return next(c for c in entry.candidates if c.us and c.options.get("algorithm") not in named_only)


def ratios(entry: Entry) -> tuple[float | None, float | None]:
    """Of today's rule and that of then, over the fastest."""
    rule, best = rule_of(entry.problem), fastest(entry).us
    assert rule is not None and best is not None
    today = next((c.us for c in entry.candidates if c.options == rule.options), None)
    then = next((c.us for c in entry.candidates if c.is_rule), None)
    return today and today / best, then and then / best


def by_bytes(table: Table) -> None:
    """Print the algorithms of products, over that by rank."""
    print("| a rank sends, MB | one after the other / by rank | persistent kernel / by rank |\n|---|---|---|")
    for least, most in itertools.pairwise((2, 3, 6, 14, 20, 40, 130)):
        cells = []
        for algorithm in ("sequential", "overlapped"):
            means = []
            for operator in ("ag_gemm", "gemm_rs"):
                of_size = (e for p, e in table.entries.items() if least <= p.sent_bytes / 2**20 < most)
                of_operator = [over_by_rank(e, algorithm) for e in of_size if e.problem.operator == operator]
                found = [ratio for ratio in of_operator if ratio is not None]
                means += [f"{statistics.geometric_mean(found):.2f}"] if found else []
            cells.append(", ".join(means))
        print(f"| {least} to {most} | {' | '.join(cells)} |")


def over_by_rank(entry: Entry, algorithm: str) -> float | None:
    """The time of an algorithm over that by rank, where both were measured."""
    ours, by_rank = least_time(entry, algorithm), least_time(entry, "by_rank")
    return None if ours is None or by_rank is None else ours / by_rank


def least_time(entry: Entry, algorithm: str) -> float | None:
    """Of its candidates, but for tiles that are not 128 x 256."""
    found = [c for c in entry.candidates if c.us and c.options["algorithm"] == algorithm]
    return min((c.us for c in found if c.options.get("block", TILE) == TILE), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("machines", nargs="+", help="as h200x2: shipped tables")
    parser.add_argument("--problems", action="store_true", help="also those that are more than 5 %% behind")
    parser.add_argument("--by-bytes", action="store_true", help="instead: algorithms of products by what a rank sends")
    args = parser.parse_args()
    if args.by_bytes:
        for name in args.machines:
            by_bytes(table_of(name))
        return
    print("| table | operator | problems | measured | mean | most | mean, then | most, then |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.machines:
        table = table_of(name)
        of_operators, behind = defaultdict(list), []
        for problem, entry in table.entries.items():
            today, then = ratios(entry)
            of_operators[problem.operator].append((today, then))
            if today is not None and today > 1.05:
                rule = rule_of(problem)
                runs, best = options_text(rule.options), options_text(fastest(entry).options)
                behind.append(f"{today:.2f} {problem}: {runs}; {best}")
        for operator, found in of_operators.items():
            both = [(today, then) for today, then in found if today and then]
            columns = list(zip(*both, strict=True)) or [(1.0,), (1.0,)]
            means = [f"{statistics.geometric_mean(column):.3f} | {max(column):.2f}" for column in columns]
            print(f"| {name} | {operator} | {len(found)} | {len(both)} | {' | '.join(means)} |")
        if args.problems:
            print("\n".join(sorted(behind, reverse=True)))


if __name__ == "__main__":
    main()
