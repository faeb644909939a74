"""Memory that is used again too soon, that two write, or that is not there."""

import triton.language as tl

import ditron
import ditron.language as dl
from broken_kernels.catalogue import N, broken

# --- buffers that are used again --------------------------------------------------------------------------------------


@broken("race", calls=2)
@ditron.jit
def single_buffer_without_credit(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + at))  # <-
    dl.quiet()


@broken("race", ranks=3, calls=4)
@ditron.jit
def two_buffers_by_parity_in_a_ring(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    half = data + (epoch % 2) * N
    dl.putmem_signal(half, out, N * 4, flags, epoch, (dl.rank() + 1) % 3)  # <-
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(half + at))  # <-
    dl.quiet()


@broken("race")
@ditron.jit
def source_used_again_too_soon(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_nbi(data, out, N * 4, 1 - dl.rank())  # <-
    tl.store(out + at, 1.0)  # <-


@broken("race", calls=2)
@ditron.jit
def source_used_again_by_the_next_launch(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(data + at, 1.0)  # <-
    dl.putmem_nbi(data + N * epoch, data, N * 4, 1 - dl.rank())  # <-


@broken("race")
@ditron.jit
def get_used_before_quiet(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.getmem_nbi(out, data, N * 4, 1 - dl.rank())  # <-
    tl.store(out + N + at, tl.load(out + at))  # <-


# --- two writers ------------------------------------------------------------------------------------------------------


@broken("race", ranks=3)
@ditron.jit
def slots_overlap(data, flags, out, epoch, N: tl.constexpr):
    for peer in range(3):
        dl.putmem(data + dl.rank() * (N - 1), out, N * 4, peer)  # <-


@broken("race", grid=2, says="out[0]")
@ditron.jit
def two_programs_write_one_place(data, flags, out, epoch, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), 1.0)  # <-


@broken("race")
@ditron.jit
def two_puts_without_fence(data, flags, out, epoch, N: tl.constexpr):
    dl.putmem(data, out, N * 4, 1 - dl.rank())  # <-
    dl.putmem(data, out + N, N * 4, 1 - dl.rank())  # <-


@broken("race", grid=4)
@ditron.jit
def relaxed_lock(data, flags, out, epoch, N: tl.constexpr):
    while dl.atomic_cas(flags, 0, 1) != 0:
        pass
    tl.store(out, tl.load(out) + 1.0)  # <-
    dl.st(flags, 0)


@broken("race", grid=4)
@ditron.jit
def last_program_adds_up(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + tl.program_id(0) * N + at, 1.0)  # <-
    if tl.atomic_add(flags, 1, sem="relaxed") == 3:
        for other in range(4):
            tl.store(data + at, tl.load(out + other * N + at))  # <-


# --- memory that is not there -----------------------------------------------------------------------------------------


@broken("bounds", says="past the end of `data`, to data[4, 0]")
@ditron.jit
def one_row_too_many(data, flags, out, epoch, N: tl.constexpr):
    for row in range(5):
        tl.store(data + row * N + tl.arange(0, N), 1.0)  # <-


@broken("unwritten", says="data[0, 0]")
@ditron.jit
def nobody_wrote_it(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(data + at))  # <-


@broken("unwritten", says="data[1, 31]")
@ditron.jit
def padding_is_read(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(data + N + at, 1.0, mask=at < N - 1)
    tl.store(out + at, tl.load(data + N + at, mask=at < N - 1))
    tl.store(out + at, tl.load(data + N + at))  # <-


@ditron.jit
def put_to_right(data, flags, out, epoch, N: tl.constexpr):
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-


@ditron.jit
def write_there(data, flags, out, epoch, N: tl.constexpr):
    tl.store(data + tl.arange(0, N), 1.0)  # <-


@broken("race", kernel=put_to_right)
def script_reads_before_a_barrier(kernel, data, flags, out):
    kernel[(1,)](data, flags, out, 1, N=N)
    out += data  # <-


@broken("freed", kernel=write_there, says="data[0, 0], which was freed")
def used_after_it_was_freed(kernel, data, flags, out):
    ditron.symm_free(data)
    kernel[(1,)](data, flags, out, 1, N=N)


@broken("freed", kernel=write_there, says="does not hold")
def freed_twice(kernel, data, flags, out):
    ditron.symm_free(data)
    ditron.symm_free(data)  # <-
