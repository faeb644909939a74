"""Calls of operators that are like one before: on a GPU that is not there, as far as the calls of its driver go."""

import random

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
        repeated.run_step(ll_gather_program, x, out, 64, num_ranks=RANKS, block=64)
    return out


@repeated.repeatable
def gather_first(x, *, group=None):
    out = x.new_empty(RANKS, x.numel())
    with group:
        repeated.run_step(ll_gather_program, x, out, 64, num_ranks=RANKS, block=64)
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
