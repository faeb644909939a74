"""Short names for the func/scf/arith/llvm operations that the lowering writes.

One builder serves one function: constants are made once, at the top of the entry block, and tile buffers just below
them, so both dominate everything. Types are given by their MLIR spelling.
"""

from __future__ import annotations

from collections.abc import Sequence

from ditron_compiler import ir
from ditron_compiler.ir.dialects.enums import PREDICATES

DYNAMIC_INDEX = -(2**31)  # llvm.getelementptr's mark for "this index is an operand"


class Builder:
    """Appends operations at `ip`, with location `loc`."""

    def __init__(self, types: dict[str, ir.Type], loc: ir.Location):
        self.types = types
        self.loc = loc
        self.ip: ir.InsertionPoint | None = None
        self.scalar_only = 0  # operations so far that keep a loop from being vectorised: calls, divisions, ...
        self.called: dict[str, tuple[list[ir.Type], list[ir.Type]]] = {}
        self._constants: dict[tuple, ir.Value] = {}
        self._attrs: dict[tuple, ir.Attribute] = {}

    def enter(self, block: ir.Block) -> None:
        """Start a function body in its (empty) entry block."""
        self.ip = ir.InsertionPoint(block)
        first = self.create("arith.constant", ["i64"], [], {"value": self.int_attr("i64", 0)})
        second = self.create("arith.constant", ["i64"], [], {"value": self.int_attr("i64", 1)})
        self._constants = {("i64", 0): first.results[0], ("i64", 1): second.results[0]}
        self._constants_ip = ir.InsertionPoint(first)
        self._buffers_ip = ir.InsertionPoint(second)

    # --- pieces -------------------------------------------------------------------------------------------------

    def type(self, text: str) -> ir.Type:
        found = self.types.get(text)
        if found is None:
            found = self.types[text] = ir.Type.parse(text)
        return found

    def int_attr(self, type: str, value: int) -> ir.Attribute:
        key = (type, value)
        found = self._attrs.get(key)
        if found is None:
            found = self._attrs[key] = ir.IntegerAttr.get(self.type(type), value)
        return found

    def attr(self, text: str) -> ir.Attribute:
        found = self._attrs.get((text,))
        if found is None:
            found = self._attrs[(text,)] = ir.Attribute.parse(text)
        return found

    def create(
        self, name, results: Sequence[str], operands: Sequence[ir.Value], attrs=None, regions: int = 0, successors=None
    ) -> ir.Operation:
        """Create one operation and return it."""
        return ir.Operation.create(
            name,
            results=[self.type(r) for r in results],
            operands=operands,
            attributes=attrs,
            successors=successors,
            regions=regions,
            loc=self.loc,
            ip=self.ip,
        )

    def op(self, name: str, result: str, *operands: ir.Value, **attrs: ir.Attribute) -> ir.Value:
        """Create an operation with one result and return the result."""
        return self.create(name, [result], operands, attrs or None).results[0]

    def constant(self, type: str, value: int | float) -> ir.Value:
        key = (type, repr(value) if isinstance(value, float) else value)  # -0.0 and nan are themselves
        found = self._constants.get(key)
        if found is None:
            if type[0] == "i":
                attr = self.int_attr(type, _signed(int(value), int(type[1:])))
            else:
                attr = ir.FloatAttr.get(self.type(type), float(value))
            keep, self.ip = self.ip, self._constants_ip
            found = self._constants[key] = self.op("arith.constant", type, value=attr)
            self.ip = keep
        return found

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def binary(self, name: str, a: ir.Value, b: ir.Value, type: str) -> ir.Value:
        return self.op(name, type, a, b)

    def cmpi(self, predicate: str, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.op("arith.cmpi", "i1", a, b, predicate=self.int_attr("i64", PREDICATES[predicate]))

    def cmpf(self, predicate: int, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.op("arith.cmpf", "i1", a, b, predicate=self.int_attr("i64", predicate))

    def select(self, cond: ir.Value, a: ir.Value, b: ir.Value, type: str) -> ir.Value:
        return self.op("arith.select", type, cond, a, b)

    def resize(self, value: ir.Value, have: int, want: int, signed: bool = True) -> ir.Value:
        """An integer of `have` bits as one of `want` bits."""
        if have == want:
            return value
        name = "arith.trunci" if want < have else "arith.extsi" if signed else "arith.extui"
        return self.op(name, f"i{want}", value)

    # --- memory -------------------------------------------------------------------------------------------------

    def buffer(self, elements: int, stored: str) -> ir.Value:
        """Room for a tile, in the entry block: one address for the whole run of the function."""
        keep, self.ip = self.ip, self._buffers_ip
        address = self.op(
            "llvm.alloca",
            "!llvm.ptr",
            self.constant("i32", 1),
            elem_type=ir.TypeAttr.get(self.type(f"!llvm.array<{elements} x {_spelled(stored)}>")),
            alignment=self.int_attr("i64", 64),
        )
        self.ip = keep
        return address

    def gep(self, base: ir.Value, index: ir.Value, elem: str) -> ir.Value:
        return self.op(
            "llvm.getelementptr",
            "!llvm.ptr",
            base,
            index,
            elem_type=ir.TypeAttr.get(self.type(elem)),
            rawConstantIndices=self.attr(f"array<i32: {DYNAMIC_INDEX}>"),
        )

    def load(self, address: ir.Value, type: str) -> ir.Value:
        return self.op("llvm.load", type, address)

    def store(self, value: ir.Value, address: ir.Value) -> None:
        self.create("llvm.store", [], [value, address])

    def call(self, symbol: str, operands: Sequence[ir.Value], results: Sequence[str] = ()):
        """Call a function of the module or of the simulator's ABI."""
        self.scalar_only += 1
        if symbol not in self.called:
            self.called[symbol] = ([v.type for v in operands], [self.type(r) for r in results])
        return self.create("func.call", list(results), operands, {"callee": self.attr(f"@{_symbol(symbol)}")}).results

    def call_variadic(self, symbol: str, fixed: Sequence[ir.Value], more: Sequence[ir.Value]) -> None:
        """Call a function of the simulator's ABI that takes any number of values behind `fixed`."""
        self.scalar_only += 1
        inputs = [v.type for v in fixed]
        self.called.setdefault(symbol, (inputs, []))
        self.create("llvm.call", [], [*fixed, *more], {
            "callee": self.attr(f"@{symbol}"),
            "var_callee_type": self.attr(variadic(inputs)),
            "op_bundle_sizes": self.attr("array<i32>"),
            "operandSegmentSizes": self.attr(f"array<i32: {len(fixed) + len(more)}, 0>"),
        })  # fmt: skip

    def intrinsic(self, name: str, result: str, *operands: ir.Value) -> ir.Value:
        """Call an LLVM intrinsic that MLIR has no operation for, overloaded by its types."""
        return self.op(
            "llvm.call_intrinsic",
            result,
            *operands,
            intrin=self.attr(f'"{name}"'),
            op_bundle_sizes=self.attr("array<i32>"),
            operandSegmentSizes=self.attr(f"array<i32: {len(operands)}, 0>"),
        )

    # --- control ------------------------------------------------------------------------------------------------

    def block(self, region: ir.Region, types: Sequence[str] = ()) -> ir.Block:
        return region.blocks.append(*[self.type(t) for t in types], arg_locs=[self.loc] * len(types))

    def at_end(self, block: ir.Block) -> None:
        self.ip = ir.InsertionPoint(block)


def variadic(inputs: Sequence[ir.Type]) -> str:
    """The type of an ABI function that takes any number of values behind `inputs`."""
    return f"!llvm.func<void ({', '.join(_spelled(str(type)) for type in inputs)}, ...)>"


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def _spelled(stored: str) -> str:
    return "ptr" if stored == "!llvm.ptr" else stored


def _symbol(name: str) -> str:
    if all(c.isalnum() or c in "_$." for c in name) and not name[0].isdigit():
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
