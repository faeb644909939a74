"""Whatever Python does with operations that are gone, it gets an exception; the process lives."""

import contextlib
import gc
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, func, scf
from ditron_compiler.ir.passmanager import PassManager

TEXT = """
func.func @f(%x: i32, %c: i1) -> i32 {
  %0 = arith.addi %x, %x : i32
  %1 = scf.if %c -> i32 {
    %2 = arith.muli %0, %x : i32
    scf.yield %2 : i32
  } else {
    scf.yield %x : i32
  }
  return %1 : i32
}
"""


@pytest.fixture
def module():
    with ir.Context(), ir.Location.unknown():
        yield ir.Module.parse(TEXT)


def entry(module):
    return module.body.operations[0].entry_block


def touch_all(op):
    """Everything that can be read of an operation, its values and blocks."""
    for read in (
        lambda: op.name,
        lambda: op.operands,
        lambda: op.results,
        lambda: op.attributes,
        lambda: op.regions,
        lambda: op.location,
        lambda: op.parent,
        lambda: op.block,
        lambda: str(op),
        lambda: op.next_op,
        lambda: op.erase(),
        lambda: op.clone(),
        lambda: op.walk(print),
        lambda: op.verify(),
        lambda: op.move_before(op),
        lambda: ir.InsertionPoint(op),
        lambda: op.emit_error("x"),
    ):
        with pytest.raises(RuntimeError, match="erased"):
            read()


def test_erased_operation_raises(module):
    choice = entry(module).operations[1]
    product = choice.then_block.operations[0]
    block, value, operands, region = choice.then_block, product.result, product.operands, choice.regions[0]
    attributes = product.attributes
    choice.result.replace_all_uses_with(entry(module).arguments[0])
    choice.erase()
    touch_all(choice)
    touch_all(product)  # nested
    for read in (
        lambda: block.operations,
        lambda: block.arguments,
        lambda: str(block),
        lambda: value.type,
        lambda: value.uses,
        lambda: operands[0],
        lambda: len(region.blocks),
        lambda: attributes["x"],
        lambda: arith.AddIOp(value, value),
        lambda: ir.InsertionPoint(block).insert(product),
    ):
        with pytest.raises(RuntimeError, match="erased"):
            read()
    assert not choice.is_valid and "erased" in repr(choice)
    assert module.operation.verify()


def test_used_operations_are_not_erased(module):
    block = entry(module)
    with pytest.raises(ValueError, match="still used"):
        block.operations[0].erase()
    choice = block.operations[1]
    with pytest.raises(ValueError, match="still used"):
        choice.erase()
    assert module.operation.verify()


def test_passes_invalidate(module):
    function, held = module.body.operations[0], entry(module).operations[0]
    value, block = held.result, entry(module)
    PassManager.parse("builtin.module(canonicalize,cse)").run(module)
    touch_all(held)
    touch_all(function)
    for read in (lambda: value.owner, lambda: block.operations):
        with pytest.raises(RuntimeError, match="pass ran over it"):
            read()
    assert len(entry(module).operations) == 3  # got again: fine


def test_dead_values_as_keys_never_equal_new_ones(module):
    block = entry(module)
    table = {}
    with ir.InsertionPoint(block.operations[0]):
        for i in range(200):  # addresses are reused
            op = arith.AddIOp(block.arguments[0], block.arguments[0])
            assert op.result not in table
            table[op.result] = i
            op.erase()
    assert len(table) == 200


def test_operations_keep_their_module_and_context():
    with ir.Context(), ir.Location.unknown():
        function = ir.Module.parse(TEXT).body.operations[0]
    gc.collect()
    assert function.sym_name.value == "f" and function.parent.name == "builtin.module"
    value = function.entry_block.operations[0].result
    del function
    gc.collect()
    assert str(value.type) == "i32" and value.owner.parent.parent.verify()


def test_types_keep_their_context():
    with ir.Context():
        type = ir.Type.parse("tensor<4xf32>")
    gc.collect()
    assert type.element_type == ir.F32Type.get(type.context)


def test_detached_operations_are_freed_or_kept(module):
    block = entry(module)
    x = block.arguments[0]
    detached = arith.AddIOp(x, x, ip=False)
    user = arith.MulIOp(detached, x, ip=ir.InsertionPoint(block.terminator))
    del detached
    gc.collect()
    # Its result is in use: the operation must not be freed under the user.
    assert user.lhs.owner.name == "arith.addi"
    with pytest.raises(ir.MLIRError):
        module.operation.verify()
    user.erase()
    assert module.operation.verify()


def test_a_detached_branch_is_in_no_predecessor():
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse("func.func @f() {\n  cf.br ^b\n^b:\n  return\n}")
        entry, target = module.body.operations[0].regions[0].blocks
        assert list(target.predecessors) == [entry]
        branch = entry.operations[0].detach_from_parent()
        assert list(target.predecessors) == []
        entry.append(branch)
        assert list(target.predecessors) == [entry]


def test_moves_between_modules(module):
    other = ir.Module.create()
    function = module.body.operations[0]
    inner = function.entry_block.operations[0]
    function.detach_from_parent()
    other.body.append(function)
    del module, function
    gc.collect()
    assert inner.parent.parent is other.operation
    del other
    gc.collect()
    assert inner.parent.parent.verify()


def test_impossible_moves(module):
    function = module.body.operations[0]
    choice = entry(module).operations[1]
    inner = choice.then_block.operations[0]
    for move in (
        lambda: choice.move_before(inner),
        lambda: ir.InsertionPoint(inner).insert(choice),
        lambda: choice.then_block.append(function),
        lambda: choice.then_block.append_to(inner.parent.regions[1]) if False else choice.move_after(inner),
    ):
        with pytest.raises(ValueError):
            move()
    with ir.Context(), ir.Location.unknown():
        elsewhere = ir.Module.create()
        with pytest.raises(ValueError, match="another Context"):
            function.move_before(ir.Operation.create("func.return", ip=ir.InsertionPoint(elsewhere.body)))
        with pytest.raises(ValueError, match="another Context"):
            arith.AddIOp(inner.lhs, inner.rhs)
    assert module.operation.verify()


def test_a_failed_creation_leaves_nothing(module):
    block = entry(module)
    gone = block.operations[0].clone(ip=ir.InsertionPoint(block.operations[0]))
    point = ir.InsertionPoint(gone)
    gone.erase()
    before = str(module)
    for _ in range(10):
        with pytest.raises(RuntimeError):
            arith.AddIOp(block.arguments[0], block.arguments[0], ip=point)
        with pytest.raises(RuntimeError):
            ir.Operation.create("arith.addi", [block.arguments[0].type], [block.arguments[0]] * 2, ip=point)
    gc.collect()
    assert str(module) == before


def test_erasing_while_walking_and_iterating(module):
    block = entry(module)
    with ir.InsertionPoint(block.terminator):
        for _ in range(10):
            arith.AddIOp(block.arguments[0], block.arguments[0])

    def clean(op):
        if isinstance(op, arith.AddIOp) and not op.result.has_uses:
            following = op.next_op
            op.erase()
            if isinstance(following, arith.AddIOp):
                following.erase()  # also what the walk has not reached yet

    module.operation.walk(clean)
    assert str(module).count("arith.addi") == 1
    for op in block.operations:
        if isinstance(op, func.ReturnOp):
            op.operands[0] = block.arguments[0]
    for op in reversed(list(block.operations)):
        if isinstance(op, scf.IfOp | arith.AddIOp):
            op.erase()
    assert [op.name for op in block.operations] == ["func.return"]
    assert module.operation.verify()


def test_no_wrapper_is_left_behind():
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(TEXT)
        module.operation.walk(lambda op: None)
        gc.collect()
        assert context._live_operation_count() == 1  # the module
        del module
        gc.collect()
        assert context._live_operation_count() == 0


@pytest.mark.parametrize("user", ["inside", "elsewhere"])
def test_a_result_of_an_operation_in_no_block(user):
    """MLIR's verifier, which printing calls, reads the block of what defines an operand."""
    text = """func.func @f(%c: i1, %x: i32) -> i32 {
      %sum = arith.addi %x, %x : i32
      %r = scf.if %c -> i32 { %a = arith.muli %sum, %x : i32
        scf.yield %a : i32 } else { scf.yield %x : i32 }
      return %x : i32 }"""
    with ir.Context(), ir.Location.unknown():
        module, ops = ir.Module.parse(text), {}
        module.operation.walk(lambda op: ops.__setitem__(op.name, op))
        branch, product, total = ops["scf.if"], ops["arith.muli"], ops["arith.addi"]
        if user == "inside":
            product.operands[0] = branch.results[0]
        (branch if user == "inside" else total).detach_from_parent()
        with pytest.raises(ir.MLIRError, match="a result of an operation that is in no block is used"):
            branch.verify()
        assert '"scf.if"' in str(branch) and '"arith.muli"' in str(branch.regions[0].blocks[0])
        assert '"arith.muli"' in str(product.results[0]) and product.results[0].get_name().startswith("%")
        if user == "elsewhere":
            assert '"arith.muli"' in str(module)


TEXT_WITH_BLOCKS = (
    TEXT
    + """
func.func @g(%c: i1, %x: i32) -> i32 {
  cf.cond_br %c, ^a(%x : i32), ^b
^a(%y: i32):
  cf.br ^b
^b:
  %z = arith.addi %x, %x : i32
  return %z : i32
}
"""
)


class Editor:
    """Two modules, operations, blocks and values of them that may be gone by now, and edits of those."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.modules = [ir.Module.parse(TEXT_WITH_BLOCKS) for _ in range(2)]
        self.ops, self.blocks, self.values = [], [], []
        self.gather()

    def gather(self):
        for module in self.modules:
            module.operation.walk(self.ops.append)
        for op in self.ops[-40:]:
            self.blocks += [block for region in op.regions for block in region.blocks]
            self.values += [*op.results, *(argument for block in self.blocks[-8:] for argument in block.arguments)]

    @property
    def op(self):
        return self.random.choice(self.ops)

    @property
    def block(self):
        return self.random.choice(self.blocks)

    @property
    def value(self):
        return self.random.choice(self.values)

    def create(self):
        with ir.InsertionPoint(self.random.choice([self.op, self.block])):
            self.ops.append(arith.AddIOp(self.value, self.value))
            self.values.append(self.ops[-1].result)

    def clone(self):
        where = self.random.choice([False, ir.InsertionPoint(self.block)])
        self.ops.append(self.op.clone(ip=where, mapping={self.value: self.value}))

    def run_passes(self):
        module = self.random.choice(self.modules)
        module.operation.verify()
        PassManager.parse("builtin.module(canonicalize,cse,inline,symbol-dce)").run(module)
        self.gather()

    def forget(self):
        chosen = self.random.choice([self.ops, self.blocks, self.values])
        chosen.pop(self.random.randrange(len(chosen)))
        gc.collect()

    def read(self):
        op, block, value = self.op, self.block, self.value
        for look in (
            lambda: (str(op), op.parent, op.next_op, op.block, [str(b) for region in op.regions for b in region]),
            lambda: (str(block), block.owner, block.predecessors, block.successors, list(block.operations)),
            lambda: (str(value), value.get_name(), value.owner, [use.owner.name for use in value.uses]),
        ):
            self.attempt(look)

    def attempt(self, edit):
        with contextlib.suppress(RuntimeError, ValueError, IndexError, AttributeError, ir.MLIRError):
            edit()

    ACTIONS = {
        "create": create,
        "clone": clone,
        "passes": run_passes,
        "forget": forget,
        "read": read,
        "erase": lambda self: self.op.erase(),
        "move": lambda self: self.random.choice([self.op.move_before, self.op.move_after])(self.op),
        "detach": lambda self: self.op.detach_from_parent(),
        "insert": lambda self: self.block.append(self.op),
        "insert symbol": lambda self: ir.SymbolTable(self.op).insert(self.op),
        "assign": lambda self: self.op.operands.__setitem__(0, self.value),
        "replace": lambda self: self.value.replace_all_uses_with(self.value),
        "retype": lambda self: self.value.set_type(ir.F32Type.get()),
        "split": lambda self: self.blocks.append(self.block.split_before(self.op)),
        "erase block": lambda self: self.block.erase(),
        "move block": lambda self: self.block.append_to(self.block.region),
        "take body": lambda self: self.block.region.take_body(self.block.region),
        "add block": lambda self: self.blocks.append(self.block.create_after(ir.F32Type.get())),
        "add argument": lambda self: self.values.append(self.block.add_argument(ir.F32Type.get())),
        "erase argument": lambda self: self.block.erase_argument(self.random.randrange(-2, 2)),
    }


@pytest.fixture(scope="module")
def few_objects_to_collect():
    """What was there before is not looked at by each collection, which takes a second with torch and other tests."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects_to_collect")
@settings(max_examples=int(os.environ.get("DITRON_FUZZ", "60")), deadline=None)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(sorted(Editor.ACTIONS)), min_size=5, max_size=60))
def test_random_edits_never_crash(seed, actions):
    """Random edits, of operations that may be gone: exceptions are fine, a crash or a corrupt module is not."""
    with ir.Context(), ir.Location.unknown():
        editor = Editor(seed)
        for action in actions:
            editor.attempt(lambda: Editor.ACTIONS[action](editor))  # noqa: B023 - called at once
        for module in editor.modules:
            editor.attempt(lambda: str(module))  # noqa: B023
        editor = module = None
        gc.collect()
