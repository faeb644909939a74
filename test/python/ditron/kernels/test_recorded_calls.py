"""Calls whose gradients are recorded without torch's dispatcher: what they give is what ``torch.ops`` gives."""

import gc
import weakref

import pytest
import torch
from simulated import run_numbered as run
from test_torch_library import CALLS, OPTIONS, data
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import ditron
from ditron import kernels
from ditron.kernels.dispatch import recorded


def leaves(value):
    if isinstance(value, (list, tuple)):
        return [leaf for each in value for leaf in leaves(each)]
    return [value] if isinstance(value, torch.Tensor) else []


def results_and_gradients(call, args):
    """The outputs of a call with arguments, and the gradients of those that require one."""
    outputs = leaves(call(*args))
    wanted = [tensor for tensor in leaves(args) if tensor.requires_grad]
    floats = [output for output in outputs if output.requires_grad]
    given = [torch.linspace(-1, 1, output.numel()).view(output.shape).to(output.dtype) for output in floats]
    gradients = torch.autograd.grad(floats, wanted, given, allow_unused=True)
    return [output.detach() for output in outputs], [None if g is None else g.clone() for g in gradients]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", recorded)
def test_the_same_as_through_the_dispatcher(name, ranks):
    def main(rank):
        options = OPTIONS.get(name, {})
        args = CALLS[name]()
        if not any(tensor.requires_grad for tensor in leaves(args)):  # gradients of gradients
            for tensor in leaves(args):
                tensor.requires_grad_(tensor.is_floating_point())
        world = ditron.world()
        through = getattr(torch.ops.ditron, name)
        expected = results_and_gradients(lambda *a: through(*a, **options, group=world.name), args)
        found = results_and_gradients(lambda *a: recorded[name](world, a, dict(options)), args)
        for some, others in zip(found, expected, strict=True):
            assert len(some) == len(others) and len(some) > 0
            for mine, theirs in zip(some, others, strict=True):
                assert (mine is None) == (theirs is None) and (mine is None or torch.equal(mine, theirs))

    run(main, ranks, races=False)


class Sees(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **kwargs or {})


class SeesFunctions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **kwargs or {})


seen: list[str] = []


def test_who_records_and_who_watches():
    """A plain call is none of torch's operators; a mode that watches torch's operators sees it, forward and backward."""

    def main(rank):
        x, w = data(4, 8), data(6, 8, seed=2)
        y = kernels.ag_gemm(x, w)
        assert y.grad_fn.name() == "AgGemmBackward"
        assert kernels.ag_gemm(x.detach(), w.detach()).grad_fn is None
        grads = torch.autograd.grad(y.sum(), (x, w), create_graph=True)
        assert grads[0].grad_fn is not None
        seen.clear()
        with Sees():
            watched = kernels.ag_gemm(x, w)
            again = torch.autograd.grad(watched.sum(), (x, w))
        assert torch.equal(watched, y) and all(torch.equal(a, b) for a, b in zip(again, grads, strict=True))
        assert {"ditron.ag_gemm.default", "ditron.ag_gemm_backward.default"} <= set(seen)
        seen.clear()
        with SeesFunctions():
            assert torch.equal(kernels.ag_gemm(x, w), y)
        assert any("ditron.ag_gemm" in name for name in seen)
        only = torch.autograd.grad(kernels.ag_gemm(x, w.detach()).sum(), x)  # of one of them
        assert torch.equal(only[0], grads[0])

    run(main, 1, races=False)


def test_inputs_are_freed_with_the_outputs():
    """By their reference counts: memory of GPUs does not wait until Python collects garbage."""

    def main(rank):
        gc.collect()
        gc.disable()
        try:
            for call in (kernels.ag_gemm, lambda x, w: kernels.ag_gemm_multi(x, [w, w])[0][0]):
                w = data(6, 8, seed=2)
                x = data(4, 8).clone()
                freed = weakref.ref(x)
                y = call(x, w)
                del x
                assert freed() is not None  # kept for the gradient
                del y
                assert freed() is None
        finally:
            gc.enable()

    run(main, 1, races=False)


def test_none_is_as_left_out():
    def main(rank):
        x = data(3, 8)
        grads = [torch.autograd.grad(kernels.all_gather(x, **how).sum(), x)[0] for how in ({}, {"gradient": None})]
        assert torch.equal(*grads)
        with pytest.raises(RuntimeError, match="missing value for argument 'b'"):
            kernels.ag_gemm(x)

    run(main, 2, races=False)


def test_named_arguments():
    """Positional arguments may be named, and left out."""

    def main(rank):
        x, residual, weight = data(3, 8), data(3, 8, seed=2), data(8, seed=3)
        first = kernels.all_reduce_rms_norm(x, residual, weight)
        named = kernels.all_reduce_rms_norm(x, weight=weight, residual=residual, eps=1e-6)
        other = kernels.all_reduce_rms_norm(x, residual, weight, eps=1.0)
        assert all(torch.equal(a, b) for a, b in zip(first, named, strict=True)) and not torch.equal(first[0], other[0])
        torch.autograd.grad(other[0].sum(), (x, residual, weight))

    run(main, 2, races=False)
