"""Programs on simulated ranks: every operation of ditron.host does what it says, on any ranks and schedules."""

import gc
import weakref

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
from ditron import DitronError, RaceError, SimulationError, sim
from ditron._program.execute.executable import Executable
from ditron_compiler import ir

RANKS = [1, 2, 3, 4, 8]


def on_ranks(body, ranks=4, ranks_per_node=None, seeds=range(3), **machine):
    """Run ``body(rank, num_ranks)`` on every simulated rank, for some schedules."""

    def main():
        ditron.init()
        body(ditron.rank(), ditron.num_ranks())

    for seed in seeds:
        ditron.sim.run(main, ranks=ranks, ranks_per_node=ranks_per_node, seed=seed, **machine)


@ditron.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, scale, flag, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i, mask=i < n), tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.where(flag, x + scale * y, x), mask=i < n)


@ditron.program
def pass_on(x, out):
    """``out`` is the left neighbour's ``x``; one workspace and a signal for done."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    inbox = dh.symm_empty(x.shape, dtype=x.dtype, name="inbox")
    full = dh.symm_zeros(2, dtype=torch.int64, name="full")
    with dh.stream("copy"):
        dh.signal_wait(full[1], epoch - 1)
        dh.rank_copy(x, inbox, right)
        dh.signal_write(full[0], epoch, right)
    dh.signal_wait(full[0], epoch)
    dh.copy(inbox, out)
    dh.signal_write(full[1], epoch, left)


@pytest.mark.parametrize("ranks", RANKS)
def test_calls_follow_each_other(ranks):
    def body(rank, num_ranks):
        for call in range(4):
            x = torch.full((5, 7), 100.0 * call + rank)
            out = torch.zeros(5, 7)
            pass_on(x, out)
            assert torch.equal(out, torch.full((5, 7), 100.0 * call + (rank - 1) % num_ranks))

    on_ranks(body, ranks, seeds=range(20))


def test_shapes_have_memory_of_their_own():
    def body(rank, num_ranks):
        for call, rows in enumerate([5, 3, 5, 5, 3, 1]):
            x, out = torch.full((rows, 2), 10.0 * call + rank), torch.zeros(rows, 2)
            pass_on(x, out)
            assert torch.equal(out, x - rank + (rank - 1) % num_ranks)

    on_ranks(body, 3)


def test_a_failed_run_keeps_no_memory():
    worlds = []

    def body(rank, num_ranks):
        worlds.append(weakref.ref(sim.current_world()))
        pass_on(torch.ones(3), torch.zeros(3))  # has a stream, and so events
        raise ValueError("behind a program")

    with pytest.raises(ValueError, match="behind a program"):
        on_ranks(body, 2)
    gc.collect()
    assert worlds and not any(world() for world in worlds)


@ditron.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.float8_e5m2])
def test_elements_of_few_bytes(dtype):
    """Arguments, memory of the program, kernels and fills agree on what an element is."""

    def through(x, out, filled):
        rank, ranks = dh.rank(), dh.num_ranks()
        box = dh.symm_empty(x.shape, dtype=x.dtype, name="box")
        copied = dh.empty(x.shape, dtype=x.dtype, name="copied")
        dh.rank_copy(x, box, (rank + 1) % ranks)
        dh.barrier()
        copy_kernel[(1,)](box, copied, x.shape[0], BLOCK=8)
        dh.copy(copied, out)
        dh.fill(filled[0:2], 100)
        if not dtype.is_floating_point:
            dh.fill(filled[2:4], 2 * rank)
        dh.barrier()

    program = ditron.program(through)

    def body(rank, num_ranks):
        x = torch.tensor([1, 0, 200, 1, rank]).to(dtype)
        out, filled = torch.zeros(5).to(dtype), torch.zeros(4).to(dtype)
        program(x, out, filled)
        left = (rank - 1) % num_ranks
        assert torch.equal(out.float(), torch.tensor([1, 0, 200, 1, left]).to(dtype).float())
        symbolic = 0 if dtype.is_floating_point else 2 * rank
        assert torch.equal(filled.float(), torch.tensor([100, 100, symbolic, symbolic]).to(dtype).float())
        assert all(byte in (0, 1) for byte in filled.view(torch.uint8)) or dtype != torch.bool

    on_ranks(body, 3, seeds=[0])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (1, 2, 0)])
def test_tensors_without_elements(shape):
    """They are contiguous, whatever torch says their strides are; but no symmetric memory is made for them."""

    def through(x, out):
        between = dh.empty(x.shape, dtype=x.dtype, name="between")
        dh.copy(x, between)
        add_kernel[(dh.cdiv(x.numel(), 16),)](between, between, out, x.numel(), 1.0, True, BLOCK=16)

    program = ditron.program(through)
    on_ranks(lambda rank, num_ranks: program(torch.ones(shape), torch.ones(shape)), 2, seeds=[0])
    with pytest.raises(DitronError, match=rf"{__file__}:\d+:\d+: symmetric memory 'inbox' .*\[.*\], which has no elem"):
        on_ranks(lambda rank, num_ranks: pass_on(torch.ones(shape), torch.ones(shape)), 2, seeds=[0])


def test_strides_of_single_extents_mean_nothing():
    """torch leaves any stride where an extent is 1."""

    def body(rank, num_ranks):
        out = torch.zeros(1, 6)
        for strides in ((6, 1), (1, 1), (100, 1)):
            pass_on(torch.full((6,), float(rank)).as_strided((1, 6), strides), out)
            assert torch.equal(out, torch.full((1, 6), float((rank - 1) % num_ranks)))

    on_ranks(body, 2, seeds=[0])


def test_memory_is_given_back():
    """More than the heap holds, one shape after the other."""

    def body(rank, num_ranks):
        for rows in range(1000, 1040):
            x, out = torch.full((rows, 16), float(rank)), torch.zeros(rows, 16)
            pass_on(x, out)
            pass_on(x, out)
            assert torch.equal(out, torch.full((rows, 16), float((rank - 1) % num_ranks)))
            pass_on.free()

    on_ranks(body, 2, seeds=[0], heap_bytes=1 << 20)


@ditron.program
def gather_by_parity(x, out):
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    boxes = dh.symm_empty(2, ranks, x.shape[0], dtype=x.dtype, name="boxes")[epoch % 2]
    full = dh.symm_zeros(ranks, dtype=torch.int64, name="full")
    for peer in dh.range(ranks):
        dh.rank_copy(x, boxes[rank], peer)
        dh.signal_write(full[rank], epoch, peer)
    for source in dh.range(ranks):
        dh.signal_wait(full[source], epoch)
    dh.copy(boxes, out)


@pytest.mark.parametrize("ranks", RANKS)
def test_two_halves_by_parity(ranks):
    def body(rank, num_ranks):
        for call in range(5):
            out = torch.zeros(num_ranks, 9)
            gather_by_parity(torch.full((9,), 10.0 * call + rank), out)
            assert torch.equal(out[:, 3], 10.0 * call + torch.arange(num_ranks))

    on_ranks(body, ranks, seeds=range(20))


def test_one_half_is_a_race():
    """The checks of this page would find a missing one."""

    def gather_in_one(x, out):
        rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
        boxes = dh.symm_empty(ranks, x.shape[0], dtype=x.dtype, name="boxes")
        full = dh.symm_zeros(ranks, dtype=torch.int64, name="full")
        for peer in dh.range(ranks):
            dh.rank_copy(x, boxes[rank], peer)
            dh.signal_write(full[rank], epoch, peer)
        for source in dh.range(ranks):
            dh.signal_wait(full[source], epoch)
        dh.copy(boxes, out)

    program = ditron.program(gather_in_one)

    def body(rank, num_ranks):
        for _ in range(3):
            program(torch.zeros(9), torch.zeros(num_ranks, 9))

    with pytest.raises(RaceError, match="boxes"):
        on_ranks(body, 3, seeds=range(20))


def test_pull_strided_rows_and_fill():
    def columns(x, out):
        rank, ranks = dh.rank(), dh.num_ranks()
        box = dh.symm_empty(6, 8, dtype=x.dtype, name="box")
        dh.fill(box, -1.0)
        dh.copy(x, box[1:5, 2:6])
        dh.barrier()
        dh.rank_copy(box[:, 1:7], out, (rank + 1) % ranks, pull=True)
        dh.barrier()

    program = ditron.program(columns)

    def body(rank, num_ranks):
        for _ in range(2):
            out = torch.zeros(6, 6)
            program(torch.full((4, 4), float(rank)), out)
            expected = torch.full((6, 6), -1.0)
            expected[1:5, 1:5] = (rank + 1) % num_ranks
            assert torch.equal(out, expected)

    on_ranks(body, 3)


def test_arguments_of_kernels():
    def add(x, y, out, n, *, scale, block):
        add_kernel[lambda meta: (dh.cdiv(n, meta["BLOCK"]),)](x, y, out, n, scale, dh.rank() > 0, BLOCK=block)

    program = ditron.program(add)

    def body(rank, num_ranks):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for n in (1, 16, 40):
                x, y, out = torch.randn(40).to(dtype), torch.randn(40).to(dtype), torch.zeros(40, dtype=dtype)
                program(x, y, out, n, scale=0.5, block=16)
                expected = (x.float() + 0.5 * y.float() * (rank > 0)).to(dtype)
                assert torch.allclose(out[:n].float(), expected[:n].float(), rtol=1e-2) and not out[n:].any()

    on_ranks(body, 2, seeds=[0])


def test_streams_of_an_array_and_events():
    def lanes(x, out):
        doubled = dh.empty(*x.shape, dtype=x.dtype, name="doubled")
        for row in dh.range(x.shape[0]):
            lane = dh.stream("lane", row % 2)
            with lane:
                add_kernel[(1,)](x[row], x[row], doubled[row], x.shape[1], 1.0, True, BLOCK=16)
            dh.await_event(dh.record(lane))
            add_kernel[(1,)](doubled[row], x[row], out[row], x.shape[1], 1.0, True, BLOCK=16)

    program = ditron.program(lanes)

    def body(rank, num_ranks):
        x = torch.randn(5, 11)
        for _ in range(2):
            out = torch.zeros(5, 11)
            program(x, out)
            assert torch.allclose(out, 3 * x)

    on_ranks(body, 2)


def test_a_missing_event_is_a_race():
    def torn(x, out):
        with dh.stream("other"):
            dh.copy(x, out)
        dh.fill(out, 0.0)

    program = ditron.program(torn)
    with pytest.raises(RaceError):
        on_ranks(lambda rank, num_ranks: program(torch.ones(8), torch.zeros(8)), 1, seeds=range(8))


def test_what_the_script_does_before_and_after_is_ordered():
    """Further streams begin after what came before the call, and end before what comes after it."""

    def side(x, out):
        with dh.stream("side"):
            dh.copy(x, out)

    program = ditron.program(side)

    def body(rank, num_ranks):
        x, out = torch.zeros(16), torch.zeros(16)
        for call in range(4):
            add_kernel[(1,)](x, torch.ones(16), x, 16, 1.0, True, BLOCK=16)
            program(x, out)
            assert out.tolist() == [call + 1.0] * 16

    on_ranks(body, 2)


def test_groups():
    def body(rank, num_ranks):
        even, odd = ditron.new_group([0, 2]), ditron.new_group([3, 1])
        with even or odd:
            x, out = torch.full((4,), float(rank)), torch.zeros(4)
            pass_on(x, out)
            assert out.tolist() == [{0: 2.0, 2: 0.0, 3: 1.0, 1: 3.0}[rank]] * 4
        out = torch.zeros(4)
        pass_on(x, out)
        assert out.tolist() == [float((rank - 1) % 4)] * 4

    on_ranks(body, 4)


def gather_module() -> ir.Module:
    return gather_by_parity.module("f32[9]", "f32[3, 9]")


def run_module(module, calls=3, seeds=range(20)):
    """Run a module as :func:`test_two_halves_by_parity` runs the program."""
    executable = Executable(module)

    def body(rank, num_ranks):
        for call in range(calls):
            out = torch.zeros(num_ranks, 9)
            executable(torch.full((9,), 10.0 * call + rank), out)
            assert torch.equal(out[:, 3], 10.0 * call + torch.arange(num_ranks))

    on_ranks(body, 3, seeds=seeds)


def test_a_module_runs():
    run_module(gather_module())
    run_module(gather_module().operation.get_asm(enable_debug_info=True))


@pytest.mark.parametrize(
    "name,error",
    [
        ("ditron.signal_wait", SimulationError),
        ("ditron.signal_write", SimulationError),
        ("ditron.rank_copy", AssertionError),
        ("ditron.copy", AssertionError),
    ],
)
def test_a_changed_module_is_what_runs(name, error):
    module = gather_module()
    found = []
    module.operation.walk(lambda op: found.append(op) if op.name == name else None)
    found[0].erase()
    with pytest.raises(error):
        run_module(module)


def test_kernels_are_the_modules():
    """A pass that changes a kernel changes what runs."""

    def doubled(x, out):
        add_kernel[(1,)](x, x, out, 8, 1.0, True, BLOCK=8)

    module = ditron.program(doubled).module("f32[8]", "f32[8]")
    text = module.operation.get_asm()
    changed = text.replace("arith.addf", "arith.mulf")
    assert changed != text

    def body(rank, num_ranks):
        x, out = torch.arange(8.0), torch.zeros(8)
        Executable(text)(x, out)
        assert torch.equal(out, x + x)
        Executable(changed)(x, out)
        assert torch.equal(out, x * x)

    on_ranks(body, 1, seeds=[0])


def test_executable_of_what_is_no_program():
    with pytest.raises(ValueError, match="got none"):
        Executable("module {}")
    with pytest.raises(ValueError, match="named 'other'"):
        Executable(gather_module(), "other")
    with pytest.raises(DitronError, match="run decompose-all-at-once"):
        Executable("""ditron.program @all(%x: !ditron.buffer<?xf32>) {
            %n = arith.constant 2 : i64
            %w = ditron.alloc "w" [4] : !ditron.buffer<4xf32, symmetric>
            %s = ditron.alloc "s" [2] : !ditron.buffer<2xi64, symmetric>
            ditron.all_gather %x into %w signal %s at %n : !ditron.buffer<?xf32>, !ditron.buffer<4xf32, symmetric>, \
!ditron.buffer<2xi64, symmetric>
        }""")


def gather_all(x, out):
    """The passes decide which copies an all-gather is."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    both = dh.symm_empty(2, ranks * x.shape[0], x.shape[1], dtype=x.dtype, name="both")
    full = dh.symm_zeros(ranks, dtype=torch.int64, name="full")
    dh.all_gather(x, both[epoch % 2], full, epoch)
    for source in dh.range(ranks):
        dh.signal_wait(full[(rank + source) % ranks], epoch)
    dh.copy(both[epoch % 2], out)


@pytest.mark.parametrize("how", ["decompose-all-at-once", "decompose-ring"])
@pytest.mark.parametrize("ranks", RANKS)
def test_all_gather(how, ranks):
    program = ditron.program(gather_all, passes=(how, "canonicalize", "cse"))

    def body(rank, num_ranks):
        for call in range(4):
            out = torch.zeros(3 * num_ranks, 5)
            program(torch.full((3, 5), 10.0 * call + rank), out)
            assert torch.equal(out[:, 2], 10.0 * call + torch.arange(num_ranks).repeat_interleave(3))

    on_ranks(body, ranks, seeds=range(5))


def naive(x, y, out):
    """Everything in one order, with a copy that is not needed."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, cols = x.shape
    boxes = dh.symm_empty(2, ranks, rows, cols, dtype=x.dtype, name="boxes")[epoch % 2]
    mine = dh.empty(rows, cols, dtype=x.dtype, name="mine")
    full = dh.symm_zeros(ranks, dtype=torch.int64, name="full")
    dh.copy(x, mine)
    for step in dh.range(1, ranks):
        peer = (rank + step) % ranks
        dh.rank_copy(mine, boxes[rank], peer)
        dh.signal_write(full[rank], epoch, peer)
    add_kernel[(1,)](x, y, out[rank], rows * cols, 1.0, True, BLOCK=64)
    for step in dh.range(1, ranks):
        source = (rank + step) % ranks
        dh.signal_wait(full[source], epoch)
        add_kernel[(1,)](boxes[source], y, out[source], rows * cols, 1.0, True, BLOCK=64)


@pytest.mark.parametrize("ranks", RANKS)
def test_copies_and_streams_left_to_the_compiler(ranks):
    program = ditron.program(naive, passes="overlap")
    text = str(program.module("f32[4, 5]", "f32[4, 5]", "f32[3, 4, 5]"))
    assert "ditron.copy" not in text and "ditron.stream" in text

    def body(rank, num_ranks):
        for call in range(4):
            x = [torch.full((4, 5), 10.0 * call + r) for r in range(num_ranks)]
            y, out = torch.full((4, 5), float(call)), torch.zeros(num_ranks, 4, 5)
            program(x[rank], y, out)
            assert torch.equal(out, torch.stack(x) + y)

    on_ranks(body, ranks, seeds=range(5))


def test_unknown_pipeline():
    with pytest.raises(ditron.CompileError, match="unknown pipeline 'fast' for programs: expected 'host', 'overlap'"):
        ditron.program(naive, passes="fast")
    message = r"test_program_sim.py:\d+:1: error: program 'naive': .* or a tuple of passes; did you mean 'overlap'"
    with pytest.raises(ditron.CompileError, match=message):
        ditron.program(naive, passes="overlp")
    for wrong in (3, None, ["cse", 3]):
        with pytest.raises(ditron.CompileError, match="unknown pipeline .* for programs: expected 'host', 'overlap'"):
            ditron.program(naive, passes=wrong)
