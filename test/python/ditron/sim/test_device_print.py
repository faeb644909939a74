"""What kernels print and assert on the simulator: a GPU's lines."""

from __future__ import annotations

import inspect
import io
import re
import sys

import pytest
import torch
import triton
import triton.language as tl
from printing_kernels import in_hex, shapes, texts, types
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import ditron
from ditron import sim


def _of_a_gpu(kernel):
    """The formats that Triton writes for a GPU, in order."""
    source = ASTSource(kernel, {"x": "*i32", "f": "*fp32"}, {})
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["llir"]
    found = re.findall(r'@printfFormat_(\d+) = .*? c"(.*)\\0A\\00"', text)
    return [form for _, form in sorted(found, key=lambda pair: int(pair[0]))]


def _lines(kernel, capsys, *arguments, grid=(1,), **options):
    with sim.triton():
        kernel[grid](*arguments, **options)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("kernel", [types, in_hex, shapes, texts], ids=lambda kernel: kernel.fn.__name__)
def test_formats_are_those_of_a_gpu(kernel):
    with sim.triton():
        text = kernel.warmup(torch.zeros(16, dtype=torch.int32), torch.zeros(16), grid=(1,)).code.llvm_ir
    ours = re.findall(r'@ditron_text_(\d+) = .*? c"(.*)\\00"', text)
    ours = [form for _, form in sorted(ours, key=lambda pair: int(pair[0]))]
    expected = list(dict.fromkeys(_of_a_gpu(kernel)))  # the same text is kept once
    assert ours == expected and len(ours) >= 8


def test_values_of_every_type(capsys):
    x, f = torch.arange(16, dtype=torch.int32) * 40 - 1, torch.arange(16) / 4 - 1
    f[5:8] = torch.tensor([float("inf"), float("-inf"), 1e-9])
    lines = _lines(types, capsys, x, f)
    half, brain = f.half().double().tolist(), f.bfloat16().double().tolist()
    expected = {
        "i1": (x > 3).int().tolist(),
        "i8": x.to(torch.int8).tolist(),
        "u8": x.to(torch.uint8).tolist(),
        "i16": x.tolist(),
        "u16": [v % 2**16 for v in x.tolist()],
        "i32": x.tolist(),
        "u32": [v % 2**32 for v in x.tolist()],
        "i64": x.tolist(),
        "u64": [v % 2**64 for v in x.tolist()],
        "f16": [f"{v:.6f}" for v in half],
        "bf16": [f"{v:.6f}" for v in brain],
        "f32": [f"{v:.6f}" for v in f.tolist()],
        "f64": [f"{v:.6f}" for v in f.tolist()],
        "ptr": [hex(x.data_ptr() + 4 * i) for i in range(16)],
    }
    assert lines == [
        f"pid (0, 0, 0) idx ({i:2}) {name}: {value}"
        for name, values in expected.items()
        for i, value in enumerate(values)
    ]


@triton.jit
def quotient(f):
    tl.device_print("quotient", tl.load(f) / tl.load(f))


def test_the_nan_of_a_gpu_has_no_sign(capsys):
    assert _lines(quotient, capsys, torch.zeros(1)) == ["pid (0, 0, 0) idx () quotient: nan"]


def test_values_in_hexadecimal(capsys):
    x, f = torch.full((16,), 255, dtype=torch.int32), torch.full((16,), -1.5)
    x[1] = -2
    f[1] = 0.25
    lines = _lines(in_hex, capsys, x, f)
    expected = {  # negative ones are extended to 32 bits, as on a GPU
        "i1": ("0x1", "0x0"),
        "i8": ("0xffffffff", "0xfffffffe"),
        "u8": ("0xff", "0xfe"),
        "i16": ("0x00ff", "0xfffffffe"),
        "u16": ("0x00ff", "0xfffe"),
        "i32": ("0x000000ff", "0xfffffffe"),
        "i64": ("0x00000000000000ff", "0x" + "f" * 15 + "e"),
        "u64": ("0x00000000000000ff", "0x" + "f" * 15 + "e"),
        "f16": ("0xbe00", "0x3400"),
        "bf16": ("0xbfc0", "0x3e80"),
        "f32": ("0xbfc00000", "0x3e800000"),
        "f64": ("0xbff8000000000000", "0x3fd0000000000000"),
        "f8": ("0xbe", "0x34"),
        "ptr": (hex(x.data_ptr()), hex(x.data_ptr() + 4)),
    }
    assert [line for line in lines if re.search(r"idx \( [01]\)", line)] == [
        f"pid (0, 0, 0) idx ({i:2}) {name}: {values[i]}" for name, values in expected.items() for i in range(2)
    ]


def test_indices_and_operands(capsys):
    x = torch.arange(16, dtype=torch.int32)
    lines = _lines(shapes, capsys, x, torch.zeros(16))
    expected = ["idx () scalar: 0", "idx (0) one: 0"]
    expected += [f"idx ({i:2}, 0) column: {i}" for i in range(16)]
    expected += [f"idx ({i // 4}, {i % 4}) square: {i}" for i in range(16)]
    expected += [f"idx ({i // 8}, 0, {i % 8}) cube: {i}" for i in range(16)]
    expected += [f"idx ({i // 1024}, {i % 1024:4}) long: {i}" for i in range(2048)]
    expected += [f"idx ({i:2}) two: (operand 0) {i}" for i in range(16)] + ["idx () two: (operand 1) 0"]
    expected += [f"idx ({i:2}): {i}" for i in range(16)]
    expected += [f"idx ({i:2}): (operand 0) {i}" for i in range(16)] + [f"idx (): (operand 1) {hex(x.data_ptr())}"]
    expected += [f"idx () constants: (operand {i}) {value}" for i, value in enumerate(("3", "2.500000", "1"))]
    assert lines == [f"pid (0, 0, 0) {line}" for line in expected]


def test_texts_and_programs(capsys):
    lines = _lines(texts, capsys, torch.zeros(16, dtype=torch.int32), torch.zeros(16), grid=(1, 2, 2))
    for y, z in ((0, 0), (1, 0), (0, 1), (1, 1)):
        pid = f"pid (0, {y}, {z})"
        first = lines.index(f"{pid} text alone")
        assert lines[first : first + 10] == [
            f"{pid} text alone",
            f"{pid}ab",
            f"{pid} 50% done",
            pid,
            f"{pid} idx () colon: 0",
            f"{pid} idx () space: 0",
            f"{pid} idx () both: 0",
            f"{pid} idx () two",
            'lines\t"quoted" \\: 0',
            f"{pid} idx () builtin: 0",
        ]


@triton.jit
def _percent(x):
    tl.device_print("100% %d %s", tl.load(x))


def test_a_text_is_no_format(capsys):
    assert _lines(_percent, capsys, torch.tensor([7])) == ["pid (0, 0, 0) idx () 100% %d %s: 7"]


@ditron.jit
def _of_ranks(x):
    tl.device_print("x", tl.load(x))
    tl.device_print("here")


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_are_told_apart(ranks, capsys):
    def main():
        ditron.init()
        _of_ranks[(1,)](torch.tensor([1.5 + ditron.rank()]))

    sim.run(main, ranks)
    expected = (
        {f"pid (0, 0, 0) {line}" for line in ("idx () x: 1.500000", "here")}
        if ranks == 1
        else {f"[rank {r}] pid (0, 0, 0) {line}" for r in range(2) for line in (f"idx () x: {1.5 + r:.6f}", "here")}
    )
    assert set(capsys.readouterr().out.splitlines()) == expected


@triton.jit
def _much(N: tl.constexpr):
    tl.device_print("x", tl.reshape(tl.arange(0, N * N), (N, N)))


def test_a_large_print_comes_in_portions(monkeypatch):
    """All of it, and never more than some hundred lines in memory."""

    class Portions(io.StringIO):
        most = 0

        def write(self, text):
            self.most = max(self.most, text.count("\n"))
            return super().write(text)

    out = Portions()
    monkeypatch.setattr(sys, "stdout", out)
    with sim.triton():
        _much[(2,)](128)
    monkeypatch.undo()
    assert out.most <= 1024
    lines = out.getvalue().splitlines()
    assert sorted(lines) == sorted(
        f"pid ({p}, 0, 0) idx ({i // 128:3}, {i % 128:3}) x: {i}" for p in range(2) for i in range(128 * 128)
    )


@triton.jit
def _asserts(x, limit, some):
    i = tl.arange(0, 4)
    v = tl.load(x + i)
    tl.device_assert(v < limit, "100% too large", mask=i < some)
    assert tl.sum(v) > 0


@triton.jit
def _asserts_2d(x):
    v = tl.load(x + tl.arange(0, 1)[:, None] + tl.arange(0, 4)[None, :])
    assert v < 3, "too large"


@pytest.mark.parametrize(
    "kernel, arguments, line, says",
    [
        (_asserts, (3, 4), "tl.device_assert", "failed at idx (2): 100% too large"),
        (_asserts, (-20, 0), "assert tl.sum", "failed: assert tl.sum(v) > 0"),
        (_asserts_2d, (), "assert v", "failed at idx (0, 2): too large"),
    ],
    ids=["mask", "without a text", "tile"],
)
def test_an_assertion_names_kernel_program_line_and_text(kernel, arguments, line, says):
    x = torch.tensor([1, 2, 3, 4]) * (-1 if arguments == (-20, 0) else 1)
    source, first = inspect.getsourcelines(kernel.fn)
    number = first + next(i for i, text in enumerate(source) if line in text)
    with sim.triton():
        kernel[(2,)](x, *arguments)  # without debug=True it does nothing
        with pytest.raises(RuntimeError, match="device-side assertion") as raised:
            kernel[(2,)](x, *arguments, debug=True)
    text = str(raised.value)
    assert re.match(rf"{re.escape(__file__)}:{number}:\d+: device-side assertion {re.escape(says)}\n", text)
    assert re.search(rf"in kernel {kernel.fn.__name__}, rank 0, program \([01], 0, 0\)", text)


def test_an_assertion_that_is_masked_off_holds():
    with sim.triton():
        _asserts[(2,)](torch.tensor([1, 2, 3, 4]), 3, 2, debug=True)
