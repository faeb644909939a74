"""Whether what host code does depends on a value that it has read: by its source, from the line that reads on.

A value that is printed, compared in an assert or returned to nobody decides nothing. One that a launch is given, or
that decides whether there is one, does; so does what cannot be seen.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

from ditron_compiler.source_location import is_user_code

__all__ = ["decides", "frames_of", "is_polled"]

_HEADERS = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.Match)
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What neither launches nor orders anything.
_NAMES = frozenset(
    "print len int float bool str repr range min max sum abs any all sorted list tuple dict set enumerate zip "
    "isinstance format round map reversed exit quit divmod hash id type getattr hasattr SystemExit ValueError "
    "RuntimeError AssertionError Exception".split()
)
_MODULES = frozenset("torch np numpy math sys os time random logging json re itertools functools operator".split())
_METHODS = frozenset(
    "item tolist numpy sum max min mean all any abs amax amin argmax argmin std var norm float int long double half "
    "bool cpu cuda clone detach to type view reshape flatten contiguous eq ne lt le gt ge equal allclose isfinite "
    "isnan unique nonzero sort cumsum rank num_ranks local_rank is_initialized format join append extend add update "
    "items keys values get split strip write flush size numel dim stride t transpose unsqueeze squeeze pow sqrt".split()
)
_COLLECTS = frozenset("append extend add update insert setdefault".split())


#: Of an expression: line and column of its begin, and of its end.
Place = tuple[int, int, int, int]
#: A frame of the user's: its code, its line, and the place of the expression that it has come to.
Frame = tuple[CodeType, int, Place]


def frames_of(frame: FrameType | None) -> list[Frame]:
    """The user's frames, from one outwards, of what is captured."""
    found: list[Frame] = []
    while frame is not None and frame.f_code.co_name != "captured_function":
        if is_user_code(frame.f_code):
            at = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
            line = frame.f_lineno
            place = (at[0] or line, at[2] or 0, at[1] or line, 10**6 if at[3] is None else at[3])
            found.append((frame.f_code, line, place))
        frame = frame.f_back
    return found


def decides(frames: Sequence[Frame]) -> bool:
    """Whether the value that is read at ``frames``, the innermost first, decides what follows."""
    for number, (code, _, place) in enumerate(frames):
        if code.co_name.startswith("<") and code.co_name != "<module>":
            continue  # a comprehension: its statement is the caller's
        found = _function(code)
        if found is None:
            return True
        tree, body = found
        use = _Use(tree, body, place)
        if use.decides or (use.leaves and any(_continues(*frame) for frame in frames[number + 1 :])):
            return True
        if not use.returned:
            return False
    return False


def is_polled(frames: Sequence[Frame]) -> bool:
    """Whether the value is read in a ``while`` loop."""
    for code, _, place in frames[:1]:
        found = _function(code)
        return found is not None and any(isinstance(statement, ast.While) for statement in _path(found[1], place))
    return False


def _continues(code: CodeType, _: int, place: Place) -> bool:
    """Whether a function may launch something after a place."""
    found = _function(code)
    return found is None or _more(found[0], found[1], place)


@lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def _function(code: CodeType) -> tuple[ast.Module, list[ast.stmt]] | None:
    """The file of a function, and its statements; None where there is no source."""
    linecache.checkcache(code.co_filename)
    tree = _parsed("".join(linecache.getlines(code.co_filename)))
    if tree is None or not tree.body:
        return None
    if code.co_name == "<module>":
        return tree, tree.body
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno:
                return tree, node.body
    return None


def _path(body: Sequence[ast.stmt], place: Place) -> list[ast.stmt]:
    """The statements around a place, the outermost first."""
    for statement in body:
        if _around(statement, place):
            return [statement, *_path(list(_inner(statement)), place)]
    return []


def _inner(statement: ast.stmt) -> Iterator[ast.stmt]:
    for name in ("body", "orelse", "finalbody"):
        yield from getattr(statement, name, [])
    for handler in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
        yield from handler.body


def _more(tree: ast.Module, body: Sequence[ast.stmt], place: Place) -> bool:
    """Whether a launch may follow a place: behind it, or in a loop around it."""
    loops = [s for s in _path(body, place) if isinstance(s, (ast.For, ast.While, ast.AsyncFor))]
    later = [s for top in body for s in ast.walk(top) if isinstance(s, ast.stmt) and s.lineno > place[2]]
    return _acts(tree, loops) or _acts(tree, [s for s in later if not isinstance(s, _FUNCTIONS)])


def _acts(tree: ast.Module, statements: Sequence[ast.stmt], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a statement may launch something."""
    return any(isinstance(node, ast.Call) and _launches(tree, node, seen) for s in statements for node in ast.walk(s))


def _launches(tree: ast.Module, call: ast.Call, seen: frozenset[str] = frozenset()) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        if function.id in _NAMES or function.id in seen:
            return False
        own = [node for node in tree.body if isinstance(node, _FUNCTIONS) and node.name == function.id]
        return not own or _acts(tree, own[-1].body, seen | {function.id})
    if isinstance(function, ast.Attribute):
        parts = []
        root: ast.expr = function
        while isinstance(root, ast.Attribute):
            parts.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name) and root.id in _MODULES:
            return "ops" in parts
        return function.attr not in _METHODS
    return True


class _Use:
    """Attributes:

    decides: a launch depends on the value that a line reads. leaves: it decides whether the function is left.
    returned: the caller has it.
    """

    def __init__(self, tree: ast.Module, body: list[ast.stmt], place: Place):
        self.tree, self.body = tree, body
        self.decides = self.leaves = self.returned = False
        self._unknown: set[str] = set()
        self._read = place
        path = _path(body, place)
        if not path:
            self.decides = True
            return
        self._statement(path[-1], lambda node: node is not None and _around(node, place))
        before: set[str] | None = None
        while self._unknown != before and not self.decides:
            before = set(self._unknown)
            for top in body:
                for node in ast.walk(top):
                    if isinstance(node, ast.stmt):
                        self._statement(node, self._is_unknown)
                    elif isinstance(node, ast.comprehension) and self._is_unknown(node.iter):
                        self._unknown |= _names(node.target)

    def _is_unknown(self, node: ast.AST | None) -> bool:
        return node is not None and any(isinstance(n, ast.Name) and n.id in self._unknown for n in ast.walk(node))

    def _statement(self, statement: ast.stmt, is_unknown) -> None:
        if isinstance(statement, (ast.If, ast.While, ast.For, ast.AsyncFor)):
            header = statement.iter if isinstance(statement, (ast.For, ast.AsyncFor)) else statement.test
            if is_unknown(header):
                self._branch(statement)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            if is_unknown(statement.value):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                self._unknown |= set().union(*map(_names, targets))
        elif isinstance(statement, ast.Return):
            self.returned |= is_unknown(statement.value)
        elif isinstance(statement, _HEADERS):
            self.decides |= any(is_unknown(item.context_expr) for item in getattr(statement, "items", []))
            self.decides |= is_unknown(getattr(statement, "subject", None))
        if not isinstance(statement, (ast.Assert, *_HEADERS, *_FUNCTIONS, ast.ClassDef)):
            self._calls(statement, is_unknown)

    def _branch(self, statement: ast.If | ast.While | ast.For | ast.AsyncFor) -> None:
        inside = [*statement.body, *statement.orelse]
        self.decides |= _acts(self.tree, inside)
        nodes = [node for s in inside for node in ast.walk(s)]
        if any(isinstance(node, _LEAVES) or _exits(node) for node in nodes):
            self.decides |= _more(self.tree, self.body, _place(statement))
            self.leaves = True
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._unknown |= set().union(*map(_names, targets))

    def _calls(self, statement: ast.stmt, is_unknown) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _place(node) != self._read and is_unknown(node):
                self.decides |= _launches(self.tree, node)
                if isinstance(node.func, ast.Attribute) and node.func.attr in _COLLECTS:
                    self._unknown |= _names(node.func.value)


def _place(node: ast.AST) -> Place:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _around(node: ast.AST, place: Place) -> bool:
    """Whether a node is, or has as its part, the expression at ``place``."""
    at = _place(node)
    return at[:2] <= place[:2] and place[2:] <= at[2:]


def _exits(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return getattr(called, "attr", getattr(called, "id", "")) in ("exit", "_exit", "quit")


def _names(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
