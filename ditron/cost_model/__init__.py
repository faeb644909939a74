"""What moving data costs: blockings of chains of products by levels of memory, and who can move bytes between ranks.

pair = chain("mk,kl->ml", "ml,ln->mn", m=4096, k=128, l=4096, n=128)
optimal_blocking(pair, 227 << 10)                      # order, tiles and bytes moved
placements(pair, machines.load("h800x8"), 8, {...})    # what to gather on 8 ranks
match(Transfer(1 << 20, peers=7), machines.load("h800x8"))  # by stores, TMA, packets, copy engines ...
"""

from __future__ import annotations

from ditron.cost_model.blocking import Blocking, block, optimal_blocking
from ditron.cost_model.chain import Chain, Product, chain, rank_loop
from ditron.cost_model.intrinsics import INTRINSICS, Intrinsic, Match, Transfer, match
from ditron.cost_model.placement import Capacities, Level, Placement, link_blocking, placements, what_to_gather

__all__ = [
    "INTRINSICS",
    "Blocking",
    "Capacities",
    "Chain",
    "Intrinsic",
    "Level",
    "Match",
    "Placement",
    "Product",
    "Transfer",
    "block",
    "chain",
    "link_blocking",
    "match",
    "optimal_blocking",
    "placements",
    "rank_loop",
    "what_to_gather",
]
