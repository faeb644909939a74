"""The device libraries that a lowered kernel links to, in the order in which Triton must link them."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path

from ditron_compiler import knobs
from ditron_compiler.frontend.nvshmem_bitcode import cut_down
from ditron_compiler.runtime_files import runtime_library

__all__ = ["VENDORS", "extern_libs", "nvshmem_bitcode", "rocshmem_bitcode"]

# Triton's backend -> the folder of its libraries, its transports.
VENDORS = {"cuda": ("nvidia", ("p2p", "nvshmem")), "hip": ("amd", ("p2p", "rocshmem"))}


def extern_libs(
    backend: str,
    transport: str,
    arch: int | str = "",
    *,
    bitcode: bool = True,
    whole: bool = False,
    sanitize: bool = False,
) -> dict[str, str]:
    """What Triton's option ``extern_libs`` must hold for a kernel lowered for ``backend`` and ``transport``.

    Args:
        backend: ``"cuda"`` or ``"hip"``. transport: ``"p2p"``, ``"nvshmem"`` or ``"rocshmem"``.
        arch: the architecture, by which rocSHMEM's bitcode is chosen (``"gfx942"``).
        bitcode: whether to link the SHMEM library itself, where it is found. Without it the SHMEM symbols stay
            undefined: LLVM IR and PTX are made, a cubin is not.
        whole: link all of NVSHMEM, not only what our transport calls: for kernels that call its other functions
            themselves (``dl.extern_call``). They take seconds to compile.
        sanitize: for a kernel lowered with the sanitizer.

    Triton links a library's functions as they are needed, so a file stands before those it calls. AMD's backend links
    a library only if some undefined function's name contains the library's; all of ours begin with ``ditron_``, hence
    names that are pieces of that word.
    """
    if backend not in VENDORS:
        raise ValueError(f"expected backend {' or '.join(map(repr, VENDORS))}, got {backend!r}")
    vendor, transports = VENDORS[backend]
    if transport not in transports:
        raise ValueError(f"expected transport {' or '.join(map(repr, transports))} on {backend}, got {transport!r}")
    provider = runtime_library("gpu/p2p.ll" if transport == "p2p" else f"{vendor}/{transport}.ll")
    files = [runtime_library("gpu/sanitizer.ll")] if sanitize else []
    files += [runtime_library("gpu/packets.ll"), provider, runtime_library("gpu/core.ll")]
    if backend == "cuda":
        files.append(runtime_library("nvidia/multimem.ll"))
    if sanitize:
        files.append(runtime_library(f"{vendor}/sanitizer.ll"))
    files.append(runtime_library(f"{vendor}/common.ll"))
    shmem = None
    if bitcode and transport == "nvshmem":
        shmem = nvshmem_bitcode()
        if shmem and not whole:
            shmem = cut_down(shmem, provider)
    elif bitcode and transport == "rocshmem":
        shmem = rocshmem_bitcode(str(arch))
    if shmem:
        files.append(shmem)
    word = "ditron_"
    pieces = [*(word[:end] for end in range(len(word), 0, -1)), *(word[start:] for start in range(1, len(word)))]
    return {piece: str(file) for piece, file in zip(pieces, files, strict=False)}


@lru_cache
def _installed_nvshmem() -> Path | None:
    """The bitcode in the package ``nvidia-nvshmem-cu12`` or ``-cu13``."""
    try:
        spec = importlib.util.find_spec("nvidia.nvshmem")
    except ModuleNotFoundError:
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / "lib" / "libnvshmem_device.bc"
        if file.is_file():
            return file
    return None


def nvshmem_bitcode() -> Path | None:
    """NVSHMEM's device library: the knob's, else that of the installed nvidia-nvshmem package, else None.

    Raises FileNotFoundError when the knob names a file that does not exist.
    """
    return _from_knob(knobs.nvshmem_bitcode) or _installed_nvshmem()


def rocshmem_bitcode(arch: str) -> Path | None:
    """rocSHMEM's device library for ``arch``: the knob's, else that under /opt/rocm/lib, else None.

    Raises FileNotFoundError when the knob names a file that does not exist.
    """
    for name in (f"librocshmem_device_{arch}.bc", "librocshmem_device.bc"):
        file = Path("/opt/rocm/lib") / name
        if file.is_file():
            return _from_knob(knobs.rocshmem_bitcode) or file
    return _from_knob(knobs.rocshmem_bitcode)


def _from_knob(knob: knobs.Knob) -> Path | None:
    file = knob.get()
    if file is not None and not file.is_file():
        raise FileNotFoundError(f"{knob.name}={file}: no such file; it must name {knob.doc}")
    return file
