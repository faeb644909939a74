"""Compile MLIR text with ``ditron`` operations for a GPU, one kernel at a time, and look at any stage; needs no GPU.

As a program it prints one stage of every kernel of a file, for the lit tests::

    python gpu_stages.py FILE --target cuda:90 --transport nvshmem --stage llir
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from ditron_compiler import ir
from ditron_compiler.frontend.device_libraries import extern_libs
from ditron_compiler.lowering.gpu.lower_to_amd import LowerToAMD
from ditron_compiler.lowering.gpu.lower_to_nvidia import LowerToNvidia
from ditron_compiler.lowering.lower_swizzle import LowerSwizzle


def lower(text: str, target: str = "cuda:90", transport: str = "p2p") -> list[str]:
    """The lowered TTIR of each kernel in ``text``, in generic form."""
    machine, arch = target.split(":")
    lowering = (
        LowerToNvidia(transport=transport, arch=int(arch))
        if machine == "cuda"
        else LowerToAMD(transport=transport, arch=arch)
    )
    kernels = []
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        LowerSwizzle().run(module.operation)
        lowering.run(module.operation)
        module.operation.verify()
        for function in module.body.operations:
            kernels.append(function.operation.get_asm(enable_debug_info=True, print_generic_op_form=True))
    return kernels


def stages(
    ttir: str, target: str, transport: str = "p2p", *, until: str = "", bitcode: bool = False, **options: object
) -> dict[str, object]:
    """Run one lowered kernel through Triton's stages up to ``until``, or all: stage -> its text or bytes."""
    from triton._C.libtriton import ir as triton_ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend

    machine, arch = target.split(":")
    gpu = GPUTarget(machine, int(arch) if machine == "cuda" else arch, 32 if machine == "cuda" else 64)
    backend = make_backend(gpu)
    parsed_options = backend.parse_options(
        {"extern_libs": extern_libs(machine, transport, arch, bitcode=bitcode), **options}
    )
    context = triton_ir.context()
    triton_ir.load_dialects(context)
    backend.load_dialects(context)
    handle, path = tempfile.mkstemp(suffix=".ttir")
    with os.fdopen(handle, "w") as file:
        file.write(ttir)
    module = triton_ir.parse_mlir_module(path, context)
    os.unlink(path)
    module.context = context
    todo: dict = {}
    backend.add_stages(todo, parsed_options, Language.TRITON)
    done: dict[str, object] = {}
    metadata = {"target": gpu, **parsed_options.__dict__}
    for name, stage in todo.items():
        module = stage(module, metadata)
        done[name] = module if isinstance(module, bytes) else str(module)
        if name == until:
            break
    return done


def compile_text(text: str, target: str = "cuda:90", transport: str = "p2p", **how: object) -> dict[str, object]:
    """All stages of the first kernel in ``text``."""
    return stages(lower(text, target, transport)[0], target, transport, **how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--target", default="cuda:90")
    parser.add_argument("--transport", default="p2p")
    parser.add_argument("--stage", default="llir")
    arguments = parser.parse_args()
    with open(arguments.file) as file:
        text = file.read()
    for kernel in lower(text, arguments.target, arguments.transport):
        result = stages(kernel, arguments.target, arguments.transport, until=arguments.stage)[arguments.stage]
        print(result if isinstance(result, str) else f"{arguments.stage}: {len(result)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
