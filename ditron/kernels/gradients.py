"""Backward of the operators with a product: both gradients in one program, which hides what either has to gather."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import ditron
import ditron.host as dh
from ditron.distributed.torch_groups import AnyGroup
from ditron.kernels.ag_gemm import ag_gemm, ag_gemm_program
from ditron.kernels.all_gather import all_gather
from ditron.kernels.dispatch import torch_operator
from ditron.kernels.operands import aligned, capacity_for, in_group, matrices, weight_layout
from ditron.kernels.pushes import ShardPushes, tell_done
from ditron.kernels.rank_products import product, product_with_transposed
from ditron.kernels.reduce_scatter import add_parts_kernel, reduce_scatter
from ditron.kernels.repeated import repeatable, run_step
from ditron.kernels.schedules import block_for, check_schedule, is_large, overlaps, schedule_for, sent_bytes
from ditron.tuning.lookup import tuned
from ditron_compiler.errors import DitronError

__all__ = [
    "ag_gemm_backward",
    "ag_gemm_multi_backward",
    "column_gradients_program",
    "gemm_rs_backward",
    "row_gradients_program",
]

_ALGORITHMS = ("overlapped", "sequential")


def _added_product(a: torch.Tensor, b: torch.Tensor, summand: torch.Tensor, out: torch.Tensor) -> None:
    torch.addmm(summand, a, b, out=out)


def _added_product_with_transposed(a: torch.Tensor, b: torch.Tensor, summand: torch.Tensor, out: torch.Tensor) -> None:
    torch.addmm(summand, a, b.t(), out=out)


def _transposed_product(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a.t(), b, out=out)


@ditron.program(
    example={
        "grads": ("bf16[8192, 1792]", "bf16[8192, 1792]"),
        "bs": ("bf16[1792, 4096]", "bf16[1792, 4096]"),
        "a": "bf16[2048, 4096]",
        "of_gathered": "bf16[8192, 4096]",
        "grad_a": "bf16[2048, 4096]",
        "grad_bs": ("bf16[1792, 4096]", "bf16[1792, 4096]"),
        "capacity": 2048,
        "are_kn": (False, False),
    },
    sample_args=lambda ranks: {
        "grads": (f"bf16[{40 * ranks}, 32]", f"bf16[{40 * ranks}, 16]"),
        "bs": ("bf16[32, 48]", "bf16[48, 16]"),
        "a": "bf16[40, 48]",
        "of_gathered": f"bf16[{40 * ranks}, 48]",
        "grad_a": "bf16[40, 48]",
        "grad_bs": ("bf16[32, 48]", "bf16[16, 48]"),
        "capacity": 64,
        "are_kn": (False, True),
        "block": 256,
    },
    max_nodes=1,
)
def column_gradients_program(grads, bs, a, of_gathered, grad_a, grad_bs, capacity, *, are_kn, block=4096, num_warps=8):
    """Of ``ag_gemm_multi``: ``grad_a`` [rows, K] = own rows of the sum over ranks of all ``grads`` [ranks * rows, N]
    times their ``bs`` [N, K], and of ``of_gathered`` [ranks * rows, K] if it is not None; ``grad_bs`` [N, K] = the
    ``grads`` transposed times all ranks' ``a`` [rows, K].

    ``a`` is gathered during the first products, and their sum is scattered during the second ones. A matrix of ``bs``
    is [K, N] if ``are_kn`` says so. Memory is kept for up to ``capacity`` rows.
    """
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    rows, K = a.shape
    total = ranks * rows
    shards = ShardPushes(a, capacity)
    with dh.stream("gather"):
        shards.push(one_by_one=True)  # beside a library's product: copy nodes, which write signals then, need no SM
        dh.copy(a, shards.of(rank))
        copied = dh.record()

    partial = dh.empty(ranks * capacity, K, dtype=a.dtype, name="partial")
    inbox = dh.symm_empty(ranks * capacity, K, dtype=a.dtype, name="inbox")
    arrived = dh.symm_zeros(ranks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")
    summand = of_gathered
    for grad, b, is_kn in zip(grads, bs, are_kn, strict=True):
        if summand is None:
            step = product_with_transposed if is_kn else product
            dh.call(step, reads=[grad, b], writes=[partial[:total]])
        else:
            step = _added_product_with_transposed if is_kn else _added_product
            dh.call(step, reads=[grad, b, summand], writes=[partial[:total]])
        summand = partial[:total]
    multiplied = dh.record()
    with dh.stream("copy"):
        tell_done(done)
        dh.await_event(multiplied)
        for step in dh.range(1, ranks):
            owner = (rank + step) % ranks
            dh.signal_wait(done[owner], epoch)
            dh.rank_copy(partial[owner * rows : (owner + 1) * rows], inbox[rank * rows : (rank + 1) * rows], owner)
            dh.signal_write(arrived[rank], epoch, owner)

    dh.await_event(copied)
    shards.await_all()
    for grad, grad_b in zip(grads, grad_bs, strict=True):
        dh.call(_transposed_product, reads=[grad, shards.gathered[:total]], writes=[grad_b])
    for step in dh.range(1, ranks):
        dh.signal_wait(arrived[(rank + step) % ranks], epoch)
    own = partial[rank * rows : (rank + 1) * rows]
    n = rows * K
    add_parts_kernel[(dh.cdiv(n, block),)](own, inbox, grad_a, n, rank, ranks, BLOCK=block, num_warps=num_warps)


@torch_operator("grad", "a", "b")
@repeatable
def ag_gemm_backward(
    grad: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both gradients of :func:`ag_gemm`: two products, with what is gathered and scattered hidden under them.

    Args:
        grad: ``[num_ranks * rows, N]``, of the result. a: ``[rows, K]``. b: ``[N, K]``. As of ag_gemm.
        group: the ranks; default the current group. One node.
        algorithm: ``"overlapped"``, or ``"sequential"`` for products and collectives one after the other, instead of
            the one that is chosen by size.
        schedule: keyword-only arguments of :func:`column_gradients_program`, instead of those that would be chosen.

    Returns the gradients of ``a``, ``[rows, K]``, and of ``b``, ``[N, K]``. Collective over the group. Raises
    DitronError for tensors that do not fit.

        grad_x, grad_weight = ditron.kernels.ag_gemm_backward(grad_y, x, weight)
    """
    grad_a, (grad_b,) = _column_gradients("ag_gemm_backward", [grad], a, [b], None, group, algorithm, schedule)
    return grad_a, grad_b


@torch_operator("grads", "a", "bs", "of_gathered")
def ag_gemm_multi_backward(
    grads: Sequence[torch.Tensor],
    a: torch.Tensor,
    bs: Sequence[torch.Tensor],
    of_gathered: torch.Tensor | None = None,
    *,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """As :func:`ag_gemm_backward`, of :func:`ag_gemm_multi`.

    Args:
        grads: of the products, ``[num_ranks * rows, N]`` each. a: ``[rows, K]``. bs: ``[N, K]`` each.
        of_gathered: gradient of the gathered rows, ``[num_ranks * rows, K]``, if there is one.
        group, algorithm, schedule: as there.

    Returns the gradients of ``a`` and of ``bs``.

        grad_x, grad_weights = ditron.kernels.ag_gemm_multi_backward([grad_gate, grad_up], x, [w_gate, w_up])
    """
    return _column_gradients(
        "ag_gemm_multi_backward", list(grads), a, list(bs), of_gathered, group, algorithm, schedule
    )


def _check_algorithm(what: str, algorithm: str | None) -> None:
    if algorithm is not None and algorithm not in _ALGORITHMS:
        raise DitronError(f"{what}: unknown algorithm {algorithm!r}: expected 'overlapped' or 'sequential'")


def _column_gradients(
    what: str,
    grads: list[torch.Tensor],
    a: torch.Tensor,
    bs: list[torch.Tensor],
    of_gathered: torch.Tensor | None,
    group: AnyGroup,
    algorithm: str | None,
    schedule: dict[str, Any],
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    with in_group(group, what) as group:
        given = {"grad": grads, "b": bs, "gradient of the gathered rows": [] if of_gathered is None else [of_gathered]}
        matrices(what, group, a=a, **{f"{name} {i}": t for name, ts in given.items() for i, t in enumerate(ts)})
        (rows, K), ranks = a.shape, group.num_ranks
        if not bs or len(grads) != len(bs):
            raise DitronError(f"{what}: {len(bs)} matrices have {len(grads)} gradients: expected one for each")
        for grad, b in zip(grads, bs, strict=True):
            if b.shape[1] != K or grad.shape != (ranks * rows, b.shape[0]):
                raise DitronError(
                    f"{what}: a is [{rows}, {K}], b is {list(b.shape)} and grad is {list(grad.shape)}: expected b to "
                    f"be [N, {K}], and grad [{ranks * rows}, N]"
                )
        if of_gathered is not None and of_gathered.shape != (ranks * rows, K):
            raise DitronError(
                f"{what}: the gradient of the gathered rows is {list(of_gathered.shape)}: expected "
                f"[{ranks * rows}, {K}]"
            )
        _check_algorithm(what, algorithm)
        check_schedule(what, schedule, column_gradients_program)
        grads, a = [aligned(grad) for grad in grads], aligned(a)
        grad_a, grad_bs = torch.empty_like(a), [torch.empty_like(b, memory_format=torch.contiguous_format) for b in bs]
        if algorithm == "overlapped" or algorithm is None and is_large(group, sent_bytes(group, a)):
            weights, are_kn = zip(*map(weight_layout, bs), strict=True)
            run_step(
                column_gradients_program,
                tuple(grads),
                weights,
                a,
                None if of_gathered is None else aligned(of_gathered),
                grad_a,
                tuple(grad_bs),
                capacity_for(rows),
                are_kn=are_kn,
                **block_for(group, "copied") | schedule,
            )
            return grad_a, grad_bs
        partial = torch.mm(grads[0], bs[0]) if of_gathered is None else torch.addmm(of_gathered, grads[0], bs[0])
        for grad, b in zip(grads[1:], bs[1:], strict=True):
            partial.addmm_(grad, b)
        reduce_scatter(partial, out=grad_a)
        whole = all_gather(a)
        for grad, grad_b in zip(grads, grad_bs, strict=True):
            _transposed_product(grad, whole, grad_b)
        return grad_a, grad_bs


@ditron.program(
    example={
        "grad": "bf16[2048, 4096]",
        "b": "bf16[4096, 1792]",
        "a": "bf16[8192, 1792]",
        "grad_a": "bf16[8192, 1792]",
        "grad_b": "bf16[4096, 1792]",
        "capacity": 2048,
        "b_is_kn": True,
    },
    sample_args=lambda ranks: {
        "grad": "bf16[40, 32]",
        "b": "bf16[32, 48]",
        "a": f"bf16[{40 * ranks}, 48]",
        "grad_a": f"bf16[{40 * ranks}, 48]",
        "grad_b": "bf16[32, 48]",
        "capacity": 64,
        "b_is_kn": True,
        "block": (16, 32, 32),
        "programs": 3,
    },
    max_nodes=1,
)
def row_gradients_program(
    grad,
    b,
    a,
    grad_a,
    grad_b,
    capacity,
    *,
    b_is_kn=False,
    pieces=2,
    programs=132,
    block=(128, 256, 64),
    group_m=8,
    num_warps=8,
    stages=4,
):
    """Of ``gemm_rs``: ``grad_a`` [ranks * rows, K] as ``ag_gemm`` has it of ``grad`` [rows, N] and ``b`` [K, N], and
    ``grad_b`` [N, K] = all ranks' ``grad`` transposed times ``a`` [ranks * rows, K].

    The keyword-only arguments are those of ``ag_gemm_program``.
    """
    ag_gemm_program.fn(
        grad,
        b,
        b,  # for a bias, which there is not
        grad_a,
        grad,
        None,
        None,
        capacity,
        b_is_kn=b_is_kn,
        with_gathered=lambda whole: dh.call(_transposed_product, reads=[whole, a], writes=[grad_b]),
        pieces=pieces,
        programs=programs,
        block=block,
        group_m=group_m,
        num_warps=num_warps,
        stages=stages,
    )


#: Arguments of a schedule of ``ag_gemm`` that the program of its reverse does not have.
_LACKING = tuple(sorted(ag_gemm_program.constants.keys() - row_gradients_program.constants.keys()))


@torch_operator("grad", "a", "b")
@repeatable
def gemm_rs_backward(
    grad: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    group: AnyGroup = None,
    algorithm: str | None = None,
    **schedule: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both gradients of :func:`gemm_rs`; the gradient's rows are gathered once, hidden under the product for ``a``'s.

    Args:
        grad: ``[rows, N]``, of the result. a: ``[num_ranks * rows, K]``. b: ``[N, K]``. As of gemm_rs.
        group: the ranks; default the current group. One node.
        algorithm: ``"overlapped"``, or ``"sequential"`` for products and collectives one after the other, instead of
            the one that is chosen by size.
        schedule: keyword-only arguments of :func:`row_gradients_program`, instead of those that would be chosen.

    Returns the gradients of ``a``, ``[num_ranks * rows, K]``, and of ``b``, ``[N, K]``. Collective over the group.
    Raises DitronError for tensors that do not fit.

        grad_x, grad_weight = ditron.kernels.gemm_rs_backward(grad_y, x, weight)
    """
    with in_group(group, "gemm_rs_backward") as group:
        matrices("gemm_rs_backward", group, grad=grad, a=a, b=b)
        (rows, N), K, ranks = grad.shape, a.shape[1], group.num_ranks
        if b.shape != (N, K) or a.shape[0] != ranks * rows:
            raise DitronError(
                f"gemm_rs_backward: grad is [{rows}, {N}], a is {list(a.shape)} and b is {list(b.shape)}: expected a "
                f"to be [{ranks * rows}, K], and b [{N}, K]"
            )
        _check_algorithm("gemm_rs_backward", algorithm)
        check_schedule("gemm_rs_backward", schedule, row_gradients_program)
        grad, a = aligned(grad), aligned(a)
        grad_a, grad_b = torch.empty_like(a), torch.empty_like(b, memory_format=torch.contiguous_format)
        weight, is_kn = weight_layout(b.t())
        # ag_gemm has algorithms, and arguments, that are not of this operator: the best of what is.
        of_this = {"among": _ALGORITHMS, "lacking": _LACKING}
        algorithm, schedule = tuned("ag_gemm", group, algorithm, schedule, a.dtype, rows, K, N, **of_this)
        if overlaps("gemm_rs_backward", group, algorithm, sent_bytes(group, grad), grad, weight, grad_a):
            chosen = schedule_for("gemm_rs_backward", group, rows, 2, schedule, whole_pieces=False)
            operands = grad, weight, a, grad_a, grad_b
            run_step(row_gradients_program, *operands, capacity_for(rows), b_is_kn=is_kn, **chosen)
            return grad_a, grad_b
        whole = grad.new_empty(ranks * rows, N)
        ag_gemm(grad, b.t(), out=grad_a, gathered=whole, group=group, algorithm="sequential")
        _transposed_product(whole, a, grad_b)
        return grad_a, grad_b
