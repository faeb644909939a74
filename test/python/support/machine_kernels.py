"""Kernels for the simulated machine, written in LLVM IR: the machine's tests need no compiler of ours."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import llvmlite.binding as llvm

from ditron import sim

SIGNATURE = "ptr %args, i32 %pid, i32 %pid1, i32 %pid2, i32 %n0, i32 %n1, i32 %n2"
CALL = re.compile(r"call (void|i32|i64|ptr) (?:\((.*\.\.\.)\) )?@(\w[\w.]*)\((.*?)\)\s*$", re.MULTILINE)


@dataclass
class Kernel:
    """What `RankView.launch` wants; `locations` has the lines 10, 11, ... of a file that does not exist."""

    name: str
    address: int
    engine: llvm.ExecutionEngine = field(repr=False)
    locations: tuple[str, ...] = tuple(f"kernel.py:{line}:5" for line in range(10, 30))


def _engine() -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


_engines: list[llvm.ExecutionEngine] = []


def kernel(name: str, parameters: str, body: str) -> Kernel:
    """Compile a kernel. ``parameters``: names and types as in ``"sig: ptr, value: i64"``, one slot each.

    The body sees them as ``%sig``, the program's id as ``%pid``, and ends with ``ret void``.
    """
    loads = []
    for index, (parameter, kind) in enumerate(p.strip().split(": ") for p in parameters.split(",") if p):
        loads.append(
            f"%{parameter}.slot = getelementptr i64, ptr %args, i64 {index}\n"
            f"%{parameter} = load {kind}, ptr %{parameter}.slot"
        )
    declarations = set()
    for result, variadic, symbol, arguments in CALL.findall(body):
        types = variadic or ", ".join(argument.split()[0] for argument in arguments.split(",") if argument.strip())
        declarations.add(f"declare {result} @{symbol}({types})")
    text = "\n".join([*sorted(declarations), f"define void @{name}({SIGNATURE}) {{", "entry:", *loads, body, "}"])
    for symbol, address in sim.symbols().items():
        llvm.add_symbol(symbol, address)
    module = llvm.parse_assembly(text)
    module.verify()
    engine = _engine()
    engine.add_module(module)
    engine.finalize_object()
    _engines.append(engine)
    return Kernel(name, engine.get_function_address(name), engine)
