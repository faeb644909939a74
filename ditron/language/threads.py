"""The threads of a program, how often it takes a branch, and calls to functions of the user's own device library.

On the simulator a program is one thread: ``thread_id() == 0``, ``num_threads() == 1``, ``shfl`` and ``ballot`` give
back what they are given.
"""

from __future__ import annotations

import json

from triton.language import core as tl

from ditron.language._core import attributes, describe, emit, emit_void, enum, flag, integer, primitive, text

__all__ = ["ballot", "expect", "extern_call", "lane_id", "num_threads", "shfl", "sync_threads", "thread_id", "warp_id"]


@primitive
def thread_id(_semantic=None):
    """This thread's number in the program, as an int32 "scalar" that differs between threads.

    Use it to let one thread do something by an extern call; Triton takes scalars to be the same in all threads, so it
    must not decide about control flow around Triton's own operations.
    """
    return emit("thread_id", [], tl.int32, _semantic, pure=True)


@primitive
def num_threads(_semantic=None):
    """How many threads the program has, as an int32 scalar: ``num_warps`` times the warp size."""
    return emit("num_threads", [], tl.int32, _semantic, pure=True)


@primitive
def lane_id(_semantic=None):
    """This thread's number in its warp (AMD: wavefront), as an int32 "scalar"; see :func:`thread_id`."""
    return emit("lane_id", [], tl.int32, _semantic, pure=True)


@primitive
def warp_id(_semantic=None):
    """The number of this thread's warp in the program, as an int32 "scalar"; see :func:`thread_id`."""
    return emit("warp_id", [], tl.int32, _semantic, pure=True)


@primitive
def sync_threads(_semantic=None):
    """Wait until all threads of the program have come here and see each other's writes."""
    emit_void("sync_threads", [], _semantic)


@primitive
def shfl(value, lane, mode="idx", _semantic=None):
    """Another lane's ``value``.

    Args:
        value: int32, int64 or float32 scalar.
        lane: which lane (``"idx"``), how many lanes up or down, or the mask to xor with (``"bfly"``); int scalar.
        mode: ``"idx"``, ``"up"``, ``"down"`` or ``"bfly"``.
    """
    value = _semantic.to_tensor(value)
    if value.type.is_block() or str(value.dtype) not in ("int32", "uint32", "int64", "uint64", "fp32"):
        raise TypeError(f"dl.shfl: value must be an int32, int64 or float32 scalar, got {describe(value)}")
    lane = integer("shfl", lane, "lane", tl.int32, _semantic, minimum=0)
    return emit("shfl", [value, lane], value.type, _semantic, attributes(mode=enum("shfl", mode, "shfl_mode", "mode")))


@primitive
def ballot(pred, _semantic=None):
    """A bit for each lane of the warp, set where ``pred`` (a bool scalar) is true; int64 scalar."""
    pred = _semantic.to_tensor(pred)
    if pred.type.is_block() or not pred.dtype.is_int1():
        raise TypeError(f"dl.ballot: pred must be a bool scalar (a comparison), got {describe(pred)}")
    return emit("ballot", [pred], tl.int64, _semantic)


@primitive
def expect(condition, probability, uniform=False, _semantic=None):
    """``condition``, which is true with ``probability``: for predictions without data.

    It returns the condition and is no instruction, on GPUs and wherever data is computed. In timing-only mode there
    is no floating-point data: a condition that depends on it is drawn, true with that probability, and always the same
    for one seed, program and how often that has come here. Conditions of integers are computed there, too.

    Args:
        condition: bool scalar (a comparison).
        probability: how often it is true, from 0 to 1, known at compile time. Of a loop below 1: ``while`` with
            1 - 1/n has n iterations on average, counting the one that ends it.
        uniform: it is the same in every program of every rank, as one of data that was all-reduced: then all draw the
            same. Otherwise each program draws for itself.

    LLVM: ``llvm.expect.with.probability``; compilers of C: ``__builtin_expect_with_probability``. ``tl.assume(c)`` is
    another thing: there the compiler may rely on c, and the kernel is wrong where it is false.

        if dl.expect(tl.max(x) > limit, 0.05):
            rescale(...)
    """
    condition = _semantic.to_tensor(condition)
    if condition.type.is_block() or not condition.dtype.is_int1():
        raise TypeError(f"dl.expect: condition must be a bool scalar (a comparison), got {describe(condition)}")
    often = tl._unwrap_if_constexpr(probability)
    if isinstance(often, bool) or not isinstance(often, (int, float)):
        raise TypeError(f"dl.expect: probability must be a number at compile time, got {describe(often)}")
    if not 0 <= often <= 1:
        raise ValueError(f"dl.expect: probability must be from 0 to 1, got {often}")
    attrs = attributes(probability=f"{often:.16e} : f64", uniform=flag("expect", uniform, "uniform"))
    return emit("expect", [condition], tl.int1, _semantic, attrs, pure=True)


@primitive
def extern_call(symbol, args, result=None, libname="", libpath="", pure=False, _semantic=None):
    """Call a function of a device library by its symbol: the way to what DITRON has no op for.

    Args:
        symbol: its name. args: list of scalars and tensors, passed as they are.
        result: ``tl.dtype`` of the result, None when there is none; with tensor arguments it has their shape.
        libname, libpath: the library (LLVM bitcode or text) to link, when it is not linked already. Compiled kernels
            are cached by the path: give a file that changes as launch option ``extern_libs={name: path}`` instead.
        pure: it has no side effect, so that calls may be merged, moved or dropped.

        smid = dl.extern_call("my_smid", [], tl.int32, libname="mine", libpath="mine.bc")
    """
    name = text("extern_call", symbol, "symbol")
    attrs = attributes(
        symbol=json.dumps(name),
        libname=json.dumps(text("extern_call", libname, "libname")),
        libpath=json.dumps(text("extern_call", libpath, "libpath")),
        pure=flag("extern_call", pure, "pure"),
    )
    operands = [_semantic.to_tensor(arg) for arg in args]
    result = tl._unwrap_if_constexpr(result)
    if result is None:
        return emit_void("extern_call", operands, _semantic, attrs)
    if not isinstance(result, tl.dtype):
        raise TypeError(f"dl.extern_call: result must be a dtype such as tl.int32, or None, got {describe(result)}")
    shaped = next((operand.type for operand in operands if operand.type.is_block()), None)
    result = shaped.with_element_ty(result) if shaped else result
    return emit("extern_call", operands, result, _semantic, attrs, pure=flag("extern_call", pure, "pure"))
