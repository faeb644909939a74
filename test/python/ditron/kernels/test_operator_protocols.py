"""Every host program of the operators passes the protocol checker: it is not asked again where they are called."""

import importlib
import pkgutil
import re
import subprocess
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
import triton
from scaled_programs import SCALED_PROGRAMS
from schedule_programs import SCHEDULE_PROGRAMS

import ditron.kernels
import ditron.sim
from ditron._program.execute.cuda import launch_options
from ditron._program.execute.kernels import compile_for_gpu
from ditron._program.execute.overlaps import written
from ditron._program.program import Program
from ditron.protocol.api import check_program
from ditron_compiler import ir
from ditron_compiler.frontend.targets import parse_target
from ditron_compiler.ir.dialects import ditron as dialect
from ditron_compiler.lowering.gpu.control_flow import keep_waits_in_order


def programs() -> dict[str, Program]:
    found = {}
    for module in pkgutil.iter_modules(ditron.kernels.__path__, "ditron.kernels."):
        values = vars(importlib.import_module(module.name)).values()
        found |= {value.fn.__name__: value for value in values if isinstance(value, Program)}
    return found


def test_there_are_programs():
    assert {"ag_gemm_program", "gemm_rs_program", "one_shot_program"} <= set(programs())


OTHER_PROGRAMS = SCALED_PROGRAMS | SCHEDULE_PROGRAMS


@pytest.mark.parametrize("name", [*programs(), *OTHER_PROGRAMS])
def test_no_findings(name):
    report = check_program((programs() | OTHER_PROGRAMS)[name])
    assert not report.findings, "\n".join(map(str, report.findings))
    assert not report.given_up


def test_a_call_does_not_ask_the_checker(monkeypatch):
    monkeypatch.setenv("DITRON_PROTOCOL", "error")
    monkeypatch.setattr("ditron.protocol.api._verdict", lambda *_: pytest.fail("the checker was asked"))

    def main():
        ditron.init()
        ditron.kernels.all_reduce(torch.ones(3, dtype=torch.float16))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ditron.sim.run(main, ranks=2)


def test_a_product_that_begins_beside_the_gather_only_reads_its_weight():
    program = programs()["ag_gemm_small_program"]
    executable, _ = program.executable_and_arguments(program.example | {"is_early": True}, target="cuda:90")
    text = str(executable.program.parent)
    assert text.count("griddepcontrol.wait") == text.count("griddepcontrol.launch_dependents") == 2
    assert text.count("launch_pdl") == 1
    assert [program.names[index] for index in sorted(written(executable.program))] == ["gathered", "out"]


def test_a_gather_has_waited_when_it_lets_the_product_begin():
    """The product reads the weight before it waits, which a kernel before the gather may have written."""
    compiled, _ = compiled_for_hopper("ag_gemm_small_program", {"is_early": True}, "ll_gather_kernel")
    ptx = compiled.asm["ptx"]
    assert ptx.index("griddepcontrol.wait") < ptx.index("griddepcontrol.launch_dependents")


def test_a_product_lets_the_next_kernel_begin_behind_its_loop():
    """Before it sends parts of K: the programs of a tile wait for each other, and all have begun."""
    compiled, _ = compiled_for_hopper("ag_gemm_small_program", {"is_early": True}, "split_k_kernel")
    before, _, after = compiled.asm["ptx"].partition("griddepcontrol.launch_dependents")
    assert "wgmma.mma_async" in before and "wgmma.mma_async" not in after
    assert "griddepcontrol" not in after and "st.relaxed" in after and "st.relaxed" not in before


@pytest.mark.parametrize("stages, a_ahead", [(5, 2), (4, 3)])
def test_tiles_of_the_weight_are_on_their_way_before_a_product_waits(stages, a_ahead):
    options = {"is_early": True, "stages": stages, "a_ahead": a_ahead}
    compiled, _ = compiled_for_hopper("ag_gemm_small_program", options, "split_k_kernel")
    before = compiled.asm["ptx"].partition("griddepcontrol.wait")[0]
    tiles = before.count("mbarrier.arrive.expect_tx")
    assert tiles == max(stages - 1 - a_ahead, 1)


def kernel_of(name, options, kernel=""):
    """The text of the kernel that a program launches for its example, its name, and the options of the launch; of
    several the one of which ``kernel`` is the name.
    """
    program = programs()[name]
    executable, _ = program.executable_and_arguments(dict(program.example) | options, target="cuda:90")
    operations = []
    executable.program.walk(operations.append, ir.WalkOrder.PRE_ORDER)
    launches = [op for op in operations if isinstance(op, dialect.LaunchOp)]
    (launch,) = [op for op in launches if not kernel or op.kernel.value == kernel]
    return executable.kernel(launch.kernel.value), launch.kernel.value, dict(launch_options(launch))


def compiled_for_hopper(name, options, kernel=""):
    """The kernel that a program launches for its example, and the options of the launch."""
    text, symbol, launched = kernel_of(name, options, kernel)
    return compile_for_gpu(text, symbol, launched, parse_target("cuda:90")), launched


@pytest.mark.parametrize("name", ["ag_gemm_program", "ag_gemm_slices_program", "a2a_gemm_program", "ag_moe_program"])
def test_tiles_are_pipelined_across_waits(name):
    """The loop over tiles is flattened on GPUs, though tiles wait: nothing is published but by the last ones."""
    text, *_ = kernel_of(name, {})
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        operations = []
        ir.Module.parse(text).operation.walk(operations.append, ir.WalkOrder.PRE_ORDER)
        flattened = [op for op in operations if "tt.flatten" in op.attributes]
        keep_waits_in_order([op for op in operations if op.name.startswith("ditron.")])
        assert flattened and all("tt.flatten" in loop.attributes for loop in flattened)


@pytest.mark.parametrize(
    "name, options",
    [
        ("ag_gemm_program", {}),
        ("gemm_rs_program", {}),
        ("gemm_rs_program", {"copy_streams": 2, "pieces": 2}),
        ("row_gradients_program", {}),
        ("gemm_a2a_program", {}),
        ("a2a_gemm_program", {}),
        ("ag_moe_program", {}),
        ("ag_moe_program", {"gated": True, "rows": "bf16[17408, 3584]"}),
    ],
)
def test_a_captured_wait_has_registers_left(name, options):
    """Programs that wait fill the SMs: what they wait for may need a wait of a stream, in a graph a kernel of one warp."""
    compiled, launched = compiled_for_hopper(name, options)
    registers, stack = resources(compiled)
    of_a_warp = -(-registers * 32 // 256) * 256  # as they are allocated
    assert stack == 0 and 65536 - launched["num_warps"] * of_a_warp >= 32 * 128, (registers, stack)


@pytest.mark.parametrize("block", [(16, 256, 128), (32, 256, 128), (64, 256, 64), (128, 256, 64), (128, 128, 64)])
def test_narrower_tiles_take_no_more_shared_memory(block, monkeypatch):
    """Those of the last round, whose descriptors and loops are beside those of whole ones."""
    module = importlib.import_module("ditron.kernels.gathered_product")
    taken = []
    for parts in (module.narrow_parts, lambda columns: 1):
        monkeypatch.setattr(module, "narrow_parts", parts)
        compiled, _ = compiled_for_hopper("ag_gemm_program", {"block": block, "capacity": 2048 + len(taken)})
        taken.append(compiled.metadata.shared)
    assert taken[0] <= taken[1]


def resources(compiled):
    """Registers of a thread, and bytes of its stack."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        usage = subprocess.run([tool, "--dump-resource-usage", cubin.name], capture_output=True, text=True, check=True)
    return tuple(int(re.search(rf"{what}:(\d+)", usage.stdout)[1]) for what in ("REG", "STACK"))


def test_slices_are_stored_16_bytes_at_a_time_beside_products_in_flight():
    """Where a slice begins is known to be a multiple of what a thread stores; a wait between slices drains nothing."""
    compiled, _ = compiled_for_hopper("ag_gemm_slices_program", {})
    accesses = set(re.findall(r"(?:ld|st)\.global\.\S*b(?:16|32)\b", compiled.asm["ptx"]))
    assert accesses == {"ld.global.v4.b32", "st.global.v4.b32"}
    assert "pendings = 1" in compiled.asm["ttgir"] and resources(compiled)[1] == 0


def test_rows_in_two_shots_are_loaded_early():
    """A row's residual and weight stay in registers until the sum is there: a spill would wait for them at once."""
    compiled, launched = compiled_for_hopper("two_shot_rms_norm_program", {})
    _, stack = resources(compiled)
    assert (stack, launched["num_warps"]) == (0, 32)
    for access in ("ld", "st"):  # of a packet, at once
        assert f"{access}.relaxed.sys.global.v2.b64" in compiled.asm["ptx"]


def test_no_wait_beyond_the_last_iteration():
    """A pipelined loop's iterations beyond the last execute else branches: the wait for a sender is in none of them."""
    blocks, waits = [], []
    for line in compiled_for_hopper("a2a_gemm_program", {})[0].asm["ttgir"].splitlines():
        line = re.sub(r"\s*loc\(.*\)$", "", line.strip())
        if line.startswith("}"):
            blocks.pop()
        if line.endswith("{"):
            blocks.append("else" if line == "} else {" else re.search(r"scf\.\w+|tt\.func|module", line)[0])
        if 'symbol = "ditron_wait"' in line:
            waits.append(blocks.copy())
    looped = [around[around.index("scf.for") :] for around in waits if "scf.for" in around]
    assert looped == [["scf.for", "scf.if", "scf.if"]], waits
