"""ditron-opt from outside, imports, versions and device libraries."""

import os
import subprocess
import sys
from importlib import metadata

import paths
import pytest

from ditron_compiler import runtime_library
from ditron_compiler.versions import VersionError, check_versions

ROOT = paths.ROOT


def python(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, text=True, capture_output=True, timeout=120, **options
    )


def opt(*arguments, text=""):
    return python("-m", "ditron_compiler.tools.opt", *arguments, input=text)


def test_neither_torch_nor_triton_is_imported():
    program = """
import sys
import ditron_compiler
from ditron_compiler import ir, pass_registry, pipeline, versions
from ditron_compiler.tools import opt
pass_registry.register_all()
heavy = {"torch", "triton", "numpy", "llvmlite"} & set(sys.modules)
assert not heavy, heavy
"""
    result = python("-c", program)
    assert result.returncode == 0, result.stderr


def test_threads_that_meet_a_dialect_first():
    """The import of a dialect's classes lets other threads run, which then look for the same wrappers and classes."""
    program = '''
import sys, threading
from ditron_compiler import ir
sys.setswitchinterval(1e-6)
with ir.Context() as context:
    module = ir.Module.parse("""func.func @f(%x: i32, %n: index, %p: memref<1xi32>) -> i32 {
      %r = ditron.rank
      %0 = arith.addi %x, %r : i32
      %1 = scf.while (%a = %0) : (i32) -> i32 {
        %c = arith.constant true
        scf.condition(%c) %a : i32
      } do {
      ^bb0(%b: i32):
        memref.store %b, %p[%n] : memref<1xi32>
        scf.yield %b : i32
      }
      return %1 : i32
    }""")
ready, kept = threading.Barrier(4), []
def walk():
    ready.wait()
    for _ in range(20):
        module.operation.walk(kept.append)
threads = [threading.Thread(target=walk) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(kept) == 4 * 20 * 10, len(kept)
assert len({id(op) for op in kept}) == 10
plain = {op.name for op in kept if type(op) is ir.OpView}
assert plain == {"builtin.module"}, plain
'''
    for _ in range(5):
        result = python("-c", program)
        assert result.returncode == 0, result.stderr


def test_only_the_passes_that_are_named_are_imported():
    """What makes the tool start fast; benchmark/middle_end.py says how fast."""
    program = """
import sys
from ditron_compiler.tools import opt
assert opt.main(["ditron-opt", "--pass-pipeline=builtin.module(merge-waits)"]) == 0
loaded = {name.rpartition(".")[2] for name in sys.modules if "ditron_compiler.passes." in name}
others = {name for name in loaded if not name.startswith("_")} - {"kernel", "merge_waits"}
assert "merge_waits" in loaded and not others, others
"""
    result = python("-c", program, input="module {}")
    assert result.returncode == 0, result.stderr


def test_exit_status_and_errors():
    assert opt(text="module {}").returncode == 0
    bad = opt(text="func.func @f(")
    assert bad.returncode != 0 and "error:" in bad.stderr
    unknown = opt("--pass-pipeline=builtin.module(nope)", text="module {}")
    assert unknown.returncode != 0 and "'nope' does not refer to a registered pass" in unknown.stderr


def test_help_is_about_us():
    text = opt("--help").stdout
    assert "--raise-primitives" in text and "--lower-to-nvidia" in text and "--transport" in text
    assert len(text.splitlines()) < 330


def test_list_passes():
    text = opt("--list-passes").stdout
    assert "lower-to-sim" in text and "canonicalize" in text


@pytest.mark.parametrize("triton", ["3.6.0", "3.7.1", "3.9.0+git12", "3.9.5"])
def test_good_versions(triton):
    check_versions({"triton": triton, "llvmlite": "0.50.0"}.__getitem__, "22.1.8")


@pytest.mark.parametrize(
    "versions,mlir,message",
    [
        (
            {"triton": "3.5.1", "llvmlite": "0.50.0"},
            "22.1.8",
            r"Triton 3\.6 up to but not including 3\.10, got 3\.5\.1",
        ),
        ({"triton": "3.10.0", "llvmlite": "0.50.0"}, "22.1.8", r"got 3\.10\.0"),
        (
            {"triton": "3.6.0", "llvmlite": "0.45.1"},
            "22.1.8",
            r"llvmlite with LLVM 22.*got llvmlite 0\.45\.1, fitting: 0\.50",
        ),
        ({"triton": "3.6.0", "llvmlite": "0.50.0"}, "23.1.0", r"llvmlite with LLVM 23"),
        ({"triton": "mine", "llvmlite": "0.50.0"}, "22.1.8", "cannot read the version of triton"),
    ],
)
def test_bad_versions(versions, mlir, message):
    with pytest.raises(VersionError, match=message):
        check_versions(versions.__getitem__, mlir)


def test_missing_package():
    def none(package):
        raise metadata.PackageNotFoundError(package)

    with pytest.raises(VersionError, match="needs triton, which is not installed; install it with"):
        check_versions(none, "22.1.8")


def test_installed_versions_fit():
    check_versions()


def test_device_libraries_are_found():
    path = runtime_library("nvidia/common.ll")
    assert path.read_text().startswith(";")
    with pytest.raises(FileNotFoundError, match="nvidia/common.ll"):
        runtime_library("nvidia/none.ll")
