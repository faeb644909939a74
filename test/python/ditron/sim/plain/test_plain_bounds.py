"""Accesses beyond the tensor that they are meant for, in ordinary memory: stores are errors, loads are warned of."""

import warnings

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
from ditron import sim


@triton.jit
def shift(x, out, by, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, i < n)  # right
    tl.store(out + i + by, v, i < n)  # may be wrong


@triton.jit
def read_tiles(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i), i < n)  # the load has no mask


@triton.jit
def add_at(x, index):
    tl.atomic_add(x + index, 1.0)  # may be wrong


@triton.jit
def exchange(x, y, index):
    tl.store(y, tl.atomic_xchg(x + index, 1.0))  # may be another's


@triton.jit
def through_memory(pointers, out):
    x = tl.load(pointers).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(x + 5))


@triton.jit
def second_of_two(pair, index):
    tl.store(pair[1] + index, 1.0)  # may be wrong


@triton.jit
def copy_box(box, out, B: tl.constexpr):
    tl.store(out + tl.arange(0, B), box.load([0]))  # may be wrong


@triton.jit(noinline=True)
def put(at, value):
    tl.store(at, value)  # may be wrong


@triton.jit
def call(x, y, index):
    put(x + index, 1.0)


@triton.jit
def march(x, out, n, STEPS: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    total = tl.zeros([B], tl.float32)
    for _ in range(STEPS):
        total += tl.load(x + i)  # may be wrong
        x += B
    tl.store(out + i, total)


@triton.jit
def either(x, y, index, which):
    if which:
        at = x + index
    else:
        at = y + index
    tl.store(at, 1.0)  # of one or the other


def _line(words):
    with open(__file__) as source:
        return f"{__file__}:{next(n for n, line in enumerate(source, 1) if words in line)}:"


@pytest.fixture(params=["alone", "fast", "races"], autouse=True)
def run(request):
    """Calls a function in ``ditron.sim.triton()``; on a simulated rank without, and with races looked for."""

    def alone(call):
        with sim.triton():
            call()

    def on_a_rank(call):
        def main():
            with sim.triton():
                call()

        sim.run(main, 1, races=request.param == "races")

    return alone if request.param == "alone" else on_a_rank


def _wrong(run, call, line, *said):
    with pytest.raises(ditron.SimulationError) as caught:
        run(call)
    assert caught.value.kind == "bounds" and caught.value.location.startswith(_line(line))
    for words in said:
        assert words in str(caught.value)


def test_a_store_past_the_end(run):
    x, out = torch.randn(100), torch.zeros(100)
    run(lambda: shift[(2,)](x, out, 0, 100, B=64))
    assert torch.equal(x, out)
    _wrong(
        run,
        lambda: shift[(2,)](x, out, 1, 100, B=64),
        "tl.store(out + i + by",
        "a store of",
        "past the end of `out`, to out[100]: its memory has 400 bytes",
        "kernel shift, rank 0, program (1, 0, 0)",
    )


def test_a_store_before_the_beginning(run):
    x, out = torch.randn(64), torch.zeros(64)
    _wrong(
        run,
        lambda: shift[(1,)](x, out, -3, 64, B=64),
        "tl.store(out + i + by",
        "before the beginning of `out`, to out[-3]",
    )


def test_a_load_is_a_warning(run):
    x, out = torch.randn(100), torch.zeros(100)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run(lambda: [read_tiles[(2,)](x, out, 100, B=64) for _ in range(3)])
    assert torch.equal(x, out)
    texts = {str(warning.message) for warning in told if "memory has" in str(warning.message)}
    assert len(texts) == 1 and "a load of" in texts.pop()
    assert f"{told[0].filename}:{told[0].lineno}:" == _line("the load has no mask")


def test_views_of_one_allocation(run):
    """What lies before and behind a view is its allocation's: kernels move pointers there."""
    memory = torch.zeros(300)
    x, out = torch.randn(100), memory[100:200]
    run(lambda: (shift[(2,)](x, out, 100, 100, B=64), shift[(2,)](x, out, -100, 100, B=64)))
    assert torch.equal(memory, torch.cat((x, torch.zeros(100), x)))
    _wrong(run, lambda: shift[(2,)](x, out, -101, 100, B=64), "tl.store(out + i + by", "to out[-101]")


def test_an_atomic(run):
    x = torch.zeros(4)
    run(lambda: add_at[(3,)](x, 3))
    assert x.tolist() == [0, 0, 0, 3]
    _wrong(run, lambda: add_at[(1,)](x, 4), "tl.atomic_add", "past the end of `x`, to x[4]")


def test_addresses_from_memory_may_be_anywhere(run):
    x, out = torch.randn(16), torch.zeros(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(lambda: through_memory[(1,)](torch.tensor([x.data_ptr()]), out))
    assert out[0] == x[5]


def test_an_address_of_no_tensor_may_be_anywhere(run):
    class Standin:
        """A package's own tensor, of which only the address and the type are known."""

        dtype = torch.float32

        def __init__(self, of):
            self.of = of

        def data_ptr(self):
            return self.of.data_ptr()

    x, out = torch.randn(64), torch.zeros(65)
    run(lambda: shift[(1,)](x, Standin(out), 1, 64, B=64))
    assert torch.equal(out[1:], x)


def test_tensors_of_tuples(run):
    pair = (torch.zeros(4), torch.zeros(4, dtype=torch.float16))
    run(lambda: second_of_two[(1,)](pair, 3))
    assert pair[1][3] == 1
    _wrong(run, lambda: second_of_two[(1,)](pair, 4), "tl.store(pair[1]", "of `pair[1]`, to pair[1][4]")


def test_tensors_of_descriptors(run):
    """A box may reach beyond its tensor; what its copy is stored to may not."""
    x, out = torch.randn(14), torch.zeros(16)
    run(lambda: copy_box[(1,)](TensorDescriptor.from_tensor(x, [16]), out, B=16))
    assert torch.equal(out[:14], x) and not out[14:].any()
    _wrong(
        run,
        lambda: copy_box[(1,)](TensorDescriptor.from_tensor(x, [16]), out[:15].clone(), B=16),
        "box.load([0])",
        "past the end of `out`, to out[15]",
    )


def test_an_empty_tensor_beside(run):
    x, out = torch.empty(0), torch.zeros(64)
    run(lambda: shift[(1,)](x, out, 1, 0, B=64))
    _wrong(run, lambda: shift[(1,)](torch.zeros(1), out, 64, 1, B=64), "tl.store(out + i + by", "to out[64]")


def test_from_one_tensor_into_another_one(run):
    """What is at the place may be right, for another argument."""
    memory = torch.zeros(64), torch.zeros(64)
    apart = (memory[1].data_ptr() - memory[0].data_ptr()) // 4
    assert apart
    _wrong(
        run, lambda: shift[(1,)](memory[1], memory[0], apart, 64, B=64), "tl.store(out + i + by", "of `out`, to out["
    )
    _wrong(
        run,
        lambda: exchange[(1,)](memory[0], memory[1], apart),
        "# may be another's",
        "an atomic of 4 bytes goes",
        "of `x`, to x[",
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run(lambda: march[(1,)](memory[0][:8], memory[1][:8], 8, STEPS=9, B=8))
    assert ["past the end of `x`, to x[" in str(w.message) for w in told if "memory has" in str(w.message)] == [True]


def test_what_may_be_one_of_several(run):
    """Then the memory of any of the launch's tensors will do."""
    x, y = torch.zeros(8), torch.zeros(8)
    run(lambda: (either[(1,)](x, y, 7, 1), either[(1,)](x, y, 0, 0)))
    assert x[7] == 1 and y[0] == 1
    _wrong(run, lambda: either[(1,)](x, y, 10**6, 1), "of one or the other", "]: its memory has 32 bytes")


def test_in_a_function_that_is_called(run):
    x, y = torch.zeros(8), torch.zeros(8)
    run(lambda: call[(1,)](x, y, 7))
    assert x[7] == 1
    _wrong(run, lambda: call[(1,)](x, y, 10**6), "tl.store(at, value)  # may be wrong", "]: its memory has 32 bytes")


def test_arguments_at_one_address(run):
    """Which one a pointer is made from decides, not where it points."""
    memory = torch.zeros(64)
    head = torch.from_numpy(memory.numpy()[:10])  # of which only this much is known
    assert head.data_ptr() == memory.data_ptr()
    run(lambda: (shift[(1,)](head, memory, 20, 10, B=16), shift[(1,)](memory, head, 0, 10, B=16)))
    _wrong(run, lambda: shift[(1,)](memory, head, 1, 10, B=16), "tl.store(out + i + by", "of `out`, to out[10]")
    _wrong(run, lambda: shift[(1,)](memory, memory, 55, 10, B=16), "tl.store(out + i + by", "of `out`, to out[64]")


def test_a_store_to_an_empty_tensor(run):
    _wrong(
        run,
        lambda: shift[(1,)](torch.zeros(4), torch.empty(0), 0, 4, B=4),
        "tl.store(out + i + by",
        "a store through a null pointer",
        "a tensor without elements is null",
    )
