"""What a mixture-of-experts layer consists of, on one GPU: a rank of a group, without what it sends.

    torchrun --nproc-per-node 1 benchmark/layer_parts.py --models Qwen3-30B DSV3 --tokens 4096 --ranks 2 4

One rank takes the tokens of all of a group of ``--ranks`` and their routes to the experts that it would have of them,
as plan_kernels.py does. Its parts and the whole layer, each from tensors that are there; the whole is compared with
fp32 torch. ``after`` is of ``moe_rs``. Medians, contenders in turns, other data in the L2 cache.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cases import Run, floor, parse_schedule  # noqa: E402
from grouped_gemm import MODELS, Model  # noqa: E402
from measuring import Samples, extend, random, start  # noqa: E402
from moe_layer import ComparedCase, product_alone  # noqa: E402
from plan_kernels import Routes  # noqa: E402

import ditron  # noqa: E402
from ditron.kernels import ag_moe, ep_moe, moe_plan, moe_rs  # noqa: E402
from ditron.kernels.expert_activation import swiglu_rows  # noqa: E402


def of_experts(x, ids, weights, w13, w2) -> torch.Tensor:
    """The layer in fp32, expert by expert."""
    total = torch.zeros(len(x), w2.shape[1], device=x.device)
    for expert in range(len(w13)):
        token, place = torch.nonzero(ids == expert, as_tuple=True)
        gate, up = (x[token].float() @ w13[expert].float().T).chunk(2, 1)
        y = (F.silu(gate) * up) @ w2[expert].float().T
        total.index_add_(0, token, y * weights[token, place, None])
    return total


def case(
    title: str, model: Model, ranks: int, tokens: int, args: argparse.Namespace, device: torch.device
) -> ComparedCase:
    routes = Routes(model, ranks, tokens, device)
    ids, weights, experts, (hidden, inner) = routes.ids, routes.weights, routes.experts, model[:2]
    weights /= weights.sum(1, keepdim=True)
    w13, w2 = (
        torch.empty(experts, *shape, dtype=torch.bfloat16, device=device).normal_(std=shape[1] ** -0.5)
        for shape in ((2 * inner, hidden), (hidden, inner))
    )
    x = random(len(ids), hidden, 0, device) * hidden**0.25
    # By default the plan would count the routes to other ranks' experts too.
    options = {"num_experts": experts, "block_m": args.block_m or routes.block_m}
    plan = moe_plan(ids, weights, **options)
    rows = ag_moe(x, w13, plan)
    hidden_rows = swiglu_rows(rows, plan.tables)

    def separate() -> torch.Tensor:
        made = moe_plan(ids, weights, **options)
        return moe_rs(swiglu_rows(ag_moe(x, w13, made), made.tables), w2, made)

    ones = [torch.ones(plan.max_rows, width, dtype=x.dtype, device=device) for width in (hidden, inner)]
    first, second = product_alone(ones[0], w13, plan), product_alone(ones[1], w2, plan)
    out = torch.empty_like(rows)
    runs: dict[str, Run] = {
        "both products alone": floor(lambda: (first(), second())),
        "first alone": first,
        "second alone": second,
        "plan": floor(lambda: moe_plan(ids, weights, **options)),
        "ag_moe": floor(lambda: ag_moe(x, w13, plan, out=out)),
        "ag_moe, activation": floor(lambda: ag_moe(x, w13, plan, activation="swiglu")),
        "swiglu_rows": floor(lambda: swiglu_rows(rows, plan.tables)),
        "moe_rs, after": floor(lambda: moe_rs(hidden_rows, w2, plan, algorithm="after")),
        "ditron": lambda: ep_moe(x, ids, weights, w13, w2, **options),
        "ditron, activation by itself": separate,
    }
    for how, schedule in args.schedules:
        runs[f"moe_rs, {how}"] = floor(lambda s=schedule: moe_rs(hidden_rows, w2, plan, **s))
    result = ComparedCase("layer", title, runs, of_experts(x, ids, weights, w13, w2), 1.5e-2)
    result.theirs = 1.0  # nothing of torch's is run beside it
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--ranks", nargs="*", type=int, default=[2], help="of the group whose rank is measured")
    parser.add_argument("--tokens", nargs="*", type=int, default=[4096], help="of each rank")
    parser.add_argument(
        "--block-m", type=int, default=0, help="rows in a tile of the plan (default: the plan's choice)"
    )
    parser.add_argument("--schedules", nargs="*", type=parse_schedule, default=[], help="of moe_rs: e.g. words=128")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--limit", type=int, default=90, help="seconds a layer may take")
    parser.add_argument("--json", type=Path, help="write all medians to this file, after every layer")
    args = parser.parse_args()
    device = start(args.limit)
    ditron.init(transport="p2p")
    samples, results = Samples(device), {}
    for name in args.models:
        for ranks in args.ranks:
            for tokens in args.tokens:
                extend(args.limit)
                title = f"{name}, {tokens} tokens of each of {ranks} ranks"
                results[title] = found = case(title, MODELS[name], ranks, tokens, args, device).measure(
                    samples, args.rounds
                )
                print(f"\n{title}; us in a graph, as a call\n", flush=True)
                for part, time in found["graph"].items():
                    print(f"| {part} | {1e3 * time:.1f} | {1e3 * found['call'][part]:.1f} |", flush=True)
                if args.json:
                    args.json.write_text(json.dumps(results, indent=1))
                torch.cuda.empty_cache()
    ditron.finalize()


if __name__ == "__main__":
    main()
