"""Code that requires CUDA, on the simulator: what torch reports within ``ditron.sim.triton(as_cuda=True)``."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

import ditron

N = 300


@triton.jit
def _double(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, i < n) * 2, i < n)


class _View:
    """A package's own tensor-like class: the attributes that a kernel needs, and the device that its tensor reported."""

    def __init__(self, base: torch.Tensor, offset: int):
        self.dtype, self.device, self._ptr = base.dtype, base.device, base.data_ptr() + offset * base.itemsize

    def data_ptr(self) -> int:
        return self._ptr


def test_tensor_like_classes():
    with ditron.sim.triton(as_cuda=True):
        x, o = torch.randn(N), torch.zeros(N)
        _double[(1,)](_View(x, 100), _View(o, 7), 50, B=64)
    assert torch.equal(o[7:57], x[100:150] * 2) and o.count_nonzero() == 50


def test_patches_are_undone():
    def state():
        return (JITFunction._do_compile, driver._active, torch.cuda.is_available, dict(vars(Autotuner)))

    before = state()
    with pytest.raises(ZeroDivisionError), ditron.sim.triton(), ditron.sim.triton(as_cuda=True):
        assert torch.cuda.is_available() and torch.zeros(1).is_cuda
        raise ZeroDivisionError
    assert state() == before
    assert not torch.zeros(1).is_cuda


def test_unchanged_cuda_code():
    with ditron.sim.triton(as_cuda=True):
        assert torch.cuda.get_device_capability() == (9, 0)
        x = torch.randn(N, device="cuda")
        o = torch.empty_like(x)
        assert o.device.type == "cuda" and x.is_cuda and torch.zeros(N).cuda().is_cuda
        with torch.cuda.device(x.device.index):
            _double[(3,)](x, o, N, B=128)
        torch.cuda.synchronize()
        result = o.cpu()
    assert result.device.type == "cpu" and torch.equal(result, x * 2)


def test_a_reinterpreted_tensor(fake_cuda):
    x = torch.full((N,), -1, dtype=torch.int32, device="cuda")
    o = torch.zeros(N, dtype=torch.int64, device=x.device)
    _double[(3,)](triton.reinterpret(x, tl.uint32), triton.reinterpret(o, tl.uint64), N, B=128)
    assert torch.equal(o, torch.full((N,), 2 * (2**32 - 1) % 2**32))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_script(tmp_path, ranks):
    script = tmp_path / "script.py"
    source = Path(__file__).read_text()
    kernel = source[source.index("@triton.jit\ndef _double") : source.index("class _View")]
    script.write_text(
        f"import torch, triton, triton.language as tl\n{kernel}\n"
        "x, o = torch.arange(1000., device='cuda'), torch.zeros(1000, device='cuda')\n"
        "_double[(8,)](x, o, 1000, B=128)\nassert torch.equal(o, x + x)\n"
        "assert x.is_cuda and torch.cuda.is_available()\nprint('right')\n"
    )
    command = [sys.executable, "-m", "ditron.cli", "run", "--sim", str(ranks), "--as-cuda", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "right\n" * ranks, done.stdout + done.stderr


def test_generators_of_the_device(fake_cuda):
    """A CUDA generator's state is its seed and its offset, which move on with the numbers taken, and can be set."""
    generator = torch.Generator(device="cuda").manual_seed(7)
    assert generator.device.type == "cuda" and isinstance(generator, torch.Generator)
    assert generator.get_state().view(torch.int64).tolist() == [7, 0]
    first = torch.rand(4, device="cuda", generator=generator)
    state = generator.get_state()
    second = torch.rand(4, device="cuda", generator=generator)
    assert not torch.equal(first, second) and state.view(torch.int64)[1] > 0
    generator.set_state(state)
    assert torch.equal(torch.rand(4, generator=generator), second)
    generator.set_state(torch.tensor([7, 0]).view(torch.uint8))
    assert torch.equal(torch.rand(4, generator=generator), first)
    assert type(torch.Generator("cpu")) is not type(generator) and torch.Generator().device.type == "cpu"


def test_the_default_generator(fake_cuda):
    torch.cuda.manual_seed(3)
    (generator,) = torch.cuda.default_generators
    assert generator.initial_seed() == torch.cuda.initial_seed() == 3
    state = torch.cuda.get_rng_state()
    state.view(torch.int64)[1] += 8
    torch.cuda.set_rng_state(state)
    assert generator.get_offset() == 8


@pytest.mark.parametrize("capability", [None, "80"])
def test_the_capability_that_is_asked_for(monkeypatch, capability):
    if capability:
        monkeypatch.setenv("DITRON_SIM_CAPABILITY", capability)
    wanted = divmod(int(capability or 90), 10)
    with ditron.sim.triton(as_cuda=True):
        assert torch.cuda.get_device_capability() == wanted
        assert torch.cuda.get_device_properties().major == wanted[0]
        assert triton.runtime.driver.active.get_current_target().arch == int(capability or 90)
        x, o = torch.randn(N), torch.zeros(N)
        _double[(3,)](x, o, N, B=128)
    assert torch.equal(o, x * 2)


def test_devices_are_what_they_are_called(fake_cuda):
    x = torch.zeros(4, device=torch.device("cuda"))
    assert x.device.type == torch.device("cuda").type == "cuda" and x.device == torch.device("cuda", 0)
    assert torch.empty(2, device=x.device).to(torch.device("cuda:0")).get_device() == 0
    assert torch.device("cpu").type == "cpu" and torch.accelerator.current_accelerator().type == "cuda"


def test_the_default_device(fake_cuda):
    torch.set_default_device("cuda")
    try:
        assert torch.get_default_device().type == "cuda" and torch.arange(3).sum() == 3
        with torch.device("cuda:0"):
            assert torch.ones(2).is_cuda
        with torch.device("meta"):
            assert torch.ones(2).is_meta
    finally:
        torch.set_default_device(None)


def test_devices_by_number(fake_cuda):
    here = torch.cuda.current_device()
    assert torch.ones(3, device=here).to(here).is_cuda and torch.arange(3, device=0).new_zeros(2, device=here).is_cuda
    assert torch.device(here) == torch.device("cuda", 0) == torch.nn.Linear(2, 2).to(here).weight.device
    assert triton.runtime.driver.active.get_active_torch_device() == torch.ones(1).device
    with torch.cuda.device(here) as guard, torch.accelerator.device_index(here):
        assert guard.idx == 0


def test_streams(fake_cuda):
    """The current stream is the one of the innermost ``with`` or ``set_stream``; equal where it is the same."""
    side, other = torch.cuda.Stream(), torch.Stream("cuda")
    default = torch.cuda.current_stream()
    assert default == torch.cuda.default_stream() != side != other and len({default, side, side}) == 2
    with torch.cuda.stream(side):
        with other:
            assert torch.accelerator.current_stream() == other
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == side == torch.cuda.ExternalStream(side.cuda_stream)
    assert torch.cuda.current_stream() == default and default.cuda_stream == 0
    torch.cuda.set_stream(side)
    assert torch.cuda.current_stream() == side
    torch.cuda.set_stream(default)
    event = torch.Event(device="cuda", enable_timing=True)
    event.record(other)
    other.wait_event(event)
    assert event.query() and isinstance(side, torch.cuda.Stream)


def test_memory_and_profiling(fake_cuda):
    """What tests and benchmarks call around a kernel; nothing is counted."""
    for home in (torch.cuda, torch.cuda.memory, torch.accelerator):
        home.reset_peak_memory_stats()
        assert home.max_memory_allocated() == home.memory_allocated() == home.memory_stats()["num_ooms"] == 0
    assert torch.accelerator.get_memory_info() == torch.cuda.memory.mem_get_info() == torch.cuda.mem_get_info()
    assert torch.cuda.memory_summary() == "" and torch.cuda.get_device_properties(0).memory_bus_width > 0
    torch.cuda.profiler.start()
    torch.cuda._sleep(1)
    assert torch.cuda.FloatTensor([1.0]).is_cuda and torch.get_device_module() is torch.cuda


def test_copies_are_copies(fake_cuda):
    x = torch.zeros(4)
    for there in (x.cuda(), x.cpu()):
        there += 1
    assert not x.any()
    x.record_stream(torch.cuda.current_stream())


def test_threads_inherit_the_mode(fake_cuda):
    with ThreadPoolExecutor(1) as pool:
        x = pool.submit(lambda: _doubled(torch.ones(N, device="cuda"))).result()
        assert torch.equal(x, torch.full((N,), 2.0))


def test_memory_of_the_host(fake_cuda):
    """What was asked to be in the host's memory says so, and its copy on the device does not."""
    pinned = torch.ones(2, pin_memory=True, device="cpu")
    assert pinned.is_cpu and pinned.is_pinned() and pinned.pin_memory() is pinned
    x = torch.zeros(2)
    assert not x.is_cpu and x.pin_memory().is_pinned() and x.cpu().is_cpu and not x.is_pinned()
    assert not pinned.cuda().is_cpu and not (x + 1).is_cpu and torch.equal(x.pin_memory(), x)


def test_nothing_of_it_is_left_over():
    def state():
        return (
            torch.cuda.default_generators,
            torch.Generator,
            torch.version.cuda,
            dict(vars(torch.accelerator)),
            torch.cuda.nvtx.range_push,
        )

    before = state()
    with ditron.sim.triton(as_cuda=True):
        assert state() != before
    assert state() == before


def _doubled(x: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda
    o = torch.empty_like(x)
    _double[(3,)](x, o, N, B=128)
    return o


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["impl", "custom_op", "library", "library of a key"])
def test_operators_for_cuda_tensors(fake_cuda, how):
    """torch.library's operators for CUDA run with CPU tensors."""
    name = "double_" + how.replace(" ", "_")
    if how == "custom_op":
        operator = torch.library.custom_op(f"ditron_test::{name}", _doubled, mutates_args=(), device_types="cuda")
        operator.register_kernel("cpu", lambda x: x / 0)
    elif how == "impl":
        torch.library.define(f"ditron_test::{name}", "(Tensor x) -> Tensor")
        torch.library.impl(f"ditron_test::{name}", "cuda", _doubled)
        operator = getattr(torch.ops.ditron_test, name)
    else:
        library = torch.library.Library("ditron_test", "FRAGMENT")
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, lambda x: x / 0, "CPU")
        if how == "library":
            torch.library.impl(library, name, "CUDA")(_doubled)
        else:
            for_cuda = torch.library.Library("ditron_test", "IMPL", "CUDA")
            for_cuda.impl(name, _doubled)
        operator = getattr(torch.ops.ditron_test, name)
    x = torch.randn(N, device="cuda")
    assert torch.equal(operator(x), x * 2)


class _Seen(torch.autograd.Function):
    """The types that a function gets whose inputs are cast as is usual around kernels."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.bfloat16)
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        assert gradient.is_cuda
        return gradient


def test_automatic_casts(fake_cuda):
    x = torch.randn(4, 4, requires_grad=True)
    assert _Seen.apply(x).dtype == torch.float32 and not torch.is_autocast_enabled()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == _Seen.apply(x).dtype == torch.get_autocast_gpu_dtype() == torch.bfloat16
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
    with torch.autocast("cuda"):
        assert (x @ x).dtype == torch.float16


def test_gradients_are_of_the_device(fake_cuda):
    x = torch.randn(4, 4, requires_grad=True)
    _Seen.apply(x).sum().backward()
    (gradient,) = torch.autograd.grad(_Seen.apply(x).sum(), x)
    assert x.grad.dtype == torch.float32 and torch.equal(gradient, x.grad)


@pytest.mark.parametrize("as_cuda", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_torch_compile(as_cuda, before):
    """What torch compiles launches kernels and sees what its tensors say, as the function does that it was given."""

    def doubled(x):
        out = torch.empty_like(x)
        _double[(triton.cdiv(N, 64),)](x, out, N, B=64)
        return out if x.is_cuda else -out

    compile, compiled = torch.compile, torch.compile(doubled, fullgraph=True) if before else None
    x = torch.rand(N)
    with ditron.sim.triton(as_cuda=as_cuda):
        compiled = compiled or torch.compile(doubled, fullgraph=True)
        assert torch.equal(compiled(x), x * (2 if as_cuda else -2))
    assert torch.compile is compile and torch._dynamo.eval_frame._stance.stance == "default"


def test_devices_by_keyword(fake_cuda):
    """Arguments of torch.cuda's functions have torch's names."""
    assert torch.cuda.get_device_properties(device=0).multi_processor_count > 1
    assert torch.cuda.get_device_capability(device="cuda:0") >= (8, 0)
    assert torch.cuda.current_stream(device=0) == torch.cuda.default_stream(device=torch.device("cuda"))
    torch.cuda.set_rng_state(new_state=torch.cuda.get_rng_state(device="cuda"), device="cuda")
