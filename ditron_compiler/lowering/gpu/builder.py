"""The target description and the builder that the rows of the GPU lowering share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis.path_conditions import are_mutually_exclusive
from ditron_compiler.ir.dialects import tt

__all__ = ["GPU", "Lowering", "LoweringError", "element_of", "is_tensor", "with_element"]

DIVISIBLE_BY_16 = "dense<16> : tensor<1xi32>"
_DESCRIPTOR_LOADS = (tt.DescriptorLoadOp, tt.DescriptorGatherOp)
_DESCRIPTOR_STORES = (tt.DescriptorStoreOp, tt.DescriptorScatterOp, tt.DescriptorReduceOp)


@dataclass(frozen=True)
class GPU:
    """A target as the shared lowering sees it.

    Args:
        name: of the target, in diagnostics. has_tma: descriptor accesses go through TMA's async proxy.
        has_system_cas: Triton's compare and swap honours its scope.
        whole_lines: the links keep a warp's 128-byte store whole (protocol ll128).
        no_multicast: why operations that require multicast cannot be lowered; empty when they can.
        sanitize: waits have a time limit and remote addresses are checked (``sanitizer.py``).
        maps_all: the transport reaches other ranks through mapped memory only.
        ends_complete: the end of a kernel makes its stores visible, those to other ranks too.
    """

    name: str
    has_tma: bool
    has_system_cas: bool
    whole_lines: bool
    no_multicast: str = ""
    sanitize: bool = False
    maps_all: bool = True
    ends_complete: bool = False


class LoweringError(Exception):
    """Why one operation cannot be lowered; becomes its diagnostic."""


class Lowering:
    """Builds what replaces the operations of one function, at the position and location of the current one."""

    def __init__(self, function: tt.FuncOp, gpu: GPU, operations: Sequence[ir.Operation], divergent: set[ir.Value]):
        self.function, self.gpu, self.divergent = function, gpu, divergent
        self.loads_by_tma = gpu.has_tma and any(isinstance(op, _DESCRIPTOR_LOADS) for op in operations)
        self._tma_stores = [op for op in operations if isinstance(op, _DESCRIPTOR_STORES)] if gpu.has_tma else []
        with function.context:
            self.i1, self.i32, self.i64 = (ir.IntegerType.get_signless(width) for width in (1, 32, 64))
            self._true, self._false = ir.BoolAttr.get(True), ir.BoolAttr.get(False)
            self._library = {"libname": ir.StringAttr.get("ditron"), "libpath": ir.StringAttr.get("")}
            self.aligned = ir.Attribute.parse(DIVISIBLE_BY_16)

    def publishes_tma_stores(self, op: ir.Operation) -> bool:
        """Whether a program that executes ``op``, a publication, may have stored by TMA."""
        return any(not are_mutually_exclusive(store, op) for store in self._tma_stores)

    def at(self, op: ir.Operation) -> None:
        """Build in place of ``op`` from here on."""
        self.op = op
        self.location, self.place = op.location, ir.InsertionPoint(op)

    @property
    def ctx(self) -> ir.Value:
        """The kernel's hidden context argument."""
        if "ditron.kernel" not in self.function.attributes:
            raise LoweringError(
                "expected a kernel, whose last argument is the group's context, got a function without "
                "the attribute 'ditron.kernel'; a helper must be inlined (no noinline=True)"
            )
        arguments = self.function.arguments
        if not len(arguments) or str(arguments[len(arguments) - 1].type) != "!tt.ptr<i64>":
            raise LoweringError("expected the kernel's last argument to be the group's context, a !tt.ptr<i64>")
        return arguments[len(arguments) - 1]

    def make(
        self,
        name: str,
        operands: Sequence[ir.Value],
        result: ir.Type,
        attributes: dict[str, ir.Attribute] | None = None,
    ) -> ir.Value:
        """An operation with one result."""
        return ir.Operation.create(
            name,
            results=[result],
            operands=list(operands),
            attributes=attributes or {},
            loc=self.location,
            ip=self.place,
        ).results[0]

    def constant(self, value: int | bool, like: ir.Type, shape_of: ir.Type | None = None) -> ir.Value:
        """``value`` of integer type ``like``; splat to the shape of ``shape_of`` when that is a tensor."""
        attribute: ir.Attribute = ir.IntegerAttr.get(like, int(value))
        if shape_of is not None and is_tensor(shape_of):
            like = with_element(shape_of, like)
            attribute = ir.DenseElementsAttr.get_splat(like, attribute)
        return self.make("arith.constant", [], like, {"value": attribute})

    def call(
        self,
        symbol: str,
        operands: Sequence[ir.Value],
        result: ir.Type,
        *,
        pure: bool = False,
        divisibility: ir.Attribute | None = None,
        libpath: str = "",
    ) -> ir.Value:
        """A call of a device function by every thread; elementwise when operands are tensors."""
        attributes = self._library | {
            "symbol": ir.StringAttr.get(symbol, self.function.context),
            "pure": self._true if pure else self._false,
        }
        if libpath:
            attributes["libpath"] = ir.StringAttr.get(libpath, self.function.context)
        if divisibility is not None:
            attributes["tt.divisibility"] = divisibility
        return self.make("tt.extern_elementwise", operands, result, attributes)

    def splat(self, value: ir.Value, shape_of: ir.Type) -> ir.Value:
        """``value`` in every element of a tensor of ``shape_of``'s shape; ``value`` itself when that is a scalar."""
        if not is_tensor(shape_of):
            return value
        return self.make("tt.splat", [value], with_element(shape_of, value.type))

    def bitcast(self, value: ir.Value, element: ir.Type) -> ir.Value:
        """``value`` with its elements' bits read as ``element``."""
        target = with_element(value.type, element)
        return value if value.type == target else self.make("tt.bitcast", [value], target)

    def acquired(self, token: ir.Value | None = None) -> ir.Value | None:
        """Order TMA reads after what the operation just built has acquired; returns the token to go on with."""
        if not self.loads_by_tma:
            return token
        return self.call(
            "ditron_tma_acquire",
            [token if token is not None else self.constant(0, self.i32)],
            self.i32,
            divisibility=self.aligned,
        )

    def replace(self, *values: ir.Value) -> None:
        """Put ``values`` for the results of the current operation and erase it."""
        for result, value in zip(self.op.results, values, strict=True):
            result.replace_all_uses_with(value)
        self.op.erase()


def is_tensor(type_: ir.Type) -> bool:
    return ir.RankedTensorType.isinstance(type_)


def element_of(type_: ir.Type) -> ir.Type:
    """The element type of a tensor, or the scalar type itself."""
    return ir.RankedTensorType(type_).element_type if is_tensor(type_) else type_


def with_element(type_: ir.Type, element: ir.Type) -> ir.Type:
    """``type_`` with another element type."""
    return ir.RankedTensorType.get(ir.RankedTensorType(type_).shape, element) if is_tensor(type_) else element
