"""Why a pattern does not apply."""

from __future__ import annotations

from ditron_compiler import ir

__all__ = ["MatchFailure"]


class MatchFailure(Exception):
    """A rewrite does not apply, as ``notifyMatchFailure`` says it in MLIR: why, and which operation is the reason."""

    def __init__(self, reason: str, op: ir.Operation | None = None):
        super().__init__(reason)
        self.reason, self.op = reason, op
