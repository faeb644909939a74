"""LLVM IR to machine code in this process, with a cache of object files.

An object file is cached under the hash of everything that it depends on: the IR, the CPU, and LLVM's version. Its own
hash follows it in the file.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from ditron_compiler import knobs

from . import symbols

CODE_MODEL = "large"  # LLVM maps the sections of an object one by one, maybe either side of a simulated heap
SPEED = 2  # -O2: vectorises; -O3 costs compile time and gained nothing on our kernels
FORMAT = "2"  # of a cached file: code, then its hash
_engines: list[llvm.ExecutionEngine] = []  # an engine owns the code it loaded: keep it
_added: set[str] = set()  # symbols that the linker knows


class UnresolvedSymbol(RuntimeError):
    """Code calls a function that this process does not have."""


def _target() -> llvm.TargetMachine:
    """LLVM's target machine for the CPU that DITRON_SIM_CPU names.

    Raises ValueError for a CPU that LLVM does not know.
    """
    return _target_for(knobs.sim_cpu.get())


@cache
def _target_for(cpu: str) -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    library = ctypes.util.find_library("m")
    if library:  # expf and its like; an interpreter may not have loaded it
        llvm.load_library_permanently(library)
    if cpu != "host" and cpu not in known_cpus():
        raise ValueError(
            f"environment variable {knobs.sim_cpu.name}={cpu!r} names no CPU that LLVM knows: "
            f"expected host, {', '.join(known_cpus())}"
        )
    name, features = _name_and_features(cpu)
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=name, features=features, opt=SPEED, reloc="static", codemodel=CODE_MODEL, jit=True
    )


def _name_and_features(cpu: str) -> tuple[str, str]:
    if cpu == "host":
        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return cpu, ""  # the features that LLVM knows the CPU to have


@cache
def known_cpus() -> tuple[str, ...]:
    """The CPUs of this machine's architecture that LLVM compiles for, by name."""
    # LLVM prints them to standard error, in C++: only another process can read that without taking it from others.
    script = (
        "import llvmlite.binding as llvm; llvm.initialize_native_target(); "
        "llvm.Target.from_default_triple().create_target_machine(cpu='help')"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stderr
    names, _, _ = printed.partition("Available features")
    return tuple(re.findall(r"^\s+(\S+)\s+- Select", names, re.MULTILINE))


def _add_symbols() -> None:
    """Make the runtime's functions known to the linker."""
    for name, address in symbols.addresses().items():
        if name not in _added:
            llvm.add_symbol(name, address)
            _added.add(name)


def _key(text: str) -> str:
    target = _target()
    parts = (text, target.triple, *_name_and_features(knobs.sim_cpu.get()),
             llvmlite.__version__, str(llvm.llvm_version_info), str(SPEED), CODE_MODEL, FORMAT)  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def optimise(text: str) -> llvm.ModuleRef:
    """Parse LLVM IR and run LLVM's pipeline for the chosen CPU on it."""
    module = llvm.parse_assembly(text)
    target = _target()
    module.triple = target.triple
    module.data_layout = str(target.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED)
    options.loop_vectorization = True
    options.slp_vectorization = False
    passes = llvm.create_pass_builder(target, options)
    passes.getModulePassManager().run(module, passes)
    return module


def object_code(text: str) -> bytes:
    """Machine code for LLVM IR, from the cache if it is there."""
    path = Path(knobs.cache_dir.get()) / "sim" / f"{_key(text)}.o"
    try:
        code = _intact(path.read_bytes())
    except OSError:
        code = None
    if code is not None:
        return code
    code = _target().emit_object(optimise(text))
    try:  # a cache that cannot be written only costs time
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(code + hashlib.sha256(code).digest())
        os.replace(temporary, path)
    except OSError:
        pass
    return code


def _intact(content: bytes) -> bytes | None:
    """The code in a cached file, or None when the file is not whole: LLVM would crash on it."""
    code, digest = content[:-32], content[-32:]
    return code if hashlib.sha256(code).digest() == digest else None


def load(text: str, symbol: str) -> int:
    """Compile LLVM IR and return the address of its function `symbol`.

    Raises UnresolvedSymbol when the code calls what neither a registered runtime (symbols.py) nor the C library has.
    """
    code = object_code(text)
    _add_symbols()
    missing = [name for name in undefined_symbols(code) if llvm.address_of_symbol(name) is None]
    if missing:  # LLVM would end the process
        raise UnresolvedSymbol(f"code compiled for the simulator calls {', '.join(missing)}, which nothing defines")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _fresh_target())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return engine.get_function_address(symbol)


def _fresh_target() -> llvm.TargetMachine:
    """An engine takes its target machine for itself."""
    _target()
    return llvm.Target.from_default_triple().create_target_machine(jit=True)


def undefined_symbols(code: bytes) -> list[str]:
    """Names that an ELF64 little-endian object file uses and does not define; none for other formats."""
    if code[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", code, 0x28)
    size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, table + i * size) for i in range(count)]
    names = []
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        strings = sections[link][4]
        for at in range(offset + entry, offset + length, entry):
            name, _, _, section = struct.unpack_from("<IBBH", code, at)
            if section == 0:
                end = code.index(b"\0", strings + name)
                names.append(code[strings + name : end].decode())
    return [n for n in names if n != "_GLOBAL_OFFSET_TABLE_"]
