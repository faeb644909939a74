"""From a mixed module to a kernel that the simulated machine can run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from ditron_compiler import ir, knobs, pipeline
from ditron_compiler.analysis.call_graph import operations
from ditron_compiler.analysis.costs import ProductBytes, largest_product
from ditron_compiler.analysis.packet_layout import PacketArgument
from ditron_compiler.lowering.sim import jit
from ditron_compiler.lowering.sim.independence import is_independent, is_private
from ditron_compiler.lowering.sim.lower_to_sim import LOCATIONS
from ditron_compiler.lowering.sim.provenance import keeps_to_arguments

# Of an SM from Ampere on; half of the registers are taken for accumulators.
_WARPS_PER_SM, _PROGRAMS_PER_SM, _SHARED_BYTES, _REGISTER_BYTES = 64, 32, 227 << 10, 256 << 10

_ENTRY = "ditron.kernel."  # before the kernel's name: a kernel may be called memcpy


@dataclass(frozen=True)
class SimKernel:
    """A compiled kernel: the arguments of the machine's launch, and its LLVM IR."""

    name: str
    address: int
    locations: tuple[str, ...]
    n_args: int
    arg_types: tuple[str, ...]
    llvm_ir: str = field(repr=False)
    independent: bool = False  # its programs may run at the same time (independence.py)
    bounded: bool = False  # every address derives from its arguments (provenance.py)
    plain: bool = False  # it is plain Triton's: programs may store equal values to one address
    packets: tuple[PacketArgument, ...] = ()  # the arguments that have to be packet memory
    product: ProductBytes | None = None  # its largest product, if it says what it spends
    programs_per_sm: int = 1

    def with_options(self, num_warps: int, num_stages: int) -> SimKernel:
        """The kernel compiled with these options, for a machine with a clock: how many programs an SM has room for."""
        room = min(_WARPS_PER_SM // max(num_warps, 1), _PROGRAMS_PER_SM)
        if self.product is not None:
            staged = self.product.operands * max(num_stages, 1)
            room = min(room, _SHARED_BYTES // max(staged, 1), _REGISTER_BYTES // (2 * self.product.accumulator))
        return replace(self, programs_per_sm=max(room, 1))


_kernels: dict[str, SimKernel] = {}


def compile_module(
    module: ir.Module | str, name: str | None = None, races: bool = False, costs: str = "", timing_only: bool = False
) -> SimKernel:
    """Compile the kernel of a mixed tt + ditron module for the simulator.

    `module` is MLIR text or a module, which is lowered in place. `name` picks the kernel; by default it is the module's
    only public `tt.func`. `races`: the kernel reports every access to the machine. `costs`, for a machine with a clock:
    the pass by which the kernel says what it spends, with its options
    (:mod:`insert_costs <ditron_compiler.passes.kernel.insert_costs>`); with `timing_only` it drops floating-point data.
    Raises ir.MLIRError, with the user's line, for what the simulator does not support.
    """
    if isinstance(module, str):
        key = hashlib.sha256(
            f"{name}\0{races}\0{costs}\0{timing_only}\0{knobs.sim_cpu.get()}\0{module}".encode()
        ).hexdigest()
        if key not in _kernels:
            with ir.Context(), ir.Location.unknown():
                _kernels[key] = compile_module(ir.Module.parse(module), name, races, costs, timing_only)
        return _kernels[key]
    name, arguments, packets = _kernel_of(module, name)
    with module.context:
        independent, bounded = is_independent(module), keeps_to_arguments(module)
        product = None
        if costs:
            product = largest_product(operations(module.operation))
            entries = pipeline.SIM_TIMING if timing_only else pipeline.SIM_COSTS
            pipeline.run(module, tuple(costs if entry == "insert-costs" else entry for entry in entries))
        pipeline.run(module, pipeline.SIM_RACES if races else pipeline.SIM)
        locations = tuple(ir.StringAttr(a).value for a in module.operation.attributes[LOCATIONS])
        _rename_entry(module, name)
        text = ir.translate_module_to_llvmir(module)
    return SimKernel(
        name,
        jit.load(text, _ENTRY + name),
        locations,
        len(arguments),
        arguments,
        text,
        independent,
        bounded,
        packets=packets,
        product=product,
    )


def _rename_entry(module: ir.Module, name: str) -> None:
    for view in module.body.operations:
        attributes = view.operation.attributes
        if "sym_name" in attributes and ir.StringAttr(attributes["sym_name"]).value == name:
            attributes["sym_name"] = ir.StringAttr.get(_ENTRY + name)


def _kernel_of(module: ir.Module, name: str | None) -> tuple[str, tuple[str, ...], tuple[PacketArgument, ...]]:
    kernels = {}
    for view in module.body.operations:
        function = view.operation
        if function.name == "tt.func" and not is_private(function):
            types = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs
            kernels[ir.StringAttr(function.attributes["sym_name"]).value] = (
                tuple(str(t) for t in types),
                PacketArgument.of(function.attributes),
            )
    if name is None and len(kernels) != 1:
        raise ValueError(f"expected a module with one public tt.func, got {sorted(kernels)}: pass name=")
    name = next(iter(kernels)) if name is None else name
    return name, *kernels[name]
