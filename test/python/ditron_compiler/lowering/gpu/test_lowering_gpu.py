"""What the lowered kernels are in PTX and AMDGCN: complete, vectorised, and in the order that the semantics promise."""

import re
from functools import lru_cache
from pathlib import Path

import gpu_kernels as kernels
import paths
import pytest
from gpu_stages import lower, stages

from ditron._jit.compile import compile
from ditron_compiler import ir
from ditron_compiler.frontend import device_libraries as gpu_libraries
from ditron_compiler.ir.pass_base import PassFailure
from ditron_compiler.lowering.gpu.lower_to_amd import ROCSHMEM, LowerToAMD
from ditron_compiler.lowering.gpu.lower_to_nvidia import NVSHMEM, LowerToNvidia
from ditron_compiler.lowering.gpu.table import TABLE

OPERATIONS = {op.OPERATION_NAME.removeprefix("ditron.") for op in TABLE}

INPUTS = paths.ROOT / "test" / "lit" / "lowering" / "Inputs"
NVIDIA, AMD = "cuda:90", "hip:gfx942"
BF16 = "*bf16"
GEMM = {"a": BF16, "b": BF16, "c": BF16, "sig": "*i64", "M": "i32:16", "N": "i32:16", "K": "i32:16"}
TILE = {"BM": 128, "BN": 128, "BK": 64}


@lru_cache
def code(kernel: str, target: str) -> str:
    """PTX or AMDGCN of a kernel in gpu_kernels.py, without comments."""
    signature, constants = {
        "exchange": ({"x": BF16, "out": BF16, "sig": "*i64", "n": "i32:16"}, {"BLOCK": 2048}),
        "pull": ({"x": BF16, "out": BF16, "peer": "i32"}, {"BLOCK": 2048}),
        "gemm_after_wait": (GEMM, TILE),
        "gemm_waiting_in_loop": (GEMM, TILE),
        "tma_exchange": (
            {"x": BF16, "out": BF16, "sig": "*i64", "M": "i32:16", "N": "i32:16", "peer": "i32"},
            {"BM": 64, "BN": 64},
        ),
        "own_values": ({"out": "*i64", "sig": "*i64", "peer": "i32"}, {}),
    }[kernel]
    program = compile(getattr(kernels, kernel), signature, constants, target=target)
    assert program.asm["cubin" if target == NVIDIA else "hsaco"], program.missing
    text = program.asm["ptx" if target == NVIDIA else "amdgcn"]
    text = text[: re.search(r"\.section\s+\.(debug|AMDGPU)", text).start()]
    return re.sub(r"(//|;).*" if target == AMD else r"//.*", "", text)


def positions(text: str, *patterns: str) -> list[int]:
    """Where each pattern first occurs after the one before it; fails, naming the pattern, when one does not."""
    found, start = [], 0
    for pattern in patterns:
        match = re.compile(pattern).search(text, start)
        assert match, f"{pattern!r} does not occur after {patterns[: len(found)]} in\n{text}"
        found.append(match.start())
        start = match.end()
    return found


@pytest.mark.parametrize("target", [NVIDIA, AMD])
def test_every_operation_becomes_machine_code_under_p2p(target):
    seen = set()
    for file in ["gpu-ops.mlir"] + (["multimem.mlir"] if target == NVIDIA else []):
        text = (INPUTS / file).read_text()
        seen |= set(re.findall(r"ditron\.(\w+)", text))
        for kernel in lower(text, target):
            if "my_function" in kernel:  # the user's own library is not here
                continue
            assert len(stages(kernel, target)["cubin" if target == NVIDIA else "hsaco"]) > 1000
    missing = OPERATIONS - seen - (set() if target == NVIDIA else set(multicast()))
    assert not missing, f"no kernel tests {missing}"


def multicast():
    return [name for name in OPERATIONS if name.startswith("multi")]


@pytest.mark.parametrize("target, transport, symbols", [(NVIDIA, "nvshmem", NVSHMEM), (AMD, "rocshmem", ROCSHMEM)])
def test_table_names_the_symbols_that_are_called(target, transport, symbols):
    text = (INPUTS / "gpu-ops.mlir").read_text() + ((INPUTS / "multimem.mlir").read_text() if target == NVIDIA else "")
    called: dict[str, set[str]] = {}
    for kernel, source in zip(lower(text, target, transport), text.split("tt.func ")[1:], strict=True):
        llvm = stages(kernel, target, transport, until="llir")["llir"]
        calls = set(re.findall(r"call [^@\n]*@((?:_ZN8rocshmem\d+)?n?v?\w*shmem\w*)\(", llvm))
        for operation in set(re.findall(r"ditron\.(\w+)", source)) & OPERATIONS:
            called.setdefault(operation, set()).update(calls)
    for operation, expected in symbols.items():
        assert set(expected) <= called[operation], operation
    without = {operation for operation, calls in called.items() if not calls}
    assert not without & set(symbols)


def test_remote_accesses_are_vectors_of_16_bytes():
    ptx = code("exchange", NVIDIA)
    # The mask `offs < n` keeps them because n is known to be divisible by 16.
    assert len(re.findall(r"@%p\d+ ld\.global\.v4\.b32", ptx)) == 2
    assert len(re.findall(r"@%p\d+ st\.global\.v4\.b32", ptx)) == 2
    assert not re.search(r"(ld|st)\.global\.(b16|v2)", ptx)
    pulled = code("pull", NVIDIA)
    assert len(re.findall(r"ld\.global\.v4\.b32", pulled)) == len(re.findall(r"st\.global\.v4\.b32", pulled)) == 2


def test_remote_accesses_are_vectors_of_16_bytes_on_amd():
    assert re.search(r"(buffer|global)_load_dwordx4", code("exchange", AMD))
    assert re.search(r"(buffer|global)_store_dwordx4", code("exchange", AMD))
    assert re.search(r"(buffer|global)_load_dwordx4", code("pull", AMD))


def test_loads_stay_below_the_wait_and_the_notify_releases_the_stores():
    ptx = code("exchange", NVIDIA)
    positions(
        ptx,
        r"ld\.acquire\.sys\.global\.b64",
        r"bar\.sync",
        r"ld\.global\.v4",
        r"st\.global\.v4",
        r"bar\.sync",
        r"fence\.acq_rel\.sys",
        r"st\.relaxed\.sys\.global\.b64",
    )
    assert not re.search(r"ld\.global\.v4", ptx[: ptx.index("ld.acquire")])


def test_loads_stay_below_the_wait_and_the_notify_releases_the_stores_on_amd():
    asm = code("exchange", AMD)
    wait, _, barrier, load, *_ = positions(
        asm,
        r"global_load_dwordx2 .* sc0 sc1",
        r"buffer_inv sc0 sc1",
        r"s_barrier",
        r"(global|buffer)_load_dwordx4",
        r"store_dwordx4",
        r"s_barrier",
        r"buffer_wbl2 sc0 sc1",
        r"s_waitcnt vmcnt\(0\)",
        r"store_dwordx2 .* sc0 sc1",
    )
    assert wait < barrier < load
    assert not re.search(r"(global|buffer)_load_dwordx4", asm[:wait])


def test_k_loop_below_a_wait_is_pipelined_as_in_plain_triton():
    ours = code("gemm_after_wait", NVIDIA)
    program = compile(kernels.gemm_after_wait, GEMM, TILE, target=NVIDIA, stop_after="ttgir")
    assert "ttg.async_copy_global_to_local" in program.asm["ttgir"]
    copies = re.findall(r"cp\.async\.c\w+\.shared\.global \[[^]]*\], \[[^]]*\], (\w+)", ours)
    assert len(copies) == 48 and set(copies) == {"0x10"}  # prologue of two and the loop, 16 copies of 16 bytes each
    positions(ours, r"ld\.acquire\.sys", r"bar\.sync", r"cp\.async\.c", r"cp\.async\.wait_group", r"wgmma\.mma_async")


def test_loop_that_waits_is_not_run_ahead():
    ptx = code("gemm_waiting_in_loop", NVIDIA)
    assert "cp.async" not in ptx and ptx.count("ld.acquire.sys") == 1
    assert re.search(r"ld\.global\.v4", ptx)
    assert not re.search(r"ld\.global\.b16", ptx)


def test_tma_is_ordered_after_the_wait_and_before_the_notify():
    ptx = code("tma_exchange", NVIDIA)
    positions(
        ptx,
        r"ld\.acquire\.sys",
        r"bar\.sync",
        r"fence\.proxy\.async;",
        r"cp\.async\.bulk\.tensor\.2d\.shared",
        r"cp\.async\.bulk\.tensor\.2d\.global",
        r"cp\.async\.bulk\.wait_group 0",
        r"fence\.proxy\.async;",
        r"bar\.sync",
        r"fence\.acq_rel\.sys",
        r"red\.relaxed\.sys\.global\.add\.u64",
    )


def test_scalars_that_waits_return_are_the_same_in_every_thread():
    ptx = code("own_values", NVIDIA)
    # One thread reads the signal after the wait, and shared memory hands the value to all.
    positions(
        ptx,
        r"ld\.acquire\.sys",
        r"bar\.sync",
        r"atom\.global\.relaxed\.sys\.cas",
        r"st\.shared",
        r"bar\.sync",
        r"ld\.shared",
    )
    # A store that depends on the thread is each thread's own; the last one is thread 0's, after the barrier.
    positions(ptx, r"st\.relaxed\.gpu\.global\.b64", r"bar\.sync", r"@%p\d+ bra", r"st\.release\.sys\.global\.b64")
    assert code("own_values", AMD)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: LowerToNvidia(transport="rocshmem"), "'lower-to-nvidia': expected p2p or nvshmem, got 'rocshmem'"),
        (lambda: LowerToNvidia(arch=60), "'lower-to-nvidia': expected 70 or more, got 60: compute capability; Volta's"),
        (lambda: LowerToAMD(transport="nvshmem"), "'lower-to-amd': expected p2p or rocshmem, got 'nvshmem'"),
        (lambda: LowerToAMD(arch="90"), "expected an architecture such as gfx942, got '90'"),
    ],
)
def test_unknown_transport_or_architecture(make, message, capfd):
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse("module {}")
        with pytest.raises((PassFailure, ir.MLIRError)) as raised:
            make().run(module.operation)
    assert message in str(raised.value) + capfd.readouterr().err


def test_extern_libs_names_files_in_the_order_of_linking(monkeypatch, tmp_path):
    bitcode = tmp_path / "libnvshmem_device.bc"
    bitcode.touch()
    monkeypatch.setenv("DITRON_NVSHMEM_BITCODE", str(bitcode))
    files = list(gpu_libraries.extern_libs("cuda", "nvshmem", whole=True).values())
    assert [Path(f).name for f in files] == [
        "packets.ll",
        "nvshmem.ll",
        "core.ll",
        "multimem.ll",
        "common.ll",
        bitcode.name,
    ]
    assert str(bitcode) not in gpu_libraries.extern_libs("cuda", "nvshmem", bitcode=False).values()
    # AMD's backend asks whether an undefined function's name contains the library's.
    assert all(name in "ditron_wait" for name in gpu_libraries.extern_libs("hip", "p2p", sanitize=True))
    # Each has a name of its own, however many there are.
    assert len(gpu_libraries.extern_libs("cuda", "nvshmem", sanitize=True)) == len(files) + 2
    monkeypatch.setenv("DITRON_NVSHMEM_BITCODE", str(tmp_path / "none.bc"))
    with pytest.raises(FileNotFoundError, match="DITRON_NVSHMEM_BITCODE"):
        gpu_libraries.extern_libs("cuda", "nvshmem")
    monkeypatch.delenv("DITRON_NVSHMEM_BITCODE")
    with pytest.raises(ValueError, match="expected transport 'p2p' or 'nvshmem' on cuda, got 'rocshmem'"):
        gpu_libraries.extern_libs("cuda", "rocshmem")
    with pytest.raises(ValueError, match="expected backend 'cuda' or 'hip', got 'sim'"):
        gpu_libraries.extern_libs("sim", "p2p")


def test_nvshmem_links_to_a_cubin(monkeypatch, tmp_path):
    """The whole way with NVSHMEM's own library, where it is installed; cut down it gives the same code."""
    monkeypatch.setenv("DITRON_CACHE_DIR", str(tmp_path))
    if gpu_libraries.nvshmem_bitcode() is None:
        pytest.skip("no libnvshmem_device.bc: pip install nvidia-nvshmem-cu13, or set DITRON_NVSHMEM_BITCODE")
    program = compile(
        kernels.exchange,
        {"x": BF16, "out": BF16, "sig": "*i64", "n": "i32:16"},
        {"BLOCK": 2048},
        target=NVIDIA,
        transport="nvshmem",
    )
    assert program.asm["cubin"] and not program.missing
    # What nvshmemx_cumodule_init looks for in a loaded module.
    assert ".visible .const .align 8 .b8 nvshmemi_device_state_d" in program.asm["ptx"]
    libraries = gpu_libraries.extern_libs("cuda", "nvshmem", whole=True)
    assert list(tmp_path.glob("*.ll")) and not set(libraries.values()) & set(map(str, tmp_path.iterdir()))
    whole = compile(
        kernels.exchange,
        {"x": BF16, "out": BF16, "sig": "*i64", "n": "i32:16"},
        {"BLOCK": 2048},
        target=NVIDIA,
        transport="nvshmem",
        options={"extern_libs": libraries},
        stop_after="ptx",
    )
    strip = re.compile(r"//.*|^\s*\.(loc|file).*", re.MULTILINE)
    assert strip.sub("", whole.asm["ptx"]) == strip.sub("", program.asm["ptx"])
