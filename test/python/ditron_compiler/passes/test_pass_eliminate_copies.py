"""eliminate-copies: results are unchanged, with steps of the simulator that have no copies, or the right ones."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl
from ditron_compiler import host, ir, pipeline

ELIMINATE = (*pipeline.HOST, "eliminate-copies", "canonicalize", "cse")
ROWS, K, N = 5, 8, 8


@ditron.jit
def multiply(a_ptr, b_ptr, c_ptr, rows, K: tl.constexpr, N: tl.constexpr):
    """c = a @ b, row by row."""
    row = tl.program_id(0)
    cols = tl.arange(0, triton.next_power_of_2(N))
    acc = tl.zeros((triton.next_power_of_2(N),), dtype=tl.float32)
    for k in range(K):
        acc += tl.load(a_ptr + row * K + k) * tl.load(b_ptr + k * N + cols, mask=cols < N)
    tl.store(c_ptr + row * N + cols, acc, mask=cols < N)


@ditron.jit
def add_chunks(inbox_ptr, out_ptr, num_chunks, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for chunk in range(num_chunks):
        acc += tl.load(inbox_ptr + chunk * size + at, mask=at < size)
    tl.store(out_ptr + at, acc, mask=at < size)


@ditron.jit
def send(x_ptr, staging_ptr, inbox_ptr, full_ptr, n, peer, epoch, BLOCK: tl.constexpr):
    """A needless copy: to staging memory, from which the tile is put."""
    at = tl.arange(0, BLOCK)
    tl.store(staging_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
    dl.putmem(inbox_ptr, staging_ptr, n * 4, peer)
    dl.notify(full_ptr, peer, epoch)


def in_kernel(a, b, out):
    """The right neighbour's rows of a, sent by a kernel."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    inbox = dh.symm_empty(2, ROWS, K, dtype=a.dtype, name="inbox")[epoch % 2]
    staging = dh.empty(ROWS, K, dtype=a.dtype, name="staging")
    full = dh.symm_zeros(1, dtype=torch.int64, name="full")
    send[(1,)](a, staging, inbox, full, ROWS * K, (rank - 1) % ranks, epoch, BLOCK=64)
    dh.signal_wait(full[0], epoch)
    multiply[(ROWS,)](inbox, b, out, ROWS, K=K, N=N)
    dh.barrier()


def ag_gemm(a, b, c):
    """Needless copies: the own shard among the others."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, cols = a.shape
    both = dh.symm_empty(2, ranks * rows, cols, dtype=a.dtype, name="both")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    shards = both[epoch % 2]
    dh.all_gather(a, shards, arrived, epoch)
    for step in dh.range(ranks):
        source = (rank + step) % ranks
        dh.signal_wait(arrived[source], epoch)
        part = slice(source * rows, (source + 1) * rows)
        multiply[(rows,)](shards[part], b, c[part], rows, K=K, N=N)


def gemm_rs(a, b, out):
    """Needless copies: to the outbox before each push, the own chunk into the inbox, the sum out of scratch memory."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows = out.shape[0]
    inbox = dh.symm_empty(2, ranks, rows, N, dtype=out.dtype, name="inbox")[epoch % 2]
    outbox = dh.symm_empty(rows, N, dtype=out.dtype, name="outbox")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    part = dh.empty(rows, N, dtype=out.dtype, name="part")
    own = dh.empty(rows, N, dtype=out.dtype, name="own")
    total = dh.empty(rows, N, dtype=out.dtype, name="total")
    for step in dh.range(1, ranks):
        owner = (rank + step) % ranks
        multiply[(rows,)](a[owner * rows : (owner + 1) * rows], b, part, rows, K=K, N=N)
        dh.copy(part, outbox)
        dh.rank_copy(outbox, inbox[rank], owner)
        dh.signal_write(arrived[rank], epoch, owner)
    multiply[(rows,)](a[rank * rows : (rank + 1) * rows], b, own, rows, K=K, N=N)
    dh.copy(own, inbox[rank])
    for step in dh.range(1, ranks):
        dh.signal_wait(arrived[(rank + step) % ranks], epoch)
    add_chunks[(1,)](inbox, total, ranks, rows * N, BLOCK=64)
    dh.copy(total, out)


def planted(a, b, out):
    """Copies that have to stay: the source changes, a peer may overwrite it, one kernel reads several."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    inbox = dh.symm_empty(ROWS, N, dtype=a.dtype, name="inbox")
    full = dh.symm_zeros(1, dtype=torch.int64, name="full")
    free = dh.symm_zeros(1, dtype=torch.int64, name="free")
    before = dh.empty(ROWS, N, dtype=a.dtype, name="before")
    taken = dh.empty(ROWS, N, dtype=a.dtype, name="taken")
    terms = dh.empty(3, ROWS, N, dtype=a.dtype, name="terms")
    dh.copy(out, before)  # the next line overwrites it
    multiply[(ROWS,)](a, b, out, ROWS, K=K, N=N)
    dh.signal_wait(free[0], epoch - 1)
    dh.rank_copy(out, inbox, right)
    dh.signal_write(full[0], epoch, right)
    dh.signal_wait(full[0], epoch)
    dh.copy(inbox, taken)  # the left neighbour sends the next one when it is told
    dh.signal_write(free[0], epoch, left)
    dh.copy(out, terms[0])  # one kernel reads all terms
    add_chunks[(1,)](taken, terms[1], 1, ROWS * N, BLOCK=64)
    add_chunks[(1,)](before, terms[2], 1, ROWS * N, BLOCK=64)
    add_chunks[(1,)](terms, out, 3, ROWS * N, BLOCK=64)


BODIES = {body.__name__: body for body in (ag_gemm, gemm_rs, planted, in_kernel)}
PLAIN = {name: ditron.program(passes=pipeline.HOST)(body) for name, body in BODIES.items()}
WITHOUT = {name: ditron.program(passes=ELIMINATE)(body) for name, body in BODIES.items()}


def shapes(name: str, ranks: int) -> tuple[tuple[int, int], ...]:
    """Of a, b and the result."""
    rows = {
        "ag_gemm": (ROWS, ROWS * ranks),
        "gemm_rs": (ROWS * ranks, ROWS),
        "planted": (ROWS, ROWS),
        "in_kernel": (ROWS, ROWS),
    }[name]
    return (rows[0], K), (K, N), (rows[1], N)


def run_rank(name: str, programs: dict, calls: int, gap: int = 0) -> list[torch.Tensor]:
    """Results of all calls; with ``gap``, the rows of ``a`` do not lie side by side."""
    ditron.init()
    results = []
    for call in range(calls):
        random = torch.Generator().manual_seed(1000 * call + ditron.rank())
        a, b, out = (torch.randn(shape, generator=random) for shape in shapes(name, ditron.num_ranks()))
        a = torch.nn.functional.pad(a, (0, gap))[:, :K]
        programs[name](a, b, out)
        results.append(out)
    return results


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", BODIES)
def test_results_are_the_same(name, ranks):
    for seed in range(4):
        outcome = [
            ditron.sim.run(run_rank, ranks=ranks, seed=seed, args=(name, programs, 3)) for programs in (PLAIN, WITHOUT)
        ]
        for plain, without in zip(*outcome, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(plain, without, strict=True)), f"seed {seed}"


def test_results_of_a_tensor_with_gaps():
    plain, without = (
        ditron.sim.run(run_rank, ranks=2, seed=1, args=("ag_gemm", programs, 2, 3)) for programs in (PLAIN, WITHOUT)
    )
    assert all(torch.equal(a, b) for p, w in zip(plain, without, strict=True) for a, b in zip(p, w, strict=True))


def module_of(program: ditron.Program, name: str, ranks: int) -> ir.Module:
    return program.module(
        **{
            parameter: f"f32[{rows}, {cols}]"
            for parameter, (rows, cols) in zip(program.names, shapes(name, ranks), strict=True)
        }
    )


def copies(programs: dict, name: str, ranks: int = 4) -> list[str]:
    """Destinations of the copies that rank 1 makes in a call."""
    return copies_of(module_of(programs[name], name, ranks), name, ranks, K)


def copies_of(module: ir.Module, name: str, ranks: int, row_stride: int) -> list[str]:
    program = next(op for op in module.body.operations if op.name == "ditron.program")
    arguments = [(shape, (shape[1], 1), "f32") for shape in shapes(name, ranks)]
    arguments[0] = (arguments[0][0], (row_stride, 1), "f32")
    steps = host.evaluate(program, host.RankPlacement(1, ranks, 1, ranks, 0), arguments, 1).steps
    return [step.dst.storage.name for step in steps if isinstance(step, host.Copy)]


def test_needless_copies_are_gone_and_the_others_are_not():
    assert copies(PLAIN, "ag_gemm") == ["both"]
    assert copies(WITHOUT, "ag_gemm") == []
    assert copies(PLAIN, "gemm_rs") == ["outbox"] * 3 + ["inbox", "out"]
    assert copies(WITHOUT, "gemm_rs") == []
    assert copies(PLAIN, "planted") == copies(WITHOUT, "planted") == ["before", "taken", "terms"]


def test_a_kernel_puts_from_where_it_loads():
    texts = [str(module_of(programs["in_kernel"], "in_kernel", 4)) for programs in (PLAIN, WITHOUT)]
    assert ["tt.store" in text.partition("@send(")[2].partition("tt.return")[0] for text in texts] == [
        True,
        False,
    ]


def test_a_tensor_with_gaps_is_copied_when_it_has_them():
    """A program that knows nothing of its arguments decides in the call."""
    module = module_of(ditron.program(passes=())(ag_gemm), "ag_gemm", 4)
    del module.operation.attributes["ditron.assumptions"]
    pipeline.run(module, ELIMINATE)
    assert copies_of(module, "ag_gemm", 4, K) == []
    assert copies_of(module, "ag_gemm", 4, 2 * K) == ["both"]


def test_a_program_for_dense_tensors_takes_no_others():
    with pytest.raises(host.EvaluationError, match=r"contiguous, .* got strides \[16, 1\]"):
        copies_of(module_of(WITHOUT["ag_gemm"], "ag_gemm", 4), "ag_gemm", 4, 2 * K)


def test_a_copy_that_goes_with_a_later_one_needs_no_remark():
    def two_from_one(x, out):
        a, b = (dh.zeros(*x.shape, dtype=x.dtype, name=name) for name in "ab")
        dh.copy(a, out)
        dh.copy(a, b)

    module = ditron.program(passes=pipeline.OVERLAP)(two_from_one).module("f32[6, 5]", "f32[6, 5]")
    assert str(module).count("ditron.copy ") == 1
