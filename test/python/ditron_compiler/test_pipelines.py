"""Pipelines by name: who chooses one, that they change no result, and that they take no time."""

from __future__ import annotations

import re
import sys
from contextlib import nullcontext
from pathlib import Path

import paths
import pytest
import torch
import triton.language as tl
from pass_helpers import pipeline, run

import ditron
import ditron.language as dl
from ditron.cli import main as cli
from ditron.cli.kernels import load_kernel
from ditron_compiler import ir
from ditron_compiler import pipeline as pipelines
from ditron_compiler.frontend.source import DitronSource, compiler_key
from ditron_compiler.frontend.targets import SIM_TARGET

ROOT = paths.ROOT
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "benchmark")]
import ag_gemm_in_kernel  # noqa: E402
import all_gather  # noqa: E402
import gemm_rs  # noqa: E402
import middle_end  # noqa: E402
import put_signal  # noqa: E402
import ring  # noqa: E402

CHECKS = {
    "ring": lambda: ring.check(301),
    "put_signal": lambda: put_signal.check(1501),
    "all_gather": lambda: all_gather.check(601, chunk=256),
    "ag_gemm_in_kernel": lambda: ag_gemm_in_kernel.check(
        19, 21, 25, calls=2, num_push=2, push_rows=8, block=(16, 16, 16)
    ),
    "gemm_rs": lambda: gemm_rs.check(19, 21, 25, calls=2, block=(16, 16, 16)),
}


def kernel_as(name: str | None):
    """A kernel with a put that nothing orders, decorated with a pipeline."""

    @ditron.jit(pipeline=name)
    def send(box_ptr, ready_ptr, peer):
        dl.putmem(box_ptr, box_ptr, 4, peer)
        dl.signal_op(ready_ptr, 1, peer)

    return send


SIGNATURE = {"box_ptr": "*fp32", "ready_ptr": "*i64", "peer": "i32"}


def fenced(kernel, **options) -> bool:
    return "ditron.fence" in ditron.compile(kernel, signature=SIGNATURE, stop_after="ditron", **options).asm["ditron"]


def _on_rank(check):
    ditron.init()
    return check()


@pytest.mark.parametrize("name", ["default", "swizzled"])
@pytest.mark.parametrize("example", CHECKS)
def test_the_examples_compute_the_same(example, name):
    """Those of low-latency need packets, and of pcie flags: test_pass_ll_protocol, test_pass_lower_nonatomic_sync."""
    world = dict(ranks=4, ranks_per_node=2, seeds=4)
    expected = run("as-written", lambda: _on_rank(CHECKS[example]), **world)
    assert run(name, lambda: _on_rank(CHECKS[example]), **world) == expected


@pytest.mark.parametrize("name", ["default", "pcie"])
@pytest.mark.parametrize("example", ["ring.py:ring_kernel", "put_signal.py:shift_kernel", "gemm_rs.py:gemm_rs_kernel"])
def test_twice_is_once(example, name):
    """What a pipeline has made it leaves alone: no second fence, no wider scope."""
    text = ditron.compile(
        load_kernel(str(ROOT / "examples" / example)), target="cuda:90", pipeline=name, stop_after="ditron"
    ).asm["ditron"]
    with ir.Context() as context:
        module = ir.Module.parse(text, context)
        pipelines.run(module, pipelines.PIPELINES[name])
        assert str(module) == text


def test_who_chooses():
    """The call before the decorator before the environment before the default."""
    assert fenced(kernel_as(None)) and not fenced(kernel_as("as-written"))
    assert fenced(kernel_as("as-written"), pipeline="default")
    with pipeline("as-written"):
        assert not fenced(kernel_as(None)) and fenced(kernel_as("default"))


def test_an_unknown_name_is_an_error_with_the_list():
    message = "unknown pipeline 'fast': expected one of 'default', .*'as-written', .*'pcie'"
    with pytest.raises(ditron.CompileError, match=message) as caught:
        kernel_as("fast")
    assert Path(caught.value.file).name == "test_pipelines.py" and caught.value.line > 1
    with pytest.raises(ditron.CompileError, match="; did you mean 'swizzled'"):
        kernel_as("swizled")
    with pytest.raises(ValueError, match=message):
        ditron.compile(kernel_as(None), signature=SIGNATURE, pipeline="fast")
    with pytest.raises(ValueError, match=message), pipeline("fast"):
        ditron.compile(kernel_as(None), signature=SIGNATURE)


def test_the_command_line(capsys):
    example = f"{ROOT / 'examples' / 'ring.py'}:ring_kernel"
    assert cli(["dump", example, "--pipeline", "pcie", "--print-after", "lower-nonatomic-sync"]) == 0
    out, err = capsys.readouterr()
    assert "semantic relaxed" in out and "IR Dump After" in err
    assert cli(["dump", example, "--print-after", "lower-nonatomic-sync"]) == 2
    assert cli(["dump", example, "--pipeline", "fast"]) == 2
    assert "unknown pipeline 'fast': expected one of 'default'" in capsys.readouterr().err


def test_the_command_line_shows_remarks(capsys, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(
        "import ditron\nimport ditron.language as dl\n\n\n@ditron.jit\ndef send(box, ready, peer):\n"
        "    dl.putmem(box, box, 4, peer)\n    dl.signal_op(ready, 1, peer)\n"
    )
    assert cli(["dump", f"{file}:send", "--signature", "*fp32,*i64,i32", "--remarks"]) == 0
    said = capsys.readouterr().err
    assert re.search(
        rf"{file}:8:\d+: remark: inserted 'ditron.fence' before this operation: a put may still be unordered\n"
        rf"{file}:7:\d+: note: a put\n",
        said,
    ), said


def test_what_is_cached_depends_on_it():
    sources = [
        DitronSource(kernel_as("default"), SIGNATURE, target=SIM_TARGET, pipeline=name)
        for name in ("default", "as-written", "pcie")
    ]
    assert len({compiler_key(SIM_TARGET, source.passes) for source in sources}) == 3
    assert len({source.hash() for source in sources}) == 3


@ditron.jit
def exchange(box_ptr, ready_ptr, out_ptr, N: tl.constexpr):
    """The other rank's row, with nothing between the put and its signal."""
    peer = 1 - dl.rank()
    i = tl.arange(0, N)
    dl.putmem(box_ptr + N, box_ptr, N * 4, peer)
    dl.signal_op(ready_ptr, 1, peer)
    box = dl.consume_token(box_ptr, dl.wait(ready_ptr, 1, 1))
    tl.store(out_ptr + i, tl.load(box + N + i))


def _exchange():
    ditron.init()
    box, ready = ditron.symm_zeros(128, dtype=torch.float32), ditron.symm_zeros(1, dtype=torch.int64)
    exchange[(1,)](box, ready, torch.empty(64), N=64)


def test_launches_in_one_process_do_not_mix():
    """The simulator's kernels are kept by pipeline: the same function is wrong, right, and wrong again."""
    for name in ("as-written", "default", "as-written"):
        with pipeline(name), pytest.raises(ditron.RaceError) if name == "as-written" else nullcontext():
            ditron.sim.run(_exchange, ranks=2)


def test_it_takes_no_time():
    timings = middle_end.measure(middle_end.AG_GEMM, "cuda:90", "default", runs=3)
    names = [name for name, _ in timings]
    assert names[0] == "raise-primitives" and "insert-fences" in names and "lower-to-nvidia" in names
    assert sum(seconds for _, seconds in timings) < 0.150, timings


COUNTER = """
from dataclasses import dataclass
from typing import ClassVar
from ditron_compiler.passes import Pass

@dataclass(frozen=True)
class Note(Pass):
    \"\"\"Remarks on each fence.\"\"\"
    name: ClassVar[str] = "note-{name}"
    def run(self, op):
        op.walk(lambda found: found.emit_remark("{text}") if found.name == "ditron.fence" else None)
"""


def test_a_kernel_is_compiled_by_passes_in_place_of_a_name(capsys):
    assert not fenced(kernel_as(("hoist-symm-at", "cse"))) and fenced(kernel_as(["hoist-symm-at", "insert-fences"]))
    assert fenced(kernel_as("as-written"), pipeline="hoist-symm-at,insert-fences,cse")
    with pytest.raises(ditron.CompileError, match="kernel 'send': there is no pass 'insert-fence'; did you mean"):
        kernel_as(("cse", "insert-fence"))
    words = ["dump", f"{ROOT / 'examples' / 'ring.py'}:ring_kernel", "--pipeline"]
    assert cli([*words, "hoist-symm-at,ll-protocol{max-bytes=64},insert-fences"]) == 0
    assert cli([*words, "hoist-symm-at,insert-fence"]) == 2
    assert "unknown pipeline 'hoist-symm-at,insert-fence'" in capsys.readouterr().err


def test_whoever_edits_a_pass_of_his_own_gets_no_kernel_from_a_cache(tmp_path):
    from ditron_compiler import pass_registry

    file = tmp_path / "note.py"
    file.write_text(COUNTER.format(name=tmp_path.name.replace("_", "-"), text="one"))
    [cls] = pass_registry.load_file(file)
    kernel = kernel_as(("insert-fences", cls.name))
    assert fenced(kernel) and not fenced(kernel_as((cls.name,)))
    keys = []
    for text in ("one", "two", "one"):
        file.write_text(COUNTER.format(name=cls.name, text=text))
        compiler_key.cache_clear()
        keys.append(compiler_key(SIM_TARGET, pipelines.front(kernel.pipeline)))
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize("passes,error", [(("hoist-symm-at", "insert-fences"), None), (("cse",), ditron.RaceError)])
def test_a_kernel_runs_by_the_passes_that_it_names(passes, error, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "exchange", ditron.jit(exchange.fn, pipeline=passes))
    with pytest.raises(error) if error else nullcontext():
        for seed in range(5):
            ditron.sim.run(_exchange, ranks=2, seed=seed)
