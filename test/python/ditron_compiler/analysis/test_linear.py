"""Polynomials over symbols: arithmetic agrees with that of integers, and what is made of SSA values is right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ditron_compiler import ir
from ditron_compiler.analysis.linear import Monomial, Polynomial, address, index_sum, never_equal, split_constant

SYMBOLS = ("x", "y", "z")
NUMBERS = st.integers(-5, 5)
POLYNOMIALS = st.dictionaries(st.lists(st.sampled_from(SYMBOLS), max_size=3).map(Monomial), NUMBERS, max_size=4).map(
    Polynomial
)
VALUES = st.fixed_dictionaries({symbol: NUMBERS for symbol in SYMBOLS})


def value(polynomial: Polynomial, values: dict[str, int]) -> int:
    result = polynomial.substitute(lambda symbol: Polynomial.constant(values[symbol])).value
    assert result is not None
    return result


@given(POLYNOMIALS, POLYNOMIALS, VALUES)
def test_arithmetic_is_that_of_integers(a, b, values):
    assert value(a + b, values) == value(a, values) + value(b, values)
    assert value(a - b, values) == value(a, values) - value(b, values)
    assert value(a * b, values) == value(a, values) * value(b, values)
    assert a + b == b + a and a * b == b * a and hash(a * b) == hash(b * a)
    assert not a.differs(b) or value(a, values) != value(b, values)


@given(POLYNOMIALS, st.sampled_from(SYMBOLS), st.integers(1, 4))
def test_division_undoes_a_product(a, symbol, factor):
    divisor = Polynomial.symbol(symbol) * factor
    assert (a * divisor).divided_by(divisor) == a
    assert (a * divisor + 1).divided_by(divisor) is None


def test_parts():
    x, y = Polynomial.symbol("x"), Polynomial.symbol("y")
    form = x * 2 + y + 3
    assert (form.coefficient("x"), form.constant_term, form.summands) == (2, 3, ["x", "x", "y"])
    assert form.without_constant == x * 2 + y and form.value is None and form.as_symbol is None
    assert x.as_symbol == "x" and (x - x).value == 0 and str(form) == "2 * x + y + 3"
    assert form.differs(form + 1) and not form.differs(x) and not form.differs(form)
    with pytest.raises(ValueError, match="no sum of symbols"):
        _ = (x * y).summands


TEXT = """
func.func @f(%p: !tt.ptr<i64>, %q: !tt.ptr<i64>, %i: i32, %j: i32) {
  %c1 = arith.constant 1 : i32
  %c2 = arith.constant 2 : i32
  %i1 = arith.addi %i, %c1 : i32
  %i2 = arith.subi %i, %c2 : i32
  %sum = arith.addi %i1, %j : i32
  %wide = arith.extsi %sum : i32 to i64
  %a = "tt.addptr"(%p, %i1) : (!tt.ptr<i64>, i32) -> !tt.ptr<i64>
  %b = "tt.addptr"(%p, %i2) : (!tt.ptr<i64>, i32) -> !tt.ptr<i64>
  %c = "tt.addptr"(%q, %i2) : (!tt.ptr<i64>, i32) -> !tt.ptr<i64>
  %d = "tt.addptr"(%a, %wide) : (!tt.ptr<i64>, i64) -> !tt.ptr<i64>
  return
}
"""


def test_forms_of_ssa_values():
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(TEXT)
        block = module.body.operations[0].regions[0].blocks[0]
        p, _, i, j = block.arguments
        _, _, i1, i2, _, wide, a, b, c, d = (op.results[0] for op in list(block.operations)[:-1])
        assert split_constant(i1) == (i, 1) and split_constant(i2) == (i, -2) and split_constant(j) == (j, 0)
        assert index_sum(wide) == Polynomial.symbol(i) + Polynomial.symbol(j) + 1
        assert never_equal(i1, i2) and never_equal(a, b) and not never_equal(a, a) and not never_equal(a, c)
        assert address(d, index_sum) == (p, Polynomial.symbol(i) * 2 + Polynomial.symbol(j) + 2)
        assert not never_equal(a, d)
