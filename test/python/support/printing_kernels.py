"""Kernels that print what device_print can print; each takes 16 numbers of i32 and of f32."""

import triton
import triton.language as tl


@triton.jit
def types(x, f):
    i = tl.arange(0, 16)
    n = tl.load(x + i)
    v = tl.load(f + i)
    tl.device_print("i1", n > 3)
    tl.device_print("i8", n.to(tl.int8))
    tl.device_print("u8", n.to(tl.uint8))
    tl.device_print("i16", n.to(tl.int16))
    tl.device_print("u16", n.to(tl.uint16))
    tl.device_print("i32", n)
    tl.device_print("u32", n.to(tl.uint32))
    tl.device_print("i64", n.to(tl.int64))
    tl.device_print("u64", n.to(tl.uint64))
    tl.device_print("f16", v.to(tl.float16))
    tl.device_print("bf16", v.to(tl.bfloat16))
    tl.device_print("f32", v)
    tl.device_print("f64", v.to(tl.float64))
    tl.device_print("ptr", x + i)


@triton.jit
def in_hex(x, f):
    i = tl.arange(0, 16)
    n = tl.load(x + i)
    v = tl.load(f + i)
    tl.device_print("i1", n > 3, hex=True)
    tl.device_print("i8", n.to(tl.int8), hex=True)
    tl.device_print("u8", n.to(tl.uint8), hex=True)
    tl.device_print("i16", n.to(tl.int16), hex=True)
    tl.device_print("u16", n.to(tl.uint16), hex=True)
    tl.device_print("i32", n, hex=True)
    tl.device_print("i64", n.to(tl.int64), hex=True)
    tl.device_print("u64", n.to(tl.uint64), hex=True)
    tl.device_print("f16", v.to(tl.float16), hex=True)
    tl.device_print("bf16", v.to(tl.bfloat16), hex=True)
    tl.device_print("f32", v, hex=True)
    tl.device_print("f64", v.to(tl.float64), hex=True)
    tl.device_print("f8", v.to(tl.float8e5), hex=True)
    tl.device_print("ptr", x + i, hex=True)


@triton.jit
def shapes(x, f):
    n = tl.load(x + tl.arange(0, 16))
    tl.device_print("scalar", tl.program_id(0))
    tl.device_print("one", tl.arange(0, 1))
    tl.device_print("column", n[:, None])
    tl.device_print("square", tl.reshape(n, (4, 4)))
    tl.device_print("cube", tl.reshape(n, (2, 1, 8)))
    tl.device_print("long", tl.reshape(tl.arange(0, 2048), (2, 1024)))
    tl.device_print("two", n, tl.program_id(1))
    tl.device_print("", n)
    tl.device_print("", n, x)
    tl.device_print("constants", 3, 2.5, True)


@triton.jit
def texts(x, f):
    tl.device_print("text alone")
    tl.device_print("ab")
    tl.device_print("50%% done")
    tl.device_print("")
    tl.device_print("colon:", tl.program_id(0))
    tl.device_print("space ", tl.program_id(0))
    tl.device_print(" both: ", tl.program_id(0))
    tl.device_print('two\nlines\t"quoted" \\', tl.program_id(0))
    print("builtin", tl.program_id(0))
