"""Each function of ditron.language becomes its operation, with its attributes and types."""

import re

import paths
import pytest
import triton
import triton.language as tl

import ditron
import ditron.language as dl


def mixed(kernel, **constexprs):
    """The kernel's module of tt and ditron operations, as written, in custom form."""
    return ditron.compile(
        kernel, constexprs=constexprs, target="cuda:90", pipeline="as-written", stop_after="ditron"
    ).asm["ditron"]


POINTERS = dict(signature={"x": "*fp32", "sig": "*i64", "n": "i32"})


@ditron.jit(example=POINTERS)
def identity(x, sig, n):
    a = dl.rank() + dl.num_ranks() + dl.local_rank() + dl.num_local_ranks() + dl.node()
    b = dl.rank(team="node") + dl.rank("world") + dl.num_ranks("node")
    tl.store(dl.symm_at(x, n) + a + b, 1.0)
    tl.store(dl.symm_at(x + tl.arange(0, 16), n), 1.0)
    dl.multimem_st(dl.multicast_ptr(x, team="node"), 2)


def test_identity():
    text = mixed(identity)
    for op in (
        "ditron.rank",
        "ditron.rank team node",
        "ditron.rank team world",
        "ditron.num_ranks",
        "ditron.num_ranks team node",
        "ditron.local_rank",
        "ditron.num_local_ranks",
        "ditron.node",
    ):
        assert re.search(rf"= {op}$", text, re.MULTILINE), op
    assert re.search(r"ditron.symm_at %\w+ on %\w+ : !tt.ptr<f32>", text)
    assert re.search(r"ditron.symm_at %\w+ on %\w+ : tensor<16x!tt.ptr<f32>>", text)
    assert re.search(r"ditron.multicast_ptr %\w+ team node : !tt.ptr<f32>", text)
    assert re.search(r"ditron.multimem_st %\w+, %\w+ : !tt.ptr<f32>", text)


@ditron.jit(example=POINTERS)
def signals(x, sig, n):
    token = dl.wait(sig, n, value=5)
    near = dl.wait(sig + 1, 2, n, cmp="eq", scope="node")
    loose = dl.wait(sig + 2, scope="gpu", semantic="relaxed")
    y = tl.load(dl.consume_token(x, token))
    z = tl.load(dl.consume_token(x + tl.arange(0, 16), near))
    k = dl.consume_token(n, loose)
    tl.store(x + tl.arange(0, 16), y + z)
    dl.notify(sig, k, n)
    dl.notify(sig, 1, op="add", scope="node")
    dl.signal_op(sig, 3, n, op="add")
    seen = dl.signal_wait_until(sig, 7, cmp="gt")
    dl.st(sig + 3, seen)
    dl.st(sig + 4, dl.signal_fetch(sig) + dl.signal_fetch(sig + 1, semantic="relaxed"))


def test_signals():
    text = mixed(signals)
    assert re.search(r"ditron.wait %\w+\[%\w+\] ge %\w+ scope world : !tt.ptr<i64>", text)
    assert re.search(r"ditron.wait %\w+\[%\w+\] eq %\w+ : !tt.ptr<i64>", text)
    assert re.search(r"ditron.wait %\w+\[%\w+\] ge %\w+ scope gpu semantic relaxed : !tt.ptr<i64>", text)
    assert re.search(r"ditron.consume_token %\w+, %\w+ : !tt.ptr<f32>", text)
    assert re.search(r"ditron.consume_token %\w+, %\w+ : tensor<16x!tt.ptr<f32>>", text)
    assert re.search(r"ditron.consume_token %\w+, %\w+ : i32", text)
    assert re.search(r"ditron.notify %\w+ set %\w+ on %\w+ scope world : !tt.ptr<i64>", text)
    assert re.search(r"ditron.notify %\w+ add %\w+ on %\w+ : !tt.ptr<i64>", text)
    assert re.search(r"ditron.signal_op %\w+ add %\w+ on %\w+ : !tt.ptr<i64>", text)
    assert re.search(r"ditron.signal_wait_until %\w+ gt %\w+ : !tt.ptr<i64>", text)
    assert re.search(r"ditron.signal_fetch %\w+ : !tt.ptr<i64>", text)
    assert re.search(r"ditron.signal_fetch %\w+ semantic relaxed : !tt.ptr<i64>", text)


@ditron.jit(example=dict(signature={"x": "*fp32", "y": "*fp32", "sig": "*i64", "n": "i32"}))
def data(x, y, sig, n):
    dl.putmem(x, y, 64, n)
    dl.putmem_nbi(x, y, n, 1, granularity="warp")
    dl.getmem(y, x, n.to(tl.int64) * 4, 2)
    dl.getmem(y, x, 4, 2, nbi=True)
    dl.getmem_nbi(y, x, 4, 3, granularity="thread")
    dl.putmem_signal(x, y, 8, sig, 1, n)
    dl.putmem_signal_nbi(x, y, 8, sig, n, n, op="add")
    dl.fence()
    dl.quiet()
    dl.barrier_all()
    dl.barrier()
    dl.barrier(team="node")
    dl.sync_all("world")


def test_data():
    text = mixed(data)
    ptrs = "!tt.ptr<f32>, !tt.ptr<f32>"
    for pattern in (
        rf"ditron.putmem %\w+, %\w+, %\w+ on %\w+ : {ptrs}",
        rf"ditron.putmem %\w+, %\w+, %\w+ on %\w+ nbi granularity warp : {ptrs}",
        rf"ditron.getmem %\w+, %\w+, %\w+ on %\w+ : {ptrs}",
        rf"ditron.getmem %\w+, %\w+, %\w+ on %\w+ nbi : {ptrs}",
        rf"ditron.getmem %\w+, %\w+, %\w+ on %\w+ nbi granularity thread : {ptrs}",
        rf"ditron.putmem_signal %\w+, %\w+, %\w+, %\w+ set %\w+ on %\w+ : {ptrs}, !tt.ptr<i64>",
        rf"ditron.putmem_signal %\w+, %\w+, %\w+, %\w+ add %\w+ on %\w+ nbi : {ptrs}, !tt.ptr<i64>",
        r"ditron.fence$",
        r"ditron.quiet$",
        r"ditron.barrier_all$",
        r"ditron.barrier$",
        r"ditron.barrier team node$",
        r"ditron.sync_all team world$",
    ):
        assert re.search(pattern, text, re.MULTILINE), pattern


@ditron.jit(example=dict(signature={"x": "*fp32", "y": "*fp32", "sig": "*i64", "n": "i32"}))
def packets(x, y, sig, n):
    half: tl.constexpr = dl.packet_bytes(100) // 8
    dl.ll_put(sig + n % 2 * half, x, 100, 1, n)
    dl.ll_put(sig, x, n * 4, n, 7, protocol="ll128")
    token = dl.ll_get(y, sig + half, 100, n)
    y = dl.consume_token(y, token)
    dl.ll_get(y, sig, n * 4, 7, protocol="ll128")


def test_packets():
    text = mixed(packets)
    for pattern in (
        r"ditron.ll_put %\w+, %\w+, %\w+, %\w+ on %\w+ : !tt.ptr<i64>, !tt.ptr<f32>",
        r"ditron.ll_put %\w+, %\w+, %\w+, %\w+ on %\w+ protocol ll128 : !tt.ptr<i64>, !tt.ptr<f32>",
        r"%token = ditron.ll_get %\w+, %\w+, %\w+, %\w+ : !tt.ptr<f32>, !tt.ptr<i64>",
        r"ditron.consume_token %\w+, %token : !tt.ptr<f32>",
        r"ditron.ll_get %\w+, %\w+, %\w+, %\w+ protocol ll128 : !tt.ptr<f32>, !tt.ptr<i64>",
        r"arith.constant 32 : i32",
    ):  # 256 bytes
        assert re.search(pattern, text), pattern


@ditron.jit(example=dict(signature={"x": "*fp32", "h": "*fp16", "i": "*i32", "n": "i32"}))
def memory(x, h, i, n):
    a = dl.ld(x)
    b = dl.ld(x + tl.arange(0, 8), scope="node", semantic="acquire")
    dl.st(x + 8 + tl.arange(0, 8), b + a)
    dl.st(i, 3, scope="world", semantic="release")
    old = dl.atomic_add(i, n, semantic="acq_rel")
    old += dl.atomic_cas(i, 0, n, scope="node")
    dl.red(i, old, op="max")
    mc = dl.multicast_ptr(h)
    s = dl.multimem_ld_reduce(mc + tl.arange(0, 8))
    dl.multimem_red(mc + tl.arange(0, 8), s, op="add")
    dl.st(h, 1)


def test_memory():
    text = mixed(memory)
    for pattern in (
        r"ditron.ld %\w+ : !tt.ptr<f32>",
        r"ditron.ld %\w+ scope node semantic acquire : tensor<8x!tt.ptr<f32>>",
        r"ditron.st %\w+, %\w+ : tensor<8x!tt.ptr<f32>>",
        r"ditron.st %\w+, %\w+ scope world semantic release : !tt.ptr<i32>",
        r"ditron.atomic_add %\w+, %\w+ semantic acq_rel : !tt.ptr<i32>",
        r"ditron.atomic_cas %\w+, %\w+, %\w+ scope node : !tt.ptr<i32>",
        r"ditron.red %\w+ max %\w+ : !tt.ptr<i32>",
        r"ditron.multimem_ld_reduce add %\w+ : tensor<8x!tt.ptr<f16>>",
        r"ditron.multimem_red %\w+ add %\w+ : tensor<8x!tt.ptr<f16>>",
        r"ditron.st %\w+, %\w+ : !tt.ptr<f16>",
    ):
        assert re.search(pattern, text), pattern


@ditron.jit(example=POINTERS)
def threads(x, sig, n):
    t = dl.thread_id() + dl.num_threads() + dl.lane_id() + dl.warp_id()
    dl.sync_threads()
    t += dl.shfl(n, 3) + dl.shfl(t, 1, mode="bfly")
    dl.st(sig, dl.ballot(t > 4) + dl.swizzle(n, 1024, 32, mode="scatter"))
    if dl.expect(n > 4, 0.05):
        dl.st(sig, dl.expect(n > 5, 1, uniform=True).to(tl.int64))
    y = dl.extern_call("my_function", [n, 2.0], tl.float32, libname="mine", libpath="mine.bc", pure=True)
    z = dl.extern_call("mine_too", [x + tl.arange(0, 8), y], tl.float32)
    dl.extern_call("no_result", [z])


def test_threads_and_calls():
    text = mixed(threads)
    for pattern in (
        r"ditron.thread_id$",
        r"ditron.num_threads$",
        r"ditron.lane_id$",
        r"ditron.warp_id$",
        r"ditron.sync_threads$",
        r"ditron.shfl idx %\w+, %\w+ : i32",
        r"ditron.shfl bfly %\w+, %\w+ : i32",
        r"ditron.ballot %\w+",
        r"ditron.expect %\w+, 5.000000e-02$",
        r"ditron.expect %\w+, 1.000000e\+00 uniform$",
        r"ditron.swizzle scatter %\w+ of %\w+ by %\w+",
        r'extern_call "my_function"\(%\w+, %\w+\) from "mine" at "mine.bc" pure : \(i32, f32\) -> f32',
        r'ditron.extern_call "mine_too"\(%\w+, %\w+\) : \(tensor<8x!tt.ptr<f32>>, f32\) -> tensor<8xf32>',
        r'ditron.extern_call "no_result"\(%\w+\) : \(tensor<8xf32>\) -> \(\)',
    ):
        assert re.search(pattern, text, re.MULTILINE), pattern


@ditron.jit(example=POINTERS)
def rare(x, sig, n, EXPECTED: tl.constexpr):
    v = tl.load(x + tl.arange(0, 128))
    m = tl.max(v)
    if dl.expect(m > 1, 0.25) if EXPECTED else m > 1:
        tl.store(x + tl.arange(0, 128), v / m)
        dl.notify(sig, n, 1)


@pytest.mark.parametrize("target, stage", [("cuda:90", "ptx"), ("hip:gfx942", "amdgcn")])
def test_expect_is_no_instruction(target, stage):
    """The same code as without, but for lines and comments."""
    plain, expected = (
        re.sub(
            r"\n\s*(\.loc|\.file|//|;).*",
            "",
            ditron.compile(rare, constexprs={"EXPECTED": given}, target=target).asm[stage],
        )
        for given in (False, True)
    )
    assert plain == expected and len(plain) > 1000
    assert "ditron.expect" in mixed(rare, EXPECTED=True)


def test_every_operation_has_a_function():
    """The dialect's device operations and dl's functions are the same list, but for what passes insert."""
    from ditron_compiler.ir.dialects import ditron as dialect

    ops = {
        value.OPERATION_NAME.removeprefix("ditron.")
        for value in vars(dialect).values()
        if isinstance(getattr(value, "OPERATION_NAME", None), str)
    }
    definitions = paths.ROOT / "dialect" / "IR"
    host = {
        name
        for file in ("DitronHostOps.td", "DitronStreamOps.td")
        for name in re.findall(r'^def Ditron_\w+Op : \w+<"(\w+)"', (definitions / file).read_text(), re.MULTILINE)
    }
    assert "launch" in host and "alloc" in host
    variants = {"putmem_nbi", "getmem_nbi", "putmem_signal_nbi", "token", "packet_bytes"}
    hints = {"load_ahead"}  # an attribute of Triton's operation
    inserted = {"spend"}
    assert ops - host - inserted == set(dl.__all__) - variants - hints
    for name in dl.__all__:
        assert getattr(dl, name).__doc__, name


@triton.jit
def helper_that_waits(sig, n):
    return dl.wait(sig, n)


@ditron.jit
def helper_with_default(x, token, offset=4):
    return tl.load(dl.consume_token(x, token) + offset)


@ditron.jit(example=POINTERS)
def tokens_flow(x, sig, n):
    if n > 3:
        token = dl.wait(sig, n)
    else:
        token = helper_that_waits(sig, n)
    for i in range(n):
        token = dl.wait(sig + i)
    i = 0
    while i < n:
        token = helper_that_waits(sig + i, 1)
        i += 1
    tl.store(x, helper_with_default(x, token))


def test_tokens_travel_through_control_flow_and_helpers():
    text = mixed(tokens_flow)
    assert re.search(r"scf.if %\w+ -> \(!ditron.token\)", text)
    assert re.search(r"scf.for .* -> \(!ditron.token\)", text)
    assert re.search(r"scf.while .*!ditron.token", text)
    assert text.count("ditron.wait") == 4


@ditron.jit(example=dict(signature={"d": "tensordesc<fp16[16, 16]>", "y": "*fp16", "sig": "*i64", "n": "i32"}))
def descriptors(d, y, sig, n):
    device = tl.make_tensor_descriptor(y, [n, n], [n, 1], [16, 16])
    d = dl.consume_token(d, dl.wait(sig))
    device = dl.consume_token(device, dl.wait(sig + 1))
    for i in range(n):
        device.store([i, 0], d.load([i, 0]))
        d = dl.consume_token(d, dl.wait(sig))
    tl.store(y, d.shape[0] + device.block_shape[0])


def test_descriptors_are_consumed_through_their_coordinates():
    text = mixed(descriptors)
    assert text.count("ditron.consume_token") == 3
    assert re.search(r"tt.descriptor_load", text)


@pytest.mark.parametrize("kernel", [identity, signals, data, memory, threads, tokens_flow])
def test_kernels_are_marked_and_have_the_hidden_argument(kernel):
    text = mixed(kernel)
    assert re.search(r"\{ditron.kernel[,}]", text)
    # x (or what the example has), ..., and the context, which no operation of the mixed module uses yet.
    types = re.findall(r"%\w+: ([^ ,{]+)", re.search(r"tt\.func public @\w+\((.*)\) attributes", text).group(1))
    assert len(types) == len(kernel.example["signature"]) + 1 and types[-1] == "!tt.ptr<i64>"
    assert list(kernel.signature.parameters) == kernel.arg_names == list(kernel.example["signature"])
