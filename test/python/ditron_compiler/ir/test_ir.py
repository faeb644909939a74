"""Reading and building IR: values, attributes, types, blocks."""

import pytest

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, func, scf, tt
from ditron_compiler.ir.dialects import ditron as ditron_ops

TEXT = """
func.func @f(%x: i32, %n: index) -> i32 {
  %c = arith.constant 3 : i32
  %0 = arith.addi %x, %c : i32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s = scf.for %i = %c0 to %n step %c1 iter_args(%a = %0) -> i32 {
    %b = arith.addi %a, %0 : i32
    scf.yield %b : i32
  }
  return %s : i32
}
"""


@pytest.fixture
def context():
    with ir.Context() as context, ir.Location.unknown():
        yield context


@pytest.fixture
def module(context):
    return ir.Module.parse(TEXT)


def body(module):
    return module.body.operations[0].entry_block


def test_text_round_trips(module):
    again = ir.Module.parse(str(module))
    assert str(again) == str(module)
    generic = module.operation.get_asm(print_generic_op_form=True)
    assert '"arith.addi"' in generic
    assert str(ir.Module.parse(generic)) == str(module)


def test_locations_survive_the_text(context):
    module = ir.Module.parse('"a.b"() : () -> () loc("k.py":3:7)'.replace("a.b", "ditron.fence"))
    text = module.operation.get_asm(enable_debug_info=True)
    fence = ir.Module.parse(text).body.operations[0]
    assert fence.location.file_line_col == ("k.py", 3, 7)


def test_typed_classes_are_the_operations(module):
    add = body(module).operations[1]
    assert isinstance(add, arith.AddIOp)
    assert add.operation is add and add.opview is add
    assert add.name == "arith.addi"
    assert add.lhs == body(module).arguments[0]
    assert body(module).operations[1] is add


def test_walk_orders_and_results(module):
    names = []
    assert not module.operation.walk(lambda op: names.append(op.name))
    assert names[-1] == "builtin.module"
    names.clear()
    module.operation.walk(lambda op: names.append(op.name), ir.WalkOrder.PRE_ORDER)
    assert names[:2] == ["builtin.module", "func.func"]
    names.clear()

    def skip_loops(op):
        names.append(op.name)
        return ir.WalkResult.SKIP if isinstance(op, scf.ForOp) else ir.WalkResult.ADVANCE

    module.operation.walk(skip_loops, ir.WalkOrder.PRE_ORDER)
    assert "scf.for" in names and "scf.yield" not in names

    def stop(op):
        names.append(op.name)
        return ir.WalkResult.INTERRUPT

    names.clear()
    assert module.operation.walk(stop)
    assert names == ["arith.constant"]


@pytest.mark.parametrize("answer", [True, 0, "stop", ir.WalkOrder.PRE_ORDER])
def test_a_walk_wants_none_or_a_result(module, answer):
    with pytest.raises(TypeError, match="callback of walk returned .*; return None to go on, or a WalkResult"):
        module.operation.walk(lambda op: answer)


def test_an_exception_leaves_a_walk(module):
    def fail(op):
        raise KeyError(op.name)

    with pytest.raises(KeyError, match="arith.constant"):
        module.operation.walk(fail)
    with pytest.raises(ValueError, match="pre-order"):
        module.operation.walk(lambda op: ir.WalkResult.SKIP)


def test_uses_and_replacement(module):
    add = body(module).operations[1]
    assert {use.owner.name for use in add.result.uses} == {"scf.for", "arith.addi"}
    with ir.InsertionPoint(add), add.location:
        product = arith.MulIOp(add.lhs, add.rhs)
    add.replace_all_uses_with(product)
    assert not add.result.has_uses
    add.erase()
    assert module.operation.verify()
    assert "arith.muli" in str(module) and str(module).count("arith.addi") == 1


def test_replace_all_uses_except(module):
    block = body(module)
    x = block.arguments[0]
    with ir.InsertionPoint.at_block_begin(block):
        negated = arith.SubIOp(x, x)
    x.replace_all_uses_except(negated.result, negated)
    assert [use.owner.name for use in x.uses] == ["arith.subi", "arith.subi"]
    assert module.operation.verify()


def test_operands_can_be_assigned(module):
    add = body(module).operations[1]
    add.operands[1] = add.operands[0]
    assert add.operands[1] == add.operands[0]
    assert list(add.operands) == [add.lhs, add.rhs] and add.operands[-1] == add.rhs
    with pytest.raises(IndexError):
        add.operands[2]
    add.operands = [add.lhs, add.lhs]
    assert module.operation.verify()


def test_attributes_are_a_mapping(module):
    function = module.body.operations[0]
    function.attributes["ditron.kernel"] = ir.UnitAttr.get()
    assert "ditron.kernel" in function.attributes
    assert set(function.attributes.keys()) == set(function.attributes) == {"ditron.kernel", "sym_name", "function_type"}
    assert dict(function.attributes.items())["sym_name"].value == "f"
    del function.attributes["ditron.kernel"]
    assert function.attributes.get("ditron.kernel") is None
    with pytest.raises(KeyError, match="ditron.kernel"):
        function.attributes["ditron.kernel"]
    with pytest.raises(KeyError):
        del function.attributes["ditron.kernel"]


def test_building_a_function_with_a_loop(context):
    i32, index = ir.IntegerType.get_signless(32), ir.IndexType.get()
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("sum", ([index, i32], [i32]))
    block = function.add_entry_block()
    n, x = function.arguments
    with ir.InsertionPoint(block):
        zero, one = arith.constant(index, 0), arith.constant(index, 1)
        loop = scf.ForOp(zero, n, one, [x])
        with ir.InsertionPoint(loop.body):
            scf.yield_([arith.addi(loop.inner_iter_args[0], x)])
        choice = scf.IfOp(arith.cmpi(arith.CmpIPredicate.eq, n, zero), [i32])
        with ir.InsertionPoint(choice.then_block):
            scf.yield_([x])
        with ir.InsertionPoint(choice.else_block):
            scf.yield_([loop.result])
        func.ReturnOp([choice.result])
    assert module.operation.verify()
    assert "iter_args" in str(module) and "arith.cmpi eq" in str(module)


def test_operation_create_in_generic_terms(module):
    add = body(module).operations[1]
    i32 = add.result.type
    with ir.InsertionPoint(add):
        made = ir.Operation.create("arith.addi", [i32], [add.lhs, add.rhs], {"test.mark": ir.UnitAttr.get()})
        inferred = ir.Operation.create("arith.addi", operands=[made, add.lhs], infer_type=True)
    assert isinstance(made, arith.AddIOp) and inferred.result.type == i32
    assert made.is_before_in_block(inferred) and made.next_op is inferred
    detached = ir.Operation.create("arith.addi", [i32], [add.lhs, add.lhs], ip=False)
    assert not detached.attached
    body(module).terminator.move_after(add)  # nonsense, but no crash: the verifier says so
    with pytest.raises(ir.MLIRError):
        module.operation.verify()


def test_ditron_operations(context):
    module = ir.Module.parse("""
        func.func @k(%p: !tt.ptr<f32>, %s: !tt.ptr<i64>) {
          %c = arith.constant 1 : i32
          return
        }""")
    block = body(module)
    pointer, signal = block.arguments
    assert isinstance(pointer.type, tt.PointerType)
    assert pointer.type.pointee_type == ir.F32Type.get() and pointer.type.address_space == 1
    assert tt.PointerType.get(ir.IntegerType.get_signless(64)) == signal.type
    with ir.InsertionPoint(block.terminator):
        rank = ditron_ops.RankOp()
        peer = ditron_ops.SymmAtOp(pointer, rank)
    assert peer.result.type == pointer.type
    assert module.operation.verify()
    assert "ditron.symm_at" in str(module)


def test_clone_with_a_mapping(module):
    block = body(module)
    add, constant = block.operations[1], block.operations[0]
    with ir.InsertionPoint(add):
        copy = add.clone(mapping={add.lhs: constant.result})
    assert copy is not add and copy.lhs == constant.result and copy.rhs == add.rhs
    function = module.body.operations[0]
    twin = function.clone(ip=ir.InsertionPoint.at_block_begin(module.body))
    twin.attributes["sym_name"] = ir.StringAttr.get("g")
    assert module.operation.verify()
    assert set(op.sym_name.value for op in module.body) == {"f", "g"}


def test_blocks(module):
    block = body(module)
    add = block.operations[1]
    second = block.split_before(add)
    assert block.next_in_region is second and len(block.operations) == 1
    with ir.InsertionPoint(block), ir.Location.unknown():
        ir.Operation.create("cf.br", successors=[second])
    assert [b for b in second.predecessors] == [block] and block.successors == [second]
    assert module.operation.verify()
    argument = second.add_argument(ir.F32Type.get())
    assert argument.arg_number == 0 and argument.owner is second
    second.erase_argument(0)
    with pytest.raises(RuntimeError, match="erased"):
        _ = argument.type
    with pytest.raises(ValueError, match="branch"):
        second.erase()


def test_values_as_keys(module):
    add = body(module).operations[1]
    table = {value: i for i, value in enumerate([*body(module).arguments, add.result])}
    assert table[add.result] == 2 and table[add.lhs] == 0
    assert add.result == add.results[0] and add.result != add.lhs and add.result != 3


@pytest.mark.parametrize(
    "text",
    [
        "i1",
        "si8",
        "ui16",
        "index",
        "f16",
        "bf16",
        "f32",
        "f64",
        "f8E4M3FN",
        "f8E5M2",
        "none",
        "tensor<4x?xf32>",
        "vector<8xi32>",
        "memref<2x3xf32, strided<[3, 1], offset: ?>>",
        "(i32, f32) -> index",
        "tuple<i32, f32>",
        "complex<f32>",
        "tensor<*xf32>",
        "!tt.ptr<bf16>",
        "!tt.ptr<f32, 3>",
        "!ditron.token",
        "!llvm.ptr",
        "!tt.tensordesc<tensor<64x32xf16>>",
    ],
)
def test_types_round_trip(context, text):
    type = ir.Type.parse(text)
    assert ir.Type.parse(str(type)) == type and hash(ir.Type.parse(str(type))) == hash(type)
    assert ir.Type(type) == type


def test_type_parts(context):
    f32 = ir.F32Type.get()
    tensor = ir.RankedTensorType.get([4, ir.ShapedType.get_dynamic_size()], f32)
    assert isinstance(tensor, ir.RankedTensorType) and tensor.rank == 2 and tensor.element_type == f32
    assert tensor.is_dynamic_dim(1) and not tensor.has_static_shape and tensor.shape[0] == 4
    memref = ir.MemRefType.get([2, 3], f32, ir.StridedLayoutAttr.get(0, [3, 1]))
    assert memref.strides_and_offset == ([3, 1], 0)
    function = ir.FunctionType.get([f32], [tensor])
    assert function.inputs == [f32] and function.results == [tensor]
    assert ir.IntegerType(ir.Type.parse("i32")).width == 32
    assert ir.FloatType.isinstance(f32) and not ir.IntegerType.isinstance(f32)
    with pytest.raises(ValueError, match="cannot cast f32 to IntegerType"):
        ir.IntegerType(f32)
    with pytest.raises(ir.MLIRError, match="element type"):
        ir.MemRefType.get([2], ir.FunctionType.get([], []))


def test_attribute_values(context):
    i8, i64, f16 = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(64), ir.F16Type.get()
    assert ir.IntegerAttr.get(i8, -128).value == -128 and ir.IntegerAttr.get(i8, 255).value == -1
    for bad in (256, -129, 1 << 70):
        with pytest.raises(OverflowError, match="does not fit i8"):
            ir.IntegerAttr.get(i8, bad)
    assert ir.IntegerAttr.get(i64, -(1 << 63)).value == -(1 << 63)
    assert ir.IntegerAttr.get(ir.IntegerType.get_unsigned(64), (1 << 64) - 1).value == (1 << 64) - 1
    assert ir.BoolAttr.get(True).value is True and isinstance(ir.Attribute.parse("true"), ir.BoolAttr)
    assert ir.FloatAttr.get(f16, 0.1).value == pytest.approx(0.1, rel=1e-3)
    assert ir.Attribute.parse('[1 : i32, "a"]')[1].value == "a"
    dictionary = ir.DictAttr.get({"a": ir.UnitAttr.get()})
    assert "a" in dictionary and list(dictionary) == ["a"] and dictionary["a"] == ir.UnitAttr.get()
    assert list(ir.DenseI32ArrayAttr.get([1, -2])) == [1, -2]
    assert ir.FlatSymbolRefAttr.get("f").value == "f" and isinstance(ir.Attribute.parse("@f"), ir.FlatSymbolRefAttr)
    assert ir.SymbolRefAttr.get(["m", "f"]).value == ["m", "f"]
    assert ir.TypeAttr.get(f16).value == f16
    with pytest.raises(ir.MLIRError):
        ir.Attribute.parse("#nothing.here<")


def test_dense_elements(context):
    tensor = ir.RankedTensorType.get([2, 2], ir.IntegerType.get_signless(32))
    assert list(ir.DenseElementsAttr.get([1, 2, 3, -4], tensor)) == [1, 2, 3, -4]
    splat = ir.DenseElementsAttr.get_splat(tensor, 7)
    assert splat.is_splat and splat.get_splat_value().value == 7 and len(splat) == 4
    floats = ir.DenseElementsAttr.get([0.5], ir.RankedTensorType.get([3], ir.F32Type.get()))
    assert isinstance(floats, ir.DenseFPElementsAttr) and list(floats) == [0.5] * 3
    with pytest.raises(ValueError, match="expected 4 values, got 3"):
        ir.DenseElementsAttr.get([1, 2, 3], tensor)


def test_splats_and_elements_have_the_element_type(context):
    i32, f32 = ir.IntegerType.get_signless(32), ir.F32Type.get()
    floats, ints = ir.RankedTensorType.get([4], f32), ir.RankedTensorType.get([4], i32)
    one = ir.IntegerAttr.get(i32, 1)
    half = ir.FloatAttr.get(f32, 0.5)
    assert list(ir.DenseElementsAttr.get_splat(ints, one)) == [1] * 4
    assert list(ir.DenseElementsAttr.get_splat(floats, half)) == [0.5] * 4
    long = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)
    complexes = ir.RankedTensorType.get([2], ir.Type.parse("complex<f32>"))
    assert "(5.0" in str(ir.DenseElementsAttr.get_splat(complexes, ir.ArrayAttr.get([half, half])))
    for shaped, value in (
        (floats, one),
        (ints, half),
        (ints, long),
        (ints, ir.StringAttr.get("x")),
        (complexes, half),
        (complexes, ir.ArrayAttr.get([half, one])),
    ):
        with pytest.raises(ValueError, match="expected a value of type .*, got"):
            ir.DenseElementsAttr.get_splat(shaped, value)
        with pytest.raises(ValueError, match="expected a value of type .*, got"):
            ir.DenseElementsAttr.get([value], shaped)


def test_integer_widths(context):
    for get in (ir.IntegerType.get_signless, ir.IntegerType.get_signed, ir.IntegerType.get_unsigned):
        assert get(2**24 - 1).width == 2**24 - 1
        for width in (2**24, 2**30):
            with pytest.raises(ValueError, match=f"expected a width of at most 16777215 bits, got {width}"):
                get(width)


@pytest.mark.parametrize("wrong", [None, 3, "i32"])
def test_wrong_elements_are_type_errors(context, wrong):
    i32 = ir.IntegerType.get_signless(32)
    block = func.FuncOp("f", ([], []), ip=ir.InsertionPoint(ir.Module.create().body)).add_entry_block()
    for make in (
        lambda: ir.FunctionType.get([i32], [wrong]),
        lambda: ir.FunctionType.get([wrong], [i32]),
        lambda: ir.TupleType.get_tuple([wrong]),
        lambda: ir.ArrayAttr.get([wrong]),
        lambda: ir.DictAttr.get({"a": wrong}),
        lambda: ir.Location.fused([wrong]),
        lambda: ir.Location.callsite(ir.Location.unknown(), [wrong]),
        lambda: block.create_after(wrong),
        lambda: ir.Operation.create("cf.br", successors=[wrong]),
        lambda: ir.Operation.create("ditron.rank", results=[wrong]),
    ):
        with pytest.raises(TypeError, match=f"expected (a result )?(Type|Attribute|Location|Block), got {wrong!r}"):
            make()


def test_everything_shares_one_context(context):
    i32 = ir.IntegerType.get_signless(32)
    with ir.Context() as other:
        for make in (
            lambda: ir.FunctionType.get([i32], [], other),
            lambda: ir.FunctionType.get([], [i32], other),
            lambda: ir.TupleType.get_tuple([i32], other),
            lambda: ir.ArrayAttr.get([ir.TypeAttr.get(i32)], other),
            lambda: ir.DictAttr.get({"a": ir.TypeAttr.get(i32)}, other),
            lambda: ir.RankedTensorType.get([1], ir.F32Type.get(), ir.TypeAttr.get(i32)),
            lambda: ir.Location.fused([ir.Location.unknown(context)]),
        ):
            with pytest.raises(ValueError, match="belongs to another Context"):
                make()


def test_locations(context):
    file = ir.Location.file("k.py", 12, 4)
    assert (file.filename, file.start_line, file.start_col) == ("k.py", 12, 4)
    call = ir.Location.callsite(file, [ir.Location.file("m.py", 1, 1)])
    assert call.is_a_callsite() and call.callee == file and call.file_line_col == ("k.py", 12, 4)
    fused = ir.Location.fused([ir.Location.name("x", file), file])
    assert fused.file_line_col == ("k.py", 12, 4) and fused.locations[0].name_str == "x"
    assert ir.Location.unknown().file_line_col is None
    with pytest.raises(ValueError, match="expected a file location"):
        _ = call.filename


def test_symbol_table(module):
    table = ir.SymbolTable(module.operation)
    assert table["f"] is module.body.operations[0] and "g" not in table
    twin = table["f"].clone(ip=False)
    assert table.insert(twin).value == "f_0" and len(module.body.operations) == 2
    with pytest.raises(KeyError, match="no symbol 'g'"):
        table["g"]


def test_llvm_ir(context):
    module = ir.Module.parse("""
        llvm.func @f(%x: i64) -> i64 { %0 = llvm.mul %x, %x : i64 llvm.return %0 : i64 }""")
    text = ir.translate_module_to_llvmir(module)
    assert "define i64 @f(i64 %0)" in text and "mul i64 %0, %0" in text
    with pytest.raises(ir.MLIRError, match="func"):
        ir.translate_module_to_llvmir(ir.Module.parse("func.func @f() { return }"))


@pytest.mark.parametrize(
    "text,kind",
    [
        ("array<i64: 1, 2>", "I64"),
        ("array<i32: 3>", "I32"),
        ("array<i1: true>", "Bool"),
        ("array<f32: 1.0>", "F32"),
        ("array<i64>", "I64"),
    ],
)
def test_arrays_that_are_read_have_their_class(text, kind):
    with ir.Context():
        assert type(ir.Attribute.parse(text)) is getattr(ir, f"Dense{kind}ArrayAttr")


def test_a_symbol_table_is_not_inserted_into_itself():
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        with pytest.raises(ValueError, match="cannot be inserted into itself"):
            ir.SymbolTable(module.operation).insert(module.operation)
