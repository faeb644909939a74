"""Accesses that leave one symmetric tensor for another one, on the own rank and on a peer."""

import inspect

import pytest
import torch
import triton.language as tl

import ditron
import ditron.language as dl
from ditron import sim


@ditron.jit
def write_own(x, flags, index):
    tl.store(x + index, 1)  # own


@ditron.jit
def write_peer(x, flags, index):
    tl.store(dl.symm_at(x, 1 - dl.rank()) + index, 1)  # peer's


@ditron.jit
def read_peer(x, flags, index):
    tl.store(flags, tl.load(dl.symm_at(x, 1 - dl.rank()) + index))  # read


def _call(kernel, index, elements=64):
    def main():
        ditron.init()
        view = sim.current_world()
        x = view.alloc((2, elements // 2), torch.int64, name="x")
        flags = view.alloc((64,), torch.int64, name="flags")
        view.barrier()
        if view.rank == 0:
            kernel[(1,)](x, flags, index)
        view.barrier()
        return x.flatten().tolist()

    return sim.run(main, 2)


@pytest.mark.parametrize("kernel, line", [(write_own, "# own"), (write_peer, "# peer's"), (read_peer, "# read")])
def test_one_tensor_too_far(kernel, line):
    found = _call(kernel, 63)
    assert kernel is read_peer or found[kernel is write_peer][63] == 1
    # 64 elements are 512 bytes, then come 256 of nothing, then the next tensor.
    with pytest.raises(ditron.SimulationError) as caught:
        _call(kernel, 64 + 32 + 2)
    assert caught.value.kind == "bounds"
    assert "of 8 bytes goes past the end of `x`, to flags[2]: it has 512 bytes" in str(caught.value)
    with open(__file__) as source:
        number = next(n for n, text in enumerate(source, 1) if text.rstrip().endswith(line))
    assert caught.value.location.startswith(f"{__file__}:{number}:")


def test_before_the_beginning():
    @ditron.jit
    def write_flags(x, flags, index):
        tl.store(flags + index, 1)

    _call(write_flags, 0)
    with pytest.raises(ditron.SimulationError, match=r"goes before the beginning of `flags`, to x\[1, 31\]"):
        _call(write_flags, -33)


# Every other operation, each with the flags' memory as its goal; 98 is where flags[2] is, counted from x.


@ditron.jit
def wait(x, flags, index):
    dl.wait(x + index, 1, 0, cmp="ge")


@ditron.jit
def wait_until(x, flags, index):
    dl.signal_wait_until(x + index, 0, cmp="ge")


@ditron.jit
def fetch(x, flags, index):
    dl.signal_fetch(x + index)


@ditron.jit
def notify(x, flags, index):
    dl.notify(x + index, 1 - dl.rank())


@ditron.jit
def signal(x, flags, index):
    dl.signal_op(x + index, 1, 1 - dl.rank())


@ditron.jit
def load(x, flags, index):
    dl.ld(dl.symm_at(x, 1 - dl.rank()) + index, scope="node")


@ditron.jit
def store(x, flags, index):
    dl.st(dl.symm_at(x, 1 - dl.rank()) + index, 1, scope="node", semantic="relaxed")


@ditron.jit
def add(x, flags, index):
    dl.atomic_add(dl.symm_at(x, 1 - dl.rank()) + index, 1, scope="node")


@ditron.jit
def reduce(x, flags, index):
    dl.red(dl.symm_at(x, 1 - dl.rank()) + index, 1, scope="node")


@ditron.jit
def compare(x, flags, index):
    dl.atomic_cas(dl.symm_at(x, 1 - dl.rank()) + index, 0, 1, scope="node")


@ditron.jit
def triton_add(x, flags, index):
    offsets = tl.arange(0, 4)
    tl.atomic_add(dl.symm_at(x, 1 - dl.rank()) + index + offsets, 1, mask=offsets < 1, scope="sys")


@ditron.jit
def triton_compare(x, flags, index):
    one = tl.full((), 1, tl.int64)
    tl.atomic_cas(dl.symm_at(x, 1 - dl.rank()) + index, one, one, scope="sys")


@ditron.jit
def put_to(x, flags, index):
    dl.putmem(x + index, flags, 8, 1 - dl.rank())


@ditron.jit
def put_from(x, flags, index):
    dl.putmem(flags + 8, x + index, 8, 1 - dl.rank())


@ditron.jit
def put_signal(x, flags, index):
    dl.putmem_signal(flags + 8, flags, 8, x + index, 1, 1 - dl.rank())


@ditron.jit
def get_to(x, flags, index):
    dl.getmem(x + index, flags, 8, 1 - dl.rank())


@ditron.jit
def get_from(x, flags, index):
    dl.getmem(flags + 8, x + index, 8, 1 - dl.rank())


@ditron.jit
def multimem_store(x, flags, index):
    halves = x.to(tl.pointer_type(tl.float32), bitcast=True)
    dl.multimem_st(dl.multicast_ptr(halves) + 2 * index, 1.0)


@ditron.jit
def multimem_load(x, flags, index):
    halves = x.to(tl.pointer_type(tl.float32), bitcast=True)
    tl.store(flags, dl.multimem_ld_reduce(dl.multicast_ptr(halves) + 2 * index).to(tl.int64))


@pytest.mark.parametrize(
    "kernel, what",
    [
        (wait, "wait"),
        (wait_until, "signal_wait_until"),
        (fetch, "signal_fetch"),
        (notify, "notify"),
        (signal, "signal_op"),
        (load, "ld"),
        (store, "st"),
        (add, "an atomic"),
        (reduce, "an atomic"),
        (compare, "an atomic"),
        (triton_add, "an atomic"),
        (triton_compare, "an atomic"),
        (put_to, "putmem"),
        (put_from, "putmem"),
        (put_signal, "putmem_signal"),
        (get_to, "getmem"),
        (get_from, "getmem"),
        (multimem_store, "multimem_st"),
        (multimem_load, "multimem_ld_reduce"),
    ],
)
def test_every_operation(kernel, what):
    _call(kernel, 63)
    with pytest.raises(ditron.SimulationError) as caught:
        _call(kernel, 98)
    assert caught.value.kind == "bounds"
    size = 4 if what.startswith("multimem") else 8
    assert f"{what} of {size} bytes goes past the end of `x`, to flags[2]: it has 512 bytes" in str(caught.value)
    lines, first = inspect.getsourcelines(kernel.fn)
    assert caught.value.location.startswith(f"{__file__}:{first + len(lines) - 1}:")


def _ordinary(kernel, index):
    def main():
        ditron.init()
        view = sim.current_world()
        x = torch.zeros(64, dtype=torch.int64)
        flags = view.alloc((64,), torch.int64, name="flags")
        view.barrier()
        if view.rank == 0:
            kernel[(1,)](x, flags, index)
        view.barrier()

    return sim.run(main, 2)


@ditron.jit
def own_load(x, flags, index):
    dl.ld(x + index)


@ditron.jit
def own_store(x, flags, index):
    dl.st(x + index, 1)


@ditron.jit
def own_add(x, flags, index):
    tl.atomic_add(x + index, 1)


@pytest.mark.parametrize("kernel", [wait, own_load, own_store, own_add, put_from, get_to])
def test_ordinary_memory(kernel):
    _ordinary(kernel, 63)
    with pytest.raises(ditron.SimulationError, match=r"past the end of `x`, to x\[64\]: its memory has 512") as caught:
        _ordinary(kernel, 64)
    assert caught.value.kind == "bounds"


def test_from_ordinary_memory_to_symmetric():
    """However far it is."""

    @ditron.jit
    def kernel(x, flags, STORE: tl.constexpr):
        offset = tl.cast(flags, tl.int64) - tl.cast(x, tl.int64)
        if STORE:
            tl.store(x + offset // 8, 1)
        else:
            tl.store(flags + 1, tl.load(x + offset // 8))

    def main(store):
        ditron.init()
        view = sim.current_world()
        flags = view.alloc((64,), torch.int64, name="flags")
        view.barrier()
        kernel[(1,)](torch.zeros(64, dtype=torch.int64), flags, store)

    with pytest.raises(ditron.SimulationError, match="a store of 8 bytes goes (past|before) .* of `x`"):
        sim.run(lambda: main(True), 2)
    with pytest.warns(UserWarning, match="a load of 8 bytes goes (past|before) .* of `x`"):
        sim.run(lambda: main(False), 2)


# --- where a pointer's tensor is not held, not known, or not reached -----------------------------------------------


@pytest.mark.parametrize(
    "index, where",
    [
        (64, r"past the end of `x`, to x\[2, 0\]"),
        (95, r"past the end of `x`, to x\[2, 31\]"),
        (-1, r"before the beginning of `x`, to 8 bytes before x\[0, 0\]"),
        (10**5, r"past the end of `x`, to x\[3125, 0\]"),
    ],
)
@pytest.mark.parametrize("kernel", [write_peer, notify, put_from])
def test_where_nothing_is(kernel, index, where):
    with pytest.raises(ditron.SimulationError, match=where):
        _call(kernel, index)


@ditron.jit
def other_ranks(x, HOW: tl.constexpr):
    peer = dl.symm_at(x, 2)
    if HOW == "store":
        tl.store(peer, 1)
    elif HOW == "load":
        tl.store(x, tl.load(peer))
    elif HOW == "atomic":
        tl.atomic_add(peer, 1, scope="sys")
    else:
        dl.st(peer, 1, scope="node", semantic="relaxed")


@pytest.mark.parametrize("how", ["store", "load", "atomic", "st"])
def test_a_rank_that_does_not_hold_it(how):
    def main():
        ditron.init()
        pairs = ditron.new_group([0, 1]), ditron.new_group([2, 3])
        x = ditron.symm_zeros(
            64 if pairs[0] else 16, dtype=torch.int64, name="x" if pairs[0] else "y", group=pairs[0] or pairs[1]
        )
        ditron.barrier()
        if ditron.rank() == 0:
            other_ranks[(1,)](x, how)
        ditron.barrier()

    with pytest.raises(ditron.SimulationError, match="rank 2 of the world does not hold `x`, which .* by ranks 0, 1"):
        sim.run(main, 4)


@ditron.jit
def both_peers(x, flags, index, HOW: tl.constexpr):
    i = tl.arange(0, 4)
    at = tl.where(i < 2, dl.symm_at(x, 0) + i * index, dl.symm_at(x, 1) + i)
    if HOW == "atomic":
        tl.atomic_add(at, 1, scope="sys")
    elif HOW == "st":
        dl.st(at, 1, scope="node", semantic="relaxed")
    else:
        tl.store(at, 1)


@pytest.mark.parametrize("how", ["atomic", "st", "store"])
def test_every_element_of_a_tile_for_several_ranks(how):
    """The lowest and the highest address are both right, in different ranks' memory."""

    def main():
        ditron.init()
        view = sim.current_world()
        x, flags = (view.alloc((64,), torch.int64, name=name) for name in ("x", "flags"))
        view.barrier()
        if view.rank == 0:
            both_peers[(1,)](x, flags, 98, how)

    with pytest.raises(ditron.SimulationError, match=r"past the end of `x`, to flags\[2\]"):
        sim.run(main, 2)


@ditron.jit
def one_of_two(x, y, index, HOW: tl.constexpr):
    at = x
    if index > 0:
        at = y
    if HOW == "notify":
        dl.notify(at + index, dl.rank())
    else:
        tl.store(at + index, 1)


@pytest.mark.parametrize("how", ["notify", "store"])
def test_a_tensor_that_the_kernel_was_not_given(how):
    def main(index):
        ditron.init()
        view = sim.current_world()
        x, y, hidden = (view.alloc((64,), torch.int64, name=name) for name in ("x", "y", "hidden"))
        view.barrier()
        one_of_two[(1,)](x, y, index, how)
        view.barrier()
        return hidden.sum().item() + x.sum().item()

    assert sim.run(lambda: main(63), 1) == [0]
    with pytest.raises(ditron.SimulationError, match=r"at hidden\[2\], which is no tensor of this launch"):
        sim.run(lambda: main(98), 1)


@ditron.jit
def leave(x, o, HOW: tl.constexpr):
    distance = (tl.cast(o, tl.int64) - tl.cast(x, tl.int64)) // 8
    if HOW == "store":
        tl.store(x + distance, 1)
    elif HOW == "atomic":
        tl.atomic_add(x + distance, 1)
    else:
        dl.getmem(x + distance, x, 8, 0)


@pytest.mark.parametrize("how", ["store", "atomic", "getmem"])
def test_from_symmetric_memory_to_ordinary(how):
    def main():
        ditron.init()
        x = sim.current_world().alloc((64,), torch.int64, name="x")
        leave[(1,)](x, torch.zeros(64, dtype=torch.int64), how)

    with pytest.raises(ditron.SimulationError, match="leaves `x` for an address that is not symmetric") as caught:
        sim.run(main, 1)
    assert caught.value.kind == "bounds"


@ditron.jit
def far(x, index, o, HOW: tl.constexpr):
    if HOW == "store":
        tl.store(dl.symm_at(x, 1 - dl.rank()) + index, 1)
    else:
        tl.store(o, tl.load(dl.symm_at(x, 1 - dl.rank()) + index))


@pytest.mark.parametrize("how, index", [("store", 4096), ("load", 4096), ("store", -4096)])
def test_another_nodes_memory(how, index):
    def main():
        ditron.init()
        view = sim.current_world()
        x = view.alloc((8192,), torch.int64, name="x")
        view.barrier()
        far[(1,)](x, index, torch.zeros(1, dtype=torch.int64), how)

    with pytest.raises(ditron.SimulationError, match=rf"{8 * index} bytes from a null pointer, computed from `x`"):
        sim.run(main, 2, ranks_per_node=1)
