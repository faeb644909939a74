"""Symbolic values of a traced program: integers, conditions, streams and events."""

from __future__ import annotations

import math
import operator
import sys
from typing import TYPE_CHECKING, Any

from triton.tools.tensor_descriptor import TensorDescriptor

from ditron._program.trace.tracer import Tracer, active
from ditron_compiler.analysis.linear import Polynomial
from ditron_compiler.ir.dialects import arith

if TYPE_CHECKING:
    from ditron_compiler import ir

__all__ = [
    "Cond",
    "Event",
    "Float",
    "Int",
    "Stream",
    "as_int",
    "binary",
    "describe",
    "divisor_of",
    "element_constant",
    "in_triton_descriptor",
    "select",
]

# Nothing needs more than 16 bytes of alignment; a bound keeps numbers small.
_MAX_DIVISOR = 1 << 20


def in_triton_descriptor() -> bool:
    """Whether the caller's caller is the constructor of Triton's ``TensorDescriptor``.

    It asserts what numbers it can; of symbolic ones the same is checked when the program runs.
    """
    return sys._getframe(2).f_code is TensorDescriptor.__post_init__.__code__


class Symbol:
    """Base of symbolic values: it knows its trace and the scope it may be used in."""

    what = "this value"

    def __init__(self, tracer: Tracer, value: ir.Value):
        self.tracer, self.value, self.scope = tracer, value, tracer.current

    def use(self) -> ir.Value:
        """The IR value, where it may be used here; raises CompileError where not."""
        (active() or self.tracer).check(self, self.what)
        return self.value

    def __bool__(self) -> bool:
        if in_triton_descriptor():
            return True
        self.tracer.fail(
            f"{self.what} is not known while the program is traced: Python's if, while, and, or, not, min "
            "and max cannot test it; use 'with dh.when(condition):', dh.where, & | ~, dh.minimum or "
            "dh.maximum"
        )

    def __iter__(self) -> Any:
        self.tracer.fail(f"{self.what} cannot be iterated over")


class Cond(Symbol):
    """A condition; combine with ``&``, ``|`` and ``~``."""

    what = "a symbolic condition"

    def _with(self, op: Any, other: Any) -> Cond:
        if not isinstance(other, (Cond, bool)):
            return NotImplemented
        return Cond(self.tracer, self.tracer.emit(op, self.use(), condition(self.tracer, other)).result)

    def __and__(self, other: Any) -> Cond:
        return self._with(arith.AndIOp, other)

    def __or__(self, other: Any) -> Cond:
        return self._with(arith.OrIOp, other)

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Cond:
        return self._with(arith.XOrIOp, True)

    def __repr__(self) -> str:
        return "a symbolic condition"


class Int(Symbol):
    """A 64-bit integer of the host that is known when the program runs: ``//`` and ``%`` round down, as in Python.

    Attributes:
        divisor: a known divisor. non_negative: it is known to be.
        wide: kernels get it as 64 bits (what is computed from the epoch); the others as 32.
        polynomial: its value over symbolic integers, by which ``(r + 1) * n - r * n`` simplifies to ``n``.
    """

    what = "a symbolic integer"

    def __init__(
        self,
        tracer: Tracer,
        value: ir.Value,
        divisor: int = 1,
        non_negative: bool = False,
        wide: bool = False,
        polynomial: Polynomial | None = None,
    ):
        super().__init__(tracer, value)
        self.divisor, self.non_negative, self.wide = math.gcd(divisor, _MAX_DIVISOR), non_negative, wide
        self.polynomial = Polynomial.symbol(self) if polynomial is None else polynomial

    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Any:
        return binary("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return binary("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return binary("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return binary("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return binary("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return binary("*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return binary("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return binary("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return binary("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return binary("%", other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __lshift__(self, other: Any) -> Any:
        return binary("<<", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return binary("<<", other, self)

    def __rshift__(self, other: Any) -> Any:
        return binary(">>", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return binary(">>", other, self)

    def __and__(self, other: Any) -> Any:
        return binary("&", self, other)

    def __or__(self, other: Any) -> Any:
        return binary("|", self, other)

    def __xor__(self, other: Any) -> Any:
        return binary("^", self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __neg__(self) -> Any:
        return binary("-", 0, self)

    def __pos__(self) -> Int:
        return self

    def __invert__(self) -> Any:
        return binary("-", -1, self)

    def __abs__(self) -> Any:
        return binary("max", self, -self)

    def __eq__(self, other: Any) -> Any:
        return compare("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        return compare("ne", self, other)

    def __lt__(self, other: Any) -> Any:
        return compare("slt", self, other)

    def __le__(self, other: Any) -> Any:
        return compare("sle", self, other)

    def __gt__(self, other: Any) -> Any:
        return compare("sgt", self, other)

    def __ge__(self, other: Any) -> Any:
        return compare("sge", self, other)

    def __index__(self) -> int:
        self.tracer.fail(
            "a symbolic integer is not known while the program is traced: use 'for i in dh.range(...)' in "
            "place of Python's range, and keyword-only parameters for numbers that the trace has to know"
        )

    __int__ = __float__ = __index__

    def __truediv__(self, other: Any) -> Any:
        self.tracer.fail("the host's integers have no '/': use '//', which rounds down, or dh.cdiv, which rounds up")

    __rtruediv__ = __truediv__

    def __pow__(self, other: Any) -> Any:
        self.tracer.fail("the host's integers have no '**': multiply, or shift for a power of two: 1 << n")

    __rpow__ = __pow__

    def __round__(self, digits: int = 0) -> Any:
        self.tracer.fail("the host's integers are whole numbers: '//' rounds down, dh.cdiv rounds up")

    __floor__ = __ceil__ = __trunc__ = __round__

    def __repr__(self) -> str:
        return "a symbolic integer"


class Float(Symbol):
    """A float argument of the program: kernels get it, as fp32."""

    what = "a symbolic float"

    def _computed(self, *_: Any) -> Any:
        self.tracer.fail(
            "a float argument of a program is passed on to kernels: compute with it there, or before the call; a "
            "keyword-only parameter is a constant of the trace"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _computed
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = _computed
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = __int__ = __round__ = _computed
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "a symbolic float"


class Stream(Symbol):
    """A stream of a program; ``with stream:`` puts what follows on it."""

    what = "the stream"

    def __init__(self, tracer: Tracer, value: ir.Value, name: str):
        super().__init__(tracer, value)
        self.name = name

    def __enter__(self) -> Stream:
        self.use()
        self.tracer.streams.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self.tracer.streams.pop()

    def __repr__(self) -> str:
        return f"dh.stream({self.name!r})"


class Event(Symbol):
    """A point in a stream."""

    what = "the event"

    def __repr__(self) -> str:
        return "an event"


def describe(value: Any) -> str:
    """A value as an error message shows it."""
    if isinstance(value, Symbol):
        return repr(value)
    shape = getattr(value, "shape", None)
    return f"a tensor of shape {tuple(shape)}" if shape is not None else f"{value!r} ({type(value).__name__})"


def _python_int(value: Any) -> int | None:
    """A Python integer (no bool), else None."""
    if isinstance(value, (bool, Int)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def as_int(tracer: Tracer, value: Any, what: str) -> ir.Value:
    """The i64 of a symbolic or Python integer."""
    if isinstance(value, Int):
        return value.use()
    number = _python_int(value)
    if number is None:
        tracer.fail(f"{what} must be an integer, got {describe(value)}")
    if not -(2**63) <= number < 2**63:
        tracer.fail(f"{what} must fit in 64 bits, got {number}")
    return constant(tracer, number)


def constant(tracer: Tracer, number: int) -> ir.Value:
    from ditron_compiler import ir

    i64 = ir.IntegerType.get_signless(64, context=tracer.module.context)
    return tracer.emit(arith.ConstantOp, i64, ir.IntegerAttr.get(i64, number)).result


def condition(tracer: Tracer, value: Any) -> ir.Value:
    """The i1 of a condition or a Python bool."""
    if isinstance(value, Cond):
        return value.use()
    if not isinstance(value, bool):
        tracer.fail(f"expected a condition, such as rank == 0, got {describe(value)}")
    from ditron_compiler import ir

    i1 = ir.IntegerType.get_signless(1, context=tracer.module.context)
    return tracer.emit(arith.ConstantOp, i1, ir.IntegerAttr.get(i1, int(value))).result


def divisor_of(value: Any) -> int:
    """A known divisor of a symbolic or Python integer."""
    return value.divisor if isinstance(value, Int) else math.gcd(_python_int(value) or 0, _MAX_DIVISOR)


def _non_negative(value: Any) -> bool:
    return value.non_negative if isinstance(value, Int) else (_python_int(value) or 0) >= 0


_PYTHON = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "min": min,
    "max": max,
    "cdiv": lambda a, b: -(-a // b),
}
_OPS = {
    "+": arith.AddIOp,
    "-": arith.SubIOp,
    "*": arith.MulIOp,
    "//": arith.DivSIOp,
    "%": arith.RemSIOp,
    "<<": arith.ShLIOp,
    ">>": arith.ShRSIOp,
    "&": arith.AndIOp,
    "|": arith.OrIOp,
    "^": arith.XOrIOp,
    "cdiv": arith.CeilDivSIOp,
    "min": arith.MinSIOp,
    "max": arith.MaxSIOp,
}


def binary(kind: str, a: Any, b: Any) -> Any:
    """One operation of integer arithmetic; Python's result when both operands are known."""
    known = _python_int(a), _python_int(b)
    if None not in known:
        return _PYTHON[kind](*known)
    symbol = next((x for x in (a, b) if isinstance(x, Int)), None)
    if symbol is None:
        return NotImplemented
    tracer = symbol.tracer
    for number, value in zip(known, (a, b), strict=True):
        if number is None and not isinstance(value, Int):
            if isinstance(value, float):
                tracer.fail(f"the host computes with integers, got {describe(value)}: let a kernel compute with floats")
            return NotImplemented
    if kind in ("<<", ">>") and known[1] is not None:  # as products and quotients, which terms represent
        if not 0 <= known[1] < 63:
            tracer.fail(f"expected a shift by 0 to 62 bits, got {known[1]}")
        return binary("*" if kind == "<<" else "//", a, 1 << known[1])
    if kind in ("//", "%", "cdiv") and known[1] == 0:
        tracer.fail("division by zero")
    polynomial = _combine(kind, a, b) if kind in "+-*" else None
    if polynomial is not None and (existing := _existing(polynomial)) is not None:
        return existing
    x, y = (as_int(tracer, value, "an operand") for value in (a, b))
    common, non_negative = math.gcd(divisor_of(a), divisor_of(b)), _non_negative(a) and _non_negative(b)
    wide = any(isinstance(value, Int) and value.wide for value in (a, b))
    if kind == "*":
        common = divisor_of(a) * divisor_of(b)
    elif kind == "//":
        common = divisor_of(a) // known[1] if known[1] and divisor_of(a) % known[1] == 0 else 1
    elif kind in ("cdiv", ">>"):
        common = 1
    elif kind == "<<":
        common = divisor_of(a)
    elif kind in ("&", "|", "^"):  # low bits that are 0 in both stay so
        common &= -common
    if kind == "-":
        non_negative = False
    elif kind in ("<<", ">>"):
        non_negative = kind == ">>" and _non_negative(a)
    elif kind in ("max", "&"):
        non_negative = _non_negative(a) or _non_negative(b)
    if kind == "%" and not non_negative:  # the IR's remainder has the sign of a, Python's that of b
        whole = tracer.emit(arith.MulIOp, tracer.emit(arith.FloorDivSIOp, x, y).result, y).result
        return Int(tracer, tracer.emit(arith.SubIOp, x, whole).result, common, _non_negative(b), wide)
    op = arith.FloorDivSIOp if kind == "//" and not non_negative else _OPS[kind]
    return Int(tracer, tracer.emit(op, x, y).result, common, non_negative, wide, polynomial)


_MAX_TERMS = 8


def _combine(kind: str, a: Any, b: Any) -> Polynomial | None:
    """The sum, difference or product; None when it has many terms."""
    x, y = (v.polynomial if isinstance(v, Int) else Polynomial.constant(_python_int(v) or 0) for v in (a, b))
    result = _PYTHON[kind](x, y)
    return result if len(result.terms) <= _MAX_TERMS else None


def _existing(polynomial: Polynomial) -> Any:
    """The value that a polynomial stands for when it exists already: a Python integer or one symbolic one."""
    return polynomial.value if polynomial.value is not None else polynomial.as_symbol


def compare(predicate: str, a: Int, b: Any) -> Any:
    """A comparison of two integers."""
    if not isinstance(b, Int) and _python_int(b) is None:
        return NotImplemented
    tracer = a.tracer
    x, y = a.use(), as_int(tracer, b, "an operand")
    return Cond(tracer, tracer.emit(arith.CmpIOp, getattr(arith.CmpIPredicate, predicate), x, y).result)


def select(cond: Any, a: Any, b: Any) -> Any:
    """``a`` where the condition holds, else ``b``."""
    if isinstance(cond, bool):
        return a if cond else b
    tracer = cond.tracer
    x, y = as_int(tracer, a, "a"), as_int(tracer, b, "b")
    wide = any(isinstance(value, Int) and value.wide for value in (a, b))
    result = tracer.emit(arith.SelectOp, condition(tracer, cond), x, y).result
    return Int(tracer, result, math.gcd(divisor_of(a), divisor_of(b)), _non_negative(a) and _non_negative(b), wide)


def element_constant(tracer: Tracer, value: Any, dtype: Any) -> ir.Value:
    """A constant of a buffer's element type."""
    import torch

    from ditron._program.trace.dtypes import to_mlir
    from ditron_compiler import ir

    element = ir.Type.parse(to_mlir(dtype), tracer.module.context)
    if isinstance(value, Int):
        if not isinstance(element, ir.IntegerType):
            tracer.fail(f"expected a number for elements of {dtype}, got a symbolic integer")
        if dtype == torch.bool:
            return condition(tracer, value != 0)
        return value.use() if element.width == 64 else tracer.emit(arith.TruncIOp, element, value.use()).result
    if isinstance(value, Symbol) or not isinstance(value, (int, float)):
        tracer.fail(f"expected a number, got {describe(value)}")
    if isinstance(element, ir.IntegerType):
        if int(value) != value:
            tracer.fail(f"expected an integer for elements of {dtype}, got {value!r}")
        value = bool(value) if dtype == torch.bool else value
        return tracer.emit(arith.ConstantOp, element, int(value)).result
    return tracer.emit(arith.ConstantOp, element, float(value)).result
