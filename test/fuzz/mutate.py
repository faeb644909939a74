"""Mutants of Python scripts: lines, numbers, names, arguments and imports are changed, as a typing error or a bad
merge would.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable

__all__ = ["MUTATIONS", "mutant"]


def _lines(text: str, random: random.Random) -> tuple[list[str], int]:
    """The lines, and the number of one that is not empty."""
    lines = text.splitlines(keepends=True)
    return lines, random.choice([n for n, line in enumerate(lines) if line.strip()])


def delete_line(text: str, random: random.Random) -> str:
    lines, at = _lines(text, random)
    return "".join(lines[:at] + lines[at + 1 :])


def duplicate_line(text: str, random: random.Random) -> str:
    lines, at = _lines(text, random)
    return "".join(lines[: at + 1] + lines[at:])


def swap_lines(text: str, random: random.Random) -> str:
    lines, at = _lines(text, random)
    other = min(at + 1, len(lines) - 1)
    lines[at], lines[other] = lines[other], lines[at]
    return "".join(lines)


def indent_line(text: str, random: random.Random) -> str:
    lines, at = _lines(text, random)
    lines[at] = lines[at][4:] if lines[at].startswith("    ") and random.random() < 0.7 else "    " + lines[at]
    return "".join(lines)


def change_number(text: str, random: random.Random) -> str:
    numbers = list(re.finditer(r"(?<![\w.])\d+(?![\w.])", text))
    if not numbers:
        return text
    found = random.choice(numbers)
    value = int(found[0])
    new = random.choice(
        [0, 1, -1, value + 1, value - 1, 2 * value, 1 << 31, 1 << 40, "None", "0.5", "'a'", "[]", "True"]
    )
    return text[: found.start()] + str(new) + text[found.end() :]


def rename(text: str, random: random.Random) -> str:
    """Use another name of the file in one place."""
    names = list(re.finditer(r"\b[A-Za-z_]\w*\b", text))
    first, second = random.choice(names), random.choice(names)
    return text[: first.start()] + second[0] + text[first.end() :]


def misspell(text: str, random: random.Random) -> str:
    found = random.choice(list(re.finditer(r"\b[A-Za-z_]\w+\b", text)))
    return text[: found.start()] + found[0][:-1] + text[found.end() :]


def drop_attribute(text: str, random: random.Random) -> str:
    found = list(re.finditer(r"\.[A-Za-z_]\w*", text))
    if not found:
        return text
    one = random.choice(found)
    return text[: one.start()] + text[one.end() :]


def change_arguments(text: str, random: random.Random) -> str:
    """Swap, drop or repeat arguments of a call."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.args]
    if not calls:
        return text
    call = random.choice(calls)
    how = random.choice(["swap", "drop", "repeat", "none"])
    if how == "swap" and len(call.args) > 1:
        first, second = random.sample(range(len(call.args)), 2)
        call.args[first], call.args[second] = call.args[second], call.args[first]
    elif how == "repeat":
        call.args.append(call.args[0])
    elif how == "none":
        call.args[random.randrange(len(call.args))] = ast.Constant(None)
    else:
        call.args.pop(random.randrange(len(call.args)))
    whole = ast.get_source_segment(text, call)
    return text.replace(whole, ast.unparse(call), 1) if whole else text


def change_keyword(text: str, random: random.Random) -> str:
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.keywords]
    if not calls:
        return text
    call = random.choice(calls)
    whole = ast.get_source_segment(text, call)
    keyword = random.choice(call.keywords)
    if random.random() < 0.5:
        call.keywords.remove(keyword)
    else:
        keyword.value = ast.Constant(random.choice([None, 0, "a", -1]))
    return text.replace(whole, ast.unparse(call), 1) if whole else text


def change_operator(text: str, random: random.Random) -> str:
    found = list(re.finditer(r" (\+|-|\*|//|%|<|>|==|!=|<=|>=|and|or) ", text))
    if not found:
        return text
    one = random.choice(found)
    new = random.choice(["+", "-", "*", "//", "%", "<", "==", "/", "@", "and"])
    return text[: one.start(1)] + new + text[one.end(1) :]


def remove_import(text: str, random: random.Random) -> str:
    found = list(re.finditer(r"^(import|from) [^\n]*\n", text, re.M))
    if not found:
        return text
    one = random.choice(found)
    return text[: one.start()] + text[one.end() :]


def cut(text: str, random: random.Random) -> str:
    """The file ends somewhere."""
    return text[: random.randrange(len(text))]


def insert_character(text: str, random: random.Random) -> str:
    at = random.randrange(len(text))
    return text[:at] + random.choice("()[]{}:,'\"@#\\\0\té=") + text[at:]


MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    delete_line,
    duplicate_line,
    swap_lines,
    indent_line,
    change_number,
    change_number,
    rename,
    rename,
    misspell,
    drop_attribute,
    change_arguments,
    change_arguments,
    change_keyword,
    change_operator,
    remove_import,
    cut,
    insert_character,
)


def mutant(text: str, seed: int) -> tuple[str, str]:
    """A mutant of a script that seed determines, and what was done."""
    chosen = random.Random(seed)
    for _ in range(100):
        mutation = chosen.choice(MUTATIONS)
        changed = mutation(text, chosen)
        if changed != text:
            return changed, mutation.__name__
    raise ValueError("nothing can be changed")
