"""Grouped products of fp8 with many rows: ways to scale and add one product while tensor cores compute another.

    torchrun --nproc-per-node 1 benchmark/fp8_variants.py --products DSV3:w13 Qwen3-235B:w13

Beside the tiles of operators, tiles in parts, each a product of its own. Measured as grouped_fp8.py does; *unscaled*
are the same loads and products without scales, whose result is of no use.
"""

from __future__ import annotations

import argparse
import faulthandler
from collections.abc import Callable
from typing import NamedTuple

import fp8_kernels
import torch
from grouped_fp8 import Scaled
from grouped_gemm import MODELS, graph_of, label, medians, placed
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron


class Form(NamedTuple):
    tile: tuple[int, int]
    parts: tuple[int, int]
    stages: int
    warps: int
    resident: int
    ordered: bool = True
    gather: bool = False
    scaled: bool = True
    maxnreg: int | None = None

    def __str__(self) -> str:
        words = ["gather"] * self.gather + ["ordered"] * self.ordered + ["unscaled"] * (not self.scaled)
        words += [f"{self.maxnreg} registers"] * bool(self.maxnreg)
        tile, parts = (f"{m}x{n}" for m, n in (self.tile, self.parts))
        return " ".join([tile, f"in {parts}", f"s{self.stages} w{self.warps} p{self.resident}", *words])


ROWS = [
    Form((128, 128), (1, 1), 5, 8, 1, ordered=False, scaled=False),
    Form((64, 128), (1, 1), 4, 4, 2, ordered=False, scaled=False),
    Form((64, 128), (1, 2), 3, 4, 2),
    Form((128, 128), (1, 1), 5, 8, 1, ordered=False),
    Form((128, 128), (2, 1), 3, 4, 2),
    Form((128, 128), (1, 2), 3, 4, 2),
    Form((128, 128), (1, 2), 3, 8, 2, maxnreg=128),
    Form((128, 256), (1, 2), 3, 8, 1, ordered=False),
    Form((256, 128), (2, 1), 3, 8, 1, ordered=False),
]
GATHER = [Form((128, 128), (1, 2), 3, 4, 2, gather=True)]
#: What an operator has: the pass overlap-promotion applies to tiles of 128 rows. As in grouped_gemm.py.
TILES = [(64, 128, 128, 4, 4, 16, 2), (128, 128, 128, 3, 8, 8, 1)]


def prepared(problem: Scaled, form: Form) -> tuple[Callable[[], object], torch.Tensor, torch.Tensor]:
    """A call, its result, and where the routes are in that."""
    (BM, BN), (PM, PN) = form.tile, form.parts
    places, slots, tiles, count = problem.tables(BM)
    rows = placed(problem.rows, places, len(slots))
    out = torch.full((len(slots), problem.N), float("nan"), dtype=torch.bfloat16, device="cuda")
    scales = (problem.scale_x if form.gather else placed(problem.scale_rows, places, len(slots))), problem.scale_w
    programs = form.resident * problem.programs
    arguments = (
        problem.x,
        TensorDescriptor.from_tensor(rows, [BM // PM, 128]),
        TensorDescriptor.from_tensor(problem.w.view(-1, problem.K), [BN // PN, 128]),
        TensorDescriptor.from_tensor(out[None], [1, BM // PM, BN // PN]),
        slots,
        tiles,
        count,
        *scales,
        problem.N,
        problem.K,
    )
    constants = {"BM": BM, "BN": BN, "PARTS_M": PM, "PARTS_N": PN, "GROUP": 16, "PROGRAMS": programs}
    constants |= {"GATHER": form.gather, "SCALED": form.scaled, "ORDERED": form.ordered}
    options = {"num_warps": form.warps, "num_stages": form.stages, "maxnreg": form.maxnreg}
    return lambda: fp8_kernels.fp8_product[(programs,)](*arguments, **constants, **options), out, places


def measured(problem: Scaled, rounds: int, cache: torch.Tensor) -> dict[str, tuple[float, float]]:
    """Milliseconds and relative error of each form that runs."""
    made = {str(form): (*prepared(problem, form), form.scaled) for form in ROWS + GATHER * problem.first}
    for tile in TILES:
        for gather in (False, True) if problem.first else (False,):
            run, (out, places) = problem.ours(tile, False, gather)
            made[f"operator, {label(tile, False, gather)}"] = run, out, places, True
    runs, errors = {}, {}
    runs["torch"], errors["torch"] = problem.torch_scaled()
    runs["bf16"], errors["bf16"] = problem.in_bf16(False, False)
    for name, (run, out, places, is_scaled) in made.items():
        try:
            run()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"    {name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}", flush=True)
            continue
        errors[name] = problem.error(out[places])
        assert not is_scaled or errors[name] < 3e-3, f"{name}: relative error {errors[name]}"
        runs[name] = run
    times = medians({name: graph_of(run) for name, run in runs.items()}, rounds, cache)
    return {name: (ms, errors[name]) for name, ms in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    products = [f"{model}:{which}" for model in ("DSV3", "Qwen3-235B", "Qwen3-30B") for which in ("w13", "w2")]
    parser.add_argument("--products", nargs="*", default=products)
    parser.add_argument("--tokens", type=int, default=4096, help="of each rank")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--limit", type=int, default=60, help="seconds a product may take")
    args = parser.parse_args()
    ditron.init(transport="p2p")
    torch.backends.cuda.matmul.allow_tf32 = False
    cache = torch.zeros(48 << 20, dtype=torch.int32, device="cuda")
    for product in args.products:
        faulthandler.dump_traceback_later(args.limit, exit=True)
        model, which = product.split(":")
        problem = Scaled(MODELS[model], args.tokens, which == "w13")
        print(f"{product}, {len(problem.slot)} rows", flush=True)
        operations = 2 * len(problem.slot) * problem.N * problem.K
        for name, (ms, error) in sorted(measured(problem, args.rounds, cache).items(), key=lambda item: item[1]):
            print(f"    {ms:.4f} ms {operations / ms / 1e9:6.0f} TFLOP/s  error {error:.2e}  {name}", flush=True)
        del problem
        torch.cuda.empty_cache()
    ditron.finalize()


if __name__ == "__main__":
    main()
