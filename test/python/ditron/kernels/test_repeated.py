"""Calls of operators that are like one before: on a GPU that is not there, as far as the calls of its driver go."""

import random
import weakref

import pytest
import torch
from fake_cuda import RANKS, FakeGroup, FakeHeap, machine

import ditron
from ditron import DitronError, kernels
from ditron.kernels import repeated
from ditron.kernels.all_gather import ll_gather_program
from ditron.kernels.all_to_all_v import ll_all_to_all_v_program
from ditron.tuning.lookup import GroupChoices

# ruff: noqa: F811 - tests take the fixture by its name

__all__ = ["machine"]


@pytest.fixture
def bodies(machine, monkeypatch):
    """The programs that operators' bodies have run, by name."""
    machine.group.choices = GroupChoices(None)
    ran = []
    known = ditron._program.program.Program.__call__
    monkeypatch.setattr(
        "ditron._program.program.Program.__call__",
        lambda program, *args, **constants: ran.append(program.fn.__name__) or known(program, *args, **constants),
    )
    return ran


def addresses(machine):
    return machine.triton.launches[-1][2][:2]


def test_a_call_like_one_before_runs_its_program_at_other_addresses(machine, bodies):
    for number in range(4):
        x, out = torch.randn(64), torch.empty(RANKS * 64)
        assert kernels.all_gather(x, out=out) is out
        assert addresses(machine) == (x.data_ptr(), out.data_ptr())
        assert machine.triton.launches[-1][2][5] == 1 + number  # the epoch
    results = [kernels.all_gather(torch.randn(64)) for _ in range(3)]
    assert len({result.data_ptr() for result in results}) == 3
    assert {tuple(result.shape) for result in results} == {(RANKS * 64,)}
    assert addresses(machine)[1] == results[-1].data_ptr()
    assert bodies == ["ll_gather_program"] * 2  # with out=, and without


@pytest.mark.parametrize(
    "x, options",
    [
        (torch.randn(48), {}),
        (torch.randn(64).bfloat16(), {}),
        (torch.randn(32, 2), {}),
        (torch.randn(128)[::2], {}),
        (torch.randn(65)[1:], {}),
        (torch.randn(64), {"algorithm": "stored"}),
        (torch.randn(64), {"block": 1024}),
    ],
)
def test_what_differs_is_another_call(machine, bodies, x, options):
    kernels.all_gather(torch.randn(64))
    bodies.clear()
    kernels.all_gather(x, **options)
    assert len(bodies) == 1


def test_errors_are_those_of_the_first_call(machine, bodies):
    x, out = torch.randn(64), torch.empty(RANKS * 64)
    for _ in range(2):
        kernels.all_gather(x, out=out)
        with pytest.raises(DitronError, match="all_gather: out overlaps x in memory"):
            kernels.all_gather(out[:64], out=out)
        with pytest.raises(DitronError, match="all_gather: out must be contiguous, of shape"):
            kernels.all_gather(x, out=out[1:])
        with pytest.raises(DitronError, match="all_gather: the operand must be a tensor, got list"):
            kernels.all_gather([1.0] * 64, out=out)
        with pytest.raises(DitronError, match="unknown algorithm"):
            kernels.all_gather(x, algorithm="fast")
        with pytest.raises(DitronError, match="all_gather: the tensor is on meta"):
            kernels.all_gather(torch.empty(64, device="meta"))
    assert bodies == ["ll_gather_program"]


def test_scratch_and_results_are_new(machine, bodies):
    """Of ``all_to_all_v``: what was received, how many rows each had, where they begin; and a count that nobody reads."""
    splits, rows, seen = torch.tensor([10] * RANKS), RANKS * 10, []
    for _ in range(3):
        x = torch.randn(rows, 4)
        out, counts, offsets = kernels.all_to_all_v(x, splits, max_rows=rows)
        assert out.shape == (rows, 4) and counts.shape == (RANKS,) and offsets.shape == (RANKS + 1,)
        launched = machine.triton.launches[-1][2]
        assert launched[:5] == tuple(t.data_ptr() for t in (x, splits, out, counts, offsets))
        seen.append((out, counts, offsets))
    assert len({tensor.data_ptr() for results in seen for tensor in results}) == 9
    assert bodies == ["ll_all_to_all_v_program"]
    dropped = torch.zeros(1, dtype=torch.int64)
    for _ in range(2):
        kernels.all_to_all_v(x, splits, max_rows=rows, dropped=dropped)
        assert machine.triton.launches[-1][2][5] == dropped.data_ptr()


def test_one_tensor_in_two_places_is_not_remembered(machine, bodies):
    """The next call like it may have two."""
    a = torch.randn(256, 256).bfloat16()
    for _ in range(2):
        kernels.ag_gemm(a, a, algorithm="overlapped")
    assert bodies == ["ag_gemm_program"] * 2
    for _ in range(3):
        kernels.ag_gemm(a, a.clone(), algorithm="overlapped")
    assert bodies == ["ag_gemm_program"] * 3


def test_calls_that_do_more_than_a_program_are_not_remembered(machine, bodies):
    for _ in range(2):  # a copy that begins at a multiple of 16 bytes
        kernels.all_gather(torch.randn(65)[1:])
    assert bodies == ["ll_gather_program"] * 2
    a, b, bias = torch.randn(16, 64).bfloat16(), torch.randn(32, 64).bfloat16(), torch.full((32,), 5.0).bfloat16()
    first, second = (kernels.ag_gemm(a, b, bias, algorithm="sequential") for _ in range(2))
    assert first.shape == second.shape == (RANKS * 16, 32)
    assert not any(key[0] == "ag_gemm" for key in machine.group.repeated)


@repeated.repeatable
def gather_beside(x, other, *, group=None):
    out = x.new_empty(RANKS, x.numel())
    with group:
        repeated.run_step(ll_gather_program, x, out, 64, block=64)
    return out


@repeated.repeatable
def gather_first(x, *, group=None):
    out = x.new_empty(RANKS, x.numel())
    with group:
        repeated.run_step(ll_gather_program, x, out, 64, block=64)
    return out[:1]


def test_results_that_are_a_part_of_what_is_written_are_not_remembered(machine, bodies):
    for _ in range(2):
        result = gather_first(torch.randn(64))
        assert addresses(machine)[1] == result.data_ptr() and result.untyped_storage().nbytes() == RANKS * result.nbytes
    assert bodies == ["ll_gather_program"] * 2 and not machine.group.repeated


def test_operands_that_the_program_does_not_see_are_not_compared_and_not_remembered(machine, bodies):
    for _ in range(2):
        gather_beside(torch.randn(64), torch.randn(64))
    assert bodies == ["ll_gather_program"] * 2 and not machine.group.repeated
    for _ in range(2):
        gather_beside(torch.randn(64), None)
    assert len(bodies) == 3 and len(machine.group.repeated) == 1


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
        ll_gather_program(x, out.view(RANKS, -1), 64, block=64)
        return kernels.all_gather(out)


@repeated.repeatable
def gather_unlike(x, *, group=None):
    with group:
        return kernels.all_gather(kernels.all_gather(x), out=x.new_empty(RANKS * RANKS * 64 + 8)[:-8])


@repeated.repeatable
def gather_and_add(x, bias, *, group=None):
    out = repeated.scratch((RANKS, 64), x)
    with group:
        repeated.run_step(ll_gather_program, x, out, 64, block=64)
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
    assert "_ep_moe" in {key[0] for key in other.repeated} and not machine.group.repeated
    assert len(bodies) == 9


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
        repeated.run_step(ll_gather_program, tensors[0], out, 64, block=64)
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
        ("dispatched", tokens, 6),
        ("gathered", tokens + 8, 6),  # ids, weights and tokens are padded
        ("dispatched", tokens + 8, 9),
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


def test_memory_that_was_given_back_is_not_used(machine, bodies):
    x, splits = torch.randn(30, 4), torch.tensor([10] * RANKS)
    for _ in range(2):
        kernels.all_to_all_v(x, splits, max_rows=30)
    before = machine.group.tensors["ll_all_to_all_v_program.boxes"].data_ptr()
    machine.group.free = lambda tensor: None
    ll_all_to_all_v_program.free()
    kernels.all_to_all_v(x, splits, max_rows=30)
    after = machine.group.tensors["ll_all_to_all_v_program.boxes"].data_ptr()
    assert after != before and after in machine.triton.launches[-1][2]


def test_what_is_chosen_in_a_capture_is_chosen_again(machine, bodies, monkeypatch):
    x = torch.randn(64)
    kernels.all_gather(x)
    machine.group.repeated.clear()
    monkeypatch.setattr(repeated, "_is_capturing", lambda group: True)
    for _ in range(2):
        kernels.all_gather(x)
    assert len(bodies) == 3


def test_few_calls_are_remembered(machine, bodies, monkeypatch):
    monkeypatch.setattr(repeated, "_MOST", 3)
    for rows in range(16, 256, 16):
        kernels.all_gather(torch.randn(rows))
        assert len(machine.group.repeated) <= 3


def test_in_a_trace_it_is_an_error_as_the_first_time(machine, bodies):
    x = torch.randn(64)
    kernels.all_gather(x)

    @ditron.program
    def calls(y):
        kernels.all_gather(x)

    with pytest.raises(DitronError, match="a program cannot call another one"):
        calls(x)


def test_steps_of_a_library_take_the_tensors_of_their_call(machine, bodies, monkeypatch):
    """The products of ``ag_gemm_backward``, on the CPU, which the program calls with parts of what it is given."""
    machine.stream = 0
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    for _ in range(3):
        a, b, grad = (torch.randn(shape).bfloat16() for shape in ((16, 64), (32, 64), (RANKS * 16, 32)))
        _, grad_b = kernels.ag_gemm_backward(grad, a, b, algorithm="overlapped")
        whole = machine.group.tensors["column_gradients_program.shards"][: RANKS * 16].clone()
        assert torch.equal(whole[:16], a)
        torch.testing.assert_close(grad_b, grad.t() @ whole)
    assert bodies == ["column_gradients_program"]


@pytest.mark.parametrize(
    "operator, shapes",
    [
        ("gemm_rs", [(RANKS * 16, 64), (32, 64)]),
        ("gemm_ar", [(8, 64), (32, 64)]),
        ("ag_gemm", [(16, 64), (32, 64)]),
        ("all_reduce_rms_norm", [(4, 64), (4, 64), (64,)]),
        ("reduce_scatter", [(RANKS * 4, 8)]),
        ("all_to_all", [(RANKS * 4, 8)]),
        ("all_reduce", [(4, 8)]),
    ],
)
def test_operators_that_remember(machine, bodies, operator, shapes):
    options = {"algorithm": "overlapped"} if operator in ("gemm_rs", "ag_gemm") else {}
    launched = []
    for _ in range(3):
        operands = [torch.randn(shape).bfloat16() for shape in shapes]
        result = getattr(kernels, operator)(*operands, **options)
        results = result if isinstance(result, tuple) else (result,)
        [(_, _, arguments)] = [entry for entry in machine.triton.launches if "advance" not in entry[0].name][-1:]
        given = [value[1] if isinstance(value, tuple) else value for value in arguments]
        launched.append([given.index(tensor.data_ptr()) for tensor in (*operands, *results)])
    assert len(bodies) == 1 and launched[0] == launched[1] == launched[2]


def launches_of_random_calls(machine, monkeypatch) -> list[list]:
    """Of a new group: what calls of random operators and sizes launch, and do to memory, by the tensors they name."""
    group = FakeGroup()
    group.heap, group.choices = FakeHeap(1 << 24), GroupChoices(None)
    monkeypatch.setattr("ditron.distributed.state._process_world", group)
    draw, calls = random.Random(1), []
    for _ in range(80):
        operator, rows = (
            draw.choice(["all_gather", "all_reduce", "reduce_scatter", "ag_gemm"]),
            draw.choice([1, 16, 33]),
        )
        x = torch.zeros(rows * (RANKS if operator == "reduce_scatter" else 1), 64).bfloat16()
        operands = (x, torch.zeros(32, 64).bfloat16()) if operator == "ag_gemm" else (x,)
        out = getattr(kernels, operator)(*operands) if draw.random() < 0.3 else None  # a call more, too
        options = {"algorithm": "overlapped"} if operator == "ag_gemm" else {}
        machine.triton.launches.clear()
        machine.library.log.clear()
        result = getattr(kernels, operator)(*operands, out=out, **options)
        places = {f"heap of {rank}": buffer for rank, buffer in enumerate(group.heap.buffers)}
        places |= {"context": group.context, "result": result}
        places |= {f"operand {index}": tensor for index, tensor in enumerate(operands)}

        def named(value, places=places):
            if isinstance(value, tuple):
                return tuple(map(named, value))
            for name, tensor in places.items():
                if isinstance(value, int) and 0 <= value - tensor.data_ptr() < tensor.nbytes:
                    return name, value - tensor.data_ptr()
            return value

        launched = [(source.name, grid, named(arguments)) for source, grid, arguments in machine.triton.launches]
        events = ("cuEventRecord", "cuStreamWaitEvent")
        calls.append([operator, launched, [named(entry) for entry in machine.library.log if entry[0] not in events]])
    for kernel in group.loaded:
        kernel.module = None
    return calls


def test_calls_do_what_they_would_if_none_were_remembered(machine, bodies, monkeypatch):
    remembered = launches_of_random_calls(machine, monkeypatch)
    ran = len(bodies)
    monkeypatch.setattr(repeated, "_again", lambda *_: None)
    assert launches_of_random_calls(machine, monkeypatch) == remembered
    assert ran < len(bodies) - ran  # fewer than without
