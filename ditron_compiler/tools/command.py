"""Entry of the ``ditron`` command: `ditron doctor` must answer even where DITRON itself cannot be imported."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; a package that is missing or of a wrong version is one line, not a traceback."""
    if sys.argv[1:] == ["doctor"]:
        from ditron_compiler.tools.doctor import main as doctor

        return doctor()
    from ditron_compiler.versions import VersionError

    try:
        from ditron.cli import main as command  # noqa: TID251
    except VersionError as error:
        print(f"ditron: {error}\nditron: 'ditron doctor' tells more", file=sys.stderr)
        return 1
    return command()


if __name__ == "__main__":
    sys.exit(main())
