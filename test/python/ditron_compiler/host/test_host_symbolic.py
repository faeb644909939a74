"""What passes believe of numbers and parts of buffers is true on every rank of every small group."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ditron_compiler import host, ir
from ditron_compiler.analysis.buffer_effects import buffer_region
from ditron_compiler.analysis.host_expressions import (
    NUM_RANKS,
    RANK,
    Interval,
    at_least,
    expression,
    never_equal,
    remainder,
)
from ditron_compiler.analysis.linear import Polynomial

RANK_, RANKS = Polynomial.symbol(RANK), Polynomial.symbol(NUM_RANKS)
LEAVES = ("%rank", "%ranks", "%i", "%c1", "%c2", "%rows")
HEADER = """
"tt.func"() <{sym_name = "k", function_type = (i64, i64) -> ()}> ({
^bb0(%x: i64, %y: i64):
  "tt.return"() : () -> ()
}) : () -> ()
ditron.program @p(%a: !ditron.buffer<?xf32>, %b: !ditron.buffer<?xf32>) {
  %c0 = arith.constant 0 : i64
  %c1 = arith.constant 1 : i64
  %c2 = arith.constant 2 : i64
  %r = ditron.rank
  %rank = arith.extsi %r : i32 to i64
  %n = ditron.num_ranks
  %ranks = arith.extsi %n : i32 to i64
  %rows = ditron.dim %b[0] : <?xf32>
"""


@st.composite
def numbers(draw, depth: int = 3) -> tuple:
    """A tree of arithmetic; remainders are by the number of ranks, as in programs."""
    if depth == 0 or draw(st.booleans()):
        return (draw(st.sampled_from(LEAVES)),)
    op = draw(st.sampled_from(("addi", "subi", "muli", "remsi")))
    if op == "remsi":
        return op, draw(numbers(depth - 1)), ("%ranks",)
    return op, draw(numbers(depth - 1)), draw(numbers(depth - 1))


def emit(tree: tuple, lines: list[str]) -> str:
    if len(tree) == 1:
        return tree[0]
    a, b = (emit(part, lines) for part in tree[1:])
    lines.append(f"%t{len(lines)} = arith.{tree[0]} {a}, {b} : i64")
    return f"%t{len(lines) - 1}"


def program(first: str, use: str, *trees: tuple) -> str:
    """A loop from ``first`` to the number of ranks in which ``use`` is done with two numbers."""
    lines: list[str] = []
    x, y = (emit(tree, lines) for tree in trees)
    body = "\n".join([*lines, use.format(x=x, y=y)])
    return f"{HEADER}scf.for %i = {first} to %ranks step %c1 : i64 {{\n{body}\n}}\n}}"


def found(module: ir.Module, name: str) -> list[ir.Operation]:
    operations: list[ir.Operation] = []
    module.operation.walk(lambda op: operations.append(op) if op.name == name else None)
    return operations


def steps(module: ir.Module, most: int = 5, rows: int = 3):
    """What every rank of every group of up to ``most`` ranks does."""
    evaluator = host.Evaluator(found(module, "ditron.program")[0])
    arguments = (((1000,), (1,), "f32"), ((rows,), (1,), "f32"))
    for ranks in range(1, most + 1):
        for rank in range(ranks):
            for step in evaluator(host.RankPlacement(rank, ranks, rank, ranks, 0), arguments, 1).steps:
                yield ranks, step


LAUNCH = "ditron.launch @k grid(1) ({x}, {y}) : (i64, i64)"


@settings(max_examples=300, deadline=None)
@given(numbers(), numbers(), st.sampled_from(("%c0", "%c1")), st.integers(-2, 3))
def test_numbers(a, b, first, bound):
    with ir.Context():
        module = ir.Module.parse(program(first, LAUNCH, a, b))
        x, y = (expression(value) for value in found(module, "ditron.launch")[0].args)
        differ, least, equal = never_equal(x, y), at_least(x, bound), x == y
        for ranks, step in steps(module):
            # In a group of one, nobody is another rank.
            assert not differ or ranks == 1 or step.args[0] != step.args[1]
            assert not least or step.args[0] >= bound
            assert not equal or step.args[0] == step.args[1]


SLICES = """%s = ditron.slice %a[{x}] [%rows] : <?xf32> to <?xf32>
%t = ditron.slice %a[{y}] [%rows] : <?xf32> to <?xf32>
ditron.copy %s to %t : <?xf32> to <?xf32>"""


@settings(max_examples=300, deadline=None)
@given(numbers(2), numbers(2), st.booleans(), st.booleans(), st.sampled_from(("%c0", "%c1")))
def test_parts_of_buffers(a, b, whole_a, whole_b, first):
    """Chunks, whole or not, are apart or one within the other when that is said."""
    trees = [("muli", tree, ("%rows",)) if whole else tree for tree, whole in ((a, whole_a), (b, whole_b))]
    with ir.Context():
        module = ir.Module.parse(program(first, SLICES, *trees))
        s, t = (buffer_region(op.results[0]) for op in found(module, "ditron.slice"))
        apart, within = s.is_disjoint(t), s.contains(t)
        try:
            copies = list(steps(module))
        except host.EvaluationError:
            assume(False)  # a part that is not in the buffer
        for ranks, copy in copies:
            x, y = (range(end.offset, end.offset + end.shape[0]) for end in (copy.src, copy.dst))
            assert not apart or ranks == 1 or not set(x) & set(y)
            assert not within or set(y) <= set(x)


def test_what_has_to_be_known():
    """The facts that the passes live on."""
    step = Polynomial.symbol(Interval(Polynomial.constant(1), RANKS - 1))
    left, peer = remainder(RANK_ + RANKS - 1, RANKS), remainder(RANK_ - step + RANKS, RANKS)
    assert remainder(RANK_, RANKS) == RANK_
    assert remainder(remainder(RANK_ + step, RANKS) - step, RANKS) == RANK_
    assert never_equal(RANK_, left) and never_equal(RANK_, peer)
    assert not never_equal(left, peer)
    earlier = Polynomial.symbol(Interval(Polynomial.constant(0), Polynomial.symbol("iteration") - 1))
    assert never_equal(earlier, Polynomial.symbol("iteration"))
    assert at_least(peer, 0) and at_least(RANKS - 1 - peer, 0) and not at_least(peer, 1)
    assert not at_least(RANKS, 2)
