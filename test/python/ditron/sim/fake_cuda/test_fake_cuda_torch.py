"""torch's own code under fake CUDA: seeds, optimizers, saved files, meta tensors, operators."""

import io

import pytest
import torch
import triton
from test_fake_cuda import _double
from torch._inductor.runtime import triton_helpers
from torch.utils.checkpoint import checkpoint

import ditron
from ditron import sim


@pytest.mark.parametrize(
    "home, name", [(torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all"), (torch, "manual_seed")]
)
def test_what_a_seed_repeats(fake_cuda, home, name):
    seed = getattr(home, name)  # as it is under fake CUDA
    draws = []
    for _ in range(2):
        seed(3)
        draws.append((torch.rand(3, device="cuda"), torch.randn(2, 2, device="cuda"), torch.randperm(5, device="cuda")))
    assert all(torch.equal(one, two) for one, two in zip(*draws, strict=True))
    assert torch.cuda.initial_seed() == 3
    seed(4)
    assert not torch.equal(draws[0][0], torch.rand(3, device="cuda"))


def test_what_a_state_repeats(fake_cuda):
    torch.cuda.manual_seed(7)
    torch.rand(1, device="cuda")
    state, states = torch.cuda.get_rng_state(), torch.cuda.get_rng_state_all()
    first = torch.rand(3, device="cuda")
    assert not torch.equal(torch.cuda.get_rng_state(), state)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    torch.cuda.set_rng_state_all(states)
    assert torch.equal(torch.rand(3, device="cuda", generator=torch.cuda.default_generators[0]), first)
    with torch.random.fork_rng(devices=[0]):
        torch.rand(5, device="cuda")
    after = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(6, device="cuda")[3:], after)


def test_dropout_in_a_checkpoint(fake_cuda):
    torch.cuda.manual_seed(0)
    for reentrant in (True, False):
        x = torch.ones(1000, device="cuda", requires_grad=True)
        y = checkpoint(lambda x: torch.nn.functional.dropout(x, 0.5), x, use_reentrant=reentrant)
        torch.rand(7, device="cuda")
        y.sum().backward()
        assert torch.equal(x.grad, y.detach()) and 0 < y.count_nonzero() < 1000


@pytest.mark.parametrize(
    "optimizer, options",
    [
        (torch.optim.SGD, {}),
        (torch.optim.Adam, {}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adam, {"capturable": True}),
    ],
)
def test_optimizers(fake_cuda, optimizer, options):
    weight = torch.nn.Parameter(torch.ones(4, 4, device="cuda"))
    weight.grad = torch.ones(4, 4, device="cuda")
    optimizer([weight], lr=0.125, **options).step()
    assert weight.max() < 1
    assert not torch.cuda.current_stream().is_capturing()


@pytest.mark.parametrize("where", ["cuda", "cuda:0", torch.device("cuda"), "cpu", None, lambda s, _: s.cuda()])
def test_files_are_loaded_to_the_device(fake_cuda, where):
    file, x = io.BytesIO(), torch.randn(5, device="cuda")
    torch.save({"x": x}, file)
    file.seek(0)
    assert torch.equal(torch.load(file, map_location=where)["x"], x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch can load to this machine's GPU")
def test_files_are_not_loaded_so_elsewhere():
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="CUDA|cuda"):
        torch.load(file, map_location="cuda")


def test_meta_tensors_are_not_on_cuda(fake_cuda):
    meta = torch.empty(3, device="meta")
    assert meta.device.type == "meta" and meta.is_meta and not meta.is_cuda
    assert torch.ones(2, device="cuda").to("meta").device.type == "meta"
    assert torch.nn.Linear(2, 2, device="meta").weight.device.type == "meta"
    assert torch.ones(2).is_cuda and torch.ones(2, device="cuda").get_device() == 0


def test_operators_that_call_functions():
    """While races are detected in host code."""

    def main():
        with sim.triton(as_cuda=True):
            ditron.init()
            return torch.cond(torch.tensor(True), lambda x: x + 1, lambda x: x - 1, (torch.ones(2),)).tolist()

    assert sim.run(main, 2, races=True) == [[2, 2]] * 2


def test_a_file_that_inductor_writes(fake_cuda):
    """It makes Triton's own driver active."""
    triton_helpers.set_driver_to_gpu()
    x, o = torch.randn(50, device="cuda"), torch.zeros(50, device="cuda")
    _double[(1,)](x, o, 50, B=64)
    assert torch.equal(o, x * 2)


def test_what_scripts_divide_by(fake_cuda):
    """As Triton's tutorial does, for the programs that an SM has room for."""
    kernel = _double.warmup(torch.zeros(50), torch.zeros(50), 50, B=64, grid=(1,))
    kernel._init_handles()
    known = triton.runtime.driver.active.utils.get_device_properties(0)
    assert known["max_num_regs"] // kernel.n_regs > 0 and known["max_shared_mem"] // kernel.metadata.shared > 0


def test_graphs_are_refused(fake_cuda):
    with pytest.raises(RuntimeError, match="the simulator does not capture CUDA graphs"):
        torch.cuda.CUDAGraph()


# --- torch's internals: each of these would end the process ----------------------------------------


class _Wrapper(torch.Tensor):
    """A tensor in a tensor, as quantization libraries have them."""

    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=True
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(arg.inner if isinstance(arg, cls) else arg for arg in args), **kwargs or {})


def test_tensors_in_tensors(fake_cuda):
    wrapped = _Wrapper(torch.ones(3, device="cuda"))
    (wrapped * 2).sum().backward()
    assert wrapped.grad.tolist() == [2, 2, 2]


def test_an_operator_that_is_checked(fake_cuda):
    @torch.library.custom_op("ditron_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        o = torch.empty_like(x)
        _double[(1,)](x, o, x.numel(), B=64)
        return o

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda ctx, grad: twice(grad.contiguous()))
    torch.library.opcheck(twice, (torch.randn(50, device="cuda", requires_grad=True),))


def test_packed_sequences(fake_cuda):
    rows = [torch.arange(float(n), device="cuda") for n in (3, 1)]
    packed = torch.nn.utils.rnn.pack_sequence(rows)
    padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    assert padded.tolist() == [[0, 1, 2], [0, 0, 0]] and lengths.tolist() == [3, 1]


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl", None])
def test_process_groups(fake_cuda, backend, tmp_path):
    dist = torch.distributed
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        x = torch.ones(3, device="cuda")
        dist.all_reduce(x, group=dist.new_group([0], backend=backend))
        assert x.tolist() == [1, 1, 1] and dist.is_nccl_available() and dist.get_backend() == "gloo"
    finally:
        dist.destroy_process_group()


def test_memory_that_a_tensor_moves_to(fake_cuda):
    """It is copied, unless it is there already; where nobody has put a tensor, that is not known."""
    here = torch.zeros(3)
    for there in (here.to("cuda"), here.to(torch.device("cuda", 0)), here.cuda(), here.to("cpu"), here.to(device=0)):
        there += 1
    assert not here.any()
    x = torch.zeros(3, device="cuda", requires_grad=True)
    assert x.cuda() is x and x.to("cuda") is x and x.to(x.device) is x and x.to(torch.float32) is x
    host = x.to("cpu")
    assert host.is_cpu and host.to("cpu") is host and not host.to("cuda").is_cpu and host.cuda() is not host
    with torch.device("cuda"):
        made = torch.zeros(3)
    assert made.cuda() is made


def test_names_of_types(fake_cuda):
    assert torch.zeros(3).type("torch.cuda.HalfTensor").dtype == torch.float16


class _Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.full((2,), float(index))


@pytest.mark.parametrize("workers", [0, 1])
def test_data_loaders(fake_cuda, workers):
    loader = torch.utils.data.DataLoader(_Numbers(), batch_size=3, num_workers=workers, pin_memory=True)
    assert [batch.to("cuda", non_blocking=True).sum().item() for batch in loader] == [6, 24]


def test_modules_that_are_not_initialized(fake_cuda):
    module = torch.nn.LazyLinear(2).to("cuda").cuda()
    assert module(torch.ones(1, 3, device="cuda")).shape == (1, 2)
