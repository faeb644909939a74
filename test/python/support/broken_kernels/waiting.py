"""Waits that nobody ends."""

import triton.language as tl

import ditron
import ditron.language as dl
from broken_kernels.catalogue import broken


@broken("deadlock", says="no program has signalled")
@ditron.jit
def missing_notify(data, flags, out, epoch, N: tl.constexpr):
    dl.putmem(data, out, N * 4, 1 - dl.rank())
    dl.wait(flags, 1, epoch)  # <-


@broken("deadlock", ranks=3, says="flags[0] of rank 2 has been signalled")
@ditron.jit
def wrong_rank(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.notify(flags, 2, epoch)
    elif dl.rank() == 1:
        dl.wait(flags, 1, epoch)  # <-


@broken("deadlock", says="wait for each other")
@ditron.jit
def cyclic_wait(data, flags, out, epoch, N: tl.constexpr):
    dl.wait(flags, 1, epoch)  # <-
    dl.notify(flags, 1 - dl.rank(), epoch)


@broken("deadlock", grid=3, resident=2, says="slots are taken by programs that wait")
@ditron.jit
def starved_producer(data, flags, out, epoch, N: tl.constexpr):
    if tl.program_id(0) < 2:
        dl.wait(flags, 1, epoch)  # <-
    else:
        dl.notify(flags, dl.rank(), epoch)


@broken("deadlock", says="not arrived: 1")
@ditron.jit
def barrier_that_one_misses(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.barrier_all()  # <-
