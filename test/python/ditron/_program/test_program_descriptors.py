"""Host-made tensor descriptors in programs: of arguments, of buffers, of parts of them."""

from pathlib import Path

import pytest
import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.host as dh
from ditron import CompileError, DitronError
from ditron._program.execute.executable import Executable
from ditron.protocol import api as checking

HERE = Path(__file__)


def on_ranks(body, ranks: int, seeds=(0, 1)) -> None:
    def main():
        ditron.init()
        body(ditron.rank(), ditron.num_ranks())

    for seed in seeds:
        ditron.sim.run(main, ranks=ranks, seed=seed)


def line_of(comment: str) -> int:
    return next(i for i, text in enumerate(HERE.read_text().splitlines(), 1) if text.endswith(f"# {comment}"))


@ditron.jit
def copy_blocks(src, dst, OUTER: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Blocks of the last two dimensions; the grid's last number goes through the outer ones, if there are any."""
    i, j, k = tl.program_id(0) * BM, tl.program_id(1) * BN, tl.program_id(2)
    if OUTER == 0:
        dst.store([i, j], src.load([i, j]))
    elif OUTER == 1:
        dst.store([k, i, j], src.load([k, i, j]))
    elif OUTER == 2:
        dst.store([k, 0, i, j], src.load([k, 0, i, j]))
    else:
        dst.store([k, 0, 0, i, j], src.load([k, 0, 0, i, j]))


@ditron.program
def through(x, out, *, bm=16, bn=32):
    """Copy by descriptors to symmetric memory, and from there."""
    outer = x.ndim - 2
    block = [1] * outer + [bm, bn]
    box = dh.symm_empty(x.shape, dtype=x.dtype, name="box")
    grid = dh.cdiv(x.shape[-2], bm), dh.cdiv(x.shape[-1], bn), x.shape[0] if outer else 1
    middle = TensorDescriptor(box, list(x.shape), list(box.stride()), block)
    for src, dst in [
        (TensorDescriptor.from_tensor(x, block), middle),
        (middle, TensorDescriptor.from_tensor(out, block)),
    ]:
        copy_blocks[grid](src, dst, OUTER=outer, BM=bm, BN=bn)


@pytest.mark.parametrize("shape", [(40, 72), (16, 32), (3, 20, 40), (2, 1, 17, 48), (2, 1, 1, 20, 24)])
def test_two_to_five_dimensions(shape):
    def body(rank, num_ranks):
        for _ in range(2):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(rank)).bfloat16()
            out = torch.zeros_like(x)
            through(x, out)
            assert torch.equal(out, x)

    on_ranks(body, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8, torch.uint8, torch.float8_e5m2])
def test_element_types(dtype):
    def body(rank, num_ranks):
        x = (torch.arange(20 * 48) % 100).view(20, 48).to(dtype)
        out = torch.zeros(20, 48).to(dtype)
        through(x, out)
        assert torch.equal(out.float(), x.float())

    on_ranks(body, 1)


@ditron.jit
def add_blocks(x, box, out, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    out.store([i, j], x.load([i, j]) + box.load([i, j]))


@ditron.program(sample_args=lambda ranks: {"x": "f32[24, 40]", "out": "f32[24, 40]"}, max_nodes=1)
def add_neighbours(x, out, *, wait=True):
    """Two halves by parity, each described where it begins."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    boxes = dh.symm_empty(2, *x.shape, dtype=x.dtype, name="boxes")
    full, done = (dh.symm_zeros(1, dtype=torch.int64, name=name) for name in ("full", "done"))
    box = boxes[epoch % 2]
    with dh.stream("copy"):
        dh.signal_wait(done[0], epoch - 1)
        dh.rank_copy(x, box, (rank + 1) % ranks)
        dh.signal_write(full[0], epoch, (rank + 1) % ranks)
    described = [TensorDescriptor.from_tensor(buffer, [16, 16]) for buffer in (x, box, out)]
    grid = dh.cdiv(x.shape[0], 16), dh.cdiv(x.shape[1], 16)
    if wait:
        dh.signal_wait(full[0], epoch)
    add_blocks[grid](*described, BM=16, BN=16)
    dh.signal_write(done[0], epoch, (rank + ranks - 1) % ranks)


def test_what_a_peer_has_sent():
    def body(rank, num_ranks):
        for call in range(4):
            x = torch.full((24, 40), 10.0 * call + rank)
            out = torch.zeros(24, 40)
            add_neighbours(x, out)
            assert torch.equal(out, x + 10.0 * call + (rank - 1) % num_ranks)

    on_ranks(body, 3, seeds=range(4))


def test_checker_follows_descriptors():
    report = checking.check_program(add_neighbours)
    assert not report.findings and not report.notes, str(report)

    @ditron.program(sample_args=lambda ranks: {"x": "f32[24, 40]", "out": "f32[24, 40]"}, max_nodes=1)
    def forgets_to_wait(x, out):
        add_neighbours.fn(x, out, wait=False)

    report = checking.check_program(forgets_to_wait)
    assert {finding.kind for finding in report.findings} == {"unordered"}, str(report)
    assert "a load of forgets_to_wait.boxes[" in str(report), str(report)


def test_parts():
    """Rows of a larger buffer, columns of an argument that is not contiguous, a matrix described as its transpose."""

    def parts(x, columns, turned, out):
        m, n = x.shape
        work = dh.empty(4, m, n, dtype=x.dtype, name="work")
        for i, source in enumerate([
            TensorDescriptor.from_tensor(x, [16, 16]),
            TensorDescriptor.from_tensor(columns, [16, 16]),
            TensorDescriptor(turned, [m, n], [turned.stride(1), 1], [16, 16]),
        ]):  # fmt: skip
            target = TensorDescriptor.from_tensor(work[i + 1], [16, 16])
            copy_blocks[(dh.cdiv(m, 16), dh.cdiv(n, 16), 1)](source, target, OUTER=0, BM=16, BN=16)
        dh.copy(work[1:4], out)

    program = ditron.program(parts)

    def body(rank, num_ranks):
        x, columns = torch.randn(20, 24), torch.randn(20, 64)[:, 8:32]
        turned, out = torch.randn(20, 24).T, torch.zeros(3, 20, 24)
        program(x, columns, turned, out)
        assert torch.equal(out, torch.stack([x, columns, turned.T]))

    on_ranks(body, 1)


@ditron.jit
def add_all(blocks, out, COUNT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = blocks[0].load([i, j])
    for number in tl.static_range(1, COUNT):
        total += blocks[number].load([i, j])
    out.store([i, j], total)


def test_a_tuple_of_descriptors():
    """As several weights of one kernel."""

    def add(tensors, out):
        described = tuple(TensorDescriptor.from_tensor(tensor, [16, 16]) for tensor in tensors)
        grid = dh.cdiv(out.shape[0], 16), dh.cdiv(out.shape[1], 16)
        result = TensorDescriptor.from_tensor(out, [16, 16])
        add_all[grid](described, result, COUNT=len(tensors), BM=16, BN=16)

    program = ditron.program(add)

    def body(rank, num_ranks):
        tensors, out = torch.randn(3, 20, 40), torch.zeros(20, 40)
        program(list(tensors), out)
        torch.testing.assert_close(out, tensors.sum(0))

    on_ranks(body, 1)


@ditron.jit
def sum_block(x, out_ptr, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.sum(x.load([0, 0]), 1)
    tl.store(out_ptr + tl.arange(0, BM), rows)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_padding(padding):
    def pads(x, out):
        sum_block[(1,)](TensorDescriptor.from_tensor(x, [8, 16], padding), out, BM=8, BN=16)

    program = ditron.program(pads)

    def body(rank, num_ranks):
        out = torch.zeros(8)
        program(torch.ones(8, 12), out)
        assert out.isnan().all() if padding == "nan" else out.tolist() == [12.0] * 8

    on_ranks(body, 1, seeds=[0])


def test_a_loop_that_describes_each_part():
    def loop(x, out):
        m, n = x.shape
        with dh.stream("side"):
            for i in dh.range(dh.num_ranks()):
                rows = slice(i * 16, i * 16 + 16)
                described = [TensorDescriptor.from_tensor(buffer[rows], [16, 16]) for buffer in (x, out)]
                copy_blocks[(1, dh.cdiv(n, 16), 1)](*described, OUTER=0, BM=16, BN=16)

    program = ditron.program(loop)
    text = str(program.module("f32[32, 64]", "f32[32, 64]"))
    assert text.count("ditron.tensor_descriptor") == 2 and text.count("ditron.launch") == 1

    def body(rank, num_ranks):
        x, out = torch.randn(16 * num_ranks, 20), torch.zeros(16 * num_ranks, 20)
        program(x, out)
        assert torch.equal(out, x)

    on_ranks(body, 3)


@pytest.mark.parametrize("target", ["cuda:80", "hip:gfx942"])
def test_without_tma_a_descriptor_is_taken_apart(target):
    module = through.module("bf16[40, 72]", "bf16[40, 72]", target=target)
    assert "tensordesc" not in str(module) and str(module).count("ditron.launch") == 2
    program = Executable(module)

    def body(rank, num_ranks):
        x, out = torch.randn(40, 72).bfloat16(), torch.zeros(40, 72).bfloat16()
        program(x, out)
        assert torch.equal(out, x)

    on_ranks(body, 1, seeds=[0])


# What hardware cannot have, known when the program runs.


def misaligned_rows(x, out):
    sum_block[(1,)](TensorDescriptor.from_tensor(x, [8, 16]), out, BM=8, BN=16)  # misaligned rows


def beyond(x, out):
    m, n = x.shape
    sum_block[(1,)](TensorDescriptor(x, [m + 1, n], [n, 1], [8, 16]), out, BM=8, BN=16)  # beyond


def gaps(x, out):
    m, n = x.shape
    half = x[0:m, 0:8]
    sum_block[(1,)](TensorDescriptor(half, [m, n], [n, 1], [8, 16]), out, BM=8, BN=16)  # gaps


def misaligned_part(x, out):
    m, n = x.shape
    part = x[0:m, n - 7 : n]
    sum_block[(1,)](TensorDescriptor.from_tensor(part, [8, 16]), out, BM=8, BN=16)  # misaligned part


@pytest.mark.parametrize(
    ("function", "shape", "message"),
    [
        (misaligned_rows, (8, 9), r"of 'x', of sizes \[8, 9\] and strides \[9, 1\] in .* multiples of 16 bytes, but"),
        (beyond, (8, 12), r"of 'x', of sizes \[9, 12\] and strides \[12, 1\]: it reaches beyond its buffer, which has"),
        (gaps, (8, 12), r"of sizes \[8, 12\] and strides \[12, 1\]: it reaches beyond its buffer, .* sizes \[8, 8\]"),
        (misaligned_part, (8, 12), r"begins at element 5 of 4 bytes, and its address must be a multiple of 16 bytes"),
        (misaligned_rows, (0, 12), r"sizes are at least 1"),
    ],
)
def test_what_hardware_cannot_have(function, shape, message):
    program = ditron.program(function)
    comment = function.__name__.replace("_", " ")
    with pytest.raises(DitronError, match=message) as caught:
        on_ranks(lambda rank, num_ranks: program(torch.ones(shape), torch.zeros(8)), 1, seeds=[0])
    assert f"{HERE}:{line_of(comment)}:" in str(caught.value)


def test_strided_innermost():
    program = ditron.program(misaligned_rows)
    with pytest.raises(DitronError, match="the last dimension must be contiguous"):
        on_ranks(lambda rank, num_ranks: program(torch.ones(12, 8).T, torch.zeros(8)), 1, seeds=[0])


def test_an_argument_that_is_not_aligned():
    def describes(x, out):
        TensorDescriptor.from_tensor(x, [8, 16])  # not aligned

    with pytest.raises(
        CompileError, match="whose address is not a multiple of 16 bytes: give the program a tensor"
    ) as e:
        ditron.program(describes).module(torch.ones(1 + 8 * 16)[1:].view(8, 16), "f32[8]")
    assert (e.value.file, e.value.line) == (str(HERE), line_of("not aligned"))


def test_a_descriptor_of_a_tensor_that_exists():
    existing = TensorDescriptor.from_tensor(torch.ones(8, 16), [8, 16])

    def given(x, out):
        sum_block[(1,)](existing, out, BM=8, BN=16)  # exists

    with pytest.raises(CompileError, match="pass it to the program as an argument") as caught:
        ditron.program(given).module("f32[8, 16]", "f32[8]")
    assert (caught.value.file, caught.value.line) == (str(HERE), line_of("exists"))


def test_sizes_that_are_no_integers():
    def wrong(x, out):
        sum_block[(1,)](TensorDescriptor(x, [8, 1.5], [16, 1], [8, 16]), out, BM=8, BN=16)  # no integer

    with pytest.raises(CompileError, match="a size of a tensor descriptor must be an integer, got 1.5") as caught:
        ditron.program(wrong).module("f32[8, 16]", "f32[8]")
    assert (caught.value.file, caught.value.line) == (str(HERE), line_of("no integer"))


def test_what_a_kernel_is_told_of_a_descriptor_is_what_it_is():
    """A module that was written by hand may have it otherwise."""
    text = str(ditron.program(misaligned_rows).module("f32[8, 16]", "f32[8]").operation.get_asm())
    assert "sizes [%dim, %dim_0]" in text
    changed = Executable(text.replace("sizes [%dim, %dim_0]", "sizes [4, %dim_0]"))

    def body(rank, num_ranks):
        changed(torch.ones(8, 16), torch.zeros(8))

    with pytest.raises(DitronError, match=r"@sum_block is given \[8, 16, 16, 1\] behind a tensor descriptor, whose"):
        on_ranks(body, 1, seeds=[0])
