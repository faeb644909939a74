"""What an operator would run for a problem, why, and what it costs against the floor: without a GPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ditron.machines import Machine
from ditron.tuning.floors import LEAST_FLOOR, floor_of, nodes_of
from ditron.tuning.outlook import Outlook
from ditron.tuning.problem import Options, Problem, options_text
from ditron.tuning.registry import OPERATORS, Tunable, rule_of
from ditron.tuning.tables import Entry, Measured, Table

__all__ = ["Explanation", "explain"]

#: Of calls, where they are not ``a, b`` or ``x``.
_OPERANDS = {
    "ag_moe": "x, w, plan",
    "moe_rs": "rows, w, plan",
    "ep_moe": "x, topk_ids, topk_weights, w13, w2",
    "all_to_all_v": "x, splits, max_rows=n",
}
_OF_NODES = "ep_moe, or ep_dispatch, grouped_mm and ep_combine"
#: What does the same on several nodes, of operators that are of one.
_INSTEAD = {"ag_moe": _OF_NODES, "moe_rs": _OF_NODES}


@dataclass
class Explanation:
    """The answer of ``ditron explain``.

    Attributes:
        problem: as asked. bucket: whose choice it has.
        options: what would run; None: nothing does, and ``why`` has the error that a call raises.
        source: ``"measured"``, ``"nearest"`` (measured for that N and K) or ``"rule"``. why: in words, with numbers.
        us: microseconds of a call, measured, or by ``"rule"`` predicted. is_floor: less is predicted than the floor,
            which ``us`` is. floor: of the problem; None where the machine's limits are not known. of_bucket: floor of
            what was measured.
        others: the other candidates that were measured, fastest first, with times or failures.
        predicted: what is predicted of the candidates.
    """

    problem: Problem
    bucket: Problem
    machine: str
    options: Options | None
    source: str
    why: str
    us: float | None
    floor: dict[str, Any] | None = None
    of_bucket: float | None = None
    others: list[dict[str, Any]] = field(default_factory=list)
    predicted: Outlook | None = None
    is_floor: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """For people."""
        ours, bucket = self.problem, self.bucket
        runs = "nothing" if self.options is None else options_text(self.options)
        lines = [f"{ours} on {self.machine}", f"  runs    {runs}", f"  why     {self.why}"]
        measured = self.source != "rule"
        if self.us is not None:
            bound = self.of_bucket
            over = f", {self.us / bound:.2f} of the floor" if bound is not None and bound >= LEAST_FLOOR else ""
            what = f" for {bucket}" if bucket != ours and measured else ""
            if self.is_floor:
                lines.append(f"  time    >= {self.us:.1f} us, the floor: what is predicted is less")
            else:
                lines.append(f"  time    {self.us:.1f} us {'measured' if measured else 'predicted'}{what}{over}")
        if self.floor is not None:
            product, link = self.floor["product"], self.floor["link"]
            parts = f"product {product:.1f}, link {link:.1f}" if ours.is_product else f"link {link:.1f}"
            lines.append(f"  floor   {max(product, link):.1f} us: {parts}, of {self.floor['source']}")
        else:
            lines.append(
                f"  floor   the limits of {self.machine} are not known: no file in ditron/machines describes it"
            )
        timed = [other for other in self.others if other["us"] is not None]
        for other in timed[:1]:
            more = f"{100 * (other['us'] / self.us - 1):+.1f} %" if self.us else ""
            named = ", only if it is named" if other["named_only"] else ""
            lines.append(f"  second  {options_text(other['options'])}: {other['us']:.1f} us, {more}{named}")
        force = self.options
        if force is None and self.predicted is not None:  # what runs if it is named
            force = next((one.options for one in self.predicted.schedules if one.us is not None), None)
        if force is not None:
            operands = _OPERANDS.get(ours.operator, "a, b" if ours.is_product else "x")
            lines.append(f"  force   {ours.operator}({operands}, {options_text(force)})")
        return "\n".join(lines + (self.predicted.lines() if self.predicted is not None else []))


def explain(
    problem: Problem,
    bucket: Problem,
    table: Table,
    machine: Machine | None,
    algorithm: str | None = None,
    predicted: Outlook | None = None,
) -> Explanation:
    """``bucket`` is the problem with the rows that its calls are looked up by; ``predicted`` is of the problem."""
    operator = OPERATORS[problem.operator]
    found = table.find(bucket)
    best = found.entry.best(algorithm, operator.named_only) if found is not None else None
    floor: dict[str, Any] | None = None
    if machine is not None:
        limits = floor_of(problem, machine)
        floor = {"product": limits.product, "link": limits.link, "source": str(machine)}
    name = f"{table.machine} x {table.ranks}"
    if found is None or best is None:
        nodes = nodes_of(problem, machine)
        rule = rule_of(problem, nodes)
        if rule is None:
            why = f"NodesError: {_on_nodes(problem.operator, nodes)}"
            return Explanation(problem, bucket, name, None, "rule", why, None, floor, predicted=predicted)
        schedule = predicted.find(rule.options) if predicted is not None else None
        if schedule is not None and schedule.raises:
            return Explanation(problem, bucket, name, None, "rule", schedule.why, None, floor, predicted=predicted)
        known = "nothing is measured" if found is None else "no candidate worked"
        why = f"{known} for {bucket}, so the rule: {rule.why}"
        of = max(floor["product"], floor["link"]) if floor else None
        us = schedule.us if schedule is not None else None
        is_floor = schedule is not None and schedule.is_floor
        return Explanation(
            problem, bucket, name, rule.options, "rule", why, us, floor, of, predicted=predicted, is_floor=is_floor
        )
    entry = found.entry
    of_bucket = floor_of(entry.problem, machine).us if machine is not None else None
    measured = f"of {len(entry.candidates)} candidates measured for {entry.problem}"
    why = f"none {measured} is faster than the rule's by more than noise" if best.is_rule else f"the fastest {measured}"
    if found.is_nearest:
        why += ", the nearest N and K that are known"
    return Explanation(
        problem,
        entry.problem,
        name,
        best.options,
        "nearest" if found.is_nearest else "measured",
        f"{why} ({_form(entry)})",
        best.us,
        floor,
        of_bucket,
        [_other(other, operator) for other in entry.candidates if other is not best],
        predicted,
    )


def _on_nodes(operator: str, nodes: int) -> str:
    """Why a call that names no algorithm raises NodesError, and what to do."""
    if OPERATORS[operator].node_algorithms:
        return f"{operator} runs on {nodes} nodes only with an algorithm for them, which a call has to name"
    instead = f", or call {_INSTEAD[operator]}" if operator in _INSTEAD else ""
    return f"{operator} is of one node: make a group for each node, by ditron.new_group{instead}"


def _other(candidate: Measured, operator: Tunable) -> dict[str, Any]:
    return {
        "options": candidate.options,
        "us": candidate.us,
        "failure": candidate.failure,
        "rule": candidate.is_rule,
        "named_only": candidate.options.get("algorithm") in operator.named_only,
    }


def _form(entry: Entry) -> str:
    return "in a CUDA graph" if entry.timing == "graph" else "single calls"
