"""Every operation of the dialect, by its example in the ODS: passes and the protocol checker are conservative about one
that they do not name, and the tables that name operations leave none out.
"""

from __future__ import annotations

import importlib
import re
import sys

import paths
import pytest
from dialect_examples import as_kernel, device_examples

from ditron_compiler import ir
from ditron_compiler.analysis import memory_order_transfer
from ditron_compiler.analysis.call_graph import functions, operations
from ditron_compiler.analysis.memory_order import missing_orders
from ditron_compiler.analysis.memory_order_transfer import TransferFunctions
from ditron_compiler.analysis.signal_resets import signal_resets
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.passmanager import PassManager
from ditron_compiler.lowering.gpu.table import TABLE
from ditron_compiler.lowering.sim import lower_to_sim  # noqa: F401 - registers the handlers
from ditron_compiler.lowering.sim.function import HANDLERS
from ditron_compiler.protocol.effects import EFFECTS, NO_EFFECT, effect_of, may_block
from ditron_compiler.protocol.expressions import EXPRESSIONS
from ditron_compiler.protocol.translate import translate_module

EXAMPLES = device_examples()
CLASSES = {value.OPERATION_NAME: value for value in vars(ditron).values() if hasattr(value, "OPERATION_NAME")}
LIT = paths.ROOT / "test" / "lit"
ATOMICS = sorted(name for name, cls in CLASSES.items() if issubclass(cls, ditron.AtomicOpInterface))
#: Lowered before the target.
EXPANDED = {"ditron.swizzle"}


def parse(text: str) -> ir.Module:
    return ir.Module.parse(text)


def of_signal(name: str) -> str:
    """The first line of an atomic's example, for the i64 that ``%sig`` leads to."""
    return EXAMPLES[name].splitlines()[0].replace("%cell", "%sig").replace("i32", "i64")


def kernel(body: str) -> str:
    return as_kernel(body, value="i64", cmp="i64", bytes="i64")


@pytest.fixture(autouse=True)
def context():
    with ir.Context(), ir.Location.unknown():
        yield


def the(name: str, module: ir.Module) -> ir.Operation:
    return next(op for op in operations(module.operation) if op.name == name)


def test_every_operation_of_kernels_has_an_example():
    host = {name for name, cls in CLASSES.items() if issubclass(cls, ditron.InProgram)} | {"ditron.program"}
    assert set(EXAMPLES) == set(CLASSES) - host
    assert {"ditron.ld", "ditron.st", "ditron.atomic_add", "ditron.atomic_cas", "ditron.red"} <= set(ATOMICS)


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_tables_have_every_operation(name):
    """Rows for GPUs, the simulator and the protocol checker; none is left to the conservative default."""
    if name not in EXPANDED:
        assert CLASSES[name] in TABLE and name in HANDLERS
    op = the(name, parse(as_kernel(EXAMPLES[name])))
    assert op.is_memory_effect_free or CLASSES[name] in EFFECTS or CLASSES[name] in NO_EFFECT
    if effect_of(op) is None and op.results and name not in EXPANDED:
        assert CLASSES[name] in EXPRESSIONS, "the protocol checker takes its value for UNKNOWN"


def test_the_kernels_for_gpus_have_every_operation():
    text = "".join((LIT / "lowering" / "Inputs" / file).read_text() for file in ("gpu-ops.mlir", "multimem.mlir"))
    assert {name for name in EXAMPLES if not re.search(rf"{name}\b", text)} == EXPANDED


def test_protocol_checker_notes_an_operation_without_a_row(monkeypatch):
    monkeypatch.delitem(EFFECTS, ditron.RedOp)
    module = parse(kernel(of_signal("ditron.red")))
    assert effect_of(the("ditron.red", module)).method == "not_followed"
    (site,) = translate_module(module).sites
    assert site.op_class is ditron.RedOp


def test_what_blocks_spins_or_reads():
    blocking = {cls for cls in CLASSES.values() if may_block(cls)}
    assert {
        cls for cls in CLASSES.values() if issubclass(cls, (ditron.Spins, ditron.SignalReadOpInterface))
    } <= blocking
    assert ditron.AtomicCasOp in blocking and ditron.AtomicAddOp not in blocking


def test_mutation_has_every_operation_that_orders_or_updates(monkeypatch):
    monkeypatch.syspath_prepend(str(paths.ROOT / "test" / "mutation"))
    mutate = importlib.import_module("mutate")
    monkeypatch.delitem(sys.modules, "mutate")
    kinds = (
        ditron.SignalOpInterface,
        ditron.AtomicOpInterface,
        ditron.MemoryTransferOpInterface,
        ditron.PacketOpInterface,
        ditron.OrdersMemory,
        ditron.Spins,
    )
    asked = {name for name, cls in CLASSES.items() if issubclass(cls, kinds)}
    assert asked - set(mutate.TARGETS) == mutate.NOT_MUTATED


# --- atomics ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATOMICS)
def test_an_atomic_that_writes_may_reset_a_signal(name):
    module = parse(kernel(of_signal(name)))
    op = the(name, module)
    assert op.may_decrease == op.writes_memory
    assert bool(signal_resets(operations(module.operation))) == op.writes_memory


@pytest.mark.parametrize(
    "text, decreases",
    [
        ("ditron.red %sig max %value : !tt.ptr<i64>", False),
        ("ditron.red %sig min %value : !tt.ptr<i64>", True),
        ("ditron.red %sig add %two : !tt.ptr<i64>", False),
        ("ditron.red %sig add %less : !tt.ptr<i64>", True),
        ("%old = ditron.atomic_add %sig, %two : !tt.ptr<i64>", False),
        ("%old = ditron.atomic_add %sig, %less : !tt.ptr<i64>", True),
        ("%old = ditron.atomic_add %many, %twos : tensor<4x!tt.ptr<i64>>", False),
        ("%old = ditron.atomic_add %many, %mixed : tensor<4x!tt.ptr<i64>>", True),
    ],
)
def test_what_does_not_decrease(text, decreases):
    constants = """
    %two = arith.constant 2 : i64
    %less = arith.constant -2 : i64
    %twos = arith.constant dense<2> : tensor<4xi64>
    %mixed = arith.constant dense<[1, 2, -1, 4]> : tensor<4xi64>
    """
    module = parse(as_kernel(constants + text, value="i64", many="tensor<4x!tt.ptr<i64>>"))
    (op,) = [op for op in operations(module.operation) if isinstance(op, ditron.AtomicOpInterface)]
    assert op.may_decrease == decreases == bool(signal_resets([op]))


@pytest.mark.parametrize("name", ATOMICS)
def test_an_atomic_that_writes_a_signal_needs_earlier_puts_complete(name):
    body = f"""
    %token = ditron.wait %sig[%n] ge %bytes : !tt.ptr<i64>
    ditron.putmem %dst, %src, %bytes on %rank : !tt.ptr<bf16>, !tt.ptr<bf16>
    {of_signal(name)}
    """
    module = parse(kernel(body))
    missing = missing_orders(functions(module.operation)[0], at_end=False)
    assert [(order.what, order.needed_by.name) for order in missing] == (
        [("quiet", name)] if the(name, module).writes_memory else []
    )


@pytest.mark.parametrize("name", ATOMICS)
def test_a_read_modify_write_of_another_gpu_is_rejected_for_pcie(name):
    body = f"%far = ditron.symm_at %sig on %rank : !tt.ptr<i64>\n{of_signal(name).replace('%sig', '%far')}"
    module = parse(kernel(body))
    is_update = the(name, module).is_read_modify_write
    lower = PassManager.parse("builtin.module(lower-nonatomic-sync)")
    if is_update:
        with pytest.raises(ir.MLIRError, match=f"'{name}' is a read-modify-write"):
            lower.run(module)
    else:
        lower.run(module)


@pytest.mark.parametrize("name", ATOMICS)
def test_a_quiet_beside_an_atomic_that_writes_is_kept(name):
    """Packets need no quiet, but it also orders other writes."""
    body = f"""
    %size = arith.constant 64 : i64
    %one = arith.constant 1 : i32
    %own = ditron.rank
    %mine = tt.addptr %sig, %own : !tt.ptr<i64>, i32
    ditron.putmem_signal %dst, %src, %size, %mine set %epoch on %rank : !tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<i64>
    %theirs = tt.addptr %sig, %rank : !tt.ptr<i64>, i32
    %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
    {of_signal(name).replace("%sig", "%flag")}
    ditron.quiet
    """
    module = parse(as_kernel(body, value="i64", cmp="i64", flag="!tt.ptr<i64>"))
    writes = the(name, module).writes_memory
    PassManager.parse("builtin.module(ll-protocol)").run(module)
    left = [op.name for op in operations(module.operation)]
    assert "ditron.ll_put" in left and ("ditron.quiet" in left) == writes


# --- operations that an analysis does not name -----------------------------------------------------------------------


def test_memory_order_of_an_unknown_operation_is_that_of_a_call(monkeypatch):
    body = """
    ditron.putmem %dst, %src, %bytes on %rank : !tt.ptr<bf16>, !tt.ptr<bf16>
    ditron.sync_threads
    """

    def missing() -> list[str]:
        return [order.what for order in missing_orders(functions(parse(kernel(body)).operation)[0], at_end=False)]

    assert missing() == []
    monkeypatch.setattr(memory_order_transfer, "_NO_ACCESS", ())
    assert missing() == ["quiet"]


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"ditron.extern_call"}))
def test_memory_order_knows_every_operation(name, monkeypatch):
    unknown = []
    monkeypatch.setattr(TransferFunctions, "_opaque", lambda self, op, *_: unknown.append(op.name))
    missing_orders(functions(parse(as_kernel(f"{EXAMPLES[name]}\nditron.sync_all")).operation)[0], at_end=True)
    assert not unknown


@pytest.mark.parametrize("name", ["ditron.multimem_st", "ditron.multimem_red"])
def test_a_write_that_is_no_atomic_may_reset_a_signal(name):
    op = the(name, parse(as_kernel(EXAMPLES[name])))
    assert [reset.op for reset in signal_resets([op])] == [op]
