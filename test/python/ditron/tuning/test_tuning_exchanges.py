"""All-to-alls, alone and around products, as what is tuned and explained."""

import pytest
import torch

from ditron.cli import main
from ditron.cli.shapes import _shapes
from ditron.tuning.bench import operands
from ditron.tuning.problem import Problem
from ditron.tuning.registry import OPERATORS, candidates_of


def test_shapes_of_a_rank():
    """A part of the sequence, the whole weight; of a collective, what a rank gives to each other one."""
    (before,), (after,) = (
        _shapes("gemm_a2a", ["8K", "768", "512"], 4, "bf16", "strong"),
        _shapes("a2a_gemm", ["8K", "512", "256"], 4, "bf16", "strong"),
    )
    assert before == Problem("gemm_a2a", "bf16", 4, 2048, 768, 512) and before.M == 2048
    assert [tuple(each.shape) for each in operands(before, 0, torch.device("meta"))[0]] == [(2048, 512), (768, 512)]
    assert [tuple(each.shape) for each in operands(after, 0, torch.device("meta"))[0]] == [(8192, 64), (512, 256)]
    assert before.sent_bytes == 3 * 2048 * 768 // 4 * 2 and after.sent_bytes == 3 * 2048 * 64 * 2
    (moved,) = _shapes("all_to_all", ["64K"], 4, "bf16", "strong")
    assert moved.rows == 8192 and operands(moved, 0, torch.device("meta"))[0][0].numel() == 4 * 8192


@pytest.mark.parametrize("operator", ["gemm_a2a", "a2a_gemm", "all_to_all"])
def test_candidates_begin_with_the_rule(operator):
    sizes = ["64K", "4M"] if operator == "all_to_all" else ["64K", "4K", "4K"]
    for problem in _shapes(operator, sizes, 4, "bf16", "strong"):
        found = candidates_of(problem)
        assert found[0] == OPERATORS[operator].rule(problem).options
        assert {"algorithm": "nccl"} in found and len(found) >= 4


def test_what_products_behind_an_exchange_run():
    """Rows are stored where they travel about as long as the product takes; no product is by rank."""

    def rule(ranks: int, rows: int, size: int) -> dict:
        return dict(OPERATORS["a2a_gemm"].rule(Problem("a2a_gemm", "bf16", ranks, rows, size, size)).options)

    assert rule(2, 8192, 1024)["pushers"] == rule(4, 8192, 2048)["pushers"] == 12
    assert "pushers" not in rule(2, 8192, 2048) and rule(2, 8192, 2048)["algorithm"] == "overlapped"
    assert rule(4, 8192, 8192).get("copy_streams") == 2 and rule(4, 8192, 8192)["pieces"] == 4
    assert "copy_streams" not in rule(2, 8192, 8192) and rule(2, 8192, 8192)["pieces"] == 8
    assert rule(2, 4096, 2048) == rule(1, 8192, 1024) == {"algorithm": "sequential"}


@pytest.mark.parametrize("sizes", [["gemm_a2a", "16384", "2048", "1024"], ["a2a_gemm", "16384", "1024", "2048"]])
def test_explain(sizes, capsys):
    assert main(["explain", *sizes, "--ranks", "2", "--machine", "h200x2"]) == 0
    text = capsys.readouterr().out
    assert 'runs    algorithm="overlapped"' in text and text.count("algorithm=") >= 6


def test_what_ranks_cannot_share(capsys):
    assert main(["explain", "gemm_a2a", "16384", "2047", "1024", "--ranks", "2", "--machine", "h200x2"]) == 2
    assert "gemm_a2a: 2 ranks cannot share 16384 rows and N = 2047" in capsys.readouterr().err
