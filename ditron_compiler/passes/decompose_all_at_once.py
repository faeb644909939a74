"""Make an all-gather of pushes: every rank sends its shard to each of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.all_gather import Gather, all_gathers
from ditron_compiler.ir.dialects import ditron
from ditron_compiler.ir.pass_base import Pass

__all__ = ["DecomposeAllAtOnce"]


@dataclass(frozen=True)
class DecomposeAllAtOnce(Pass):
    """Make an all-gather of pushes: every rank sends its shard to each of the others.

    The own shard is copied to its place; then it is pushed to every peer, the one first that needs it first: consumers
    begin with their own shard and go up (``ditron.swizzle gather``), so that is the left neighbour. Each push is
    followed by the signal of this rank's shard at the peer. Every link between ranks is used, which suits ranks that
    are all connected to each other.

    Before::

        ditron.all_gather %a into %all signal %arrived at %epoch : <?x?xbf16>, <?x?xbf16, symmetric>, <?xi64, symmetric>

    After::

        %own = ditron.slice %all[%rank_x_rows, 0] [%rows, %cols] : <?x?xbf16, symmetric> to <?x?xbf16, symmetric>
        ditron.copy %a to %own : <?x?xbf16> to <?x?xbf16, symmetric>
        ditron.signal_write %arrived[%rank] set %epoch on %rank {ditron.with_copy} : <?xi64, symmetric>
        scf.for %step = %c1 to %num_ranks step %c1 : i64 {
          // %peer = (%rank - %step + %num_ranks) % %num_ranks
          ditron.rank_copy %a to %own on %peer : <?x?xbf16> to <?x?xbf16, symmetric>
          ditron.signal_write %arrived[%rank] set %epoch on %peer {ditron.with_copy} : <?xi64, symmetric>
        }
    """

    name: ClassVar[str] = "decompose-all-at-once"

    def run(self, op: ir.Operation) -> None:
        for gather in all_gathers(op):
            self.count("all-gathers decomposed")
            _decompose(Gather(gather))
            gather.erase()


def _decompose(gather: Gather) -> None:
    b, own = gather.builder, gather.own
    gather.keep_own()
    with b.loop(b.number(1), gather.num_ranks) as step:
        peer = b.remainder(b.add(b.subtract(gather.rank, step), gather.num_ranks), gather.num_ranks)
        b.queue(ditron.RankCopyOp, gather.src, own, peer)
        gather.announce(gather.rank, peer)
