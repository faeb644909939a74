"""What lowering to NVIDIA and to AMD have in common: from ``ditron`` operations to calls of the device libraries.

An operation becomes ``tt.extern_elementwise`` of a function ``ditron_*`` (runtime/README.md), which Triton carries
through its passes and links in; or, where Triton has the thing (atomics), Triton's own operation. Each thread of a
program executes such a call. ``gpu_table.TABLE`` says what becomes what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ditron_compiler import ir
from ditron_compiler.analysis import divergence as gpu_checks
from ditron_compiler.ir.pass_base import PassFailure

__all__ = ["GPU", "Lowering", "lower_module"]

DIVISIBLE_BY_16 = "dense<16> : tensor<1xi32>"


@dataclass(frozen=True)
class GPU:
    """A target as the shared lowering sees it.

    Args:
        name: how diagnostics call it. has_tma: descriptor accesses go through TMA's async proxy.
        has_system_cas: Triton's compare and swap honours its scope.
        whole_lines: the links keep a warp's 128-byte store whole (protocol ll128).
        unsupported: operation name without ``ditron.`` -> why it cannot be lowered here.
        checked: waits have a time limit and remote accesses are looked at (``gpu_checked``).
        maps_all: the transport reaches other ranks through mapped memory only.
    """

    name: str
    has_tma: bool
    has_system_cas: bool
    whole_lines: bool
    unsupported: dict[str, str]
    checked: bool = False
    maps_all: bool = True


def lower_module(module: ir.Operation, gpu: GPU) -> None:
    """Lower every ``ditron`` operation of ``module`` in place.

    Raises PassFailure after diagnostics when an operation has no lowering on this target.
    """
    ok = True
    for function in [op for op in module.regions[0].blocks[0] if op.name == "tt.func"]:
        ok &= _lower_function(function, gpu)
    if not ok:
        raise PassFailure


def _lower_function(function: ir.Operation, gpu: GPU) -> bool:
    if gpu.checked:
        from ditron_compiler.lowering.gpu.sanitizer import CHECKED_TABLE as TABLE
    else:
        from ditron_compiler.lowering.gpu.table import TABLE
    everything: list[tuple[str, ir.Operation]] = []
    function.walk(lambda op: everything.append((op.name, op)))
    operations = [op for name, op in everything if name.startswith("ditron.")]
    if not operations:
        return True
    lowering = Lowering(
        function,
        gpu,
        {name for name, _ in everything if "descriptor_" in name},
        gpu_checks.thread_varying(function, operations),
    )
    ok = gpu_checks.check(operations, [op for name, op in everything if name == "scf.for"], lowering.varying)
    for op in operations:
        mnemonic = op.name.removeprefix("ditron.")
        if mnemonic in gpu.unsupported:
            op.emit_error(f"'{op.name}' is not supported on {gpu.name}: {gpu.unsupported[mnemonic]}")
            ok = False
        elif mnemonic not in TABLE:
            op.emit_error(f"'{op.name}' has no lowering to {gpu.name}; it must be lowered by an earlier pass")
            ok = False
    if not ok:
        return False
    gpu_checks.keep_waits_in_place(operations)
    for op in operations:
        row = TABLE[op.name.removeprefix("ditron.")]
        lowering.at(op)
        try:
            if row.publishes(op) and lowering.stores_by_tma:
                lowering.call("ditron_tma_release", [], lowering.i32)
            row.lower(lowering, op)
        except LoweringError as error:
            op.emit_error(str(error))
            return False
    return True


class LoweringError(Exception):
    """Why one operation cannot be lowered; becomes its diagnostic."""


class Lowering:
    """Builds what replaces the operations of one function, at the place and location of the current one."""

    def __init__(self, function: ir.Operation, gpu: GPU, descriptor_accesses: set[str], varying: set[ir.Value]):
        self.function, self.gpu, self.varying = function, gpu, varying
        accesses = descriptor_accesses if gpu.has_tma else ()
        self.loads_by_tma = any(name.endswith(("_load", "_gather")) for name in accesses)
        self.stores_by_tma = any(name.endswith(("_store", "_scatter", "_reduce")) for name in accesses)
        with function.context:
            self.i1, self.i32, self.i64 = (ir.IntegerType.get_signless(width) for width in (1, 32, 64))
            self._true, self._false = ir.BoolAttr.get(True), ir.BoolAttr.get(False)
            self._library = {"libname": ir.StringAttr.get("ditron"), "libpath": ir.StringAttr.get("")}
            self.aligned = ir.Attribute.parse(DIVISIBLE_BY_16)

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
        arguments = self.function.regions[0].blocks[0].arguments
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
