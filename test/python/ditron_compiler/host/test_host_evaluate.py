"""A host program becomes the steps of one rank: numbers, memory, control flow, and errors that name its line."""

from __future__ import annotations

import re

import pytest

from ditron_compiler import host, ir

VECTOR = ((8,), (1,), "f32")

KERNEL = """
"tt.func"() <{sym_name = "k", function_type = (!tt.ptr<f32>, i64) -> ()}> ({
^bb0(%p: !tt.ptr<f32>, %n: i64):
  "tt.return"() : () -> ()
}) : () -> ()
"""

AG_GEMM = """
"tt.func"() <{sym_name = "gemm", function_type =
  (!tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<i64>, i64) -> ()}> ({
^bb0(%a: !tt.ptr<bf16>, %b: !tt.ptr<bf16>, %c: !tt.ptr<bf16>, %s: !tt.ptr<i64>, %e: i64):
  "tt.return"() : () -> ()
}) : () -> ()
ditron.program @ag_gemm(%a: !ditron.buffer<?x?xbf16>, %b: !ditron.buffer<?x?xbf16>, %c: !ditron.buffer<?x?xbf16>) {
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %block = arith.constant 128 : i64
  %r = ditron.rank
  %rank = arith.extsi %r : i32 to i64
  %n = ditron.num_ranks
  %ranks = arith.extsi %n : i32 to i64
  %epoch = ditron.epoch
  %rows = ditron.dim %a[0] : <?x?xbf16>
  %k = ditron.dim %a[1] : <?x?xbf16>
  %m = arith.muli %ranks, %rows : i64
  %parity = arith.remsi %epoch, %two : i64
  %both = ditron.alloc "workspace" [2, %m, %k] : <2x?x?xbf16, symmetric>
  %arrived = ditron.alloc "arrived" [%ranks] zeroed : <?xi64, symmetric>
  %workspace = ditron.slice %both[%parity, 0, 0] [1, %m, %k] : <2x?x?xbf16, symmetric> to <?x?xbf16, symmetric>
  %row = arith.muli %rank, %rows : i64
  %own = ditron.slice %workspace[%row, 0] [%rows, %k] : <?x?xbf16, symmetric> to <?x?xbf16, symmetric>
  %copy = ditron.stream "copy"
  %begin = ditron.record
  ditron.await %begin stream %copy
  scf.for %step = %one to %ranks step %one : i64 {
    %down = arith.subi %rank, %step : i64
    %up = arith.addi %down, %ranks : i64
    %peer = arith.remsi %up, %ranks : i64
    ditron.rank_copy %a to %own on %peer stream %copy : <?x?xbf16> to <?x?xbf16, symmetric>
    ditron.signal_write %arrived[%rank] set %epoch on %peer stream %copy : <?xi64, symmetric>
  }
  %tiles = arith.ceildivsi %m, %block : i64
  ditron.launch @gemm grid(%tiles, 2) (%workspace, %b, %c, %arrived, %epoch) options {num_warps = 8 : i64}
    : (!ditron.buffer<?x?xbf16, symmetric>, !ditron.buffer<?x?xbf16>, !ditron.buffer<?x?xbf16>,
       !ditron.buffer<?xi64, symmetric>, i64)
}
"""


def place(rank: int = 0, num_ranks: int = 4) -> host.RankPlacement:
    return host.RankPlacement(rank, num_ranks, rank, num_ranks, 0)


def evaluator(text: str) -> host.Evaluator:
    with ir.Context():
        module = ir.Module.parse(text)
        return host.Evaluator(next(op for op in module.body.operations if op.name == "ditron.program"))


def run(
    body: str, arguments: str = "", given: tuple = (), at: host.RankPlacement | None = None, epoch: int = 1
) -> host.Evaluation:
    return evaluator(f"{KERNEL}ditron.program @p({arguments}) {{\n{body}\n}}")(at or place(), given, epoch)


def number(expression: str, arguments: str = "", given: tuple = (), **where: object) -> int:
    """The number that an expression is, as an argument of a launch."""
    evaluation = run(
        f'%memory = ditron.alloc "memory" [1] : <1xf32>\n{expression}\n'
        "ditron.launch @k grid(1) (%memory, %x) : (!ditron.buffer<1xf32>, i64)",
        arguments,
        given,
        **where,
    )
    return evaluation.steps[0].args[1]


def test_ag_gemm_on_a_rank():
    a, b, c = ((8, 64), (64, 1), "bf16"), ((64, 32), (32, 1), "bf16"), ((32, 32), (32, 1), "bf16")
    roots, steps = evaluator(AG_GEMM)(place(1), (a, b, c), 3)
    workspace, arrived = roots
    assert workspace == host.Storage("symmetric", "workspace", 0, (2, 32, 64), "bf16")
    assert arrived == host.Storage("symmetric", "arrived", 1, (4,), "i64", zeroed=True)
    kinds = [type(step).__name__ for step in steps]
    # The copy stream begins after what was on the program's, and that goes on after it.
    event = ["Record", "Await"]
    assert kinds == [*event, *event, *["RankCopy", "SignalWrite"] * 3, "Launch", *event]
    assert [(s.stream.name, s.event) for s in (*steps[:2], *steps[-2:])] == [("", 1), ("copy", 1), ("copy", 2), ("", 2)]
    copies = steps[4:10:2]
    assert [copy.peer for copy in copies] == [0, 3, 2]
    assert {copy.stream for copy in copies} == {host.StreamId("copy")}
    assert copies[0].src == host.BufferView(host.Storage("argument", "a", 0, (8, 64), "bf16"), 0, (8, 64), (64, 1))
    assert copies[0].dst == host.BufferView(workspace, 32 * 64 + 8 * 64, (8, 64), (64, 1)) and copies[0].push
    assert steps[5] == host.SignalWrite(
        host.BufferView(arrived, 1, (), ()), "set", 3, 0, stream=host.StreamId("copy"), loc=steps[5].loc
    )
    launch = steps[10]
    assert (launch.kernel, launch.grid, launch.stream) == ("gemm", (1, 2, 1), host.StreamId())
    assert launch.options == {"num_warps": 8}
    assert launch.args[0] == host.BufferView(workspace, 32 * 64, (32, 64), (64, 1)) and launch.args[4] == 3


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("divsi", -7, 2, -3),
        ("remsi", -7, 2, -1),
        ("floordivsi", -7, 2, -4),
        ("ceildivsi", 7, 2, 4),
        ("divui", 7, 2, 3),
        ("addi", 2**63 - 1, 1, -(2**63)),
        ("muli", 2**62, 4, 0),
        ("minsi", -1, 1, -1),
        ("minui", -1, 1, 1),
        ("maxsi", -1, 1, 1),
        ("shrsi", -8, 1, -4),
        ("shrui", -8, 60, 15),
        ("andi", 6, 3, 2),
        ("xori", 6, 3, 5),
        ("remui", -1, 10, (2**64 - 1) % 10),
        ("shli", 3, 2, 12),
        ("subi", 1, 3, -2),
        ("ori", 4, 1, 5),
    ],
)
def test_arithmetic_is_that_of_mlir(op, a, b, expected):
    assert number(f"%x = arith.{op} %a, %b : i64", "%a: i64, %b: i64", (a, b)) == expected


@pytest.mark.parametrize(
    ("predicate", "expected"), [("slt", 1), ("ult", 0), ("sge", 0), ("uge", 1), ("eq", 0), ("ne", 1)]
)
def test_comparisons(predicate, expected):
    body = f"%c = arith.cmpi {predicate}, %a, %b : i64\n%x = arith.extui %c : i1 to i64"
    assert number(body, "%a: i64, %b: i64", (-1, 1)) == expected


def test_true_is_minus_one_when_extended_with_its_sign():
    assert number("%c = arith.constant true\n%x = arith.extsi %c : i1 to i64") == -1
    assert number("%c = arith.constant true\n%x = arith.extui %c : i1 to i64") == 1


def test_narrow_numbers_wrap():
    assert number("%s = arith.addi %a, %a : i32\n%x = arith.extsi %s : i32 to i64", "%a: i32", (2**31 - 1,)) == -2


def test_who_am_i():
    at = host.RankPlacement(5, 8, 1, 4, 1, world_rank=13, world_size=16)
    for query, expected in {
        "rank": 5,
        "num_ranks": 8,
        "local_rank": 1,
        "num_local_ranks": 4,
        "node": 1,
        "rank team world": 13,
        "num_ranks team world": 16,
        "rank team node": 1,
    }.items():
        assert number(f"%q = ditron.{query}\n%x = arith.extsi %q : i32 to i64", at=at) == expected
    assert number("%x = ditron.epoch", epoch=7) == 7
    with pytest.raises(host.EvaluationError, match="the world of all ranks is not known here"):
        number("%q = ditron.rank team world\n%x = arith.extsi %q : i32 to i64")


def test_loops_carry_values_and_branches_choose():
    body = """%zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %two = arith.constant 2 : i64
    %x = scf.for %i = %zero to %n step %one iter_args(%sum = %zero) -> i64 : i64 {
      %half = arith.remsi %i, %two : i64
      %odd = arith.cmpi eq, %half, %one : i64
      %more = scf.if %odd -> i64 {
        %s = arith.addi %sum, %i : i64
        scf.yield %s : i64
      } else {
        scf.yield %sum : i64
      }
      scf.yield %more : i64
    }"""
    assert number(body, "%n: i64", (6,)) == 1 + 3 + 5
    assert number(body, "%n: i64", (0,)) == 0


def test_dimensions_and_strides_are_those_of_the_tensor():
    matrix = ((4, 6), (1, 4), "f32")
    assert number("%x = ditron.dim %a[1] : <?x?xf32>", "%a: !ditron.buffer<?x?xf32>", (matrix,)) == 6
    assert number("%x = ditron.stride %a[1] : <?x?xf32>", "%a: !ditron.buffer<?x?xf32>", (matrix,)) == 4


def test_slices_of_strided_tensors():
    body = """%s = ditron.slice %a[1, 2] [1, 3] : <4x6xf32> to <3xf32>
    %z = arith.constant 0.5 : f32
    ditron.fill %s, %z : <3xf32>"""
    (fill,) = run(body, "%a: !ditron.buffer<4x6xf32>", (((4, 6), (1, 4), "f32"),)).steps
    assert (fill.dst.offset, fill.dst.shape, fill.dst.strides, fill.value) == (1 + 2 * 4, (3,), (4,), 0.5)


def test_streams_and_events():
    body = """%two = arith.constant 2 : i64
    %ring = ditron.stream "ring"[%two]
    %e = ditron.record stream %ring
    %f = ditron.record
    ditron.await %e
    ditron.await %f stream %ring
    ditron.stream_barrier stream %ring"""
    steps = run(body).steps[2:-2]
    main, ring = host.StreamId(), host.StreamId("ring", 2)
    assert [(type(s), s.stream, getattr(s, "event", None)) for s in steps] == [
        (host.Record, ring, 0),
        (host.Record, main, 1),
        (host.Await, main, 0),
        (host.Await, ring, 1),
        (host.StreamBarrier, ring, None),
    ]


def test_signals_and_pulls():
    body = """%one = arith.constant 1 : i64
    %five = arith.constant 5 : i64
    %sig = ditron.alloc "sig" [2, 3] zeroed : <2x3xi64, symmetric>
    %s = ditron.alloc "s" [8] : <8xf32, symmetric>
    ditron.signal_write %sig[1, %one] add %five on %one : <2x3xi64, symmetric>
    ditron.signal_wait %sig[0, 2] eq %five : <2x3xi64, symmetric>
    ditron.rank_copy %s on %one to %a : <8xf32, symmetric> to <8xf32>"""
    write, wait, pull = run(body, "%a: !ditron.buffer<8xf32>", (VECTOR,)).steps
    assert (write.op, write.value, write.peer, write.signal.offset) == ("add", 5, 1, 4)
    assert (wait.cmp, wait.value, wait.signal.offset, wait.signal.shape) == ("eq", 5, 2, ())
    assert not pull.push and pull.src.storage.kind == "symmetric" and pull.dst.storage.kind == "argument"


def test_a_grid_of_nothing_is_no_step():
    body = """%x = arith.constant 1 : i64
    ditron.launch @k grid(%n, 2) (%a, %x) : (!ditron.buffer<8xf32>, i64)"""
    assert run(body, "%a: !ditron.buffer<8xf32>, %n: i64", (VECTOR, 0)).steps == []


def failure(body: str, arguments: str = "", given: tuple = ()) -> str:
    text = f"{KERNEL}ditron.program @p({arguments}) {{\n{body}\n}}"
    with pytest.raises(host.EvaluationError) as caught:
        evaluator(text)(place(), given, 1)
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "%s = ditron.slice %a[%n] [4] : <8xf32> to <4xf32>\nditron.copy %s to %s : <4xf32> to <4xf32>",
            "a slice of 'a' takes elements 6 to 10 of dimension 0, which has 8",
        ),
        (
            '%x = ditron.alloc "x" [%n] : <?xf32>\nditron.copy %a to %x : <8xf32> to <?xf32>',
            r"a part of 'a' of shape \[8\] cannot be copied to one of 'x' of shape \[6\]",
        ),
        (
            '%x = ditron.alloc "x" [8] : <8xf32, symmetric>\n'
            "ditron.rank_copy %a to %x on %n : <8xf32> to <8xf32, symmetric>",
            "there is no rank 6; the group has 4",
        ),
        (
            '%x = ditron.alloc "x" [4] : <4xi64, symmetric>\nditron.signal_wait %x[%n] ge %n : <4xi64, symmetric>',
            "there is no signal 6 in dimension 0 of 'x', which has 4",
        ),
        (
            '%x = ditron.alloc "x" [4] : <4xi64, symmetric>\nditron.signal_write %x[0] set %n on %n : <4xi64, symmetric>',
            "there is no rank 6",
        ),
        ("%z = arith.constant 0 : i64\n%x = arith.remsi %n, %z : i64", "6 is divided by zero"),
        (
            "%z = arith.constant 0 : i64\nscf.for %i = %z to %n step %z : i64 {\n}",
            "expected the step of a loop to be positive, got 0",
        ),
        (
            "%z = arith.constant 0 : i64\n%o = arith.constant 1 : i64\n%l = arith.constant 2000000 : i64\n"
            "scf.for %i = %z to %l step %o : i64 {\n}",
            "the loops of the program have more than 1000000 iterations",
        ),
        (
            '%m = arith.constant -1 : i64\n%y = arith.muli %n, %m : i64\n%x = ditron.alloc "x" [%y] : <?xf32>',
            r"'x' cannot have the shape \[-6\]",
        ),
        (
            "%m = arith.constant -1 : i64\n%y = arith.muli %n, %m : i64\n"
            "ditron.launch @k grid(%y) (%a, %n) : (!ditron.buffer<8xf32>, i64)",
            "@k cannot be launched on a grid of -6 x 1 x 1",
        ),
        (
            "%m = arith.constant 1000000000 : i64\n%y = arith.muli %n, %m : i64\n%x = arith.trunci %y : i64 to i32",
            "6000000000",
        ),
        ("%f = math.sqrt %h : f32", "'math.sqrt' cannot be evaluated: a program is made of host operations, arith"),
        (
            '%s = ditron.alloc "s" [4] : <4xi64, symmetric>\n%d = ditron.alloc "d" [32] : <32xf32, symmetric>\n'
            "ditron.all_gather %a into %d signal %s at %n : <8xf32>, <32xf32, symmetric>, <4xi64, symmetric>",
            "'ditron.all_gather' cannot be evaluated; run decompose-all-at-once or decompose-ring first",
        ),
    ],
)
def test_errors_say_what_is_wrong(body, says):
    text = failure(body, "%a: !ditron.buffer<8xf32>, %n: i64, %h: f32", (VECTOR, 6, 1.0))
    assert re.search(says, text), text


def test_errors_name_the_line():
    with ir.Context():
        module = ir.Module.parse("""ditron.program @p(%n: i64) {
          %x = arith.divsi %n, %n : i64 loc("model.py":12:8)
        }""")
        with pytest.raises(host.EvaluationError, match="^model.py:12:8: 0 is divided by zero"):
            host.evaluate(module.body.operations[0], place(), (0,))


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (
            "!ditron.buffer<8xf32>",
            ((4,), (1,), "f32"),
            r"expected argument 'a' to be !ditron.buffer<8xf32>, got shape \[4\] of f32",
        ),
        ("!ditron.buffer<?xf32>", ((4, 4), (4, 1), "f32"), r"got shape \[4, 4\] of f32"),
        ("!ditron.buffer<?xf32>", ((4,), (1,), "f16"), r"got shape \[4\] of f16"),
        ("!ditron.buffer<?xf32>", 3, "got the number 3"),
        ("i32", 2**40, "which does not fit"),
        ("i64", 1.5, "got 1.5"),
    ],
)
def test_arguments_are_checked(kind, given, says):
    assert re.search(says, failure("", f"%a: {kind}", (given,)))


def test_number_of_arguments():
    assert "@p takes 1 arguments, got 0" in failure("", "%a: i64", ())
