"""A scope that does not include the other side orders nothing, also between nodes."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl

N = 32


@ditron.jit
def exchange(data, flags, out, peer, SEND: tl.constexpr, SEE: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_nbi(data, out, N * 4, peer)
    dl.notify(flags, peer, 1, scope=SEND)
    token = dl.wait(flags, 1, 1, scope=SEE)
    tl.store(out + N + at, tl.load(dl.consume_token(data, token) + at))
    dl.quiet()


def on_rank(peer_of, send: str, see: str) -> None:
    ditron.init()
    data = ditron.symm_zeros(N, dtype=torch.float32, name="data")
    flags = ditron.symm_zeros(1, dtype=torch.int64, name="flags")
    peer = peer_of(ditron.sim.current_world().rank)
    exchange[(1,)](data, flags, torch.zeros(2, N), peer, SEND=send, SEE=see, N=N)
    ditron.barrier()


def on_this_node(rank: int) -> int:
    return rank ^ 1


def on_the_other_node(rank: int) -> int:
    return rank ^ 2


@pytest.mark.parametrize("send, see", [("node", "world"), ("world", "node"), ("node", "node")])
def test_a_scope_of_a_node_does_not_reach_another(send, see, monkeypatch):
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")
    for seed in range(5):
        with pytest.raises(ditron.RaceError, match="between nodes both sides need scope=.world.") as caught:
            ditron.sim.run(on_rank, ranks=4, ranks_per_node=2, seed=seed, args=(on_the_other_node, send, see))
        assert "data[0]" in str(caught.value)


@pytest.mark.parametrize(
    "peer_of, send, see",
    [(on_this_node, "node", "node"), (on_this_node, "node", "world"), (on_the_other_node, "world", "world")],
)
def test_a_scope_that_includes_both_orders(peer_of, send, see, monkeypatch):
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")
    for seed in range(5):
        ditron.sim.run(on_rank, ranks=4, ranks_per_node=2, seed=seed, args=(peer_of, send, see))


def test_the_compiler_widens_the_scopes_of_one_kernel():
    for seed in range(5):
        ditron.sim.run(on_rank, ranks=4, ranks_per_node=2, seed=seed, args=(on_the_other_node, "node", "node"))
