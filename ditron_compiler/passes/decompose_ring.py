"""Make an all-gather a ring: every rank hands to its left neighbour what it got from the right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.analysis.all_gather import Gather, all_gathers
from ditron_compiler.ir.dialects import arith, ditron
from ditron_compiler.ir.dialects.enums import PREDICATES
from ditron_compiler.ir.pass_base import Pass

__all__ = ["DecomposeRing"]


@dataclass(frozen=True)
class DecomposeRing(Pass):
    """Make an all-gather a ring: every rank hands to its left neighbour what it got from the right.

    A rank pushes its own shard to the left, then forwards each shard that arrives, ``(rank + step) % num_ranks`` in
    step ``step``; it waits for the signal of the shard first. Shards so arrive in the order in which consumers want
    them: the own one, the next rank's, and so on up. One peer is spoken to, which suits ranks that are connected in a
    line. The signals are those of ``decompose-all-at-once``: a consumer cannot tell the two apart.

    Before::

        ditron.all_gather %a into %all signal %arrived at %epoch : <?x?xbf16>, <?x?xbf16, symmetric>, <?xi64, symmetric>

    After::

        ditron.copy %a to %own : <?x?xbf16> to <?x?xbf16, symmetric>
        ditron.signal_write %arrived[%rank] set %epoch on %rank {ditron.with_copy} : <?xi64, symmetric>
        scf.if %several {  // ranks
          ditron.rank_copy %a to %own on %left : <?x?xbf16> to <?x?xbf16, symmetric>
          ditron.signal_write %arrived[%rank] set %epoch on %left {ditron.with_copy} : <?xi64, symmetric>
        }
        scf.for %step = %c1 to %num_ranks_minus_1 step %c1 : i64 {
          // %from = (%rank + %step) % %num_ranks; %shard is its place in %all
          ditron.signal_wait %arrived[%from] ge %epoch {ditron.with_copy} : <?xi64, symmetric>
          ditron.rank_copy %shard to %shard on %left : <?x?xbf16, symmetric> to <?x?xbf16, symmetric>
          ditron.signal_write %arrived[%from] set %epoch on %left {ditron.with_copy} : <?xi64, symmetric>
        }
    """

    name: ClassVar[str] = "decompose-ring"

    def run(self, op: ir.Operation) -> None:
        for gather in all_gathers(op):
            self.count("all-gathers decomposed")
            _decompose(Gather(gather))
            gather.erase()


def _decompose(gather: Gather) -> None:
    b, own, rank, num_ranks = gather.builder, gather.own, gather.rank, gather.num_ranks
    one = b.number(1)
    last = b.subtract(num_ranks, one)
    left = b.remainder(b.add(rank, last), num_ranks)
    gather.keep_own()
    with b.branch(b.make(arith.CmpIOp, PREDICATES["sgt"], num_ranks, one).result):
        b.queue(ditron.RankCopyOp, gather.src, own, left)
        gather.announce(rank, left)
    with b.loop(one, last) as step:
        source = b.remainder(b.add(rank, step), num_ranks)
        shard = gather.shard(source)
        gather.wait(source)
        b.queue(ditron.RankCopyOp, shard, shard, left)
        gather.announce(source, left)
