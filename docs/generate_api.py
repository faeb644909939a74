"""Write docs/api.md from the docstrings of what the packages export, or say whether it is stale.

python docs/generate_api.py           writes the page
python docs/generate_api.py --check   exits 1 when the page is not what would be written, or a docstring is missing
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).resolve().parent / "api.md"

#: Packages whose ``__all__`` is the API, and how programs import them.
ROOMS = {
    "ditron": "import ditron",
    "ditron.language": "import ditron.language as dl",
    "ditron.cost_model": "from ditron import cost_model",
    "ditron.host": "import ditron.host as dh",
    "ditron.kernels": "from ditron import kernels",
    "ditron.machines": "from ditron import machines",
    "ditron.nn": "from ditron import nn",
    "ditron.sim": "from ditron import sim",
    "ditron.tuning": "from ditron import tuning",
    "ditron_compiler": "import ditron_compiler",
    "ditron_compiler.pass_registry": "from ditron_compiler import pass_registry",
    "ditron_compiler.passes": "from ditron_compiler import passes",
    "ditron_compiler.pipeline": "from ditron_compiler import pipeline",
}
_HIDDEN = {"_semantic", "_generator", "self"}  # parameters that callers do not give
_WIDTH = 110
_FENCE = "```py"  # not "python": these are fragments, and the tests run what is


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="do not write; exit 1 when the page is stale")
    check = parser.parse_args().check
    lacking = list(undocumented())
    for name in lacking:
        print(f"{name} has no docstring", file=sys.stderr)
    text = markdown()
    if not check:
        PAGE.write_text(text)
    elif not PAGE.is_file() or PAGE.read_text() != text:
        print(f"{PAGE.name} is stale: run python docs/generate_api.py", file=sys.stderr)
        return 1
    return 1 if lacking else 0


def exported(room: str) -> Iterator[tuple[str, Any]]:
    """The names that a package exports, with what they are, in order; packages that have a room come first."""
    module = importlib.import_module(room)
    names = sorted(module.__all__, key=lambda name: (f"{room}.{name}" not in ROOMS, name.lower(), name))
    yield from ((name, getattr(module, name)) for name in names)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself, in the order of their names."""
    for name, value in sorted(vars(cls).items()):
        value = getattr(value, "__func__", value)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield name, value


def undocumented() -> Iterator[str]:
    """What is exported and has no docstring of its own."""
    for room in ROOMS:
        if not importlib.import_module(room).__doc__:
            yield room
        for name, value in exported(room):
            if _is_code(value) and not _docstring(value):
                yield f"{room}.{name}"
            if inspect.isclass(value):
                yield from (f"{room}.{name}.{key}" for key, member in members(value) if not _docstring(member))


def markdown() -> str:
    """The page."""
    lines = [
        "# Python API",
        "",
        "Written by `docs/generate_api.py` from the docstrings of what the packages export. Guides:",
        "[kernels](guide.md), [host programs](programs.md), [operators](operators.md), [simulator](simulator.md).",
        "",
    ]
    for room in ROOMS:
        lines += [f"- [`{room}`](#{_anchor(room)}): {_first_line(importlib.import_module(room))}"]
    for room, imported in ROOMS.items():
        lines += ["", f"## {room}", "", _FENCE, imported, "```", ""]
        lines += _text(importlib.import_module(room).__doc__ or "")
        entries = list(exported(room))
        lines += ["", "| name | |", "| --- | --- |"]
        lines += [f"| `{name}` | {_cell(room, name, value)} |" for name, value in entries]
        for name, value in entries:
            if _is_code(value):
                lines += ["", *_entry(room, name, value)]
    return "\n".join(lines).rstrip() + "\n"


def _is_code(value: Any) -> bool:
    """Whether it has an entry: a function or a class, and no module or constant."""
    return inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__")


def _docstring(value: Any) -> str:
    """Its own docstring: that of a base class, or what a dataclass generates, is none."""
    text = value.__dict__.get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    name = getattr(value, "__name__", "")
    return "" if not text or inspect.isclass(value) and text.startswith(f"{name}(") else inspect.cleandoc(text)


def _first_line(value: Any) -> str:
    """The first sentence or paragraph of its docstring."""
    paragraph = " ".join(inspect.cleandoc(value.__doc__ or "").partition("\n\n")[0].split())
    return _inline(paragraph.split(". ")[0].rstrip("."))


def _cell(room: str, name: str, value: Any) -> str:
    if _is_code(value):
        return _first_line(value).replace("|", "\\|")
    if not isinstance(value, ModuleType):
        return f"`{value}`" if isinstance(value, str) else "a constant"
    first = _first_line(value).replace("|", "\\|")
    return f"[{first}](#{_anchor(f'{room}.{name}')})" if f"{room}.{name}" in ROOMS else first


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _entry(room: str, name: str, value: Any) -> Iterator[str]:
    """Heading, signature and docstring; of a class, its members too."""
    yield f"### {room}.{name}"
    yield ""
    is_error = inspect.isclass(value) and issubclass(value, BaseException)
    if not is_error:
        yield from (_FENCE, *_signature(name, value), "```", "")
    elif value.__bases__[0] is not Exception:
        yield from (f"An exception, `{value.__bases__[0].__name__}`.", "")
    yield from _text(_docstring(value))
    if inspect.isclass(value):
        for key, member in members(value):
            yield ""
            if isinstance(member, property):
                yield f"**`{name}.{key}`**"
            else:
                yield f"**`{' '.join(''.join(_signature(f'{name}.{key}', member, 10_000)).split())}`**"
            yield ""
            yield from _text(_docstring(member))


def _signature(name: str, value: Any, width: int = _WIDTH) -> list[str]:
    """A call as it is declared; over several lines where it is long."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return [name]
    parameters, kinds = [], inspect.Parameter
    seen_star = False
    listed = [p for p in signature.parameters.values() if p.name not in _HIDDEN]
    for index, parameter in enumerate(listed):
        if parameter.kind is kinds.VAR_POSITIONAL:
            seen_star = True
        elif parameter.kind is kinds.KEYWORD_ONLY and not seen_star:
            parameters.append("*")
            seen_star = True
        parameters.append(_parameter(parameter))
        last = index + 1 == len(listed) or listed[index + 1].kind is not kinds.POSITIONAL_ONLY
        if parameter.kind is kinds.POSITIONAL_ONLY and last:
            parameters.append("/")
    returns = signature.return_annotation
    arrow = (
        "" if returns in (inspect.Signature.empty, "None", None) or inspect.isclass(value) else f" -> {_type(returns)}"
    )
    one = f"{name}({', '.join(parameters)}){arrow}"
    if len(one) <= width:
        return [one]
    return [f"{name}(", *(f"    {parameter}," for parameter in parameters), f"){arrow}"]


def _parameter(parameter: inspect.Parameter) -> str:
    prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = prefix + parameter.name
    if parameter.annotation not in (parameter.empty, "Any", Any):
        text += f": {_type(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return text
    default = parameter.default
    shown = getattr(default, "__name__", None) if callable(default) else re.sub(r" at 0x[0-9a-f]+", "", repr(default))
    return f"{text} = {shown}" if ":" in text else f"{text}={shown}"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace("typing.", "").replace("collections.abc.", "")


def _inline(text: str) -> str:
    """Markup of docstrings as Markdown's."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda match: f"`{match[1].strip('.').rpartition('.')[2]}`", text)
    return text.replace("``", "`")


def _text(docstring: str) -> list[str]:
    """A docstring as Markdown: lists of arguments become lists, indented examples blocks."""
    lines: list[str] = []
    listing = code = False
    for line in [*docstring.rstrip().splitlines(), ""]:
        indent = len(line) - len(line.lstrip())
        if code and line.strip() and indent < 4:
            while lines[-1] == "":
                lines.pop()
            lines += ["```", ""]
            code = False
        if listing and line.strip() and indent < 4:
            listing = False
            if lines[-1] != "":
                lines.append("")
        if code:
            lines.append(line[4:])
        elif re.fullmatch(r"(Args|Attributes|Returns|Raises):", line):
            listing = True
            lines += [f"{line}", ""]
        elif listing:
            lines.append(
                f"- {_inline(line.strip())}" if indent == 4 else f"  {_inline(line.strip())}" if line.strip() else ""
            )
        elif indent >= 4 and lines and lines[-1] == "":
            code = True
            lines += [_FENCE, line[4:]]
        else:
            lines.append(_inline(line))
    if code:
        while lines[-1] == "":
            lines.pop()
        lines.append("```")
    while lines and lines[-1] == "":
        lines.pop()
    return lines


if __name__ == "__main__":
    sys.exit(main())
