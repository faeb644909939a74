"""@ditron.jit: launching, helpers, specialisation, caching. What runs, runs on the simulator."""

import subprocess
import sys
import textwrap

import pytest
import torch
import triton
import triton.language as tl
from fake_gpu import FakeGroup, fake_gpu
from jit_helpers import add_scaled, tell_right

import ditron
import ditron.language as dl
from ditron import sim
from ditron._jit.autotune import autotune


@ditron.jit(do_not_specialize=["epoch"])
def shift(x_ptr, inbox_ptr, out_ptr, signal_ptr, n, epoch, BLOCK: tl.constexpr = 64):
    """Send x to the right; out = what came from the left, plus twice the own x."""
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    right = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(inbox_ptr, right) + offsets, x, mask=mask)
    tell_right(signal_ptr, epoch)
    token = dl.wait(signal_ptr, value=epoch)
    got = tl.load(dl.consume_token(inbox_ptr, token) + offsets, mask=mask)
    tl.store(out_ptr + offsets, add_scaled(got, x), mask=mask)


def run_shift(launch):
    """Run ``launch(x, inbox, out, signals, n)`` on 3 simulated ranks and check what it computes."""

    def main():
        ditron.init()
        rank, n = ditron.rank(), 50
        x = torch.arange(n, dtype=torch.float32) + 100 * rank
        inbox = ditron.symm_zeros(n, dtype=torch.float32)
        signals = ditron.symm_zeros(1, dtype=torch.int64)
        out = torch.zeros(n)
        launch(x, inbox, out, signals, n)
        left = torch.arange(n, dtype=torch.float32) + 100 * ((rank + 2) % 3)
        assert torch.equal(out, left + 2 * x)

    sim.run(main, ranks=3)


def test_launch():
    run_shift(lambda x, inbox, out, signals, n: shift[(1,)](x, inbox, out, signals, n, 7, BLOCK=64))


def test_keywords_defaults_and_grid_function():
    def launch(x, inbox, out, signals, n):
        shift[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](
            x, inbox, n=n, epoch=1, signal_ptr=signals, out_ptr=out
        )

    run_shift(launch)


def test_autotune():
    tuned = autotune([triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128})], key=["n"])(shift)
    run_shift(lambda x, inbox, out, signals, n: tuned[(1,)](x, inbox, out, signals, n, 3))


def test_triton_autotune_and_heuristics():
    tuned = triton.autotune([triton.Config({})], key=["n"])(
        triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(shift)
    )
    run_shift(lambda x, inbox, out, signals, n: tuned[(1,)](x, inbox, out, signals, n, 3))


def test_specialized_once():
    """Launches that differ in what is not specialized share one compilation."""
    kernels = []

    def launch(x, inbox, out, signals, n):
        for epoch in (1, 2, 16):
            kernels.append(shift[(1,)](x, inbox, out, signals, n, epoch))
            ditron.barrier()  # the one inbox is read before the next call fills it

    run_shift(launch)
    assert len({id(kernel) for kernel in kernels}) == 1


@ditron.jit
def all_kinds(ptr, flag, small, large, negative, real, one, nothing, pair):
    tl.store(ptr, small + negative)
    tl.store(ptr + 1, large)
    tl.store(ptr + 2, (real * 4).to(tl.int64))
    tl.store(ptr + 3, tl.where(flag, pair[0], pair[1]) + one)
    if nothing is None:
        tl.store(ptr + 4, 11)


def test_argument_kinds():
    def main():
        ditron.init()
        out = torch.zeros(5, dtype=torch.int64)
        all_kinds[(1,)](out, True, 20, 2**40, -3, 2.5, 1, None, (5, 6))
        assert out.tolist() == [17, 2**40, 10, 6, 11]

    sim.run(main, ranks=1)


@ditron.jit
def through_descriptor(desc, out_ptr):
    tl.store(out_ptr + tl.arange(0, 8), tl.sum(desc.load([2, 0]), 0))


def test_host_descriptor():
    from triton.tools.tensor_descriptor import TensorDescriptor

    def main():
        ditron.init()
        x = torch.arange(48, dtype=torch.float32).view(6, 8)
        out = torch.zeros(8)
        through_descriptor[(1,)](TensorDescriptor.from_tensor(x, [4, 8]), out)
        assert torch.equal(out, x[2:6].sum(0))

    sim.run(main, ranks=1)


def test_launch_before_init():
    with pytest.raises(ditron.DitronError, match=r"kernel 'shift' was launched before ditron.init\(\)"):
        shift[(1,)](None, None, None, None, 1, 1)


def test_unknown_keyword():
    def main():
        ditron.init()
        shift[(1,)](None, None, None, None, 1, 1, BLOK=3)

    with pytest.raises(Exception, match="BLOK"):
        sim.run(main, ranks=1)


def test_function_without_source():
    scope = {"ditron": ditron}
    with pytest.raises(ditron.DitronError, match="needs the source of 'f', which cannot be read: define it"):
        exec("@ditron.jit\ndef f(x):\n    pass\n", scope)


# On a GPU that is not there ----------------------------------------------------------------------------------------


def test_gpu_launch_passes_the_context_last():
    group = FakeGroup()
    x, signals = torch.zeros(64), torch.zeros(1, dtype=torch.int64)
    with fake_gpu() as gpu:
        for _ in range(2):
            kernel = shift[(3, 2)](x, x, x, signals, 50, 1, group=group)
    assert [grid for _, grid, _ in gpu.launches] == [(3, 2, 1)] * 2
    source, _, args = gpu.launches[0]
    assert args[-1] == group.context.data_ptr()
    assert source.signature["__ditron_ctx"] == "*i64" and list(source.signature)[-1] == "__ditron_ctx"
    # Compiled once, loaded once, and the group was told.
    assert gpu.loaded == ["shift"] and group.loaded == [kernel]
    assert ".entry shift(" in kernel.asm["ptx"]


def test_gpu_transports_are_compiled_apart():
    x, signals = torch.zeros(64), torch.zeros(1, dtype=torch.int64)
    other = ditron.jit(shift.fn)
    with fake_gpu():
        args = (x, x, x, signals, 50, 1)
        peer = other[(1,)](*args, group=FakeGroup("p2p"))
        assert other[(1,)](*args, group=FakeGroup("p2p")) is peer
        other._use_transport("nvshmem")
        _, _, _, _, binder = other.device_caches[0]
        assert not other.device_caches[0][0]
        assert other.ASTSource.keywords["target"].transport == "nvshmem"
        assert other[(1,)](*args, group=FakeGroup("p2p")) is peer


def test_disk_cache(tmp_path, monkeypatch):
    """The second process (here: a fresh function) finds the kernel on disk; another transport does not."""
    from triton import knobs

    from ditron_compiler.frontend.source import compiler_key
    from ditron_compiler.frontend.targets import parse_target

    hits = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda *, cache_hit, **rest: hits.append(cache_hit))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    x, signals = torch.zeros(64), torch.zeros(1, dtype=torch.int64)
    with fake_gpu():
        for _ in range(2):
            ditron.jit(shift.fn)[(1,)](x, x, x, signals, 50, 1, group=FakeGroup())
    assert hits == [False, True]
    assert compiler_key(parse_target("cuda:90", "p2p")) != compiler_key(parse_target("cuda:90", "nvshmem"))


PLAIN = """
    import triton, triton.language as tl
    from triton.backends.compiler import GPUTarget

    @triton.jit
    def plain(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(y_ptr + offsets, tl.exp(tl.load(x_ptr + offsets, mask=mask)), mask=mask)

    source = triton.compiler.ASTSource(plain, {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, {"BLOCK": 256})
    print(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
"""

WITH_DITRON = """
    import ditron
    import ditron.language as dl
    import test_jit
    ditron.compile(test_jit.shift, {"x_ptr": "*fp32", "inbox_ptr": "*fp32", "out_ptr": "*fp32", "signal_ptr": "*i64",
                                    "n": "i32", "epoch": "i32"}, target="cuda:90")
"""


def test_plain_triton_kernels_are_left_alone(tmp_path):
    """Their PTX is the same, byte for byte, with and without ditron imported and used in the process."""

    def ptx(before: str, cache: str) -> str:
        script = tmp_path / "plain.py"
        marker = "\n    # BEFORE\n"
        script.write_text(textwrap.dedent(PLAIN + marker))
        wrapper = tmp_path / f"{cache}.py"
        wrapper.write_text(textwrap.dedent(before) + f"\nimport runpy\nrunpy.run_path({str(script)!r})\n")
        env = {
            "TRITON_CACHE_DIR": str(tmp_path / cache),
            "PYTHONPATH": ":".join(sys.path),
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
        }
        return subprocess.run([sys.executable, wrapper], env=env, check=True, capture_output=True, text=True).stdout

    without = ptx("", "without")
    assert ".entry plain(" in without
    assert ptx(WITH_DITRON, "with") == without
