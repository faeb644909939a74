"""Every kernel that these tests compile is also read and printed as Triton does."""

import pytest
import ttir_text

from ditron_compiler.frontend import handover


@pytest.fixture(autouse=True)
def _triton_text(monkeypatch):
    print_generic = handover.print_generic
    monkeypatch.setattr(handover, "print_generic", lambda module: ttir_text.check_text(module, print_generic))
