"""Triton's operations are read and written in Triton's own form: compared with Triton's parser and printer.

The kernels of the tests of lower-to-sim, one for each function of triton.language, are compared as they are compiled
(see conftest.py there).
"""

import importlib
import re

import paths
import pytest
import triton
import triton.language as tl
import ttir_text
from triton._C.libtriton import ir as triton_ir

import ditron
from ditron_compiler.frontend import handover

FORMS = paths.ROOT / "test" / "lit" / "dialect"


@pytest.fixture
def compared(monkeypatch):
    """The texts of Triton modules that were handed over; each has been compared."""
    texts = []
    print_generic = handover.print_generic

    def compare(module):
        texts.append(ttir_text.check_text(module, print_generic))
        return texts[-1]

    monkeypatch.setattr(handover, "print_generic", compare)
    return texts


EXAMPLES = [
    ("ring", "ring_kernel"),
    ("put_signal", "shift_kernel"),
    ("all_gather", "all_gather_kernel"),
    ("ag_gemm", "ag_gemm_kernel"),
    ("ag_gemm_in_kernel", "ag_gemm_kernel"),
    ("gemm_rs", "gemm_rs_kernel"),
]


@pytest.mark.parametrize("module, kernel", EXAMPLES)
def test_examples(module, kernel, compared, monkeypatch):
    monkeypatch.syspath_prepend(str(paths.EXAMPLES))
    example = importlib.import_module(module)
    ditron.compile(getattr(example, kernel), **example.EXAMPLE, stop_after="ditron")
    assert len(compared) == 1 and "tt.extern_elementwise" in compared[0]


@triton.jit
def _with_modifiers(p, q, o, n):
    i = tl.arange(0, 128)
    a = tl.load(p + i, mask=i < n, other=0.0, cache_modifier=".cg", eviction_policy="evict_first")
    b = tl.load(q + i, eviction_policy="evict_last", volatile=True)
    tl.store(o + i, a + b + tl.load(q + i, cache_modifier=".ca"), cache_modifier=".wt", eviction_policy="evict_last")
    tl.store(o + i, a, eviction_policy="evict_first")
    d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [16, 16], padding_option="nan")
    x = d.load([0, 0])
    d.store([16, 0], x)
    d.atomic_add([0, 16], x)
    tl.device_print("x ", i, a, hex=True)
    tl.device_print("only")
    tl.device_assert(i < 4, "message")


@triton.jit
def _scaled_product(a, a_scale, b, b_scale, o):
    i, k, s = tl.arange(0, 128), tl.arange(0, 64), tl.arange(0, 2)
    x = tl.load(a + i[:, None] * 64 + k[None, :])
    y = tl.load(b + k[:, None] * 128 + i[None, :])
    x_scale = tl.load(a_scale + i[:, None] * 2 + s[None, :])
    y_scale = tl.load(b_scale + i[:, None] * 2 + s[None, :])
    product = tl.dot_scaled(x, x_scale, "e4m3", y, y_scale, "e5m2")
    tl.store(o + i[:, None] * 128 + i[None, :], product + tl.dot_scaled(x, None, "e4m3", y, y_scale, "e5m2"))


@pytest.mark.parametrize(
    "kernel, types, operations",
    [
        (_with_modifiers, ["*fp32", "*fp32", "*fp32", "i32"], ["assert", "print", "descriptor_reduce"]),
        (_scaled_product, ["*fp8e4nv", "*i8", "*fp8e5", "*i8", "*fp32"], ["dot_scaled"]),
    ],
)
def test_kernels(kernel, types, operations, compared):
    from sim_programs import ttir

    ttir(kernel, dict(zip(kernel.arg_names, types, strict=True)), {}, debug=True)
    assert all(f'"tt.{operation}"' in compared[0] for operation in operations)


def functions(file):
    """The functions of a lit test, with those that they call, without its comments."""
    text = re.sub(r"^ *//.*\n", "", (FORMS / file).read_text(), flags=re.MULTILINE)
    return [function for function in re.split(r"^(?=tt\.func)", text, flags=re.MULTILINE) if function.strip()]


def triton_module(text, path):
    context = triton_ir.context()
    triton_ir.load_dialects(context)
    path.write_text(text)
    module = triton_ir.parse_mlir_module(str(path), context)
    module.context = context
    return module


OLD = triton.__version__ < "3.7"


@pytest.mark.parametrize(
    "file, expected",
    [
        ("triton-forms.mlir", True),
        ("triton-forms-3.6.mlir", OLD),
        ("triton-forms-3.9.mlir", not OLD),
    ],
)
def test_triton_reads_the_lit_tests_forms(file, expected, tmp_path):
    """What the lit tests show as Triton's form is what the Triton at hand reads and prints."""
    if not expected:
        with pytest.raises(RuntimeError):
            triton_module("".join(functions(file)), tmp_path / "forms.ttir")
        return
    module = triton_module("".join(functions(file)), tmp_path / "forms.ttir")
    ttir_text.check_text(module)
