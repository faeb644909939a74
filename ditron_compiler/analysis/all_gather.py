"""What the ways to decompose an all-gather have in common."""

from __future__ import annotations

from ditron_compiler import ir
from ditron_compiler.analysis.dependence import WITH_COPY
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.host_builders import HostBuilder, programs

__all__ = ["Gather", "all_gathers"]


def all_gathers(module: ir.Operation) -> list[ir.Operation]:
    """Every ``ditron.all_gather`` of the module's programs."""
    found: list[ir.Operation] = []
    for program in programs(module):
        program.walk(lambda op: found.append(op) if op.name == "ditron.all_gather" else None)
    return found


class Gather:
    """One all-gather that is taken apart: its operands, and what is made of them before it."""

    def __init__(self, op: ir.Operation):
        self.builder = HostBuilder(op)
        self.src, self.dst, self.signal, self.epoch = op.src, op.dst, op.signal, op.epoch
        self.rank, self.num_ranks = self.builder.rank(), self.builder.num_ranks()
        self._sizes = self.builder.sizes(self.src)
        rows = self._sizes[0]
        self._rows = self.builder.number(rows) if isinstance(rows, int) else rows
        self.own = self.shard(self.rank)

    def shard(self, of_rank: ir.Value) -> ir.Value:
        """The place of a rank's shard in the destination."""
        return self.builder.rows(self.dst, self.builder.multiply(of_rank, self._rows), self._sizes)

    def keep_own(self) -> None:
        """The own shard is there, too."""
        self.builder.queue(ditron.CopyOp, self.src, self.own)
        self.announce(self.rank, self.rank)

    def announce(self, of_rank: ir.Value, at: ir.Value) -> None:
        """The shard of a rank, just copied, has arrived at another."""
        self._mark(self.builder.queue(ditron.SignalWriteOp, self.signal, [of_rank], self.epoch, at))

    def wait(self, for_rank: ir.Value) -> None:
        """Wait for a shard that is copied next."""
        self._mark(self.builder.queue(ditron.SignalWaitOp, self.signal, [for_rank], self.epoch))

    @staticmethod
    def _mark(signal: ir.Operation) -> None:
        """Others wait for shards themselves: this signal orders the copy beside it and nothing else."""
        signal.attributes[WITH_COPY] = ir.UnitAttr.get(context=signal.context)
