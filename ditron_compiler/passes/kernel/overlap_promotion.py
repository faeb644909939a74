"""Let tensor cores compute a product while the one before it is scaled and added to a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.match_failure import MatchFailure
from ditron_compiler.ir.dialects import arith, scf, tt
from ditron_compiler.ir.matchers import constant_int, defining_op
from ditron_compiler.ir.pass_base import Pass

__all__ = ["OverlapPromotion"]

_DOT, _WAIT, _INDEX = "ttng.warp_group_dot", "ttng.warp_group_dot_wait", "ttg.memdesc_index"
_VIEWS = ("ttg.memdesc_trans", "ttg.memdesc_reshape", "ttg.memdesc_subslice")
_COPIES = (
    "ttng.async_tma_copy_global_to_local",
    "ttng.async_tma_gather",
    "ttg.async_copy_global_to_local",
    "ttg.local_store",
)


@dataclass(frozen=True)
class OverlapPromotion(Pass):
    """Let tensor cores compute a product while the one before it is scaled and added to a sum.

    Runs on TTGIR, after Triton has pipelined loops. There, each product of Hopper's tensor cores whose result is scaled
    before it is added, as of fp8 with scales of blocks, is waited for at once, so that tensor cores and the others take
    turns. In a loop with two such products or more in each iteration, the scaled addition of one moves behind the start
    of the next, that of the last one into the next iteration, behind the start of the first. What is then left at the
    end of a sum is added where that is read: under the condition under which the next sum begins, as in a loop over
    tiles and K that Triton has flattened. The order of additions stays. Multiplication and addition become one
    instruction of inline assembly with side effects: others LLVM would move behind all products.

    A loop stays as it is if its products are added to each other by tensor cores, if its sums are read elsewhere, or if
    what the last product reads may be overwritten before the next iteration waits for it.

    Before::

        scf.for ... iter_args(%acc = %zeros) {
          %x = ttng.warp_group_dot %a, %b, %zeros {isAsync = true}
          %x1 = ttng.warp_group_dot_wait %x {pendings = 0}
          %acc1 = %acc + %x1 * %scale_x
          %y = ttng.warp_group_dot %c, %d, %zeros {isAsync = true}
          %y1 = ttng.warp_group_dot_wait %y {pendings = 0}
          %acc2 = %acc1 + %y1 * %scale_y
          scf.if %last { store %acc2 }
          scf.yield (%last ? %zeros : %acc2)
        }

    After::

        scf.for ... iter_args(%acc = %zeros, %before = %zeros, %scale_before = %zeros) {
          %x = ttng.warp_group_dot %a, %b, %zeros {isAsync = true}
          %y0, %x0 = ttng.warp_group_dot_wait %before, %x {pendings = 1}
          %acc0 = %acc + %y0 * %scale_before
          %y = ttng.warp_group_dot %c, %d, %zeros {isAsync = true}
          %x1, %y1 = ttng.warp_group_dot_wait %x0, %y {pendings = 1}
          %acc1 = %acc0 + %x1 * %scale_x
          scf.if %last { %y2 = ttng.warp_group_dot_wait %y1 {pendings = 0}; store %acc1 + %y2 * %scale_y }
          scf.yield (%last ? %zeros, %zeros, %zeros : %acc1, %y1, %scale_y)
        }
    """

    name: ClassVar[str] = "overlap-promotion"

    def run(self, op: ir.Operation) -> None:
        loops: list[ir.Operation] = []
        op.walk(lambda each: loops.append(each) if each.name == "scf.for" else None)
        for loop in loops:
            dots = [each for each in loop.regions[0].blocks[0].operations if each.name == _DOT]
            if len(dots) < 2:
                continue
            try:
                products = [_Product.of(dot) for dot in dots]
                _Rewrite(loop, products).apply()
            except MatchFailure as failure:
                loop.emit_remark(f"tensor cores wait in this loop: {failure.reason}")
            else:
                self.count("products whose promotion is overlapped", len(products))


@dataclass(frozen=True)
class _Product:
    """``add = acc + dot * scale``, the latter as it was before ``views``, in their order, broadcast it."""

    dot: ir.Operation
    wait: ir.Operation
    mul: ir.Operation
    add: ir.Operation
    scale: ir.Value
    views: tuple[ir.Operation, ...]

    @staticmethod
    def of(dot: ir.Operation) -> _Product:
        wait = _only_user(dot.results[0], _WAIT)
        is_async = "isAsync" in dot.attributes and ir.BoolAttr(dot.attributes["isAsync"]).value
        if not is_async or ir.IntegerAttr(wait.attributes["pendings"]).value != 0 or not _is_zero(dot.operands[2]):
            raise MatchFailure("one adds to another's, or is not waited for by itself", dot)
        mul = _only_user(wait.results[0], "arith.mulf")
        add = _only_user(mul.results[0], "arith.addf")
        scales = [value for value in mul.operands if value != wait.results[0]]
        is_used = any(result.has_uses for result in list(wait.results)[1:])
        if len(scales) != 1 or is_used or any(each.block is not dot.block for each in (wait, mul, add)):
            raise MatchFailure("a result is not scaled and added once", dot)
        (scale,), views = scales, []
        while (view := defining_op(scale)) is not None and view.name in ("tt.broadcast", "tt.expand_dims"):
            views.append(view)
            scale = view.operands[0]
        return _Product(dot, wait, mul, add, scale, tuple(reversed(views)))

    @property
    def acc(self) -> ir.Value:
        return next(value for value in self.add.operands if value != self.mul.results[0])

    def promoted(self, product: ir.Value, scale: ir.Value, acc: ir.Value, ip: ir.InsertionPoint) -> ir.Value:
        """``acc + product * scale`` of other values than its own."""
        loc = self.add.location
        for view in self.views:
            scale = view.clone(ip, {view.operands[0]: scale}).results[0]
        return tt.ElementwiseInlineAsmOp(
            acc.type,
            [product, scale, acc],
            asm_string=ir.StringAttr.get("fma.rn.f32 $0, $1, $2, $3;"),
            constraints=ir.StringAttr.get("=f,f,f,f"),
            pure=ir.BoolAttr.get(False),
            packed_element=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
            loc=loc,
            ip=ip,
        ).results[0]

    def waited(self, values: list[ir.Value], pendings: int, ip: ir.InsertionPoint) -> list[ir.Value]:
        """Products, of which this is the latest, when at most so many are pending, which then still are."""
        attributes = {"pendings": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), pendings)}
        values = [*values, *self.wait.operands[1:]]  # what it reads must not be freed
        types = [value.type for value in values]
        return list(ir.Operation.create(_WAIT, types, values, attributes, loc=self.wait.location, ip=ip).results)

    def erase(self) -> None:
        for op in (self.add, self.mul, self.wait):
            op.erase()


class _Rewrite:
    """Of one loop; the constructor checks, and changes nothing."""

    def __init__(self, loop: ir.Operation, products: list[_Product]):
        self.loop, self.products, self.last = loop, products, products[-1]
        self.block = loop.regions[0].blocks[0]
        operations = list(self.block.operations)
        if sum(op.name == _WAIT for op in operations) != len(products):
            raise MatchFailure("there are other waits in it")
        for product, following in zip(products, products[1:], strict=False):
            if not _is_before(product.scale, following.dot):
                raise MatchFailure("a scale is computed behind the next product")
            for user in product.add.results[0].users:
                if not following.dot.is_before_in_block(_ancestor(user, self.block)):
                    raise MatchFailure("a sum is read before the next product")
        for op in operations:
            if op.name in _COPIES and (op.is_before_in_block(products[0].dot) or self._may_overwrite(op)):
                raise MatchFailure("what the last product reads may be overwritten")
        self.select, self.index, self.reads = self._uses_of_the_last_sum()
        users = self.block.arguments[1 + self.index].users
        if len(users) != 1 or users[0] not in [product.add for product in products]:
            raise MatchFailure("the sum is read in it")

    def _uses_of_the_last_sum(self) -> tuple[ir.Operation, int, list[ir.Operation]]:
        """What sets it to zero, which of the loop's results it is, and what reads it under the same condition."""
        uses = self.last.add.results[0].uses
        selects = [use.owner for use in uses if use.owner.block is self.block]
        if len(selects) != 1 or selects[0].name != "arith.select" or not _is_zero(selects[0].operands[1]):
            raise MatchFailure("the sum does not begin anew under a condition")
        (select,) = selects
        (use,) = select.results[0].uses
        if use.owner is not self.block.terminator or self.loop.results[use.operand_number].has_uses:
            raise MatchFailure("the sum is read behind it")
        reads = [use.owner for use in uses if use.owner is not select]
        for op in reads:
            branch = _ancestor(op, self.block)
            if branch.name != "scf.if" or branch.operands[0] != select.operands[0]:
                raise MatchFailure("the sum is read in it")
        return select, use.operand_number, reads

    def _may_overwrite(self, copy: ir.Operation) -> bool:
        """Whether a copy may be to the last product's operands; of buffers in turns it is to that of another turn."""
        for index in map(defining_op, copy.operands):
            for read in map(_buffer, self.last.dot.operands[:2]):
                if read is None:
                    return True
                if index is None or index.name != _INDEX or index.operands[0] != read.operands[0]:
                    continue
                here, there = (_turn(each.operands[1], self.block) for each in (index, read))
                if here is None or there is None or here[1] != there[1] or (here[0] - there[0]) % here[1] == 0:
                    return True
        return False

    def apply(self) -> None:
        last = self.last
        zeros = [last.dot.operands[2], self._zeros(last.scale.type)]
        loop = self._with_carried(zeros)
        product, scale = loop.body.arguments[-2:]
        argument = loop.body.arguments[1 + self.index]
        (use,) = argument.uses
        first, operand = use.owner, use.operand_number
        ip = ir.InsertionPoint(self.products[0].dot.next_op)
        product, pending, *_ = self.products[0].waited([product, self.products[0].dot.results[0]], 1, ip)
        first.operands[operand] = last.promoted(product, scale, argument, ip)
        for each, following in zip(self.products, self.products[1:], strict=False):
            ip = ir.InsertionPoint(following.dot.next_op)
            product, pending, *_ = following.waited([pending, following.dot.results[0]], 1, ip)
            each.add.results[0].replace_all_uses_with(each.promoted(product, each.scale, each.acc, ip))
            each.erase()
        for block in {op.block for op in self.reads}:
            ip = ir.InsertionPoint.at_block_begin(block)
            product, *_ = last.waited([pending], 0, ip)
            whole = last.promoted(product, last.scale, last.acc, ip)
            for use in last.add.results[0].uses:
                if use.owner.block is block:
                    use.owner.operands[use.operand_number] = whole
        last.add.results[0].replace_all_uses_with(last.acc)
        last.erase()
        terminator, at = loop.body.operations[-1], self.select.location
        carried = scf.IfOp(
            self.select.operands[0], [value.type for value in zeros], loc=at, ip=ir.InsertionPoint(terminator)
        )
        scf.YieldOp(zeros, loc=at, ip=ir.InsertionPoint(carried.then_block))
        scf.YieldOp([pending, last.scale], loc=at, ip=ir.InsertionPoint(carried.else_block))
        scf.YieldOp([*terminator.operands, *carried.results], loc=terminator.location, ip=ir.InsertionPoint(terminator))
        terminator.erase()

    def _zeros(self, of: ir.Type) -> ir.Value:
        value = ir.Attribute.parse(f"dense<0.0> : {of}", self.loop.context)
        return arith.ConstantOp(of, value, loc=self.loop.location, ip=ir.InsertionPoint(self.loop)).result

    def _with_carried(self, values: list[ir.Value]) -> scf.ForOp:
        """The loop with more values that it carries; its terminator does not have them yet."""
        old, results = self.loop, list(self.loop.results)
        bounds, inits = old.operands[:3], [*old.operands[3:], *values]
        loop = scf.ForOp(*bounds, inits, loc=old.location, ip=ir.InsertionPoint(old))
        for name, value in dict(old.attributes).items():
            loop.attributes[name] = value
        for before, now in zip(self.block.arguments, loop.body.arguments, strict=False):
            before.replace_all_uses_with(now)
        for op in list(self.block.operations):
            ir.InsertionPoint(loop.body).insert(op.detach_from_parent())
        for before, now in zip(results, loop.results, strict=False):
            before.replace_all_uses_with(now)
        old.erase()
        return loop


def _only_user(value: ir.Value, name: str) -> ir.Operation:
    users = value.users
    if len(users) != 1 or users[0].name != name:
        raise MatchFailure("a result is not scaled and added once", value.owner)
    return users[0]


def _is_zero(value: ir.Value) -> bool:
    """Whether it is a tile of f32 zeros."""
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return False
    zeros = str(op.attributes["value"])
    return zeros.startswith("dense<0.000000e+00>") and "xf32" in zeros


def _is_before(value: ir.Value, op: ir.Operation) -> bool:
    definition = defining_op(value)
    return definition is None or definition.block is not op.block or definition.is_before_in_block(op)


def _ancestor(op: ir.Operation, block: ir.Block) -> ir.Operation:
    while op.block is not block:
        op = op.parent
    return op


def _buffer(value: ir.Value) -> ir.Operation | None:
    """Which of several buffers an operand of a product lies in."""
    op = defining_op(value)
    while op is not None and op.name in _VIEWS:
        op = defining_op(op.operands[0])
    return op if op is not None and op.name == _INDEX else None


def _turn(index: ir.Value, body: ir.Block) -> tuple[int, int] | None:
    """Of an index that each iteration increments, to 0 behind the last: what it begins with, and how many there are."""
    select = defining_op(index)
    if select is None or select.name != "arith.select":
        return None
    compare, add = defining_op(select.operands[0]), defining_op(select.operands[2])
    if compare is None or add is None or compare.name != "arith.cmpi" or add.name != "arith.addi":
        return None
    argument, size = add.operands[0], constant_int(compare.operands[1])
    ends = compare.operands[0] == add.results[0] and constant_int(select.operands[1]) == 0 and size
    if not ends or constant_int(add.operands[1]) != 1 or argument not in list(body.arguments)[1:]:
        return None
    position = list(body.arguments).index(argument) - 1
    begin = constant_int(body.owner.operands[3 + position])
    if begin is None or body.terminator.operands[position] != index:
        return None
    return begin, size
