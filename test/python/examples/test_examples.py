"""The examples give the right result on the simulator: ranks, nodes, shapes, schedules."""

import sys

import paths
import pytest

import ditron

ROOT = paths.ROOT
sys.path.insert(0, str(ROOT / "examples"))
import ag_gemm  # noqa: E402
import ag_gemm_in_kernel  # noqa: E402
import ag_gemm_ring  # noqa: E402
import all_gather  # noqa: E402
import gemm_rs  # noqa: E402
import gemm_rs_chunks  # noqa: E402
import ll_all_gather  # noqa: E402
import put_signal  # noqa: E402
import ring  # noqa: E402
import train_moe  # noqa: E402

WORLDS = [(1, 1), (2, 2), (3, 3), (4, 4), (8, 8), (8, 4)]
ONE_NODE = ("ag_gemm", "ag_gemm_ring", "gemm_rs_chunks")  # host programs, with copy engines
SEEDS = range(20)

TILE = dict(block=(16, 16, 16))
PUSH = dict(num_push=2, push_rows=8, **TILE)
CHUNKS = gemm_rs_chunks.GemmReduceScatterChunks


def _small() -> str:
    """Packets reach the ranks of a node only."""
    return "auto" if ditron.current_group().world.ranks_per_node >= ditron.num_ranks() else "simple"


# name -> (bound on the error, a shape that divides by everything, one that divides by nothing)
EXAMPLES = {
    "ring": (1e-5, lambda: ring.check(512), lambda: ring.check(301)),
    "put_signal": (0, lambda: put_signal.check(2048), lambda: put_signal.check(1501)),
    "all_gather": (0, lambda: all_gather.check(1024, chunk=256), lambda: all_gather.check(601, chunk=256)),
    "ll_all_gather": (
        0,
        lambda: ll_all_gather.check(512, protocol=_small(), chunk=128),
        lambda: ll_all_gather.check(301, protocol=_small(), chunk=128),
    ),
    "ag_gemm": (
        8e-3,
        lambda: ag_gemm.check(32, 32, 32, calls=2, **TILE),
        lambda: ag_gemm.check(19, 21, 25, calls=2, **TILE),
    ),
    "ag_gemm_in_kernel": (
        8e-3,
        lambda: ag_gemm_in_kernel.check(32, 32, 32, calls=2, **PUSH),
        lambda: ag_gemm_in_kernel.check(19, 21, 25, calls=2, **PUSH),
    ),
    "ag_gemm_ring": (
        8e-3,
        lambda: ag_gemm.check(32, 32, 32, calls=2, multiply=ag_gemm_ring.ring_gemm, **TILE),
        lambda: ag_gemm.check(19, 21, 25, calls=3, multiply=ag_gemm_ring.ring_gemm, **TILE),
    ),
    "gemm_rs": (
        1.5e-2,
        lambda: gemm_rs.check(32, 32, 32, calls=2, **TILE),
        lambda: gemm_rs.check(19, 21, 25, calls=2, **TILE),
    ),
    "gemm_rs_chunks": (
        1.5e-2,
        lambda: gemm_rs.check(32, 32, 32, calls=2, make=CHUNKS, **TILE),
        lambda: gemm_rs.check(19, 21, 25, calls=3, make=CHUNKS, **TILE),
    ),
}


def _on_rank(check):
    ditron.init()
    return check()


@pytest.mark.parametrize("ranks,ranks_per_node", WORLDS)
@pytest.mark.parametrize("shape", ["divisible", "odd"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_right_for_every_schedule(name, shape, ranks, ranks_per_node):
    bound, divisible, odd = EXAMPLES[name]
    check = divisible if shape == "divisible" else odd
    if name in ONE_NODE and ranks_per_node < ranks:
        with pytest.raises(ditron.NodesError, match=r"\(max_nodes=1\) is called in a group on 2 nodes"):
            ditron.sim.run(_on_rank, ranks=ranks, ranks_per_node=ranks_per_node, args=(check,))
        return
    for seed in SEEDS:
        errors = ditron.sim.run(_on_rank, ranks=ranks, ranks_per_node=ranks_per_node, seed=seed, args=(check,))
        assert max(errors) <= bound, f"seed {seed}: errors per rank {errors}"


@pytest.mark.parametrize(
    "name,check",
    [
        ("ring", lambda: ring.check(1)),
        ("put_signal", lambda: put_signal.check(1)),
        ("all_gather", lambda: all_gather.check(1)),
        ("ll_all_gather", lambda: ll_all_gather.check(1, protocol=_small())),
        # Triton makes an argument that is 1 a constant, which has fewer methods than a scalar.
        ("ag_gemm", lambda: ag_gemm.check(1, 1, 1, **TILE)),
        ("ag_gemm_in_kernel", lambda: ag_gemm_in_kernel.check(1, 1, 1, **PUSH)),
        ("ag_gemm_ring", lambda: ag_gemm.check(1, 1, 1, multiply=ag_gemm_ring.ring_gemm, **TILE)),
        ("gemm_rs_chunks", lambda: gemm_rs.check(20, 1, 1, make=CHUNKS, **TILE)),
        ("gemm_rs", lambda: gemm_rs.check(20, 1, 1, **TILE)),
        ("gemm_rs", lambda: gemm_rs.check(1, 40, 8, **TILE)),
        ("ag_gemm", lambda: ag_gemm.check(3, 1, 40, **TILE)),
        ("ag_gemm_in_kernel", lambda: ag_gemm_in_kernel.check(3, 1, 40, num_push=3, **TILE)),
        ("gemm_rs", lambda: gemm_rs.check(3, 40, 1, **TILE)),
        ("gemm_rs_chunks", lambda: gemm_rs.check(3, 40, 1, make=CHUNKS, **TILE)),
    ],
)
def test_extents_of_one(name, check):
    for ranks, ranks_per_node in [(1, 1), (5, 5), (6, 6 if name in ONE_NODE else 2)]:
        errors = ditron.sim.run(_on_rank, ranks=ranks, ranks_per_node=ranks_per_node, args=(check,))
        assert max(errors) <= EXAMPLES[name][0], errors


@pytest.mark.parametrize("ranks", [2, 4])
def test_training_of_experts(ranks):
    """The loss goes down as that of plain torch does."""

    def check():
        ditron.init()
        return train_moe.check(steps=5, tokens=12)

    for difference, first, last in ditron.sim.run(check, ranks=ranks):
        assert difference < 1e-2 and last < 0.9 * first
