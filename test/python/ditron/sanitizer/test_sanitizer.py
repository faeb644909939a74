"""The sanitizer: what it adds to a kernel, that it adds nothing when it is off, and what the host makes of a report."""

import re
import subprocess
import sys
import textwrap

import gpu_kernels as kernels
import paths
import pytest
import torch
from fake_gpu import FakeGroup, fake_gpu

import ditron
from ditron.distributed.context import Slot, barrier_area_bytes
from ditron.sanitizer import report as sanitizer
from ditron.sanitizer.report import RECORDS, WORDS, Kind, Monitor, error_of
from ditron_compiler import knobs, pipeline
from ditron_compiler.frontend.source import compiler_key
from ditron_compiler.frontend.targets import parse_target
from ditron_compiler.lowering.gpu.sanitizer import SANITIZER_TABLE, place_number, places
from ditron_compiler.lowering.gpu.table import TABLE

OPERATIONS = paths.ROOT / "test" / "lit" / "lowering" / "Inputs" / "gpu-ops.mlir"
EXCHANGE = ({"x": "*bf16", "out": "*bf16", "sig": "*i64", "n": "i32:16"}, {"BLOCK": 2048})


@pytest.mark.parametrize("transport", ["p2p", "nvshmem"])
def test_the_mode_is_in_the_code_only_when_it_is_on(transport, monkeypatch):
    def ptx(**how):
        return ditron.compile(kernels.exchange, *EXCHANGE, transport=transport, stop_after="ptx", **how).asm["ptx"]

    off, on = ptx(sanitize=False), ptx(sanitize=True)
    for trace in ("globaltimer", "bar.red", "exit;", ".sys.global.cas"):
        assert trace in on and trace not in off, trace
    # One limit per wait (a look at the clock before it, one in its loop), and the remote accesses that are looked at.
    assert on.count("globaltimer") == 2 and on.count("bar.red.or.pred") == 1
    assert len(re.findall(r"ld\.global\.v4\.b32", on)) == 2 == len(re.findall(r"st\.global\.v4\.b32", on))
    assert ptx() == off
    monkeypatch.setenv("DITRON_SANITIZE", "1")
    assert ptx() == on


def test_amd_compiles_it_to_machine_code():
    program = ditron.compile(kernels.exchange, *EXCHANGE, target="hip:gfx942", sanitize=True)
    assert program.asm["hsaco"], program.missing
    assert "s_memrealtime" in program.asm["amdgcn"] and "s_endpgm" in program.asm["amdgcn"]
    plain = ditron.compile(kernels.exchange, *EXCHANGE, target="hip:gfx942", sanitize=False, stop_after="amdgcn")
    assert "s_memrealtime" not in plain.asm["amdgcn"]


@pytest.mark.parametrize(
    "target, transport", [("cuda:90", "p2p"), ("cuda:90", "nvshmem"), ("hip:gfx942", "p2p"), ("hip:gfx942", "rocshmem")]
)
def test_every_sanitizer_operation_is_complete(target, transport):
    """Machine code under p2p; with a SHMEM library, LLVM IR in which only its functions are missing."""
    changed = {op.OPERATION_NAME.removeprefix("ditron.") for op, row in SANITIZER_TABLE.items() if row is not TABLE[op]}
    last = "llir" if transport != "p2p" else "cubin" if target == "cuda:90" else "hsaco"
    kernels_of_operations = set(re.findall(r"tt\.func public @(\w+)", OPERATIONS.read_text())) & changed
    assert kernels_of_operations == changed
    for name in sorted(changed):
        program = ditron.compile(
            f"{OPERATIONS}:{name}", target=target, transport=transport, sanitize=True, stop_after=last
        )
        assert program.asm[last], (name, program.missing)
        assert not re.findall(r"^declare .*@ditron_\w+", program.asm["llir"], re.MULTILINE), name


def test_the_mode_decides_about_the_cache():
    keys = {compiler_key(parse_target("cuda:90", "p2p", sanitize)) for sanitize in (False, True)}
    assert len(keys) == 2
    assert "sanitize" not in pipeline.pipeline("cuda", "p2p") and "sanitize=true" in str(
        pipeline.lowering("cuda", "p2p", sanitize=True)
    )


def test_knobs(monkeypatch):
    assert (knobs.sanitize.get(), knobs.sanitize_seconds.get()) == (0, 10)
    monkeypatch.setenv("DITRON_SANITIZE_SECONDS", "soon")
    with pytest.raises(ValueError, match="DITRON_SANITIZE_SECONDS='soon' cannot be read"):
        knobs.sanitize_seconds.get()


BASE, NBYTES = 1 << 30, 1 << 20


def monitor_with(*tensors, ranks=(4, 5, 6)):
    """A monitor of rank 5, whose heap begins at ``BASE``; tensors are (offset, name, shape, bytes an element)."""
    monitor = Monitor(
        torch.zeros(RECORDS * WORDS, dtype=torch.int64), ranks, 1, BASE, NBYTES, range(barrier_area_bytes(len(ranks)))
    )
    monitor.told = True
    for offset, name, shape, size in tensors:
        monitor._tensors[offset] = (name, shape, size)
    return monitor


def record(monitor, index, *words):
    monitor.buffer[index * WORDS : index * WORDS + len(words)] = torch.tensor(words)


def test_addresses_have_names():
    monitor = monitor_with((256, "signals", (2, 3), 8), (512, "", (10,), 2))
    assert monitor.name(BASE + 256) == "signals[0, 0]" and monitor.name(BASE + 256 + 40) == "signals[1, 2]"
    assert monitor.name(BASE + 256 + 44) == "signals[1, 2] + 4 bytes"
    assert monitor.name(BASE + 530) == "the unnamed symmetric tensor of shape (10,) [9]"
    assert monitor.name(BASE + 532) == "offset 532 of the symmetric heap, in no tensor"
    assert monitor.name(BASE + 8) == "the barrier's counters"
    assert monitor.name(BASE - 8).endswith("outside of the symmetric heap")


@pytest.fixture
def exchange_ttir(monkeypatch):
    """The exchange kernel with the sanitizer, as if it had been loaded; the number of its wait and of its notify."""
    ttir = ditron.compile(kernels.exchange, *EXCHANGE, stop_after="lowered", sanitize=True).asm["lowered"]
    monkeypatch.setattr(sanitizer, "_ttir", [])
    sanitizer.remember_kernel(ttir)
    return {text.split()[0]: number for number, text in places(ttir).items()}


def line_of(text):
    with open(kernels.__file__) as file:
        return next(number for number, line in enumerate(file, 1) if text in line)


def test_an_expired_wait_names_everything(exchange_ttir):
    monitor = monitor_with((256, "signals", (8,), 8))
    assert monitor.reports() == [] and not monitor.reported
    place = exchange_ttir["wait"]
    record(monitor, 0, 1, place, 3, 1, 0, 0, BASE + 256 + 16, 3, 7, 6, -1, 0, 2_500_000_000, 2)
    for index in range(1, 9):
        record(monitor, index, 2, place, 3, index, 0, 0, BASE + 256 + 24, 3, 7, 5, -1, 0, 2_400_000_000, 2)
    assert monitor.reported
    error = error_of(monitor.reports())
    assert isinstance(error, ditron.WaitTimeout) and isinstance(error, ditron.SanitizerError)
    line = line_of("token = dl.wait(sig, 1, 1)")
    assert str(error).splitlines()[:6] == [
        "sanitizer: a wait of kernel 'exchange' was given up",
        "  rank 5, program (3, 1, 0), thread 0: wait on signals[2]: expected >= 7, actual 6, after 2.5 s",
        f"    {kernels.__file__}:{line}, kernel exchange",
        "        token = dl.wait(sig, 1, 1)",
        "  these were waiting then:",
        "  rank 5, program (3, 1, 0), thread 0 (and 7 more programs or threads that reported): wait on signals[3]: "
        "expected >= 7, actual 5, after 2.4 s",
    ]
    assert "DITRON_SANITIZE_SECONDS" in str(error) and len(error.reports) == 9


def test_a_wait_that_another_rank_ended_says_so(exchange_ttir):
    monitor = monitor_with()
    record(monitor, 1, 2, exchange_ttir["wait"], 0, 0, 0, 0, BASE + 800, 0, 7, 6, -1, 0, 10, 3)
    assert monitor.reported
    assert "was ended, because rank 6 gave up" in str(error_of(monitor.reports()))


@pytest.mark.parametrize(
    "kind, peer, expected",
    [
        (Kind.RANK_OUT_OF_RANGE, 3, "notify to rank 3: expected a rank from 0 to 2"),
        (Kind.RANK_NOT_MAPPED, 2, "notify to rank 6, whose memory is not mapped here"),
        (Kind.OUTSIDE_HEAP, 2, r"notify of 8 bytes at address 0x64, which is outside of the symmetric heap"),
    ],
)
def test_a_wrong_access_is_explained(exchange_ttir, kind, peer, expected):
    monitor = monitor_with()
    record(monitor, 0, kind, exchange_ttir["notify"], 0, 0, 0, 5, 100, 0, 0, 0, peer, 8, 0, 2)
    error = error_of(monitor.reports())
    assert type(error) is ditron.SanitizerError and expected in str(error)
    assert f"{kernels.__file__}:{line_of('dl.notify(sig, peer, 1)')}" in str(error)


def test_a_place_that_is_not_known_is_no_reason_to_fail():
    monitor = monitor_with()
    record(monitor, 0, 1, place_number("wait in f at g.py:1"), 0, 0, 0, 0, BASE + 8, 3, 2, 1, 2, 0, 10, 2)
    text = str(error_of(monitor.reports()))
    assert "an unknown line" in text and "on the barrier's counters, for rank 6: expected >= 2, actual 1" in text


def test_launch_in_a_group_with_the_sanitizer(tmp_path, monkeypatch):
    """Compiled in the mode, found again in Triton's cache with its lines, and refused once there is a report."""
    from test_jit import shift

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sanitizer, "_ttir", [])
    x, signals = torch.zeros(64), torch.zeros(1, dtype=torch.int64)
    with fake_gpu() as gpu:
        for _ in range(2):  # compiled, then from the disk
            group, function = FakeGroup(), ditron.jit(shift.fn)
            group.sanitize, group.monitor = 1, monitor_with()
            kernel = function[(1,)](x, x, x, signals, 50, 1, group=group)
            assert "globaltimer" in kernel.asm["ptx"]
        assert len(sanitizer._ttir) == 2
        for ttir in sanitizer._ttir:
            assert {text.split(" at ")[0] for text in places(ttir).values()} == {
                "symm_at in shift",
                "notify in shift",
                "wait in shift",
            }
        plain = function[(1,)](x, x, x, signals, 50, 1, group=FakeGroup())
        assert "globaltimer" not in plain.asm["ptx"] and len(gpu.launches) == 3
        record(group.monitor, 0, 1, 0, 0, 0, 0, 0, BASE, 3, 2, 1, -1, 0, 10, 2)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
        group.device = None
        with pytest.raises(ditron.WaitTimeout):
            function[(1,)](x, x, x, signals, 50, 1, group=group)
        assert len(gpu.launches) == 3
        group.all_gather_object = lambda value: [[], value]
        with pytest.raises(ditron.WaitTimeout):
            sanitizer.meet(group)
        with pytest.raises(ditron.WaitTimeout):
            sanitizer.synchronize(group)


@pytest.mark.parametrize("sanitize, waits", [(1, 0), (2, 1)])
def test_the_host_waits_for_each_launch_when_asked_to(monkeypatch, sanitize, waits):
    from test_jit import shift

    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    x, signals = torch.zeros(64), torch.zeros(1, dtype=torch.int64)
    with fake_gpu():
        group = FakeGroup()
        group.sanitize, group.monitor, group.device = sanitize, monitor_with(), "cuda:1"
        ditron.jit(shift.fn)[(1,)](x, x, x, signals, 50, 1, group=group)
    assert waited == ["cuda:1"] * waits


def test_report_of_a_failed_gpu_and_of_a_lost_peer(monkeypatch):
    """The report is raised, from what failed; without one, the failure itself."""
    group = FakeGroup()
    group.device, group.monitor = None, monitor_with()

    def fail(*_):
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    group.all_gather_object = fail
    with pytest.raises(RuntimeError, match="CUDA error"):
        sanitizer.meet(group)
    with pytest.raises(RuntimeError, match="CUDA error"):
        sanitizer.synchronize(group)
    record(group.monitor, 0, 1, 0, 0, 0, 0, 0, BASE, 3, 2, 1, -1, 0, 10, 2)
    for call in (sanitizer.meet, sanitizer.synchronize):
        with pytest.raises(ditron.WaitTimeout) as raised:
            call(group)
        assert isinstance(raised.value.__cause__, RuntimeError)


def test_script_that_never_asks_ends_with_the_report():
    script = textwrap.dedent("""
        import torch
        torch.cuda.synchronize = lambda *_: None
        from ditron.sanitizer.report import Monitor
        monitor = Monitor(torch.zeros(512, dtype=torch.int64), [0], 0, 4096, 4096, range(64))
        monitor.buffer[:14] = torch.tensor([1, 0, 0, 0, 0, 0, 4200, 3, 2, 1, -1, 0, 10, 1])
        print("the end")
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stdout == "the end\n"
    assert "expected >= 2, actual 1" in done.stderr


def test_slots_are_those_of_the_library():
    from ditron_compiler.runtime_files import runtime_directory

    text = (runtime_directory() / "gpu/sanitizer.ll").read_text()
    for slot in (Slot.REPORT, Slot.LIMIT_NS):
        assert f"@ditron_slot(ptr addrspace(1) %ctx, i64 {int(slot)})" in text
    assert f"icmp ult i64 %free, {RECORDS}" in text and f"shl i64 %slot, {WORDS.bit_length() - 1}" in text
