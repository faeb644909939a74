"""What a product's operands take of shared memory, by the shape of its tile and its warps."""

from __future__ import annotations

import pytest

from ditron_compiler import ir
from ditron_compiler.analysis.call_graph import operations
from ditron_compiler.analysis.costs import cost_of, shared_bytes
from ditron_compiler.ir.dialects import tt

KB = 1024


@pytest.fixture
def product():
    """Makes the product of two tiles of 16-bit elements that are loaded beside it, or given (``"a"``)."""
    with ir.Context():
        kept = []

        def make(m: int, n: int, k: int = 64, given: str = "", element: str = "bf16") -> tt.DotOp:
            shapes = {"a": f"{m}x{k}x", "b": f"{k}x{n}x"}
            types = [f"tensor<{shapes[x]}{element if x in given else f'!tt.ptr<{element}>'}>" for x in "ab"]
            a, b, c = (f"tensor<{shape}>" for shape in (shapes["a"] + element, shapes["b"] + element, f"{m}x{n}xf32"))
            loads = [f"%{x} = tt.load %at_{x} : {kind}" for x, kind in zip("ab", types, strict=True) if x not in given]
            names = [f"%{x}" if x in given else f"%at_{x}" for x in "ab"]
            kept.append(
                ir.Module.parse(
                    f"tt.func @f({names[0]}: {types[0]}, {names[1]}: {types[1]}, %c: {c}) {{\n"
                    + "\n".join(loads)
                    + f"\n%d = tt.dot %a, %b, %c : {a} * {b} -> {c}\ntt.return\n}}"
                )
            )
            (found,) = (op for op in operations(kept[-1].operation) if isinstance(op, tt.DotOp))
            return found

        yield make


@pytest.mark.parametrize(
    "m, n, warps, kb",
    [
        (128, 128, 8, 80),  # 32 written, 16 read, and 16 for each 64 rows
        (128, 256, 8, 128),
        (256, 128, 8, 144),  # rows in four steps, by two groups
        (64, 256, 8, 88),  # two groups divide the columns, and both read all rows
        (64, 128, 8, 56),
        (64, 128, 4, 48),
        (128, 128, 4, 80),  # one group computes one half of the rows after the other
        (128, 128, 16, 96),
        (16, 128, 4, 36),
    ],
)
def test_what_passes_shared_memory(product, m, n, warps, kb):
    assert shared_bytes(product(m, n), warps) == kb * KB


def test_operands_that_are_not_loaded_do_not_pass_it(product):
    assert shared_bytes(product(128, 128, given="a"), 8) == 48 * KB
    assert shared_bytes(product(128, 128, given="ab"), 8) == 0


def test_a_product_takes_as_long_as_its_operands(product):
    """By the rate of 16-bit operands: of others tensor cores do more operations meanwhile, or fewer."""
    flop = 2 * 128 * 128 * 64
    assert cost_of(product(128, 128)).amount == cost_of(product(128, 128), 26000, 8).amount == flop
    assert cost_of(product(128, 128), 30000, 8).amount == 80 * 30000
    assert cost_of(product(128, 128, 128, element="i8"), 60000, 8).amount == 80 * 60000 * 2
    assert cost_of(product(128, 128, 32, element="f32"), 60000, 8).amount == 80 * 60000 // 2
