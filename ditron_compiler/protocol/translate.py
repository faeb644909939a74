"""A kernel of a mixed module as a Python generator, of which only what accesses, order and control depend on is left.

Tile arithmetic that ends in data is dropped: a matrix product is a loop of two reads. What has an effect is a call of
:class:`.program.Program`; what may have to wait is a ``yield from``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ditron_compiler import ir
from ditron_compiler.analysis.packet_layout import PacketArgument
from ditron_compiler.protocol import values
from ditron_compiler.protocol.effects import EFFECTS, Site, make_site
from ditron_compiler.protocol.expressions import EXPRESSIONS, constant, descriptor_block
from ditron_compiler.protocol.slices import Slices

__all__ = ["Kernel", "translate", "translate_module"]

_WAITS = (
    "ditron.wait",
    "ditron.ll_get",
    "ditron.signal_wait_until",
    "ditron.ld",
    "ditron.atomic_cas",
    "ditron.barrier_all",
    "ditron.barrier",
    "ditron.sync_all",
    "tt.atomic_cas",
)


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be run abstractly.

    Attributes:
        run: generator function of a :class:`.program.Program` and the arguments.
        sites: its operations with an effect, by number. arg_types: as in the IR. spins: whether it waits.
        source: the Python text, for those who look for a mistake here. packets: as of a kernel of the simulator's.
    """

    name: str
    run: Callable[..., Any]
    sites: tuple[Site, ...]
    arg_types: tuple[str, ...]
    spins: bool
    source: str
    packets: tuple[PacketArgument, ...] = ()


def translate(function: ir.Operation, module: ir.Module) -> Kernel:
    """Translate a ``tt.func`` and what it calls."""
    writer = _Writer(module)
    writer.function(function)
    name = _symbol(function)
    names = {key: getattr(values, key) for key in values.__all__} | {"arange": np.arange, "array": np.array}
    source = "\n".join(writer.lines)
    exec(compile(source, f"<{name} as checked>", "exec"), names)
    kinds = tuple(str(kind) for kind in ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs)
    spins = any(site.name in _WAITS for site in writer.sites)
    return Kernel(
        name,
        names[writer.functions[name]],
        tuple(writer.sites),
        kinds,
        spins,
        source,
        PacketArgument.of(function.attributes),
    )


def translate_module(module: ir.Module | str) -> Kernel:
    """Translate the only kernel of a mixed module, which may be text. Changes the module: it has no swizzles then."""
    from ditron_compiler import pipeline
    from ditron_compiler.frontend.modules import kernels_of  # noqa: TID251

    if isinstance(module, str):
        if module not in _translated:
            with ir.Context() as context:
                context.allow_unregistered_dialects = True
                _translated[module] = translate_module(ir.Module.parse(module))
        return _translated[module]
    with module.context:
        pipeline.run(module, ["lower-swizzle"])
        (kernel,) = kernels_of(module).values()
        return translate(kernel, module)


_translated: dict[str, Kernel] = {}


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


class _Writer:
    """Collects the Python text."""

    def __init__(self, module: ir.Module):
        self.module, self.lines, self.sites = module, [], []
        self.functions: dict[str, str] = {}
        self._names: dict[ir.Value, str] = {}
        self._depth, self._loops = 0, []
        self._pending: list[ir.Operation] = []

    # --- functions and blocks ------------------------------------------------------------------------------------

    def function(self, function: ir.Operation) -> None:
        self._pending = [function]
        self.functions[_symbol(function)] = "f0"
        while self._pending:
            self._one_function(self._pending.pop())

    def _one_function(self, function: ir.Operation) -> None:
        name = _symbol(function)
        self.slices = Slices(function)
        region = function.regions[0]
        blocks = list(region.blocks)
        arguments = [self._name(argument) for argument in blocks[0].arguments]
        self._line(f"def {self.functions[name]}({', '.join(['P', *arguments])}):")
        self._depth += 1
        self._line("if False: yield")
        self._descriptors(blocks[0])
        if len(blocks) == 1:
            self._block(blocks[0])
        else:
            self._state_machine(blocks)
        self._depth -= 1

    def _descriptors(self, block: ir.Block) -> None:
        """A host descriptor comes as an address, extents and strides."""
        arguments = list(block.arguments)
        for at, argument in enumerate(arguments):
            if str(argument.type).startswith("!tt.tensordesc"):
                extents, size = descriptor_block(argument.type)
                rest = [self._name(a) for a in arguments[at + 1 : at + 1 + 2 * len(extents)]]
                name, n = self._name(argument), len(extents)
                self._line(
                    f"{name} = Descriptor({name}, ({', '.join(rest[:n])},), ({', '.join(rest[n:])},), "
                    f"{extents}, {size})"
                )

    def _state_machine(self, blocks: list[ir.Block]) -> None:
        """Unstructured control flow: early returns."""
        numbers = {block: number for number, block in enumerate(blocks)}
        self._line("at = 0")
        self._line("while True:")
        self._depth += 1
        self._line("P.step()")
        for block, number in numbers.items():
            self._line(f"{'if' if number == 0 else 'elif'} at == {number}:")
            self._depth += 1
            *body, last = list(block.operations)
            for op in body:
                self._operation(op)
            self._branch(last, numbers)
            self._depth -= 1
        self._depth -= 1

    def _branch(self, op: ir.Operation, numbers: dict[ir.Block, int]) -> None:
        if op.name not in ("cf.br", "cf.cond_br"):
            self._operation(op)
            return
        successors, operands = list(op.successors), list(op.operands)
        if op.name == "cf.br":
            self._jump(successors[0], operands, numbers)
            return
        split = 1 + len(list(successors[0].arguments))
        self._line(f"if {self._truth(operands[0], op)}:")
        self._nested(lambda: self._jump(successors[0], operands[1:split], numbers))
        self._line("else:")
        self._nested(lambda: self._jump(successors[1], operands[split:], numbers))

    def _jump(self, block: ir.Block, operands: list[ir.Value], numbers: dict[ir.Block, int]) -> None:
        self._assign(list(block.arguments), operands)
        self._line(f"at = {numbers[block]}")

    def _block(self, block: ir.Block) -> None:
        before = len(self.lines)
        for op in block.operations:
            self._operation(op)
        if len(self.lines) == before:
            self._line("pass")

    def _nested(self, write: Callable[[], None]) -> None:
        self._depth += 1
        before = len(self.lines)
        write()
        if len(self.lines) == before:
            self._line("pass")
        self._depth -= 1

    # --- operations ----------------------------------------------------------------------------------------------

    def _operation(self, op: ir.Operation) -> None:
        if not self.slices.is_live(op):
            return
        control = {
            "scf.for": self._for,
            "scf.if": self._if,
            "scf.while": self._while,
            "tt.call": self._call,
            "tt.return": self._return,
        }.get(op.name)
        if control is not None:
            control(op)
        elif op.name in EFFECTS:
            self._effect(op)
        elif op.name == "arith.constant":
            value = constant(op)
            text = "UNKNOWN" if value is None else f"array({value})" if isinstance(value, list) else repr(value)
            self._line(f"{self._name(op.results[0])} = {text}")
        elif op.results:
            make = EXPRESSIONS.get(op.name)
            text = make(op, [self._use(v) for v in op.operands]) if make else "UNKNOWN"
            for result in op.results:
                self._line(f"{self._name(result)} = {text}")

    def _effect(self, op: ir.Operation) -> None:
        effect = EFFECTS[op.name]
        site = make_site(len(self.sites), op, tuple(self._loops), self.slices)
        self.sites.append(site)
        operands = list(op.operands)
        arguments = [self._use(operands[i]) if i < len(operands) else "True" for i in effect.operands(op)]
        call = f"{'yield from ' if effect.waits else ''}P.{effect.method}({', '.join([str(site.number), *arguments])})"
        needed = bool(op.results) and self.slices.is_needed(op.results[0])
        if effect.value_method and needed:
            call = f"yield from P.{effect.value_method}({', '.join([str(site.number), *arguments])})"
        self._line(f"{self._name(op.results[0])} = {call}" if needed else call)

    def _for(self, op: ir.Operation) -> None:
        low, high, step, *inits = op.operands
        block = op.regions[0].blocks[0]
        index, *arguments = block.arguments
        *body, terminator = list(block.operations)
        self._assign(arguments, inits)
        bounds = ", ".join(self._use(v) for v in (low, high, step))
        self._loops.append(self.slices.number(op))
        self._line(f"for {self._name(index)} in P.range({self._note(op)}, {bounds}):")

        def inside() -> None:
            for inner in body:
                self._operation(inner)
            self._assign(arguments, list(terminator.operands))

        self._nested(inside)
        self._loops.pop()
        self._assign(list(op.results), arguments)

    def _if(self, op: ir.Operation) -> None:
        def branch(region: ir.Region) -> Callable[[], None]:
            def write() -> None:
                *body, terminator = list(region.blocks[0].operations)
                for inner in body:
                    self._operation(inner)
                self._assign(list(op.results), list(terminator.operands))

            return write

        self._line(f"if {self._truth(op.operands[0], op)}:")
        self._nested(branch(op.regions[0]))
        if len(op.regions) > 1 and list(op.regions[1].blocks):
            self._line("else:")
            self._nested(branch(op.regions[1]))

    def _while(self, op: ir.Operation) -> None:
        before, after = op.regions[0].blocks[0], op.regions[1].blocks[0]
        self._assign(list(before.arguments), list(op.operands))
        self._loops.append(self.slices.number(op))
        self._line("while True:")

        def inside() -> None:
            self._line("P.step()")
            *body, condition = list(before.operations)
            for inner in body:
                self._operation(inner)
            flag, *passed = condition.operands
            self._line(f"if not {self._truth(flag, op)}:")

            def leave() -> None:
                self._assign(list(op.results), passed)
                self._line("break")

            self._nested(leave)
            self._assign(list(after.arguments), passed)
            *body, terminator = list(after.operations)
            for inner in body:
                self._operation(inner)
            self._assign(list(before.arguments), list(terminator.operands))

        self._nested(inside)
        self._loops.pop()

    def _call(self, op: ir.Operation) -> None:
        callee = str(op.attributes["callee"]).strip('@"')
        target = next(
            f for f in self.module.body.operations if f.operation.name == "tt.func" and _symbol(f.operation) == callee
        ).operation
        if callee not in self.functions:
            self.functions[callee] = f"f{len(self.functions)}"
            self._pending.append(target)
        call = f"yield from {self.functions[callee]}({', '.join(['P', *(self._use(v) for v in op.operands)])})"
        results = "".join(f"{self._name(r)}, " for r in op.results)
        self._line(f"{results}= {call}" if results else call)

    def _return(self, op: ir.Operation) -> None:
        self._line(f"return ({''.join(self._use(v) + ', ' for v in op.operands)})")

    # --- names ---------------------------------------------------------------------------------------------------

    def _name(self, value: ir.Value) -> str:
        return self._names.setdefault(value, f"v{len(self._names)}")

    def _use(self, value: ir.Value) -> str:
        return self._name(value) if self.slices.is_needed(value) else "UNKNOWN"

    def _assign(self, targets: list[ir.Value], sources: list[ir.Value]) -> None:
        """All at once, those that matter."""
        pairs = [(t, s) for t, s in zip(targets, sources, strict=False) if self.slices.is_needed(t)]
        if pairs:
            self._line(f"{', '.join(self._name(t) for t, _ in pairs)} = {', '.join(self._use(s) for _, s in pairs)}")

    def _truth(self, value: ir.Value, op: ir.Operation) -> str:
        name = self._use(value)
        return f"({name} if {name} is not UNKNOWN else P.unknown({self._note(op)}))"

    def _note(self, op: ir.Operation) -> int:
        """A site for control flow, for notes about it."""
        self.sites.append(make_site(len(self.sites), op, tuple(self._loops), self.slices))
        return len(self.sites) - 1

    def _line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)
