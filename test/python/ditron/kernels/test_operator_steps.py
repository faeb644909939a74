"""What operators' host programs enqueue: which writes and waits of signals a captured call fuses, and copies by stream."""

from collections import Counter

import pytest

from ditron._program.execute.signal_runs import SignalRun, join_signals
from ditron.kernels.a2a_gemm import a2a_gemm_program
from ditron.kernels.ag_gemm import ag_gemm_program
from ditron.kernels.all_gather import all_gather_program
from ditron.kernels.gradients import column_gradients_program
from ditron.kernels.rank_products import ag_gemm_by_rank_program, gemm_rs_by_rank_program
from ditron.kernels.reduce_scatter import reduce_scatter_program
from ditron_compiler import host


def steps_of(program, ranks, **options):
    executable, arguments = program.executable_and_arguments(program.sample_args(ranks) | options)
    return executable.steps(arguments, 1, ranks, 3)


@pytest.mark.parametrize(
    "program, runs",
    [
        (ag_gemm_program, [("copy", 3, 3)]),
        (ag_gemm_by_rank_program, [("copy", 3, 3)]),
        (all_gather_program, [("copy", 3, 3)]),
        (reduce_scatter_program, [("copy", 3, 3), ("", 0, 3)]),
        # Handshakes of these may be beside a library's product, and are hidden: apart.
        (gemm_rs_by_rank_program, [("", 0, 3)]),
        (column_gradients_program, [("", 0, 3), ("", 0, 3)]),
    ],
)
def test_what_is_one_kernel_among_four(program, runs):
    """By stream, writes and waits; between two ranks nothing is."""
    joined = [step for step in join_signals(steps_of(program, 4), lambda wait: True) if isinstance(step, SignalRun)]
    kinds = [Counter(type(step) for step in run.steps) for run in joined]
    found = [
        (run.stream.name, kind[host.SignalWrite], kind[host.SignalWait])
        for run, kind in zip(joined, kinds, strict=True)
    ]
    assert found == runs
    assert not any(isinstance(step, SignalRun) for step in join_signals(steps_of(program, 2), lambda wait: True))


@pytest.mark.parametrize(
    "copy_streams, copies",
    [(1, {"copy": 6}), (2, {"copy": 3, "copy1": 3}), (8, {"copy": 1} | {f"copy{n}": 1 for n in range(1, 6)})],
)
def test_copies_take_turns_by_stream(copy_streams, copies):
    """Each piece goes to each other rank once."""
    steps = steps_of(a2a_gemm_program, 4, pieces=2, copy_streams=copy_streams)
    found = [step for step in steps if isinstance(step, host.RankCopy)]
    assert Counter(step.stream.name for step in found) == copies
    assert len({(step.peer, step.dst.offset) for step in found}) == 6
