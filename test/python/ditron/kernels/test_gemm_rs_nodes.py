"""GEMM+RS over several simulated nodes: right on every schedule, checked, and compiled."""

from __future__ import annotations

import importlib

import numerics
import pytest
import torch
from simulated import data, run

import ditron
from ditron import kernels, machines, sim
from ditron.cli import main as cli
from ditron.kernels import gemm_rs_nodes
from ditron.kernels.gemm_rs_nodes import gemm_rs_nodes_program
from ditron.protocol.api import check_program
from ditron_compiler.errors import NodesError


def multiply(nodes, local, rows, N, K, **options):
    ranks = nodes * local
    a, b = data(ranks, ranks * rows, K, seed=1), data(ranks, N, K, seed=2)
    rank = ditron.rank()
    own = slice(rank * rows, (rank + 1) * rows)
    for call in range(3):
        turned = a.roll(call, 1)
        got = kernels.gemm_rs(turned[rank].contiguous(), b[rank], **options)
        parts = torch.einsum("wmk,wnk->wmn", turned[:, own].double(), b.double())
        size = torch.einsum("wmk,wnk->wmn", turned[:, own].double().abs(), b.double().abs()).sum(0)
        of_nodes = parts.view(nodes, local, *parts.shape[1:]).sum(1)  # each part is rounded, then each node's sum
        rounded = (parts.abs().sum(0) + of_nodes.abs().sum(0)) * (1 + numerics.gamma(K + local))
        rounding = torch.finfo(got.dtype).eps / 2 * (1 + torch.finfo(got.dtype).eps) * rounded
        # A part's rounding is carried into the node's sum, whose own rounding it moves.
        numerics.assert_error_within(got, parts.sum(0), numerics.gamma(K + ranks + 1) * size + rounding)


@pytest.mark.parametrize("rows, N, K", [(40, 48, 32), (1, 8, 8), (70, 72, 40)])
@pytest.mark.parametrize("nodes, local", [(2, 2), (2, 4), (4, 2), (3, 1)])
def test_right(nodes, local, rows, N, K):
    for seed in range(2):
        run(lambda: multiply(nodes, local, rows, N, K), ranks=nodes * local, ranks_per_node=local, seed=seed)


def test_graphs_and_pieces():
    schedule = {"pieces": 3, "block": (16, 32, 32)}
    run(lambda: multiply(2, 2, 70, 48, 32, **schedule), ranks=4, ranks_per_node=2, graphs=True)


def test_one_node_takes_the_program_of_one_node(monkeypatch):
    monkeypatch.setattr(importlib.import_module("ditron.kernels.gemm_rs"), "gemm_rs_nodes_program", None)
    run(lambda: multiply(1, 2, 40, 48, 32), ranks=2)


@pytest.mark.parametrize("groups", [((4, 2),), ((6, 2),)])
def test_the_checker_finds_nothing(groups):
    report = check_program(gemm_rs_nodes_program, groups=groups)
    assert not report.findings, "\n".join(map(str, report.findings))
    assert not report.given_up


def test_the_put_is_nvshmems(tmp_path, capsys):
    source = f"{gemm_rs_nodes.__file__}:gemm_rs_nodes_program"
    assert cli(["compile", source, "--transport", "nvshmem", "-o", str(tmp_path)]) == 0, capsys.readouterr().err
    assert "nvshmemx_putmem_signal_nbi_block" in (tmp_path / "put_sums_kernel.ptx").read_text()


def test_sums_are_put_once():
    """NICs carry a shard to each other node, not one for each of its ranks."""

    def main():
        ditron.init()
        a, b = (torch.empty(*shape, dtype=torch.bfloat16) for shape in ((16 * 256, 512), (2048, 512)))
        for _ in range(2):
            kernels.gemm_rs(a, b, algorithm="overlapped")

    slow = machines.load("h800x8x2").with_changes(["nic=0.1"])
    us = max(call.us for call in sim.predict(main, slow).calls[-1])
    shard = 256 * 2048 * 2 / 0.1e3  # us
    assert shard < us < 1.1 * shard


def test_what_it_does_not_do():
    def main():
        x = torch.ones(16, 32, dtype=torch.bfloat16)
        kernels.gemm_rs(x, x, algorithm="sequential")

    with pytest.raises(NodesError, match=r"gemm_rs: algorithm='sequential' in a group on 2 nodes: expected"):
        run(main, ranks=4, ranks_per_node=2)
