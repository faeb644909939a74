"""Programs on GPUs, as far as there is none: what the executor asks of the driver, carried out on memory of the host.

The library that stands in for CUDA's does what it is told at once, so a program of one rank, or of a rank whose peers
are only memory, has its copies and signals done; kernels are compiled for real and do nothing.
"""

import pytest
import torch
from fake_cuda import RANKS, by_parity, send

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron import DitronError
from ditron._program.execute import cuda, epochs
from ditron._program.execute import driver as cuda_driver
from ditron.distributed.packets import PacketMemory
from ditron_compiler.analysis.linear import Polynomial


def test_copies_and_signals_arrive(machine):
    for call in range(1, 4):
        x = torch.randn(4, 8)
        send(x, torch.empty(4, 8))
        for rank in range(RANKS):
            assert torch.equal(machine.group.at("send.boxes", rank)[0], x)
            assert machine.group.at("send.full", rank).tolist() == [call, 0, 0]
            assert machine.group.at("send.done", rank).tolist() == [call if rank else 0, 0, 0]
    waits = [entry[2] for entry in machine.library.log if entry[0] == "wait"]
    assert waits == [0, 0, 1, 1, 2, 2]
    boxes, full = machine.group.tensors["send.boxes"].data_ptr(), machine.group.tensors["send.full"].data_ptr()
    [first, *_, last] = [arguments for _, _, arguments in machine.triton.launches]
    assert first[:2] == (boxes, full) and first[3:] == (32, 1, 2.0, machine.group.context.data_ptr())
    assert last[4] == 3


@ditron.jit(pipeline="low-latency", do_not_specialize=["epoch"])
def shift(x_ptr, box_ptr, signal_ptr, epoch):
    dl.putmem_signal(box_ptr, x_ptr, 64, signal_ptr, epoch, (dl.rank() + 1) % dl.num_ranks())
    dl.wait(signal_ptr, 1, epoch)


@ditron.program
def send_packets(x, signals):
    boxes = dh.symm_empty(64, dtype=x.dtype, name="boxes")
    shift[(1,)](x, boxes, signals, dh.epoch())


def test_packets_need_memory_for_packets(machine):
    x, signals = torch.zeros(16), torch.zeros(32, dtype=torch.int64)
    with pytest.raises(ditron.DitronError, match="kernel 'shift': argument 'signal_ptr' was not allocated by"):
        send_packets(x, signals)
    assert not machine.triton.launches
    machine.group.packets[signals.data_ptr()] = PacketMemory(signals.nbytes, 256)
    send_packets(x, signals)
    assert len(machine.triton.launches) == 1


def test_work_is_on_its_stream_between_fork_and_join(machine):
    send(torch.randn(4, 8), torch.empty(4, 8))
    main, copy = 0, 1000 + sum(map(ord, "copy"))
    machine.library.log.clear()
    send(torch.randn(4, 8), torch.empty(4, 8))
    log = machine.library.log
    assert {entry[-1] for entry in log if entry[0] == "copy"} == {copy}
    assert {entry[-1] for entry in log if entry[0] == "wait"} == {main}
    fork, join = (
        next(i for i, entry in enumerate(log) if entry[0] == "cuStreamWaitEvent" and entry[1] == stream)
        for stream in (copy, main)
    )
    pushes = [i for i, entry in enumerate(log) if entry[0] == "copy"]
    assert fork < pushes[0] and pushes[-1] < join


def test_plans_are_made_once(machine, monkeypatch):
    made = []
    plan = cuda.CudaRunner._plan
    monkeypatch.setattr(cuda.CudaRunner, "_plan", lambda *args: made.append(args[-1]) or plan(*args))
    for rows in (4, 4, 4, 8, 4, 8):
        send(torch.randn(rows, 8), torch.empty(rows, 8))
    assert len(made) == 2
    machine.stream = 7  # another current stream
    send(torch.randn(4, 8), torch.empty(4, 8))
    assert len(made) == 3


def test_kernels_are_loaded_before_anything_waits(machine):
    """The first use of code may wait for kernels that wait for this rank."""
    send(torch.randn(4, 8), torch.empty(4, 8))
    assert machine.triton.loaded == ["use"] and machine.group.loaded
    assert machine.library.log[0][0] != "wait" or machine.triton.loaded


def test_parity_is_planned_twice_and_not_captured(machine, monkeypatch):
    made = []
    plan = cuda.CudaRunner._plan
    monkeypatch.setattr(cuda.CudaRunner, "_plan", lambda *args: made.append(args[-1]) or plan(*args))
    for call in range(5):
        x, out = torch.randn(4, 8), torch.zeros(4, 8)
        by_parity(x, out)
        assert torch.equal(out, x)
        assert torch.equal(machine.group.at("by_parity.boxes", 0)[(call + 1) % 2], x)
    assert len(made) == 2
    machine.capturing = True
    with pytest.raises(DitronError, match="cannot be captured in a graph"):
        by_parity(torch.randn(4, 8), torch.zeros(4, 8))


@ditron.program
def irregular(x, out):
    """What depends on the epoch in no simple way is computed anew in each call."""
    part = dh.epoch() * dh.epoch() % 3
    dh.copy(x[part], out)
    with dh.when(dh.epoch() == 2):
        dh.fill(out, 7.0)


def test_irregular_epochs(machine):
    x = torch.arange(12.0).view(3, 4)
    for epoch in range(1, 6):
        out = torch.zeros(4)
        irregular(x, out)
        assert torch.equal(out, torch.full((4,), 7.0) if epoch == 2 else x[epoch * epoch % 3])


@pytest.mark.parametrize(
    "source,target,rows",
    [
        ((slice(None), slice(None)), (slice(None), slice(None)), 1),
        ((slice(1, 3), slice(2, 5)), (slice(0, 2), slice(0, 3)), 2),
        ((slice(0, 4), slice(0, 1)), (slice(1, 5), slice(3, 4)), 4),
        ((2, slice(1, 7)), (3, slice(2, 8)), 1),
    ],
)
def test_copies_of_parts(machine, source, target, rows):
    def parts(x, out):
        dh.copy(x[source], out[target])

    x, out = torch.randn(6, 8), torch.zeros(6, 8)
    expected = out.clone()
    expected[target] = x[source]
    ditron.program(parts)(x, out)
    assert torch.equal(out, expected)
    [entry, end] = machine.library.log
    assert end[0] == "cuEventRecord"
    assert entry[0] == ("copy" if rows == 1 else "rows")


@pytest.mark.parametrize(
    "dtype,value",
    [
        (torch.float32, 1.5),
        (torch.bfloat16, -2.0),
        (torch.int64, -3),
        (torch.uint8, 200),
        (torch.float64, 0.1),
        (torch.int64, 1 << 40),
        (torch.bool, 1),
    ],
)
@pytest.mark.parametrize("part", [(slice(None), slice(None)), (slice(1, 4), slice(2, 5))])
def test_fills(machine, dtype, value, part):
    def fills(out):
        dh.fill(out[part], value)

    out = torch.zeros(6, 8).to(dtype)
    expected = out.clone()
    expected[part] = value
    ditron.program(fills)(out)
    assert torch.equal(out, expected)


def test_what_the_driver_refuses_is_told(machine):
    machine.library.cuMemcpyDtoDAsync_v2 = lambda *args: 700
    machine.library.cuGetErrorName = lambda code, name: setattr(name._obj, "value", b"CUDA_ERROR_ILLEGAL_ADDRESS")
    broken = cuda_driver.Driver.__new__(cuda_driver.Driver)
    broken._library, broken._copy = machine.library, machine.library.cuMemcpyDtoDAsync_v2
    with pytest.raises(DitronError, match="copy of 32 bytes: the CUDA driver answers CUDA_ERROR_ILLEGAL_ADDRESS .700"):
        broken.copy(1, 2, 32, 0)


def test_another_devices_tensor(machine):
    with pytest.raises(DitronError, match="argument 'out' is on meta"):
        send(torch.randn(4, 8), torch.empty(4, 8, device="meta"))


class OnAnotherGpu(torch.Tensor):
    device = torch.device("cuda", 3)

    def get_device(self):
        return 3


def test_another_devices_tensor_in_a_later_call(machine):
    x, out = torch.randn(4, 8), torch.empty(4, 8)
    send(x, out)
    with pytest.raises(DitronError, match="argument 'out' is on cuda:3"):
        send(x, out.as_subclass(OnAnotherGpu))


@pytest.mark.parametrize(
    "body,period",
    [
        (lambda x: dh.signal_wait(dh.symm_zeros(3, dtype=torch.int64)[0], dh.epoch() * 3 + 1), 1),
        (lambda x: dh.signal_wait(dh.symm_zeros(2, dtype=torch.int64)[dh.epoch() % 2], 1), 2),
        (lambda x: dh.copy(x[dh.epoch() % 2], x[dh.epoch() % 3]), 6),
        (lambda x: dh.copy(x[dh.epoch()], x[0]), None),
        (lambda x: dh.signal_wait(dh.symm_zeros(2, dtype=torch.int64)[0], dh.epoch() * dh.epoch()), None),
        (lambda x: dh.signal_wait(dh.symm_zeros(2, dtype=torch.int64)[0], dh.epoch() // 2), None),
        (lambda x: dh.copy(x[dh.epoch() % 17], x[0]), None),
        (lambda x: _when(dh.epoch() % 2 == 0, lambda: dh.copy(x[0], x[1])), 2),
        (lambda x: _when(dh.epoch() > 3, lambda: dh.copy(x[0], x[1])), None),
        (lambda x: _loop(dh.epoch() % 4, lambda i: dh.copy(x[i], x[0])), 4),
        (lambda x: _loop(dh.epoch(), lambda i: dh.copy(x[0], x[1])), None),
    ],
)
def test_period(body, period):
    def periodic(x):
        body(x)

    module = ditron.program(periodic).module("f32[32, 8]")
    [op] = [op.operation for op in module.body.operations if op.operation.name == "ditron.program"]
    assert epochs.period_of(op) == period


def _when(condition, body):
    with dh.when(condition):
        body()


def _loop(bound, body):
    for i in dh.range(bound):
        body(i)


def test_linear_numbers():
    value = Polynomial.through(epochs.EPOCH, (3, 7), (5, 11))
    assert (value.coefficient(epochs.EPOCH), value.constant_term) == (2, 1)
    with pytest.raises(ValueError, match="no linear form with integer coefficients"):
        Polynomial.through(epochs.EPOCH, (3, 7), (5, 10))


@ditron.program
def unusual(x):
    """What the driver has no call for becomes a kernel of one program."""
    signals = dh.symm_zeros(4, dtype=torch.int64, name="signals")
    dh.signal_wait(signals[0], dh.epoch(), cmp="ne")  # a kernel waits here
    dh.signal_wait(signals[1], dh.epoch() - 1, cmp="ge")
    dh.signal_write(signals[2], 5, 1, op="add")
    dh.signal_write(signals[3], 7, 1)
    dh.barrier()


def launched(machine) -> list[tuple]:
    return [(source.name, arguments) for source, _, arguments in machine.triton.launches]


def test_kernels_for_what_the_driver_has_not(machine):
    unusual(torch.zeros(4))
    signals = machine.group.tensors["unusual.signals"].data_ptr()
    context = machine.group.context.data_ptr()
    assert launched(machine) == [
        ("unusual_wait_value", (signals, 1, context)),
        ("unusual_add_value", (signals + 16, 5, 1, context)),
        ("unusual_barrier", (context,)),
    ]
    assert ("wait", signals + 8, 0, 0, 0) in machine.library.log
    assert machine.group.at("unusual.signals", 1)[3] == 7
    machine.capturing = True
    machine.triton.launches.clear()
    unusual(torch.zeros(4))
    names = [name for name, _ in launched(machine)]
    assert names == [
        "unusual_advance",
        "unusual_signals",  # both waits
        "unusual_add_loaded",
        "unusual_barrier",
    ]


def test_sanitizer_waits_are_kernels_at_the_programs_line(machine):
    machine.group.sanitize = 1
    unusual(torch.zeros(4))
    assert [name for name, _ in launched(machine)].count("unusual_wait_value") == 2
    assert not any(entry[0] == "wait" for entry in machine.library.log)
    lines = open(__file__).read().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.endswith("# a kernel waits here"))
    [first, *_] = [kernel for kernel in machine.group.loaded if kernel.name == "unusual_wait_value"]
    assert f'test_program_cuda.py":{line}:' in first.asm["ttir"]


def test_simulated_ranks_beside_a_gpu_group(machine, monkeypatch):
    """The checker records a program on simulated ranks, in threads of a process that has a GPU group."""
    monkeypatch.undo()
    monkeypatch.setattr("ditron.distributed.state._process_world", machine.group)
    assert ditron.current_group() is machine.group
    seen = []

    def main():
        ditron.init()
        x, out = torch.randn(4, 8), torch.zeros(4, 8)
        pushed(x, out)
        seen.append((ditron.current_group().is_sim, torch.equal(x, out)))

    ditron.sim.run(main, ranks=2)
    assert seen == [(True, True)] * 2
    report = ditron.protocol.api.check_program(pushed)
    assert len(report.checked) > 1 and not report.findings
    assert ditron.current_group() is machine.group


@ditron.program(sample_args=lambda ranks: {"x": "f32[4, 8]", "out": "f32[4, 8]"})
def pushed(x, out):
    box = dh.symm_empty(*x.shape, dtype=x.dtype, name="box")
    dh.copy(x, box)
    dh.copy(box, out)
