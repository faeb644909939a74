"""Kernels, and machines of simple numbers, on which their times are computed by hand, and what is predicted of them."""

from __future__ import annotations

from dataclasses import replace

import triton.language as tl

import ditron
import ditron.language as dl
from ditron import machines, sim

#: 100 GB/s links and memory, one TFLOP/s an SM, whole microseconds of latency.
NUMBERS = (
    "sm.count=4 sm.dot8=8 sm.dot16=4 sm.dot32=2 sm.vector=1e5 sm.special=1e5 sm.fill=0 latency.load=0 hbm.rate=100 "
    "hbm.per_sm=100 link.rate=100 link.store_share=0.5 "
    "link.load_share=0.5 link.store_per_sm=25 link.load_per_sm=10 copy_engine.share=1 copy_engine.busy_share=1 "
    "copy_engine.setup=1 copy_engine.setup_behind=1 copy_engine.least=2 latency.launch=3 latency.peer=4 latency.local=0.5 latency.fence=5 "
    "latency.stream=0 latency.barrier=6"
)

#: us of a thousand products of 65536 operations at 1 TFLOP/s an SM; and a nanosecond in us.
PRODUCT, US = 65.536, 1e-3

TWO_NODES = {"nic.rate": 50.0, "nic.latency": 7.0, "nic.post": 1.0}


def simple_machine(*changes: str) -> machines.Machine:
    return machines.load("h200x4").with_changes([*NUMBERS.split(), *changes])


def two_nodes() -> machines.Machine:
    """Two ranks on each of two nodes."""
    nic = {name: machines.Number(value, "assumed", "") for name, value in TWO_NODES.items()}
    machine = simple_machine()
    return replace(machine, ranks=2, nodes=2, numbers={**machine.numbers, **nic})


def predicted(main, ranks=2, machine=None, timing_only=False, **world):
    def on_rank():
        ditron.init()
        return main(sim.current_world())

    return sim.predict(on_rank, machine or simple_machine(), ranks, timing_only=timing_only, **world)


def operations(prediction, name):
    """Rank, begin and end in us of each operation whose name begins so."""
    found = [one for one in prediction.launches if one.name.startswith(name)]
    return sorted((one.rank, round(one.queued * US, 3), round(one.ended * US, 3)) for one in found)


@ditron.jit
def products_kernel(x_ptr, y_ptr, STEPS: tl.constexpr):
    """``STEPS`` products of 32 x 32 x 32: 65536 operations each; 2048 bytes are stored."""
    rows = tl.arange(0, 32)
    at = rows[:, None] * 32 + rows[None, :]
    acc = tl.zeros((32, 32), tl.float32)
    for _ in range(STEPS):
        x = tl.load(x_ptr + at)
        acc += tl.dot(x, x)
    tl.store(y_ptr + tl.program_id(0) * 1024 + at, acc.to(tl.bfloat16))


@ditron.jit
def store_to_peer_kernel(x_ptr, peer, N: tl.constexpr):
    """``N`` bf16 of each program to a peer."""
    tl.store(dl.symm_at(x_ptr, peer) + tl.program_id(0) * N + tl.arange(0, N), tl.zeros((N,), tl.bfloat16))


@ditron.jit
def push_kernel(x_ptr, signal_ptr, peer, N: tl.constexpr, FENCE: tl.constexpr):
    """``N`` bf16 of each program to a peer, and a signal: by stores, which a fence follows, or by a put."""
    program = tl.program_id(0)
    if FENCE:
        tl.store(dl.symm_at(x_ptr, peer) + program * N + tl.arange(0, N), tl.zeros((N,), tl.bfloat16))
        dl.notify(signal_ptr + program, peer, 1)
    else:
        dl.putmem_signal(x_ptr + program * N, x_ptr + program * N, 2 * N, signal_ptr + program, 1, peer)


@ditron.jit
def notify_kernel(signal_ptr, peer):
    dl.notify(signal_ptr, peer, 1)


@ditron.jit
def wait_kernel(signal_ptr):
    dl.wait(signal_ptr, 1, 1)


@ditron.jit
def last_releases_kernel(signal_ptr):
    """All programs wait for the last one."""
    if tl.program_id(0) == tl.num_programs(0) - 1:
        dl.notify(signal_ptr, dl.rank(), 1)
    else:
        dl.wait(signal_ptr, 1, 1)


@ditron.jit
def branch_kernel(x_ptr, signal_ptr):
    """A signal that depends on floating-point data."""
    if tl.load(x_ptr) > 0:
        dl.notify(signal_ptr, dl.rank(), 1)


@ditron.jit
def put_kernel(x_ptr, signal_ptr, peer, nbytes):
    dl.putmem_signal(x_ptr, x_ptr, nbytes, signal_ptr, 1, peer)
