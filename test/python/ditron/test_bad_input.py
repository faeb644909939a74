"""Every mistake a user can make gets an error that names the place and the remedy, and nothing hangs."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import paths
import pytest
import torch
import triton.language as tl
from triton.compiler.errors import CompilationError

import ditron
import ditron.language as dl
from ditron_compiler import versions

BIN = Path(sys.executable).parent


@ditron.jit
def store_at_rank(box_ptr, rank):
    peer = dl.symm_at(box_ptr, rank)  # here
    tl.store(peer, 1.0)


@ditron.jit
def notify_any(signal_ptr, rank):
    dl.notify(signal_ptr, rank, 1)  # here


@ditron.jit
def put_bytes(box_ptr, nbytes):
    dl.putmem(box_ptr, box_ptr, nbytes, 0)  # here


@ditron.jit
def put_odd_constant(box_ptr):
    dl.putmem(box_ptr, box_ptr, 6, 0)  # here


@ditron.jit
def put_negative_constant(box_ptr):
    dl.putmem(box_ptr, box_ptr, -4, 0)  # here


@ditron.jit
def consume_no_token(box_ptr, rank):
    p = dl.consume_token(box_ptr, rank)  # here
    tl.store(p, 1.0)


@ditron.jit
def wait_for_nobody(signal_ptr):
    dl.wait(signal_ptr, 1, 1)  # here


def line_of(kernel) -> int:
    """The line of this file that ends in ``# here`` inside the kernel."""
    source, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(source) if line.rstrip().endswith("# here"))


def run(kernel, arguments, ranks=2, ranks_per_node=None):
    """Launch ``kernel`` on every simulated rank, with what ``arguments()`` makes there."""

    def on_rank():
        ditron.init()
        kernel[(1,)](*arguments())

    return ditron.sim.run(on_rank, ranks=ranks, ranks_per_node=ranks_per_node)


def floats():
    return ditron.symm_zeros(8, dtype=torch.float32, name="box")


def signals(dtype=torch.int64):
    return ditron.symm_zeros(8, dtype=dtype, name="signals")


@pytest.mark.parametrize(
    "kernel,arguments,error,words",
    [
        pytest.param(
            store_at_rank, lambda: (floats(), 7), ditron.SimulationError, ["rank 7", "0", "1"], id="rank out of range"
        ),
        pytest.param(store_at_rank, lambda: (floats(), -1), ditron.SimulationError, ["rank -1"], id="negative rank"),
        pytest.param(
            store_at_rank,
            lambda: (torch.zeros(8), 0),
            ditron.SimulationError,
            ["symmetric"],
            id="symm_at of a pointer that is not symmetric",
        ),
        pytest.param(
            notify_any,
            lambda: (torch.zeros(8, dtype=torch.int64), 1),
            ditron.SimulationError,
            ["symmetric"],
            id="signal that is not symmetric",
        ),
        pytest.param(
            notify_any, lambda: (signals(torch.int32), 1), CompilationError, ["64"], id="signal of the wrong width"
        ),
        pytest.param(put_bytes, lambda: (floats(), -4), ditron.SimulationError, ["-4"], id="negative byte count"),
        pytest.param(
            put_bytes,
            lambda: (floats(), 1 << 40),
            ditron.SimulationError,
            [str(1 << 40)],
            id="byte count beyond the heap",
        ),
        pytest.param(
            put_negative_constant, lambda: (floats(),), CompilationError, ["-4"], id="negative constant count"
        ),
        pytest.param(put_odd_constant, lambda: (floats(),), CompilationError, ["6"], id="odd constant count"),
        pytest.param(
            consume_no_token,
            lambda: (floats(), 0),
            CompilationError,
            ["token"],
            id="consume_token of something that is no token",
        ),
        pytest.param(
            wait_for_nobody,
            lambda: (signals(),),
            ditron.DeadlockError,
            ["signals[0]", ">= 1"],
            id="a wait that nobody ends",
        ),
    ],
)
def test_names_line_and_mistake(kernel, arguments, error, words):
    with pytest.raises(Exception) as caught:
        run(kernel, arguments)
    # Triton's own CompilationError keeps its type; where it points to is in a note.
    message = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert isinstance(caught.value, error), repr(caught.value)
    for word in [*words, Path(__file__).name, str(line_of(kernel))]:
        assert word in message, f"{word!r} is not in:\n{message}"


def test_null_symm_at_across_nodes():
    with pytest.raises(ditron.SimulationError) as caught:
        run(store_at_rank, lambda: (floats(), 1), ranks=2, ranks_per_node=1)
    message = str(caught.value)
    assert "null" in message and "store_at_rank" in message, message


def test_mismatched_allocations():
    def on_rank():
        ditron.init()
        ditron.symm_empty(4 + ditron.rank(), dtype=torch.float32)

    with pytest.raises(ditron.DitronError, match=r"(?s)rank 0.*4.*rank 1.*5"):
        ditron.sim.run(on_rank, ranks=2)


def test_launch_before_init():
    with pytest.raises(ditron.DitronError, match="ditron.init"):
        notify_any[(1,)](torch.zeros(1, dtype=torch.int64), 0)


def test_kernel_without_source():
    with pytest.raises(Exception, match="source"):
        scope = {}
        exec("import ditron\n@ditron.jit\ndef k(p):\n    pass\n", scope)


@pytest.mark.parametrize(
    "arguments,code,words",
    [
        (["dump", "examples/ring.py:ring_kernel", "--target", "tpu"], 2, ["tpu", "cuda"]),
        (["dump", "examples/ring.py:ring_kernel", "--target", "cuda:90", "--stage", "qasm"], 2, ["qasm", "ttgir"]),
        (
            ["dump", "examples/ring.py:ring_kernel", "--target", "cuda:90", "--transport", "carrier"],
            2,
            ["carrier", "nvshmem"],
        ),
        (
            [
                "dump",
                "examples/ring.py:ring_kernel",
                "--target",
                "sim",
                "--stage",
                "ditron",
                "--print-after",
                "nonesuch",
            ],
            2,
            ["nonesuch", "raise-primitives"],
        ),
        (["dump", "examples/ring.py:nonesuch", "--target", "sim", "--stage", "ditron"], 2, ["nonesuch", "ring_kernel"]),
        (["dump", "examples/nonesuch.py:k", "--target", "sim", "--stage", "ditron"], 2, ["nonesuch.py"]),
        (["dump", "README.md:k", "--target", "sim"], 2, ["README.md"]),
        (["dump", "examples/ring.py:ring_kernel", "-o", "nonesuch/file"], 2, ["nonesuch/file"]),
        (["run", "--sim", "4", "--ranks-per-node", "3", "examples/ring.py"], 2, ["3", "divides"]),
    ],
)
def test_command_line(arguments, code, words):
    root = paths.ROOT
    done = subprocess.run([BIN / "ditron", *arguments], capture_output=True, text=True, cwd=root, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("package,version", [("triton", "3.5.1"), ("triton", "3.10.0"), ("llvmlite", "0.44.0")])
def test_version_out_of_range(package, version):
    found = {"triton": "3.6.0", "llvmlite": "0.50.0", package: version}
    with pytest.raises(ImportError) as caught:
        versions.check_versions(found.__getitem__)
    assert version in str(caught.value) and package in str(caught.value).lower()


@pytest.mark.parametrize(
    "shape,dtype,words",
    [
        ((0,), torch.float32, ["at least 1", "(0,)"]),
        ((-4,), torch.float32, ["at least 1", "(-4,)"]),
        ((2.5,), torch.float32, ["integers", "2.5"]),
        ((4,), "float32", ["torch.float32", "'float32'"]),
    ],
)
def test_allocations_that_make_no_sense(shape, dtype, words):
    def on_rank():
        ditron.init()
        ditron.symm_empty(*shape, dtype=dtype)

    with pytest.raises(ditron.DitronError) as caught:
        ditron.sim.run(on_rank, ranks=2)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda: ditron.symm_empty(4, dtype=torch.int8, name=1.5), ["string as name", "1.5"]),
        (lambda: ditron.symm_packets(4, nbytes="a"), ["nbytes", "'a'"]),
        (lambda: ditron.new_group("01"), ["world ranks", "'01'"]),
        (lambda: ditron.new_group(2), ["world ranks", "2"]),
        (lambda: ditron.barrier("tp"), ["ditron.barrier", "'tp'", "as_group"]),
        (lambda: ditron.symm_zeros(4, dtype=torch.int8, group=1), ["ditron.symm_empty", "ditron.Group", "1"]),
    ],
)
def test_arguments_of_wrong_types(call, words):
    def on_rank():
        ditron.init()
        call()

    with pytest.raises(ditron.DitronError) as caught:
        ditron.sim.run(on_rank, ranks=2)
    for word in words:
        assert word in str(caught.value)


def test_doctor_answers_where_ditron_cannot_be_imported(tmp_path):
    """With a Triton out of range ditron's names cannot be used; the doctor says so."""
    fake = tmp_path / "triton-3.5.0.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: triton\nVersion: 3.5.0\n")
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("__version__ = '3.5.0'\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    doctor, compile_ = (
        subprocess.run([BIN / "ditron", *words], capture_output=True, text=True, env=env, timeout=60)
        for words in (["doctor"], ["compile", "x.py:k"])
    )
    assert doctor.returncode == 1 and "3.5.0" in doctor.stdout and not doctor.stderr, doctor.stdout + doctor.stderr
    assert compile_.returncode == 1 and "3.5.0" in compile_.stderr and "Traceback" not in compile_.stderr


def test_a_script_that_names_its_ranks_reports_as_briefly_as_ditron_run(tmp_path):
    script = tmp_path / "bad.py"
    script.write_text(
        "import torch, ditron, ditron.language as dl\n@ditron.jit\ndef k(p):\n    dl.notify(p, 9, 1)\n"
        "ditron.init(sim=2)\nk[(1,)](ditron.symm_zeros(1, dtype=torch.int64))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "bad.py:4" in done.stderr and "rank 9" in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
