"""Expert parallelism over several nodes: the layer, gradients, fp8 with scales, the checker, NVSHMEM's code."""

import importlib
import sys
from pathlib import Path

import pytest
import test_layer_gradients as layers
import torch
from test_ep_exchange import run
from test_moe import corpus

import ditron
from ditron import kernels
from ditron.cli import main as command
from ditron.kernels import ep_nodes, plan_nodes
from ditron.kernels.reduce_scatter import put_scatter_program
from ditron.protocol.api import check_program


@pytest.mark.parametrize("nodes, per_node", [(2, 1), (2, 4), (4, 4)])
def test_layer(nodes, per_node, monkeypatch):
    """ep_moe and all its gradients, of many kinds of routes."""
    ranks = nodes * per_node
    monkeypatch.setattr(layers, "EXPERTS", max(4, ranks))
    layer, of_weights = layers.Layer(ranks), {}

    def main():
        rank = ditron.rank()
        for name, ids in corpus(ranks, layers.TOKENS, layers.TOP_K, layers.EXPERTS).items():
            y, *gradients = layer.exact(ids)
            x, weights = (t[rank].clone().requires_grad_() for t in (layer.x, layer.weights))
            w13, w2 = (w.clone().requires_grad_() for w in layer.of_rank(layer.gate, layer.up, layer.down, "ep"))
            got = kernels.ep_moe(x, ids[rank], weights, w13, w2, num_experts=layers.EXPERTS)
            got.backward(layer.grad[rank])
            layers.assert_near(got.detach(), y[rank], name)
            layers.assert_near(x.grad, gradients[0][rank], (name, "x"))
            of_weights.setdefault(name, []).append((weights.grad, gradients[1][rank]))
            expected = layer.of_rank(*gradients[2:], "ep")
            for what, w, exact in (("w13", w13, expected[0]), ("w2", w2, expected[1])):
                layers.assert_near(w.grad, exact, (name, what))

    monkeypatch.setattr(layer, "mine", lambda parallel: _experts(ranks))
    run(main, ranks=ranks, ranks_per_node=per_node)
    for name, pairs in of_weights.items():  # of all ranks: a few numbers, of rows that are rounded, may differ by more
        layers.assert_near(*(torch.cat(tensors) for tensors in zip(*pairs, strict=True)), (name, "weights"))


def _experts(ranks):
    rank = ditron.rank()
    return slice(rank * layers.EXPERTS // ranks, (rank + 1) * layers.EXPERTS // ranks), slice(None)


def test_fewer_tokens_than_the_plan_is_for():
    layer, ids = layers.Layer(4), corpus(4, layers.TOKENS, layers.TOP_K, 4)["uniform"]
    ids[1, 13:] = -1

    def main():
        rank = ditron.rank()
        given = layers.TOKENS - 7 * (rank == 1)
        operands = layer.of_rank(layer.gate, layer.up, layer.down, "ep")
        options = {"num_experts": 4, "max_tokens": layers.TOKENS}
        y = kernels.ep_moe(layer.x[rank, :given], ids[rank, :given], layer.weights[rank, :given], *operands, **options)
        layers.assert_near(y, layer.exact(ids)[0][rank, :given], "y")

    run(main, ranks=4, ranks_per_node=2)


def test_as_on_one_node():
    """Bit by bit: the sums are added in the same order."""
    ids, x = corpus(4, 20, 2, 4)["uniform"], torch.randn(4, 20, 32).bfloat16()
    sums = {}

    def main():
        rank = ditron.rank()
        plan = kernels.moe_plan(ids[rank], torch.rand(4, 20, 2)[rank], num_experts=4)
        y = kernels.ep_combine(torch.tanh(kernels.ep_dispatch(x[rank], plan)), plan)
        assert torch.equal(y, sums.setdefault(rank, y))

    for per_node in (4, 2):
        torch.manual_seed(7)
        run(main, ranks=4, ranks_per_node=per_node)
    assert len(sums) == 4


def test_quantized_tokens_and_their_scales():
    x = torch.randn(4, 20, 256, generator=torch.Generator().manual_seed(1))
    scale = x.view(4, 20, 2, 128).abs().amax(3) / 448
    values = (x.view(4, 20, 2, 128) / scale[..., None]).to(torch.float8_e4m3fn).view(4, 20, 256)

    def main():
        rank = ditron.rank()
        plan = kernels.moe_plan(corpus(4, 20, 2, 4)["uniform"][rank], num_experts=4)
        rows, scales = kernels.ep_dispatch(values[rank], plan, scale_x=scale[rank])
        placed = torch.nonzero(plan.row_route[: int(plan.num_tiles) * plan.block_m] >= 0)[:, 0]
        token = plan.row_route[placed].long() // 2
        assert torch.equal(rows[placed].float(), values.view(-1, 256)[token].float())
        assert torch.equal(scales[placed], scale.view(-1, 2)[token])

    run(main, ranks=4, ranks_per_node=2)


@pytest.mark.parametrize("n", [3, 700])
def test_reduce_scatter(n):
    x = torch.randn(4, 4, n)

    def main():
        rank = ditron.rank()
        for call in range(3):
            mine = kernels.reduce_scatter(x[rank].roll(call, 1))
            torch.testing.assert_close(mine, x[:, rank].sum(0, keepdim=True).roll(call, 1))

    run(main, ranks=4, ranks_per_node=2)


PROGRAMS = {
    "ep_dispatch": (ep_nodes, "ep_dispatch_nodes_program"),
    "ep_combine": (ep_nodes, "ep_combine_nodes_program"),
    "moe_plan": (plan_nodes, "moe_plan_nodes_program"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_puts_are_nvshmems(name, tmp_path, capsys):
    module, program = PROGRAMS[name]
    arguments = ["compile", f"{module.__file__}:{program}", "--transport", "nvshmem", "-o", str(tmp_path)]
    assert command(arguments) == 0, capsys.readouterr().err
    kernels_of = {"ep_dispatch": "put_tokens", "ep_combine": "put_sums", "moe_plan": "put_routes"}
    text = (tmp_path / f"{kernels_of[name]}_kernel.ptx").read_text()
    assert "nvshmemx_putmem_signal" in text and "nvshmem_ptr" not in text


@pytest.mark.parametrize(
    "name, line, instead, kind",
    [
        # A wait that is not there: for rows, for who needs them, for what came back, for memory that is free.
        ("ep_dispatch", "tl.cdiv(tokens, TB), epoch)", "0, epoch)", "unordered"),
        ("ep_dispatch", "tl.cdiv(tokens, TB), epoch)", "tokens // TB, epoch)", "writers"),
        ("ep_dispatch", "peer * max_blocks + block, 1, epoch)", "peer * max_blocks + block, 0, epoch)", "bounds"),
        (
            "ep_combine",
            "dl.wait(arrived_ptr + source * max_blocks + block, 1,",
            "dl.wait(arrived_ptr, 0,",
            "unordered",
        ),
        ("ep_combine", "        dl.wait(is_free_ptr + peer, 1, epoch)\n", "", "reuse"),
        (
            "moe_plan",
            "dl.wait(ids_arrived_ptr + segment * ranks + sender, 1, epoch)",
            "dl.wait(ids_arrived_ptr, 0)",
            "unordered",
        ),
        # A wrong place.
        ("ep_dispatch", "to_ptr = inbox_ptr + (own.to", "to_ptr = inbox_ptr + (peer.to", "writers"),
        ("ep_combine", "theirs_ptr = inbox_ptr + (own.to", "theirs_ptr = inbox_ptr + (peer.to", "writers"),
        (
            "moe_plan",
            "((epoch % 2).to(tl.int64) * capacity + segment) * ranks",
            "segment * ranks.to(tl.int64)",
            "reuse",
        ),
        # A put without its signal.
        (
            "ep_dispatch",
            "dl.putmem_signal(to_ptr, rows_ptr, nbytes, has_arrived_ptr, epoch, peer)",
            "dl.putmem(to_ptr, rows_ptr, nbytes, peer)",
            "never-signalled",
        ),
        (
            "ep_combine",
            "dl.putmem_signal_nbi(theirs_ptr, sums_ptr, nbytes, has_arrived_ptr, epoch, peer)",
            "dl.putmem_nbi(theirs_ptr, sums_ptr, nbytes, peer)",
            "never-signalled",
        ),
        # Send buffers that are written before the puts have left them.
        ("ep_combine", "        dl.quiet()  # the send buffers are written anew\n", "", "reuse"),
    ],
)
def test_what_the_checker_finds(name, line, instead, kind, tmp_path, monkeypatch):
    module, program = PROGRAMS[name]
    source = Path(module.__file__).read_text()
    assert line in source
    (tmp_path / "mutated_nodes.py").write_text(source.replace(line, instead))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mutated_nodes", raising=False)
    monkeypatch.setenv("DITRON_PIPELINE", "as-written")
    mutated = getattr(importlib.import_module("mutated_nodes"), program)
    findings = check_program(mutated, [(4, 2)]).findings
    assert kind in {finding.kind for finding in findings}, findings


def test_reduce_scatter_is_checked():
    assert not check_program(put_scatter_program, [(4, 2), (6, 2)]).findings
