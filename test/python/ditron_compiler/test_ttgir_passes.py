"""Our passes behind Triton's, for Hopper."""

import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton
from triton import knobs

import ditron
from ditron.kernels.grouped_mm import rows_product_kernel
from ditron_compiler.frontend.stages import add_passes, passes_on_ttgir

FP8_TILE = {"BM": 128, "BN": 128, "BK": 128, "SCALED": True}
OPTIONS = SimpleNamespace(enable_fp_fusion=True)
BF16_TILE = {"BM": 128, "BN": 256, "BK": 64, "SCALED": False}


def compiled(tile, stages, **options):
    dtype = "fp8e4nv" if tile["SCALED"] else "bf16"
    signature = {name: "*i32" for name in ("tiles_ptr", "num_tiles_ptr")} | {"N": "i32:16", "K": "i32:16"}
    signature |= {name: f"tensordesc<{dtype}[{tile[rows]}, {tile['BK']}]>" for name, rows in
                  (("rows_desc", "BM"), ("w_desc", "BN"))}  # fmt: skip
    signature |= {"out_ptr": "*bf16", "out_desc": f"tensordesc<bf16[1, {tile['BM']}, {tile['BN'] // 2}]>"}
    signature |= {name: "*fp32" for name in ("scale_rows_ptr", "scale_w_ptr")}
    constants = tile | {"GROUP": 8, "PROGRAMS": 132, "WHOLE_K": True, "SWAP_AB": False, "W_IS_KN": False}
    options |= {"num_warps": 8, "num_stages": stages, "maxnreg": 232}
    return ditron.compile(rows_product_kernel, signature, constants, "cuda:90", options=options, stop_after="ptx")


def what_ptxas_says(ptx):
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    command = [tool, "-v", "--gpu-name=sm_90a", "-o", "/dev/null", "-"]
    return subprocess.run(command, input=ptx, capture_output=True, text=True, check=True).stderr


def test_a_product_is_scaled_beside_the_next():
    program = compiled(FP8_TILE, stages=3)
    assert program.asm["ttgir"].count("pendings = 1") == 2
    said = what_ptxas_says(program.asm["ptx"])
    assert "wgmma.wait_group.sync.aligned 1" in program.asm["ptx"] and "serialized" not in said, said
    assert " 0 bytes spill stores" in said, said


def test_other_products_stay_as_triton_makes_them(monkeypatch):
    ours = compiled(BF16_TILE, stages=4).asm["ttgir"]
    monkeypatch.setattr("ditron_compiler.frontend.stages.add_passes", lambda *_: None)
    assert compiled(BF16_TILE, stages=4).asm["ttgir"] == ours


def wrapped(capability=90):
    """Whether the hook changes a stage of the backend."""
    stages = {"ttgir": (stage := object())}
    if knobs.runtime.add_stages_inspection_hook is not None:
        knobs.runtime.add_stages_inspection_hook(None, stages, OPTIONS, None, capability)
    return stages["ttgir"] is not stage


def test_the_hook_is_for_this_thread_and_this_kernel():
    elsewhere = []
    with passes_on_ttgir():
        assert wrapped() and not wrapped(100)
        thread = threading.Thread(target=lambda: elsewhere.append(wrapped()))
        thread.start()
        thread.join()
    assert elsewhere == [False] and not wrapped()


def test_a_hook_that_was_set_is_kept(monkeypatch):
    calls = []
    monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", lambda *_: calls.append(1), raising=False)
    with pytest.raises(KeyError), passes_on_ttgir():
        assert wrapped() and calls == [1]
        raise KeyError
    assert not wrapped() and calls == [1, 1]


def test_no_stage_ttgir():
    stages = {"llir": None}
    add_passes(stages, OPTIONS, 90)
    assert stages == {"llir": None}


def test_multiplications_that_must_not_be_fused():
    options = {"enable_fp_fusion": False}
    assert "pendings = 1" not in compiled(FP8_TILE, stages=3, **options).asm["ttgir"]


def test_a_hook_is_not_removed_by_another_thread():
    entered, left, changed = threading.Event(), threading.Event(), []

    def second():
        with passes_on_ttgir():
            entered.set()
            left.wait(10)
            changed.append(wrapped())

    thread = threading.Thread(target=second)
    with passes_on_ttgir():
        thread.start()
        entered.wait(0.2)  # which it does only when this one has left
        changed.append(wrapped())
    left.set()
    thread.join()
    assert changed == [True, True] and knobs.runtime.add_stages_inspection_hook is None
