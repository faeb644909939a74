"""Decompose an all-gather into a ring: every rank forwards to its left neighbor what arrived from the right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith
from ditron_compiler.ir.host_builders import AllGatherBuilder, all_gathers
from ditron_compiler.ir.pass_base import Pass

__all__ = ["DecomposeRing"]


@dataclass(frozen=True)
class DecomposeRing(Pass):
    """Decompose an all-gather into a ring: every rank forwards to its left neighbor what arrived from the right.

    A rank pushes its own shard to the left, then waits for and forwards each shard that arrives: that of rank
    ``(rank + step) % num_ranks`` in step ``step``. Shards thus arrive in the order in which consumers need them: the
    own one, the next rank's, and so on up. Each rank sends to one peer, which suits ranks that are connected in a line.
    The signals are those of ``decompose-all-at-once``, so that consumers work with either.

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
            _decompose(AllGatherBuilder(gather))
            gather.erase()


def _decompose(b: AllGatherBuilder) -> None:
    one = b.number(1)
    last = b.subtract(b.group_size, one)
    left = b.remainder(b.add(b.own_rank, last), b.group_size)
    b.copy_own_shard()
    with b.branch(b.make(arith.CmpIOp, arith.CmpIPredicate.sgt, b.group_size, one).result):
        b.push(b.src, b.own_shard, b.own_rank, left)
    with b.loop(one, last) as step:
        source = b.remainder(b.add(b.own_rank, step), b.group_size)
        shard = b.shard(source)
        b.wait_for_shard(source)
        b.push(shard, shard, source, left)
