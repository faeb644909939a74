"""Fences that the compiler puts into a loop: none for an epoch of 32 bits, else a warning at the user's line."""

from __future__ import annotations

import warnings

import pytest
import torch

import ditron
import ditron.language as dl

N = 8


@ditron.jit
def send_rows(box, x, flag, epoch, n, row_bytes):
    for i in range(n):
        dl.putmem_signal_nbi(box + i * 8, x + i * 8, row_bytes, flag, epoch, 1 - dl.rank())
    dl.wait(flag, 1, epoch)
    dl.quiet()


@ditron.jit
def count_up(box, x, flag, epoch, n, row_bytes):
    for i in range(n):
        dl.putmem_nbi(box + i * 8, x + i * 8, row_bytes, 1 - dl.rank())
        dl.signal_op(flag, i + 1, 1 - dl.rank())  # the warning
    dl.wait(flag, 1, n)
    dl.quiet()


@ditron.jit
def count_up_with_fences(box, x, flag, epoch, n, row_bytes):
    for i in range(n):
        dl.putmem_nbi(box + i * 8, x + i * 8, row_bytes, 1 - dl.rank())
        dl.fence()
        dl.signal_op(flag, i + 1, 1 - dl.rank())
    dl.wait(flag, 1, n)
    dl.quiet()


def on_rank(kernel, epoch: int) -> None:
    ditron.init()
    box = ditron.symm_zeros(4, N, dtype=torch.float32, name="box")
    flag = ditron.symm_zeros(1, dtype=torch.int64, name="flag")
    kernel[(1,)](box, torch.ones(4, N), flag, epoch, 4, N * 4)
    ditron.barrier()


@pytest.mark.parametrize("kernel, epoch", [(send_rows, 7), (send_rows, 1 << 40), (count_up_with_fences, 7)])
def test_no_fence_and_no_warning(kernel, epoch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ditron.sim.run(on_rank, ranks=2, args=(kernel, epoch))


def test_a_fence_in_a_loop_is_a_warning_at_the_line():
    with pytest.warns(UserWarning, match=r"inserted 'ditron.fence' in a loop") as caught:
        ditron.sim.run(on_rank, ranks=2, args=(count_up, 7))
    line = next(n for n, text in enumerate(open(__file__), 1) if text.rstrip().endswith("# the warning"))
    assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, line)]
    assert "write dl.fence() here" in str(caught[0].message)
