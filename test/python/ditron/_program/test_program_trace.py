"""Tracing a Python function into a ditron.program: the IR it becomes."""

import _thread
import operator
import re
import textwrap
import time
from pathlib import Path

import pytest
import torch
from traced_programs import scale, trace, wait_for

import ditron
import ditron.host as dh
from ditron.kernels.ag_gemm import ag_gemm_program
from ditron_compiler import ir

HERE = Path(__file__)


def program_text(module) -> str:
    """The text of the program alone, without locations."""
    text = module.operation.get_asm(enable_debug_info=False)
    return textwrap.dedent(text[text.index("  ditron.program") :].split("\n  }\n")[0] + "\n  }").strip()


def operations(module, name: str) -> list:
    found = []
    module.operation.walk(lambda op: found.append(op) if op.name == name else None)
    return found


def line_of(comment: str) -> int:
    return next(i for i, text in enumerate(HERE.read_text().splitlines(), 1) if text.endswith(f"# {comment}"))


def test_ir():
    def ring(x, out):
        rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
        rows, cols = x.shape
        boxes = dh.symm_empty(ranks, rows, cols, dtype=x.dtype, name="boxes")
        full = dh.symm_zeros(ranks, dtype=torch.int64, name="full")
        copy = dh.stream("copy")
        for step in dh.range(1, ranks):
            peer = (rank - step) % ranks
            dh.rank_copy(x, boxes[rank], peer, stream=copy)
            dh.signal_write(full[rank], epoch, peer, stream=copy)
        with dh.when(rank == 0):
            dh.copy(x, out)
        sent = dh.record(copy)
        dh.await_event(sent)
        dh.signal_wait(full[(rank + 1) % ranks], epoch)
        scale[(dh.cdiv(rows * cols, 64),)](boxes[(rank + 1) % ranks], out, rows * cols, 2.0, BLOCK=64, num_warps=2)

    assert program_text(trace(ring)) == textwrap.dedent("""\
        ditron.program @ring(%x: !ditron.buffer<?x?xf32>, %out: !ditron.buffer<?x?xf32>) {
          %cst = arith.constant 2.000000e+00 : f32
          %c64_i64 = arith.constant 64 : i64
          %c0_i64 = arith.constant 0 : i64
          %c1_i64 = arith.constant 1 : i64
          %epoch = ditron.epoch
          %num_ranks = ditron.num_ranks
          %0 = arith.extsi %num_ranks : i32 to i64
          %rank = ditron.rank
          %1 = arith.extsi %rank : i32 to i64
          %dim = ditron.dim %x[0] : <?x?xf32>
          %dim_0 = ditron.dim %x[1] : <?x?xf32>
          %boxes = ditron.alloc "boxes" [%0, %dim, %dim_0] : <?x?x?xf32, symmetric>
          %full = ditron.alloc "full" [%0] zeroed : <?xi64, symmetric>
          %copy = ditron.stream "copy"
          scf.for %arg0 = %c1_i64 to %0 step %c1_i64  : i64 {
            %8 = arith.subi %1, %arg0 : i64
            %9 = arith.floordivsi %8, %0 : i64
            %10 = arith.muli %9, %0 : i64
            %11 = arith.subi %8, %10 : i64
            %slice_1 = ditron.slice %boxes[%1, 0, 0] [1, %dim, %dim_0] : <?x?x?xf32, symmetric> to <?x?xf32, symmetric>
            ditron.rank_copy %x to %slice_1 on %11 stream %copy : <?x?xf32> to <?x?xf32, symmetric>
            ditron.signal_write %full[%1] set %epoch on %11 stream %copy : <?xi64, symmetric>
          }
          %2 = arith.cmpi eq, %1, %c0_i64 : i64
          scf.if %2 {
            ditron.copy %x to %out : <?x?xf32> to <?x?xf32>
          }
          %event = ditron.record stream %copy
          ditron.await %event
          %3 = arith.addi %1, %c1_i64 : i64
          %4 = arith.remsi %3, %0 : i64
          ditron.signal_wait %full[%4] ge %epoch : <?xi64, symmetric>
          %5 = arith.muli %dim, %dim_0 : i64
          %6 = arith.ceildivsi %5, %c64_i64 : i64
          %slice = ditron.slice %boxes[%4, 0, 0] [1, %dim, %dim_0] : <?x?x?xf32, symmetric> to <?x?xf32, symmetric>
          %7 = arith.trunci %5 : i64 to i32
          ditron.launch @scale grid(%6) (%slice, %out, %7, %cst) options {num_warps = 2 : i64} : \
(!ditron.buffer<?x?xf32, symmetric>, !ditron.buffer<?x?xf32>, i32, f32)
        }""")


def test_the_text_is_a_module_again():
    def shift(x, out):
        dh.copy(x, out)
        scale[(1,)](x, out, x.shape[0], 3.0, BLOCK=64)

    text = trace(shift).operation.get_asm(enable_debug_info=True)
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        assert ir.Module.parse(text).operation.get_asm(enable_debug_info=True) == text


def test_every_operation_has_the_users_line():
    def placed(x, out):
        box = dh.symm_empty(*x.shape, dtype=x.dtype)
        for peer in dh.range(dh.num_ranks()):
            dh.rank_copy(x, box, peer)  # copied here

        dh.copy(box, out)  # and here

    module = trace(placed)
    for name, comment in (("ditron.rank_copy", "copied here"), ("ditron.copy", "and here")):
        [op] = operations(module, name)
        assert op.location.file_line_col[:2] == (str(HERE), line_of(comment))


def test_a_helper_is_part_of_the_program():
    def send(x, box, peer):
        dh.rank_copy(x, box, peer)  # in the helper

    def helped(x, out):
        box = dh.symm_empty(*x.shape, dtype=x.dtype)
        send(x, box, 0)
        send(x, box, 1)

    assert {op.location.file_line_col[1] for op in operations(trace(helped), "ditron.rank_copy")} == {
        line_of("in the helper")
    }


@pytest.mark.parametrize("a,b", [(7, 3), (-7, 3), (0, 5), (-1, 4)])
def test_arithmetic_is_pythons(a, b):
    """Folded by MLIR, what is filled in is the result."""

    def compute(x, out, n, m):
        values = [
            n + m,
            n - m,
            n * m,
            n // m,
            n % m,
            dh.cdiv(n, m),
            dh.minimum(n, m),
            dh.maximum(n, m),
            -n,
            dh.where(n < m, n, m),
            dh.where((n >= 0) & ~(m == 3), 1, 0),
            dh.where((n > 100) | (m <= 3), 5, 6),
            n << 2,
            n >> 1,
            1 << m,
            n << (m & 3),
            n >> (m & 3),
            -9 >> m,
            n & m,
            n | m,
            n ^ m,
            6 & n,
            ~n,
            abs(n),
            *divmod(n, m),
        ]
        box = dh.empty(4, dtype=torch.int64)
        for value in values:
            dh.fill(box, value)

    expected = [
        a + b,
        a - b,
        a * b,
        a // b,
        a % b,
        -(-a // b),
        min(a, b),
        max(a, b),
        -a,
        a if a < b else b,
        int(a >= 0 and b != 3),
        5 if a > 100 or b <= 3 else 6,
        a << 2,
        a >> 1,
        1 << b,
        a << (b & 3),
        a >> (b & 3),
        -9 >> b,
        a & b,
        a | b,
        a ^ b,
        6 & a,
        ~a,
        abs(a),
        *divmod(a, b),
    ]
    module = trace(compute, "f32[64, 128]", "f32[64, 128]", a, b)
    with module.context, ir.Location.unknown():
        [program] = operations(module, "ditron.program")
        with ir.InsertionPoint.at_block_begin(program.regions[0].blocks[0]):
            for argument, value in zip(list(program.regions[0].blocks[0].arguments)[2:], (a, b), strict=True):
                constant = ir.Operation.create(
                    "arith.constant",
                    results=[argument.type],
                    attributes={"value": ir.IntegerAttr.get(argument.type, value)},
                )
                argument.replace_all_uses_with(constant.results[0])
        from ditron_compiler import pipeline

        pipeline.run(module, ("canonicalize",))
    constants = [op.operands[1].owner for op in operations(module, "ditron.fill")]
    filled = [ir.IntegerAttr(constant.attributes["value"]).value for constant in constants]
    assert filled == expected


def test_sums_of_products_are_seen_through():
    """A part of ``n`` rows has the size ``n``, whatever its offset: what passes compare."""

    def part(x, out, n):
        rank = dh.rank()
        dh.copy(x[rank * n : (rank + 1) * n], out[(rank + 2) * n - n : (2 + rank) * n])

    parts = operations(trace(part, "f32[64]", "f32[64]", 3), "ditron.slice")
    assert [str(op.operation).split("[")[2].split("]")[0] for op in parts] == ["%n", "%n"]


def test_kernels_are_specialized_by_what_is_known():
    def known(x, out):
        rows, cols = x.shape
        scale[(1,)](x, out, rows, 1.0, BLOCK=64)  # 64: divisible by 16
        scale[(1,)](x, out, rows + 1, 1.0, BLOCK=64)
        scale[(1,)](x, out, rows * 3, 1.0, BLOCK=64)  # as the first
        scale[(1,)](x[1:2], out, rows, 1.0, BLOCK=64)  # 128 columns of 4 bytes further: aligned still
        scale[(1,)](x[0, 1:], out, rows, 1.0, BLOCK=64)
        wait_for[(1,)](dh.symm_zeros(3, dtype=torch.int64)[1], dh.epoch())

    module = trace(known)
    launches = [re.search(r"@(\w+)", str(op))[1] for op in operations(module, "ditron.launch")]
    assert launches == ["scale", "scale_1", "scale", "scale", "scale_2", "wait_for"]
    texts = {
        ir.StringAttr(op.attributes["sym_name"]).value: str(op.attributes["arg_attrs"])
        for op in operations(module, "tt.func")
        if "arg_attrs" in op.attributes
    }
    assert texts["scale"].count("divisibility") == 3 and texts["scale_1"].count("divisibility") == 2
    assert texts["scale_2"].count("divisibility") == 2
    assert "i64" in str(operations(module, "ditron.launch")[-1]).split(":")[-1]


def test_traced_once_for_each_kind_of_arguments():
    traces = []

    @ditron.program
    def count(x, out, n, *, block=8):
        traces.append(block)
        dh.copy(x, out)

    def main():
        ditron.init()
        for rows, n, block in [(16, 3, 8), (32, 5, 8), (48, 16, 8), (32, 5, 4), (17, 3, 8)]:
            count(torch.zeros(rows), torch.zeros(rows), n, block=block)

    ditron.sim.run(main, ranks=1)
    assert traces == [8, 8, 4, 8]


def test_traced_once_for_any_size_of_what_is_not_specialized():
    """Numbers, extents of a tensor and of those in a tuple; results are those of the other specializations."""
    traces = []

    @ditron.program(do_not_specialize=("tables", "n"))
    def count(x, tables, n, out):
        traces.append(None)
        dh.copy(tables[0][:n], out[:n])
        dh.copy(x[n:], out[n:])

    def main():
        ditron.init()
        for rows, n in [(16, 3), (32, 16), (48, 16), (17, 5), (18, 16), (18, 1)]:
            x, table, out = torch.ones(rows), torch.arange(float(n + 2)), torch.zeros(rows)
            count(x, (table, torch.zeros(rows)), n, out)
            assert torch.equal(out, torch.cat([table[:n], x[n:]]))

    ditron.sim.run(main, ranks=1)
    assert len(traces) == 2  # of x and out


def test_nothing_is_assumed_of_what_is_not_specialized():
    def known(x, out, n):
        scale[(1,)](x, out, x.shape[0], 1.0, BLOCK=64)
        scale[(1,)](x, out, n, 1.0, BLOCK=64)
        scale[(1,)](x[1:], out, out.shape[0], 1.0, BLOCK=64)

    def divisible(**options):
        """Of each kernel, how many arguments it knows to be divisible by 16."""
        module = ditron.program(known, **options).module("f32[64, 16]", "f32[64]", 64)
        kernels = [op for op in operations(module, "tt.func") if "arg_attrs" in op.attributes]
        return [str(op.attributes["arg_attrs"]).count("divisibility") for op in kernels]

    assert divisible() == [3] and divisible(do_not_specialize="n") == [3, 2]
    assert divisible(do_not_specialize=["n", "out"]) == [3, 2]
    assert divisible(do_not_specialize=["x", "n"]) == [2, 2]


def test_traced_where_no_frame_is_the_callers():
    """As in a thread of autograd's, whose only Python frames are torch's and ours: an operator's gradient."""
    traced = []
    trace = operator.methodcaller("module")
    _thread.start_new_thread(traced.extend, (map(trace, [ag_gemm_program]),))
    end = time.monotonic() + 60
    while not traced and time.monotonic() < end:
        time.sleep(0.01)
    assert "ag_gemm_kernel" in str(traced[0])
