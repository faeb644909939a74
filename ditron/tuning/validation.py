"""What an entry of a table's file has to be: types, positive numbers, and options that its operator knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from ditron.tuning.problem import DTYPES, OF_EXPERTS, Options, Problem, has_weight
from ditron.tuning.registry import OPERATORS, candidates_of, space_of

__all__ = ["check_entry"]

_OF_EXPERTS = {"experts", "top_k", "parallel"}
_MOST = 1 << 40  # of a size, and of microseconds
_LEAST_EXTENT, _MOST_OF_TILE, _MOST_OF_SLICE = 16, 512, 1 << 16  # of a tile, and of columns that travel at once
_MOST_OF_OPTIONS = {
    "stages": 16,
    "pieces": 64,
    "group_m": 256,
    "programs": 4096,
    "pushers": 64,
    "copy_streams": 8,
    "parts": 4,
}
_SAMPLED_ROWS = tuple(1 << k for k in range(3, 28, 2))
_SAMPLED_NK = ((1024, 1024), (4096, 8192))


def check_entry(item: Any, ranks: int) -> None:
    """Raises ValueError that says what is wrong with an entry as JSON has it; operators are declared by then."""
    _keys(item, "an entry", {"operator", "dtype", "rows", "candidates"}, {"N", "K", "timing", *_OF_EXPERTS})
    _one_of(item, "operator", OPERATORS)
    _one_of(item, "dtype", DTYPES)
    sizes = {"rows": item["rows"], "N": item.get("N", 0), "K": item.get("K", 0)}
    for name, value in sizes.items():
        if not has_weight(item["operator"]) and name != "rows":
            _expect(_is_int(value) and value == 0, name, value, "0 of a collective")
        else:
            _expect(_is_positive(value), name, value, "a positive integer")
    sizes |= _check_experts(item, ranks)
    if "timing" in item:
        _one_of(item, "timing", ("graph", "call"))
    _expect(isinstance(item["candidates"], list), "candidates", item["candidates"], "a list")
    for candidate in item["candidates"]:
        _keys(candidate, "a candidate", {"options"}, {"us", "failure", "rule"})
        us = candidate.get("us")
        _expect(us is None or _is_number(us) and 0 < us <= _MOST, "us", us, "a positive number")
        _expect(isinstance(candidate.get("failure", ""), str), "failure", candidate.get("failure"), "a string")
        _expect(isinstance(candidate.get("rule", False), bool), "rule", candidate.get("rule"), "true or false")
        _check_options(candidate["options"], Problem(item["operator"], item["dtype"], ranks, **sizes))


def _check_experts(item: Any, ranks: int) -> dict[str, Any]:
    """How many experts there are, for operators of experts."""
    if item["operator"] not in OF_EXPERTS:
        if found := sorted(_OF_EXPERTS & item.keys()):
            raise ValueError(f"{item['operator']} has no {', '.join(found)}")
        return {}
    _keys(item, "an entry of experts", _OF_EXPERTS)
    _one_of(item, "parallel", ("ep", "tp"))
    experts, top_k = item["experts"], item["top_k"]
    least = ranks if item["parallel"] == "ep" else 1
    _expect(_is_positive(experts) and experts >= least, "experts", experts, f"an integer from {least} on")
    _expect(_is_positive(top_k) and top_k <= experts, "top_k", top_k, f"from 1 to {experts}")
    return {name: item[name] for name in _OF_EXPERTS}


def _check_options(options: Any, problem: Problem) -> None:
    """Names and forms of values are those of the operator's candidates, for whatever size."""
    _keys(options, "options", {"algorithm"})
    known = _known_options(replace(problem, rows=0, N=0, K=0))
    own = _forms(candidates_of(problem))
    _one_of(options, "algorithm", known | own)
    forms = known.get(options["algorithm"], {}) | own.get(options["algorithm"], {})
    for name, value in options.items():
        if name == "algorithm":
            continue
        if name not in forms:
            raise ValueError(f"{options['algorithm']} of {problem.operator} has no option {name!r}")
        if isinstance(form := forms[name], int):
            most = _MOST_OF_SLICE if name == "slice_k" else _MOST_OF_TILE
            fits = isinstance(value, list | tuple) and all(_is_power_of_two(size) for size in value)
            _expect(
                fits and len(value) == form and all(_LEAST_EXTENT <= size <= most for size in value),
                name,
                value,
                f"{form} powers of two from {_LEAST_EXTENT} to {most}",
            )
        elif form is int:
            _expect(_is_positive(value), name, value, "a positive integer")
            most = _MOST_OF_OPTIONS.get(name, _MOST)
            _expect(value <= most, name, value, f"at most {most}")
            _expect(name != "parts" or value in (2, 4), name, value, "2 or 4")
        else:
            _expect(type(value) is form, name, value, f"a {form.__name__}")
    if "slice_k" in options:  # the first slice and the longest
        depth, (first, longest) = options.get("block", (0, 0, 0))[2], options["slice_k"]
        _expect(depth <= first <= longest, "slice_k", options["slice_k"], "from the depth of a block on, and growing")


@cache
def _known_options(like: Problem) -> dict[str, dict[str, Any]]:
    return _forms(_samples(like))


def _samples(like: Problem) -> Iterator[Options]:
    """Candidates, and a schedule that ``ditron tune --search`` may come to: it names all parameters of the space."""
    for rows in _SAMPLED_ROWS:
        for N, K in _SAMPLED_NK if has_weight(like.operator) else ((0, 0),):
            problem = replace(like, rows=rows, N=N, K=K)
            yield from candidates_of(problem)
            if (space := space_of(problem, sms=132)) is not None:
                yield {"algorithm": space.algorithm} | {name: values[0] for name, values in space.parameters.items()}


def _forms(candidates: Iterable[Options]) -> dict[str, dict[str, Any]]:
    """By algorithm and option: a type, or the length of a tuple."""
    forms: dict[str, dict[str, Any]] = {}
    for options in candidates:
        known = forms.setdefault(options["algorithm"], {})
        for name, value in options.items():
            known[name] = len(value) if isinstance(value, tuple) else type(value)
    return forms


def _keys(item: Any, what: str, needed: set[str], possible: set[str] | None = None) -> None:
    """``possible``: besides those that are needed; None for any."""
    if not isinstance(item, dict):
        raise ValueError(f"{what} is an object, not {item!r:.60}")
    if missing := needed - item.keys():
        raise ValueError(f"{what} needs {', '.join(sorted(missing))}")
    if possible is not None and (unknown := item.keys() - needed - possible):
        raise ValueError(f"{what} has no {', '.join(map(repr, sorted(unknown)))}")


def _one_of(item: dict[str, Any], name: str, choices: Any) -> None:
    value = item[name]
    _expect(isinstance(value, str) and value in choices, name, value, f"one of {', '.join(sorted(choices))}")


def _expect(is_so: bool, name: str, value: Any, expected: str) -> None:
    if not is_so:
        raise ValueError(f"{name} is {value!r:.60}: expected {expected}")


def _is_power_of_two(size: Any) -> bool:
    return _is_int(size) and size > 0 and size & (size - 1) == 0


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_int(value) or isinstance(value, float)


def _is_positive(value: Any) -> bool:
    return _is_int(value) and 0 < value <= _MOST
