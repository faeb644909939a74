"""The checker's arithmetic is the simulator's, and what it cannot follow it says."""

from __future__ import annotations

import random

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim
from ditron.cli import main
from ditron.protocol.api import check_function
from ditron_compiler.protocol import machine
from ditron_compiler.protocol.translate import translate_module
from ditron_compiler.sim_compiler import compile_module

BINARY = [
    "addi",
    "subi",
    "muli",
    "andi",
    "ori",
    "xori",
    "divsi",
    "remsi",
    "divui",
    "remui",
    "minsi",
    "maxsi",
    "minui",
    "maxui",
    "ceildivsi",
    "floordivsi",
]
PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]


def arithmetic() -> tuple[str, int]:
    """A kernel that stores what each operation makes of %a and %b, of i32, and of their low bytes extended."""
    lines, results = [], []
    for op in BINARY:
        lines.append(f"%{op} = arith.{op} %a, %b : i32")
        results.append(f"%{op}")
    for predicate in PREDICATES:
        lines += [
            f"%c{predicate} = arith.cmpi {predicate}, %a, %b : i32",
            f"%{predicate} = arith.extui %c{predicate} : i1 to i32",
            f"%n{predicate} = arith.extsi %c{predicate} : i1 to i32",
            f"%s{predicate} = arith.select %c{predicate}, %a, %b : i32",
        ]
        results += [f"%{predicate}", f"%n{predicate}", f"%s{predicate}"]
    for shift in ("shli", "shrsi", "shrui"):
        lines.append(f"%{shift} = arith.{shift} %a, %three : i32")
        results.append(f"%{shift}")
    lines.append("%byte = arith.trunci %a : i32 to i8")
    for extend in ("extsi", "extui"):
        lines.append(f"%b{extend} = arith.{extend} %byte : i8 to i32")
        results.append(f"%b{extend}")
    for number, result in enumerate(results):
        lines += [
            f"%i{number} = arith.constant {number} : i32",
            f'%p{number} = "tt.addptr"(%out, %i{number}) : (!tt.ptr<i32>, i32) -> !tt.ptr<i32>',
            f'"tt.store"(%p{number}, {result}) : (!tt.ptr<i32>, i32) -> ()',
        ]
    body = "\n".join(lines)
    return (
        f""""tt.func"() <{{function_type = (!tt.ptr<i32>, i32, i32) -> (), sym_name = "arithmetic"}}> ({{
      ^bb0(%out: !tt.ptr<i32>, %a: i32, %b: i32):
        %three = arith.constant 3 : i32
        {body}
        "tt.return"() : () -> ()
    }}) : () -> ()""",
        len(results),
    )


class Values:
    """A program that keeps what is stored."""

    def __init__(self):
        self.stored = []

    def write(self, number, pointer, mask, value):
        self.stored.append((int(value) + 2**31) % 2**32 - 2**31)


def test_arithmetic_is_the_simulators():
    text, count = arithmetic()
    kernel, compiled = translate_module(text), compile_module(text)
    rng = random.Random(0)
    pairs = [
        (rng.choice((rng.randint(-9, 9), rng.randint(-(2**31), 2**31 - 1))), rng.choice((1, -1)) * rng.randint(1, 9))
        for _ in range(60)
    ]

    def main():
        view, results = sim.current_world(), []
        for a, b in pairs:
            out = torch.zeros(count, dtype=torch.int32)
            view.launch(compiled, (1,), [out.data_ptr(), a, b], tensors=[("out", out)])
            results.append(out.tolist())
        return results

    for (a, b), expected in zip(pairs, sim.run(main, ranks=1)[0], strict=True):
        program = Values()
        list(kernel.run(program, 0, a, b))
        assert program.stored == expected, (a, b)


def launch(kernel, **constants):
    def main():
        ditron.init()
        data = ditron.symm_zeros(256, dtype=torch.int32, name="data")
        flags = ditron.symm_zeros(4, dtype=torch.int64, name="flags")
        kernel[(1,)](data, flags, torch.empty(256, dtype=torch.int32), **constants)

    return main


@ditron.jit
def branch_on_data(data, flags, out):
    if tl.load(out) > 0:
        dl.notify(flags, 0, 1)


@ditron.jit
def address_from_a_table(data, flags, out):
    i = tl.load(out + tl.arange(0, 16))
    tl.store(data + i, 1)


@ditron.jit
def rank_that_is_not_there(data, flags, out):
    dl.notify(flags, dl.rank() + 1, 1)


@pytest.mark.parametrize(("kernel", "says"), [
    (branch_on_data, "a branch depends on data"), (address_from_a_table, "the address of a store depends on data"),
], ids=["branch", "address"])  # fmt: skip
def test_what_is_not_followed_is_said(kernel, says):
    report = check_function(launch(kernel), [(2, None)])
    assert [says in note for note in report.notes] == [True] and not report.findings, str(report)


def test_rank_that_does_not_exist():
    report = check_function(launch(rank_that_is_not_there), [(2, None)])
    assert [finding.kind for finding in report.findings] == ["rank"], str(report)
    assert "rank 2 is asked for, of 2" in str(report)


@ditron.jit(pipeline="as-written")
def exchange(data, flags, out, SCOPE: tl.constexpr, TOKEN: tl.constexpr, LOOP: tl.constexpr):
    peer = (dl.rank() + 1) % dl.num_ranks()
    at = tl.arange(0, 16)
    dl.putmem(data + 128, data, 64, peer)
    dl.notify(flags, peer, 1, scope=SCOPE)
    if LOOP != "around":
        token = dl.wait(flags, 1, 1, scope=SCOPE)
        source = dl.consume_token(data + 128, token) if TOKEN else data + 128
    if LOOP != "":
        total = tl.zeros((16,), tl.int32)
        for _ in range(3):
            if LOOP == "around":
                token = dl.wait(flags, 1, 1, scope=SCOPE)
                source = dl.consume_token(data + 128, token) if TOKEN else data + 128
            total += tl.load(source + at)
        tl.store(out + at, total)
    else:
        tl.store(out + at, tl.load(source + at))


@pytest.mark.parametrize(("group", "scope", "token", "loop", "kinds"), [
    ((2, None), "node", True, "", []),
    ((2, 1), "world", True, "", []),
    ((2, 1), "node", True, "", ["scope"]),
    ((2, None), "gpu", True, "", ["scope"]),
    ((2, None), "node", False, "around", ["token"]),
    ((2, None), "node", True, "around", []),
    ((2, None), "node", False, "behind", []),  # loads are fetched ahead from right before the loop on
    ((2, None), "node", False, "", []),  # straight-line loads stay behind a wait
])  # fmt: skip
def test_scope_and_token(group, scope, token, loop, kinds):
    report = check_function(launch(exchange, SCOPE=scope, TOKEN=token, LOOP=loop), [group])
    assert [finding.kind for finding in report.findings] == kinds, str(report)


PIPELINED = """
import triton.language as tl, ditron, ditron.language as dl

@ditron.jit(pipeline="as-written")
def product(a, flag, out, K, N: tl.constexpr):
    i, acc = tl.arange(0, N), tl.zeros((N, N), tl.float32)
    dl.wait(flag, 1, 1)
    for at in range(0, K, N):
        x = tl.load(a + i[:, None] * K + at + i[None, :])
        acc = tl.dot(x, tl.trans(x), acc)
    tl.store(out + i[:, None] * N + i[None, :], acc)
"""


def test_loads_are_fetched_ahead_behind_a_wait_before_their_loop(tmp_path, capsys):
    """What the checker relies on when it asks for no token there."""
    file = tmp_path / "pipelined.py"
    file.write_text(PIPELINED)
    assert (
        main(
            [
                "dump",
                "--target",
                "cuda:80",
                "--num-stages",
                "3",
                "--signature",
                "*fp16,*i64,*fp32,i32:16",
                "--constexpr",
                "N=64",
                "--stage",
                "ttgir",
                f"{file}:product",
            ]
        )
        == 0
    )
    ir = capsys.readouterr().out
    assert 0 < ir.index("tt.extern_elementwise") < ir.index("ttg.async_copy_global_to_local") < ir.index("scf.for")


def test_message():
    report = check_function(launch(exchange, SCOPE="gpu", TOKEN=True, LOOP=""), [(2, None)], subject="exchange")
    first = exchange.fn.__code__.co_firstlineno
    text = str(report).replace(__file__, "here.py")
    for number in range(first, first + 24):
        text = text.replace(f"here.py:{number}:", f"here.py:+{number - first}:")
    lines = [line.rstrip("0123456789") for line in text.splitlines()]
    assert lines == [
        "here.py:+18:35: a load of data[128] of rank 0: the signal has scope gpu, and comes from rank 1 [scope]",
        "  with 2 ranks: rank 0, kernel exchange, program (0, 0, 0), call 1; rank 1, kernel exchange, program "
        "(0, 0, 0), call ",
        "  a put: here.py:+4:",
        "  the signal: here.py:+5:",
        "  the wait: here.py:+7:",
        '  scope="node" for ranks of this node, "world" for those of others',
        "exchange: 1 finding (2 ranks)",
    ]


@ditron.jit(noinline=True)
def store_there(out, value):
    tl.store(out + 1, value)


@ditron.jit(pipeline="as-written")
def early_return(data, flags, out, HELPER: tl.constexpr):
    if dl.rank() == 0:
        dl.notify(flags, 1, 1)
        return
    if HELPER:
        store_there(out, 3)
    dl.wait(flags, 1, 2)


@pytest.mark.parametrize("helper", [False, True])
def test_early_return_and_a_helper_that_is_called(helper):
    report = check_function(launch(early_return, HELPER=helper), [(2, None)])
    assert [finding.kind for finding in report.findings] == ["count"], str(report)
    assert "flags[0] of rank 1 >= 2, and all signals there make it 1" in str(report)


@ditron.jit(pipeline="as-written")
def endless(data, flags, out, SENDS: tl.constexpr):
    i = 0
    while i >= 0:
        if SENDS:
            dl.notify(flags, 0, 1, op="add")
        else:
            tl.store(out, i)


@pytest.mark.parametrize(("sends", "why"), [(False, "makes more than"), (True, "operations that order")])
def test_a_loop_without_an_end_is_given_up(sends, why):
    report = check_function(launch(endless, SENDS=sends), [(1, None)])
    assert not report.findings and why in str(report) and "it is not checked to its end" in str(report), str(report)
    assert str(report).endswith("main: NOT checked to the end (1 rank)")


SCRIPT = """
import torch, ditron, ditron.language as dl

@ditron.jit
def count(flag, N):
    for _ in range(N):
        dl.notify(flag, 0, 1, op="add")

ditron.init()
N = 10 if ditron.num_ranks() == 1 else 1000
count[(1,)](ditron.symm_zeros(1, dtype=torch.int64, name="flag"), N)
"""


def test_what_was_given_up_is_no_success(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(machine, "MAX_NODES", 1000)
    file = tmp_path / "long.py"
    file.write_text(SCRIPT)
    assert main(["check", "--ranks", "1", str(file)]) == 0
    assert main(["check", "--ranks", "2", str(file)]) == 3
    assert capsys.readouterr().out.endswith("long.py: NOT checked to the end (2 ranks)\n")


@ditron.jit(pipeline="as-written")
def wait_for_the_last(flags, out, steps):
    last = -1
    for step in range(steps):
        tl.store(out + step, step)
        last = step
    dl.wait(flags + last, 1, 1)


def test_what_a_loop_only_carries_out_is_known():
    """Nothing in the loop reads it, and what it is there decides which signal is waited for."""

    def run():
        ditron.init()
        flags = ditron.symm_zeros(4, dtype=torch.int64, name="flags")
        wait_for_the_last[(1,)](flags, torch.zeros(4, dtype=torch.int32), 3)

    report = check_function(run, [(1, None)])
    (finding,) = report.findings
    assert finding.kind == "never-signalled" and "flags[2] of rank 0" in finding.message
    assert "NOT all was followed" not in str(report)
