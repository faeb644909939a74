"""Shapes on the command line of ``ditron tune`` and ``ditron explain``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ditron.cli.kernels import UsageError

if TYPE_CHECKING:
    from ditron.tuning.problem import Problem

__all__ = ["FORMS", "bucket", "problems"]

FORMS = ("strong", "weight-per-rank", "ep", "tp")


_OF_PARTS = ("reduce_scatter", "all_to_all", "all_to_all_v")  # whose sizes are those of all parts


def bucket(problem: Problem) -> Problem:
    """The problem with the rows that its calls are looked up by; they do not know the routing."""
    from ditron.tuning.problem import bucket_of

    return replace(problem, rows=bucket_of(problem.rows), routing="uniform")


def problems(args: argparse.Namespace, ranks: int) -> Iterator[Problem]:
    """The shapes on the command line, or those in a file, of one operator a line."""
    if args.shapes is None:
        if args.operator is None:
            raise UsageError("name an operator and its sizes, as in 'ag_gemm 8192 11008 4096', or a --shapes file")
        yield from _shapes(args.operator, args.sizes, ranks, args.dtype, args.form)
        return
    if args.operator is not None:
        raise UsageError("a --shapes file names the operators itself")
    try:
        lines = Path(args.shapes).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {args.shapes}: {error}") from error
    if not any(line.partition("#")[0].strip() for line in lines):
        raise UsageError(f"{args.shapes} has no shapes: expected lines as 'ag_gemm 8192 11008 4096'")
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        form = words.pop() if words and words[-1] in FORMS else args.form
        if words:
            try:
                if len(words) > 1 and not words[-1][0].isdigit():
                    raise UsageError(f"{words[-1]!r} is neither a size nor a form: forms are {', '.join(FORMS)}")
                yield from _shapes(words[0], words[1:], ranks, args.dtype, form)
            except UsageError as error:
                raise UsageError(f"{args.shapes}:{number}: {error}") from None


def _shapes(operator: str, sizes: Sequence[str], ranks: int, dtype: str, form: str) -> Iterator[Problem]:
    from ditron import kernels  # noqa: F401 (declares what can be tuned)
    from ditron.tuning.problem import DTYPES, OF_EXPERTS, Problem
    from ditron.tuning.registry import OPERATORS

    if operator not in OPERATORS:
        raise UsageError(f"{operator!r} has no choice to make: expected one of {', '.join(sorted(OPERATORS))}")
    numbers = [_size(size) for size in sizes]
    if operator in OF_EXPERTS:
        if not numbers or len(numbers) % 5:
            given = " ".join(sizes) or "no sizes"
            raise UsageError(f"{operator} takes TOKENS N K EXPERTS TOP_K, or several times these, got {given}")
        for at in range(0, len(numbers), 5):
            yield _of_experts(operator, *numbers[at : at + 5], ranks, dtype, form)
        return
    if form in ("ep", "tp"):
        raise UsageError(f"{operator} has no experts: --form {form} is of {', '.join(sorted(OF_EXPERTS))}")
    if "gemm" not in operator:
        if not numbers:
            raise UsageError(f"{operator} takes sizes in bytes of a rank's tensor, as in '{operator} 64K 2M'")
        unit = DTYPES[dtype] * (ranks if operator in _OF_PARTS else 1)  # each rank gets a part of the tensor
        for nbytes in numbers:
            if nbytes % unit:
                near = " or ".join(str(size) for size in (nbytes // unit * unit, -(-nbytes // unit) * unit) if size)
                shared = f" in {ranks} equal parts" if operator in _OF_PARTS else ""
                raise UsageError(f"{operator}: {nbytes} bytes are no elements of {dtype}{shared}: ask for {near}")
            yield Problem(operator, dtype, ranks, nbytes // unit)
        return
    if not numbers or len(numbers) % 3:
        raise UsageError(f"{operator} takes M N K, or several times M N K, got {' '.join(sizes) or 'no sizes'}")
    for at in range(0, len(numbers), 3):
        yield _product(operator, *numbers[at : at + 3], ranks, dtype, form)


def _product(operator: str, M: int, N: int, K: int, ranks: int, dtype: str, form: str) -> Problem:
    from ditron.tuning.problem import Problem

    if operator in ("gemm_a2a", "a2a_gemm"):  # every rank has the whole weight, and a part of the sequence
        what, columns = ("N", N) if operator == "gemm_a2a" else ("K", K)
        if M % ranks or columns % ranks:
            raise UsageError(f"{operator}: {ranks} ranks cannot share {M} rows and {what} = {columns}")
        return Problem(operator, dtype, ranks, M // ranks, N, K)
    divided = {"ag_gemm": N, "gemm_rs": K, "gemm_ar": K}[operator]
    if form == "strong":
        if divided % ranks:
            what = "N" if operator == "ag_gemm" else "K"
            raise UsageError(f"{operator}: {ranks} ranks cannot share {what} = {divided} (--form weight-per-rank?)")
        N, K = (N // ranks, K) if operator == "ag_gemm" else (N, K // ranks)
    if operator == "gemm_ar":
        return Problem(operator, dtype, ranks, M, N, K)
    if M % ranks:
        near = [f"{rows}" for rows in (M // ranks * ranks, -(-M // ranks) * ranks) if rows]
        raise UsageError(f"{operator}: {ranks} ranks cannot share {M} rows: ask for {' or '.join(near)}")
    return Problem(operator, dtype, ranks, M // ranks, N, K)


def _of_experts(
    operator: str, tokens: int, N: int, K: int, experts: int, top_k: int, ranks: int, dtype: str, form: str
) -> Problem:
    """Tokens of all ranks; N and K of a whole expert's matrix, of ep_moe the first one's."""
    from ditron.tuning.problem import Problem

    if form == "weight-per-rank":
        raise UsageError(f"{operator}: forms of experts are ep and tp, got {form}")
    parallel = "tp" if form == "tp" else "ep"
    if tokens % ranks:
        raise UsageError(f"{operator}: {ranks} ranks cannot share {tokens} tokens")
    if top_k > experts:
        raise UsageError(f"{operator}: {top_k} experts of a token, and there are {experts}")
    if parallel == "ep" and experts < ranks:
        raise UsageError(f"{operator}: {ranks} ranks cannot share {experts} experts (--form tp?)")
    whole = {"N": N, "K": K}
    divided, parts = ("K", 1) if operator == "moe_rs" else ("N", 2 if operator == "ep_moe" else 1)  # gates, and others
    parts *= ranks if parallel == "tp" else 1
    if whole[divided] % parts:
        raise UsageError(f"{operator}: {divided} = {whole[divided]} cannot be divided by {parts}")
    if parallel == "tp":
        whole[divided] //= ranks
    return Problem(operator, dtype, ranks, tokens // ranks, **whole, experts=experts, top_k=top_k, parallel=parallel)


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if found is None or int(found[1]) < 1:
        raise UsageError(f"{text!r} is no size: expected a number from 1, as 8192, or with K, M or G, as 64K")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]
