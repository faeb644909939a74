"""A module with a ``ditron.program`` in it, ready to run: on simulated ranks and on GPUs.

What runs is what the module says, kernels included: a module that passes have changed, or one that was read from a
file, runs like one that was traced a moment ago.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ditron._program.execute.overlaps import Apart, written
from ditron._program.trace.dtypes import from_mlir, to_mlir
from ditron.distributed.group import current_group
from ditron_compiler import host, ir
from ditron_compiler.errors import DitronError

if TYPE_CHECKING:
    import torch

__all__ = ["Executable", "Memory", "argument_key", "nodes_of"]


class Executable:
    """A program that can be run, on every rank of a group.

    Args:
        module: with the program and the kernels it launches; its text will do, and it is not changed. name: of the
            program, when there are several.

    Raises ValueError when there is no such program, DitronError for operations that cannot be executed, ir.MLIRError
    for text that is no module.
    """

    def __init__(self, module: ir.Module | str, name: str | None = None):
        text = (
            module
            if isinstance(module, str)
            else module.operation.get_asm(enable_debug_info=True, print_generic_op_form=True)
        )
        with ir.Context() as context:
            context.allow_unregistered_dialects = True
            self.module = ir.Module.parse(text)
        programs = {
            ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation
            for op in self.module.body.operations
            if op.operation.name == "ditron.program"
        }
        if name is None and len(programs) != 1 or name is not None and name not in programs:
            raise ValueError(
                f"expected a module with one ditron.program{f' named {name!r}' if name else ''}, got "
                f"{', '.join(programs) or 'none'}"
            )
        self.name, self.program = next(iter(programs.items())) if name is None else (name, programs[name])
        self.parameters = [ir.StringAttr(a).value for a in ir.ArrayAttr(self.program.attributes["arg_names"])]
        try:
            self._evaluator = host.Evaluator(self.program)
        except host.EvaluationError as error:
            raise DitronError(str(error)) from error
        self._runners: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._kernels: dict[str, str] = {}
        self._written: frozenset[int] | None = None

    def __call__(self, *args: Any) -> None:
        """Run it in the current group."""
        group = current_group()
        if group is None:
            raise DitronError(f"program {self.name!r} was called before ditron.init()")
        self.run(args, group)

    def run(self, args: tuple, group: Any) -> None:
        """Run it on this rank of ``group``; every rank of the group does so, with arguments of the same shapes."""
        self.runner(group)(args, argument_key(args))

    def runner(self, group: Any) -> Any:
        """What runs it on this rank of ``group``: called with the arguments, and what of them a call depends on."""
        runner = self._runners.get(group)
        if runner is None:
            if group.is_sim:
                from ditron._program.execute.simulated import Runner
            else:
                from ditron._program.execute.cuda import Runner
            runner = self._runners[group] = Runner(self, group)
        return runner

    def apart(self, args: tuple) -> Apart:
        """What checks that tensors of such arguments do not overlap where they must not."""
        if self._written is None:
            self._written = written(self.program)
        return Apart(self.name, self.parameters, self._written, args)

    def roots(self, args: tuple, group: Any) -> tuple:
        """What the program allocates for such arguments, in order."""
        return tuple(self._evaluate(args, place_in(group), 1).roots)

    def free(self, group: Any) -> None:
        """Give back what it keeps between calls in ``group``: collective."""
        runner = self._runners.pop(group, None)
        for memory in runner.memories() if runner is not None else ():
            memory.free(group)

    def evaluate(self, args: tuple, group: Any, epoch: int) -> list:
        """The steps of this rank in call ``epoch``."""
        return self._evaluate(args, place_in(group), epoch).steps

    def steps(self, args: Sequence[Any], rank: int, num_ranks: int, epoch: int) -> list:
        """The steps of a rank of one node of ``num_ranks``."""
        return self._evaluate(args, host.Place(rank, num_ranks, rank, num_ranks, 0), epoch).steps

    def _evaluate(self, args: Sequence[Any], place: host.Place, epoch: int) -> host.Evaluation:
        try:
            return self._evaluator(place, [_describe(value) for value in args], epoch)
        except host.EvaluationError as error:
            raise DitronError(str(error)) from error

    def kernel(self, symbol: str) -> str:
        """The text of a module that holds one kernel of the program."""
        if symbol not in self._kernels:
            function = next(
                op.operation
                for op in self.module.body.operations
                if op.operation.name == "tt.func" and ir.StringAttr(op.operation.attributes["sym_name"]).value == symbol
            )
            body = function.get_asm(enable_debug_info=True, print_generic_op_form=True)
            self._kernels[symbol] = body
        return self._kernels[symbol]


def argument_key(args: tuple) -> tuple:
    """What of the arguments a call depends on. AttributeError for what is neither a tensor nor an integer."""
    return tuple(
        [
            value
            if type(value) is int
            else (value.shape, value.stride(), value.dtype, value.get_device(), value.data_ptr() % 16 == 0)
            for value in args
        ]
    )


def place_in(group: Any) -> host.Place:
    """Where this rank is among the ranks of a group."""
    size = group.world.ranks_per_node if group.is_sim else group.ranks_per_node
    mine = group.ranks[group.rank]
    local = [rank for rank in group.ranks if rank // size == mine // size]
    nodes = nodes_of(group)
    near = None if len(nodes) == 1 or _is_recorded(group) else frozenset(map(group.ranks.index, local))
    return host.Place(
        group.rank, group.num_ranks, local.index(mine), len(local), nodes.index(mine // size), mine, near=near
    )


def nodes_of(group: Any) -> list[int]:
    """The nodes that a group has ranks on."""
    size = group.world.ranks_per_node if group.is_sim else group.ranks_per_node
    return sorted({rank // size for rank in group.ranks})


def _is_recorded(group: Any) -> bool:
    """Whether what the group does is written down for the checker, which reports what executors refuse."""
    return hasattr(getattr(group, "world", None), "allocated")


def _describe(value: Any) -> Any:
    """An argument as the evaluator takes it: a number, or shape, strides and element type."""
    if isinstance(value, int):
        return value
    return tuple(value.shape), tuple(value.stride()), to_mlir(value.dtype)


@dataclass
class Memory:
    """What a program keeps between calls, for one set of shapes.

    Attributes:
        tensors: of each root that is allocated. epoch: number of the latest call that uses them.
    """

    tensors: dict[Any, torch.Tensor] = field(default_factory=dict)
    epoch: int = 0

    @classmethod
    def allocate(cls, name: str, roots: list, group: Any) -> Memory:
        """Allocate the roots: collective, in order."""
        import torch

        from ditron.distributed.group import symm_empty

        memory = cls()
        for root in roots:
            dtype = from_mlir(root.dtype)
            if root.kind == "symmetric":
                tensor = symm_empty(root.shape, dtype=dtype, name=f"{name}.{root.name}", group=group)
            else:
                tensor = torch.empty(root.shape, dtype=dtype, device=group.device)
            if root.zeroed:
                tensor.zero_()
            if root.kind != "symmetric" and _is_recorded(group):
                group.world.allocated(f"{name}.{root.name}", tensor, root.zeroed)
            memory.tensors[root] = tensor
        group.barrier()  # no rank writes to another's memory before it is there, and zero
        return memory

    def free(self, group: Any) -> None:
        """Give it back: collective."""
        from ditron.distributed.group import symm_free

        for root, tensor in self.tensors.items():
            if root.kind == "symmetric":
                symm_free(tensor, group)
