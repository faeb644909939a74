"""assign-streams: results are unchanged on every schedule, and copies run beside the launches."""

from __future__ import annotations

import pytest
import torch
import triton.language as tl

import ditron
import ditron.host as dh
from ditron_compiler import host, pipeline
from ditron_compiler.passes.host.assign_streams import AssignStreams

SIZE = 8


@ditron.jit
def scale(x_ptr, out_ptr, by, size, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) * by, mask=at < size)


def gather_and_scale(a, out):
    """Shards are scaled in the order in which they arrive."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    size = a.shape[0]
    shards = dh.symm_empty(2, ranks * size, dtype=a.dtype, name="shards")[epoch % 2]
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    dh.all_gather(a, shards, arrived, epoch)
    for step in dh.range(ranks):
        source = (rank + step) % ranks
        dh.signal_wait(arrived[source], epoch)
        part = slice(source * size, (source + 1) * size)
        scale[(1,)](shards[part], out[part], 2, size, BLOCK=SIZE)


def scale_and_send(a, out):
    """One scratch buffer is written, pushed and written again: each needs the one before."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    size = a.shape[0]
    inbox = dh.symm_empty(2, ranks, size, dtype=a.dtype, name="inbox")[epoch % 2]
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    scratch = dh.empty(size, dtype=a.dtype, name="scratch")
    for step in dh.range(1, ranks):
        peer = (rank + step) % ranks
        scale[(1,)](a, scratch, step + 1, size, BLOCK=SIZE)
        dh.rank_copy(scratch, inbox[rank], peer)
        dh.signal_write(arrived[rank], epoch, peer)
    scale[(1,)](a, out[rank * size : (rank + 1) * size], 1, size, BLOCK=SIZE)
    for step in dh.range(1, ranks):
        source = (rank + step) % ranks
        dh.signal_wait(arrived[source], epoch)
        scale[(1,)](inbox[source], out[source * size : (source + 1) * size], 1, size, BLOCK=SIZE)


BODIES = {body.__name__: body for body in (gather_and_scale, scale_and_send)}
VARIANTS = {
    "unassigned": pipeline.HOST,
    "one": (*pipeline.HOST, "assign-streams"),
    "two": (*pipeline.HOST, "assign-streams{streams=2}"),
    "ring": ("decompose-ring", *pipeline.HOST, "assign-streams"),
    "adjacent": (*pipeline.HOST, "assign-streams{adjacent=true}"),
    "without copies": (*pipeline.HOST, "eliminate-copies", "canonicalize", "cse", "assign-streams"),
}
PROGRAMS = {
    (name, variant): ditron.program(passes=passes)(body)
    for name, body in BODIES.items()
    for variant, passes in VARIANTS.items()
}


def expected(name: str, shards: list[torch.Tensor], rank: int) -> torch.Tensor:
    ranks = len(shards)
    if name == "gather_and_scale":
        return torch.cat(shards) * 2
    # Rank r sends to rank + step what it has scaled by step + 1.
    return torch.cat([shard * ((rank - source) % ranks + 1) for source, shard in enumerate(shards)])


def run_rank(name: str, variant: str, calls: int = 3) -> list[bool]:
    ditron.init()
    right = []
    for call in range(calls):
        shards = [torch.arange(5.0) + 10 * r + 100 * call for r in range(ditron.num_ranks())]
        out = torch.zeros(5 * ditron.num_ranks())
        PROGRAMS[name, variant](shards[ditron.rank()], out)
        right.append(torch.equal(out, expected(name, shards, ditron.rank())))
    return right


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", BODIES)
def test_results_are_right_on_every_schedule(name, variant, ranks):
    for seed in range(4):
        outcome = ditron.sim.run(run_rank, ranks=ranks, seed=seed, args=(name, variant))
        assert all(all(calls) for calls in outcome), f"seed {seed}: {outcome}"


def steps_of(name: str, variant: str, ranks: int = 4) -> list[host.Step]:
    module = PROGRAMS[name, variant].module(a="f32[5]", out=f"f32[{5 * ranks}]")
    program = next(op for op in module.body.operations if op.name == "ditron.program")
    arguments = (((5,), (1,), "f32"), ((5 * ranks,), (1,), "f32"))
    return host.evaluate(program, host.RankPlacement(1, ranks, 1, ranks, 0), arguments, 1).steps


def between(steps: list[host.Step]) -> list[host.Step]:
    """What a program does between forking its streams and joining them."""
    first = next(i for i, step in enumerate(steps) if not isinstance(step, (host.Record, host.Await)))
    last = max(i for i, step in enumerate(steps) if not isinstance(step, (host.Record, host.Await)))
    return steps[first : last + 1]


@pytest.mark.parametrize("variant", ["one", "ring", "without copies"])
def test_an_all_gather_runs_beside_its_consumers(variant):
    steps = between(steps_of("gather_and_scale", variant))
    assert {step.stream.name for step in steps if isinstance(step, host.RankCopy)} == {"copy"}
    assert {step.stream.name for step in steps if isinstance(step, host.Launch)} == {""}
    assert not any(isinstance(step, host.Await) for step in steps)


def test_turns_are_dealt_out():
    steps = steps_of("gather_and_scale", "two")
    assert [step.stream.index for step in steps if isinstance(step, host.RankCopy)] == [1, 0, 1]


def test_events_only_where_streams_need_each_other():
    # Each of three turns: the launch awaits the last turn's push, the push awaits the launch.
    kinds = [type(step).__name__ for step in between(steps_of("scale_and_send", "one"))]
    assert kinds.count("Await") == kinds.count("Record") <= 3 * 2


def test_the_simulator_sees_an_event_that_is_missing(monkeypatch):
    """The results above depend on the events: without them a launch overwrites what is being pushed."""
    from ditron_compiler.passes.host import assign_streams

    monkeypatch.setattr(assign_streams._Assignment, "_find_events", lambda self, block: None)
    PROGRAMS["scale_and_send", "broken"] = ditron.program(passes=(*pipeline.HOST, str(AssignStreams(adjacent=True))))(
        scale_and_send
    )

    def wrong(seed: int) -> bool:
        try:
            return not all(map(all, ditron.sim.run(run_rank, ranks=4, seed=seed, args=("scale_and_send", "broken"))))
        except Exception as error:
            return "race" in str(error)

    assert any(wrong(seed) for seed in range(10))


@ditron.program(passes=VARIANTS["one"])
def two_iterations_ahead(a, out):
    """An iteration reads the part that the one after the next overwrites, both by ``i // 2``."""
    rank, size = dh.rank(), a.shape[1]
    window = dh.symm_empty(8, size, dtype=a.dtype, name="window")
    dh.fill(window, 1)
    for i in dh.range(6):
        dh.rank_copy(a[i], window[i // 2], rank)
        scale[(1,)](window[i // 2 + 1], out[i], 5, size, BLOCK=SIZE)


def test_a_value_of_an_earlier_iteration_is_another():
    def main():
        ditron.init()
        out = torch.zeros(6, SIZE)
        two_iterations_ahead(torch.full((6, SIZE), 3.0), out)
        return out

    for seed in range(20):
        assert all(torch.equal(out, torch.full((6, SIZE), 5.0)) for out in ditron.sim.run(main, ranks=2, seed=seed))
