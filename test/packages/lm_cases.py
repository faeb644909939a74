"""cut-cross-entropy, mlstm_kernels (against its references in plain torch) and stanford-stk (sparse blocks)."""

import torch
import torch.nn.functional as F
from harness import Case, given, rand, tensor

AS_CUDA = True
HALF = (torch.float16, torch.bfloat16)
ALL = (torch.float32, torch.float16, torch.bfloat16)
T, VOCABULARY = 128, 300
CASES = {}


def _targets():
    targets = torch.randint(0, VOCABULARY, (2, 40))
    targets[0, 3] = -100
    return targets


def _loss(reduction, softcap, shift):
    def plain(e, c, t):
        e, t = (e[:, :-1], t[:, 1:]) if shift else (e, t)
        logits = e @ c.T
        logits = torch.tanh(logits / softcap) * softcap if softcap else logits
        loss = F.cross_entropy(logits.flatten(0, -2), t.flatten(), reduction=reduction)
        return loss.view(t.shape) if reduction == "none" else loss

    return plain


def _cut(**options):
    def ours(e, c, t):
        from cut_cross_entropy import linear_cross_entropy

        return linear_cross_entropy(e, c, t, **options)

    return ours


for reduction in ("mean", "sum", "none"):
    for softcap in (None, 20.0):
        for shift in (False, True):
            name = f"linear_cross_entropy {reduction}" + " softcap" * bool(softcap) + " shift" * shift
            CASES[name] = Case(
                given(rand(2, 40, 64), rand(VOCABULARY, 64), tensor(_targets)),
                _cut(reduction=reduction, softcap=softcap, shift=shift),
                _loss(reduction, softcap, shift),
                dtypes=HALF,
                fixed=(2,),
            )


def _sequence(kernel, **options):
    def call(*inputs):
        from mlstm_kernels.torch import get_mlstm_kernel

        return get_mlstm_kernel(kernel)(*inputs, **options)

    return call


def _gate(offset):
    return tensor(lambda: torch.randn(1, 2, T) + offset)


for kernel, reference in (
    ("chunkwise--triton_limit_chunk", "chunkwise--native_custbw"),
    ("chunkwise--triton_xl_chunk", "chunkwise--native_custbw"),
    ("parallel--triton_limit_headdim", "chunkwise--native_custbw"),
    ("chunkwise--triton_xl_chunk_siging", "parallel--native_siging_custbw"),
):
    for dtype in ALL:
        options = {} if "parallel" in kernel else {"chunk_size": 64}
        CASES[f"mlstm {kernel.replace('--', ' ')} {str(dtype)[6:]}"] = Case(
            given(*[rand(1, 2, T, 32)] * 3, _gate(-1.0), _gate(2.0)),
            _sequence(kernel, autocast_kernel_dtype=dtype, **options),
            _sequence(reference),
            dtypes=(dtype,),
            tolerance=2.0 if "siging" in kernel else 1.0,
        )


def _step(which):
    def call(*inputs):
        from mlstm_kernels.torch import get_mlstm_step_kernel

        hidden, states = get_mlstm_step_kernel(which)(*inputs)
        return hidden, *states

    return call


CASES["mlstm step"] = Case(
    given(
        rand(2, 3, 32),
        rand(2, 3, 32),
        rand(2, 3, 64),
        *[rand(2, 3, 1)] * 2,
        rand(2, 3, 32, 64),
        rand(2, 3, 32),
        rand(2, 3, 1),
    ),  # fmt: skip
    _step("triton"),
    _step("native"),
    dtypes=(torch.float32,),
    forward_only=True,
)


def _blocks(x):
    """Every other block of 128 x 128, so that the rest of the matrix is zero."""
    rows, columns = (torch.arange(n) // 128 for n in x.shape)
    return x * ((rows[:, None] + columns) % 2 == 0)


def _sparse(x):
    import stk

    return stk.ops.to_sparse(_blocks(x).detach(), 128)


def _stk(which):
    def ours(a, b):
        import stk

        if which == "dsd":
            return stk.ops.dsd(_sparse(a), b)
        if which == "dds":
            return stk.ops.dds(a, _sparse(b))
        return stk.ops.to_dense(stk.ops.sdd(a, b, _sparse(torch.ones(a.shape[0], b.shape[1], dtype=a.dtype))))

    return ours


for which, plain, fixed in (
    ("dsd", lambda a, b: _blocks(a) @ b, (0,)),
    ("dds", lambda a, b: a @ _blocks(b), (1,)),
    ("sdd", lambda a, b: _blocks(a @ b), ()),
):
    CASES[f"stk {which}"] = Case(
        given(rand(256, 256), rand(256, 256)), _stk(which), plain, dtypes=HALF, fixed=fixed, forward_only=which == "sdd"
    )

IMPOSSIBLE = {
    "mlstm alternate step": "writes blocks of 128 past tensors of 32 columns, which the simulator reports",
    "linear_cross_entropy in float32": "the package computes in 16 bits",
}


def cases():
    return CASES
