"""Plans by one kernel, which sends routes from registers, against plain loops and those by two kernels."""

import math
import re
from types import SimpleNamespace

import pytest
import torch
import triton.language as tl
from simulated import run

import ditron
import ditron.language as dl
from ditron import kernels
from ditron._jit.compile import compile
from ditron.kernels.moe_plan import _sizes
from ditron.kernels.plan_at_once import plan_at_once_kernel
from ditron.kernels.routing import tables_on_host
from ditron.kernels.words import WORDS_OF_THREAD, receive_words, send_words, word_box

MACHINES = [{"seed": 1}, {"seed": 2, "races": False, "weak": True}, {"seed": 3, "graphs": True}]


def routes(ranks, tokens, top_k, known, seed):
    """Any numbers, some of which are none of ``known`` or -1, and some twice in a token."""
    drawn = torch.Generator().manual_seed(seed)
    ids = torch.randint(-1, known, (ranks, tokens, top_k), generator=drawn)
    chance = torch.rand(ids.shape, generator=drawn)
    ids[chance < 0.05] = known
    ids[chance > 0.95] = -2
    return ids


def checked(ids, known, number):
    """``ids`` without those that go to no expert, by their ``number``, and the rows of ``errors``."""
    clean, errors = torch.full_like(ids, -1), torch.zeros(*ids.shape[:2], 2, dtype=torch.int32)
    for rank, of_rank in enumerate(ids.tolist()):
        for token, of_token in enumerate(of_rank):
            had = set()
            for k, given in enumerate(of_token):
                if not -1 <= given < known:
                    errors[rank, token, 0] += 1
                elif given >= 0 and number[given] in had:
                    errors[rank, token, 1] += 1
                elif given >= 0 and number[given] >= 0:
                    had.add(number[given])
                    clean[rank, token, k] = number[given]
    return clean, errors


def compare(got, want, ids, weights, errors):
    count = int(got.num_tiles)
    assert count == int(want.num_tiles)
    for what in ("row_slot", "row_route"):
        assert torch.equal(getattr(got, what)[: 16 * count], getattr(want, what)), what
    assert torch.equal(got.tiles[:count], want.tiles)
    assert torch.equal(got.tiles_by_expert[:count], want.tiles_by_expert)
    for what in ("route_row", "expert_rows"):
        assert torch.equal(getattr(got, what), getattr(want, what)), what
    assert torch.equal(got.route_weight, weights.view(-1, ids.shape[2]))
    assert torch.equal(got.errors, errors)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize(
    "ranks, tokens, top_k, experts, schedule",
    [
        (1, 21, 3, 6, {}),
        (1, 5, 1, 5, {}),
        (2, 37, 1, 7, {}),
        (2, 33, 2, 10, {"slice_tokens": 8}),  # the last slice has one token
        (2, 200, 2, 10, {"num_warps": 1}),  # slices of as many tokens as there are threads
        (3, 13, 3, 9, {"slice_tokens": 1}),  # of as few as senders allow
        (3, 30, 5, 12, {"slice_tokens": 2}),
        (4, 1, 2, 8, {"slice_tokens": 4}),
        (4, 18, 4, 40, {"placed_routes": 16, "slice_tokens": 4}),
    ],
)
def test_calls_in_a_row(ranks, tokens, top_k, experts, schedule, machine, monkeypatch):
    """Of other routes each, in both halves of the boxes; and the two kernels make the same plan."""
    monkeypatch.setattr("ditron.kernels.routing.Plan.check", lambda self: None)
    numbers = torch.randperm(experts, generator=torch.Generator().manual_seed(experts)).int()
    numbers[0] = -1
    has_weights = machine["seed"] != 3

    def main():
        rank = ditron.rank()
        first, behind = rank * experts // ranks, (rank + 1) * experts // ranks
        for call in range(4):
            ids = routes(ranks, tokens, top_k, experts, seed=call)
            expert_map = numbers if call % 2 else None
            clean, errors = checked(ids, experts, (numbers if call % 2 else torch.arange(experts)).tolist())
            weights = torch.rand(ids.shape, generator=torch.Generator().manual_seed(call)) - 0.5
            weights = weights if has_weights else torch.ones(ids.shape)
            options = {"num_experts": experts, "block_m": 16, "stage_groups": 1, "expert_map": expert_map}
            want = tables_on_host(clean, rank, first, behind - first, 16, 1, weights, experts)
            for how in ({"at_once": True, **schedule}, {"at_once": False}):
                mine = weights[rank].clone() if has_weights else None
                got = kernels.moe_plan(ids[rank], mine, **options, **how)
                if behind - first == -(-experts // ranks):  # others' tables have one expert more
                    compare(got, want, ids, weights, errors[rank])
                else:
                    assert torch.equal(got.route_row, want.route_row)
                    assert torch.equal(got.errors, errors[rank])
                assert torch.equal(got.token_ranks, want.token_ranks)

    run(main, ranks=ranks, **machine)


def test_calls_of_other_sizes():
    """The boxes of one size lie where those of another do, and a word is this call's by its epoch alone."""

    def main():
        for call, tokens in enumerate((20, 6, 20, 3, 25, 25, 1, 20)):
            ids = routes(2, tokens, 2, 8, seed=call).clamp(-1, 7)
            ids[..., 1][ids[..., 0] == ids[..., 1]] = -1
            weights = torch.rand(ids.shape, generator=torch.Generator().manual_seed(call))
            rank = ditron.rank()
            options = {"num_experts": 8, "block_m": 16, "stage_groups": 1, "at_once": True, "slice_tokens": 4}
            got = kernels.moe_plan(ids[rank], weights[rank], **options)
            want = tables_on_host(ids, rank, rank * 4, 4, 16, 1, weights, 8)
            compare(got, want, ids, weights, torch.zeros(tokens, 2, dtype=torch.int32))
            assert torch.equal(got.token_ranks, want.token_ranks)

    for seed in range(4):
        run(main, ranks=2, seed=seed)


@ditron.jit(do_not_specialize=["epoch"])
def exchange_kernel(x_ptr, boxes_ptr, out_ptr, epoch, N: tl.constexpr, RANKS: tl.constexpr):
    at, own = tl.arange(0, N), dl.rank()
    for step in range(RANKS):
        box_ptr = dl.symm_at(word_box(boxes_ptr, own, RANKS, epoch, N), (own + step) % RANKS)
        send_words(box_ptr + at, tl.load(x_ptr + at), epoch)
    for sender in range(RANKS):
        got = receive_words(word_box(boxes_ptr, sender, RANKS, epoch, N) + at, epoch)
        tl.store(out_ptr + sender * N + at, got)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("first", [1, (1 << 31) - 1, (1 << 32) - 1])
def test_words(first, machine):
    """Any 32 bits arrive, also in epochs of more than 32 bits, and in the one whose low ones are 0, as memory is."""
    ranks, N = 3, 16

    def main():
        boxes = ditron.symm_zeros(2 * ranks * N, dtype=torch.int64)
        for epoch in range(first, first + 4):
            drawn = torch.Generator().manual_seed(epoch % 1000)
            x = torch.randint(-(1 << 31), 1 << 31, (ranks, N), generator=drawn).int()
            out = torch.zeros(ranks, N, dtype=torch.int32)
            exchange_kernel[(1,)](x[ditron.rank()], boxes, out, epoch, N=N, RANKS=ranks)
            assert torch.equal(out, x)

    run(main, ranks=ranks, **machine)


def test_a_word_that_does_not_come_is_a_deadlock():
    """A loop that polls many places is seen through."""

    def main():
        boxes = ditron.symm_zeros(2 * 2 * 16, dtype=torch.int64)
        if ditron.rank() == 0:
            exchange_kernel[(1,)](torch.zeros(16).int(), boxes, torch.zeros(2, 16).int(), 1, N=16, RANKS=2)

    with pytest.raises(ditron.DeadlockError):
        run(main, ranks=2)


@pytest.mark.parametrize("ranks, top_k, warps", [(2, 8, 8), (2, 1, 8), (4, 2, 4), (8, 8, 8)])
def test_no_word_is_polled_by_two_threads(ranks, top_k, warps):
    """Of two threads with the same element only one is asked whether its word is there (few tokens, GPUs)."""
    places = 32 * warps * WORDS_OF_THREAD
    words = "topk_ids *i64, topk_weights *fp32, map *i32, weights *fp32, errors *i32, token_ranks *i32, "
    words += "pair_boxes *i64, weight_boxes *i64"
    signature = {f"{name}_ptr": kind for name, kind in map(str.split, words.split(", "))}
    tables = "row_slot row_route route_row tiles expert_tiles num_tiles expert_rows".split()
    signature |= {f"{name}_ptr": "*i32" for name in tables}
    signature |= dict.fromkeys("tokens known num_experts first_expert experts most tile_bits groups".split(), "i32")
    signature["epoch"] = "i64"
    constants = {"E": 64, "C": places, "TK": top_k, "TOP_K": top_k, "SLICE": 32, "RANKS": ranks}
    constants |= {"FIELDS": 6, "PLACED": 64, "MAKERS": 4, "HAS_WEIGHTS": True, "HAS_MAP": False, "IS_TP": False}
    compiled = compile(plan_at_once_kernel, signature, constants, target="cuda:90", options={"num_warps": warps})
    text = compiled.asm["ttgir"]
    layouts = dict(re.findall(r"^#(blocked\d*) = #ttg.blocked<\{(.*)\}>", text, re.MULTILINE))
    polled = re.findall(r"ditron_ld_b64\"\} : \(tensor<(\d+)x!tt.ptr<i64>, #(\w+)>", text)
    assert len(polled) == 4  # of experts and of weights, before and in the loop
    for elements, layout in polled:
        sizes = re.findall(r"(?:sizePerThread|threadsPerWarp|warpsPerCTA) = \[(\d+)\]", layouts[layout])
        assert len(sizes) == 3 and math.prod(map(int, sizes)) <= int(elements)


@pytest.mark.parametrize("tokens, top_k, warps", [(1, 1, 8), (20, 2, 8), (129, 8, 4), (20, 2, 16)])
def test_boxes_have_words_for_every_thread(tokens, top_k, warps):
    """On GPUs, however few tokens there are; on the simulator, whose programs have no threads, tests stay small."""
    gpu = SimpleNamespace(is_sim=False, small_shapes=False, nodes=[0], num_ranks=2)
    sizes = _sizes(gpu, tokens, top_k, 16, {"num_warps": warps})
    assert sizes.at_once and sizes.segments == 1 and sizes.C >= 32 * warps * WORDS_OF_THREAD
    few = _sizes(SimpleNamespace(is_sim=True, small_shapes=True, nodes=[0], num_ranks=2), 3, 1, 16, {})
    assert few.at_once and few.C == 32
