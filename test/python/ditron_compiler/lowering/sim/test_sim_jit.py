"""The JIT of the simulator's kernels: its cache, what it links to, and the interface of a compiled kernel."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from numerics import assert_error_within, gamma
from sim_programs import compile_kernel, run

import ditron
from ditron_compiler.lowering.sim import jit
from ditron_compiler.sim_compiler import compile_module

ADD = "define i32 @{name}(i32 %x) {{\n  %y = add i32 %x, {number}\n  ret i32 %y\n}}\n"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    return tmp_path / "sim"


def _call(address: int, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(address)(x)


def test_code_is_cached_by_its_text(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _call(jit.load(ADD.format(name="f", number=3), "f"), 4) == 7
    assert len(list(cache.iterdir())) == 1
    assert _call(jit.load(ADD.format(name="f", number=5), "f"), 4) == 9
    assert len(list(cache.iterdir())) == 2
    monkeypatch.setattr(jit, "optimise", lambda text: pytest.fail("compiled again"))
    assert _call(jit.load(ADD.format(name="f", number=3), "f"), 4) == 7


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path / "file"))
    assert _call(jit.load(ADD.format(name="g", number=11), "g"), 4) == 15


def test_symbol_that_nothing_defines_is_an_error_not_an_abort(cache: Path) -> None:
    name = "ditron_no_such_function"
    text = f"declare void @{name}()\ndefine void @f() {{\n  call void @{name}()\n  ret void\n}}\n"
    with pytest.raises(jit.UnresolvedSymbol, match=name):
        jit.load(text, "f")


def test_every_call_of_the_lowering_is_one_of_the_machine(cache: Path) -> None:
    """Math that becomes library calls resolves; narrow floats need no conversion routines."""
    kernel = compile_kernel(_math, {"x": "*bf16", "y": "*fp16", "B": "constexpr"}, {"B": 32})
    names = jit.undefined_symbols(jit.object_code(kernel.llvm_ir))
    assert "erff" in names and "ditron_sim_check_range" in names
    assert not [name for name in names if name.startswith("__")]


@triton.jit
def _math(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i).to(tl.float32)
    tl.store(x + i, (tl.erf(v) + tl.exp(v) * tl.sin(v)).to(tl.bfloat16))
    tl.store(y + i, (tl.load(y + i) * 2 + 1).to(tl.float16))


@triton.jit
def memcpy(o, x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i))


def test_kernel_named_as_a_library_function() -> None:
    x, o = torch.randn(256), torch.zeros(256)
    kernel = run(memcpy, (1,), o, x, B=256)
    assert kernel.name == "memcpy" and torch.equal(o, x)


def test_what_a_kernel_says_of_itself() -> None:
    kernel = compile_kernel(memcpy, {"o": "*fp32", "x": "*bf16", "B": "constexpr"}, {"B": 16})
    assert kernel.n_args == 2 and kernel.arg_types == ("!tt.ptr<f32>", "!tt.ptr<bf16>")
    assert kernel.address and all(":" in line for line in kernel.locations)
    assert any(line.startswith(__file__) for line in kernel.locations)


def test_module_with_two_kernels_needs_a_name() -> None:
    text = "".join(
        f'"tt.func"() <{{function_type = () -> (), sym_name = "{name}", sym_visibility = "public"}}> ({{\n'
        '"tt.return"() : () -> ()\n}) : () -> ()\n'
        for name in ("one", "two")
    )
    with pytest.raises(ValueError, match=r"\['one', 'two'\]"):
        compile_module(text)
    assert compile_module(text, "two").name == "two"


needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names CPUs of x86-64")


@triton.jit
def _scaled_sum(x, y, o, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) * 3.3 + tl.load(y + i))


@needs_x86
def test_cpu_is_chosen_by_the_knob(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is its own, in this process and in the cache; the results agree."""
    code = {}
    for cpu in ("host", "x86-64", "x86-64-v2"):
        monkeypatch.setenv("DITRON_SIM_CPU", cpu)
        x, y, o = torch.randn(64), torch.randn(64), torch.zeros(64)
        kernel = run(_scaled_sum, (2,), x, y, o, B=32)
        code[cpu] = jit.object_code(kernel.llvm_ir)
        assert_error_within(o, x.double() * 3.3 + y.double(), gamma(3) * (x.abs() * 3.3 + y.abs()).double())
    assert len(list(cache.iterdir())) == 3
    assert code["x86-64"] != code["host"]  # every CPU this was run on has more than SSE2


@needs_x86
def test_plain_kernels_are_compiled_for_the_cpu_that_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    x, o = torch.randn(64), torch.zeros(64)
    with ditron.sim.triton():
        on_host = _scaled_sum[(2,)](x, x, o, B=32)
        monkeypatch.setenv("DITRON_SIM_CPU", "x86-64")
        on_other = _scaled_sum[(2,)](x, x, o, B=32)
    assert on_host.code.address != on_other.code.address


def test_unknown_cpu_lists_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DITRON_SIM_CPU", "no-such-cpu")
    with pytest.raises(ValueError, match=r"DITRON_SIM_CPU='no-such-cpu' names no CPU that LLVM knows.*\bgeneric\b"):
        jit.load(ADD.format(name="f", number=3), "f")
