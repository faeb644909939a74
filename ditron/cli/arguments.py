"""What commands' parsers share, and the arguments of ``tune``, ``explain`` and ``calibrate``; no torch, no triton."""

from __future__ import annotations

import argparse

__all__ = ["add_calibrate", "add_explain", "add_tune", "lazy"]


def lazy(module: str, function: str):
    """Import a command's module when it is run: ``--help`` must not wait for torch."""

    def run(args: argparse.Namespace) -> int:
        import importlib

        return getattr(importlib.import_module(f"ditron.cli.{module}"), function)(args)

    return run


def _positive(kind: type[int] | type[float]):
    """What parses a number of an option and refuses 0 and less."""

    def parse(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
        return value

    parse.__name__ = kind.__name__  # in argparse's message for what is no number
    return parse


def _add_shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("operator", nargs="?", help="of ditron.kernels, as ag_gemm or all_reduce")
    parser.add_argument(
        "sizes",
        nargs="*",
        metavar="SIZE",
        help="M N K of a product; TOKENS N K EXPERTS TOP_K of ag_moe, moe_rs and ep_moe (its first product); bytes of "
        "a rank's tensor of a collective, as 64K; several may follow each other",
    )
    parser.add_argument("--shapes", metavar="FILE", help="instead: a file with 'OPERATOR SIZE... [FORM]' in each line")
    parser.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), default="bf16", help="of all tensors")
    parser.add_argument(
        "--ranks", metavar="N", type=_positive(int), help="number of ranks (default: all GPUs of this machine)"
    )
    parser.add_argument(
        "--form",
        choices=("strong", "weight-per-rank", "ep", "tp"),
        default="strong",
        help="strong (the default): N (of ag_gemm) or K is that of all ranks, who share it; "
        "weight-per-rank: N and K are those of a rank's weight; ep (the default of experts), tp: ranks have some of "
        "the experts, or a part of each",
    )


def add_tune(commands) -> None:
    parser = commands.add_parser(
        "tune",
        help="measure an operator's algorithms and schedules on this machine's GPUs",
        description="Measure what an operator can run for given sizes, in processes of their own, and keep the table "
        "that its calls look at (docs/tuning.md).",
    )
    parser.intermixed = True
    _add_shapes(parser)
    parser.add_argument("--only", nargs="+", metavar="ALGORITHM", help="measure these beside the rule's choice")
    parser.add_argument(
        "--limit",
        type=_positive(float),
        default=30.0,
        metavar="S",
        help="seconds that a candidate may take (default 30)",
    )
    parser.add_argument(
        "--total", type=_positive(float), metavar="S", help="seconds for everything (default: no limit)"
    )
    parser.add_argument(
        "--rounds", type=_positive(int), default=12, metavar="N", help="samples of each candidate (default 12)"
    )
    parser.add_argument(
        "--timing",
        choices=("graph", "call"),
        default="graph",
        help="of calls in a CUDA graph (default), or single ones",
    )
    parser.add_argument(
        "--top",
        type=_positive(int),
        metavar="K",
        help="measure the rule's choice and the K others that are predicted to be fastest (default: all)",
    )
    parser.add_argument(
        "--search",
        type=_positive(int),
        metavar="N",
        help="predict N schedules of a larger space too, found by steps from good ones, and measure the best "
        "(--top, default 8)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="SEED", help="of --search (default 0)")
    parser.add_argument("--output", metavar="FILE", help="add to this table (default: the user's, which calls look at)")
    parser.add_argument("--verbose", action="store_true", help="print what is measured, a line each")
    parser.set_defaults(command=lazy("tuning", "tune_command"))


def add_explain(commands) -> None:
    parser = commands.add_parser(
        "explain",
        help="say which algorithm and schedule an operator would run, why, and what it costs",
        description="Say what an operator would run for given sizes, why, how long it takes against the machine's "
        "limits, and what was second. Needs no GPU.",
    )
    parser.intermixed = True
    _add_shapes(parser)
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="as h200x2, h800x8 or a file.toml (docs/predicting.md; default: this machine, or h200x2)",
    )
    parser.add_argument(
        "--set",
        metavar="NUMBER=VALUE",
        action="append",
        default=[],
        help="what if the machine had another number, as link=450 or copy_engine.setup=2; may be repeated",
    )
    parser.add_argument(
        "--routing",
        metavar="ROUTES",
        default="uniform",
        help="which experts tokens choose: uniform (the default), zipf:1.2 (the n-th most popular one with weight "
        "n ** -1.2) or onehot (all of them one, and others uniformly)",
    )
    parser.add_argument(
        "--timing",
        choices=("graph", "call"),
        default="graph",
        help="predict calls in a CUDA graph (default), as they are measured, or single ones",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=lazy("explaining", "explain_command"))


def add_calibrate(commands) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="measure this machine's GPUs and write a machine file, as --machine takes it",
        description="Run probes on this machine's GPUs, in processes of their own, find the numbers with which the "
        "simulator's clock predicts them, and write a machine file (docs/predicting.md). Takes less than 5 minutes.",
    )
    parser.add_argument("-o", dest="output", metavar="FILE.toml", help="the file (default: GPUxRANKS.toml, here)")
    parser.add_argument("--name", metavar="TITLE", help="what outputs call the machine (default: its GPUs)")
    parser.add_argument(
        "--base",
        metavar="MACHINE",
        help="has the numbers that are not measured: of links, on a single GPU, and of NICs (default: the machine with "
        "these GPUs in ditron/machines)",
    )
    parser.add_argument("--ranks", metavar="N", type=_positive(int), help="how many GPUs (default: all)")
    parser.add_argument("--verbose", action="store_true", help="print what is measured, a line each")
    parser.set_defaults(command=lazy("calibrating", "calibrate_command"))
