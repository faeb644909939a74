"""Operators: computation overlapped with communication, on tensors of PyTorch, on GPUs and on the simulator.

import ditron
from ditron.kernels import ag_gemm, gemm_rs

ditron.init()
hidden = ag_gemm(x, w_up)  # every rank's rows of x, times this rank's columns of the weight
y = gemm_rs(hidden, w_down)  # this rank's rows of the sum over ranks
"""

from ditron.kernels import torch_all_to_all as _torch_all_to_all  # noqa: F401 (registers torch.ops.ditron)
from ditron.kernels import torch_ep_exchange as _torch_ep_exchange  # noqa: F401
from ditron.kernels import torch_library as _torch_library  # noqa: F401
from ditron.kernels import torch_moe as _torch_moe  # noqa: F401
from ditron.kernels.a2a_gemm import a2a_gemm
from ditron.kernels.ag_gemm import ag_gemm, ag_gemm_gathered, ag_gemm_multi
from ditron.kernels.ag_moe import ag_moe
from ditron.kernels.all_gather import all_gather, own_part
from ditron.kernels.all_reduce import all_reduce
from ditron.kernels.all_reduce_rms_norm import all_reduce_rms_norm
from ditron.kernels.all_to_all import all_to_all
from ditron.kernels.all_to_all_v import all_to_all_v
from ditron.kernels.ep_exchange import ep_combine, ep_dispatch
from ditron.kernels.ep_moe import ep_moe
from ditron.kernels.expert_activation import quantize_1x128
from ditron.kernels.gemm_a2a import gemm_a2a
from ditron.kernels.gemm_ar import gemm_ar
from ditron.kernels.gemm_rs import gemm_rs
from ditron.kernels.gradients import ag_gemm_backward, ag_gemm_multi_backward, gemm_rs_backward
from ditron.kernels.grouped import expert_tile
from ditron.kernels.grouped_mm import grouped_mm
from ditron.kernels.moe_ar import moe_ar
from ditron.kernels.moe_gradients import ag_moe_backward
from ditron.kernels.moe_plan import moe_plan
from ditron.kernels.moe_rs import moe_rs
from ditron.kernels.moe_rs_gradients import moe_rs_backward
from ditron.kernels.reduce_scatter import reduce_scatter
from ditron.kernels.route_draws import draw_routes
from ditron.kernels.routing import Plan
from ditron.kernels.scales import quantize_128x128

__all__ = [
    "Plan",
    "a2a_gemm",
    "ag_gemm",
    "ag_gemm_backward",
    "ag_gemm_gathered",
    "ag_gemm_multi",
    "ag_gemm_multi_backward",
    "ag_moe",
    "ag_moe_backward",
    "all_gather",
    "all_reduce",
    "all_reduce_rms_norm",
    "all_to_all",
    "all_to_all_v",
    "draw_routes",
    "ep_combine",
    "ep_dispatch",
    "ep_moe",
    "expert_tile",
    "gemm_a2a",
    "gemm_ar",
    "gemm_rs",
    "gemm_rs_backward",
    "grouped_mm",
    "moe_ar",
    "moe_plan",
    "moe_rs",
    "moe_rs_backward",
    "own_part",
    "quantize_128x128",
    "quantize_1x128",
    "reduce_scatter",
]
