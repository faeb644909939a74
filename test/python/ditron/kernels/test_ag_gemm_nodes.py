"""AG+GEMM over several simulated nodes: right on every schedule, checked, compiled, and found wrong where it is."""

from __future__ import annotations

import importlib
import inspect

import numerics
import pytest
import torch
from simulated import data, run

import ditron
from ditron import kernels
from ditron.cli import main
from ditron.kernels import ag_gemm_nodes, node_pushes
from ditron.kernels.ag_gemm_nodes import ag_gemm_nodes_program
from ditron.protocol.api import check_program
from ditron_compiler.errors import DitronError, NodesError


def multiply(ranks, rows, N, K, **options):
    a, b, bias = data(ranks, rows, K, seed=1), data(ranks, N, K, seed=2), data(N, seed=3)
    rank = ditron.rank()
    for call in range(3):
        mine, gathered = a[rank].roll(call, 0).contiguous(), torch.empty(ranks * rows, K, dtype=a.dtype)
        got = kernels.ag_gemm(mine, b[rank], bias, gathered=gathered, **options)
        whole = a.roll(call, 1).reshape(-1, K)
        assert torch.equal(gathered, whole)
        numerics.assert_product(got, whole, b[rank].T, bias)


@pytest.mark.parametrize("rows, N, K", [(40, 48, 32), (1, 8, 8), (70, 72, 40)])
@pytest.mark.parametrize("nodes, local", [(2, 2), (2, 4), (4, 2), (3, 1)])
def test_right(nodes, local, rows, N, K):
    for seed in range(2):
        run(lambda: multiply(nodes * local, rows, N, K), ranks=nodes * local, ranks_per_node=local, seed=seed)


def test_pieces_and_graphs():
    run(lambda: multiply(4, 70, 48, 32, pieces=3, block=(16, 32, 32)), ranks=4, ranks_per_node=2, graphs=True)


def test_a_group_of_two_nodes_in_any_order():
    def main():
        group = ditron.new_group([4, 5, 2, 3])
        if group:
            with group:
                multiply(4, 40, 48, 32)

    run(main, ranks=6, ranks_per_node=2)


def test_one_node_takes_the_program_of_one_node(monkeypatch):
    monkeypatch.setattr(importlib.import_module("ditron.kernels.ag_gemm"), "ag_gemm_nodes_program", None)
    run(lambda: multiply(2, 40, 48, 32), ranks=2)


@pytest.mark.parametrize("groups", [((2, None), (4, 2)), ((6, 2),)])
def test_the_checker_finds_nothing(groups):
    report = check_program(ag_gemm_nodes_program, groups=groups)
    assert not report.findings, "\n".join(map(str, report.findings))
    assert not report.given_up


def test_the_put_is_nvshmems(tmp_path, capsys):
    source = f"{ag_gemm_nodes.__file__}:ag_gemm_nodes_program"
    assert main(["compile", source, "--transport", "nvshmem", "-o", str(tmp_path)]) == 0, capsys.readouterr().err
    assert "nvshmemx_putmem_signal_nbi_block" in (tmp_path / "put_shard_kernel.ptx").read_text()


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.fixture
def mutated(monkeypatch):
    """Make HierarchicalPushes of changed source."""

    def change(old, new):
        source = inspect.getsource(node_pushes.HierarchicalPushes)
        assert old in source
        scope = dict(vars(node_pushes))
        exec(compile(source.replace(old, new), node_pushes.__file__, "exec"), scope)
        monkeypatch.setattr(ag_gemm_nodes, "HierarchicalPushes", scope["HierarchicalPushes"])

    return change


MUTANTS = {
    "a shard is sent on before it has come": ("self.await_piece(sender, piece)\n", "pass\n", "unordered"),
    "a node's ranks may still read": ("dh.signal_wait(self.done[peer], self.epoch)\n", "pass\n", "reuse"),
    "the put is not behind the copy": ("dh.await_event(copied)\n", "pass\n", "unordered"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name, mutated, monkeypatch):
    old, new, kind = MUTANTS[name]
    mutated(old, new)
    program = ditron.program(ag_gemm_nodes_program.fn, sample_args=ag_gemm_nodes_program.sample_args)
    report = check_program(program, groups=((4, 2),))
    assert kind in {finding.kind for finding in report.findings}, report
    monkeypatch.setattr(importlib.import_module("ditron.kernels.ag_gemm"), "ag_gemm_nodes_program", program)
    with pytest.raises(ditron.SimulationError):
        for seed in range(20):
            run(lambda: multiply(4, 40, 48, 32), ranks=4, ranks_per_node=2, seed=seed)


def wrong(message, error=NodesError, ranks=(0, 1, 2, 3), a=None, **options):
    def main():
        x = torch.ones(16, 32, dtype=torch.bfloat16) if a is None else a
        kernels.ag_gemm(x, x, group=ditron.new_group(list(ranks)), **options)

    with pytest.raises(error, match=message):
        run(main, ranks=4, ranks_per_node=2)


def test_what_it_does_not_do():
    wrong(r"algorithm='sequential' in a group on 2 nodes: expected 'overlapped' or 'nccl'", algorithm="sequential")
    wrong(r"algorithm='nccl' takes a group of GPUs", error=DitronError, algorithm="nccl")
    wrong(r"on 2 nodes takes bfloat16 or float16 matrices with rows of", a=torch.ones(16, 32))
    wrong(r"unknown argument 'maxnreg': a schedule has pieces", error=DitronError, maxnreg=128)
    quantized = dict(a=torch.ones(16, 32).to(torch.float8_e4m3fn), scale_a=torch.ones(1), scale_b=torch.ones(1))
    wrong(r"on 2 nodes takes no quantized operands", **quantized)
    wrong(r"those of a node one after another, got world ranks \[0, 2, 1, 3\]", error=DitronError, ranks=[0, 2, 1, 3])


@pytest.mark.parametrize("operator", [kernels.ag_gemm, kernels.gemm_rs])
@pytest.mark.parametrize("grows", [0, 1])
def test_no_gradients_over_nodes(operator, grows):
    def main():
        tensors = [torch.ones(16, 32, dtype=torch.bfloat16) for _ in range(2)]
        tensors[grows].requires_grad_()
        with pytest.raises(DitronError, match="there are no gradients in a group on several nodes"):
            operator(*tensors)
        with torch.no_grad():
            operator(*tensors)

    run(main, ranks=4, ranks_per_node=2)
