"""Plain ``@triton.jit`` kernels on the simulator: Triton's launch path, autotuners, hooks; and nothing is left over."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

import ditron
import ditron.language as dl

N = 1000


@triton.jit
def _add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    mask = i < n
    tl.store(o + i, tl.load(x + i, mask) + tl.load(y + i, mask), mask)


def _operands():
    torch.manual_seed(0)
    return torch.randn(N), torch.randn(N), torch.zeros(N)


def _grid(meta):
    return (triton.cdiv(N, meta["B"]),)


def test_a_launch():
    x, y, o = _operands()
    with ditron.sim.triton():
        kernel = _add[_grid](x, y, o, N, B=128, num_warps=8, num_stages=2)
    assert torch.equal(o, x + y)
    assert (kernel.metadata.num_warps, kernel.metadata.num_stages, kernel.n_spills) == (8, 2, 0)


def test_patches_are_undone():
    def state():
        return (JITFunction._do_compile, driver._active, dict(vars(Autotuner)))

    before = state()
    with pytest.raises(ZeroDivisionError), ditron.sim.triton(), ditron.sim.triton():
        assert state() != before
        raise ZeroDivisionError
    assert state() == before


def test_outside_a_gpu_is_wanted_again():
    x, y, o = _operands()
    with ditron.sim.triton():
        _add[_grid](x, y, o, N, B=128)
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="active drivers"):
            _add[_grid](x, y, o, N, B=128)


def test_a_warmup_compiles_and_does_not_launch():
    with ditron.sim.triton():
        kernel = _add.warmup(torch.float32, torch.float32, torch.float32, N, B=64, grid=(1,))
        x, y, o = _operands()
        kernel[(triton.cdiv(N, 64), 1, 1)](x, y, o, N, 64)
    assert torch.equal(o, x + y)


@triton.heuristics({"B": lambda args: 256 if args["n"] > 500 else 32})
@triton.jit
def _heuristic(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) + B, i < n)


def test_heuristics():
    x, _, o = _operands()
    with ditron.sim.triton():
        _heuristic[_grid](x, o, N)
    assert torch.equal(o, x + 256)


def _tuned(configs, **options):
    @triton.autotune(configs, key=["n"], **options)
    @triton.jit
    def accumulate(x, o, n, B: tl.constexpr):
        tl.static_assert(B != 7 * 16, "not this one")
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(o + i, tl.load(o + i, i < n) + tl.load(x + i, i < n), i < n)

    return accumulate


@pytest.mark.parametrize("options", [{"reset_to_zero": ["o"]}, {"restore_value": ["o"]}], ids=["reset", "restore"])
@pytest.mark.parametrize("timing", [{}, {"warmup": 1, "rep": 1}], ids=["default", "own times"])
@pytest.mark.filterwarnings("ignore:warmup, rep")
def test_an_autotuner_takes_the_first_configuration_that_works(options, timing):
    tuned = _tuned(
        [triton.Config({"B": 112}), triton.Config({"B": 64}, num_warps=2), triton.Config({"B": 128})],
        **options,
        **timing,
    )
    x, _, o = _operands()
    with ditron.sim.triton():
        tuned[_grid](x, o, N)
        assert tuned.best_config.kwargs == {"B": 64}
        tuned[_grid](x, o, N)
    assert torch.equal(o, x + x)
    assert "do_bench" not in vars(tuned)


def test_configurations_are_pruned_and_hooked():
    called = []
    configs = [triton.Config({"B": b}, pre_hook=lambda args: called.append(args["B"])) for b in (32, 64, 128)]

    def early(configs, named, **_):
        return [c for c in configs if c.kwargs["B"] >= named["n"] // 16]

    prune = {"early_config_prune": early}
    tuned = _tuned(configs, prune_configs_by=prune, reset_to_zero=["o"])
    x, _, o = _operands()
    with ditron.sim.triton():
        tuned[_grid](x, o, N)
    assert called == [64, 64]
    assert torch.equal(o, x)


@pytest.mark.parametrize("assigned", [False, True])
def test_a_benchmark_of_ones_own_decides(assigned):
    times = iter([3.0, 1.0, 2.0])

    def bench(call, quantiles):
        call()
        return [next(times)] * 3

    tuned = _tuned(
        [triton.Config({"B": b}) for b in (32, 64, 128)], reset_to_zero=["o"], do_bench=None if assigned else bench
    )
    x, _, o = _operands()
    with ditron.sim.triton():
        if assigned:
            tuned.do_bench = bench
        tuned[_grid](x, o, N)
    assert tuned.best_config.kwargs == {"B": 64}


def _each_rank_tunes(tuned):
    ditron.init()
    x, o = torch.full((N,), float(ditron.rank() + 1)), torch.zeros(N)
    for _ in range(3):
        tuned[_grid](x, o, N)
    return o


@pytest.mark.parametrize("seed", range(5))
def test_ranks_tune_apart(seed):
    tuned = _tuned([triton.Config({"B": b}) for b in (64, 128)], restore_value=["o"])
    results = ditron.sim.run(_each_rank_tunes, ranks=3, seed=seed, args=(tuned,))
    for rank, o in enumerate(results):
        assert torch.equal(o, torch.full((N,), 3.0 * (rank + 1)))


@triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 128})], key=["n"])
@ditron.jit
def _push(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    peer = (dl.rank() + 1) % dl.num_ranks()
    tl.store(dl.symm_at(o, peer) + i, tl.load(x + i, i < n), i < n)


def test_triton_autotune_of_a_ditron_kernel():
    def main():
        ditron.init()
        x, o = torch.full((N,), float(ditron.rank())), ditron.symm_zeros((N,), dtype=torch.float32)
        _push[_grid](x, o, N)
        ditron.barrier()
        return o.clone()

    for rank, o in enumerate(ditron.sim.run(main, ranks=3)):
        assert torch.equal(o, torch.full((N,), float((rank - 1) % 3)))


def test_launch_hooks():
    seen = []

    def enter(metadata):
        seen.append(("enter", metadata.get()["name"]))

    def leave(metadata):
        seen.append(("exit", metadata.get()["name"]))

    knobs.runtime.launch_enter_hook.add(enter)
    knobs.runtime.launch_exit_hook.add(leave)
    try:
        with ditron.sim.triton():
            _add[_grid](*_operands(), N, B=128)
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
        knobs.runtime.launch_exit_hook.remove(leave)
    assert seen == [("enter", "_add"), ("exit", "_add")]


def test_what_a_package_asks_the_driver():
    with ditron.sim.triton():
        active = triton.runtime.driver.active
        assert active.utils.get_device_properties(active.get_current_device())["multiprocessor_count"] == 132
        assert active.get_current_target().backend == "cuda"
        assert active.get_active_torch_device() == torch.device("cpu")
        x, y, o = _operands()
        assert triton.testing.do_bench(lambda: _add[_grid](x, y, o, N, B=128)) > 0


@triton.jit
def _helper(pair, scale):
    return pair[0] * scale + pair[1]


@triton.jit
def _tuples(o, pair, pointers, function: tl.constexpr, dtype: tl.constexpr, nothing):
    value = function(pair, 2)
    if nothing is None:
        value += tl.load(pointers[1])
    tl.store(o, value.to(dtype))


def test_tuples_functions_types_and_none():
    o = torch.zeros(1, dtype=torch.float64)
    with ditron.sim.triton():
        _tuples[(1,)](o, (3, 0.5), (None, torch.tensor([10], dtype=torch.int32)), _helper, tl.float64, None)
    assert o.item() == 16.5


@triton.jit
def _through_descriptors(source, target, scale, B: tl.constexpr):
    target.store([0, 8], source.load([8, 0]) * scale)


def test_host_descriptors():
    x, o = torch.randn(16, 16), torch.zeros(16, 16)
    with ditron.sim.triton():
        _through_descriptors[(1,)](
            TensorDescriptor.from_tensor(x, [8, 8]), TensorDescriptor.from_tensor(o, [8, 8]), 2.0, B=8
        )
    assert torch.equal(o[:8, 8:], x[8:, :8] * 2) and o.count_nonzero() == 64


@triton.jit
def _beyond_the_end(first, pair, out, B: tl.constexpr):
    at = tl.arange(0, B)
    for i in tl.static_range(2):
        tl.store(out + i * B + at, pair[i].load([3 * B // 2]))
    tl.store(out + 2 * B + at, first.load([3 * B // 2]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2], ids=str)
def test_host_descriptors_say_what_is_outside(dtype):
    """Each says so at each launch: the kernel is the same."""
    x = torch.arange(32).to(dtype)
    plain, nan = (TensorDescriptor.from_tensor(x, [16], padding=padding) for padding in ("zero", "nan"))
    inside = x[24:].float()
    with ditron.sim.triton():
        for row in ((plain, nan, nan), (nan, plain, nan), (plain, plain, plain)):
            out = torch.ones(3, 16).to(dtype)
            _beyond_the_end[(1,)](row[2], row[:2], out, B=16)
            for line, descriptor in zip(out.float(), row, strict=True):
                assert torch.equal(line[:8], inside)
                assert (line[8:].isnan() if descriptor is nan else line[8:] == 0).all()


@triton.jit
def _wrong(x, n):
    tl.device_assert(tl.load(x) == n, "the first is not n")


def test_errors_name_the_line_and_do_not_last():
    x, y, o = _operands()
    with ditron.sim.triton():
        with pytest.raises(ditron.SimulationError, match=r"test_plain_triton.py:\d+"):
            _wrong[(1,)](x, 5, debug=True)
        _add[_grid](x, y, o, N, B=128)
    assert torch.equal(o, x + y)


def test_a_reinterpreted_tensor():
    with ditron.sim.triton():
        x, o = torch.full((N,), -1, dtype=torch.int32), torch.zeros(N, dtype=torch.int64)
        _add[_grid](triton.reinterpret(x, tl.uint32), o, triton.reinterpret(o, tl.uint64), N, B=128)
    assert torch.equal(o, torch.full((N,), 2**32 - 1))


class _View:
    """A package's own tensor-like class: the attributes that a kernel needs, and the device that its tensor reported."""

    def __init__(self, base: torch.Tensor, offset: int):
        self.dtype, self.device, self._ptr = base.dtype, base.device, base.data_ptr() + offset * base.itemsize

    def data_ptr(self) -> int:
        return self._ptr


def test_tensor_like_classes():
    x, o = torch.randn(N), torch.zeros(N)
    with ditron.sim.triton():
        _add[(1,)](_View(x, 100), _View(x, 100), _View(o, 7), 50, B=64)
    assert torch.equal(o[7:57], x[100:150] * 2) and o.count_nonzero() == 50


def test_tensor_like_classes_on_another_device_are_errors():
    away = _View(torch.zeros(N), 0)
    away.device = torch.device("cuda")
    with ditron.sim.triton(), pytest.raises(ditron.DitronError, match="'x' is on cuda"):
        _add[(1,)](away, away, torch.zeros(N), 50, B=64)


@triton.jit(noinline=True)
def _steps(n, B: tl.constexpr):
    if n > 1:
        return tl.arange(0, B) * n
    return tl.arange(0, B)


@triton.jit(noinline=True)
def _described(x, B: tl.constexpr):
    return tl.make_tensor_descriptor(x, [B], [1], [B])


@triton.jit(noinline=True)
def _store(o, i, B: tl.constexpr):
    o.store([0], _steps(i, B).to(tl.float32))


@triton.jit
def _called(o, n, B: tl.constexpr):
    _store(_described(o, B), n, B)


def test_noinline_functions_may_take_and_give_descriptors_and_tiles():
    o = torch.zeros(16)
    with ditron.sim.triton():
        for n in (1, 2):
            _called[(1,)](o, n, 16)
            assert torch.equal(o, torch.arange(16.0) * n)


def test_more_threads_than_a_gpu_has_are_refused():
    x, y, o = _operands()
    tuned = triton.autotune([triton.Config({"B": 128}, num_warps=n) for n in (64, 4)], key=["n"])(_add)
    with ditron.sim.triton():
        with pytest.raises(OutOfResources, match="threads, Required: 2048, Hardware limit: 1024"):
            _add[_grid](x, y, o, N, B=128, num_warps=64)
        tuned[_grid](x, y, o, N)
    assert torch.equal(o, x + y) and tuned.best_config.num_warps == 4


def test_what_a_gpu_would_run_can_be_read():
    with ditron.sim.triton():
        kernel = _add[_grid](*_operands(), N, B=128)
    assert "ptx" in kernel.asm and kernel.asm.get("amdgcn") is None
    assert "tt.func public @_add" in kernel.asm["ttir"] and ".entry _add" in kernel.asm["ptx"]
    assert "define" in kernel.asm["sim"]
    with pytest.raises(KeyError, match="amdgcn"):
        kernel.asm["amdgcn"]


def test_kernels_of_triton_compile(tmp_path):
    x, y, o = _operands()
    with ditron.sim.triton():
        types = {"x": "*fp32", "y": "*fp32", "o": "*fp32", "n": "i32", "B": "constexpr"}
        kernel = triton.compile(ASTSource(_add, types, {"B": 128}))
        kernel[_grid({"B": 128}) + (1, 1)](x, y, o, N, 128)
        assert torch.equal(o, x + y)
        path = tmp_path / "add.ttgir"
        path.write_text(kernel.asm["ttgir"])
        with pytest.raises(ditron.DitronError, match="from a file of ttgir was launched on the simulator"):
            triton.compile(str(path))[(1, 1, 1)](x, y, o, N)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_script(tmp_path, ranks):
    script = tmp_path / "script.py"
    source = Path(__file__).read_text()
    kernel = source[source.index("@triton.jit\ndef _add") : source.index("def _operands")]
    script.write_text(
        f"import torch, triton, triton.language as tl\n{kernel}\n"
        "x, o = torch.arange(1000.), torch.zeros(1000)\n"
        "_add[(8,)](x, x, o, 1000, B=128)\nassert torch.equal(o, x + x)\nprint('right')\n"
    )
    command = [sys.executable, "-m", "ditron.cli", "run", "--sim", str(ranks), script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "right\n" * ranks, done.stdout + done.stderr
