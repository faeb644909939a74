"""What each pass changed, as a diff to read in a terminal or as one HTML page.

A pass that adds an operation renumbers every value after it; lines that differ in such numbers alone are the same line.
"""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Change", "changes", "page", "terminal"]

_NUMBERED = re.compile(r"%\d+")
_CONTEXT = 3
_RED, _GREEN, _BOLD, _DIM, _PLAIN = "\033[31m", "\033[32m", "\033[1m", "\033[2m", "\033[0m"


@dataclass(frozen=True)
class Change:
    """A run of lines: the same in both ("equal"), or ``before`` replaced by ``after`` (either may be empty)."""

    equal: bool
    before: tuple[str, ...]
    after: tuple[str, ...]


def changes(before: str, after: str) -> list[Change]:
    """The way from one module's text to another's."""
    old, new = before.splitlines(), after.splitlines()
    matcher = difflib.SequenceMatcher(
        None, [_NUMBERED.sub("%", line) for line in old], [_NUMBERED.sub("%", line) for line in new], autojunk=False
    )
    return [Change(kind == "equal", tuple(old[a:b]), tuple(new[c:d])) for kind, a, b, c, d in matcher.get_opcodes()]


def _count(run: list[Change]) -> tuple[int, int]:
    """Lines removed and added."""
    return (
        sum(len(change.before) for change in run if not change.equal),
        sum(len(change.after) for change in run if not change.equal),
    )


def _lines(number: int) -> str:
    return f"{number} line{'' if number == 1 else 's'}"


def terminal(pairs: Iterable[tuple[str, str, str]], color: bool = True) -> Iterator[str]:
    """Lines of a diff per pass; ``pairs`` are (pass, IR before, IR after), as ``Instrumentation.pairs`` gives them."""

    def paint(style: str, line: str) -> str:
        return f"{style}{line}{_PLAIN}" if color else line

    for name, before, after in pairs:
        found = changes(before, after)
        removed, added = _count(found)
        if not removed and not added:
            yield paint(_DIM, f"== {name}: no change")
            continue
        yield paint(_BOLD, f"== {name}: {_lines(removed)} removed, {added} added")
        for index, change in enumerate(found):
            if not change.equal:
                yield from (paint(_RED, f"- {line}") for line in change.before)
                yield from (paint(_GREEN, f"+ {line}") for line in change.after)
                continue
            # Of what stays, the lines next to a change.
            head = change.after[:_CONTEXT] if index else ()
            tail = change.after[-_CONTEXT:] if index + 1 < len(found) else ()
            if len(head) + len(tail) >= len(change.after):
                head, tail = change.after if head or tail else (), ()
            hidden = len(change.after) - len(head) - len(tail)
            yield from (f"  {line}" for line in head)
            if hidden:
                yield paint(_DIM, f"  ... {_lines(hidden)} ...")
            yield from (f"  {line}" for line in tail)


_STYLE = """
:root { color-scheme: light dark; --red: #d9342b22; --green: #1a7f3722; --line: #8884; --dim: #888; }
body { margin: 0; font: 14px/1.45 system-ui, sans-serif; display: grid; grid-template-columns: 17rem 1fr; }
nav { position: sticky; top: 0; height: 100vh; overflow: auto; border-right: 1px solid var(--line); padding: 1rem;
      box-sizing: border-box; }
nav h1 { font-size: 1rem; overflow-wrap: anywhere; } nav a { display: flex; color: inherit; text-decoration: none;
      padding: .15rem 0; justify-content: space-between; gap: .5rem; } nav a:hover { text-decoration: underline; }
nav a.same { color: var(--dim); } nav small { white-space: nowrap; color: var(--dim); }
main { padding: 0 1.5rem 4rem; min-width: 0; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; table-layout: fixed; font: 12px/1.5 ui-monospace, monospace; }
td { vertical-align: top; white-space: pre-wrap; overflow-wrap: anywhere; padding: 0 .5rem; width: 50%; }
td + td { border-left: 1px solid var(--line); } td.red { background: var(--red); }
td.green { background: var(--green); }
summary { color: var(--dim); cursor: pointer; font: 12px ui-monospace, monospace; padding: .1rem .5rem; }
p { color: var(--dim); }
"""


def page(title: str, pairs: Iterable[tuple[str, str, str]]) -> str:
    """The diffs side by side as one HTML page that needs nothing else."""
    links, sections = [], []
    for number, (name, before, after) in enumerate(pairs, 1):
        found = changes(before, after)
        removed, added = _count(found)
        size = f"&minus;{removed} +{added}" if removed or added else "same"
        links.append(
            f'<a href="#p{number}" class="{"same" if size == "same" else ""}">'
            f"<span>{number}. {html.escape(name)}</span><small>{size}</small></a>"
        )
        body = "".join(_rows(change, index, len(found)) for index, change in enumerate(found))
        sections.append(
            f'<h2 id="p{number}">{number}. {html.escape(name)}</h2>' + (body if size != "same" else "<p>no change</p>")
        )
    title = html.escape(title)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>\n'
        f"<nav><h1>{title}</h1>{''.join(links)}</nav>\n<main>{''.join(sections)}</main></html>\n"
    )


def _rows(change: Change, index: int, number: int) -> str:
    """One run of lines as a table; the middle of a long run that stays is folded away."""
    if not change.equal:
        height = max(len(change.before), len(change.after))
        left = [*change.before, *[None] * (height - len(change.before))]
        right = [*change.after, *[None] * (height - len(change.after))]
        return _table(zip(left, right, strict=True), "red", "green")
    pairs = list(zip(change.before, change.after, strict=True))
    head, tail = (_CONTEXT if index else 0), (_CONTEXT if index + 1 < number else 0)
    if len(pairs) <= head + tail + 2:
        return _table(pairs)
    middle = pairs[head : len(pairs) - tail]
    return (
        _table(pairs[:head])
        + f"<details><summary>{_lines(len(middle))}</summary>{_table(middle)}</details>"
        + _table(pairs[len(pairs) - tail :])
    )


def _table(pairs: Iterable[tuple[str | None, str | None]], left: str = "", right: str = "") -> str:
    rows = "".join(f"<tr>{_cell(a, left)}{_cell(b, right)}</tr>" for a, b in pairs)
    return f"<table>{rows}</table>" if rows else ""


def _cell(line: str | None, style: str) -> str:
    return (
        "<td></td>"
        if line is None
        else f'<td class="{style}">{html.escape(line)}</td>'
        if style
        else f"<td>{html.escape(line)}</td>"
    )
