"""Fixtures of several files."""

import pytest
import torch
from hypothesis import settings

# A property holds or fails whatever the machine's load.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Every test draws the same random numbers whenever and wherever it runs."""
    torch.manual_seed(0)
