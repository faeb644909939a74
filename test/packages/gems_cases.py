"""flag-gems: its operators, called by name, against torch's of the same meaning."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F
from harness import Case, given, rand, tensor

AS_CUDA = True
os.environ.setdefault("GEMS_VENDOR", "nvidia")  # the package's own switch: without it, it looks for nvidia-smi

FLOATS = (torch.float32, torch.bfloat16, torch.float16)

X = rand(5, 130)
P = tensor(lambda: torch.rand(5, 130) + 0.1)
S = tensor(lambda: torch.rand(5, 130) * 1.8 - 0.9)
V = rand(64)
INTEGERS = tensor(lambda: torch.randint(-50, 50, (5, 130)))
K = tensor(lambda: torch.randint(1, 8, (5, 130), dtype=torch.int32))
M = tensor(lambda: torch.rand(5, 130) > 0.5)
B8 = tensor(lambda: torch.randint(0, 5, (4, 9)))

UNARY = (
    "abs absolute ceil cos cosh erf exp exp2 expm1 neg sin sqrt tanh square atan acos sigmoid relu silu angle selu "
    "tan log10 log reciprocal rsqrt i0 arcsinh softplus softshrink hardsigmoid relu6 gelu elu celu log_sigmoid round "
    "isfinite isinf isnan isneginf signbit special_i0e special_i1 logical_not nan_to_num logit threshold".split()
)
TORCH = {
    "silu": F.silu,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "hardsigmoid": F.hardsigmoid,
    "relu6": F.relu6,
    "gelu": F.gelu,
    "elu": F.elu,
    "celu": F.celu,
    "log_sigmoid": F.logsigmoid,
    "special_i0e": torch.special.i0e,
    "special_i1": torch.special.i1,
    "isneginf": torch.isneginf,
}
DOMAIN = dict.fromkeys("sqrt log10 log reciprocal rsqrt".split(), P) | {"acos": S, "logit": P}
BINARY = (
    "add sub mul true_divide floor_divide remainder atan2 hypot maximum minimum fmin copysign logaddexp eq ne lt le gt "
    "ge greater logical_and logical_or logical_xor pow_tensor_tensor isclose"
).split()
INTS = "bitwise_and_tensor bitwise_or_tensor".split()


def cases() -> dict[str, Case]:
    import flag_gems.ops as O

    made: dict[str, Case] = {}

    def add(name: str, inputs: list, ours: Any, plain: Any, dtypes: tuple = FLOATS, **more: Any) -> None:
        def run(f: Any) -> Any:
            def call(*a: Any) -> Any:
                r = f(*a)
                if name.startswith(("sort", "topk")):
                    r = r[0]  # of equal values any index is right
                r = tuple(r) if isinstance(r, (tuple, list)) else (r,)
                return tuple(v.float() if isinstance(v, torch.Tensor) else torch.tensor(float(v)) for v in r)

            return call

        made[name] = Case(given(*inputs), run(ours), run(plain), dtypes=dtypes, forward_only=True, **more)

    def same(
        name: str,
        inputs: list,
        *rest: Any,
        torch_name: str = "",
        dtypes: tuple = FLOATS,
        label: str = "",
        tolerance: float = 1.0,
        **kw: Any,
    ) -> None:
        f = TORCH.get(name) or getattr(torch, torch_name or name, None) or getattr(F, torch_name or name)
        add(
            label or name,
            inputs,
            lambda *a: getattr(O, name)(*a, *rest, **kw),
            lambda *a: f(*a, *rest, **kw),
            dtypes,
            tolerance=tolerance,
        )

    for n in UNARY:
        if n == "threshold":
            same(n, [X], 0.2, -1.0)
            continue
        if n == "logit":
            same(n, [S], 1e-6, tolerance=3.0)
            continue
        same(n, [DOMAIN.get(n, X)])
    for n in BINARY:
        same(
            n,
            [P, X] if n.startswith("pow") else [X, P if n in ("remainder", "floor_divide", "true_divide") else X],
            torch_name={"pow_tensor_tensor": "pow"}.get(n, ""),
            dtypes=FLOATS[:1] if n == "floor_divide" else FLOATS,
            tolerance=4.0 if n.startswith("pow") else 1.0,
        )
    one = (torch.float32,)
    for n in INTS:
        few = tensor(lambda: torch.randint(1, 8, (5, 130)))
        same(n, [INTEGERS, few], torch_name=n.removesuffix("_tensor"), dtypes=one)
    same("floor_divide", [INTEGERS, K], dtypes=one, label="floor_divide (int)")
    same("remainder", [INTEGERS, K], dtypes=one, label="remainder (int)")
    same("bitwise_not", [INTEGERS], dtypes=one)
    for n in "sum mean prod amax argmax argmin max min all any count_nonzero".split():
        same(n, [X] if n != "prod" else [tensor(lambda: torch.rand(3, 20) + 0.5)], tolerance=4.0)
    for n, t in dict(
        sum_dim="sum",
        mean_dim="mean",
        prod_dim="prod",
        max_dim="max",
        min_dim="min",
        all_dim="all",
        any_dim="any",
        argmax="argmax",
        cumsum="cumsum",
        cummax="cummax",
        cummin="cummin",
        softmax="softmax",
        log_softmax="log_softmax",
        sort="sort",
    ).items():
        x = tensor(lambda: torch.rand(3, 40) * 0.4 + 0.8) if t == "prod" else X
        same(n, [x], *([[1]] if n in ("sum_dim", "mean_dim") else [1]), torch_name=t, label=n + " 1", tolerance=4.0)
        if n == "argmax":
            continue
        same(n, [x], *([[0]] if n in ("sum_dim", "mean_dim") else [0]), torch_name=t, label=n + " 0", tolerance=4.0)
    same("cumsum", [rand(3, 3000)], 1, label="cumsum long", tolerance=10.0)
    same("sort", [rand(2, 3000)], label="sort long")
    same("topk", [X], 7)
    same("topk", [rand(2, 2000)], 50, label="topk long")
    same("var", [X], [1], correction=1)
    same("std", [X], [1], correction=1)
    same("var_mean", [X], [1], correction=1)
    same("aminmax", [X], dim=1)
    add("vector_norm", [X], lambda x: O.vector_norm(x, 2, [1]), lambda x: torch.linalg.vector_norm(x, 2, [1]))
    same("mm", [rand(40, 50), rand(50, 30)])
    same("bmm", [rand(2, 40, 50), rand(2, 50, 30)])
    same("addmm", [rand(30), rand(40, 50), rand(50, 30)])
    same("mv", [rand(40, 50), rand(50)])
    same("addmv", [rand(40), rand(40, 50), rand(50)])
    same("addr", [rand(40, 30), rand(40), rand(30)])
    same("baddbmm", [rand(2, 40, 30), rand(2, 40, 50), rand(2, 50, 30)])
    same("dot", [rand(200), rand(200)])
    same("vdot", [rand(200), rand(200)])
    same("kron", [rand(3, 4), rand(5, 6)])
    same("trace", [rand(20, 30)])
    same("tril", [rand(20, 30)], -1)
    same("triu", [rand(20, 30)], 1)
    same("diag", [rand(20)], 1)
    same("diag_embed", [rand(3, 20)])
    same("addcmul", [X, X, X], value=0.5)
    same("addcdiv", [X, X, P], value=0.5)
    same("lerp_tensor", [X, X, P], torch_name="lerp")
    same("where_self", [M, X, X], torch_name="where")
    same("clamp", [X], -0.5, 0.5)
    same("masked_fill", [X, M], 3.0)
    same("masked_select", [X, M])
    add("masked_scatter", [X, M, rand(700)], O.masked_scatter, lambda x, m, s: x.masked_scatter(m, s))
    add("fill_scalar", [X], lambda x: O.fill_scalar(x, 3.0), lambda x: torch.full_like(x, 3.0))
    same("full_like", [X], 2.0)
    same("zeros_like", [X])
    same("ones_like", [X])
    add("cat", [X, X], lambda a, b: O.cat([a, b], 1), lambda a, b: torch.cat([a, b], 1))
    add("stack", [X, X], lambda a, b: O.stack([a, b], 1), lambda a, b: torch.stack([a, b], 1))
    add("hstack", [X, X], lambda a, b: O.hstack([a, b]), lambda a, b: torch.hstack([a, b]))
    add("vstack", [X, X], lambda a, b: O.vstack([a, b]), lambda a, b: torch.vstack([a, b]))
    same("flip", [X], [1])
    same("roll", [X], 3, 1)
    same("tile", [X], [2, 2])
    add("repeat", [X], lambda x: O.repeat(x, [2, 2]), lambda x: x.repeat(2, 2))
    add("repeat_interleave", [X], lambda x: O.repeat_interleave_self_int(x, 3, 1), lambda x: x.repeat_interleave(3, 1))
    add("constant_pad", [X], lambda x: O.pad(x, [1, 2]), lambda x: F.pad(x, [1, 2]))
    add(
        "reflection_pad1d",
        [X],
        lambda x: O.reflection_pad1d(x[None], [1, 2]),
        lambda x: F.pad(x[None], [1, 2], "reflect"),
    )
    add(
        "reflection_pad2d",
        [rand(1, 2, 9, 8)],
        lambda x: O.reflection_pad2d(x, [1, 2, 2, 1]),
        lambda x: F.pad(x, [1, 2, 2, 1], "reflect"),
    )
    add(
        "replication_pad1d",
        [X],
        lambda x: O.replication_pad1d(x[None], [1, 2]),
        lambda x: F.pad(x[None], [1, 2], "replicate"),
    )
    idx = tensor(lambda: torch.randint(0, 5, (5, 130)))
    add("gather", [X, idx], lambda x, i: O.gather(x, 0, i), lambda x, i: torch.gather(x, 0, i))
    add(
        "scatter",
        [X, tensor(lambda: torch.stack([torch.randperm(5) for _ in range(130)], 1)), X],
        lambda x, i, s: O.scatter(x, 0, i, s),
        lambda x, i, s: x.scatter(0, i, s),
    )
    add(
        "scatter add",
        [X, idx, X],
        lambda x, i, s: O.scatter(x, 0, i, s, reduce="add"),
        lambda x, i, s: x.scatter_add(0, i, s),
        dtypes=one,
    )
    add(
        "index_select",
        [X, tensor(lambda: torch.randint(0, 130, (9,)))],
        lambda x, i: O.index_select(x, 1, i),
        lambda x, i: x.index_select(1, i),
    )
    add(
        "index_add",
        [X, tensor(lambda: torch.arange(9) * 3), rand(5, 9)],
        lambda x, i, s: O.index_add(x, 1, i, s),
        lambda x, i, s: x.index_add(1, i, s),
    )
    add(
        "index",
        [X, tensor(lambda: torch.randint(0, 5, (9,))), tensor(lambda: torch.randint(0, 130, (9,)))],
        lambda x, i, j: O.index(x, [i, j]),
        lambda x, i, j: x[i, j],
    )
    add(
        "index_put",
        [X, tensor(lambda: torch.arange(5)), tensor(lambda: torch.arange(5) * 7), rand(5)],
        lambda x, i, j, v: O.index_put(x, [i, j], v),
        lambda x, i, j, v: x.index_put([i, j], v),
    )
    add(
        "select_scatter",
        [X, rand(130)],
        lambda x, s: O.select_scatter(x, s, 0, 2),
        lambda x, s: x.select_scatter(s, 0, 2),
    )
    add(
        "slice_scatter",
        [X, rand(2, 130)],
        lambda x, s: O.slice_scatter(x, s, 0, 1, 5, 2),
        lambda x, s: x.slice_scatter(s, 0, 1, 5, 2),
    )
    same("nonzero", [M], dtypes=one)
    same("isin", [B8, tensor(lambda: torch.tensor([1, 3]))], dtypes=one)
    add("unique", [B8], lambda x: O._unique2(x, return_counts=True)[0], lambda x: x.unique(), dtypes=one)
    add(
        "unique_consecutive",
        [tensor(lambda: torch.randint(0, 3, (40,)))],
        lambda x: O.unique_consecutive(x)[0],
        lambda x: torch.unique_consecutive(x),
        dtypes=one,
    )
    add("one_hot", [B8], lambda x: O.one_hot(x, 5), lambda x: F.one_hot(x, 5), dtypes=one)
    add("embedding", [rand(5, 48), B8], lambda w, i: O.embedding(w, i), lambda w, i: F.embedding(i, w))
    same("quantile", [X], 0.3, 1, dtypes=one)
    add("arange", [], lambda: O.arange_start(3, 50, 2), lambda: torch.arange(3, 50, 2), dtypes=one)
    add("linspace", [], lambda: O.linspace(0, 1, 33), lambda: torch.linspace(0, 1, 33), dtypes=one)
    add("eye", [], lambda: O.eye(20), lambda: torch.eye(20), dtypes=one)
    add(
        "layer_norm",
        [X, rand(130), rand(130)],
        lambda x, w, b: O.layer_norm(x, [130], w, b)[0],
        lambda x, w, b: F.layer_norm(x, [130], w, b),
    )
    add("rms_norm", [X, rand(130)], lambda x, w: O.rms_norm(x, [130], w), lambda x, w: F.rms_norm(x, [130], w, 1e-5))
    add(
        "group_norm",
        [rand(2, 6, 20), rand(6), rand(6)],
        lambda x, w, b: O.group_norm(x, w, b, 2, 6, 20, 3)[0],
        lambda x, w, b: F.group_norm(x, 3, w, b),
    )
    add(
        "batch_norm",
        [rand(4, 6, 20), rand(6), rand(6)],
        lambda x, w, b: O.batch_norm(x, w, b, torch.zeros(6), torch.ones(6), True)[0],
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    )
    add("glu", [X], lambda x: O.glu(x, 1), lambda x: F.glu(x, 1))
    add("prelu", [X, rand(1)], O.prelu, F.prelu)
    add("mse_loss", [X, X], O.mse_loss, F.mse_loss)
    add(
        "nll_loss",
        [X, tensor(lambda: torch.randint(0, 130, (5,)))],
        lambda x, t: O.nll_loss_forward(x, t)[0],
        F.nll_loss,
    )
    add(
        "soft_margin_loss",
        [X, tensor(lambda: torch.randn(5, 130).sign())],
        lambda x, t: O.soft_margin_loss(x, t, 1),
        F.soft_margin_loss,
    )
    qkv = [rand(1, 2, 70, 64)] * 3
    for causal in (False, True):
        add(
            f"scaled_dot_product_attention causal={causal}",
            qkv,
            lambda q, k, v, c=causal: O.scaled_dot_product_attention(q, k, v, is_causal=c),
            lambda q, k, v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
            dtypes=(torch.bfloat16, torch.float16),
        )
    add(
        "flash_attn_varlen_func",
        [rand(70, 2, 64)] * 3,
        lambda q, k, v: O.flash_attn_varlen_func(
            q,
            k,
            v,
            40,
            torch.tensor([0, 30, 70], dtype=torch.int32),
            40,
            torch.tensor([0, 30, 70], dtype=torch.int32),
            causal=True,
        ),
        lambda q, k, v: torch.cat(
            [
                F.scaled_dot_product_attention(*[t[a:b].transpose(0, 1) for t in (q, k, v)], is_causal=True).transpose(
                    0, 1
                )
                for a, b in ((0, 30), (30, 70))
            ]
        ),
        dtypes=(torch.bfloat16, torch.float16),
    )
    add(
        "conv1d",
        [rand(2, 4, 20), rand(6, 4, 3), rand(6)],
        lambda x, w, b: O.conv1d(x, w, b, 1, 1),
        lambda x, w, b: F.conv1d(x, w, b, 1, 1),
    )
    add(
        "conv2d",
        [rand(2, 4, 9, 8), rand(6, 4, 3, 3), rand(6)],
        lambda x, w, b: O.conv2d(x, w, b, 1, 1),
        lambda x, w, b: F.conv2d(x, w, b, 1, 1),
    )
    add(
        "conv3d",
        [rand(1, 4, 5, 6, 7), rand(6, 4, 3, 3, 3), rand(6)],
        lambda x, w, b: O.conv3d(x, w, b, 1, 1),
        lambda x, w, b: F.conv3d(x, w, b, 1, 1),
    )
    add(
        "conv_depthwise2d",
        [rand(2, 4, 9, 8), rand(4, 1, 3, 3)],
        lambda x, w: O._conv_depthwise2d(x, w, [3, 3], None, [1, 1], [1, 1], [1, 1]),
        lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 4),
    )
    add("avg_pool2d", [rand(2, 4, 9, 8)], lambda x: O.avg_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2))
    add("max_pool2d", [rand(2, 4, 9, 8)], lambda x: O.max_pool2d_with_indices(x, 2)[0], lambda x: F.max_pool2d(x, 2))
    add(
        "upsample_nearest2d",
        [rand(2, 4, 9, 8)],
        lambda x: O.upsample_nearest2d(x, [18, 16]),
        lambda x: F.interpolate(x, (18, 16)),
    )
    add(
        "upsample_bicubic2d",
        [rand(2, 4, 9, 8)],
        lambda x: O.upsample_bicubic2d(x, [18, 16], False),
        lambda x: F.interpolate(x, (18, 16), mode="bicubic"),
    )
    add(
        "upsample_linear1d",
        [rand(2, 4, 9)],
        lambda x: O.upsample_linear1d(x, [18], False),
        lambda x: F.interpolate(x, 18, mode="linear"),
    )
    add("pixel_unshuffle", [rand(2, 4, 8, 8)], lambda x: O.pixel_unshuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2))
    add(
        "polar",
        [P, X],
        lambda a, b: torch.view_as_real(O.polar(a, b)),
        lambda a, b: torch.view_as_real(torch.polar(a, b)),
        dtypes=one,
    )
    add(
        "hadamard_transform",
        [rand(4, 64)],
        lambda x: O.hadamard_transform(x),
        lambda x: x @ _hadamard(64),
        tolerance=2.0,
    )
    add("dropout p=0", [X], lambda x: O.dropout(x, 1e-9)[0], lambda x: x)
    add("rand", [], lambda: _stats(O.rand([4000])), lambda: torch.tensor([0.5, 0.2887]), dtypes=one, tolerance=3e3)
    add("randn", [], lambda: _stats(O.randn([4000])), lambda: torch.tensor([0.0, 1.0]), dtypes=one, tolerance=3e3)
    add("randperm", [], lambda: O.randperm(300).sort()[0], lambda: torch.arange(300), dtypes=one)
    add("exponential_", [X], lambda x: O.exponential_(x) > 0, lambda x: torch.ones_like(x))
    add(
        "multinomial",
        [tensor(lambda: torch.tensor([[0.0, 1.0, 0.0]]))],
        lambda p: O.multinomial(p, 5, True),
        lambda p: torch.ones(1, 5),
        dtypes=one,
    )
    add(
        "weight_norm",
        [rand(6, 20), rand(6, 1)],
        lambda v, g: O.weight_norm_interface(v, g)[0],
        lambda v, g: v * g / v.norm(dim=1, keepdim=True),
    )
    add("gelu_backward", [X, X], O.gelu_backward, torch.ops.aten.gelu_backward)
    add("silu_backward", [X, X], O.silu_backward, torch.ops.aten.silu_backward)
    add(
        "softmax_backward",
        [X, P],
        lambda g, o: O.softmax_backward(g, o, 1, g.dtype),
        lambda g, o: torch.ops.aten._softmax_backward_data(g, o, 1, g.dtype),
    )
    add(
        "act_quant",
        [rand(4, 256)],
        lambda x: (lambda q, s: (q.float(), s))(*O.act_quant_triton(x, 128)),
        lambda x: (lambda s: ((x.view(4, 2, 128) / s[..., None]).to(torch.float8_e4m3fn).float().view(4, 256), s))(
            x.view(4, 2, 128).abs().amax(-1) / 448
        ),
        dtypes=one,
    )
    add(
        "group_mm",
        [rand(24, 32), rand(2, 32, 16)],
        lambda a, b: O.group_mm(a, b, torch.tensor([10, 24], dtype=torch.int32)),
        lambda a, b: torch.cat([a[:10] @ b[0], a[10:] @ b[1]]),
        dtypes=(torch.bfloat16,),
    )
    return made


def _stats(x):
    return torch.stack([x.mean(), x.std()])


def _hadamard(n):
    h = torch.ones(1, 1)
    while h.shape[0] < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h


IMPOSSIBLE = {
    "floor_divide in 16 bits": "libdevice.fmod takes float32 and float64: Triton's own error",
    "bitwise_left_shift, bitwise_right_shift": "fail in the package's Python without out=",
    "argmax over dim 0 of a size that is no power of two, up to 128": "a tile of that size: Triton's own error",
}
