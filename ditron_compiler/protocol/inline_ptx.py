"""Inline PTX that synchronizes, as ditron operations: loads, stores and atomics of integers, fences, and loops on them.

    "ld.acquire.sys.global.u32 $0, [$1];"                    ->  ditron.ld
    "st.release.sys.global.u32 [$1], $2;"                    ->  ditron.st
    "red.release.sys.global.add.u32 [$1], 1;"                ->  ditron.red
    "atom.global.acq_rel.sys.add.u32 $0, [$1], $2;"          ->  ditron.atomic_add, ditron.atomic_cas for cas
    "again: atom.sys.acquire.cas.b32 %t, [$1], 1, 0; setp.eq.u32 %p, %t, 1; @!%p bra again;"   ->  a loop of it

Other assembly that accesses memory or orders accesses stays, and is not followed; ``nanosleep`` is left out.
"""

from __future__ import annotations

import re

from ditron_compiler import ir
from ditron_compiler.ir.dialects import tt

__all__ = ["UNDERSTOOD", "not_understood", "only_computes", "raise_inline_ptx"]

_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = {"sys": "node", "gpu": "gpu", "cta": "gpu", "cluster": "gpu"}
_REDUCTIONS = ("add", "min", "max", "and", "or", "xor")
_FENCES = re.compile(r"(fence(\.(acq_rel|sc))?(\.\w+)*|membar\.\w+)$")
_ORDERS = re.compile(r"\[|\b(bar|barrier|mbarrier|membar|fence|cp|red|atom|multimem|bra|griddepcontrol)\b")

#: For notes of what is not.
UNDERSTOOD = (
    "ld, st, red, atom.add and atom.cas of 32- and 64-bit integers in global memory, fences, nanosleep, "
    "and loops that repeat one of them until a comparison holds"
)


def only_computes(op: ir.Operation) -> bool:
    """Whether inline assembly neither accesses memory nor orders accesses."""
    return not _ORDERS.search(op.asm_string.value)


def not_understood(op: ir.Operation) -> str:
    """The first statement of inline assembly that is not understood."""
    function = _Function(op, "")
    return function.refused if function.text() is None else ""


def raise_inline_ptx(module: ir.Module) -> None:
    """Replace the inline assembly of a module that is understood by calls of functions that do the same."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    if isinstance(inner, tt.ElementwiseInlineAsmOp) and not only_computes(inner):
                        found.append(inner)
                    visit(inner)

    visit(module.operation)
    for number, op in enumerate(found):
        text = _Function(op, f"inline_ptx_{number}").text()
        if text is None:
            continue
        function = next(iter(ir.Module.parse(text, module.context).body.operations))
        function.clone(ip=ir.InsertionPoint.at_block_begin(module.body))
        call = ir.Operation.create(
            "tt.call",
            [result.type for result in op.results],
            list(op.operands),
            {"callee": ir.FlatSymbolRefAttr.get(f"inline_ptx_{number}")},
            loc=op.location,
            ip=ir.InsertionPoint(op),
        )
        op.replace_all_uses_with(call)
        op.erase()


class _Refused(Exception):
    """Assembly that is not understood."""


class _Function:
    """The text of a function that does what an inline assembly does."""

    def __init__(self, op: ir.Operation, name: str):
        self.op, self.name = op, name
        self.outputs = op.constraints.value.count("=")
        self.lines: list[str] = []
        self.values: dict[str, str] = {}  # register -> SSA value
        self.constants: dict[str, int] = {}
        self.refused = ""  # the statement that is not understood
        self._count = 0
        kinds = [str(value.type) for value in [*op.operands, *op.results]]
        shapes = {kind[: kind.rindex("x") + 1] if kind.startswith("tensor<") else "" for kind in map(_unpointed, kinds)}
        self.shape = shapes.pop() if len(shapes) == 1 else None  # "tensor<4x", or nothing

    def text(self) -> str | None:
        """None where it is not understood."""
        statements = _statements(self.op.asm_string.value)
        self.refused = "; ".join(statements)
        try:
            if self.shape is None or self.op.packed_element.value != 1 or len(self.op.results) != self.outputs:
                raise _Refused
            while statements:
                self.refused = statements[0]
                statements = statements[self._one(statements) :]
            self.refused = self.op.asm_string.value
            results = [self._result(number) for number in range(self.outputs)]
        except (_Refused, AttributeError, IndexError):
            return None
        types = [str(value.type) for value in self.op.operands]
        given = ", ".join(f"%a{n}: {kind}" for n, kind in enumerate(types))
        kinds = [str(result.type) for result in self.op.results]
        returned = f"tt.return {', '.join(results)} : {', '.join(kinds)}" if results else "tt.return"
        where = f" {self.op.location}"
        body = "\n".join(line + where * (not line.endswith(("{", ":"))) for line in [*self.lines, returned])
        head = f"tt.func private @{self.name}({given}) -> ({', '.join(kinds)})"
        return head + " attributes {noinline = true} {\n" + body + "\n}"

    def _one(self, statements: list[str]) -> int:
        """Write the first statements; how many."""
        label = re.fullmatch(r"([\w$%]+):\s*(.*)", statements[0], re.S)
        if label:
            return self._loop(label[1], [label[2], *statements[1:]] if label[2] else statements[1:], not label[2])
        code, _, rest = statements[0].partition(" ")
        if code == ".reg" or code.startswith("nanosleep"):
            return 1
        operands = [text.strip() for text in rest.split(",")]
        if _FENCES.match(code):
            self.lines.append("ditron.fence")
        elif code.startswith("mov.") and re.fullmatch(r"-?\d+", operands[1]):
            self.constants[operands[0]] = int(operands[1])
        elif width := re.fullmatch(r"mov\.[usb](32|64)", code):
            self.values[operands[0]] = self._value(operands[1], int(width[1]))
        else:
            self._memory(code.split("."), operands)
        return 1

    def _loop(self, label: str, statements: list[str], separate: bool) -> int:
        """``again: OPERATION; setp.CMP %p, %t, VALUE; @%p bra again;``."""
        if len(statements) < 3 or self.shape:
            raise _Refused
        operation, compare, branch = statements[:3]
        code, _, rest = operation.partition(" ")
        test = re.fullmatch(r"setp\.(eq|ne|lt|le|gt|ge)\.\w+\s+(\S+),\s*(\S+),\s*(\S+)", compare)
        jump = re.fullmatch(r"@(!?)(\S+)\s+bra(?:\.uni)?\s+(\S+)", branch)
        if not test or not jump or jump[2] != test[2] or jump[3] != label:
            raise _Refused
        head, operands = len(self.lines), [text.strip() for text in rest.split(",")]
        bits = self._memory(code.split("."), operands)
        read = self.values.get(operands[0])
        sign = test[1] if test[1] in ("eq", "ne") else f"s{test[1]}"
        taken, one = self._new(), self._value(test[4], bits)
        self.lines.append(f"{taken} = arith.cmpi {sign}, {self._value(test[3], bits)}, {one} : i{bits}")
        if jump[1]:
            true, opposite = self._new(), self._new()
            self.lines += [f"{true} = arith.constant true", f"{opposite} = arith.xori {taken}, {true} : i1"]
            taken = opposite
        if read is None:
            self.lines.insert(head, "scf.while : () -> () {")
            self.lines += [f"scf.condition({taken})", "} do {", "scf.yield", "}"]
        else:  # the register keeps what was read last
            self.values[operands[0]], kind = self._new(), f"i{bits}"
            self.lines.insert(head, f"{self.values[operands[0]]} = scf.while : () -> {kind} {{")
            self.lines += [f"scf.condition({taken}) {read} : {kind}", "} do {"]
            self.lines += [f"^bb0({self._new()}: {kind}):", "scf.yield", "}"]
        return 3 + separate

    def _memory(self, code: list[str], operands: list[str]) -> int:
        """Write one access to memory; its width."""
        kind, facts = code[0], code[1:]
        width = re.fullmatch(r"[usb](32|64)", facts[-1]) if facts else None
        if width is None or {"shared", "local", "v2", "v4"} & set(facts):
            raise _Refused
        bits = int(width[1])
        semantic = next((fact for fact in facts if fact in _SEMANTICS), "relaxed")
        scope = next((_SCOPES[fact] for fact in facts if fact in _SCOPES), "node" if "volatile" in facts else "gpu")
        order = f"scope {scope} semantic {semantic} : {self._kind(f'!tt.ptr<i{bits}>')}"
        what = next((fact for fact in facts if fact in (*_REDUCTIONS, "cas", "exch")), "")
        if kind == "ld":
            target, pointer = operands[0], self._pointer(operands[1], bits)
            self._define(target, f"ditron.ld {pointer} {order}")
        elif kind == "st":
            pointer, value = self._pointer(operands[0], bits), self._value(operands[1], bits)
            self.lines.append(f"ditron.st {pointer}, {value} {order}")
        elif kind == "red" and what in _REDUCTIONS:
            pointer, value = self._pointer(operands[0], bits), self._value(operands[1], bits)
            self.lines.append(f"ditron.red {pointer} {what} {value} {order}")
        elif kind == "atom" and what == "add":
            pointer, value = self._pointer(operands[1], bits), self._value(operands[2], bits)
            self._define(operands[0], f"ditron.atomic_add {pointer}, {value} {order}")
        elif kind == "atom" and what == "cas":
            pointer = self._pointer(operands[1], bits)
            expected, value = self._value(operands[2], bits), self._value(operands[3], bits)
            self._define(operands[0], f"ditron.atomic_cas {pointer}, {expected}, {value} {order}")
        else:
            raise _Refused
        return bits

    def _kind(self, element: str) -> str:
        """The type of an element, or of a tile of them."""
        return f"{self.shape}{element}>" if self.shape else element

    def _new(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def _define(self, register: str, text: str) -> None:
        self.values[register] = self._new()
        self.lines.append(f"{self.values[register]} = {text}")

    def _argument(self, text: str) -> int:
        found = re.fullmatch(r"\$(\d+)", text)
        if found is None or not self.outputs <= int(found[1]) < self.outputs + len(self.op.operands):
            raise _Refused
        return int(found[1]) - self.outputs

    def _pointer(self, text: str, bits: int) -> str:
        inside = re.fullmatch(r"\[\s*(\$\d+)\s*\]", text)
        if inside is None:
            raise _Refused
        number = self._argument(inside[1])
        kind, name = str(self.op.operands[number].type), f"%a{number}"
        wanted = self._kind(f"!tt.ptr<i{bits}>")
        if kind == wanted:
            return name
        cast = "int_to_ptr" if kind == self._kind("i64") else "bitcast" if "!tt.ptr<" in kind else ""
        if not cast:
            raise _Refused
        made = self._new()
        self.lines.append(f"{made} = tt.{cast} {name} : {kind} -> {wanted}")
        return made

    def _value(self, text: str, bits: int) -> str:
        if text in self.values:
            return self.values[text]
        constant = int(text, 0) if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text) else self.constants.get(text)
        if constant is not None:
            made = self._new()
            self._constant(made, constant, self._kind(f"i{bits}"))
            return made
        number = self._argument(text)
        if str(self.op.operands[number].type) != self._kind(f"i{bits}"):
            raise _Refused
        return f"%a{number}"

    def _result(self, number: int) -> str:
        kind, name = str(self.op.results[number].type), f"${number}"
        if name in self.values:
            return self.values[name]
        if not re.search(r"\bi\d+>?$", kind) and not re.search(r"xi\d+>$", kind):
            raise _Refused
        made = self._new()  # of an output that nothing is written to, any value
        self._constant(made, self.constants.get(name, 0), kind)
        return made

    def _constant(self, name: str, value: int, kind: str) -> None:
        text = f"dense<{value}>" if self.shape else str(value)
        self.lines.append(f"{name} = arith.constant {text} : {kind}")


def _unpointed(kind: str) -> str:
    return re.sub(r"!tt\.ptr<[^>]*>", "p", kind)


def _statements(text: str) -> list[str]:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S).replace("{", " ").replace("}", " ")
    parts = [" ".join(part.split()) for part in text.split(";")]
    return [part for part in parts if part]
