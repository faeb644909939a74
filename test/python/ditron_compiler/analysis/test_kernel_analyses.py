"""Analyses of kernels, asked directly: small functions whose answers can be read off."""

from __future__ import annotations

import pytest

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.divergence import divergent_control, divergent_values
from ditron_compiler.analysis.dominance import ScopedTable, walk_in_dominance_order
from ditron_compiler.analysis.equivalence import is_equivalent, is_injective
from ditron_compiler.analysis.integer_range import is_below, upper_bound
from ditron_compiler.analysis.kernel_effects import ArgumentEffects, argument_effects
from ditron_compiler.analysis.memory_order import missing_orders
from ditron_compiler.analysis.path_conditions import LESS, NOT_LESS, are_mutually_exclusive, comparisons_on_path
from ditron_compiler.analysis.rank_scope import is_other_rank, rank_scope
from ditron_compiler.analysis.rank_variance import is_rank_variant
from ditron_compiler.ir.dialects import arith, ditron, tt
from ditron_compiler.ir.dialects.ditron import Scope

ARGUMENTS = "%sig: !tt.ptr<i64>, %p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %n: i32, %v: i64, %b: i1"


@pytest.fixture
def kernel():
    """Parses the body of a kernel with ARGUMENTS, and returns its function."""
    with ir.Context():
        kept = []

        def parse(body: str) -> tt.FuncOp:
            types = ", ".join(argument.split(": ")[1] for argument in ARGUMENTS.split(", "))
            head = f'"tt.func"() <{{function_type = ({types}) -> (), sym_name = "f"}}> ({{\n^bb0({ARGUMENTS}):\n'
            kept.append(ir.Module.parse(head + body + '\n"tt.return"() : () -> ()\n}) : () -> ()'))
            return functions(kept[-1].operation)[0]

        yield parse


def only(function: tt.FuncOp, kind: type, index: int = 0) -> ir.Operation:
    """The operation of a kind, of several the one at ``index``."""
    return [op for op in operations(function) if isinstance(op, kind)][index]


RANKS = """
%rank = ditron.rank
%num = ditron.num_ranks
%local = ditron.local_rank
%num_local = ditron.num_local_ranks
%node = ditron.node
%c1 = arith.constant 1 : i32
%next = arith.addi %rank, %c1 : i32
%right = arith.remsi %next, %num : i32
%first = arith.muli %node, %num_local : i32
%own = arith.addi %first, %local : i32
%some = arith.addi %first, %n : i32
"""


def values(function: tt.FuncOp) -> dict[str, ir.Value]:
    """The results of RANKS by name."""
    names = [line.split(" = ")[0][1:] for line in RANKS.split("\n") if line]
    return {name: op.results[0] for name, op in zip(names, function.entry_block, strict=False)}


def test_rank_scope_and_variance(kernel):
    function = kernel(RANKS)
    of, at = values(function), only(function, tt.ReturnOp)
    scopes = {name: rank_scope(of[name], at) for name in ("rank", "own", "some", "right")}
    assert scopes == {"rank": Scope.GPU, "own": Scope.GPU, "some": Scope.World, "right": Scope.World}
    assert [name for name in of if is_other_rank(of[name])] == ["right"]
    assert {name for name in of if not is_rank_variant(of[name])} == {"num", "num_local", "c1"}


def test_rank_scope_by_condition(kernel):
    function = kernel(
        RANKS
        + "%same = arith.cmpi eq, %n, %rank : i32\nscf.if %same { ditron.notify %sig set %v on %n : !tt.ptr<i64> }"
    )
    notify = only(function, ditron.NotifyOp)
    assert rank_scope(notify.rank, notify) is Scope.GPU
    assert rank_scope(notify.rank, only(function, tt.ReturnOp)) is Scope.World


def test_integer_ranges(kernel):
    function = kernel(RANKS + "%least = arith.minsi %n, %c1 : i32\n%twice = arith.addi %least, %least : i32")
    of = values(function)
    assert upper_bound(only(function, arith.AddIOp, -1).result) == 2
    assert upper_bound(function.arguments[3]) is None
    assert is_below(of["rank"], ditron.NumRanksOp) and is_below(of["right"], ditron.NumRanksOp)
    assert not is_below(of["num"], ditron.NumRanksOp) and not is_below(of["rank"], ditron.NumLocalRanksOp)


def test_equivalence_and_injectivity(kernel):
    function = kernel(
        RANKS
        + "%a = arith.addi %n, %rank : i32\n%again = arith.addi %n, %rank : i32\n%other = arith.addi %rank, %n : i32"
    )
    a, again, other = (only(function, arith.AddIOp, i).result for i in (-3, -2, -1))
    assert is_equivalent(a, again) and not is_equivalent(a, other)
    remainder = only(function, arith.RemSIOp)
    assert is_injective(a.owner, 0, modulo=True) and is_injective(remainder, 0, modulo=False)
    assert not is_injective(remainder, 1, modulo=False)


def test_divergence(kernel):
    function = kernel(
        "%id = ditron.thread_id\n%z = arith.constant 0 : i32\n%is0 = arith.cmpi eq, %id, %z : i32\n"
        "scf.if %is0 { ditron.fence }\nscf.if %b { ditron.quiet }"
    )
    divergent = divergent_values(function, operations(function))
    assert only(function, arith.CmpIOp).result in divergent and function.arguments[5] not in divergent
    assert divergent_control(only(function, ditron.FenceOp), divergent).name == "scf.if"
    assert divergent_control(only(function, ditron.QuietOp), divergent) is None


def test_path_conditions(kernel):
    function = kernel(
        RANKS + "%less = arith.cmpi slt, %n, %num : i32\nscf.if %less { ditron.fence } else { ditron.quiet }"
    )
    fence, quiet = only(function, ditron.FenceOp), only(function, ditron.QuietOp)
    assert list(comparisons_on_path(fence, LESS, NOT_LESS)) == [only(function, arith.CmpIOp)]
    assert not list(comparisons_on_path(quiet, LESS, NOT_LESS))
    assert are_mutually_exclusive(fence, quiet) and not are_mutually_exclusive(fence, only(function, tt.ReturnOp))


def test_entries_of_a_scoped_table_end_with_their_region(kernel):
    function = kernel("ditron.fence\nscf.if %b { ditron.fence }\nditron.fence")
    table, seen = ScopedTable(), []
    for op in walk_in_dominance_order(function.body, table):
        if isinstance(op, ditron.FenceOp):
            seen.append(len(table.lookup("fences")))
            table.insert("fences", op)
    assert seen == [0, 1, 1]


def test_kernel_effects(kernel):
    function = kernel(
        'ditron.notify %sig set %v on %n : !tt.ptr<i64>\n%x = "tt.load"(%p) : (!tt.ptr<f32>) -> f32\n'
        '"tt.store"(%q, %x) : (!tt.ptr<f32>, f32) -> ()'
    )
    signal, source, destination, *others = argument_effects(function)
    assert signal == ArgumentEffects(writes=True, remote=True)
    assert source == ArgumentEffects(reads=True) and destination == ArgumentEffects(writes=True)
    assert set(others) == {ArgumentEffects()}


def test_kernel_effects_of_packets(kernel):
    function = kernel(
        "ditron.ll_put %sig, %p, %v, %v on %n : !tt.ptr<i64>, !tt.ptr<f32>\n"
        "%t = ditron.ll_get %q, %sig, %v, %v : !tt.ptr<f32>, !tt.ptr<i64>"
    )
    packets, source, destination, *_ = argument_effects(function)
    assert packets == ArgumentEffects(reads=True, writes=True, remote=True)
    assert source == ArgumentEffects(reads=True) and destination == ArgumentEffects(writes=True)


def test_kernel_effects_of_inline_assembly(kernel):
    def effects(text: str) -> ArgumentEffects:
        name = "tt.elementwise_inline_asm"
        facts = f'asm_string = "{text}", constraints = "=r,l", packed_element = 1 : i32, pure = false'
        return argument_effects(kernel(f'%r = "{name}"(%p) <{{{facts}}}> : (!tt.ptr<f32>) -> i32'))[1]

    assert effects("prefetch.global.L2 [$1]; mov.u32 $0, 0;") == ArgumentEffects()
    assert effects("cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;") == ArgumentEffects()
    assert effects("prefetch.global.L2 [$1]; st.global.u32 [$1], 1;") == ArgumentEffects(True, True, True)


def test_memory_order_joins_paths(kernel):
    store = '%x = "tt.load"(%p) : (!tt.ptr<f32>) -> f32\nscf.if %b { "tt.store"(%q, %x) : (!tt.ptr<f32>, f32) -> () }\n'
    signal = "ditron.signal_op %sig set %v on %n : !tt.ptr<i64>"
    (missing,) = missing_orders(kernel(store + signal), at_end=False)
    assert (missing.what, missing.pending.op.name, missing.needed_by.name) == ("fence", "tt.store", "ditron.signal_op")
    assert missing_orders(kernel(store + "ditron.fence\n" + signal), at_end=False) == []
    assert [m.what for m in missing_orders(kernel(store + signal), at_end=True)] == ["fence", "quiet"]
