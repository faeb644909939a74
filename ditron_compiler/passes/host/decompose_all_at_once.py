"""Decompose an all-gather into pushes: every rank sends its shard to each of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.ir.host_builders import AllGatherBuilder, all_gathers
from ditron_compiler.ir.pass_base import Pass

__all__ = ["DecomposeAllAtOnce"]


@dataclass(frozen=True)
class DecomposeAllAtOnce(Pass):
    """Decompose an all-gather into pushes: every rank sends its shard to each of the others.

    A rank copies its own shard to its slice of the destination, then pushes it to every peer, beginning with the left
    neighbor: consumers begin with their own shard and go up (``ditron.swizzle gather``), so that the left neighbor
    needs it first. Each push is followed by the signal of this rank's shard at the peer. All links between ranks are
    used, which suits fully connected ranks.

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
            _decompose(AllGatherBuilder(gather))
            gather.erase()


def _decompose(b: AllGatherBuilder) -> None:
    b.copy_own_shard()
    with b.loop(b.number(1), b.group_size) as step:
        peer = b.remainder(b.add(b.subtract(b.own_rank, step), b.group_size), b.group_size)
        b.push(b.src, b.own_shard, b.own_rank, peer)
