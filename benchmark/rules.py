"""How far the rules of operators are behind the best candidate, on a machine whose table is there. No GPU is needed.

    python benchmark/rules.py h100x2 h200x2
    python benchmark/rules.py h200x2 --problems

Of each problem of a table: the time of what the rule says today over that of the fastest candidate that may be chosen.
Problems in which today's rule was not a candidate have no time for it, and are counted apart. *then*: of the rule when
the table was measured.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict

from ditron import kernels  # noqa: F401 (declares operators)
from ditron.tuning.problem import options_text
from ditron.tuning.registry import OPERATORS, rule_of
from ditron.tuning.tables import Entry, Measured, Table, shipped_path


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("machines", nargs="+", help="as h200x2: shipped tables")
    parser.add_argument("--problems", action="store_true", help="also those that are more than 5 %% behind")
    args = parser.parse_args()
    print("| table | operator | problems | measured | mean | most | mean, then | most, then |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.machines:
        machine, _, ranks = name.rpartition("x")
        table = Table.from_text(shipped_path(machine, int(ranks)).read_text(), name)
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
