"""``ditron-lsp-server``: MLIR's language server with our dialects; an editor starts it for .mlir files."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Serve on standard input and output; the exit status is 0 when the editor said goodbye."""
    from ditron_compiler import _core

    return _core.lsp_main(["ditron-lsp-server", *(sys.argv if argv is None else argv)[1:]])


if __name__ == "__main__":
    sys.exit(main())
