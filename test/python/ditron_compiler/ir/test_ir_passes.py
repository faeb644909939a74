"""Python passes in MLIR's pass manager: options, failures, printing, timing, statistics."""

import io
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from ditron_compiler import ir, pass_registry, pipeline
from ditron_compiler.instrumentation import Instrumentation
from ditron_compiler.ir.dialects import arith
from ditron_compiler.ir.pass_base import Pass, PassFailure
from ditron_compiler.ir.passmanager import PassManager

TEXT = 'func.func @f(%x: i32) -> i32 { %0 = arith.addi %x, %x : i32 loc("k.py":7:3) return %0 : i32 }'


@dataclass(frozen=True)
class Probe(Pass):
    """Do what the test says.

    A second paragraph, which is no summary.
    """

    name: ClassVar[str] = "test-probe"
    action: str = field(default="nothing", metadata={"help": "what to do"})
    how_often: int = 1
    loudly: bool = False

    def run(self, op: ir.Operation) -> None:
        SEEN.append((self, op.name))
        for _ in range(self.how_often):
            ACTIONS[self.action](op)


@dataclass(frozen=True)
class ProbeFunctions(Pass):
    """Look at functions."""

    name: ClassVar[str] = "test-probe-functions"
    anchor: ClassVar[str] = "func.func"

    action: str = "nothing"

    def run(self, op: ir.Operation) -> None:
        SEEN.append((self, op.sym_name.value))
        ACTIONS[self.action](op)


SEEN = []
KEPT = []


def adds(op):
    found = []
    op.walk(lambda o: found.append(o) if isinstance(o, arith.AddIOp) else None)
    return found


def break_module(op):
    for add in adds(op):
        add.result.set_type(ir.F32Type.get())


def double(op):
    for add in adds(op):
        with ir.InsertionPoint(add), add.location:
            add.replace_all_uses_with(arith.MulIOp(add.lhs, arith.constant(add.type, 2)))
        add.erase()


def report(op):
    add = adds(op)[0]
    add.emit_error("expected no addition, got one", notes=[(op, "in this module"), (None, "somewhere")])


def fail(op):
    raise PassFailure("this cannot be done")


def bug(op):
    raise KeyError("not in the table")


ACTIONS = {
    "nothing": lambda op: None,
    "double": double,
    "break": break_module,
    "report": report,
    "fail": fail,
    "fail-silently": lambda op: (_ for _ in ()).throw(PassFailure),
    "bug": bug,
    "warn": lambda op: adds(op)[0].emit_warning("this is slow"),
    "keep": lambda op: KEPT.extend([op, adds(op)[0], adds(op)[0].result, op.regions[0].blocks[0]]),
    "erase": lambda op: op.erase(),
    "erase-parent": lambda op: op.parent.erase(),
    "erase-block": lambda op: op.block.erase(),
    "detach": lambda op: op.detach_from_parent(),
    "move": lambda op: op.move_before(op.next_op),
    "split": lambda op: op.block.split_before(op),
    "count": lambda op: Probe().count("additions seen", len(adds(op))),
    "nest": lambda op: PassManager.parse("builtin.module(canonicalize)", op.context).run(op),
}


@pytest.fixture(autouse=True)
def register():
    Probe.register()
    ProbeFunctions.register()
    SEEN.clear()
    KEPT.clear()


@pytest.fixture
def module():
    with ir.Context(), ir.Location.unknown():
        yield ir.Module.parse(TEXT, source_name="f.mlir")


def run(module, text):
    PassManager.parse(f"builtin.module({text})").run(module)


def test_options_arrive_and_print(module):
    run(module, "test-probe{action=nothing how-often=3 loudly=true},test-probe")
    assert [p for p, _ in SEEN] == [Probe("nothing", 3, True), Probe()]
    assert str(Probe(how_often=2, loudly=True)) == "test-probe{how-often=2 loudly=true}"
    manager = PassManager("builtin.module")
    manager.add(Probe(how_often=0))
    manager.add("func.func(test-probe-functions)")
    assert "test-probe{action=nothing how-often=0 loudly=false}" in str(manager)
    manager.run(module)
    assert [(type(p).__name__, name) for p, name in SEEN[2:]] == [("Probe", "builtin.module"), ("ProbeFunctions", "f")]


@pytest.mark.parametrize("action", ["erase", "erase-parent", "erase-block", "detach", "move", "split"])
def test_a_pass_cannot_take_away_what_it_runs_on(action):
    """The pass manager goes on with the operation, and with the next one in its block."""
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse("func.func private @f()\nfunc.func private @g()")
        with pytest.raises(ValueError, match=f"cannot {action.split('-')[0]} .*a pass is running on"):
            run(module, f"func.func(test-probe-functions{{action={action}}})")
        assert module.operation.verify() and len(module.body.operations) == 2
        module.body.operations[0].erase()  # afterwards it can be done


def test_a_pass_cannot_erase_the_module_it_runs_on(module):
    with pytest.raises(ValueError, match="cannot erase 'builtin.module': a pass is running on it"):
        run(module, "test-probe{action=erase}")
    assert module.operation.verify()


@pytest.mark.parametrize(
    "text,message",
    [
        ("builtin.module(test-probe{quietly=true})", "no such option quietly"),
        ("builtin.module(test-probe{how-often=often})", "how-often"),
        ("builtin.module(no-such-pass)", "'no-such-pass' does not refer to a registered pass"),
        ("builtin.module(", "expected"),
        ("builtin.module(test-probe-functions)", "func.func"),
    ],
)
def test_bad_pipelines(module, text, message):
    with pytest.raises(ValueError, match=message):
        PassManager.parse(text)


def test_python_and_cpp_passes_mix(module):
    run(module, "test-probe{action=double},canonicalize,cse")
    assert "arith.muli" in str(module) and "arith.addi" not in str(module)
    assert module.body.operations[0].entry_block.operations[1].location.file_line_col == ("k.py", 7, 3)


def test_what_a_pass_reports_is_raised(module):
    with pytest.raises(ir.MLIRError) as raised:
        run(module, "test-probe{action=report}")
    error = raised.value
    assert error.message == "expected no addition, got one"
    assert error.location.file_line_col == ("k.py", 7, 3)
    assert [note.message for note in error.error_diagnostics[0].notes] == ["in this module", "somewhere"]
    assert str(error).splitlines()[0] == "k.py:7:3: error: expected no addition, got one"


def test_pass_failure(module):
    with pytest.raises(ir.MLIRError, match="this cannot be done"):
        run(module, "test-probe{action=fail}")
    with pytest.raises(ir.MLIRError, match="the pipeline failed"):
        run(module, "test-probe{action=fail-silently}")
    assert module.operation.verify()


def test_a_bug_is_raised_as_it_is(module):
    with pytest.raises(KeyError, match="not in the table") as raised:
        run(module, "test-probe{action=bug}")
    assert [entry.name for entry in raised.traceback][-1] == "bug"
    assert "test-probe" in raised.value.__notes__[0]
    run(module, "test-probe")  # nothing is left of it


def test_the_verifier_runs_after_each_pass(module):
    with pytest.raises(ir.MLIRError, match="requires the same type|operand|result"):
        run(module, "test-probe{action=break}")
    with ir.Context(), ir.Location.unknown():
        other = ir.Module.parse(TEXT)
        manager = PassManager.parse("builtin.module(test-probe{action=break})")
        manager.enable_verifier(False)
        manager.run(other)


def test_warnings_reach_handlers(module):
    heard = []
    with module.context.attach_diagnostic_handler(lambda d: heard.append((d.severity, d.message)) or True):
        run(module, "test-probe{action=warn}")
    assert heard == [(ir.DiagnosticSeverity.WARNING, "this is slow")]
    run(module, "test-probe{action=warn}")
    assert len(heard) == 1


def test_what_a_pass_keeps_is_invalid_afterwards(module):
    run(module, "test-probe{action=keep}")
    assert KEPT[0] is module.operation
    for kept in KEPT[1:]:
        with pytest.raises(RuntimeError, match="erased"):
            str(kept)


def test_nested_pass_managers(module):
    run(module, "test-probe{action=nest}")
    assert module.operation.verify()


def test_passes_refuse_detached_users(module):
    add = adds(module.operation)[0]
    detached = arith.AddIOp(add, add, ip=False)
    with pytest.raises(ValueError, match="still used outside"):
        run(module, "canonicalize")
    detached.erase()
    run(module, "canonicalize")


def test_printing(module):
    out = io.StringIO()
    pipeline.run(
        module, ["test-probe{action=double}", "canonicalize"], Instrumentation(print_after=("test-probe",), file=out)
    )
    assert out.getvalue().count("IR Dump After") == 1
    assert "IR Dump After Probe (test-probe)" in out.getvalue() and "arith.muli" in out.getvalue()
    out = io.StringIO()
    pipeline.run(module, ["cse", "canonicalize"], Instrumentation(print_after=("all",), file=out))
    assert "After CSEPass (cse)" in out.getvalue() or "(cse)" in out.getvalue()
    assert "(canonicalize)" in out.getvalue()


def test_timing(module):
    instrumentation = Instrumentation(measure=True)
    pipeline.run(module, ["test-probe", "canonicalize", "func.func(cse)"], instrumentation)
    assert [name for name, _ in instrumentation.timings] == ["test-probe", "canonicalize", "cse"]
    assert all(0 <= seconds < 10 for _, seconds in instrumentation.timings)
    manager = PassManager.parse("builtin.module(cse)")
    manager.enable_timing()
    manager.run(module)
    assert manager.timing_table().splitlines()[1].startswith("cse ")


def test_statistics(module):
    manager = PassManager.parse("builtin.module(test-probe{action=count how-often=2},cse,test-probe{action=count})")
    manager.run(module)
    assert manager.statistics == [("test-probe", "additions seen", 3)]
    manager = PassManager.parse("builtin.module(test-probe{action=count})")
    assert manager.statistics == []
    manager.run(module)
    manager.run(module)
    assert manager.statistics == [("test-probe", "additions seen", 2)]
    assert manager.statistics_table().splitlines()[1] == "test-probe        2  additions seen"
    Probe().count("outside of a pass manager: goes nowhere")


@pytest.mark.parametrize(
    "make",
    [
        lambda: type("NoData", (Pass,), {"name": "test-bad"}),
        lambda: dataclass(frozen=True)(type("NoName", (Pass,), {})),
        lambda: dataclass(frozen=True)(
            type("BadOption", (Pass,), {"name": "test-bad", "__annotations__": {"x": float}, "x": 0.5})
        ),
        lambda: dataclass(frozen=True)(type("NoDefault", (Pass,), {"name": "test-bad", "__annotations__": {"x": int}})),
    ],
)
def test_improper_passes_are_refused(make):
    with pytest.raises(TypeError, match="must be"):
        make().register()


def test_a_name_that_mlir_has_is_refused():
    taken = dataclass(frozen=True)(type("Taken", (Pass,), {"name": "canonicalize", "__doc__": "No."}))
    with pytest.raises(ValueError, match="already"):
        taken.register()


def test_every_listed_pass_is_proper():
    summaries = {}
    for name in pass_registry.own():
        cls = pass_registry.load(name)
        cls.register()
        assert cls.summary(), f"{name} has no docstring"
        assert summaries.setdefault(cls.summary(), name) == name, "two passes have one summary"
        assert len(cls.__doc__.strip().splitlines()) > 1, f"{name} does not show the IR before and after"
    with pytest.raises(LookupError, match="no Python pass 'nope'; there are"):
        pass_registry.load("nope")


def test_every_pipeline_parses():
    with ir.Context():
        for machine in ("cuda", "hip", "sim"):
            PassManager.parse(pipeline.pipeline(machine, "p2p"))
    with pytest.raises(ValueError, match="expected one of cuda, hip, sim"):
        pipeline.lowering("tpu", "p2p")
