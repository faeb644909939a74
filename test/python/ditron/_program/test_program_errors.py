"""What a program cannot do, and the errors that say so at the user's line."""

from pathlib import Path

import paths
import pytest
import torch
import triton
import triton.language as tl
from fake_gpu import fake_gpu
from traced_programs import scale, trace, wait_for

import ditron
import ditron.host as dh
from ditron import CompileError, DitronError

HERE = Path(__file__)


def line_of(comment: str) -> int:
    return next(i for i, text in enumerate(HERE.read_text().splitlines(), 1) if text.endswith(f"# {comment}"))


def compile_error(fn, *arguments, **constants) -> CompileError:
    with pytest.raises(CompileError) as caught:
        trace(fn, *arguments, **constants)
    return caught.value


def wrong_if(x, out):
    if dh.rank() == 0:  # <- wrong_if: use 'with dh.when
        dh.copy(x, out)


def wrong_and(x, out):
    both = dh.rank() == 0 and dh.num_ranks() > 1  # <- wrong_and: & | ~
    dh.where(both, 1, 2)


def wrong_range(x, out):
    for _ in range(dh.num_ranks()):  # <- wrong_range: use 'for i in dh.range
        dh.copy(x, out)


def wrong_min(x, out):
    return min(dh.rank(), 3)  # <- wrong_min: dh.minimum


def wrong_division(x, out):
    return x.shape[0] / 2  # <- wrong_division: use '//'


def wrong_zero(x, out):
    return x.shape[0] % 0  # <- wrong_zero: division by zero


def wrong_power(x, out):
    return 2 ** dh.rank()  # <- wrong_power: a power of two: 1 << n


def wrong_float(x, out):
    return x.shape[0] * 0.5  # <- wrong_float: let a kernel compute with floats


def wrong_rounding(x, out):
    return round(x.shape[0])  # <- wrong_rounding: '//' rounds down


def wrong_shift(x, out):
    return x.shape[0] << -1  # <- wrong_shift: a shift by 0 to 62 bits, got -1


def wrong_part(x, out):
    dh.copy(x[:, 3:1], out[:, 3:1])  # <- wrong_part: ends before it begins: 3:1 of dimension 1


def wrong_no_grid(x, out):
    scale(x, out, 3, 1.0, BLOCK=64)  # <- wrong_no_grid: without a grid: write scale[grid](...)


def wrong_complex(x, out):
    dh.empty(4, dtype=torch.complex64)  # <- wrong_complex: no memory of torch.complex64; it has bfloat16


def wrong_without_with(x, out):
    dh.when(dh.rank() == 0)  # <- wrong_without_with: write 'with dh.when
    dh.copy(x, out)


def wrong_last_without_with(x, out):
    dh.copy(x, out)
    dh.when(dh.rank() == 0)  # <- wrong_last_without_with: write 'with dh.when


def wrong_range_unused(x, out):
    dh.range(dh.num_ranks())  # <- wrong_range_unused: iterate over it
    dh.copy(x, out)


def wrong_carried(x, out):
    box, peer = dh.symm_empty(*x.shape, dtype=x.dtype), dh.rank()
    for _ in dh.range(dh.num_ranks()):
        dh.rank_copy(x, box, peer)  # <- wrong_carried: carried from one iteration to the next
        peer = (peer + 1) % dh.num_ranks()


def wrong_counter(x, out):
    box, steps = dh.symm_empty(*x.shape, dtype=x.dtype), []
    for _ in dh.range(dh.num_ranks()):  # <- wrong_counter: must be the same operations
        steps.append(0)
        dh.rank_copy(x, box, len(steps))


def wrong_break(x, out):
    for _ in dh.range(dh.num_ranks()):  # <- wrong_break: left by break
        dh.copy(x, out)
        break
    dh.copy(x, out)


def wrong_after_loop(x, out):
    box = dh.symm_empty(*x.shape, dtype=x.dtype)
    for step in dh.range(dh.num_ranks()):
        peer = step + 1
    dh.rank_copy(x, box, peer)  # <- wrong_after_loop: nor out of the loop


def wrong_reassigned(x, out):
    box, peer = dh.symm_empty(*x.shape, dtype=x.dtype), 3
    with dh.when(dh.rank() == 0):  # <- wrong_reassigned: 'peer' is reassigned
        peer = 4
    dh.rank_copy(x, box, peer)


def wrong_event(x, out):
    with dh.when(dh.rank() == 0):
        event = dh.record()
    dh.await_event(event, dh.stream("other"))  # <- wrong_event: used outside of it


def wrong_local(x, out):
    dh.rank_copy(x, out, 1)  # <- wrong_local: must be symmetric memory


def wrong_pull(x, out):
    dh.rank_copy(x, out, 1, pull=True)  # <- wrong_pull: src must be symmetric memory


def wrong_shapes(x, out):
    dh.copy(x[0], out)  # <- wrong_shapes: one shape and dtype


def wrong_alloc_in_loop(x, out):
    for _ in dh.range(3):
        dh.symm_empty(4, dtype=torch.int64)  # <- wrong_alloc_in_loop: in a loop or a branch


def wrong_name_twice(x, out):
    dh.empty(4, dtype=torch.int64, name="mine")
    dh.empty(4, dtype=torch.int64, name="mine")  # <- wrong_name_twice: is used twice


def wrong_name(x, out):
    dh.symm_zeros(4, dtype=torch.int64, name=-1)  # <- wrong_name: expected a string as name


def wrong_stream(x, out):
    dh.stream(3)  # <- wrong_stream: expected a name


def wrong_dtype(x, out):
    dh.empty(4, dtype="float")  # <- wrong_dtype: expected a torch dtype


def wrong_signal_dtype(x, out):
    dh.signal_wait(dh.symm_zeros(4, dtype=torch.int32)[0], 1)  # <- wrong_signal_dtype: must be 64-bit


def wrong_signal_part(x, out):
    dh.signal_wait(dh.symm_zeros(4, dtype=torch.int64), 1)  # <- wrong_signal_part: must be one signal


def wrong_cmp(x, out):
    dh.signal_wait(dh.symm_zeros(4, dtype=torch.int64)[0], 1, cmp=">=")  # <- wrong_cmp: cmp must be one of 'eq'


def wrong_step(x, out):
    dh.copy(x[::2], out)  # <- wrong_step: has no step


def wrong_bound(x, out):
    dh.copy(x[dh.rank() : (dh.rank() + 1) < 4], out)  # <- wrong_bound: from an integer to an integer


def wrong_index_order(x, out):
    dh.copy(x[:, 1], out[0])  # <- wrong_index_order: rows are chosen first


def wrong_tensor(x, out):
    dh.copy(torch.zeros(3), out)  # <- wrong_tensor: pass it to the program as an argument


def wrong_kernel_tensor(x, out):
    scale[(1,)](torch.zeros(3), out, 3, 1.0, BLOCK=64)  # <- wrong_kernel_tensor: pass it to the program as an argument


def wrong_kernel_arguments(x, out):
    scale[(1,)](x, out, 3, BLOCK=64)  # <- wrong_kernel_arguments: missing 1 required positional argument


def wrong_kernel_option(x, out):
    scale[(1,)](x, out, 3, 1.0, BLOCK=64, warps=3)  # <- wrong_kernel_option: warps


def wrong_kernel_float(x, out):
    scale[(1,)](x, out, 3, dh.where(dh.rank() == 0, 1.5, 2.5), BLOCK=64)  # <- wrong_kernel_float: must be an integer


def wrong_constexpr(x, out):
    scale[(1,)](x, out, 3, 1.0, BLOCK=x.shape[0])  # <- wrong_constexpr: 'BLOCK' is a constexpr of the kernel


def wrong_constexpr_by_place(x, out):
    scale[(1,)](x, out, 3, 1.0, dh.num_ranks())  # <- wrong_constexpr_by_place: a keyword-only parameter of the program


def wrong_constexpr_condition(x, out):
    scale[(1,)](x, out, 3, 1.0, BLOCK=dh.rank() == 0)  # <- wrong_constexpr_condition: 'BLOCK' is a constexpr


def wrong_constexpr_tuple(x, out):
    scale[(1,)](x, out, 3, 1.0, BLOCK=(1, (dh.rank(),)))  # <- wrong_constexpr_tuple: 'BLOCK' is a constexpr


def wrong_symbolic_option(x, out):
    scale[(1,)](x, out, 3, 1.0, BLOCK=64, num_warps=dh.rank())  # <- wrong_symbolic_option: 'num_warps' is an option


def wrong_option(x, out):
    scale[(1,)](x, out, 3, 1.0, BLOCK=64, num_warps=3)  # <- wrong_option: num_warps must be a power of 2


def wrong_grid(x, out):
    scale[(1, 1, 1, 1)](x, out, 3, 1.0, BLOCK=64)  # <- wrong_grid: one to three extents


def wrong_plain_kernel(x, out):
    with fake_gpu():
        plain[(1,)](x, out, 3)  # <- wrong_plain_kernel: decorated by @ditron.jit


@triton.jit
def plain(x_ptr, out_ptr, n):
    tl.store(out_ptr, tl.load(x_ptr) + n)


def wrong_nested_program(x, out):
    nested(x, out)  # <- wrong_nested_program: cannot call another one


@ditron.program
def nested(x, out):
    dh.copy(x, out)


WRONG = {name: value for name, value in list(globals().items()) if name.startswith("wrong_")}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs_are_told_so_at_their_line(name):
    line, text = next((i, text) for i, text in enumerate(HERE.read_text().splitlines(), 1) if f"# <- {name}: " in text)
    if name == "wrong_nested_program":
        ditron.sim.run(lambda: _check(name, line, text), ranks=1)
    else:
        _check(name, line, text)


def _check(name, line, text):
    if name == "wrong_nested_program":
        ditron.init()
    error = compile_error(WRONG[name])
    assert (error.file, error.line) == (str(HERE), line), error
    told = " ".join([error.message, *(note for *_, note in error.notes)])
    assert text.split(f"# <- {name}: ")[1] in told, error


def test_a_kernel_that_does_not_compile_names_its_line_and_the_launchs():
    def odd_block(x, out):
        scale[(1,)](x, out, 3, 1.0, BLOCK=48)  # odd block

    def number_for_pointer(x, out):
        scale[(1,)](1.5, out, 3, 1.0, BLOCK=64)  # number for pointer

    def signal_of_floats(x, out):
        wait_for[(1,)](x, 1)  # signal of floats

    kernels = paths.ROOT / "test/python/support/traced_programs.py"
    arange, load, wait = (
        next(i for i, text in enumerate(kernels.read_text().splitlines(), 1) if part in text)
        for part in ("offsets = tl.program_id(0)", "tl.store(out_ptr + offsets", "dl.wait(")
    )
    for function, line, message, launch in [
        (odd_block, arange, "power of 2", "odd block"),
        (number_for_pointer, load, "Unsupported ptr type", "number for pointer"),
        (signal_of_floats, wait, "", "signal of floats"),
    ]:
        error = compile_error(function)
        assert (error.file, error.line) == (str(kernels), line) and message in str(error), error
        assert error.notes[-1][:2] == (str(HERE), line_of(launch)) and "is launched here" in error.notes[-1][3], error


def a_generator(x, out):
    yield dh.rank()


async def a_coroutine(x, out):
    dh.copy(x, out)


@pytest.mark.parametrize("function", [a_generator, a_coroutine])
def test_a_program_is_a_plain_function(function):
    with pytest.raises(CompileError, match="is a generator or async, whose body does not run") as caught:
        ditron.program(function)
    assert (caught.value.file, caught.value.line) == (str(HERE), function.__code__.co_firstlineno)


def test_a_kernel_without_a_grid_outside_of_a_program():
    with pytest.raises(DitronError, match=r"'scale' is called without a grid: write scale\[grid\]"):
        scale(torch.zeros(3), torch.zeros(3), 3, 1.0, BLOCK=64)


def test_a_tensor_of_a_dtype_that_programs_do_not_have():
    program = ditron.program(lambda x, out: dh.copy(x, out))
    with pytest.raises(DitronError, match="argument 'out' is of torch.complex64, and its tensors may be of bfloat16"):
        program.module(torch.zeros(3), torch.zeros(3, dtype=torch.complex64))


def test_passes_and_numbers_of_nodes_that_there_are_not():
    def copies(x, out):
        dh.copy(x, out)

    for passes, message in [
        (("nonsense",), "there is no pass 'nonsense'"),
        (("eliminate-copys",), "there is no pass 'eliminate-copys'; did you mean 'eliminate-co"),
        (("eliminate-copies{x=3}",), "no such option x"),
    ]:
        with pytest.raises(CompileError, match=f"passes= of program 'copies': .*{message}") as caught:
            ditron.program(copies, passes=passes).module("f32[4]", "f32[4]")
        assert (caught.value.file, caught.value.line) == (str(HERE), copies.__code__.co_firstlineno)
    for number in (0, 1.5, "1"):
        with pytest.raises(CompileError, match="max_nodes must be a number from 1"):
            ditron.program(copies, max_nodes=number)
    with pytest.raises(CompileError, match="do_not_specialize names 'y', and its positional parameters are x, out"):
        ditron.program(copies, do_not_specialize=("x", "y"))


def test_a_program_returns_nothing():
    def returns(x, out):
        return out

    assert "returns a value" in str(compile_error(returns))


def test_an_error_of_the_function_is_its_own():
    def fails(x, out):
        for _ in dh.range(3):
            with dh.when(dh.rank() == 0):
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(fails)
    trace(lambda x, out: dh.copy(x, out))  # and nothing is left behind


@pytest.mark.parametrize("call", [lambda: dh.rank(), lambda: dh.stream("copy"), lambda: dh.when(True)])
def test_outside_of_a_program(call):
    with pytest.raises(CompileError, match="called outside of a program"):
        call()


def test_arguments():
    def first(x, out, *, block=3):
        dh.copy(x, out)

    program = ditron.program(first)

    def main():
        ditron.init()
        x = torch.zeros(3)
        for arguments, constants, message in [
            ((x,), {}, "missing a required argument: 'out'"),
            ((x, x, x), {}, r"'first'\(x, out, \*, block=3\): too many positional arguments; got 3"),
            (
                (x, "text"),
                {},
                "argument 'out' must be a tensor, an integer, a float, None, or a tuple or list of those",
            ),
            ((x, [x, {}]), {}, r"argument 'out.1' must be a tensor"),
            ((x, None), {}, "dst must be a buffer, got None"),
            ((x, x), {"block": [1]}, "must be hashable"),
            ((x, x), {"blocks": 1}, "unexpected keyword"),
        ]:
            with pytest.raises(DitronError, match=message):
                program(*arguments, **constants)

    ditron.sim.run(main, ranks=1)
    with pytest.raises(DitronError, match="before ditron.init"):
        program(torch.zeros(3), torch.zeros(3))
    with pytest.raises(DitronError, match="has no example"):
        program.module()
    with pytest.raises(DitronError, match="expected a tensor as"):
        program.module("f32", "f32[3]")
    with pytest.raises(CompileError, match="has \\*args"):
        ditron.program(lambda *args: None)
