"""Which ranks need a token: what a plan's kernels enter, what others read of it, and the same by torch."""

import pytest
import torch
import triton.language as tl
from simulated import run
from test_moe import drawn

import ditron
import ditron.language as dl
from ditron.kernels.routing import ranks_of_tokens
from ditron.kernels.routing_kernels import enter_tokens, has_bit


@ditron.jit
def enter_tokens_kernel(
    ids_ptr, errors_ptr, token_ranks_ptr, has_ptr, num_experts, ranks, IS_TP: tl.constexpr, N: tl.constexpr
):
    token = tl.arange(0, N)
    experts = (tl.load(ids_ptr + 2 * token), tl.load(ids_ptr + 2 * token + 1))
    zeros = tl.zeros((N,), tl.int32)
    enter_tokens(errors_ptr, token_ranks_ptr, token, N, experts, zeros, zeros, num_experts, ranks, IS_TP)
    dl.sync_threads()
    for rank in range(ranks):
        tl.store(has_ptr + rank * N + token, has_bit(token_ranks_ptr, token, rank, token < N - 1).to(tl.int32))


@pytest.mark.parametrize("is_tp", [False, True])
@pytest.mark.parametrize("ranks, experts", [(3, 7), (31, 62), (32, 32), (40, 83), (64, 64), (64, 200)])
def test_ranks_of_tokens(ranks, experts, is_tp):
    """More ranks than bits in a word, and experts that they do not divide."""
    ids = drawn(1, 128, 2, experts)[0]
    ids[:5, 0] = -1
    ids[:3, 1] = -1
    owner = torch.tensor([max(r for r in range(ranks) if r * experts // ranks <= e) for e in range(experts)])
    needed = torch.zeros(128, ranks, dtype=torch.bool)
    for k in range(2):
        for token in torch.nonzero(ids[:, k] >= 0)[:, 0].tolist():
            needed[token, slice(None) if is_tp else owner[ids[token, k]]] = True

    def main():
        found, has = torch.zeros(128, 2, dtype=torch.int32), torch.zeros(ranks, 128, dtype=torch.int32)
        errors = torch.zeros_like(found)
        enter_tokens_kernel[(1,)](ids, errors, found, has, experts, ranks, IS_TP=is_tp, N=128)
        assert torch.equal(has[:, :-1], needed.T[:, :-1].int()) and not has[:, -1].any()
        expanded = ids.expand(ranks, -1, -1)
        assert torch.equal(found, ranks_of_tokens(expanded, ranks - 1, None if is_tp else experts))

    run(main, ranks=1)
