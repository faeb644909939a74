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
def notify(x, flags, index):
    dl.notify(x + index, 1, 1 - dl.rank())


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


@pytest.mark.parametrize("kernel, what", [
    (wait, "wait"), (wait_until, "signal_wait_until"), (notify, "notify"), (signal, "signal_op"), (load, "ld"),
    (store, "st"), (add, "an atomic"), (reduce, "an atomic"), (compare, "an atomic"), (triton_add, "an atomic"),
    (triton_compare, "an atomic"), (put_to, "putmem"), (put_from, "putmem"), (put_signal, "putmem_signal"),
    (get_to, "getmem"), (get_from, "getmem"), (multimem_store, "multimem_st"), (multimem_load, "multimem_ld_reduce"),
])
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
