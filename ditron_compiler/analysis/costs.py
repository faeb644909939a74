"""What an operation of a kernel costs: products, and bytes that are loaded or stored."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.alias import POINTER_ARITHMETIC, underlying_objects
from ditron_compiler.analysis.slicing import backward_slice
from ditron_compiler.ir.dialects import arith, ditron, scf, tt
from ditron_compiler.ir.dialects.ditron import Cost
from ditron_compiler.ir.matchers import defining_op, is_function_argument

__all__ = [
    "FLOATS",
    "LOADS",
    "PRODUCTS",
    "OperationCost",
    "ProductBytes",
    "bytes_of",
    "cost_of",
    "element_type",
    "feeds_products",
    "is_float",
    "largest_product",
    "shared_bytes",
]

#: An attribute of puts and gets of floats that take time, and are not moved.
FLOATS = "ditron.floats"

#: Costs of products.
PRODUCTS = (Cost.Dot8, Cost.Dot16, Cost.Dot32)

#: Loads of tiles.
LOADS = (tt.LoadOp, tt.DescriptorLoadOp, tt.DescriptorGatherOp)
_STORES = {
    ditron.StOp: "value",
    tt.StoreOp: "value",
    tt.DescriptorStoreOp: "src",
    tt.DescriptorScatterOp: "src",
    tt.DescriptorReduceOp: "src",
}


@dataclass(frozen=True)
class OperationCost:
    """``amount`` operations, or bytes at ``place``, a scalar pointer; without a place, of this rank's memory.

    With ``mask`` they are bytes of each element for which that holds.
    """

    cost: Cost
    amount: int
    place: ir.Value | None = None
    mask: ir.Value | None = None


def cost_of(op: ir.Operation, operations_per_kb: int = 0, num_warps: int = 4) -> OperationCost | None:
    """The cost of one execution of ``op``; None if it has none.

    Loads that only products use have none here (operand_reads.py), but a product of a small tile counts as many
    operations as tensor cores do while its operands pass shared memory: ``operations_per_kb`` of 16-bit operands. Loads
    that are the same in every program have none: one of them reads memory. Nor have scalars a cost. Masks are looked at
    if they depend on integers that are loaded, as which rows a token has: a tile at the edge of a matrix costs what any
    other does.
    """
    if isinstance(op, (tt.DotOp, tt.DotScaledOp)):
        *batch, m, k = ir.RankedTensorType(op.a.type).shape
        n = ir.RankedTensorType(op.b.type).shape[-1]
        meanwhile = operations_per_kb * 16 * shared_bytes(op, num_warps) // (1024 * _bits(op.a.type))
        return OperationCost(_product(op), max(2 * math.prod(batch) * m * n * k, meanwhile))
    if isinstance(op, LOADS):
        if feeds_products(op.results[0]) or not _differs_by_program(op):
            return None
        return _access(Cost.Load, op.results[0].type, op)
    for kind, name in _STORES.items():
        if isinstance(op, kind):
            return _access(Cost.Store, getattr(op, name).type, op)
    return None


def shared_bytes(product: ir.Operation, num_warps: int) -> int:
    """Bytes of a product's operands that an SM writes to shared memory, and reads from it, through the same port.

    Each operand is written once; one that is not loaded, as one in registers, does not count. A group of four warps
    computes 64 rows by an instruction that reads both operands (wgmma, of the PTX ISA): the right one is read for every
    64 rows, the left one by every group that has other columns. Groups divide rows first, then columns, as
    warpsPerTileV3 in Triton's AccelerateMatmul.cpp has them do.
    """
    rows = max(1, ir.RankedTensorType(product.a.type).shape[-2] // 64)
    columns = max(1, num_warps // 4 // rows)
    times_read = ((product.a, columns), (product.b, rows))
    return sum(bytes_of(one.type) * (1 + times) for one, times in times_read if _is_loaded(one, product.block))


@dataclass(frozen=True)
class ProductBytes:
    """What products of one loop hold on an SM: bytes of the operands of a step, and of accumulators in fp32."""

    operands: int
    accumulator: int


def largest_product(every: Iterable[ir.Operation]) -> ProductBytes | None:
    """Of the block with the largest accumulators; None if there is no product."""
    blocks: dict[ir.Block, list[ir.Operation]] = defaultdict(list)
    for op in every:
        if isinstance(op, (tt.DotOp, tt.DotScaledOp)):
            blocks[op.block].append(op)
    found = (
        ProductBytes(
            sum(bytes_of(operand.type) for op in products for operand in (op.a, op.b) if _is_loaded(operand, op.block)),
            sum(bytes_of(op.results[0].type) for op in products),
        )
        for products in blocks.values()
    )
    return max(found, key=lambda product: product.accumulator, default=None)


def element_type(type_: ir.Type) -> ir.Type:
    """The type of a scalar, or of a tensor's elements."""
    return ir.RankedTensorType(type_).element_type if ir.RankedTensorType.isinstance(type_) else type_


def is_float(type_: ir.Type) -> bool:
    """Whether values of a type are floating point, or tensors of it."""
    return isinstance(element_type(type_), ir.FloatType)


def _product(op: ir.Operation) -> Cost:
    bits = _bits(op.a.type)
    return Cost.Dot8 if bits <= 8 else Cost.Dot16 if bits <= 16 else Cost.Dot32


def _is_loaded(value: ir.Value, block: ir.Block) -> bool:
    """Whether an operand is loaded each time that its product is computed: in the same block, or in a branch there."""
    op = defining_op(value)
    if op is None or op.block != block or isinstance(op, (tt.DotOp, tt.DotScaledOp)):
        return False
    if isinstance(op, (*LOADS, scf.IfOp)):
        return ir.RankedTensorType.isinstance(value.type)
    return any(_is_loaded(operand, block) for operand in op.operands)


def _access(cost: Cost, type_: ir.Type, op: ir.Operation) -> OperationCost | None:
    if not ir.RankedTensorType.isinstance(type_):
        return None
    place, mask = _remote_place(op.operands[0]), _mask_of_data(op)
    if mask is not None and _bits(type_) % 8 == 0:
        return OperationCost(cost, _bits(type_) // 8, place, mask)
    return OperationCost(cost, bytes_of(type_), place)


def _mask_of_data(op: ir.Operation) -> ir.Value | None:
    """The mask of a load or store, if it depends on integers that are loaded, and on nothing that other programs change
    meanwhile or that is made of floats.
    """
    if not isinstance(op, (tt.LoadOp, tt.StoreOp)) or op.mask is None:
        return None
    sources = list(backward_slice(op.mask))
    if any(is_float(value.type) for value in sources):
        return None
    made_by = [defining_op(value) for value in sources]
    others = [o for o in made_by if o is not None and not len(o.regions) and not o.is_memory_effect_free]
    loads = [o for o in others if isinstance(o, tt.LoadOp)]
    return op.mask if loads and len(loads) == len(others) else None


def bytes_of(type_: ir.Type) -> int:
    """The bytes of a tile."""
    return math.prod(ir.RankedTensorType(type_).shape) * _bits(type_) // 8


def _bits(type_: ir.Type) -> int:
    return getattr(element_type(type_), "width", 64)  # a pointer's


def feeds_products(value: ir.Value) -> bool:
    """Whether a value reaches nothing but operands of products, through operations on its elements or its shape."""
    seen, worklist = set(), [value]
    while worklist:
        value = worklist.pop()
        for use in value.uses:
            op = use.owner
            if isinstance(op, (tt.DotOp, tt.DotScaledOp)):
                if value == op.c:
                    return False
            elif not op.is_memory_effect_free or len(op.results) != 1 or len(op.regions):
                return False
            elif op.results[0] not in seen:
                seen.add(op.results[0])
                worklist.append(op.results[0])
    return bool(seen) or any(True for _ in value.uses)


def _differs_by_program(load: ir.Operation) -> bool:
    """Whether programs may load from different places ("may"): constants from a kernel's argument on are one place."""
    for value in (value for operand in load.operands for value in backward_slice(operand)):
        op = defining_op(value)
        if op is None:
            if is_function_argument(value) and ir.RankedTensorType.isinstance(value.type):
                return True
        elif isinstance(op, (tt.GetProgramIdOp, *LOADS)) or not op.is_memory_effect_free and not len(op.regions):
            return True
    return False


def _remote_place(pointer: ir.Value) -> ir.Value | None:
    """A scalar pointer into the memory of another rank that ``pointer`` is computed from; None: this rank's.

    Of pointers that are chosen element by element, all count as the first that is another rank's: no less than what
    passes links in all, and for one link an upper bound.
    """
    if not _may_be_remote(pointer):
        return None
    while ir.RankedTensorType.isinstance(pointer.type) or isinstance(defining_op(pointer), tt.MakeTensorDescOp):
        op = defining_op(pointer)
        if isinstance(op, arith.SelectOp):
            pointer = op.true_value if _may_be_remote(op.true_value) else op.false_value
            continue
        if not isinstance(op, (*POINTER_ARITHMETIC, ditron.ConsumeTokenOp, tt.MakeTensorDescOp)):
            return None  # a tensor of ranks, or carried by a loop
        pointer = op.operands[0]
    return pointer if "!tt.ptr" in str(pointer.type) else None


def _may_be_remote(pointer: ir.Value) -> bool:
    return any(origin.rank is not None for origin in underlying_objects(pointer))
