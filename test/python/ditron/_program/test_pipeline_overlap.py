"""The pipeline `overlap` changes nothing about what programs compute: the examples, and what leaves more to it."""

from __future__ import annotations

import sys

import paths
import pytest
import torch
from fake_cuda import RANKS

import ditron
from ditron.protocol.api import check_program
from ditron_compiler import host, ir, pipeline
from ditron_compiler.frontend.targets import SIM_TARGET

ROOT = paths.ROOT
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "test" / "gpu")]
import ag_gemm  # noqa: E402
import ag_gemm_ring  # noqa: E402
import gemm_rs  # noqa: E402
import gemm_rs_chunks  # noqa: E402
from left_to_passes import PROGRAMS  # noqa: E402

TILE = dict(block=(16, 16, 16))
EXAMPLES = {
    "ag_gemm": (ag_gemm.ag_gemm, 8e-3, lambda: ag_gemm.check(19, 21, 25, calls=3, **TILE)),
    "ag_gemm_ring": (
        ag_gemm_ring.ag_gemm_ring,
        8e-3,
        lambda: ag_gemm.check(32, 32, 32, calls=3, multiply=ag_gemm_ring.ring_gemm, **TILE),
    ),
    "gemm_rs_chunks": (
        gemm_rs_chunks.gemm_rs,
        1.5e-2,
        lambda: gemm_rs.check(19, 21, 25, calls=3, make=gemm_rs_chunks.GemmReduceScatterChunks, **TILE),
    ),
}


def run_rank(check):
    ditron.init()
    return check()


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_right(name, monkeypatch):
    program, bound, check = EXAMPLES[name]
    monkeypatch.setattr(program, "passes", pipeline.OVERLAP)
    monkeypatch.setattr(program, "_executables", {})
    for seed in range(3):
        errors = ditron.sim.run(run_rank, ranks=4, seed=seed, args=(check,))
        assert max(errors) <= bound, f"seed {seed}: errors per rank {errors}"


def run_left_to_passes(name, rows, N, K, place, calls):
    ditron.init()
    rank, ranks, gathers = ditron.rank(), ditron.num_ranks(), name.startswith("gather")
    results = []
    for call in range(calls):
        a, b = (
            torch.randn(shape, generator=torch.Generator().manual_seed(100 * call + 10 * rank + number)).bfloat16()
            for number, shape in enumerate([(rows if gathers else ranks * rows, K), (K, N)])
        )
        out = torch.zeros(ranks * rows if gathers else rows, N, dtype=torch.bfloat16)
        PROGRAMS[name](place(a), b, out, **TILE)
        results.append(out)
    return results


def unaligned(tensor):
    """At an address that 16 does not divide."""
    return torch.cat([tensor.new_zeros(1), tensor.flatten()])[1:].view(tensor.shape)


def gapped(tensor):
    """With rows that do not lie side by side."""
    return torch.nn.functional.pad(tensor, (0, 3))[:, : tensor.shape[1]]


@pytest.mark.parametrize("shape", [(32, 32, 32), (19, 21, 25)])
@pytest.mark.parametrize(
    "name,place",
    [
        (name, place)
        for name in PROGRAMS
        if "overlap" in name
        for place in (torch.clone, unaligned, gapped)
        if place is not gapped or name.startswith("gather")
    ],
)  # the other's kernel takes rows of a to lie side by side
def test_what_is_left_to_passes_is_right(name, place, shape):
    plain = ditron.sim.run(run_left_to_passes, ranks=3, args=(name.partition(",")[0], *shape, torch.clone, 2))
    for seed in range(2):
        outcome = ditron.sim.run(run_left_to_passes, ranks=3, seed=seed, args=(name, *shape, place, 2))
        assert all(torch.equal(a, b) for p, o in zip(plain, outcome, strict=True) for a, b in zip(p, o, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_left_to_passes_is_clean(name):
    text = str(PROGRAMS[name].module(**PROGRAMS[name].sample_args(3)))
    assert ("ditron.copy" in text, "ditron.stream %" in text or "ditron.record" in text) == (
        ("overlap" not in name, "overlap" in name)
    )
    report = check_program(PROGRAMS[name], [(3, None)])
    assert not report.findings, str(report)


@pytest.mark.parametrize(
    "name,pushes,copies",
    [
        ("gather_gemm", RANKS - 1, 1),
        ("gather_gemm, overlap", RANKS - 1, 0),
        ("gather_gemm, ring and overlap", RANKS - 1, 0),
        ("scatter_gemm", RANKS - 1, RANKS + 1),
        ("scatter_gemm, overlap", RANKS - 1, 0),
    ],
)
def test_what_is_left_is_planned_and_captured(machine, name, pushes, copies, monkeypatch):  # noqa: F811
    """Copies between ranks on a stream of their own, the others gone; the same when captured."""
    monkeypatch.setenv("DITRON_PROTOCOL", "off")
    rows, N, K = 32, 16, 24
    wide, tall = (RANKS * rows, rows) if name.startswith("scatter") else (rows, RANKS * rows)
    a, b, out = (torch.zeros(shape, dtype=torch.bfloat16) for shape in [(wide, K), (K, N), (tall, N)])
    for _ in range(2):
        PROGRAMS[name](a, b, out, block=(32, 32, 32), num_warps=4)
    machine.capturing, machine.stream = True, 5
    for main, call in [(0, 2), (5, 3)]:
        if call == 3:
            machine.triton.launches.clear()
            machine.library.log.clear()
            PROGRAMS[name](a, b, out, block=(32, 32, 32), num_warps=4)
        moved = [entry for entry in machine.library.log if entry[0] == "copy" and entry[3] > 8]
        calls = 1 if call == 3 else 2
        between = [entry for entry in moved if entry[-1] != main] if "overlap" in name else moved
        assert len(moved) == calls * (pushes + copies)
        assert len(between) == len(moved) and (("overlap" in name) == (main not in {entry[-1] for entry in moved}))
        kernels = [source.name for source, _, _ in machine.triton.launches]
        assert kernels.count("gemm_kernel") + kernels.count("gemm_kernel_1") == calls * RANKS, kernels


def misaligned(program, args, ranks):
    """Arguments of launches that 16 does not divide where the kernel was compiled for that."""
    executable = program._executable(args, {"block": (16, 16, 16)}, SIM_TARGET)
    found = []
    for rank in range(ranks):
        for step in executable.steps(args, rank, ranks, 3):
            if isinstance(step, host.Launch):
                with ir.Context() as context:
                    context.allow_unregistered_dialects = True
                    module = ir.Module.parse(executable.kernel(step.kernel))
                    attributes = list(module.body.operations)[0].operation.attributes["arg_attrs"]
                    by_16 = ["tt.divisibility" in dict(entry.items()) for entry in attributes]
                for number, (value, divides) in enumerate(zip(step.args, by_16, strict=False)):
                    if isinstance(value, host.BufferView):
                        base = args[value.storage.index].data_ptr() if value.storage.kind == "argument" else 0
                        value = base + value.offset * 2
                    if divides and value % 16:
                        found.append((rank, step.kernel, number))
    return found


@pytest.mark.parametrize("place", [torch.clone, unaligned, gapped])
@pytest.mark.parametrize("shape", [(32, 32, 32), (19, 21, 25), (16, 24, 40), (3, 16, 32)])
@pytest.mark.parametrize("name", [*PROGRAMS, *EXAMPLES])
def test_kernels_get_the_alignment_they_were_compiled_for(name, shape, place, monkeypatch):
    """The simulator does not care, a GPU does."""
    monkeypatch.setenv("DITRON_PROTOCOL", "off")
    (rows, N, K), ranks = shape, 3
    program = PROGRAMS[name] if name in PROGRAMS else ditron.program(EXAMPLES[name][0].fn, passes="overlap")
    scatters = name.startswith(("scatter", "gemm_rs"))
    a, b, out = (
        torch.zeros(size, dtype=torch.bfloat16)
        for size in ((ranks * rows if scatters else rows, K), (K, N), (rows if scatters else ranks * rows, N))
    )
    assert not misaligned(program, (place(a), b, out), ranks)
