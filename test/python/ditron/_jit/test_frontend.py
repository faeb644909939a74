"""The hand-over between Triton and our passes, and ditron.compile."""

import re

import pytest
import triton
import triton.language as tl
from cli_kernels import EXAMPLE, good
from triton._C.libtriton import ir as triton_ir
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

import ditron
import ditron.language as dl
from ditron_compiler import ir
from ditron_compiler.frontend import handover
from ditron_compiler.frontend.signature import specialize
from ditron_compiler.frontend.targets import parse_target
from ditron_compiler.instrumentation import Instrumentation


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + (k + rows)[None, :], mask=(k + rows)[None, :] < K, other=0.0)
        b = tl.load(b_ptr + (k + rows)[:, None] * BLOCK + rows[None, :])
        acc = tl.dot(a, b, acc)
    if K > 7:
        acc = tl.exp(acc) / 2
    tl.atomic_add(c_ptr + rows[:, None] * BLOCK + rows[None, :], acc)


def triton_module(kernel=matmul, target="cuda:90"):
    """A kernel's TTIR after Triton's passes, and Triton's context."""
    gpu = parse_target(target).gpu_target()
    backend = make_backend(gpu)
    context = triton_ir.context()
    triton_ir.load_dialects(context)
    backend.load_dialects(context)
    options = backend.parse_options({})
    source = ASTSource(kernel, {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "K": "i32"}, {"BLOCK": 64})
    codegen, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    module = source.make_ir(gpu, options, codegen, modules, context)
    stages = {}
    backend.add_stages(stages, options, source.language)
    return stages["ttir"](module, {}), context


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_round_trip_keeps_everything(target):
    module, context = triton_module(target=target)
    plain, located = module.str_nodebug(), str(module)
    with ir.Context() as ours:
        there = handover.from_triton(module, ours)
        assert [op.name for op in there.body.operations] == ["tt.func"]
        back = handover.to_triton(there, context)
    assert back.str_nodebug() == plain
    positions = sorted(re.findall(r"test_frontend.py\":(\d+:\d+)", str(back)))
    assert positions and positions == sorted(re.findall(r"test_frontend.py\":(\d+:\d+)", located))


def test_left_over_operations_do_not_pass():
    _, context = triton_module()
    with ir.Context() as ours:
        module = ir.Module.parse("%0 = ditron.rank", ours)
        with pytest.raises(RuntimeError):
            handover.to_triton(module, context)


def test_kernel_without_primitives_compiles_to_the_same_code():
    """But for the hidden parameter, nothing is added to a kernel that does not communicate."""
    signature = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "K": "i32"}
    ours = ditron.compile(ditron.jit(matmul.fn), signature, {"BLOCK": 64}, stop_after="ptx").asm["ptx"]
    source = ASTSource(matmul, signature, {"BLOCK": 64}, {(i,): [["tt.divisibility", 16]] for i in range(3)})
    theirs = triton.compile(source, target=parse_target("cuda:90").gpu_target()).asm["ptx"]

    def instructions(ptx):
        body = ptx[ptx.index("{") : ptx.index("// -- End function")]
        body = re.sub(r"\.loc.*|//.*|\$L__\w+|matmul_param_\d+|%\w+", "", body)
        return [line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith(".reg")]

    assert instructions(ours) == instructions(theirs)


def test_locations_reach_the_mixed_module():
    text = ditron.compile(good, **EXAMPLE, stop_after="ditron", locations=True).asm["ditron"]
    line = good.starting_line_number + 2  # below the decorator and the def
    wait = re.search(r"ditron.wait .* loc\((#loc\d+)\)", text).group(1)
    seen = set()
    while (definition := re.search(rf"^{wait} = loc\((.*)\)$", text, re.MULTILINE).group(1)) and "#loc" in definition:
        wait = re.search(r"#loc\d+", definition).group()
        assert wait not in seen
        seen.add(wait)
    assert f'cli_kernels.py":{line}:' in definition


def test_stages_and_times():
    program = ditron.compile(good, **EXAMPLE, target="cuda:90")
    assert list(program.asm) == ["ttir", "ditron", "lowered", "ttgir", "llir", "ptx", "cubin"]
    assert set(program.seconds) == set(program.asm) and all(s > 0 for s in program.seconds.values())
    assert isinstance(program.asm["cubin"], bytes)
    assert program.metadata["num_warps"] == 2 and not program.missing
    # Triton's metadata knows one more parameter than the function has.
    assert re.search(r"\.entry good\((\s*\.param[^,]*,){3}\s*\.param", program.asm["ptx"])


def test_primitives_are_gone_after_lowering():
    for target in ("cuda:90", "hip:gfx942", "sim"):
        program = ditron.compile(good, **EXAMPLE, target=target, stop_after="lowered")
        assert "ditron." not in program.asm["lowered"].replace("ditron.kernel", "").replace("ditron.locs", "")


def test_nvshmem_without_bitcode_says_why(monkeypatch):
    from ditron_compiler.frontend import device_libraries as gpu_libraries

    monkeypatch.setattr(gpu_libraries, "nvshmem_bitcode", lambda: None)
    program = ditron.compile(good, **EXAMPLE, transport="nvshmem")
    assert "cubin" not in program.asm and "ptx" in program.asm
    assert "pip install nvidia-nvshmem-cu13" in program.missing["cubin"]
    assert "not made: NVSHMEM" in program.table()


@ditron.jit
def many(a, b, n, m, x: tl.constexpr, y: tl.constexpr = 5):
    tl.store(a + n, tl.load(b + m) + x + y)


def test_specialize():
    kernel, types, constants, attrs, options = specialize(
        many, ["*bf16", "*fp32:1", "i32:16", "i64"], {"x": 3}, {"num_warps": 2}
    )
    assert kernel is many
    assert types == {
        "a": "*bf16",
        "b": "*fp32",
        "n": "i32",
        "m": "i64",
        "x": "constexpr",
        "y": "constexpr",
        "__ditron_ctx": "*i64",
    }
    assert constants == {(4,): 3, (5,): 5}
    assert set(attrs) == {(0,), (2,)}
    assert options == {"num_warps": 2}


def test_constants_may_replace_arguments():
    program = ditron.compile(many, {"a": "*bf16", "b": "*bf16", "m": "i32"}, {"x": 3, "n": 7}, stop_after="ttir")
    assert "arith.constant 7 : i32" in program.asm["ttir"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(signature={"a": "*bf16"}, constexprs={"x": 1}), "no type (or constant) is given for b, n, m"),
        (dict(signature={"q": "*bf16"}), "no parameter is called 'q'; its parameters are a, b, n, m, x, y"),
        (
            dict(target="cuda:90", stop_after="hsaco"),
            "unknown stage 'hsaco' for target 'cuda:90': expected one of ttir",
        ),
        (dict(target="gpu"), "unknown target 'gpu'"),
        (
            dict(instrumentation=Instrumentation(print_after=("no-pass",))),
            "no pass 'no-pass' runs for target 'cuda:90'",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ditron.compile(many, **arguments)


def test_only_kernels_compile():
    with pytest.raises(TypeError, match="expected a kernel decorated by @ditron.jit"):
        ditron.compile(len)


@triton.jit
def inner(signal_ptr):
    dl.notify(dl.symm_at(signal_ptr, 1), 0)


@ditron.jit(example=dict(signature={"signal_ptr": "*i64"}))
def outer(signal_ptr):
    inner(signal_ptr)  # called here


def test_diagnostics_in_helpers_name_their_callers():
    with pytest.raises(ditron.CompileError) as caught:
        ditron.compile(outer)
    error = caught.value
    assert error.line == inner.starting_line_number + 2 and error.file == __file__
    notes = [(file, line, note) for file, line, _, note in error.notes]
    assert (__file__, outer.starting_line_number + 2, "called from here") in notes
    assert "inner(signal_ptr)  # called here" in str(error)


@ditron.jit(example=dict(signature={"x": "*fp32", "n": "i32"}))
def uses_libdevice(x, n):
    tl.store(x + dl.rank(), tl.math.erf(tl.load(x)) + tl.umulhi(n, n))


def test_libdevice_is_linked_when_it_is_needed():
    """It is left out of kernels that cannot call it; here two of its functions are called."""
    program = ditron.compile(uses_libdevice)
    assert "cubin" in program.asm and ".extern .func" not in program.asm["ptx"]
    assert "libdevice" in dict(program.metadata["extern_libs"])
    assert "libdevice" not in dict(ditron.compile(good, **EXAMPLE).metadata["extern_libs"])


@ditron.jit
def calls_library(x, PATH: tl.constexpr):
    tl.store(x, dl.extern_call("my_answer", [dl.rank()], tl.int32, libname="mine", libpath=PATH))


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_libraries_of_extern_calls_are_linked(target, tmp_path):
    library = tmp_path / "mine.ll"
    library.write_text("define i32 @my_answer(i32 %x) {\n  %y = add i32 %x, 4242\n  ret i32 %y\n}\n")
    program = ditron.compile(calls_library, {"x": "*i32"}, {"PATH": str(library)}, target)
    text = program.asm["llir"]
    assert re.search(r"add i32 %[\w.]+, 4242", text) and "call i32 @my_answer" not in text
    assert "cubin" in program.asm or "hsaco" in program.asm
