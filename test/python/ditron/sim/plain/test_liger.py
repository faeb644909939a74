"""Every operator of liger-kernel, forward and backward, on one simulated rank, against plain torch."""

import liger
import pytest
from liger_cases import CASES

try:
    OPS = liger.load()
except ImportError as error:
    pytest.skip(
        f"liger-kernel is not installed ({error}): make test-liger installs it beside the environment",
        allow_module_level=True,
    )


@pytest.mark.parametrize(
    "name,dtype",
    [pytest.param(name, dtype, id=f"{name}-{str(dtype)[6:]}") for name, this in CASES.items() for dtype in this.dtypes],
)
def test_agrees_with_torch(name, dtype):
    forward, backward, bound = liger.measure(OPS, name, dtype)
    assert forward <= bound and backward <= bound


def test_every_operator_is_there():
    """An operator that a new version brings is compared, or it is said why not."""
    covered = {
        f"Liger{word}"
        for word in (
            "RMSNorm FusedAddRMSNorm ModulatedRMSNorm LayerNorm GroupNorm PolyNorm DyT SiLUMul FusedGateUpSiLUMul GELUMul "
            "ReLUSquared Softmax Sparsemax CrossEntropy FusedLinearCrossEntropy VocabParallelCE FusedCETVD JSD "
            "FusedLinearJSD KLDivLoss FusedLinearKLDiv TVDLoss Rope Qwen2VLMRope Llama4Rope Embedding MultiTokenAttention "
            "FusedNeighborhoodAttention AttnRes MHCCoeffs MHCPre MHCPostRes FusedMoE TiledMLP MLP"
        ).split()
    }
    covered |= {"GrpoLoss", "LigerFusedLinearScaledCrossEntropy", "LigerFusedLinearScaledCrossEntropyTP"}
    assert {name.removesuffix("Function") for name in dir(OPS) if name.endswith("Function")} == covered
