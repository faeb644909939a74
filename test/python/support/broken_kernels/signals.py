"""Data that its signal does not cover; counts and epochs that are wrong."""

import triton.language as tl

import ditron
import ditron.language as dl
from broken_kernels.catalogue import broken

# --- data and its signal ----------------------------------------------------------------------------------------------


@broken("race", says="data[0, 0]")
@ditron.jit
def missing_wait(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    tl.store(out + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def data_after_its_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    dl.notify(flags, peer, epoch)
    tl.store(dl.symm_at(data, peer) + at, 1.0)  # <-
    token = dl.wait(flags, 1, epoch)
    tl.store(out + at, tl.load(dl.consume_token(data, token) + at))  # <-


@broken("race")
@ditron.jit
def relaxed_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)  # <-
    dl.st(dl.symm_at(flags, peer), epoch, scope="node")
    while dl.ld(flags, scope="node", semantic="acquire") < epoch:
        pass
    tl.store(out + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def relaxed_look_at_the_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)  # <-
    dl.st(dl.symm_at(flags, peer), epoch, scope="node", semantic="release")
    while dl.ld(flags, scope="node") < epoch:
        pass
    tl.store(out + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def relaxed_signal_fetch(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    while dl.signal_fetch(flags, semantic="relaxed") < epoch:
        pass
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def gpu_scope_on_a_peers_flag(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    tl.store(dl.symm_at(data, peer) + at, 1.0)  # <-
    dl.st(dl.symm_at(flags, peer), epoch, semantic="release")
    while dl.ld(flags, scope="node", semantic="acquire") < epoch:
        pass
    tl.store(out + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def wait_of_gpu_scope(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch, scope="gpu")
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race", grid=2, ranks_per_node=1, says='by a NIC, and the signal between the two has scope="gpu"')
@ditron.jit
def gpu_scope_before_a_nic_reads(data, flags, out, epoch, N: tl.constexpr):
    """One program writes, another one puts what it has written: to a rank on another node."""
    at = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(data + at, 1.0)  # <-
        dl.notify(flags, dl.rank(), epoch, scope="gpu")
    else:
        dl.wait(flags, 1, epoch)
        dl.putmem_signal(data + N, data, N * 4, flags + 1, epoch, 1 - dl.rank())  # <-
        dl.wait(flags + 1, 1, epoch)
        tl.store(out + at, tl.load(data + N + at))


@broken("race", grid=2, ranks_per_node=1, says='by a NIC, and the signal between the two has scope="gpu"')
@ditron.jit
def atomic_of_gpu_scope_before_a_nic_reads(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(data + at, 1.0)  # <-
        dl.atomic_add(flags, 1, scope="gpu", semantic="release")
    else:
        while dl.ld(flags, scope="gpu", semantic="acquire") < epoch:
            pass
        dl.putmem_nbi(data + N, data, N * 4, 1 - dl.rank())  # <-
        dl.quiet()
        dl.notify(flags + 1, 1 - dl.rank(), epoch)
        dl.wait(flags + 1, 1, epoch)
        tl.store(out + at, tl.load(data + N + at))


@broken("race")
@ditron.jit
def relaxed_wait(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch, semantic="relaxed")
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def ordinary_load_of_a_flag(data, flags, out, epoch, N: tl.constexpr):
    dl.notify(flags, 1 - dl.rank(), epoch)  # <-
    seen = tl.load(flags)  # <-
    while seen < epoch:
        seen = tl.load(flags)  # <-
    tl.store(out, seen.to(tl.float32))


@broken("race")
@ditron.jit
def no_fence_between_put_and_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    dl.putmem(data, out, N * 4, peer)  # <-
    dl.signal_op(flags, epoch, peer)
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def second_put_without_a_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    peer = 1 - dl.rank()
    dl.putmem_signal(data, out, N * 4, flags, epoch, peer)
    dl.putmem(data + N, out, N * 4, peer)  # <-
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + N + at))  # <-


@broken("race")
@ditron.jit
def sync_all_is_no_quiet(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem(data, out, N * 4, 1 - dl.rank())  # <-
    dl.sync_all()
    tl.store(out + N + at, tl.load(data + at))  # <-


@broken("race")
@ditron.jit
def symm_at_without_acquire(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(data + at, 1.0)  # <-
    tl.store(out + at, tl.load(dl.symm_at(data, 1 - dl.rank()) + at))  # <-


@broken("race", ranks=3)
@ditron.jit
def wrong_neighbour(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    right = (dl.rank() + 1) % dl.num_ranks()
    left = (dl.rank() + 2) % dl.num_ranks()
    dl.putmem(data, out, N * 4, right)  # <-
    dl.notify(flags, left, epoch)
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + at))  # <-


# --- counts and epochs ------------------------------------------------------------------------------------------------


@broken("race")
@ditron.jit
def count_one_too_low(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    for chunk in range(2):
        dl.putmem_signal(data + chunk * N, out, N * 4, flags, 1, 1 - dl.rank(), op="add")  # <-
    dl.wait(flags, 1, 1)
    for chunk in range(2):
        tl.store(out + (2 + chunk) * N + at, tl.load(data + chunk * N + at))  # <-


@broken("deadlock", says="flags[0] >= 3 (it is 2)")
@ditron.jit
def count_one_too_high(data, flags, out, epoch, N: tl.constexpr):
    for chunk in range(2):
        dl.putmem_signal(data + chunk * N, out, N * 4, flags, 1, 1 - dl.rank(), op="add")
    dl.wait(flags, 1, 3)  # <-


@broken("race")
@ditron.jit
def wrong_signal(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    for chunk in range(2):
        dl.putmem_signal(data + chunk * N, out, N * 4, flags + chunk, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch)
    tl.store(out + N + at, tl.load(data + N + at))  # <-


@broken("race", ranks=3)
@ditron.jit
def fewer_signals_than_chunks(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    rank = dl.rank()
    for peer in range(3):
        dl.putmem_signal(data + rank * N, out, N * 4, flags + rank, epoch, peer)  # <-
    dl.wait(flags, 2, epoch)
    for chunk in range(3):
        tl.store(out + N + at, tl.load(data + chunk * N + at))  # <-


@broken("race", calls=2)
@ditron.jit
def wrong_epoch(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    dl.putmem_signal(data + epoch * N, out, N * 4, flags, epoch, 1 - dl.rank())  # <-
    dl.wait(flags, 1, epoch - 1)
    tl.store(out + N + at, tl.load(data + epoch * N + at))  # <-
    dl.quiet()


@broken("race", calls=4, grid=2)
@ditron.jit
def counting_without_quiet(data, flags, out, epoch, N: tl.constexpr):
    at = tl.arange(0, N)
    chunk = data + ((epoch % 2) * 2 + tl.program_id(0)) * N
    dl.putmem_signal(chunk, out, N * 4, flags, 1, 1 - dl.rank(), op="add")  # <-
    dl.wait(flags, 1, epoch * 2)
    for other in range(2):
        tl.load(data + ((epoch % 2) * 2 + other) * N + at)  # <-
        tl.store(out + (2 + tl.program_id(0)) * N + at, tl.load(data + ((epoch % 2) * 2 + other) * N + at))  # <-


@broken("deadlock", calls=6, says="flags[0] ==")
@ditron.jit
def equality_overtaken(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.notify(flags, 1, epoch)
    else:
        dl.wait(flags, 1, epoch, cmp="eq")  # <-


@broken("race", calls=2)
@ditron.jit
def reset_race(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.notify(flags, 1, 1)  # <-
    else:
        dl.wait(flags, 1, 1)
        tl.store(flags, 0)  # <-


@broken("signal", calls=6, says="goes backwards")
@ditron.jit
def signal_goes_backwards(data, flags, out, epoch, N: tl.constexpr):
    if dl.rank() == 0:
        dl.signal_op(flags, epoch, 1)  # <-


@broken("signal", says="wraps")
@ditron.jit
def signal_wraps(data, flags, out, epoch, N: tl.constexpr):
    for _ in range(2):
        dl.notify(flags, 1 - dl.rank(), 1 << 62, op="add")  # <-
