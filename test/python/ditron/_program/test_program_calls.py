"""``dh.call``: a function of a library is a step of a program, for the simulator, the checker and the passes."""

from __future__ import annotations

import functools

import pytest
import torch
from library_program import check, gather_and_multiply

import ditron
import ditron.host as dh
from ditron import DitronError, RaceError
from ditron._program.execute.executable import Executable
from ditron.protocol.api import check_program


@pytest.mark.parametrize("ranks", (1, 2, 3, 4))
def test_products_of_shards_as_they_arrive(ranks):
    def main():
        ditron.init()
        assert check() < 1e-6

    for seed in range(10):
        ditron.sim.run(main, ranks=ranks, seed=seed)


def test_the_checker_finds_nothing_in_it():
    assert not check_program(gather_and_multiply).findings


def add_one(x):
    x.add_(1)


def test_a_tensor_that_is_updated_and_views_of_any_strides():
    @ditron.program
    def update(x, bytes_, out):
        inner = dh.empty(4, 4, dtype=torch.uint8, name="inner")
        dh.copy(bytes_, inner)
        dh.call(lambda a, b: b.add_(1), reads=[x[:, 1:2]], writes=[x[:, 1:2]])
        dh.call(lambda a, b: b.copy_(a.float() + 0.5), reads=[inner[1:3, :2]], writes=[out])

    def main():
        ditron.init()
        x, out = torch.zeros(4, 3), torch.zeros(2, 2)
        bytes_ = torch.arange(250 - 15, 251, dtype=torch.uint8).reshape(4, 4)  # above 127: not int8
        for call in range(2):
            update(x, bytes_, out)
            assert torch.equal(x[:, 1], torch.full((4,), 1.0 + call)) and not x[:, ::2].any()
            assert torch.equal(out, bytes_[1:3, :2].float() + 0.5)

    ditron.sim.run(main, ranks=1)


def test_calls_are_on_their_stream():
    """A call waits for the stream's signal, and what the host enqueues after it, on another stream, sends it."""

    @ditron.program
    def late(x, out):
        inbox = dh.symm_zeros(x.shape, dtype=x.dtype, name="inbox")
        full = dh.symm_zeros(1, dtype=torch.int64, name="full")
        with dh.stream("compute"):
            dh.signal_wait(full[0], dh.epoch())
            dh.call(lambda a, b: b.copy_(a * 2), reads=[inbox], writes=[out])
        with dh.stream("copy"):
            dh.rank_copy(x, inbox, (dh.rank() + 1) % dh.num_ranks())
            dh.signal_write(full[0], dh.epoch(), (dh.rank() + 1) % dh.num_ranks())

    def main():
        ditron.init()
        x, out = torch.full((5,), 1.0 + ditron.rank()), torch.zeros(5)
        late(x, out)
        assert torch.equal(out, torch.full((5,), 2.0 * (1 + (ditron.rank() - 1) % ditron.num_ranks())))

    for seed in range(10):
        ditron.sim.run(main, ranks=3, seed=seed)


# Without the wait, a call reads or writes while a copy is under way.


@ditron.program(sample_args=lambda ranks: {"x": "f32[64]", "out": "f32[64]"}, max_nodes=1)
def reads_too_early(x, out):
    inbox = dh.symm_zeros(x.shape, dtype=x.dtype, name="inbox")
    with dh.stream("copy"):
        dh.rank_copy(x, inbox, (dh.rank() + 1) % dh.num_ranks())
    dh.call(lambda a, b: b.copy_(a), reads=[inbox], writes=[out])  # nothing waits


@ditron.program(sample_args=lambda ranks: {"x": "f32[64]", "out": "f32[64]"}, max_nodes=1)
def writes_too_early(x, out):
    outbox = dh.empty(x.shape, dtype=x.dtype, name="outbox")
    inbox = dh.symm_empty(x.shape, dtype=x.dtype, name="inbox")
    dh.copy(x, outbox)
    full = dh.record()
    with dh.stream("copy"):
        dh.await_event(full)
        dh.rank_copy(outbox, inbox, (dh.rank() + 1) % dh.num_ranks())
    dh.call(lambda a: a.fill_(0), writes=[outbox])  # the copy still reads it
    dh.barrier()
    dh.copy(inbox, out)


@pytest.mark.parametrize("program", (reads_too_early, writes_too_early), ids=lambda p: p.__name__)
def test_races_of_calls_are_found(program, monkeypatch):
    monkeypatch.setenv("DITRON_PROTOCOL", "off")
    findings = check_program(program, [(2, None)]).findings
    assert any("a call of lambda" in str(finding) for finding in findings), findings

    def main():
        ditron.init()
        program(torch.ones(64), torch.zeros(64))

    with pytest.raises(RaceError, match="lambda"):
        for seed in range(20):
            ditron.sim.run(main, ranks=2, seed=seed)


def run_one(program, *tensors):
    def main():
        ditron.init()
        program(*tensors)

    ditron.sim.run(main, ranks=1)


def line_of(code, marker):
    import inspect

    lines, first = inspect.getsourcelines(code)
    return f"{__file__}:{first + next(i for i, line in enumerate(lines) if marker in line)}"


def test_an_error_in_the_function_names_the_programs_line():
    def broken(a, b):
        raise ValueError("not of this shape")

    @ditron.program
    def calls_it(x, out):
        dh.call(broken, reads=[x], writes=[out])  # here

    with pytest.raises(
        DitronError, match="'broken', which the program calls here, raised ValueError: not of"
    ) as caught:
        run_one(calls_it, torch.ones(4), torch.zeros(4))
    assert str(caught.value).startswith(line_of(calls_it.fn, "# here"))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_result_that_is_lost_is_an_error():
    @ditron.program
    def loses_it(x, out):
        dh.call(torch.add, reads=[x], writes=[out])

    with pytest.raises(DitronError, match="returns a tensor that is none of writes="):
        run_one(loses_it, torch.ones(4), torch.zeros(4))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x, out: dh.call(3, writes=[out]), "dh.call: expected a function, got 3"),
        (lambda x, out: dh.call(add_one, reads=[x]), "writes is empty"),
        (lambda x, out: dh.call(add_one, reads=x, writes=[out]), "reads must be a list of buffers"),
        (lambda x, out: dh.call(add_one, reads=[3], writes=[out]), r"reads\[0\] must be a buffer, got 3"),
        (lambda x, out: dh.call(lambda a: a.mul_(x.shape[0]), writes=[out]), "the function uses"),
        (lambda x, out: dh.call(functools.partial(add_one, dh.rank()), writes=[out]), "the function uses"),
    ],
)
def test_wrong_calls(call, message):
    @ditron.program
    def wrong(x, out):
        call(x, out)

    with pytest.raises(DitronError, match=message):
        wrong.module(torch.ones(4), torch.zeros(4))


def test_a_module_that_is_only_text_lacks_the_functions():
    module = gather_and_multiply.module(*(torch.zeros(4, 8), torch.zeros(8, 6), torch.zeros(8, 6)))
    text = str(module)
    assert text.count('ditron.call "product" reads(') == 2  # one name for one function
    with pytest.raises(DitronError, match="the function 'product', which program 'gather_and_multiply' calls here"):
        run_one(Executable(text), torch.ones(4, 8), torch.ones(8, 6), torch.zeros(4, 6))


@ditron.program(passes="overlap")
def through_copies(x, out):
    """The copies around the call go, and the streams follow from what it reads and writes."""
    a, b = dh.empty(x.shape, dtype=x.dtype, name="a"), dh.empty(x.shape, dtype=x.dtype, name="b")
    dh.copy(x, a)
    dh.call(lambda p, q: q.copy_(p + 1), reads=[a], writes=[b])
    dh.copy(b, out)


def test_passes_know_what_a_call_reads_and_writes():
    text = str(through_copies.module(torch.ones(8), torch.zeros(8)))
    assert "ditron.copy" not in text
    assert 'ditron.call "lambda" reads(%x' in text and "writes(%out" in text
    out = torch.zeros(8)
    run_one(through_copies, torch.ones(8), out)
    assert torch.equal(out, torch.full((8,), 2.0))
