"""Operators of several programs, and of other operators, that are remembered as all of their steps."""

import weakref

import pytest
import torch
from fake_cuda import RANKS, FakeGroup, FakeHeap, machine
from test_repeated import addresses, bodies

from ditron import DitronError, kernels
from ditron.kernels import repeated
from ditron.kernels.all_gather import ll_gather_program
from ditron.tuning.lookup import GroupChoices

# ruff: noqa: F811 - tests take the fixtures by their names

__all__ = ["bodies", "machine"]


@repeated.repeatable
def gather_twice(x, *, group=None):
    with group:
        return kernels.all_gather(kernels.all_gather(x))


def test_operators_within_an_operator_are_its_steps(machine, bodies):
    """Between them there is memory of this call; the first of them alone is remembered, too."""
    results = []
    for _ in range(3):
        x = torch.randn(64)
        results.append(gather_twice(x))
        (first, between), (again, last) = (entry[2][:2] for entry in machine.triton.launches[-2:])
        assert (first, between, last) == (x.data_ptr(), again, results[-1].data_ptr())
        assert results[-1].shape == (RANKS * RANKS * 64,)
    assert len({result.data_ptr() for result in results}) == 3
    kernels.all_gather(x)
    assert bodies == ["ll_gather_program"] * 2


def test_much_memory_between_operators_is_not_kept(machine, bodies, monkeypatch):
    """As much as both results take is kept, with one byte less the operators are remembered alone."""
    for most, remembered in (
        (768 * (1 + RANKS), {"gather_twice", "all_gather"}),
        (768 * (1 + RANKS) - 1, {"all_gather"}),
    ):
        monkeypatch.setattr(repeated, "_MOST_BYTES", most)
        machine.group.repeated.clear()
        for _ in range(repeated._TRIES + 2):
            machine.triton.launches.clear()
            gather_twice(torch.randn(64))
            assert len(machine.triton.launches) == 2
        assert {key[0] for key in machine.group.repeated} == remembered


@repeated.repeatable
def gather_changed(x, *, group=None):
    with group:
        return kernels.all_gather(kernels.all_gather(x) + 1)


@repeated.repeatable
def gather_and_change(x, *, group=None):
    with group:
        return kernels.all_gather(x) + 1


@repeated.repeatable
def gather_behind_a_program(x, *, group=None):
    out = x.new_empty(RANKS * 64)
    with group:
        ll_gather_program(x, out.view(RANKS, -1), 64, num_ranks=RANKS, block=64)
        return kernels.all_gather(out)


@repeated.repeatable
def gather_unlike(x, *, group=None):
    with group:
        return kernels.all_gather(kernels.all_gather(x), out=x.new_empty(RANKS * RANKS * 64 + 8)[:-8])


@repeated.repeatable
def gather_and_add(x, bias, *, group=None):
    out = repeated.scratch((RANKS, 64), x)
    with group:
        repeated.run_step(ll_gather_program, x, out, 64, num_ranks=RANKS, block=64)
    return out.add_(bias)


@repeated.repeatable
def gather_and_add_one(x, *, group=None):
    return gather_and_add(x, torch.ones(64), group=group)


@pytest.mark.parametrize(
    "operator, launches",
    [
        (gather_changed, 2),
        (gather_and_change, 1),
        (gather_behind_a_program, 2),
        (gather_unlike, 2),
        (gather_and_add_one, 1),
    ],
)
def test_what_is_not_only_steps_is_done_in_each_call(machine, bodies, operator, launches):
    for _ in range(5):
        machine.triton.launches.clear()
        operator(torch.randn(64))
        assert len(machine.triton.launches) == launches
    assert operator.__name__ not in {key[0] for key in machine.group.repeated}


def test_within_what_is_not_remembered_operators_are(machine, bodies):
    """When it has been recorded in vain a few times."""
    for _ in range(repeated._TRIES):
        gather_changed(torch.randn(64))
    assert len(bodies) == 2 * repeated._TRIES
    for _ in range(2):
        result = gather_changed(torch.randn(64))
        assert addresses(machine)[1] == result.data_ptr()
    assert len(bodies) == 2 * repeated._TRIES

    @repeated.repeatable
    def outer(x, *, group=None):
        return gather_changed(x, group=group)

    for _ in range(repeated._TRIES + 2):
        machine.triton.launches.clear()
        outer(torch.randn(64))
        assert len(machine.triton.launches) == 2
    assert {key[0] for key in machine.group.repeated} == {"all_gather"}


@repeated.repeatable
def gather_both(x, y, out, *, group=None):
    with group:
        return [kernels.all_gather(x), kernels.all_gather(y, out=out)]


def test_several_steps_of_which_one_writes_an_operand_are_not_remembered(machine, bodies):
    """Another step could be given what overlaps it, which only the operator's body sees."""
    x, y, out = torch.randn(64), torch.randn(64), torch.empty(RANKS * 64)
    for _ in range(repeated._TRIES + 1):
        first, second = gather_both(x, y, out)
        assert second is out
        written = [entry[2][1] for entry in machine.triton.launches[-2:]]
        assert written == [first.data_ptr(), out.data_ptr()]
    assert {key[0] for key in machine.group.repeated} == {"all_gather"}
    with pytest.raises(DitronError, match="out overlaps x in memory"):
        gather_both(x, out[:64], out)
    a = torch.randn(RANKS * 16, 32).bfloat16()
    weight, summed = torch.randn(32, 32).bfloat16(), torch.empty_like(a)
    for _ in range(2):
        kernels.gemm_ar(a, weight, out=summed, algorithm="overlapped")
    with pytest.raises(DitronError, match="out overlaps a in memory"):
        kernels.gemm_ar(a, weight, out=a, algorithm="overlapped")


def test_what_is_not_recorded_to_the_end_is_kept_no_longer(machine, bodies, monkeypatch):
    monkeypatch.setattr(repeated, "_MOST_BYTES", 0)
    kept = []

    @repeated.repeatable
    def gather_thrice(x, *, group=None):
        for _ in range(3):
            assert [each() for each in kept[:-1]] == [None] * (len(kept) - 1)
            x = kernels.all_gather(x, group=group)
            kept.append(weakref.ref(x))
        return x

    gather_thrice(torch.randn(64))
    assert len(kept) == 3


def test_in_a_group_that_is_not_the_current_one(machine, bodies):
    """What an operator runs itself runs in its group, as what it calls does."""
    other = FakeGroup()
    other.heap, other.choices = FakeHeap(1 << 24), GroupChoices(None)
    ids = torch.arange(32).view(16, 2).int() % (2 * RANKS)
    operands = [torch.randn(16, 64).bfloat16(), ids, torch.rand(16, 2)]
    operands += [torch.randn(2, 64, 64).bfloat16(), torch.randn(2, 64, 32).bfloat16()]
    options = {"num_experts": 2 * RANKS, "algorithm": "dispatched", "max_tokens": 24}
    for _ in range(3):
        kernels.ep_moe(*operands, **options, group=other)
    assert "ep_moe" in {key[0] for key in other.repeated} and not machine.group.repeated
    assert len(bodies) == 8


def test_padded_tokens_with_tangents_are_an_error(machine, bodies):
    with torch.autograd.forward_ad.dual_level():
        x = torch.randn(16, 64).bfloat16()
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        ids = torch.arange(32).view(16, 2).int() % (2 * RANKS)
        w13, w2 = torch.randn(2, 64, 64).bfloat16(), torch.randn(2, 64, 32).bfloat16()
        options = {"num_experts": 2 * RANKS, "algorithm": "dispatched", "max_tokens": 24}
        with pytest.raises(DitronError, match="no forward-mode derivative"):
            kernels.ep_moe(dual, ids, None, w13, w2, **options)


@repeated.repeatable
def gather_first_of(tensors, *, group=None):
    out = tensors[0].new_empty(RANKS, 64)
    with group:
        repeated.run_step(ll_gather_program, tensors[0], out, 64, num_ranks=RANKS, block=64)
    return out


def test_of_lists_not_all_is_used(machine, bodies):
    for _ in range(3):
        tensors = [torch.randn(64), torch.randn(3)]
        assert addresses_of(machine, gather_first_of(tensors)) == tensors[0].data_ptr()
    gather_first_of([torch.randn(64), torch.randn(4)])
    assert len(bodies) == 2


def addresses_of(machine, result):
    """Of the operand, where the result is what the last kernel wrote."""
    operand, written = addresses(machine)
    assert written == result.data_ptr()
    return operand


def test_experts(machine, bodies):
    """A layer is remembered as one call, with one buffer for all that lies between its programs, and its operators."""
    experts, tokens, H, inner = 2 * RANKS, 16, 64, 32
    options = {"num_experts": experts}
    for algorithm, most, programs in (
        ("gathered", tokens, 3),
        ("dispatched", tokens, 5),
        ("gathered", tokens + 8, 6),  # ids, weights and tokens are padded
        ("dispatched", tokens + 8, 8),
    ):
        bodies.clear()
        launched = []
        for _ in range(3):
            x = torch.randn(tokens, H).bfloat16()
            ids = torch.rand(tokens, experts).topk(2).indices.int()
            weights = torch.rand(tokens, 2)
            w13, w2 = torch.randn(2, 2 * inner, H).bfloat16(), torch.randn(2, H, inner).bfloat16()
            machine.triton.launches.clear()
            y = kernels.ep_moe(x, ids, weights, w13, w2, **options, algorithm=algorithm, max_tokens=most)
            assert y.shape == (tokens, H)
            launched.append([entry[0].name for entry in machine.triton.launches])
            given = {value for entry in machine.triton.launches for value in flat(entry[2])}
            assert {t.data_ptr() for t in (x, ids, weights, w13, w2, y)} <= given
        assert len(bodies) == programs and launched[0] == launched[1] == launched[2]


def flat(values):
    for value in values:
        yield from flat(value) if isinstance(value, tuple) else (value,)
