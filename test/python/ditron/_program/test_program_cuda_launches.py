"""Launches of programs on GPUs, as far as there is none: descriptors, memory for them, loading, plans."""

import gc
import weakref

import pytest
import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
from ditron import CompileError, DitronError
from ditron._program.execute import cuda
from ditron._program.execute.kernels import captured_form, compile_for_gpu
from ditron._program.execute.lru import LruCache
from ditron_compiler.frontend.targets import parse_target

# ruff: noqa: F811 - tests take the fixture by its name


@ditron.jit
def copy_block(src, dst, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    dst.store([i, j], src.load([i, j]))


@ditron.program
def by_descriptor(x):
    m, n = x.shape
    box = dh.symm_empty(2, m, n, dtype=x.dtype, name="box")
    source, target = (TensorDescriptor.from_tensor(buffer, [16, 64]) for buffer in (x[16:m], box[1, 16:m]))
    copy_block[(dh.cdiv(m - 16, 16), dh.cdiv(n, 64))](source, target, BM=16, BN=64)


def test_descriptors_are_encoded_once_per_address(machine):
    tensors = [torch.zeros(40, 72, dtype=torch.bfloat16) for _ in range(2)]
    addresses = [tensor.data_ptr() + 2 * 16 * 72 for tensor in tensors]
    for _ in range(3):
        for x, address in zip(tensors, addresses, strict=True):
            by_descriptor(x)
            source, *rest = machine.triton.launches[-1][2]
            assert source == ("tensor map", address) and rest[:4] == [24, 72, 72, 1]
            box = machine.group.tensors["by_descriptor.box"].data_ptr() + 2 * (40 * 72 + 16 * 72)
            assert rest[4] == ("tensor map", box) and rest[5:9] == [24, 72, 72, 1]
    assert machine.triton.encoded == [(address, [16, 64], [24, 72], [72, 1], 0) for address in (box, *addresses)]
    machine.capturing, machine.stream = True, 5  # a captured call is another plan
    by_descriptor(tensors[0])
    assert machine.triton.launches[-1][2][0] == ("tensor map", addresses[0])
    assert len(machine.triton.encoded) == 5


def test_encoded_descriptors_are_bounded(machine, monkeypatch):
    monkeypatch.setattr("ditron._program.execute.descriptors._MAX_ENCODED", 2)
    tensors = [torch.zeros(40, 72, dtype=torch.bfloat16) for _ in range(3)]
    for x in (*tensors, *tensors[1:], tensors[0]):
        by_descriptor(x)
    assert len(machine.triton.encoded) == 1 + 4  # the buffer's; three, of which two are kept; the first again


def test_launchers_of_triton_take_encoded_descriptors(machine):
    """By the type of an encoded descriptor in the signature, and without what Triton would encode it by."""
    by_descriptor(torch.zeros(40, 72, dtype=torch.bfloat16))
    [kernel] = [kernel for kernel in machine.group.loaded if kernel.name == "copy_block"]
    kinds = list(kernel.src.signature.values())
    assert kinds == ["nvTmaDesc", "i32", "i32", "i64", "i64"] * 2 + ["*i64"]
    assert kernel.metadata.tensordesc_meta is None


@ditron.jit
def double_block(x_ptr, m, n, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [BM, BN])
    x.store([tl.program_id(0) * BM, 0], 2 * x.load([tl.program_id(0) * BM, 0]))


@ditron.program
def doubles(x):
    double_block[(3,)](x, *x.shape, BM=16, BN=32)


def test_a_kernel_that_makes_descriptors_has_memory_for_them(machine):
    doubles(torch.zeros(48, 32))
    doubles(torch.zeros(48, 32))
    assert [memory.dtype for memory in machine.triton.scratch] == [torch.int8] * 2
    assert machine.triton.scratch[0].numel() >= 3 * 128


# Loading and plans ----------------------------------------------------------------------------------------------------


@ditron.jit
def only_first(x_ptr):
    tl.store(x_ptr, 1.0)


@ditron.jit
def all_others(x_ptr):
    tl.store(x_ptr, 2.0)


@ditron.program
def by_rank(x):
    signals = dh.symm_zeros(2, dtype=torch.int64, name="signals")
    with dh.when(dh.rank() == 0):
        only_first[(1,)](x)
    with dh.when(dh.rank() != 0):
        all_others[(1,)](x)
        all_others[(1,)](x, num_warps=8)
        dh.signal_wait(signals[0], 0, cmp="ne")
        dh.signal_write(signals[1], 1, 0, op="add")
        dh.barrier()


def test_every_kernel_is_loaded_also_in_branches_of_other_ranks(machine):
    order = []
    machine.group.barrier = lambda: order.append(list(machine.triton.loaded))
    by_rank(torch.zeros(4))
    mine = ["only_first", "all_others", "all_others", "by_rank_wait_value", "by_rank_add_value", "by_rank_barrier"]
    assert order and order[0] == mine, "loaded before the first time that the ranks meet"
    assert [source.name for source, _, _ in machine.triton.launches] == ["only_first"]


@ditron.jit
def large_block(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tile = tl.load(x_ptr + i[:, None] * BLOCK + i[None, :])
    tl.store(x_ptr + i[:, None] * BLOCK + i[None, :], tl.dot(tile, tl.trans(tile)))


@ditron.program
def too_large(x):
    signals = dh.symm_zeros(1, dtype=torch.int64, name="signals")
    dh.signal_wait(signals[0], 1)
    with dh.when(dh.rank() == 1):
        large_block[(1,)](x, BLOCK=64)  # too large


def test_a_kernel_that_cannot_run_is_named_before_anything_waits(machine, monkeypatch):
    monkeypatch.setattr("triton.compiler.compiler.max_shared_mem", lambda device: 100)
    with pytest.raises(CompileError, match="'large_block' cannot run on this GPU: out of resource: shared memory") as e:
        too_large(torch.zeros(64, 64))
    lines = open(__file__).read().splitlines()
    assert e.value.file == __file__ and lines[e.value.line - 1].endswith("# too large")
    assert not machine.library.log and not machine.triton.launches
    monkeypatch.setattr("triton.compiler.compiler.max_shared_mem", lambda device: 1 << 20)
    too_large(torch.zeros(64, 64))  # nothing is left behind
    assert [entry[0] for entry in machine.library.log][:1] == ["wait"]


@ditron.program
def of_fixed_memory(x, out):
    counts = dh.symm_zeros(4, dtype=torch.int64, name="counts")
    dh.signal_write(counts[0], dh.epoch(), 0)
    dh.signal_wait(counts[0], dh.epoch())
    dh.copy(x, out)


def test_new_shapes_with_memory_that_is_there_need_no_barrier(machine):
    met, allocated = [], []
    machine.group.barrier = lambda: met.append(1)
    allocate = machine.group.allocate
    machine.group.allocate = lambda *args: allocated.append(args) or allocate(*args)
    of_fixed_memory(torch.ones(1, 8), torch.zeros(1, 8))
    before = len(met), len(allocated)
    for rows in (*range(2, 16), *range(17, 31)):  # 16 and 32 are specialized for
        x, out = torch.randn(rows, 8), torch.zeros(rows, 8)
        of_fixed_memory(x, out)
        assert torch.equal(out, x)
    assert (len(met), len(allocated)) == before
    assert machine.group.at("of_fixed_memory.counts", 0).tolist() == [29, 0, 0, 0]
    machine.capturing = True
    of_fixed_memory(torch.ones(50, 8), torch.zeros(50, 8))  # not seen before, and nothing to allocate


@ditron.program
def bounded(x, out):
    dh.copy(x, out)


def test_shapes_that_are_kept_are_bounded(machine, monkeypatch):
    """By the program, which keeps calls, and by what runs it."""
    monkeypatch.setattr(cuda, "_MAX_SHAPES", 3)
    monkeypatch.setattr("ditron._program.program._MAX_CALLS", 2)
    planned = []
    plan = cuda.CudaRunner._plan
    monkeypatch.setattr(cuda.CudaRunner, "_plan", lambda *args: planned.append(weakref.ref(args[1])) or plan(*args))
    for rows in (1, 2, 3, 1, 4, 5, 6, 1):
        x, out = torch.randn(rows, 8), torch.zeros(rows, 8)
        bounded(x, out)
        assert torch.equal(out, x)
    gc.collect()
    assert [shape() and shape().args[0].shape[0] for shape in planned] == [None, None, None, None, 5, 6, 1]


def test_lru_cache():
    kept = LruCache(2)
    kept["a"], kept["b"] = 1, 2
    assert kept.get("a") == 1
    kept["c"] = 3
    assert (kept.get("a"), kept.get("b"), kept.get("c"), len(kept)) == (1, None, 3, 2)


def test_capture_of_a_first_call_is_an_error(machine):
    machine.capturing = True
    with pytest.raises(DitronError, match="call it once on every rank first"):
        of_fixed_memory(torch.ones(3, 8), torch.zeros(3, 8))


@ditron.jit
def add_epoch(x_ptr, epoch):
    tl.store(x_ptr + tl.program_id(0), tl.load(x_ptr + tl.program_id(0)) + epoch)


@ditron.program(example={"x": "i64[64]"})
def adds_epoch(x):
    add_epoch[(64,)](x, dh.epoch())


@pytest.mark.parametrize("form", ["called", "captured", "counting"])
def test_kernels_are_launched_early_and_wait_before_they_touch_memory(form):
    executable, _ = adds_epoch.executable_and_arguments(adds_epoch.example, target="cuda:90")
    text = executable.kernel("add_epoch")
    if form != "called":
        text = captured_form(text, (1,), counts=form == "counting")
    compiled = compile_for_gpu(text, "add_epoch", {}, parse_target("cuda:90"))
    ptx = compiled.asm["ptx"]
    waits, accesses = ptx.index("griddepcontrol.wait"), [ptx.index("ld.global"), ptx.index("st.global")]
    assert compiled.metadata.launch_pdl and ptx.count("griddepcontrol") == 1 and waits < min(accesses)


@pytest.mark.parametrize(
    "target, options, is_early",
    [
        ("cuda:90", {"launch_pdl": False}, False),
        ("cuda:90", {"launch_pdl": True}, True),  # and waits where its author says
        ("cuda:90", {"launch_cooperative_grid": True}, False),
        ("cuda:80", {}, False),
    ],
)
def test_kernels_that_do_not_wait_at_their_entry(target, options, is_early):
    executable, _ = adds_epoch.executable_and_arguments(adds_epoch.example, target=target)
    compiled = compile_for_gpu(executable.kernel("add_epoch"), "add_epoch", options, parse_target(target))
    assert "griddepcontrol" not in compiled.asm["ptx"] and compiled.metadata.launch_pdl == is_early
