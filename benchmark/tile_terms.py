"""Terms of the simulator's tile model, measured on one GPU and predicted: stages, order of tiles, memory, arithmetic.

    python benchmark/tile_terms.py --measure times.json      # on the GPU: a minute and a half
    python benchmark/tile_terms.py times.json --table out.md # needs no GPU: predicts the same calls

Each case is one kernel of benchmark/tile_term_kernels.py. Measured: calls of operands of their own follow each other in
a CUDA graph, which is replayed after a pause with other data in the L2 cache; median time of a call, less what a replay
of an empty kernel takes longer than one more of them in the graph. Results are compared with torch in fp32. Predicted:
the second of two calls on ``--machine``, timing-only. Constants of the machine come from cases that are marked as
fitted.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tile_term_kernels as kernels
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

PROGRAMS = 132
#: N and K of slices of LLaMA's MLPs: 7B of 4 ranks up, 70B of 8 up and down, 7B of 8 down, 70B whole.
UP7, UP70, DOWN70, DOWN7, WHOLE70 = (2752, 4096), (3584, 8192), (8192, 3584), (4096, 1376), (28672, 8192)
MANY = 1 << 25  # elements of an elementwise kernel


@dataclass(frozen=True)
class Case:
    """One kernel with its sizes; ``is_fitted``: constants of the machine come from it."""

    family: str
    sizes: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    is_fitted: bool = False

    @property
    def name(self) -> str:
        options = " ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.family} {'x'.join(map(str, self.sizes))} {options}".strip()

    def on(self, device: str) -> Call:
        return _FAMILIES[self.family](Operands(device), *self.sizes, **self.options)


@dataclass
class Call:
    """A launch with its operands, and what its result ought to be."""

    run: Callable[[], Any]
    result: torch.Tensor
    expected: Callable[[], torch.Tensor]
    nbytes: int


class Operands:
    """Tensors of one call: random on a GPU, anything on the simulator."""

    def __init__(self, device: str):
        self.device, self.nbytes = device, 0

    def draw(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        tensor = torch.empty(shape, dtype=torch.bfloat16, device=self.device)
        self.nbytes += tensor.nbytes
        return tensor.normal_().mul_(scale) if self.device == "cuda" else tensor


def products(o: Operands, M: int, N: int, K: int, block: tuple[int, int, int], stages: int, group: int = 8, warps=8):
    BM, BN, BK = block
    a, b, c = o.draw(1, M, K, scale=K**-0.25), o.draw(N, K, scale=K**-0.25), o.draw(1, M, N)
    tiles = triton.cdiv(M, BM) * triton.cdiv(N, BN)
    arguments = (
        TensorDescriptor.from_tensor(a, [1, BM, BK]),
        TensorDescriptor.from_tensor(b, [BN, BK]),
        TensorDescriptor.from_tensor(c, [1, BM, BN // 2]),
    )
    programs = min(PROGRAMS, tiles)
    constants = dict(BM=BM, BN=BN, BK=BK, GROUP=group, PROGRAMS=programs)
    run = lambda: kernels.product[(programs,)](*arguments, M, N, K, **constants, num_warps=warps, num_stages=stages)  # noqa: E731
    return Call(run, c[0], lambda: a[0].float() @ b.float().T, o.nbytes)


def swapped(o: Operands, M: int, N: int, K: int, block: tuple[int, int], stages: int):
    BN, BK = block
    BM = max(16, 1 << (M - 1).bit_length())
    a, b, out = o.draw(M, K, scale=K**-0.25), o.draw(N, K, scale=K**-0.25), o.draw(M, N)
    descriptors = TensorDescriptor.from_tensor(a, [BM, BK]), TensorDescriptor.from_tensor(b, [BN, BK])
    constants = dict(BM=BM, BN=BN, BK=BK, num_warps=4, num_stages=stages)
    run = lambda: kernels.swapped_product[(triton.cdiv(N, BN),)](*descriptors, out, M, N, K, **constants)  # noqa: E731
    return Call(run, out, lambda: a.float() @ b.float().T, o.nbytes)


def row(o: Operands, N: int, K: int, block: tuple[int, int], stages: int):
    BN, BK = block
    a, b, out = o.draw(K, scale=K**-0.25), o.draw(N, K, scale=K**-0.25), o.draw(N)
    run = lambda: kernels.row_product[(triton.cdiv(N, BN),)](a, b, out, N, K, BN, BK, stages, num_warps=8)  # noqa: E731
    return Call(run, out, lambda: b.float() @ a.float(), o.nbytes)


def _repeated(step: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, times: int) -> torch.Tensor:
    for _ in range(times):
        x = step(x)
    return x


_STEPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copy": lambda x: x,
    "exp": lambda x: torch.exp(-x),
    "rsqrt": lambda x: torch.rsqrt(x + 1),
    "divide": lambda x: 1 / (x + 1),
    "fma": lambda x: x * 0.75 + 0.5,
    "max": lambda x: torch.maximum(x + 0.5, -x),
}


def chain(o: Operands, n: int, op: str, times: int = 1, block: int = 4096, warps: int = 4):
    x, y = o.draw(n).abs_() if o.device == "cuda" else o.draw(n), o.draw(n)
    run = lambda: kernels.chain[(triton.cdiv(n, block),)](x, y, n, op, times, block, num_warps=warps)  # noqa: E731
    return Call(run, y, lambda: _repeated(_STEPS[op], x.float(), times), o.nbytes)


def add(o: Operands, n: int, block: int = 4096):
    x, y, z = o.draw(n), o.draw(n), o.draw(n)
    run = lambda: kernels.add[(triton.cdiv(n, block),)](x, y, z, n, block)  # noqa: E731
    return Call(run, z, lambda: x.float() + y.float(), o.nbytes)


def swiglu(o: Operands, n: int, block: int = 4096):
    gate, up, out = o.draw(n), o.draw(n), o.draw(n)
    run = lambda: kernels.swiglu[(triton.cdiv(n, block),)](gate, up, out, n, block)  # noqa: E731
    return Call(run, out, lambda: torch.nn.functional.silu(gate.float()) * up.float(), o.nbytes)


def softmax(o: Operands, rows: int, columns: int, warps: int = 8):
    x, y = o.draw(rows, columns), o.draw(rows, columns)
    block = triton.next_power_of_2(columns)
    run = lambda: kernels.softmax[(rows,)](x, y, columns, block, num_warps=warps)  # noqa: E731
    return Call(run, y, lambda: torch.softmax(x.float(), 1), o.nbytes)


def rms_norm(o: Operands, rows: int, columns: int, warps: int = 8):
    x, weight, y = o.draw(rows, columns), o.draw(columns), o.draw(rows, columns)
    block = triton.next_power_of_2(columns)
    run = lambda: kernels.rms_norm[(rows,)](x, weight, y, columns, block, num_warps=warps)  # noqa: E731
    scale = lambda: torch.rsqrt(x.float().square().mean(1, keepdim=True) + 1e-6)  # noqa: E731
    return Call(run, y, lambda: x.float() * scale() * weight.float(), o.nbytes)


def attention(o: Operands, heads: int, length: int, block: tuple[int, int], stages: int, warps: int, D: int = 128):
    q, k, v, out = (o.draw(heads * length, D) for _ in range(4))
    BM, BN = block
    rows = lambda tensor, count: TensorDescriptor.from_tensor(tensor, [count, D])  # noqa: E731
    arguments = (rows(q, BM), rows(k, BN), rows(v, BN), rows(out, BM), length, D**-0.5 * math.log2(math.e))
    options = dict(BM=BM, BN=BN, D=D, num_warps=warps, num_stages=stages)
    run = lambda: kernels.attention[(length // BM, heads)](*arguments, **options)  # noqa: E731
    heads_of = lambda tensor: tensor.view(heads, length, D).float()  # noqa: E731
    expected = lambda: torch.nn.functional.scaled_dot_product_attention(*map(heads_of, (q, k, v))).view(-1, D)  # noqa: E731
    return Call(run, out, expected, o.nbytes)


_FAMILIES: dict[str, Callable[..., Call]] = {
    one.__name__: one for one in (products, swapped, row, chain, add, swiglu, softmax, rms_norm, attention)
}


def cases() -> Iterator[Case]:
    """All of them."""
    large, small = (128, 256, 64), (128, 128, 64)
    for N, K in (UP7, UP70, (8192, 8192)):
        for stages in (2, 3, 4):
            yield Case("products", (8192, N, K), {"block": large, "stages": stages}, stages == 2 and N != 8192)
        for group in (1, 4, 16, 64):
            yield Case("products", (8192, N, K), {"block": large, "stages": 4, "group": group})
    for N, K in (UP7, UP70):
        for stages in (2, 3, 4, 5):
            yield Case("products", (8192, N, K), {"block": small, "stages": stages})
        for group in (1, 64):
            yield Case("products", (8192, N, K), {"block": small, "stages": 4, "group": group})
    for M in (512, 1024, 2048):
        for block in (large, small):
            for group in (1, 8):
                yield Case("products", (M, *UP70), {"block": block, "stages": 4, "group": group})
    for group in (1, 8):
        yield Case("products", (1024, *WHOLE70), {"block": large, "stages": 4, "group": group})
    for K in (512, 1024):  # every row of tiles reads the whole weight: 35 MB, and 69
        for group in (1, 8):
            yield Case("products", (2048, 33792, K), {"block": large, "stages": 4, "group": group})
    for N, K in (DOWN70, UP70, DOWN7):
        for M in (16, 64, 128, 256):
            block = (64 if M <= 64 else 128, 128, 64)
            yield Case("products", (M, N, K), {"block": block, "stages": 4, "warps": 4 if M <= 64 else 8})
    for stages in (2, 3):
        for M in (64, 128):
            block = (64 if M <= 64 else 128, 128, 64)
            yield Case("products", (M, *DOWN70), {"block": block, "stages": stages, "warps": 4 if M <= 64 else 8})
    for N, K in (DOWN70, DOWN7, WHOLE70):
        for M, block, stages in ((16, (64, 256), 4), (16, (64, 128), 4), (64, (64, 128), 6), (128, (64, 128), 4)):
            yield Case("swapped", (M, N, K), {"block": block, "stages": stages})
    for block, stages in (((64, 256), 2), ((64, 256), 3), ((64, 128), 2), ((64, 128), 3), ((64, 128), 6)):
        yield Case("swapped", (16, *DOWN70), {"block": block, "stages": stages})
    for N, K in (DOWN70, DOWN7, WHOLE70):
        for block, stages in (((16, 512), 3), ((16, 512), 4), ((8, 512), 4)):
            yield Case("row", (N, K), {"block": block, "stages": stages})
    for n in (1 << 18, 1 << 22, MANY, 1 << 27):
        for block, warps in ((1024, 4), (4096, 4), (16384, 8)):
            yield Case("chain", (n,), {"op": "copy", "block": block, "warps": warps})
    for op, times in (
        *(("exp", times) for times in (1, 4, 16, 64)),
        *(("rsqrt", times) for times in (4, 16, 64)),
        *(("divide", times) for times in (4, 16)),
        *(("fma", times) for times in (16, 64, 256)),
        *(("max", times) for times in (16, 64)),
    ):
        fitted = op == "exp" and times in (4, 16) or op == "fma" and times == 64
        yield Case("chain", (MANY,), {"op": op, "times": times}, fitted)
    yield Case("chain", (MANY,), {"op": "exp", "times": 16, "block": 1024})
    yield Case("chain", (1 << 22,), {"op": "exp", "times": 16})
    yield Case("chain", (1 << 22,), {"op": "fma", "times": 64})
    for n in (1 << 22, MANY):
        yield Case("add", (n,))
    for n in (1 << 19, 1 << 22, MANY):
        yield Case("swiglu", (n,))
    for rows, columns in ((8192, 8192), (4096, 2048), (512, 8192)):
        yield Case("softmax", (rows, columns))
    for rows, columns in ((8192, 8192), (4096, 4096), (64, 8192)):
        yield Case("rms_norm", (rows, columns))
    for block, stages, warps in (((128, 128), 2, 8), ((128, 64), 3, 8), ((64, 64), 3, 4)):
        yield Case("attention", (16, 4096), {"block": block, "stages": stages, "warps": warps})
    yield Case("attention", (8, 16384), {"block": (128, 128), "stages": 2, "warps": 8})


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@triton.jit
def empty():
    pass


def compile_some(part: int, parts: int) -> None:
    """Compile every ``parts``-th kernel, for Triton's cache."""
    for case in list(cases())[part::parts]:
        case.on("cuda").run()
    torch.cuda.synchronize()


class Timer:
    """Medians of replays of a graph, after a pause and with other data in the L2 cache."""

    def __init__(self, rounds: int):
        self.rounds = rounds
        self.other = torch.zeros(48 << 20, dtype=torch.int32, device="cuda")

    def us(self, runs: list[Callable[[], Any]]) -> float:
        for run in runs[:2]:
            run()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for run in runs:
                run()
        times = []
        for _ in range(self.rounds):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.other.sum()
            torch.cuda._sleep(4_000_000)  # 2 ms, for the clocks to rise
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        return statistics.median(times[2:])


def measure(path: Path, rounds: int, limit: int) -> None:
    faulthandler.dump_traceback_later(limit, exit=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    timer = Timer(rounds)
    one, many = (timer.us([lambda: empty[(1,)]()] * count) for count in (1, 17))
    launch = (many - one) / 16
    times = {"empty": launch}
    print(f"an empty kernel {launch:.2f} us, a replay {one:.2f}", flush=True)
    for case in cases():
        call = case.on("cuda")
        copies = max(1, min(16, (200 << 20) // call.nbytes))
        calls = [call, *(case.on("cuda") for _ in range(copies - 1))]
        call.result.fill_(float("nan"))
        call.run()
        expected = call.expected()
        error = ((call.result.float() - expected).norm() / expected.norm()).item()
        assert error < 1e-2, f"{case.name}: relative error {error}"
        times[case.name] = (timer.us([one.run for one in calls]) - one + launch) / copies
        print(f"{times[case.name]:10.2f} us  {case.name}, {copies} calls, error {error:.1e}", flush=True)
        path.write_text(json.dumps(times, indent=0))
        del call, calls, expected


# --- on the simulator -------------------------------------------------------------------------------------------------


def predict(case: Case, machine: Any) -> float:
    """us of the second of two calls."""
    from ditron import sim

    def main() -> None:
        call = case.on("cpu")
        for _ in range(2):
            call.run()

    launch = sim.predict(main, machine, 1).launches[-1]
    return (launch.ended - launch.queued) / 1e3


def report(measured: dict[str, float], machine: Any) -> list[str]:
    lines = ["| case | fitted | measured, us | predicted, us | error |", "|---|---|---|---|---|"]
    errors: dict[bool, list[float]] = {True: [], False: []}
    for case in cases():
        if case.name in measured:
            us = predict(case, machine)
            error = us / measured[case.name] - 1
            errors[case.is_fitted].append(abs(error))
            mark = "yes" if case.is_fitted else ""
            lines.append(f"| {case.name} | {mark} | {measured[case.name]:.1f} | {us:.1f} | {100 * error:+.1f} % |")
            print(lines[-1], flush=True)
    for is_fitted, of in errors.items():
        if of:
            what = "fitted" if is_fitted else "not fitted"
            worst, median = 100 * max(of), 100 * statistics.median(of)
            lines += ["", f"{len(of)} {what}: error at most {worst:.1f} %, median {median:.1f} %."]
            print(lines[-1])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("times", type=Path, nargs="?", help="what --measure wrote")
    parser.add_argument("--measure", type=Path, help="measure, and write the times to this file")
    parser.add_argument("--compile", metavar="I/N", help="only compile the I-th of N parts, for Triton's cache")
    parser.add_argument("--machine", default="h200x4")
    parser.add_argument("--set", action="append", default=[], metavar="NUMBER=VALUE", help="what if")
    parser.add_argument("--table", type=Path, help="append the table to this file")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--limit", type=int, default=150, help="seconds that --measure may take")
    args = parser.parse_args()
    if args.compile:
        return compile_some(*map(int, args.compile.split("/")))
    if args.measure:
        return measure(args.measure, args.rounds, args.limit)
    if not args.times:
        parser.error("expected a file of times, or --measure")
    from ditron import machines

    lines = report(json.loads(args.times.read_text()), machines.load(args.machine).with_changes(args.set))
    if args.table:
        with args.table.open("a") as file:
            file.write("\n".join(["", *lines, ""]))


if __name__ == "__main__":
    main()
