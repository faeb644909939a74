"""Wrong use of a primitive raises at the user's line, says what is wrong and what to do."""

import linecache
import os

import pytest
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

import ditron
import ditron.language as dl
from ditron_compiler.frontend.diagnostics import explained

CASES = []


def wrong(message, **signature):
    """Register a kernel that must fail with ``message`` at its line that ends in ``# here``."""

    def decorate(fn):
        kernel = ditron.jit(fn, example=dict(signature={"x": "*fp32", "sig": "*i64", "n": "i32"} | signature))
        CASES.append(pytest.param(kernel, message, id=fn.__name__))
        return kernel

    return decorate


@wrong("scope must be one of 'gpu', 'node', 'world', got 'system'")
def unknown_scope(x, sig, n):
    dl.wait(sig, scope="system")  # here


@wrong("iterations must be from 1 to 65535, got 0")
def loaded_no_iteration_ahead(x, sig, n):
    for i in range(n):
        dl.load_ahead(tl.load(x + i), 0)  # here


@wrong("iterations must be an integer at compile time, got a scalar of type int32")
def loaded_ahead_as_data_says(x, sig, n):
    for i in range(n):
        dl.load_ahead(tl.load(x + i), n)  # here


@wrong("value must be what a load returns, got 3")
def a_number_loaded_ahead(x, sig, n):
    for _ in range(n):
        dl.load_ahead(3, 2)  # here


@wrong("value must be what a load returns, got a scalar of type pointer<fp32>")
def a_pointer_loaded_ahead(x, sig, n):
    for _ in range(n):
        dl.load_ahead(x, 2)  # here


@wrong("semantic must be one of 'relaxed', 'acquire', got 'release'")
def wrong_semantic(x, sig, n):
    dl.ld(x, semantic="release")  # here


@wrong("semantic must be one of 'relaxed', 'acquire', 'release', 'acq_rel', got 'seq_cst'")
def unknown_semantic(x, sig, n):
    dl.signal_fetch(sig, semantic="seq_cst")  # here


@wrong("ptr must point to 64-bit signals, got pointer<fp32>: allocate signals with dtype=torch.int64")
def fetch_of_data(x, sig, n):
    dl.signal_fetch(x)  # here


@wrong("op must be one of 'set', 'add', got a scalar of type int32")
def runtime_enum(x, sig, n):
    dl.notify(sig, 1, op=n)  # here


@wrong("ptr must be a pointer, got a scalar of type int32")
def not_a_pointer(x, sig, n):
    dl.wait(n)  # here


@wrong("ptr must be one pointer, got a tensor of pointers")
def many_pointers(x, sig, n):
    dl.wait(sig + tl.arange(0, 4))  # here


@wrong("must point to 64-bit signals, got pointer<int32>: allocate signals with dtype=torch.int64", sig="*i32")
def narrow_signal(x, sig, n):
    dl.notify(sig, 0)  # here


@wrong("must point to 64-bit signals, got pointer<fp32>")
def signal_of_floats(x, sig, n):
    dl.putmem_signal(x, x, 4, x, 1, 0)  # here


@wrong("token must be what dl.wait returned, got 3")
def constant_token(x, sig, n):
    tl.load(dl.consume_token(x, 3))  # here


@wrong("token must be what dl.wait returned, got a scalar of type int32")
def number_as_token(x, sig, n):
    tl.load(dl.consume_token(x, n))  # here


@wrong("value must be a pointer, a scalar, a tensor or a tensor descriptor, got a token")
def token_as_value(x, sig, n):
    token = dl.wait(sig)
    dl.consume_token(token, token)  # here


@wrong("unsupported operand type")
def token_in_arithmetic(x, sig, n):
    token = dl.wait(sig)
    tl.store(x, token + 1)  # here


@wrong("nbytes must be at least 0, got -4")
def negative_bytes(x, sig, n):
    dl.putmem(x, x, -4, 0)  # here


@wrong("nbytes must be a multiple of the 4 bytes of a fp32, got 7 (it counts bytes, not elements)")
def odd_bytes(x, sig, n):
    dl.putmem(x, x, 7, 0)  # here


@wrong("nbytes must be an integer scalar, got a scalar of type fp32")
def float_bytes(x, sig, n):
    dl.getmem(x, x, n * 1.5, 0)  # here


@wrong("rank must be an integer scalar, got 1.5")
def float_rank(x, sig, n):
    dl.symm_at(x, 1.5)  # here


@wrong("rank must be integers of at most 32 bits, got a tensor of type int64[16]")
def wide_ranks(x, sig, n):
    dl.symm_at(x, tl.arange(0, 16).to(tl.int64))  # here


@wrong("rank must be integers of at most 32 bits, got a tensor of type fp32[16]")
def float_ranks(x, sig, n):
    dl.symm_at(x, tl.arange(0, 16).to(tl.float32))  # here


@wrong("Cannot make_shape_compatible: incompatible dimensions at index 0: 8 and 16")
def ranks_of_another_shape(x, sig, n):
    dl.symm_at(x + tl.arange(0, 8), tl.arange(0, 16))  # here


@wrong("rank must be at least 0, got -1")
def negative_rank(x, sig, n):
    dl.notify(sig, -1)  # here


@wrong("count must fit in 32 bits, got 4294967296")
def large_count(x, sig, n):
    dl.wait(sig, 4294967296)  # here


@wrong(
    "rank must be an integer of at most 32 bits, got a scalar of type int64, whose upper bits would be lost; if "
    "they are never used, convert it: rank.to(tl.int32)",
    n="i64",
)
def wide_rank(x, sig, n):
    dl.notify(sig, n)  # here


@wrong("count must be an integer of at most 32 bits, got a scalar of type int64", n="i64")
def wide_count(x, sig, n):
    dl.wait(sig, n)  # here


@wrong("rank must be an integer of at most 32 bits, got a scalar of type uint64", n="u64")
def wide_rank_of_a_copy(x, sig, n):
    dl.putmem(x, x, 4, n)  # here


@wrong("nbi must be True or False at compile time, got a scalar of type int1")
def runtime_flag(x, sig, n):
    dl.putmem(x, x, 4, 0, nbi=n > 3)  # here


@wrong("dst is written to, and is a pointer to constant data", x="*kfp32")
def constant_destination(x, sig, n):
    dl.putmem(x, x, 4, 0)  # here


@wrong("value is a tensor of type fp32[8], and ptr is one pointer: give a tensor of pointers")
def tensor_to_one_pointer(x, sig, n):
    dl.st(x, tl.zeros([8], tl.float32))  # here


@wrong("ptr must point to float32, float16, bfloat16", x="*i32")
def multimem_of_integers(x, sig, n):
    dl.multimem_ld_reduce(x)  # here


@wrong("pred must be a bool scalar (a comparison), got a scalar of type int32")
def ballot_of_numbers(x, sig, n):
    dl.ballot(n)  # here


@wrong("dl.expect: condition must be a bool scalar (a comparison), got a scalar of type int32")
def expected_number(x, sig, n):
    dl.expect(n, 0.5)  # here


@wrong("dl.expect: condition must be a bool scalar (a comparison), got a tensor of type int1[8]")
def expected_tile(x, sig, n):
    dl.expect(tl.load(x + tl.arange(0, 8)) > 0, 0.5)  # here


@wrong("dl.expect: probability must be from 0 to 1, got 1.5")
def expected_too_often(x, sig, n):
    dl.expect(n > 0, 1.5)  # here


@wrong("dl.expect: probability must be from 0 to 1, got -0.25")
def expected_less_than_never(x, sig, n):
    dl.expect(n > 0, -0.25)  # here


@wrong("dl.expect: probability must be a number at compile time, got a scalar of type fp32")
def expected_as_often_as_loaded(x, sig, n):
    dl.expect(n > 0, tl.load(x))  # here


@wrong("dl.expect: probability must be a number at compile time, got True")
def expected_true(x, sig, n):
    dl.expect(n > 0, True)  # here


@wrong("dl.expect: uniform must be True or False at compile time, got a scalar of type int1")
def uniform_at_run_time(x, sig, n):
    dl.expect(n > 0, 0.5, uniform=n > 1)  # here


@wrong("value must be an int32, int64 or float32 scalar")
def shuffled_tensor(x, sig, n):
    dl.shfl(tl.arange(0, 8), 0)  # here


@wrong("mode must be one of 'gather', 'scatter', got 'zigzag'")
def unknown_swizzle(x, sig, n):
    dl.swizzle(n, 1024, 32, mode="zigzag")  # here


@wrong("result must be a dtype such as tl.int32, or None, got 'int32'")
def extern_result(x, sig, n):
    dl.extern_call("f", [n], "int32")  # here


@wrong("unexpected keyword argument 'ranks'")
def unknown_argument(x, sig, n):
    dl.notify(sig, ranks=3)  # here


@triton.jit
def wrong_helper(p):
    return dl.wait(p, scope="system")


@wrong("scope must be one of 'gpu', 'node', 'world', got 'system'")
def in_a_helper(x, sig, n):
    tl.store(x, 1.0)
    wrong_helper(sig)  # here


@triton.jit
def recursive_helper(p, n):
    if n > 0:
        recursive_helper(p, n - 1)  # there
    tl.store(p, n)


@ditron.jit(example=dict(signature={"x": "*i32", "n": "i32"}))
def recursion(x, n):
    recursive_helper(x, n)


@ditron.jit(example=dict(signature={"x": "*i32", "n": "i32"}))
def recursive_kernel(x, n):
    recursive_kernel(x, n)  # there


@pytest.mark.parametrize("kernel, name", [(recursion, "recursive_helper"), (recursive_kernel, "recursive_kernel")])
def test_recursion(kernel, name):
    with pytest.raises(CompilationError) as caught:
        ditron.compile(kernel, stop_after="ditron")
    explanation = explained(caught.value)
    assert explanation.message == f"{name} calls itself, and kernels have no recursion: write it as a loop"
    assert linecache.getline(explanation.file, explanation.line).rstrip().endswith("# there")


@pytest.mark.parametrize("kernel, message", CASES)
def test_wrong_use(kernel, message):
    with pytest.raises(CompilationError) as caught:
        ditron.compile(kernel, stop_after="ditron")
    explanation = explained(caught.value)
    assert message in explanation.message
    assert explanation.file == __file__
    line = linecache.getline(explanation.file, explanation.line)
    if "helper" in kernel.__name__:
        assert 'dl.wait(p, scope="system")' in line
        ((file, number, _, text),) = explanation.notes
        assert (file, text) == (__file__, "called from here")
        line = linecache.getline(file, number)
    assert line.rstrip().endswith("# here")
    # Python's own traceback tells it too.
    assert any(message in note for note in caught.value.__notes__)


def an_unknown_primitive(sig):
    dl.notfy(sig, 0)  # here


def a_function_of_the_host(sig):  # here
    os.getcwd()


@pytest.mark.parametrize(
    "kernel, message",
    [
        (an_unknown_primitive, "module 'ditron.language' has no attribute 'notfy'"),
        (a_function_of_the_host, "Unsupported function referenced: <built-in function getcwd>"),
    ],
)
def test_what_is_no_kernel(kernel, message):
    with pytest.raises(ditron.CompileError, match=message) as caught:
        ditron.compile(ditron.jit(kernel), stop_after="ditron", signature={"sig": "*i64"})
    assert caught.value.file == __file__
    assert linecache.getline(__file__, caught.value.line).rstrip().endswith("# here")


@ditron.jit(example=dict(signature={"x": "*fp32", "n": "i32"}))
def misaligned_pointer(x, n):
    dl.symm_at(dl.symm_at(x, n) + 0, n + 1)
    dl.putmem(dl.symm_at(x, n), x, 4, n)  # here


def test_verifier_errors_point_at_the_line():
    """What only the dialect's verifier can see is a CompileError with place and caret."""
    with pytest.raises(ditron.CompileError) as caught:
        ditron.compile(misaligned_pointer, stop_after="ditron")
    error = caught.value
    assert error.file == __file__
    assert linecache.getline(error.file, error.line).rstrip().endswith("# here")
    shown = str(error).splitlines()
    assert shown[0].startswith(f"{__file__}:{error.line}:")
    assert shown[1].lstrip().startswith("dl.putmem(")
    assert shown[2].index("^") == shown[1].index("dl.putmem")


@triton.jit
def plain(x):
    tl.store(x, dl.rank())


def test_plain_triton_kernel_is_told_to_use_ditron():
    src = triton.compiler.ASTSource(plain, {"x": "*fp32"})
    with pytest.raises(CompilationError, match="decorate the kernel with @ditron.jit instead of @triton.jit"):
        triton.compile(src, target=triton.backends.compiler.GPUTarget("cuda", 90, 32))


def test_outside_of_a_kernel():
    with pytest.raises(RuntimeError, match="dl.rank was called outside of a kernel"):
        dl.rank()


@triton.jit(noinline=True)
def not_inlined(sig):
    dl.notify(sig, 0)


@ditron.jit(example=dict(signature={"sig": "*i64"}))
def calls_not_inlined(sig):
    not_inlined(sig)


def test_primitive_in_a_function_that_is_called():
    with pytest.raises(ditron.CompileError, match="remove noinline=True from the helper"):
        ditron.compile(calls_not_inlined, stop_after="ditron")
