"""A kernel of a mixed module becomes a Python generator of its backward slice: accesses, order and control flow.

Tile arithmetic that only computes data is dropped: a matrix product is a loop of two reads. What has an effect is a
call of a method of :class:`.program.AbstractProgram`; what may have to wait is a ``yield from``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ditron_compiler import ir
from ditron_compiler.analysis.packet_layout import PacketArgument
from ditron_compiler.ir.dialects import arith, cf, scf, tt
from ditron_compiler.ir.kernels import kernels_of
from ditron_compiler.ir.passmanager import PassManager
from ditron_compiler.protocol import tiles, values
from ditron_compiler.protocol.arguments import ArgumentUses, argument_uses
from ditron_compiler.protocol.effects import effect_of, may_block
from ditron_compiler.protocol.expressions import EXPRESSIONS, descriptor_block
from ditron_compiler.protocol.inline_ptx import raise_inline_ptx
from ditron_compiler.protocol.ir_values import constant
from ditron_compiler.protocol.polls import poll_of
from ditron_compiler.protocol.sites import Site, make_site
from ditron_compiler.protocol.slices import BackwardSlice

__all__ = ["Kernel", "translate", "translate_module"]


@dataclass(frozen=True)
class Kernel:
    """A kernel that the abstract machine runs.

    Attributes:
        run: generator function of a :class:`.program.AbstractProgram` and the arguments.
        sites: its operations with an effect, by number. arg_types: as in the IR. spins: whether it may wait.
        source: the Python text, for debugging this module. packets: the packet memory that it needs.
        uses: of its arguments. plain: it is plain Triton's: programs may store equal values to one address.
    """

    name: str
    run: Callable[..., Any]
    sites: tuple[Site, ...]
    arg_types: tuple[str, ...]
    spins: bool
    source: str
    packets: tuple[PacketArgument, ...] = ()
    uses: ArgumentUses = field(default_factory=ArgumentUses)
    plain: bool = False

    @property
    def written(self) -> frozenset[int]:
        """The arguments through which it may write."""
        return self.uses.written


def translate(function: ir.Operation, module: ir.Module) -> Kernel:
    """Translate a ``tt.func`` and what it calls."""
    writer = _PythonWriter(module)
    writer.function(function)
    name = function.sym_name.value
    names = {key: getattr(room, key) for room in (values, tiles) for key in room.__all__} | {
        "arange": np.arange,
        "array": np.array,
    }
    source = "\n".join(writer.lines)
    exec(compile(source, f"<{name} as translated>", "exec"), names)
    kinds = tuple(str(kind) for kind in function.function_type.value.inputs)
    spins = any(may_block(site.op_class) or (site.spins and site.reads) for site in writer.sites)
    return Kernel(
        name,
        names[writer.functions[name]],
        tuple(writer.sites),
        kinds,
        spins,
        source,
        PacketArgument.of(function.attributes),
        argument_uses(function, module),
    )


def translate_module(module: ir.Module | str) -> Kernel:
    """Translate the only kernel of a mixed module, which may be text; swizzles in the module are lowered in place."""
    if isinstance(module, str):
        if module not in _translated:
            with ir.Context() as context:
                context.allow_unregistered_dialects = True
                _translated[module] = translate_module(ir.Module.parse(module))
        return _translated[module]
    with module.context:
        PassManager.parse("builtin.module(lower-swizzle)", module.context).run(module)
        raise_inline_ptx(module)
        (kernel,) = kernels_of(module).values()
        return translate(kernel, module)


_translated: dict[str, Kernel] = {}


class _PythonWriter:
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
        self.functions[function.sym_name.value] = "f0"
        while self._pending:
            self._one_function(self._pending.pop())

    def _one_function(self, function: ir.Operation) -> None:
        name = function.sym_name.value
        self.slices = BackwardSlice(function)
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
        """A host-made descriptor arrives as an address, extents and strides."""
        arguments = list(block.arguments)
        for at, argument in enumerate(arguments):
            if str(argument.type).startswith("!tt.tensordesc"):
                extents, size = descriptor_block(argument.type)
                rest = [self._name(a) for a in arguments[at + 1 : at + 1 + 2 * len(extents)]]
                name, n = self._name(argument), len(extents)
                self._line(
                    f"{name} = BlockDescriptor({name}, ({', '.join(rest[:n])},), ({', '.join(rest[n:])},), "
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
        if not isinstance(op, (cf.BranchOp, cf.CondBranchOp)):
            self._operation(op)
            return
        if isinstance(op, cf.BranchOp):
            self._jump(op.successors[0], list(op.destOperands), numbers)
            return
        returns = isinstance(op.successors[0].terminator, tt.ReturnOp)
        self._line(f"if P.jumps({self._note(op)}, {self._use(op.condition)}, {not returns}):")
        self._nested(lambda: self._jump(op.successors[0], list(op.trueDestOperands), numbers))
        self._line("else:")
        self._nested(lambda: self._jump(op.successors[1], list(op.falseDestOperands), numbers))

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
            scf.ForOp: self._for,
            scf.IfOp: self._if,
            scf.WhileOp: self._while,
            tt.CallOp: self._call,
            tt.ReturnOp: self._return,
        }.get(type(op))
        if control is not None:
            control(op)
        elif effect_of(op) is not None:
            self._effect(op)
        elif isinstance(op, arith.ConstantOp):
            value = constant(op)
            text = "UNKNOWN" if value is None else f"array({value})" if isinstance(value, list) else repr(value)
            self._line(f"{self._name(op.results[0])} = {text}")
        elif op.results:
            make = EXPRESSIONS.get(type(op))
            text = make(op, [self._use(v) for v in op.operands]) if make else "UNKNOWN"
            texts = text if isinstance(text, list) else [text] * len(op.results)
            for result, each in zip(op.results, texts, strict=True):
                self._line(f"{self._name(result)} = {each}")

    def _effect(self, op: ir.Operation) -> None:
        effect = effect_of(op)
        site = make_site(len(self.sites), op, tuple(self._loops), self.slices)
        self.sites.append(site)
        arguments = ["True" if value is None else self._use(value) for value in effect.operands(op)]
        call = f"{'yield from ' if effect.waits else ''}P.{effect.method}({', '.join([str(site.number), *arguments])})"
        needed = bool(op.results) and self.slices.is_needed(op.results[0])
        if effect.value_method and needed:
            call = f"yield from P.{effect.value_method}({', '.join([str(site.number), *arguments])})"
        self._line(f"{self._name(op.results[0])} = {call}" if needed else call)

    def _for(self, op: ir.Operation) -> None:
        arguments = list(op.inner_iter_args)
        *body, terminator = list(op.body.operations)
        self._assign(arguments, list(op.initArgs))
        bounds = ", ".join(self._use(v) for v in (op.lowerBound, op.upperBound, op.step))
        self._loops.append(self.slices.ordinal(op))
        self._line(f"for {self._name(op.induction_variable)} in P.range({self._note(op)}, {bounds}):")

        def inside() -> None:
            for inner in body:
                self._operation(inner)
            self._assign(arguments, list(terminator.operands))

        self._nested(inside)
        self._loops.pop()
        self._assign(list(op.results), arguments)
        self._forget_results(op, f"any_unknown({bounds})")

    def _if(self, op: ir.Operation) -> None:
        def branch(region: ir.Region) -> Callable[[], None]:
            def write() -> None:
                *body, terminator = list(region.blocks[0].operations)
                for inner in body:
                    self._operation(inner)
                self._assign(list(op.results), list(terminator.operands))

            return write

        condition = self._use(op.condition)
        self._line(f"for side in P.sides({self._note(op)}, {condition}):")
        self._depth += 1
        self._line("if side:")
        self._nested(branch(op.regions[0]))
        if len(op.regions) > 1 and list(op.regions[1].blocks):
            self._line("else:")
            self._nested(branch(op.regions[1]))
        self._depth -= 1
        self._forget_results(op, f"any_unknown({condition})")

    def _forget_results(self, op: ir.Operation, when: str) -> None:
        """The results of a region that may, or may not, have been executed."""
        if results := [self._name(result) for result in op.results if self.slices.is_needed(result)]:
            self._line(f"if {when}: {' = '.join(results)} = UNKNOWN")

    def _while(self, op: ir.Operation) -> None:
        before, after = op.regions[0].blocks[0], op.regions[1].blocks[0]
        self._assign(list(before.arguments), list(op.operands))
        loop = self.slices.ordinal(op)
        carried = [self._name(v) for v in before.arguments if self.slices.is_needed(v)]
        self._loops.append(loop)
        self._line(f"P.enter({loop})")
        self._line("while True:")

        def inside() -> None:
            self._line(f"yield from P.iteration({', '.join([str(loop), *carried])})")
            *body, condition = list(before.operations)
            poll = poll_of(op)
            for inner in body:
                self._operation(inner)
                if poll is not None and inner == poll.read:
                    poll_site = len(self.sites) - 1
            passed = list(condition.args)
            if poll is not None:
                self._line(
                    f"P.polls({poll_site}, {self._use(poll.read.operands[0])}, {poll.until!r}, {self._use(poll.bound)})"
                )
            self._line(f"if not P.passes({self._note(op)}, {loop}, {self._use(condition.condition)}):")

            def leave() -> None:
                if poll is not None:
                    self._line(f"P.polled({poll_site})")
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
        self._forget_results(op, f"P.ended_unknown({loop})")

    def _call(self, op: ir.Operation) -> None:
        callee = op.callee.value
        target = next(f for f in self.module.body.operations if isinstance(f, tt.FuncOp) and f.sym_name.value == callee)
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
        """Assign the values that are needed, in parallel."""
        pairs = [(t, s) for t, s in zip(targets, sources, strict=False) if self.slices.is_needed(t)]
        if pairs:
            self._line(f"{', '.join(self._name(t) for t, _ in pairs)} = {', '.join(self._use(s) for _, s in pairs)}")

    def _note(self, op: ir.Operation) -> int:
        """A site for control flow, for notes about it."""
        self.sites.append(make_site(len(self.sites), op, tuple(self._loops), self.slices))
        return len(self.sites) - 1

    def _line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)
