"""Calls with many numbers of tokens, as of a serving engine: what is traced, compiled and kept does not grow with them.

Operators are called as on GPUs, with tensors that do not exist; programs are evaluated and not run.
"""

import random
from collections import defaultdict

import pytest
import torch

from ditron import kernels
from ditron._program.execute import executable
from ditron._program.program import Program, _constants_key
from ditron.tuning.compile_ahead import CompileGroup
from ditron_compiler import host

RANKS, EXPERTS, TOP_K, H, INNER = 4, 16, 4, 256, 128


class Counts:
    """What calls have needed: traces by program and its constants, sets of memory, and the text of kernels."""

    def __init__(self, monkeypatch):
        self.traces, self.memories, self.kernels = defaultdict(set), set(), defaultdict(set)
        counts, trace_of = self, Program._executable

        class Runner:
            def __init__(self, program, group):
                self.program, self.group, self.keys = program, group, set()

            def prepared(self, args, key):
                return lambda args: self.run(args, key)

            def run(self, args, key):
                if key not in self.keys:
                    self.keys.add(key)
                    counts.memories.add((id(self.program), self.program.allocations(args, self.group)))
                    for step in self.program.evaluate(args, self.group, 5):
                        if isinstance(step, host.Launch):
                            text = self.program.kernel(step.kernel), tuple(sorted(step.options.items()))
                            counts.kernels[step.kernel].add(text)

        def traced(self, args, given, target):
            found = trace_of(self, args, given, target)
            counts.traces[self.fn.__name__, _constants_key(given)].add(found)
            return found

        monkeypatch.setitem(executable.BACKENDS, "compile", Runner)
        monkeypatch.setattr(Program, "_executable", traced)
        self.group = CompileGroup(RANKS, 90, 132)

    @property
    def sizes(self):
        return sum(map(len, self.traces.values())), len(self.memories), sum(map(len, self.kernels.values()))


def tensor(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def routes(tokens):
    return tensor(tokens, TOP_K, dtype=torch.int32), tensor(tokens, TOP_K, dtype=torch.float32)


def layer(tokens, group, algorithm):
    w13, w2 = tensor(EXPERTS // RANKS, 2 * INNER, H), tensor(EXPERTS // RANKS, H, INNER)
    options = {"num_experts": EXPERTS, "max_tokens": tokens, "algorithm": algorithm, "group": group}
    given = max(1, tokens - 3)  # ranks may have fewer
    return kernels.ep_moe(tensor(given, H), *routes(given), w13, w2, **options)


def rows_of_others(tokens, group):
    splits = tensor(RANKS, dtype=torch.int64)
    return kernels.all_to_all_v(tensor(tokens, H), splits, max_rows=2 * tokens, group=group)


#: A call with so many tokens, and how many traces there may be with the same constants: of numbers of tokens that are
#: divisible by 16 and of others; where the tokens of all ranks count too, also of those that are divisible by 4.
OPERATORS = {
    "ep_moe": (lambda tokens, group: layer(tokens, group, "gathered"), 2),
    "ep_moe, dispatched": (lambda tokens, group: layer(tokens, group, "dispatched"), 2),
    "all_to_all_v": (rows_of_others, 2),
    "ag_gemm": (lambda tokens, group: kernels.ag_gemm(tensor(tokens, 512), tensor(256, 512), group=group), 3),
    "gemm_rs": (lambda tokens, group: kernels.gemm_rs(tensor(RANKS * tokens, 512), tensor(256, 512), group=group), 3),
    "gemm_ar": (lambda tokens, group: kernels.gemm_ar(tensor(tokens, 512), tensor(256, 512), group=group), 2),
    "all_reduce": (lambda tokens, group: kernels.all_reduce(tensor(tokens, 512), group=group), 2),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_other_numbers_of_tokens_need_nothing_new(monkeypatch, name):
    """After some of every magnitude, divisible by 16, by 4 and by neither. Each number is a new shape."""
    call, most = OPERATORS[name]
    counts, known = Counts(monkeypatch), [tokens for tokens in range(1, 1000) if tokens % 16 in (0, 4, 5)]
    others = random.Random(0).sample(sorted({*range(6, 1000)}.difference(known)), 100)
    with counts.group:
        for tokens in [1, 2, *known]:
            call(tokens, counts.group)
        before = counts.sizes
        for tokens in others:
            call(tokens, counts.group)
    assert before[0] and counts.sizes == before
    assert max(map(len, counts.traces.values())) <= most


@pytest.mark.parametrize("tokens, kernel", [(64, "plan_at_once_kernel"), (4096, "place_routes_kernel")])
def test_a_plans_kernel_is_of_any_tile_and_any_number_of_groups(monkeypatch, tokens, kernel):
    """Both follow from how many tokens there are."""
    counts = Counts(monkeypatch)
    with counts.group:
        for block_m in (16, 32, 64, 128):
            for groups in range(1, RANKS + 1):
                options = {"num_experts": EXPERTS, "block_m": block_m, "stage_groups": groups}
                kernels.moe_plan(*routes(tokens), group=counts.group, **options)
    assert {name: len(texts) for name, texts in counts.kernels.items() if name == kernel} == {kernel: 1}
