"""Typed classes of Triton's operations: operands and attributes by name."""

import pytest

from ditron_compiler import ir
from ditron_compiler.ir.dialects import tt

HEAD = '"tt.func"() <{sym_name = "f", function_type = (!tt.ptr<f32>, i1, f32, i32, i64) -> ()}> ({\n'
ARGUMENTS = "^bb0(%p: !tt.ptr<f32>, %m: i1, %x: f32, %i: i32, %l: i64):\n"


@pytest.fixture
def parse():
    """Parses one operation in a function; gives it, and the function's arguments by name."""
    with ir.Context(), ir.Location.unknown():

        def one(text):
            module = ir.Module.parse(HEAD + ARGUMENTS + text + '\n"tt.return"() : () -> ()\n}) : () -> ()')
            function = module.body.operations[0]
            return function.entry_block.operations[0], dict(zip("pmxil", function.arguments, strict=True))

        yield one


def load(segments: str, operands: str, types: str) -> str:
    properties = f"<{{operandSegmentSizes = array<i32: {segments}>, isVolatile = true}}>" if segments else ""
    return f'%r = "tt.load"({operands}) {properties} : ({types}) -> f32'


@pytest.mark.parametrize(
    "text, expected",
    [
        (load("1, 0, 0", "%p", "!tt.ptr<f32>"), {"ptr": "p", "mask": None, "other": None}),
        (load("1, 1, 0", "%p, %m", "!tt.ptr<f32>, i1"), {"ptr": "p", "mask": "m", "other": None}),
        (load("1, 1, 1", "%p, %m, %x", "!tt.ptr<f32>, i1, f32"), {"ptr": "p", "mask": "m", "other": "x"}),
        (load("1, 0, 1", "%p, %x", "!tt.ptr<f32>, f32"), {"ptr": "p", "mask": None, "other": "x"}),
        (load("", "%p, %m", "!tt.ptr<f32>, i1"), {"ptr": "p", "mask": "m", "other": None}),
    ],
)
def test_operands_of_a_load(parse, text, expected):
    op, arguments = parse(text)
    assert isinstance(op, tt.LoadOp)
    assert {name: getattr(op, name) for name in expected} == {
        name: arguments.get(argument) for name, argument in expected.items()
    }


def test_optional_operand_at_the_end(parse):
    op, arguments = parse('"tt.store"(%p, %x) : (!tt.ptr<f32>, f32) -> ()')
    assert isinstance(op, tt.StoreOp) and (op.ptr, op.value, op.mask) == (arguments["p"], arguments["x"], None)
    op, arguments = parse('"tt.store"(%p, %x, %m) : (!tt.ptr<f32>, f32, i1) -> ()')
    assert op.mask == arguments["m"]


def test_variadic_operands(parse):
    op, arguments = parse(
        '%r = "tt.make_tensor_descriptor"(%p, %i, %i, %l, %l) : (!tt.ptr<f32>, i32, i32, i64, i64)'
        " -> !tt.tensordesc<tensor<4x4xf32>>"
    )
    p, i, long = (arguments[name] for name in "pil")
    assert isinstance(op, tt.MakeTensorDescOp) and (op.base, op.shape, op.strides) == (p, [i, i], [long, long])
    op, arguments = parse('"tt.print"(%i, %x) <{prefix = "x", hex = false}> : (i32, f32) -> ()')
    assert isinstance(op, tt.PrintOp) and op.args == [arguments["i"], arguments["x"]]
    assert op.prefix.value == "x" and op.hex.value is False and op.isSigned is None


def test_enumerations_of_atomics(parse):
    op, arguments = parse(
        '%r = "tt.atomic_rmw"(%p, %x, %m) <{atomic_rmw_op = 5 : i32, sem = 4 : i32, scope = 3 : i32}>'
        " : (!tt.ptr<f32>, f32, i1) -> f32"
    )
    assert isinstance(op, tt.AtomicRMWOp) and (op.val, op.mask) == (arguments["x"], arguments["m"])
    assert op.atomic_rmw_op is tt.RMWOp.FADD
    assert (op.sem, op.scope) == (tt.MemSemantic.ACQUIRE_RELEASE, tt.MemSyncScope.SYSTEM)


def test_functions_and_calls(parse):
    op, arguments = parse('"tt.call"(%x, %i) <{callee = @g}> : (f32, i32) -> ()')
    assert isinstance(op, tt.CallOp) and op.callee.value == "g"
    assert list(op.operands) == [arguments["x"], arguments["i"]]
    function = op.parent
    assert isinstance(function, tt.FuncOp) and function.sym_name.value == "f" and not function.is_private
    assert list(function.arguments) == list(arguments.values())
    assert isinstance(function.entry_block.operations[1], tt.ReturnOp)


def test_made_operations(parse):
    op, arguments = parse('"tt.store"(%p, %x) : (!tt.ptr<f32>, f32) -> ()')
    p, m, x, i, _ = arguments.values()
    with ir.InsertionPoint(op):
        moved = tt.AddPtrOp(p.type, p, i)
        loaded = tt.LoadOp(x.type, moved.result, None, x, isVolatile=ir.BoolAttr.get(True))
        tt.StoreOp(moved.result, loaded.result, m)
    assert list(loaded.attributes["operandSegmentSizes"]) == [1, 0, 1] and loaded.other == x
    assert moved.offset == i and op.prev_op.mask == m and op.prev_op.value == loaded.result


def test_operations_without_a_class_are_plain(parse):
    op, _ = parse('"tt.a_later_one"(%x) : (f32) -> ()')
    assert type(op) is ir.OpView and not isinstance(op, tt.TritonOp)


def test_each_operation_has_one_class():
    names = [
        getattr(tt, name).OPERATION_NAME
        for name in tt.__all__
        if name.endswith("Op") and name not in ("TritonOp", "RMWOp")
    ]
    assert len(names) == len(set(names)) > 50
