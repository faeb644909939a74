"""The exception that MLIR's errors become."""

from __future__ import annotations


class MLIRError(Exception):
    """MLIR reported errors.

    ``message`` is the first error's text, ``location`` its Location, ``error_diagnostics`` all errors with their notes
    (``severity``, ``location``, ``message``, ``notes``), ``what`` what was being done. Without any
    diagnostic ``message`` is ``what`` and ``location`` is None.
    """

    def __init__(self, what: str, error_diagnostics=()):
        self.what = what
        self.error_diagnostics = list(error_diagnostics)
        first = self.error_diagnostics[0] if self.error_diagnostics else None
        self.message: str = first.message if first else what
        self.location = first.location if first else None
        super().__init__(what, self.error_diagnostics)

    def __str__(self) -> str:
        lines = []
        for diagnostic in self.error_diagnostics:
            lines.append(_line(diagnostic, "error"))
            lines += (_line(note, "note") for note in diagnostic.notes)
        return "\n".join(lines) or self.what


def _line(diagnostic, severity: str) -> str:
    position = diagnostic.location.file_line_col
    where = "{}:{}:{}: ".format(*position) if position else ""
    return f"{where}{severity}: {diagnostic.message}"
