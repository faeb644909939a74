"""NVSHMEM's device library, cut down to the functions that our transport calls.

The library is 31 MB of bitcode, and a kernel that links it takes 6 s to compile; with what our calls need, 0.5 MB, it
takes what a kernel without NVSHMEM takes. Triton's own LLVM does the cutting, so that it reads back what it wrote.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from functools import lru_cache
from pathlib import Path

from ditron_compiler import knobs

__all__ = ["cut_down"]

_MLIR_TYPES = {"ptr": "!llvm.ptr", "i32": "i32", "i64": "i64"}


@lru_cache
def cut_down(bitcode: Path, transport: Path) -> Path:
    """A library with what the functions declared in ``transport`` (nvshmem.ll) need of ``bitcode``, cached on disk.

    Returns ``bitcode`` itself when the cache directory cannot be written.
    """
    import triton

    declarations = transport.read_text()
    stat = bitcode.stat()
    key = f"{bitcode.resolve()} {stat.st_size} {stat.st_mtime_ns} {triton.__version__} {declarations}"
    path = knobs.cache_dir.get() / f"{bitcode.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.ll"
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".ll")
    except OSError:
        return bitcode
    with os.fdopen(handle, "w") as file:
        file.write(_linked(bitcode, declarations))
    os.replace(temporary, path)  # at once: other ranks may be doing the same
    return path


def _linked(bitcode: Path, declarations: str) -> str:
    """LLVM IR of the declared SHMEM functions, linked out of ``bitcode`` with all that they call."""
    from triton._C.libtriton import ir, llvm

    functions = re.findall(r"^declare (\w+) @(nvshmem\w+)\((.*)\)$", declarations, re.MULTILINE)
    lines = [
        f"llvm.func @{name}({', '.join(_MLIR_TYPES[t] for t in arguments.split(', ') if t)})"
        + (f" -> {_MLIR_TYPES[result]}" if result != "void" else "")
        for result, name, arguments in functions
    ]
    context = ir.context()
    ir.load_dialects(context)
    handle, source = tempfile.mkstemp(suffix=".mlir")
    try:
        with os.fdopen(handle, "w") as file:
            file.write("\n".join(["module {", *lines, "}"]))
        module = ir.parse_mlir_module(source, context)
    finally:
        os.unlink(source)
    module.context = context
    llvm.init_targets()
    llvm_context = llvm.context()
    linked = llvm.to_module(module, llvm_context)
    llvm.attach_datalayout(linked, "nvptx64-nvidia-cuda", "sm_90a", "")
    llvm.link_extern_libs(linked, [str(bitcode)])
    # Triton makes what it links internal; a library's functions must be found by name again.
    ours = rf"^define internal (.*?@(?:{'|'.join(name for _, name, _ in functions)})\()"
    return re.sub(ours, r"define linkonce_odr hidden \1", str(linked), flags=re.MULTILINE)
