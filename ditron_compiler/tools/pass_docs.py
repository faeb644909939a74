"""What each pass says of itself: the command ``ditron passes`` and the page docs/passes.md are made of this."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from typing import Any

from ditron_compiler import passes, pipeline

__all__ = ["describe", "markdown", "overview"]

_LITERAL = re.compile(r"^(?P<lead>.*)::\n\n(?P<block>(?:(?: {4}.*)?\n)+)", re.MULTILINE)


def _options(cls: type) -> list[tuple[str, str, Any, str]]:
    """(name on the command line, type, default, help) of each option."""
    return [
        (field.name.replace("_", "-"), type(field.default).__name__, field.default, field.metadata.get("help", ""))
        for field in dataclasses.fields(cls)
    ]


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) if value != "" else '""'


def _body(cls: type) -> str:
    """The docstring after its first line."""
    return inspect.cleandoc(cls.__doc__ or "").partition("\n")[2].strip("\n")


def _where(name: str) -> str:
    """The pipelines that a pass stands in."""
    found = [
        title
        for title, entries in pipeline.named().items()
        if any(entry.partition("{")[0] == name for entry in entries)
    ]
    return ", ".join(found)


def overview() -> str:
    """A line per pass: name, summary."""
    found = passes.register_all()
    width = max(map(len, found))
    lines = [f"{name:<{width}}  {cls.summary()}" for name, cls in found.items()]
    if others := [name for name in found if name not in passes.PASSES]:
        lines.append(f"\nof other packages: {', '.join(others)}")
    return "\n".join(lines)


def describe(name: str) -> str:
    """Everything about one pass, for a terminal; LookupError when there is none of that name."""
    cls = passes.load(name)
    lines = [f"{name}: {cls.summary()}", ""]
    if body := _body(cls):
        lines += [body, ""]
    lines.append(
        f"runs on {cls.anchor or 'any operation'}"
        + (f"; in the pipelines {where}" if (where := _where(name)) else "; in no pipeline")
    )
    for option, kind, default, text in _options(cls):
        lines.append(f"  {option}={kind}, default {_spelled(default)}" + (f": {text}" if text else ""))
    lines.append(f"source: {inspect.getsourcefile(cls)}")
    return "\n".join(lines)


def markdown() -> str:
    """The page docs/passes.md: our own passes, in the order of the registry."""
    parts = [
        "# Passes",
        "Written by `docs/generate_passes.py` from the passes themselves. `ditron passes` lists them, "
        "`ditron passes NAME`\nshows one; MLIR's own (canonicalize, cse ...) are as upstream documents them.\n"
        "[Write a pass](tutorials/write-a-pass.md) shows how to add one.",
        "## Pipelines",
        _pipelines(),
    ]
    parts += [_section(name) for name in passes.PASSES]
    return "\n\n".join(parts) + "\n"


def _pipelines() -> str:
    rows = [
        (title, " → ".join(f"`{entry.partition('{')[0]}`" for entry in entries))
        for title, entries in pipeline.named().items()
    ]
    return "\n".join(["| pipeline | passes |", "|---|---|", *(f"| `{title}` | {chain} |" for title, chain in rows)])


def _section(name: str) -> str:
    cls = passes.load(name)
    parts = [f"## {name}", cls.summary()]
    if body := _body(cls):
        parts.append(
            _LITERAL.sub(
                lambda m: f"{m['lead']}:\n\n```mlir\n{textwrap.dedent(m['block']).strip()}\n```\n\n", body + "\n"
            ).strip()
        )
    if options := _options(cls):
        parts.append(
            "\n".join(
                [
                    "| option | type | default | |",
                    "|---|---|---|---|",
                    *(f"| `{o}` | {kind} | `{_spelled(default)}` | {text} |" for o, kind, default, text in options),
                ]
            )
        )
    return "\n\n".join(parts)
